"""The conformance kit for event sinks: what every `EventSink` must do, as checks that any test framework can run.

For classes that inherit from `EventSink` and change what publishing, writing or closing means. `await check_sink(make)`
runs all checks; a test suite rather runs `SINK_CHECKS` one by one. They run on the event loop that is running, asyncio
or trio. What is particular to a sink (whom else it waits for, what it keeps) it tests itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from trilane._backend import current_backend
from trilane.channels import EventSink
from trilane.errors import AgentProtocolError, EventSinkClosed
from trilane.events import Event, RunCancelled, RunCompleted, RunFailed, TextDelta
from trilane.result import RunResult
from trilane.state import AgentPhase

from ._checks import run_checks

__all__ = ["SINK_CHECKS", "MakeSink", "SinkCheck", "Write", "check_sink"]

Write: TypeAlias = Callable[[Event], Awaitable[None]]
"""Sends one event; what the sink under test must write with."""

MakeSink: TypeAlias = Callable[[Write, int], EventSink[Event]]
"""`make(write, capacity)` makes a fresh sink. It must let the run pass without any other party, and write every event.

If it has a third parameter `write_seconds: float`, the bound on one write is checked too.
"""

SinkCheck: TypeAlias = Callable[[MakeSink], Awaitable[None]]
"""One check. It raises AssertionError, or whatever the sink raised where it should not have."""

_STEPS = 50  # of the event loop, after which every task has got as far as it can without a timer or a thread
_ENOUGH = 10**9  # writes
_PATIENCE = 5.0  # seconds for what comes from a thread or after a timer


async def check_sink(make: MakeSink) -> None:
    """Run every check, each on sinks of its own.

    Raises:
        ExceptionGroup: some failed; each failure has a note with the name of its check.
    """
    await run_checks("sink", SINK_CHECKS, lambda check: check(make))


# ---- what the checks work with --------------------------------------------------------------------------------------


_RUN: dict[str, Any] = {"run_id": "r1", "session_id": "s1"}


def _event(seq: int) -> Event:
    return TextDelta(seq=seq, **_RUN, phase=AgentPhase.GENERATING, message_id="a1", index=0, text=f"{seq} ")


def _terminal_events(seq: int) -> tuple[Event, ...]:
    completed, failed, cancelled = (RunResult[None](status=s, **_RUN) for s in ("completed", "failed", "cancelled"))
    error = RuntimeError("the model is gone")
    return (
        RunCompleted(seq=seq, **_RUN, phase=AgentPhase.COMPLETED, result=completed),
        RunFailed(seq=seq, **_RUN, phase=AgentPhase.FAILED, error=error, status="failed", result=failed),
        RunCancelled(seq=seq, **_RUN, phase=AgentPhase.CANCELLED, reason="stopped", result=cancelled),
    )


class _Connection:
    """Takes items as long as it has room, and fails once it is closed.

    Args:
        stuck: At first it has no room.
        slow: Each write takes a step of the event loop, also where there is room.
    """

    def __init__(self, *, stuck: bool = False, slow: bool = False) -> None:
        self._slow = slow
        self.written: list[Any] = []
        self.writing = 0
        self.overlapped = False
        self.closed = False
        self._room = 0 if stuck else _ENOUGH
        self._changed = anyio.Event()

    async def write(self, item: Any) -> None:
        self.overlapped |= self.writing > 0
        self.writing += 1
        try:
            while self._room == 0 and not self.closed:
                await self._changed.wait()
            if self.closed:
                raise ConnectionError("the connection is closed")
            self._room -= 1
            if self._slow:
                await anyio.lowlevel.checkpoint()
            self.written.append(item)
        finally:
            self.writing -= 1

    def release(self, writes: int = _ENOUGH) -> None:
        self._room += writes
        self._change()

    def close(self) -> None:
        self.closed = True
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _Job:
    """A call in a task of its own: `done`, then with an `error`, `cancelled`, or well."""

    def __init__(self) -> None:
        self.done = False
        self.cancelled = False
        self.error: Exception | None = None
        self._scope = anyio.CancelScope()

    async def run(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        with self._scope:
            try:
                await function(*args)
            except Exception as error:
                self.error = error
            except BaseException:
                self.cancelled = True
                raise
            finally:
                self.done = True

    def cancel(self) -> None:
        self._scope.cancel()


class _Bench:
    """A sink, the connection it writes to, and the tasks that use it."""

    def __init__(self, sink: EventSink[Event], connection: _Connection, tasks: TaskGroup) -> None:
        self.sink = sink
        self.connection = connection
        self._tasks = tasks

    @property
    def written(self) -> list[int]:
        """Numbers of the events that were written."""
        return [event.seq for event in self.connection.written]

    def start(self, function: Callable[..., Awaitable[object]], *args: Any) -> _Job:
        job = _Job()
        self._tasks.start_soon(job.run, function, *args)
        return job

    async def settle(self) -> None:
        for _ in range(_STEPS):
            await anyio.lowlevel.checkpoint()

    async def until(self, condition: Callable[[], bool], else_what: str) -> None:
        """Go on as soon as it holds; fail with `else_what` if it does not."""
        await self.settle()
        with anyio.move_on_after(_PATIENCE):
            while not condition():  # noqa: ASYNC110  (a sink under test offers no event)
                await anyio.sleep(0.002)
        assert condition(), else_what

    async def ended(self, else_what: str, *jobs: _Job) -> None:
        await self.until(lambda: all(job.done for job in jobs), else_what)

    async def wrote(self, numbers: list[int], else_what: str) -> None:
        await self.until(lambda: len(self.written) >= len(numbers), f"{else_what}: {numbers}")
        await self.settle()
        assert self.written == numbers, f"{else_what}: {numbers}, not {self.written}"

    async def publish(self, *numbers: int) -> None:
        """Publish where there is room."""
        for number in numbers:
            job = self.start(self.sink.publish, _event(number))
            await self.ended("publish must not wait while the queue has room", job)
            if job.error is not None:
                raise job.error

    async def fill(self, queued: int) -> _Job:
        """Start the writer, stuck on event 0, with the events from 1 to `queued` behind it."""
        writer = self.start(self.sink.run)
        await self.publish(0)
        await self.until(lambda: self.connection.writing == 1, "the writer does not write what was published")
        await self.publish(*range(1, queued + 1))
        return writer


@asynccontextmanager
async def _bench(make: MakeSink, capacity: int) -> AsyncIterator[_Bench]:
    connection = _Connection(stuck=True, slow=True)
    sink = make(connection.write, capacity)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield _Bench(sink, connection, tasks)
        except Exception as error:  # as it is, not in a group
            failure = error
        try:
            sink.close()
        except Exception as error:
            failure = failure or error
        connection.release()
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _assert_refused(error: Exception | None, what: str) -> None:
    assert isinstance(error, EventSinkClosed), f"{what} must raise EventSinkClosed, not {error!r}"


async def _refusal(sink: EventSink[Event], number: int) -> Exception | None:
    """What a publish that must be refused raises; None if it returns or waits."""
    try:
        with anyio.move_on_after(_PATIENCE):
            await sink.publish(_event(number))
    except Exception as error:
        return error
    return None


# ---- publishing -----------------------------------------------------------------------------------------------------


async def _capacity_is_what_waits_for_the_writer(make: MakeSink) -> None:
    """R56, R57: with a stuck writer `capacity` events find room besides the one it writes; the next one waits."""
    for capacity in (1, 3, 64):
        async with _bench(make, capacity) as bench:
            await bench.fill(capacity)
            blocked = bench.start(bench.sink.publish, _event(capacity + 1))
            await bench.settle()
            assert not blocked.done, f"publish must wait once {capacity} events wait for the writer"


async def _with_room_publish_needs_no_writer(make: MakeSink) -> None:
    """R57: a free place is taken at once, before the writer has begun; the writer then finds the event."""
    async with _bench(make, 2) as bench:
        await bench.publish(0, 1)
        bench.connection.release()
        bench.start(bench.sink.run)
        await bench.wrote([0, 1], "the writer must write what was there before it began")


async def _a_write_lets_one_publisher_go_on(make: MakeSink) -> None:
    """R58: full and running, publish waits; each write gives its place to the one who has waited longest."""
    async with _bench(make, 1) as bench:
        await bench.fill(1)
        blocked = []
        for number in range(2, 5):
            blocked.append(bench.start(bench.sink.publish, _event(number)))
            await bench.settle()
        assert not any(job.done for job in blocked), "publish must wait while the queue is full"
        for writes in range(1, 4):
            bench.connection.release(1)
            await bench.ended("a write must let the publisher go on that has waited longest", blocked[writes - 1])
            await bench.settle()
            assert [job.done for job in blocked] == [place < writes for place in range(3)], (
                "one write must let exactly one publisher go on, the one who has waited longest"
            )
        bench.connection.release()
        await bench.wrote([0, 1, 2, 3, 4], "what had to wait must be written in its order")


async def _a_blocked_publish_hears_its_cancellation(make: MakeSink) -> None:
    """R59: it ends as cancelled, its event is not written, and those behind it do not suffer."""
    async with _bench(make, 1) as bench:
        await bench.fill(1)
        cancelled = bench.start(bench.sink.publish, _event(2))
        await bench.settle()
        behind = bench.start(bench.sink.publish, _event(3))
        await bench.settle()
        cancelled.cancel()
        await bench.ended("a publish that waits must end when it is cancelled", cancelled)
        assert cancelled.cancelled, f"a cancelled publish must end as cancelled, not with {cancelled.error!r}"
        assert not behind.done, "the cancellation of a publish that waited makes no room"
        bench.connection.release()
        await bench.ended("the publisher behind a cancelled one must get the next free place", behind)
        await bench.wrote([0, 1, 3], "all but the event of the cancelled publish must be written")


async def _a_caller_that_is_cancelled_already_queues_nothing(make: MakeSink) -> None:
    """R62: whatever room there is."""
    async with _bench(make, 200) as bench:
        for number in range(100):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await bench.sink.publish(_event(number))
            assert scope.cancelled_caught, "publish must not return to a caller that was cancelled before"
        bench.connection.release()
        bench.start(bench.sink.run)
        await bench.publish(100)
        await bench.wrote([100], "callers that were cancelled before must queue nothing; what comes after is written")


async def _what_is_no_longer_live_is_skipped(make: MakeSink) -> None:
    """R63: `live` is asked when the turn of the event comes; terminal events are written all the same."""
    end = _terminal_events(4)[0]
    alive = {1: True, 2: True, 4: True}
    async with _bench(make, 4) as bench:
        await bench.fill(0)
        for event in (_event(1), _event(2), _event(3), end):
            live = (lambda seq=event.seq: alive[seq]) if event.seq in alive else None
            with anyio.fail_after(_PATIENCE):
                await bench.sink.publish(event, live=live)
        alive[1] = alive[4] = False
        bench.connection.release()
        await bench.wrote([0, 2, 3, 4], "all but the event that is not live at its turn must be written")


# ---- closing --------------------------------------------------------------------------------------------------------


async def _close_wakes_every_publisher(make: MakeSink) -> None:
    """R60: all who wait for room get the closed error from one close."""
    async with _bench(make, 1) as bench:
        await bench.fill(1)
        blocked = [bench.start(bench.sink.publish, _event(number)) for number in range(2, 12)]
        await bench.settle()
        bench.sink.close()
        await bench.ended("close must wake every publisher that waits", *blocked)
        for job in blocked:
            _assert_refused(job.error, "a publish that waited when the sink was closed")


async def _publish_after_close_is_refused(make: MakeSink) -> None:
    """R61: always, with room and for cancelled callers too, and nothing is queued."""
    async with _bench(make, 200) as bench:
        assert not bench.sink.closed, "a new sink is open"
        bench.sink.close()
        assert bench.sink.closed, "`closed` must be true from close on"
        for number in range(100):
            _assert_refused(await _refusal(bench.sink, number), "publish after close")
        refusal = None
        with anyio.CancelScope() as scope:
            scope.cancel()
            refusal = await _refusal(bench.sink, 100)
        _assert_refused(refusal, "publish after close by a caller that is cancelled")
        assert bench.sink.dropped == 0, "what was refused is not counted as dropped"
        bench.connection.release()
        late = bench.start(bench.sink.run)
        await bench.ended("a writer that is started after close must end at once", late)
        assert bench.written == [], "nothing that was refused may be written"


async def _close_may_be_called_again(make: MakeSink) -> None:
    """R64: it is idempotent, and never raises."""
    async with _bench(make, 3) as bench:
        await bench.fill(3)
        for _ in range(3):
            bench.sink.close()
            assert bench.sink.closed
            assert bench.sink.dropped == 3, f"each dropped event counts once, but `dropped` is {bench.sink.dropped}"


async def _close_may_come_from_other_threads(make: MakeSink) -> None:
    """R64, R60: from many at once; publishers and the idle writer hear of it."""
    async with _bench(make, 1) as bench:
        await bench.fill(1)
        blocked = bench.start(bench.sink.publish, _event(2))
        await bench.settle()
        closers = [bench.start(anyio.to_thread.run_sync, bench.sink.close) for _ in range(4)]
        await bench.ended("close must not wait in the thread that calls it", *closers)
        assert [job.error for job in closers] == [None] * 4, "close must not raise in another thread"
        await bench.ended("close from another thread must wake publishers", blocked)
        _assert_refused(blocked.error, "a publish that waited when another thread closed the sink")
        assert bench.sink.dropped == 1, f"one event was queued, but `dropped` is {bench.sink.dropped}"
    async with _bench(make, 1) as bench:
        writer = bench.start(bench.sink.run)
        await bench.settle()
        await anyio.to_thread.run_sync(bench.sink.close)
        await bench.ended("close from another thread must end a writer that has nothing to write", writer)


async def _what_is_accepted_is_written_or_counted(make: MakeSink) -> None:
    """R65: publishers and close in a race; each publish succeeds or is refused, and no event is lost."""
    for attempt in range(20):
        async with _bench(make, 1 + attempt % 3) as bench:
            bench.connection.release()
            writer = bench.start(bench.sink.run)
            jobs = [bench.start(bench.sink.publish, _event(number)) for number in range(12)]
            for _ in range(attempt):
                await anyio.lowlevel.checkpoint()
            bench.sink.close()
            await bench.ended("close must end the writer and every publisher", writer, *jobs)
            for job in jobs:
                if job.error is not None:
                    _assert_refused(job.error, "a publish that races with close")
            accepted = sum(job.error is None for job in jobs)
            kept = len(bench.written) + bench.sink.dropped
            assert accepted == kept, f"{accepted} events were accepted, but {kept} were written or counted in `dropped`"


# ---- the writer -----------------------------------------------------------------------------------------------------


async def _there_is_one_writer_and_it_keeps_the_order(make: MakeSink) -> None:
    """R66: writes never overlap, the order is that of publishing, and a second writer is refused."""
    async with _bench(make, 3) as bench:
        bench.start(bench.sink.run)
        await bench.settle()
        second = bench.start(bench.sink.run)
        await bench.ended("a second writer must be refused", second)
        assert isinstance(second.error, AgentProtocolError), f"a second writer gets {second.error!r}"
        bench.connection.release()

        async def publish(first: int) -> None:
            for number in range(first, first + 10):
                await bench.sink.publish(_event(number))

        jobs = [bench.start(publish, first) for first in (0, 100, 200)]
        await bench.until(lambda: len(bench.written) == 30, "what three publishers publish must be written")
        assert [job.error for job in jobs] == [None] * 3
        assert not bench.connection.overlapped, "a write must not begin before the one before it has returned"
        for first in (0, 100, 200):
            of_one = [number for number in bench.written if first <= number < first + 10]
            assert of_one == sorted(of_one), f"what one publisher publishes must keep its order, not {of_one}"


async def _close_drops_and_counts_what_is_queued(make: MakeSink) -> None:
    """R67: after close the writer takes nothing more; the queued events are in `dropped`."""
    async with _bench(make, 3) as bench:
        writer = await bench.fill(3)
        bench.sink.close()
        assert bench.sink.dropped == 3, f"three events were queued at close, but `dropped` is {bench.sink.dropped}"
        bench.connection.release()
        await bench.ended("the writer must end after close and the write in progress", writer)
        await bench.wrote([0], "only the write in progress may go on after close")
        assert bench.sink.error is None, f"a close is no error, but `error` is {bench.sink.error!r}"


async def _close_does_not_interrupt_a_write(make: MakeSink) -> None:
    """R68, R70: it returns at once; the write in progress goes on, and ends as it would have."""
    async with _bench(make, 1) as bench:
        writer = await bench.fill(0)
        bench.sink.close()
        await bench.settle()
        assert bench.connection.writing == 1, "close must not interrupt the write in progress"
        assert not writer.done, "the writer must not end before its write"
        bench.connection.release()
        await bench.wrote([0], "a write in progress at close must reach its end")


async def _wait_returns_when_the_writer_has_ended(make: MakeSink) -> None:
    """R69: and not before; a sink that was closed without a writer is not waited for."""
    async with _bench(make, 1) as bench:
        writer = await bench.fill(0)
        waits = [bench.start(bench.sink.wait) for _ in range(2)]
        bench.sink.close()
        await bench.settle()
        assert not any(job.done for job in waits), "wait must not return while a write is in progress"
        bench.connection.close()
        await bench.ended("wait must return when the writer has ended", *waits)
        assert writer.done, "wait must not return before the writer has ended"
        assert [job.error for job in waits] == [None] * 2, "wait must not raise what a write raised"
    async with _bench(make, 1) as bench:
        wait = bench.start(bench.sink.wait)
        await bench.settle()
        assert not wait.done, "wait must not return from an open sink"
        bench.sink.close()
        await bench.ended("without a writer, wait must return when the sink is closed", wait)


async def _a_write_error_is_the_cause_of_every_refusal(make: MakeSink) -> None:
    """R73: it closes the sink, is in `error`, and does not come out of `run`."""
    async with _bench(make, 1) as bench:
        writer = await bench.fill(1)
        blocked = bench.start(bench.sink.publish, _event(2))
        await bench.settle()
        bench.connection.close()
        await bench.ended("a write error must end the writer", writer)
        assert writer.error is None, f"`run` must not raise what a write raised: {writer.error!r}"
        assert bench.sink.closed, "a write error must close the sink"
        error = bench.sink.error
        assert isinstance(error, ConnectionError), f"`error` must be what the write raised, not {error!r}"
        assert bench.sink.dropped == 1, f"one event was queued, but `dropped` is {bench.sink.dropped}"
        await bench.ended("a write error must wake every publisher that waits", blocked)
        for refusal in (blocked.error, await _refusal(bench.sink, 3), await _refusal(bench.sink, 4)):
            _assert_refused(refusal, "publish after a write error")
            assert refusal is not None
            assert refusal.__cause__ is error, f"the write error must be the cause, not {refusal.__cause__!r}"


async def _the_writer_ends_after_a_terminal_event(make: MakeSink) -> None:
    """R67, R69: by itself, whichever the terminal event is; what was queued behind it is dropped."""
    for end in _terminal_events(1):
        async with _bench(make, 3) as bench:
            await bench.publish(0)
            with anyio.fail_after(_PATIENCE):
                await bench.sink.publish(end)
            await bench.publish(2)
            bench.connection.release()
            writer, wait = bench.start(bench.sink.run), bench.start(bench.sink.wait)
            await bench.ended(f"{end.type} must end the writer", writer, wait)
            await bench.wrote([0, 1], f"{end.type} must be written, and be the last that is")
            assert bench.sink.closed, f"{end.type} must close the sink"
            assert bench.sink.dropped == 1, f"one event was queued behind {end.type}"
            assert bench.sink.error is None, f"{end.type} is no error of the sink"
            _assert_refused(await _refusal(bench.sink, 3), f"publish after {end.type}")


async def _a_write_that_takes_too_long_is_a_write_error(make: MakeSink) -> None:
    """R73: `write_seconds` bounds one write, in virtual time; only where `make` has a parameter of that name."""
    from functools import partial
    from inspect import signature

    if "write_seconds" not in signature(make).parameters:
        return
    from .clock import run_virtual

    # A loop of its own, because the running one may be in real time; a thread, because a loop is running in this one.
    await anyio.to_thread.run_sync(partial(run_virtual, _too_slow, make, backend=current_backend()))


async def _too_slow(make: MakeSink) -> None:
    connection = _Connection(stuck=True, slow=True)
    sink = cast("Callable[..., EventSink[Event]]", make)(connection.write, 2, write_seconds=7.0)
    for number in range(2):
        await sink.publish(_event(number))
    began = anyio.current_time()
    with anyio.move_on_after(60):
        await sink.run()
    took = anyio.current_time() - began
    assert 6.9 < took < 7.5, f"a write must end after write_seconds=7, but it took {took:g} seconds"
    error = sink.error
    assert isinstance(error, TimeoutError), f"`error` must be a TimeoutError after a slow write, not {error!r}"
    assert sink.dropped == 1, f"one event was queued behind the slow write, but `dropped` is {sink.dropped}"
    refusal = await _refusal(sink, 2)
    _assert_refused(refusal, "publish after a write that took too long")
    assert refusal is not None
    assert refusal.__cause__ is error, f"the time-out must be the cause, not {refusal.__cause__!r}"


_ALL: tuple[SinkCheck, ...] = (
    _capacity_is_what_waits_for_the_writer,
    _with_room_publish_needs_no_writer,
    _a_write_lets_one_publisher_go_on,
    _a_blocked_publish_hears_its_cancellation,
    _a_caller_that_is_cancelled_already_queues_nothing,
    _what_is_no_longer_live_is_skipped,
    _close_wakes_every_publisher,
    _publish_after_close_is_refused,
    _close_may_be_called_again,
    _close_may_come_from_other_threads,
    _what_is_accepted_is_written_or_counted,
    _there_is_one_writer_and_it_keeps_the_order,
    _close_drops_and_counts_what_is_queued,
    _close_does_not_interrupt_a_write,
    _wait_returns_when_the_writer_has_ended,
    _a_write_error_is_the_cause_of_every_refusal,
    _the_writer_ends_after_a_terminal_event,
    _a_write_that_takes_too_long_is_a_write_error,
)

SINK_CHECKS: Mapping[str, SinkCheck] = MappingProxyType({check.__name__.lstrip("_"): check for check in _ALL})
"""The checks of event sinks by name, for parametrised tests: each makes its sinks itself."""
