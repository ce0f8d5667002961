"""The conformance kit for sinks: `EventSink` passes it, and each fault is found by the check that is for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from trilane.channels import EventSink
from trilane.errors import EventSinkClosed
from trilane.events import Event
from trilane.testing import SINK_CHECKS, check_sink
from trilane.testing.sinks import Write

pytestmark = pytest.mark.anyio

Live = Callable[[], bool] | None


def make(write: Write, capacity: int, write_seconds: float = 30.0) -> EventSink[Event]:
    return EventSink(write, capacity=capacity, write_seconds=write_seconds)


@pytest.mark.parametrize("name", SINK_CHECKS)
async def test_the_sink_of_the_core_conforms(name: str) -> None:
    await SINK_CHECKS[name](make)


def test_every_check_says_what_it_holds_a_sink_to() -> None:
    for name, check in SINK_CHECKS.items():
        assert check.__doc__, name
        assert check.__doc__.startswith("R"), name


# --- sinks with one fault each ------------------------------------------------------------------------------------


class Roomy(EventSink[Event]):
    def __init__(self, write: Write, *, capacity: int, write_seconds: float) -> None:
        super().__init__(write, capacity=capacity + 1, write_seconds=write_seconds)


class NeedsItsWriter(EventSink[Event]):
    def __init__(self, write: Write, *, capacity: int, write_seconds: float) -> None:
        super().__init__(write, capacity=capacity, write_seconds=write_seconds)
        self.begun = anyio.Event()

    async def run(self) -> None:
        self.begun.set()
        await super().run()

    async def publish(self, item: Event, *, live: Live = None) -> None:
        await self.begun.wait()
        await super().publish(item, live=live)


class Overtaking(EventSink[Event]):
    """Lets the newest publisher go first."""

    def _wake_publisher(self) -> None:
        if self._line and len(self._items) < self._capacity:
            self._line[-1].wake()


class DeafToCancels(EventSink[Event]):
    async def publish(self, item: Event, *, live: Live = None) -> None:
        with anyio.CancelScope(shield=True):
            await super().publish(item, live=live)


class WakesOnePublisher(EventSink[Event]):
    def _wake_all(self) -> None:
        self._line[0].wake()
        self._wake_writer()

    def _leave_line(self, waiter: Any) -> None:
        self._line.remove(waiter)


class Reopening(EventSink[Event]):
    """Takes what is published after close, and only forgets it."""

    async def publish(self, item: Event, *, live: Live = None) -> None:
        if not self.closed:
            await super().publish(item, live=live)


class ClosesOnce(EventSink[Event]):
    def close(self) -> None:
        if self.closed:
            raise EventSinkClosed("closed already")
        super().close()


class Draining(EventSink[Event]):
    """Writes what was queued before it was closed."""

    def _drop(self) -> None: ...

    async def _next(self) -> Any:
        return self._items.popleft() if self._items else await super()._next()


class CountsNothing(EventSink[Event]):
    @property
    def dropped(self) -> int:
        return 0


class Interrupting(EventSink[Event]):
    async def run(self) -> None:
        with anyio.CancelScope() as self.scope:
            await super().run()

    def close(self) -> None:
        super().close()
        if hasattr(self, "scope"):
            self.scope.cancel()


class Impatient(EventSink[Event]):
    async def wait(self) -> None:
        if not self.closed:
            await super().wait()


class DeadOrAlive(EventSink[Event]):
    async def publish(self, item: Event, *, live: Live = None) -> None:
        await super().publish(item)


class Concurrent(EventSink[Event]):
    """Starts each write without waiting for the one before it."""

    async def run(self) -> None:
        if self._state != "new":
            await super().run()
            return
        async with anyio.create_task_group() as self.tasks:
            await super().run()

    async def _write_one(self, item: Event) -> None:
        self.tasks.start_soon(super()._write_one, item)


class Silent(EventSink[Event]):
    """Does not say why it is closed."""

    def _refusal(self) -> EventSinkClosed:
        return EventSinkClosed("the sink is closed")


class Raising(EventSink[Event]):
    async def run(self) -> None:
        await super().run()
        if self.error is not None:
            raise self.error


class Endless(EventSink[Event]):
    """Does not know a terminal event when it sees one."""

    def __init__(self, write: Write, *, capacity: int, write_seconds: float) -> None:
        async def write_wrapped(item: Any) -> None:
            await write(item[0])

        super().__init__(write_wrapped, capacity=capacity, write_seconds=write_seconds)

    async def publish(self, item: Event, *, live: Live = None) -> None:
        await super().publish((item,), live=live)  # type: ignore[arg-type]


class Unbounded(EventSink[Event]):
    def __init__(self, write: Write, *, capacity: int, write_seconds: float) -> None:
        super().__init__(write, capacity=capacity, write_seconds=1e9)


class ThreadBound(EventSink[Event]):
    def close(self) -> None:
        anyio.get_current_task()
        super().close()


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (Roomy, "capacity_is_what_waits_for_the_writer", "must wait once 1 events wait"),
        (NeedsItsWriter, "with_room_publish_needs_no_writer", "must not wait while the queue has room"),
        (Overtaking, "a_write_lets_one_publisher_go_on", "that has waited longest"),
        (DeafToCancels, "a_blocked_publish_hears_its_cancellation", "must end when it is cancelled"),
        (DeafToCancels, "a_caller_that_is_cancelled_already_queues_nothing", "must not return to a caller"),
        (DeadOrAlive, "what_is_no_longer_live_is_skipped", "all but the event that is not live"),
        (WakesOnePublisher, "close_wakes_every_publisher", "close must wake every publisher"),
        (Reopening, "publish_after_close_is_refused", "publish after close must raise EventSinkClosed, not None"),
        (ClosesOnce, "close_may_be_called_again", "closed already"),
        (ThreadBound, "close_may_come_from_other_threads", "must not raise in another thread"),
        (CountsNothing, "what_is_accepted_is_written_or_counted", "events were accepted, but"),
        (Concurrent, "there_is_one_writer_and_it_keeps_the_order", "a write must not begin before"),
        (CountsNothing, "close_drops_and_counts_what_is_queued", "`dropped` is 0"),
        (Draining, "close_drops_and_counts_what_is_queued", "three events were queued at close"),
        (Interrupting, "close_does_not_interrupt_a_write", "close must not interrupt the write"),
        (Impatient, "wait_returns_when_the_writer_has_ended", "must not return while a write is in progress"),
        (Silent, "a_write_error_is_the_cause_of_every_refusal", "the write error must be the cause"),
        (Raising, "a_write_error_is_the_cause_of_every_refusal", "`run` must not raise"),
        (Endless, "the_writer_ends_after_a_terminal_event", "run_completed must end the writer"),
        (Unbounded, "a_write_that_takes_too_long_is_a_write_error", "must end after write_seconds=7"),
    ],
)
async def test_each_fault_is_found(kind: Any, name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trilane.testing.sinks._PATIENCE", 0.2)
    with pytest.raises((AssertionError, EventSinkClosed), match=message):
        await SINK_CHECKS[name](
            lambda write, capacity, write_seconds=30.0: kind(write, capacity=capacity, write_seconds=write_seconds)
        )


def test_there_is_a_sink_that_fails_for_every_check() -> None:
    marks = test_each_fault_is_found.pytestmark  # type: ignore[attr-defined]
    assert {name for _, name, _ in marks[0].args[1]} == set(SINK_CHECKS)


async def test_check_sink_tells_which_checks_failed() -> None:
    with pytest.raises(ExceptionGroup, match=f"1 of {len(SINK_CHECKS)} checks of the sink failed") as failed:
        await check_sink(lambda write, capacity: Silent(write, capacity=capacity))
    notes = [error.__notes__ for error in failed.value.exceptions]
    assert notes == [["in the check 'a_write_error_is_the_cause_of_every_refusal'"]]
