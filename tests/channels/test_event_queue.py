"""The acknowledged queue, requirement by requirement (R1-R24)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
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


async def steps(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


def task_count() -> int:
    if current_backend() == "asyncio":
        return len(asyncio.all_tasks())
    import trio

    return trio.lowlevel.current_statistics().tasks_living


# --- order and parking --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_acknowledgements", [False, True])
async def test_r01_order_kept_none_lost_none_doubled(with_acknowledgements: bool) -> None:
    queue: AgentEventQueue[int] = AgentEventQueue()
    if with_acknowledgements:
        queue.enable_acknowledgements()
    delays = random.Random(1)
    seen: list[int] = []

    async def produce() -> None:
        for number in range(1000):
            await steps(delays.randrange(3))
            await queue.put(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        while len(seen) < 1000:
            seen.append(await queue.get())
            await steps(delays.randrange(3))
            queue.acknowledge()
    assert seen == list(range(1000))
    assert queue.empty


async def test_r02_concurrent_puts_take_turns_in_order(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        puts = []
        for number in range(5):
            puts.append(start(tasks, queue.put, (number, "a"), (number, "b")))
            await settle()
        seen = []
        for position in range(10):
            seen.append(await queue.get())
            queue.acknowledge()
            await settle()
            assert [put.done for put in puts] == [2 * number + 1 <= position for number in range(5)]
    assert seen == [(number, part) for number in range(5) for part in "ab"]


async def test_r02_cancelled_in_the_line_puts_nothing_and_keeps_the_order(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        puts = []
        for number in range(4):
            puts.append(start(tasks, queue.put, number))
            await settle()
        puts[1].cancel()
        await settle()
        assert puts[1].cancelled
        seen = []
        for _ in range(3):
            seen.append(await queue.get())
            queue.acknowledge()
            await settle()
    assert seen == [0, 2, 3]
    assert queue.empty


async def test_r02_turn_given_to_a_cancelled_put_is_passed_on(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        puts = []
        for number in range(3):
            puts.append(start(tasks, queue.put, number))
            await settle()
        # In one step: the first put passes its turn to the second, which is cancelled before it runs.
        puts[0].cancel()
        puts[1].cancel()
        await settle()
        assert puts[0].cancelled
        assert puts[1].cancelled
        assert not puts[2].done
        seen = [await queue.get()]
        queue.acknowledge()
        seen.append(await queue.get())
        queue.acknowledge()
        await settle()
        assert puts[2].done
    assert seen == [0, 2]


async def test_r03_without_acknowledgements_put_never_waits() -> None:
    queue: AgentEventQueue[int] = AgentEventQueue()
    with anyio.fail_after(5):
        for number in range(1000):
            await queue.put(number)
        assert [await queue.get() for _ in range(1000)] == list(range(1000))


async def test_r04_acknowledgements_are_refused_after_the_first_event() -> None:
    for put in ("put", "put_nowait"):
        queue: AgentEventQueue[str] = AgentEventQueue()
        if put == "put":
            await queue.put("a")
        else:
            queue.put_nowait("a")
        with pytest.raises(AgentProtocolError, match="before anything is produced"):
            queue.enable_acknowledgements()
    queue = acknowledged()
    queue.enable_acknowledgements()


async def test_r04_the_first_event_already_waits(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        put = start(tasks, queue.put, "a")
        await settle()
        assert not put.done
        assert await queue.get() == "a"
        queue.acknowledge()
        await settle()
        assert put.done


async def test_r05_put_returns_only_after_the_acknowledgement(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        put = start(tasks, queue.put, "a")
        await settle()
        assert await queue.get() == "a"
        await settle()
        assert not put.done
        queue.acknowledge()
        await settle()
        assert put.done
        assert put.error is None


async def test_r05_events_of_one_put_are_released_by_the_last(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        put = start(tasks, queue.put, "a", "b", "c")
        for event in "abc":
            await settle()
            assert not put.done
            assert await queue.get() == event
            queue.acknowledge()
        await settle()
        assert put.done


@pytest.mark.parametrize("consumer_pauses", [False, True])
async def test_r05_events_of_one_put_cost_one_wake_up_each_way(consumer_pauses: bool) -> None:
    queue = acknowledged()
    resumed = {"put": 0, "get": 0}

    class Counted:
        """Awaits a coroutine and counts how often it is resumed."""

        def __init__(self, name: str, call: Any) -> None:
            self.name = name
            self.call = call.__await__()

        def __await__(self) -> Any:
            try:
                waits_for = next(self.call)
                while True:
                    answer = yield waits_for
                    resumed[self.name] += 1
                    waits_for = self.call.send(answer)
            except StopIteration as stop:
                return stop.value

    async def produce() -> None:
        for _ in range(3):
            await Counted("put", queue.put(*"abcde"))

    seen = ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        for _ in range(15):
            seen += await Counted("get", queue.get())
            queue.acknowledge()
            if consumer_pauses:
                await steps(3)
    assert seen == "abcde" * 3
    # A consumer that pauses finds the next events there, and need not be woken for them. On asyncio one that does not
    # is done with all of them within the call of `put`.
    puts = 3 if consumer_pauses or current_backend() == "trio" else 0
    assert resumed == {"put": puts, "get": 1 if consumer_pauses else 3}


async def test_events_put_without_waiting_come_after_the_queued_and_hold_up_the_next(
    start: Start, settle: Settle
) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        first = start(tasks, queue.put, "a")
        await settle()
        queue.put_nowait("b", "c")
        second = start(tasks, queue.put, "d")
        await settle()
        seen = []
        released = []
        for _ in range(4):
            seen.append(await queue.get())
            queue.acknowledge()
            await settle()
            released.append((first.done, second.done))
    assert seen == ["a", "b", "c", "d"]
    assert released == [(True, False), (True, False), (True, False), (True, True)]


# --- nothing runs ahead -------------------------------------------------------------------------------------------


async def _finished_ahead(
    send: Callable[[int], Awaitable[None]],
    take: Callable[[], Awaitable[int]],
    release: Callable[[], None],
    settle: Settle,
) -> int:
    """How many works were finished beyond the event that the consumer is handling: the most of 10 looks."""
    finished = 0
    ahead = 0

    async def produce() -> None:
        nonlocal finished
        for number in range(10):
            await anyio.lowlevel.checkpoint()  # the work for this event
            finished += 1
            await send(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        for _ in range(10):
            number = await take()
            await settle()  # the consumer takes its time; the producer goes as far as it can
            ahead = max(ahead, finished - (number + 1))
            release()
    return ahead


async def test_r06_while_an_event_is_held_nothing_begins(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    begun: list[int] = []

    async def produce() -> None:
        for number in range(5):
            begun.append(number)
            await queue.put(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        for number in range(5):
            assert await queue.get() == number
            await settle()
            assert begun == list(range(number + 1))
            queue.acknowledge()


async def test_r07_at_most_one_put_is_unacknowledged() -> None:
    queue = acknowledged()
    in_flight = 0
    most = 0

    async def produce(name: int) -> None:
        for _ in range(20):
            await queue.put(name)

    async with anyio.create_task_group() as tasks:
        for name in range(4):
            tasks.start_soon(produce, name)
        for _ in range(80):
            await queue.get()
            in_flight += 1
            most = max(most, in_flight)
            await steps(2)
            assert queue.empty
            queue.acknowledge()
            in_flight -= 1
    assert most == 1


async def test_r08_zero_run_ahead(settle: Settle) -> None:
    queue = acknowledged()
    assert await _finished_ahead(queue.put, queue.get, queue.acknowledge, settle) == 0


@pytest.mark.parametrize(("capacity", "ahead"), [(0, 1), (1, 2), (2, 3), (5, 6)])
async def test_r09_control_a_bounded_queue_runs_ahead(capacity: int, ahead: int, settle: Settle) -> None:
    """Why a bounded queue is not enough: the producer waits after its work, and taking frees the place, not handling.

    So a queue of n lets n + 1 finished works ahead of what the consumer has seen, and even a rendezvous lets one.
    """
    send, receive = anyio.create_memory_object_stream[int](capacity)
    with send, receive:
        assert await _finished_ahead(send.send, receive.receive, lambda: None, settle) == ahead


@pytest.mark.parametrize("position", range(5))
async def test_r10_after_close_at_an_event_no_further_work_begins(position: int, settle: Settle) -> None:
    queue = acknowledged()
    work: list[int] = []
    ended: list[BaseException] = []

    async def produce() -> None:
        for number in range(5):
            work.append(number)
            try:
                await queue.put(number)
            except QueueClosed as error:
                ended.append(error)
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        for number in range(position + 1):
            queue.acknowledge()
            assert await queue.get() == number
        await queue.close()
        await settle()
        assert work == list(range(position + 1))
        assert len(ended) == 1


async def test_r11_a_queue_has_no_task_of_its_own(start: Start, settle: Settle) -> None:
    before = task_count()
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        put = start(tasks, queue.put, "a")
        await settle()
        await queue.get()
        assert task_count() == before + 1
        queue.acknowledge()
        await settle()
        assert put.done
        assert task_count() == before
        await queue.close()
    assert task_count() == before


# --- the consumer's side ------------------------------------------------------------------------------------------


async def test_r12_pulling_twice_is_an_error_at_once_and_loses_nothing(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        put = start(tasks, queue.put, "a", "b")
        await settle()
        assert await queue.get() == "a"
        with anyio.fail_after(5), pytest.raises(AgentProtocolError, match=r"call acknowledge\(\) first"):
            await queue.get()
        queue.acknowledge()
        assert await queue.get() == "b"
        queue.acknowledge()
        await settle()
        assert put.done


async def test_r12_two_tasks_in_get_are_an_error_for_the_second(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        first = start(tasks, queue.get)
        await settle()
        with anyio.fail_after(5), pytest.raises(AgentProtocolError, match="one consumer"):
            await queue.get()
        queue.put_nowait("a")
        await settle()
        assert first.result == "a"


async def test_r12_a_cancelled_get_loses_nothing(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        # Cancelled while it waits; cancelled in the same step in which an event comes, before and after it.
        for order in ("alone", "cancel first", "event first"):
            job = start(tasks, queue.get)
            await settle()
            if order == "event first":
                queue.put_nowait(order)
            job.cancel()
            if order == "cancel first":
                queue.put_nowait(order)
            await settle()
            assert job.done
            if order != "alone":
                assert (job.result if not job.cancelled else await queue.get()) == order
                queue.acknowledge()
        assert queue.empty


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_r12_a_natively_cancelled_get_loses_nothing(settle: Settle) -> None:
    queue = acknowledged()
    task = asyncio.create_task(queue.get())
    await settle()
    queue.put_nowait("a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await queue.get() == "a"


async def test_get_returns_what_is_there_without_waiting() -> None:
    queue: AgentEventQueue[int] = AgentEventQueue()
    queue.put_nowait(1)
    call = queue.get()
    with pytest.raises(StopIteration) as stop:
        call.send(None)
    assert stop.value.value == 1


# --- the rest -----------------------------------------------------------------------------------------------------


async def test_r20_empty_says_that_nothing_waits(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    assert queue.empty
    assert not queue.closed
    async with anyio.create_task_group() as tasks:
        start(tasks, queue.put, "a", "b")
        await settle()
        assert not queue.empty
        await queue.get()
        assert not queue.empty
        queue.acknowledge()
        await queue.get()
        assert queue.empty  # handed over, not waiting
        queue.acknowledge()
        assert queue.empty


async def test_r21_cancelling_a_parked_put_touches_only_that_put(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    log: list[str] = []

    async def work() -> None:
        log.append("started")
        await released.wait()
        log.append("ended")

    released = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        put = start(tasks, queue.put, "a", "b")
        await settle()
        assert await queue.get() == "a"
        put.cancel()
        await settle()
        assert put.cancelled
        released.set()
        await settle()
        assert log == ["started", "ended"]
        # What it had queued stays, and the next put waits behind it.
        later = start(tasks, queue.put, "c")
        for event in ("b", "c"):
            await settle()
            assert not later.done
            queue.acknowledge()
            assert await queue.get() == event
        queue.acknowledge()
        await settle()
        assert later.done


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_r21_native_cancels_of_a_parked_put_leave_the_turn_free(settle: Settle) -> None:
    queue = acknowledged()
    for acknowledge_first in (False, True):
        task = asyncio.create_task(queue.put("a"))
        await settle()
        await queue.get()
        if acknowledge_first:
            queue.acknowledge()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        queue.acknowledge()
    last = asyncio.create_task(queue.put("b"))
    assert await queue.get() == "b"
    queue.acknowledge()
    await asyncio.wait_for(last, 5)


async def test_r22_a_slow_consumer_stalls_the_producer() -> None:
    queue = acknowledged()
    pulled = 0
    most_queued = 0

    async def produce() -> None:
        nonlocal pulled
        for _ in range(5000):
            pulled += 1
            await queue.put(b"x" * 1000)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        for handled in range(5000):
            await queue.get()
            assert pulled <= handled + 1
            most_queued = max(most_queued, 0 if queue.empty else 1)
            queue.acknowledge()
    assert most_queued == 0


async def test_f100_a_stalled_consumer_holds_the_producer_at_one_event(settle: Settle) -> None:
    queue = acknowledged()
    made = 0

    async def produce() -> None:
        nonlocal made
        for _ in range(100_000):
            made += 1
            await queue.put(b"x" * 1000)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        await queue.get()
        await settle()
        assert made == 1
        assert queue.empty
        tasks.cancel_scope.cancel()


async def test_r23_side_effects_do_not_precede_the_sight_of_the_event_before(settle: Settle) -> None:
    queue = acknowledged()
    files: set[str] = set()

    async def produce() -> None:
        await queue.put("about to write")
        files.add("written")
        await queue.put("has written")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        assert await queue.get() == "about to write"
        await settle()
        tasks.cancel_scope.cancel()
    assert files == set()


async def test_r24_put_of_nothing_needs_no_acknowledgement() -> None:
    await acknowledged().put()


async def test_r24_acknowledge_is_harmless_and_releases_exactly_one(start: Start, settle: Settle) -> None:
    queue = acknowledged()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            queue.acknowledge()
        first = start(tasks, queue.put, "a")
        await settle()
        queue.acknowledge()
        await settle()
        assert not first.done
        await queue.get()
        for _ in range(3):
            queue.acknowledge()
        second = start(tasks, queue.put, "b")
        await settle()
        assert first.done
        assert not second.done
        await queue.get()
        queue.acknowledge()
