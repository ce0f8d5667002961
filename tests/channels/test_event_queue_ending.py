"""How the acknowledged queue ends: terminal signals and readers that are gone (R13-R19)."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from trilane._backend import current_backend
from trilane.channels import AgentEventQueue, QueueClosed
from trilane.errors import AgentProtocolError

pytestmark = pytest.mark.anyio

Settle = Callable[[], Awaitable[None]]
Start = Callable[..., Any]


def acknowledged() -> AgentEventQueue[Any]:
    queue: AgentEventQueue[Any] = AgentEventQueue()
    queue.enable_acknowledgements()
    return queue


# --- terminal signals ---------------------------------------------------------------------------------------------


async def test_r13_nothing_comes_after_the_terminal_signal() -> None:
    queue = acknowledged()
    queue.put_nowait("last")
    await queue.close()
    queue.put_nowait("too late")
    assert await queue.get() == "last"
    with pytest.raises(QueueClosed):
        await queue.get()


@pytest.mark.parametrize("signal", ["close", "fail"])
@pytest.mark.parametrize("with_acknowledgements", [False, True])
async def test_r14_put_after_a_terminal_signal_is_refused(signal: str, with_acknowledgements: bool) -> None:
    queue: AgentEventQueue[str] = AgentEventQueue()
    if with_acknowledgements:
        queue.enable_acknowledgements()
    error = RuntimeError("boom")
    await (queue.close() if signal == "close" else queue.fail(error))
    assert queue.closed
    with anyio.fail_after(5), pytest.raises(AgentProtocolError, match=f"put after {signal}") as refusal:
        await queue.put("a")
    assert isinstance(refusal.value, QueueClosed) == (signal == "close")
    assert refusal.value.__cause__ is (None if signal == "close" else error)
    assert queue.empty


async def test_r15_failure_raises_the_same_object_with_the_producers_frames(start: Start, settle: Settle) -> None:
    queue = acknowledged()

    def explode() -> None:
        raise LookupError("boom")

    async def produce() -> None:
        try:
            explode()
        except LookupError as error:
            queue.fail_now(error)
            raise

    async with anyio.create_task_group() as tasks:
        get = start(tasks, queue.get)
        await settle()
        producer = start(tasks, produce)
        await settle()
    assert get.error is producer.error
    assert isinstance(get.error, LookupError)
    assert "explode" in [frame.name for frame in traceback.extract_tb(get.error.__traceback__)]


async def test_r16_terminal_signals_never_wait(start: Start, settle: Settle) -> None:
    for signal in ("close", "fail"):
        for unacknowledged in (False, True):
            queue = acknowledged()
            async with anyio.create_task_group() as tasks:
                if unacknowledged:
                    start(tasks, queue.put, "a")
                    await settle()
                    await queue.get()
                call = queue.close() if signal == "close" else queue.fail(RuntimeError("boom"))
                with pytest.raises(StopIteration):  # it ends at its first step: there is no checkpoint in it
                    call.send(None)
            assert queue.closed


async def test_r17_close_wakes_a_waiting_consumer_with_an_error(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        get = start(tasks, queue.get)
        await settle()
        assert not get.done
        await queue.close()
        await settle()
        assert isinstance(get.error, QueueClosed)


async def test_r17_fail_wakes_a_waiting_consumer(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    error = RuntimeError("boom")
    async with anyio.create_task_group() as tasks:
        get = start(tasks, queue.get)
        await settle()
        await queue.fail(error)
        await settle()
        assert get.error is error


async def test_r18_queued_events_come_before_the_terminal_signal() -> None:
    queue = acknowledged()
    error = RuntimeError("boom")
    queue.put_nowait("a", "b")
    await queue.fail(error)
    # After the signal no acknowledgement is needed.
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    with pytest.raises(RuntimeError) as raised:
        await queue.get()
    assert raised.value is error


async def test_r18_after_the_signal_a_held_event_needs_no_acknowledgement() -> None:
    queue = acknowledged()
    queue.put_nowait("a", "b")
    assert await queue.get() == "a"
    await queue.close()
    assert await queue.get() == "b"


async def test_r19_first_signal_wins_and_stays() -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    queue = acknowledged()
    await queue.fail(first)
    await queue.fail(second)
    await queue.close()
    depths = set()
    for _ in range(3):
        with pytest.raises(RuntimeError) as raised:
            await queue.get()
        assert raised.value is first
        depths.add(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(depths) == 1, "the traceback grew with every get"

    queue = acknowledged()
    await queue.close()
    await queue.fail(first)
    for _ in range(3):
        with pytest.raises(QueueClosed):
            await queue.get()


async def test_fail_releases_parked_puts_with_that_error(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    error = RuntimeError("the connection is gone")
    async with anyio.create_task_group() as tasks:
        puts = [start(tasks, queue.put, number) for number in range(3)]  # one unacknowledged, two in the line
        await settle()
        await queue.fail(error)
        await settle()
        assert [put.error for put in puts] == [error] * 3
        assert await queue.get() in range(3)
        with pytest.raises(RuntimeError):
            await queue.get()


async def test_close_releases_parked_puts(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        puts = [start(tasks, queue.put, number) for number in range(3)]
        await settle()
        await queue.close()
        await settle()
        assert all(isinstance(put.error, AgentProtocolError) for put in puts)


async def test_a_cancellation_asked_for_wins_over_the_signal(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        put = start(tasks, queue.put, "a")
        await settle()
        put.cancel()
        await queue.fail(RuntimeError("boom"))
        await settle()
        assert put.cancelled
        assert put.error is None


async def test_an_acknowledgement_given_before_the_signal_stands(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        put = start(tasks, queue.put, "a")
        await settle()
        await queue.get()
        queue.acknowledge()
        await queue.fail(RuntimeError("boom"))
        await settle()
        assert put.done
        assert put.error is None


# --- nobody reads -------------------------------------------------------------------------------------------------


async def test_discard_releases_a_parked_put_and_drops_everything(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        puts = [start(tasks, queue.put, number, number) for number in range(3)]
        await settle()
        await queue.get()
        queue.discard()
        await settle()
        assert all(put.done and put.error is None for put in puts)
        assert queue.empty
        with anyio.fail_after(5):
            await queue.put("later", "still later")
        queue.put_nowait("nobody reads")
        assert queue.empty
    await queue.close()
    with pytest.raises(AgentProtocolError):
        await queue.put("after the end")


def test_the_queue_needs_no_event_loop_to_be_made_and_ended() -> None:
    queue: AgentEventQueue[int] = AgentEventQueue()
    queue.put_nowait(1)
    queue.close_now()
    assert queue.closed
    assert not queue.empty
    with pytest.raises(RuntimeError):
        current_backend()
