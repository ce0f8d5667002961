"""The lane queues and their container (R25, R26, R34-R38, as far as they stand alone)."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from trilane.channels import AgentEventQueue, LaneQueue, QueueClosed, Reply, RuntimeQueues
from trilane.errors import AgentProtocolError
from trilane.events import ToolCallEvent
from trilane.messages import ToolCall, ToolResult, UserMessage

pytestmark = pytest.mark.anyio

Settle = Callable[[], Awaitable[None]]
Start = Callable[..., Any]


def tool_call_event() -> ToolCallEvent:
    return ToolCallEvent(call=ToolCall(id="c1", name="add", arguments={}), run_id="r", session_id="s")


# --- RuntimeQueues ------------------------------------------------------------------------------------------------


def test_r25_three_queues_as_one_small_object() -> None:
    queues = RuntimeQueues()
    assert isinstance(queues.input, LaneQueue)
    assert isinstance(queues.output, AgentEventQueue)
    assert isinstance(queues.events, LaneQueue)
    assert queues.empty
    with pytest.raises(AttributeError):
        queues.other = 1  # type: ignore[attr-defined]


def test_r26_injected_queues_are_the_ones_used() -> None:
    given = LaneQueue[Any]("input"), AgentEventQueue[Any](), LaneQueue[Any]("events")
    queues = RuntimeQueues(input=given[0], output=given[1], events=given[2])
    assert (queues.input, queues.output, queues.events) == given


def test_r34_two_containers_share_nothing() -> None:
    one, two = RuntimeQueues(), RuntimeQueues()
    one.input.put_nowait(Reply(question_id="q", payload=True))
    one.events.put_nowait(tool_call_event())
    one.output.put_nowait(object())  # type: ignore[arg-type]
    assert not one.empty
    assert two.empty


def test_r37_no_async_library_and_no_model_of_data_is_imported_for_the_channels() -> None:
    code = (
        "import sys, trilane.channels\n"
        "heavy = {'asyncio', 'anyio', 'trio', 'pydantic', 'pluggy', 'threading', 'redis'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_r38_wrong_types_are_refused_and_nothing_is_queued() -> None:
    queues = RuntimeQueues()
    with pytest.raises(AgentProtocolError, match="the input lane takes UserMessage, ToolResult, Reply; got str"):
        queues.input.put_nowait("hello")  # type: ignore[arg-type]
    with pytest.raises(AgentProtocolError, match="the events lane takes ToolCallEvent; got ToolResult"):
        queues.events.put_nowait(ToolResult(call_id="c1", content="3"))  # type: ignore[arg-type]
    assert queues.empty


def test_r38_the_right_types_are_taken_in_order() -> None:
    queues = RuntimeQueues()
    items: list[Any] = [
        UserMessage(id="u1", parts=()),
        ToolResult(call_id="c1", content="3"),
        Reply(question_id="q", payload={"approve": True}),
    ]
    for item in items:
        queues.input.put_nowait(item)
    assert queues.input.drain() == tuple(items)
    event = tool_call_event()
    queues.events.put_nowait(event)
    assert queues.events.remove(event)
    assert queues.empty


# --- LaneQueue ----------------------------------------------------------------------------------------------------


async def test_r35_fifo_and_put_never_waits() -> None:
    queue: LaneQueue[int] = LaneQueue("lane")
    with anyio.fail_after(5):
        for number in range(500):
            await queue.put(number)
            queue.put_nowait(-number)
    assert len(queue) == 1000
    assert not queue.empty
    assert [await queue.get() for _ in range(4)] == [0, 0, 1, -1]
    assert len(queue) == 996


def test_an_empty_queue_is_still_true() -> None:
    queue: LaneQueue[int] = LaneQueue("lane")
    assert len(queue) == 0
    assert queue


async def test_r35_readers_are_served_in_the_order_in_which_they_came(start: Start, settle: Settle) -> None:
    queue: LaneQueue[int] = LaneQueue("lane")
    async with anyio.create_task_group() as tasks:
        readers = []
        for _ in range(4):
            readers.append(start(tasks, queue.get))
            await settle()
        readers[1].cancel()
        await settle()
        for number in range(3):
            queue.put_nowait(number)
        await settle()
    assert [reader.result for reader in readers] == [0, None, 1, 2]
    assert queue.empty


@pytest.mark.parametrize("cancel_first", [False, True])
async def test_r35_a_cancelled_reader_loses_no_item(cancel_first: bool, start: Start, settle: Settle) -> None:
    queue: LaneQueue[str] = LaneQueue("lane")
    async with anyio.create_task_group() as tasks:
        first = start(tasks, queue.get)
        await settle()
        second = start(tasks, queue.get)
        await settle()
        # In one step: the reader that is to have the item is cancelled before, or after, it is woken.
        if cancel_first:
            first.cancel()
            queue.put_nowait("a")
        else:
            queue.put_nowait("a")
            first.cancel()
        await settle()
        assert first.done
        assert [first.result, second.result].count("a") == 1
        if cancel_first:
            assert second.result == "a"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_r35_a_woken_reader_that_is_cancelled_natively_passes_the_item_on(settle: Settle) -> None:
    queue: LaneQueue[str] = LaneQueue("lane")
    first = asyncio.create_task(queue.get())
    await settle()
    second = asyncio.create_task(queue.get())
    await settle()
    queue.put_nowait("a")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await asyncio.wait_for(second, 5) == "a"


async def test_put_from_another_thread_wakes_the_reader(start: Start, settle: Settle) -> None:
    queue: LaneQueue[int] = LaneQueue("lane")
    async with anyio.create_task_group() as tasks:
        reader = start(tasks, queue.get)
        await settle()
        await anyio.to_thread.run_sync(queue.put_nowait, 7)
        with anyio.fail_after(5):
            while not reader.done:
                await anyio.lowlevel.checkpoint()
        assert reader.result == 7


async def test_puts_of_many_threads_all_arrive() -> None:
    queue: LaneQueue[tuple[int, int]] = LaneQueue("lane")

    def put_many(name: int) -> None:
        for number in range(200):
            queue.put_nowait((name, number))

    seen: list[tuple[int, int]] = []
    async with anyio.create_task_group() as tasks:
        for name in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, put_many, name)
        with anyio.fail_after(20):
            while len(seen) < 800:
                seen.append(await queue.get())
    for name in range(4):
        assert [item for item in seen if item[0] == name] == [(name, number) for number in range(200)]


async def test_close_lets_readers_end_after_what_is_queued(start: Start, settle: Settle) -> None:
    queue: LaneQueue[int] = LaneQueue("events")
    async with anyio.create_task_group() as tasks:
        readers = []
        for _ in range(3):
            readers.append(start(tasks, queue.get))
            await settle()
        queue.put_nowait(1)
        queue.close()
        late = start(tasks, queue.get)  # comes while the first, who was woken, has not taken the item yet
        queue.close()
        await settle()
        assert [reader.result for reader in readers] == [1, None, None]
        assert all(isinstance(reader.error, QueueClosed) for reader in [*readers[1:], late])
    assert queue.closed
    with pytest.raises(QueueClosed, match="the events lane after it was closed"):
        queue.put_nowait(2)
    with pytest.raises(QueueClosed, match="the events lane was closed"):
        await queue.get()


async def test_close_from_another_thread_ends_the_readers(start: Start, settle: Settle) -> None:
    queue: LaneQueue[int] = LaneQueue("lane")
    async with anyio.create_task_group() as tasks:
        readers = [start(tasks, queue.get) for _ in range(2)]
        await settle()
        await anyio.to_thread.run_sync(queue.close)
        with anyio.fail_after(5):
            while not all(reader.done for reader in readers):
                await anyio.lowlevel.checkpoint()
        assert all(isinstance(reader.error, QueueClosed) for reader in readers)


async def test_on_put_sees_each_item_in_the_putting_thread() -> None:
    seen: list[tuple[int, int]] = []
    queue: LaneQueue[int] = LaneQueue("lane", on_put=lambda item: seen.append((item, threading.get_ident())))
    queue.put_nowait(1)
    await queue.put(2)
    await anyio.to_thread.run_sync(queue.put_nowait, 3)
    assert [item for item, _ in seen] == [1, 2, 3]
    assert seen[0][1] == seen[1][1] == threading.get_ident() != seen[2][1]


async def test_on_put_may_take_the_item_out_again(start: Start, settle: Settle) -> None:
    queue: LaneQueue[int] = LaneQueue("lane")
    taken: list[int] = []

    def take_even(item: int) -> None:
        if item % 2 == 0 and queue.remove(item):
            taken.append(item)

    queue.on_put = take_even
    async with anyio.create_task_group() as tasks:
        reader = start(tasks, queue.get)
        await settle()
        queue.put_nowait(2)
        await settle()
        assert not reader.done
        queue.put_nowait(3)
        await settle()
        assert reader.result == 3
    assert taken == [2]
    assert queue.empty


def test_remove_takes_that_very_item() -> None:
    queue: LaneQueue[list[int]] = LaneQueue("lane")
    first, twin = [1], [1]
    queue.put_nowait(first)
    queue.put_nowait(twin)
    assert queue.remove(twin)
    assert not queue.remove(twin)
    (left,) = queue.drain()
    assert left is first
    assert queue.drain() == ()


@pytest.mark.parametrize("action", ["put", "close"])
async def test_a_put_or_close_that_interrupts_get_at_any_line_is_seen(
    action: str, start: Start, settle: Settle, interrupt: Callable[..., Any]
) -> None:
    for line in range(1, 1000):
        queue: LaneQueue[int] = LaneQueue("lane")
        async with anyio.create_task_group() as tasks:
            handler = queue.close if action == "close" else lambda queue=queue: queue.put_nowait(7)
            with interrupt(LaneQueue.get, line, handler) as hit:
                readers = [start(tasks, queue.get) for _ in range(2)]
                await settle()
            if hit() and action == "close":
                assert all(isinstance(reader.error, QueueClosed) for reader in readers)
            elif hit():
                assert sorted([reader.done for reader in readers]) == [False, True]
                assert {reader.result for reader in readers} == {7, None}
            tasks.cancel_scope.cancel()
        if not hit():
            break
    assert 10 < line < 999


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
async def test_a_signal_handler_may_put(start: Start) -> None:
    queue: LaneQueue[int] = LaneQueue("lane")
    numbers = itertools.count(1)

    def handler(_number: int, _frame: object) -> None:
        number = next(numbers)
        if number <= 100:
            queue.put_nowait(number)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        seen = []
        with anyio.fail_after(10):
            while len(seen) < 100:
                queue.put_nowait(0)
                if item := await queue.get():
                    seen.append(item)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sorted(seen) == list(range(1, 101))  # on a busy machine one call of the handler interrupts another
