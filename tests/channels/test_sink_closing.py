"""Closing the sink, from anywhere and at any moment, and shutting down behind it (R60-R72)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane.channels import EventSink
from trilane.errors import EventSinkClosed

pytestmark = pytest.mark.anyio

Settle = Callable[[], Awaitable[None]]
Start = Callable[..., Any]
Connect = Callable[..., Any]


async def in_thread(function: Callable[[], object]) -> None:
    await anyio.to_thread.run_sync(function)


# --- closing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("from_thread", [False, True])
async def test_r60_close_wakes_all_blocked_publishers(
    from_thread: bool, start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write, capacity=1)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await sink.publish(-1)
        await settle()
        await sink.publish(-2)
        jobs = [start(tasks, sink.publish, number) for number in range(10)]
        await settle()
        if from_thread:
            await in_thread(sink.close)
        else:
            sink.close()
        with anyio.fail_after(5):
            while not all(job.done for job in jobs):
                await anyio.lowlevel.checkpoint()
        assert all(isinstance(job.error, EventSinkClosed) for job in jobs)
        connection.release()


async def test_r60_close_from_a_thread_ends_an_idle_writer(start: Start, settle: Settle, connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write)
    async with anyio.create_task_group() as tasks:
        run, wait = start(tasks, sink.run), start(tasks, sink.wait)
        await settle()
        await in_thread(sink.close)
        with anyio.fail_after(5):
            await sink.wait()
        await settle()
        assert run.done
        assert wait.done


async def test_r61_publish_after_close_always_fails_even_with_room(connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write, capacity=2000)
    sink.close()
    refused = 0
    for number in range(1000):
        with pytest.raises(EventSinkClosed, match="the sink is closed"):
            await sink.publish(number)
        refused += 1
    assert refused == 1000
    assert not sink._items
    assert sink.dropped == 0


async def test_r61_the_closed_flag_is_looked_at_before_the_cancellation(connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write)
    sink.close()
    with anyio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(EventSinkClosed):
            await sink.publish(1)


async def test_r64_close_is_idempotent_from_many_threads(start: Start, settle: Settle, connect: Connect) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        for number in range(5):
            await sink.publish(number)
        await settle()
        async with anyio.create_task_group() as closers:
            for _ in range(8):
                closers.start_soon(in_thread, sink.close)
        sink.close()
        assert sink.closed
        assert sink.dropped == 4
        connection.release()
    sink.close()
    assert sink.dropped == 4


def test_r64_close_without_any_event_loop(connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write)  # type: ignore[arg-type]
    thread = threading.Thread(target=sink.close)
    thread.start()
    thread.join()
    sink.close()
    assert sink.closed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_r64_close_after_the_event_loop_has_ended(anyio_backend: str, connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect().write, capacity=1)

    async def main() -> None:
        await sink.publish(1)
        with anyio.move_on_after(0.01):
            await sink.publish(2)

    asyncio.run(main())
    thread = threading.Thread(target=sink.close)
    thread.start()
    thread.join()
    assert sink.closed
    assert sink.dropped == 1


async def test_r65_publish_and_close_in_a_race(connect: Connect) -> None:
    outcomes = {"published": 0, "closed": 0}

    async def publish(sink: EventSink[int]) -> None:
        for number in range(20):
            try:
                await sink.publish(number)
                outcomes["published"] += 1
            except EventSinkClosed:
                outcomes["closed"] += 1

    for attempt in range(100):
        connection = connect()
        sink: EventSink[int] = EventSink(connection.write, capacity=1 + attempt % 3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sink.run)
            for _ in range(5):
                tasks.start_soon(publish, sink)
            for _ in range(attempt % 20):
                await anyio.lowlevel.checkpoint()
            sink.close()
        assert not sink._items
    assert sum(outcomes.values()) == 10_000
    assert all(outcomes.values())


async def test_r65_close_that_interrupts_at_any_line_strands_nobody(
    start: Start, settle: Settle, interrupt: Callable[..., Any], connect: Connect
) -> None:
    for line in range(1, 2000):
        connection = connect(stuck=True)
        sink: EventSink[int] = EventSink(connection.write, capacity=1)
        async with anyio.create_task_group() as tasks:
            with interrupt(EventSink.publish, line, sink.close) as hit:
                jobs = [start(tasks, sink.wait), start(tasks, sink.run)]
                publishers = [start(tasks, sink.publish, number) for number in range(3)]
                await settle()
                connection.release()
                await settle()
            if hit():
                assert all(job.done for job in [*jobs, *publishers])
                accepted = sum(job.error is None for job in publishers)
                assert accepted == len(connection.written) + sink.dropped
                assert not sink._items
            sink.close()
        if not hit():
            break
    assert 50 < line < 1999


async def test_r69_close_that_interrupts_wait_at_any_line_ends_it(
    start: Start, settle: Settle, interrupt: Callable[..., Any], connect: Connect
) -> None:
    for line in range(1, 500):
        sink: EventSink[int] = EventSink(connect().write)
        async with anyio.create_task_group() as tasks:
            with interrupt(EventSink.wait, line, sink.close) as hit:
                wait = start(tasks, sink.wait)
                await settle()
            assert wait.done == hit()
            sink.close()
        if not hit():
            break
    assert 5 < line < 499


async def test_r65_publish_and_close_from_a_thread_in_a_race(connect: Connect) -> None:
    for _ in range(50):
        connection = connect()
        sink: EventSink[int] = EventSink(connection.write, capacity=2)
        accepted = 0
        go = threading.Event()

        def closer(go: threading.Event = go, sink: EventSink[int] = sink) -> None:
            go.wait(5)
            sink.close()

        thread = threading.Thread(target=closer)
        thread.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sink.run)
            go.set()
            with anyio.fail_after(5):
                while True:
                    try:
                        await sink.publish(accepted)
                    except EventSinkClosed:
                        break
                    accepted += 1
        thread.join()
        assert accepted == len(connection.written) + sink.dropped


# --- shutting down ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["nothing", "stop the run", "close the connection"])
async def test_r71_shutdown_in_order_also_when_a_step_raises(
    failing: str, start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write, capacity=1)
    calls: list[str] = []

    def step(name: str, action: Callable[[], object] = lambda: None) -> None:
        calls.append(name)
        action()
        if name == failing:
            raise OSError(name)

    async def shut_down() -> None:
        try:
            step("stop the run")
        finally:
            step("close the sink", sink.close)
            try:
                step("close the connection", connection.close)
            finally:
                await sink.wait()
                calls.append("waited")

    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await sink.publish(1)
        await settle()
        job = start(tasks, shut_down)
        await settle()
        assert job.done
    assert calls == ["stop the run", "close the sink", "close the connection", "waited"]
    assert (job.error is None) == (failing == "nothing")
    assert connection.written == []


async def test_r72_waiting_before_the_connection_is_closed_hangs(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect(stuck=True)
    sink: EventSink[int] = EventSink(connection.write)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        await sink.publish(1)
        await settle()
        sink.close()
        wait = start(tasks, sink.wait)
        await settle()
        assert not wait.done  # nobody is left to end the write
        connection.close()
        await settle()
        assert wait.done


async def test_r72_closing_the_connection_before_the_sink_lets_events_go_to_it(
    start: Start, settle: Settle, connect: Connect
) -> None:
    connection = connect()
    sink: EventSink[int] = EventSink(connection.write)
    async with anyio.create_task_group() as tasks:
        start(tasks, sink.run)
        connection.close()
        await sink.publish(1)  # accepted although nobody can receive it
        await settle()
        assert isinstance(sink.error, ConnectionError)


# --- what leaves the writer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [asyncio.CancelledError("nobody asked"), GeneratorExit("nobody asked")])
async def test_r73_w24_a_cancel_that_nobody_asked_for_is_a_failed_write(error: BaseException, start: Start) -> None:
    async def write(_item: int) -> None:
        raise error

    sink: EventSink[int] = EventSink(write)
    async with anyio.create_task_group() as tasks:
        writer = start(tasks, sink.run)
        await sink.publish(1)
        await sink.wait()
        assert sink.error is error
        with pytest.raises(EventSinkClosed) as refused:
            await sink.publish(2)
        assert refused.value.__cause__ is error
    assert writer.error is None, "the owner's task group went on"


async def test_w25_an_interrupt_in_a_write_closes_the_sink_and_leaves_it() -> None:
    interrupt = KeyboardInterrupt("in the midst of a write")

    async def write(_item: int) -> None:
        raise interrupt

    sink: EventSink[int] = EventSink(write)
    await sink.publish(1)
    with pytest.raises(KeyboardInterrupt) as raised:
        await sink.run()
    assert raised.value is interrupt
    assert sink.closed
    assert sink.error is interrupt


async def test_a_cancel_of_the_writer_is_passed_on(start: Start, settle: Settle, connect: Connect) -> None:
    sink: EventSink[int] = EventSink(connect(stuck=True).write)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            start(tasks, sink.run)
            await sink.publish(1)
            await settle()
            scope.cancel()
    assert scope.cancelled_caught
    assert sink.closed
