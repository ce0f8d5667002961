"""A thread and a task, one piece at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

from trilane_local.handoff import Handoff

pytestmark = pytest.mark.anyio


async def test_pieces_arrive_in_order_and_the_thread_does_not_run_ahead() -> None:
    made: list[int] = []

    def work(take: Callable[[int], bool]) -> None:
        for number in range(5):
            made.append(number)
            assert not take(number)

    handoff: Handoff[int] = Handoff(work)
    got: list[int] = []
    while (piece := await handoff.get()) is not None:
        got.append(piece)
        assert len(made) <= len(got) + 1  # one is in the making
    assert got == [0, 1, 2, 3, 4]
    assert await handoff.stop(1)


async def test_stopping_reaches_the_thread_while_it_waits() -> None:
    answers: list[bool] = []

    def work(take: Callable[[int], bool]) -> None:
        while not answers or not answers[-1]:
            answers.append(take(len(answers)))

    handoff: Handoff[int] = Handoff(work)
    assert await handoff.get() == 0
    assert await handoff.stop(5)
    assert answers[-1] is True
    assert answers.count(False) <= 2


async def test_stopping_works_under_a_cancel() -> None:
    ended = threading.Event()

    def work(take: Callable[[int], bool]) -> None:
        while not take(1):
            pass
        ended.set()

    handoff: Handoff[int] = Handoff(work)
    with anyio.CancelScope() as scope:
        try:
            await handoff.get()
            scope.cancel()
            await anyio.sleep_forever()
        finally:
            assert await handoff.stop(5)
    assert ended.is_set()


async def test_a_thread_that_hears_nothing_is_given_up() -> None:
    goes_on = threading.Event()
    handoff: Handoff[int] = Handoff(lambda take: (goes_on.wait(10), None)[1])
    assert not await handoff.stop(0.01)
    goes_on.set()
    assert await handoff.stop(5)


async def test_what_the_thread_raises_is_raised_to_the_task() -> None:
    def work(take: Callable[[int], bool]) -> None:
        take(1)
        raise ValueError("no")

    handoff: Handoff[int] = Handoff(work)
    assert await handoff.get() == 1
    with pytest.raises(ValueError, match="no"):
        await handoff.get()
    assert await handoff.stop(1)


def test_a_loop_that_has_ended_lets_the_thread_go() -> None:
    for backend in ("asyncio", "trio"):
        left = threading.Event()

        def work(take: Callable[[int], bool], left: threading.Event = left) -> None:
            while not take(1):
                pass
            left.set()

        async def leave(work: Callable[[Callable[[int], bool]], None] = work) -> Handoff[int]:
            handoff: Handoff[int] = Handoff(work)
            await handoff.get()
            return handoff

        handoff = anyio.run(leave, backend=backend)
        handoff._may_go_on.release()
        assert left.wait(5)
