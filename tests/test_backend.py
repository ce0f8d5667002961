"""Waiters and the way into the event loop, on both backends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane._backend import checkpoint_if_cancelled, current_backend, new_waiter, running_event_loop

pytestmark = pytest.mark.anyio


async def steps(count: int = 10) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def test_current_backend_is_that_of_the_running_task(anyio_backend: str) -> None:
    assert current_backend() == anyio_backend


def test_outside_a_task_there_is_no_backend() -> None:
    for function in (current_backend, new_waiter, running_event_loop):
        with pytest.raises(RuntimeError):
            function()


async def test_in_a_worker_thread_there_is_no_backend() -> None:
    def ask() -> str:
        with pytest.raises(RuntimeError):
            current_backend()
        return "asked"

    assert await anyio.to_thread.run_sync(ask) == "asked"


def test_asyncio_after_trio_was_imported_and_used_is_still_asyncio() -> None:
    import trio

    async def backend() -> str:
        return current_backend()

    assert trio.run(backend) == "trio"
    assert asyncio.run(backend()) == "asyncio"
    assert trio.run(backend) == "trio"


def test_nothing_async_is_imported_by_the_module() -> None:
    code = (
        "import sys, trilane._backend\n"
        "found = {'asyncio', 'anyio', 'trio', 'sniffio', 'threading'} & set(sys.modules)\n"
        "sys.exit(repr(found) if found else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


# --- waiters ------------------------------------------------------------------------------------------------------


async def test_wake_ends_the_wait() -> None:
    log: list[str] = []
    waiter = new_waiter()

    async def wait() -> None:
        log.append("waits")
        await waiter.wait()
        log.append("woken")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await steps()
        assert log == ["waits"]
        waiter.wake()
        waiter.wake()
        assert log == ["waits"]  # waking runs nobody
        await steps()
        assert log == ["waits", "woken"]
        waiter.wake()


async def test_a_wake_before_the_wait_is_not_lost() -> None:
    waiter = new_waiter()
    with anyio.fail_after(5):
        waiter.wake()
        await waiter.wait()
        waiter.renew()
        waiter.wake()
        await waiter.wait()


async def test_a_renewed_waiter_waits_again() -> None:
    waiter = new_waiter()
    rounds = 0

    async def wait() -> None:
        nonlocal rounds
        for _ in range(3):
            waiter.renew()
            await waiter.wait()
            rounds += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for expected in range(3):
            await steps()
            assert rounds == expected
            waiter.wake()
    assert rounds == 3


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    waiter = new_waiter()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await waiter.wait()
    assert scope.cancelled_caught
    waiter.wake()
    waiter.renew()
    waiter.wake()
    with anyio.fail_after(5):
        await waiter.wait()


async def test_cancel_and_wake_in_one_step_end_the_wait_once() -> None:
    for cancel_first in (False, True):
        waiter = new_waiter()
        ended: list[str] = []
        scope = anyio.CancelScope()

        async def wait(waiter=waiter, scope=scope, ended=ended) -> None:  # type: ignore[no-untyped-def]
            with scope:
                await waiter.wait()
                ended.append("woken")
            if scope.cancelled_caught:
                ended.append("cancelled")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await steps()
            for action in [scope.cancel, waiter.wake] if cancel_first else [waiter.wake, scope.cancel]:
                action()
        assert ended == ["cancelled"] if cancel_first else len(ended) == 1


@pytest.mark.parametrize("moment", ["done", "set_result", "before remove_done_callback", "remove_done_callback"])
@pytest.mark.parametrize("way", ["wake", "hand_over"])
def test_a_signal_that_cancels_the_task_while_it_is_woken_ends_the_wait_once(way: str, moment: str) -> None:
    """Ctrl-C does that: its handler runs between any two instructions and cancels the main task of the loop."""
    cancels: list[asyncio.Task[None]] = []

    class Interrupted(asyncio.Future[None]):
        def done(self) -> bool:
            found = super().done()
            self._signal("done")
            return found

        def set_result(self, result: None) -> None:
            self._signal("set_result")
            super().set_result(result)

        def remove_done_callback(self, function: Any, /) -> int:
            self._signal("before remove_done_callback")
            removed = super().remove_done_callback(function)
            self._signal("remove_done_callback")
            return removed

        def _signal(self, here: str) -> None:
            if here == moment and cancels:
                cancels.pop().cancel()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        heard: list[str] = []

        async def wait() -> None:
            try:
                await waiter.wait()
                heard.append("woken")
            except asyncio.CancelledError:
                heard.append("cancelled")
            for _ in range(5):
                await asyncio.sleep(0)
            heard.append("left in peace")

        loop.create_future = lambda: Interrupted(loop=loop)  # type: ignore[method-assign]
        waiter = new_waiter()
        del loop.create_future  # type: ignore[method-assign]
        task = loop.create_task(wait())
        await asyncio.sleep(0)
        cancels.append(task)
        waiter.wake() if way == "wake" else waiter.hand_over(100)
        cancels.clear()  # not every way has every moment
        await asyncio.wait_for(task, 5)
        assert heard in (["cancelled", "left in peace"], ["woken", "left in peace"])

    asyncio.run(main())


# --- cancellation asked for before --------------------------------------------------------------------------------


async def test_checkpoint_if_cancelled_delivers_only_what_was_asked_for() -> None:
    call = checkpoint_if_cancelled()
    with pytest.raises(StopIteration):
        call.send(None)
    with anyio.CancelScope() as scope:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await checkpoint_if_cancelled()
        await checkpoint_if_cancelled()
        pytest.fail("the cancellation was not delivered")
    assert scope.cancelled_caught


# --- from other threads -------------------------------------------------------------------------------------------


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


async def test_call_runs_at_once_in_the_loops_thread_and_soon_from_another() -> None:
    loop = running_event_loop()
    here = threading.get_ident()
    ran_in: list[int] = []
    loop.call(lambda: ran_in.append(threading.get_ident()))
    assert ran_in == [here]
    waiter = new_waiter()

    def wake() -> None:
        ran_in.append(threading.get_ident())
        waiter.wake()

    in_thread(lambda: loop.call(wake))
    assert ran_in == [here]  # it only runs when the loop comes to it
    with anyio.fail_after(5):
        await waiter.wait()
    assert ran_in == [here, here]


async def test_an_error_of_the_function_is_not_hidden() -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        running_event_loop().call(fail)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_after_the_loop_has_ended_calls_are_dropped(backend: str) -> None:
    async def main() -> object:
        return running_event_loop()

    loop = anyio.run(main, backend=backend)
    ran: list[str] = []
    in_thread(lambda: loop.call(lambda: ran.append("from a thread")))  # type: ignore[attr-defined]
    if backend == "asyncio":
        loop.call(lambda: ran.append("in its own thread"))  # type: ignore[attr-defined]
    assert ran == []
