"""The bounded sink: capacity, cancellation, the writer and its errors (R56-R63, R66-R69, R73)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane.channels import EventSink
from trilane.errors import AgentProtocolError, EventSinkClosed

pytestmark = pytest.mark.anyio

Settle = Callable[[], Awaitable[None]]
Start = Callable[..., Any]
Connect = Callable[..., Any]


def terminal(kind: str = "run_completed") -> Any:
    return SimpleNamespace(type=kind)


# --- capacity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "capacity"), [({}, 64), ({"capacity": 1}, 1), ({"capacity": 3}, 3)])
async def test_r56_capacity_counts_what_waits_for_the_writer(
    options: dict[str, int], capacity: int, start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write, **options)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await sink.publish(0)
        await settle()  # that one is in the writer now
        with anyio.fail_after(5):
            for number in range(1, capacity + 1):
                await sink.publish(number)
        blocked = start(tasks, sink.publish, capacity + 1)
        await settle()
        assert not blocked.done
        sink.close()
        connection.release()


@pytest.mark.parametrize("options", [{"capacity": 0}, {"capacity": -1}, {"write_seconds": 0}, {"write_seconds": -1.0}])
def test_r56_impossible_bounds_are_refused(options: dict[str, Any], connect: Connect) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        EventSink(connect().write, **options)  # type: ignore[arg-type]


async def test_r57_with_room_publish_does_not_wait(connect: Connect) -> None:
    sink: EventSink[str] = EventSink(connect().write)
    with pytest.raises(StopIteration):
        await_once = sink.publish("a")
        await_once.send(None)


async def test_r58_full_publish_waits_and_one_write_releases_one(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write, capacity=1)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        for number in range(2):
            await sink.publish(number)
            await settle()
        blocked = []
        for number in range(2, 5):
            blocked.append(start(tasks, sink.publish, number))
            await settle()
        assert [job.done for job in blocked] == [False, False, False]
        for writes in range(1, 4):
            connection.release(1)
            await settle()
            assert [job.done for job in blocked] == [number < writes for number in range(3)]
        connection.release()
        await settle()
        assert connection.written == list(range(5))
        sink.close()


async def test_r58_a_newcomer_does_not_overtake_those_who_wait(start: Start, settle: Settle, connect: Connect) -> None:
    connection = connect(stuck=True)
    sink: EventSink[str] = EventSink(connection.write, capacity=1)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await sink.publish("writing")
        await settle()
        await sink.publish("queued")
        first = start(tasks, sink.publish, "first")
        await settle()
        connection.release()
        second = start(tasks, sink.publish, "second")
        await settle()
        assert first.done
        assert second.done
        assert connection.written == ["writing", "queued", "first", "second"]
        sink.close()


# --- cancellation -------------------------------------------------------------------------------------------------


async def test_r59_a_blocked_publish_hears_its_cancellation(start: Start, settle: Settle, connect: Connect) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write, capacity=1)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await sink.publish(0)
        await settle()
        await sink.publish(1)
        third = start(tasks, sink.publish, 2)
        fourth = start(tasks, sink.publish, 3)
        await settle()
        third.cancel()
        await settle()
        assert third.cancelled
        assert not fourth.done
        connection.release()
        await settle()
        assert connection.written == [0, 1, 3]
        sink.close()


async def test_r59_a_place_given_to_a_cancelled_publish_is_passed_on(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write, capacity=1)
    await sink.publish(0)  # no writer yet: the queue is full
    async with anyio.create_task_group() as tasks:
        jobs = [start(tasks, sink.publish, number) for number in (1, 2)]
        await settle()
        start(tasks, sink.run)
        jobs[0].cancel()
        connection.release()
        await settle()
        assert all(job.done for job in jobs)
        assert connection.written == [0, 2]
        sink.close()


async def test_r62_publish_of_a_cancelled_caller_never_enqueues(connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write, capacity=2000)
    with anyio.CancelScope() as outer:
        outer.cancel()
        for number in range(1000):
            with anyio.CancelScope() as inner:
                inner.cancel()
                await sink.publish(number)
            assert inner.cancelled_caught or outer.cancel_called
    assert not sink._items


async def test_r62_each_of_a_thousand_cancelled_callers(connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write, capacity=2000)
    ended = 0
    for number in range(1000):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await sink.publish(number)
        ended += scope.cancelled_caught
    assert ended == 1000
    assert not sink._items


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_r62_a_native_cancel_asked_for_before_is_heard(connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write, capacity=2000)

    async def publish() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await sink.publish(1)

    for _ in range(100):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(publish())
    assert not sink._items


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_r62_a_cancel_that_was_heard_before_does_not_stop_the_clean_up(connect: Connect) -> None:
    sink: EventSink[str] = EventSink(connect().write)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await sink.publish("bye")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [item for item, _ in sink._items] == ["bye"]


# --- the writer ---------------------------------------------------------------------------------------------------


async def test_r63_an_item_that_is_no_longer_live_is_skipped(start: Start, settle: Settle, connect: Connect) -> None:
    connection = connect(stuck=True)
    sink: EventSink[Any] = EventSink(connection.write)
    alive = True
    last = terminal("run_cancelled")
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await sink.publish("in the writer", live=lambda: alive)
        await settle()
        await sink.publish("dies", live=lambda: alive)
        await sink.publish("lives", live=lambda: True)
        await sink.publish(last, live=lambda: alive)
        alive = False
        connection.release()
    assert connection.written == ["in the writer", "lives", last]
    assert sink.dropped == 0


async def test_r63_a_failing_live_function_closes_the_sink(start: Start, connect: Connect) -> None:
    sink: EventSink[str] = EventSink(connect().write)
    error = ZeroDivisionError("live")

    def live() -> bool:
        raise error

    async with anyio.create_task_group() as tasks:
        run = start(tasks, sink.run)
        await sink.publish("a", live=live)
        await sink.wait()
    assert run.error is None
    assert sink.error is error


async def test_r66_one_writer_no_overlap_order_kept(start: Start, settle: Settle, connect: Connect) -> None:
    connection = connect()
    sink: EventSink[tuple[int, int]] = EventSink(connection.write, capacity=2)

    async def publish(name: int) -> None:
        for number in range(50):
            await sink.publish((name, number))

    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await settle()
        with pytest.raises(AgentProtocolError, match="exactly one writer"):
            await sink.run()
        async with anyio.create_task_group() as publishers:
            for name in range(4):
                publishers.start_soon(publish, name)
        await settle()
        sink.close()
    assert not connection.overlapped
    assert len(connection.written) == 200
    for name in range(4):
        assert [item for item in connection.written if item[0] == name] == [(name, number) for number in range(50)]


async def test_r67_after_close_queued_items_are_dropped_and_counted(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write)
    async with anyio.create_task_group() as tasks:
        run = start(tasks, sink.run)
        for number in range(4):
            await sink.publish(number)
        await settle()
        sink.close()
        assert sink.dropped == 3
        connection.release()
        await settle()
        assert run.done
    assert connection.written == [0]  # the write in progress was finished


async def test_r68_close_does_not_interrupt_a_write_and_r70_does_not_wait(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write)
    async with anyio.create_task_group() as tasks:
        run = start(tasks, sink.run)
        await sink.publish(1)
        await settle()
        sink.close()  # a plain function: it cannot wait
        await settle()
        assert connection.writing == 1
        assert not run.done
        assert not connection.closed  # the sink does not own the connection
        connection.release()
    assert connection.written == [1]


async def test_r69_wait_returns_when_the_writer_has_ended(start: Start, settle: Settle, connect: Connect) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write)
    async with anyio.create_task_group() as tasks:
        run = start(tasks, sink.run)
        await sink.publish(1)
        await settle()
        sink.close()
        waits = [start(tasks, sink.wait) for _ in range(3)]
        waits[1].cancel()
        await settle()
        assert [wait.done for wait in waits] == [False, True, False]
        connection.close()
        await settle()
        assert run.done
        assert all(wait.done for wait in waits)
    with anyio.fail_after(5):
        await sink.wait()


async def test_r69_without_a_writer_a_closed_sink_is_not_waited_for(
    start: Start, settle: Settle, connect: Connect
) -> None:
    sink: EventSink[int] = EventSink(connect().write)
    async with anyio.create_task_group() as tasks:
        wait = start(tasks, sink.wait)
        await settle()
        assert not wait.done
        sink.close()
        await settle()
        assert wait.done
    with anyio.fail_after(5):
        await sink.run()  # started too late: takes nothing and ends
        await sink.wait()


async def test_the_writer_ends_by_itself_after_a_terminal_event(start: Start, settle: Settle, connect: Connect) -> None:
    for kind in ("run_completed", "run_failed", "run_cancelled"):
        connection = connect()
        sink: EventSink[Any] = EventSink(connection.write)
        event = terminal(kind)
        await sink.publish("first")
        await sink.publish(event)
        await sink.publish("queued behind the end")
        with anyio.fail_after(5):
            await sink.run()
        assert connection.written == ["first", event]
        assert sink.closed
        assert sink.dropped == 1
        assert sink.error is None
        with pytest.raises(EventSinkClosed):
            await sink.publish("late")


async def test_a_type_that_is_not_terminal_does_not_end_the_writer(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect()
    sink: EventSink[Any] = EventSink(connection.write)
    items = [terminal("text_delta"), SimpleNamespace(type=["unhashable"]), SimpleNamespace(type=None), {"type": "x"}]
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        for item in items:
            await sink.publish(item)
        await settle()
        assert connection.written == items
        assert not sink.closed
        sink.close()


# --- failing writes -----------------------------------------------------------------------------------------------


async def test_r73_a_write_error_closes_the_sink_and_is_the_cause(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write, capacity=1)
    async with anyio.create_task_group() as tasks:
        run = start(tasks, sink.run)
        await sink.publish(1)
        await settle()
        await sink.publish(2)
        blocked = start(tasks, sink.publish, 3)
        await settle()
        connection.close()
        await settle()
        assert run.done
        assert run.error is None  # it ends the run that publishes, not the owner's tasks
    assert sink.closed
    assert sink.dropped == 1
    assert isinstance(sink.error, ConnectionError)
    assert isinstance(blocked.error, EventSinkClosed)
    assert blocked.error.__cause__ is sink.error
    for _ in range(3):
        with pytest.raises(EventSinkClosed, match="ConnectionError: the connection is closed") as refusal:
            await sink.publish(4)
        assert refusal.value.__cause__ is sink.error


async def test_r73_a_write_that_takes_too_long_is_a_write_error(connect: Connect) -> None:
    connection = connect(stuck=True)
    sink: EventSink[Any] = EventSink(connection.write, write_seconds=0.01)
    await sink.publish(SimpleNamespace(type="text_delta"))
    with anyio.fail_after(5):
        await sink.run()
    assert isinstance(sink.error, TimeoutError)
    with pytest.raises(EventSinkClosed, match=r"writing text_delta took longer than write_seconds=0\.01"):
        await sink.publish("next")


async def test_r73_a_cancelled_writer_closes_the_sink(start: Start, settle: Settle, connect: Connect) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write)
    async with anyio.create_task_group() as tasks:
        run = start(tasks, sink.run)
        await sink.publish(1)
        await sink.publish(2)
        await settle()
        run.cancel()
        await settle()
        assert run.cancelled
    assert sink.closed
    assert sink.dropped == 1
    with pytest.raises(EventSinkClosed, match="its writer was ended by Cancel"):
        await sink.publish(3)
    with anyio.fail_after(5):
        await sink.wait()
