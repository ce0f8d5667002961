"""Virtual time: a test that waits an hour takes a millisecond, on asyncio and on trio.

Whenever every task waits, the clock jumps to the next timer. Work outside of the event loop still takes real time:
while threads that were started meanwhile are alive, or sockets and pipes are open, the loop waits a short real moment
before each jump, so that a thread's result comes before a timeout it would have met.

On asyncio, `anyio.wait_all_tasks_blocked` sleeps in steps of 0.1 seconds and so moves the virtual clock; wait for
something definite instead where the time matters.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

__all__ = ["REAL_SECONDS", "Backend", "VirtualEventLoop", "run_virtual", "virtual_backend"]

Backend: TypeAlias = Literal["asyncio", "trio"]
T = TypeVar("T")

#: Real seconds that threads, sockets and pipes get before each jump, unless told otherwise.
REAL_SECONDS = 0.02


def run_virtual(
    function: Callable[..., Awaitable[T]],
    *args: Any,
    backend: Backend = "asyncio",
    real_seconds: float = REAL_SECONDS,
) -> T:
    """Run an async function in virtual time, in an event loop of its own.

    Args:
        function: What to run, with `args`.
        backend: The event loop.
        real_seconds: How long to wait, in real time, for threads, sockets and pipes before each jump. A test that
            needs the output of a process wants seconds here, one that lets a thread hang wants little.

    Returns:
        What the function returns.

    Raises:
        RuntimeError: on asyncio, every task waits for something that cannot come: no timer, no thread, no socket.
    """
    if backend == "trio":
        import trio

        value: T = trio.run(function, *args, **_trio_options(real_seconds))
        return value

    async def main() -> T:
        return await function(*args)

    with asyncio.Runner(loop_factory=lambda: VirtualEventLoop(real_seconds)) as runner:
        return runner.run(main())


def virtual_backend(backend: Backend, *, real_seconds: float = REAL_SECONDS) -> tuple[str, dict[str, Any]]:
    """What the fixture `anyio_backend` returns to run tests in virtual time. Make a new one for each test.

    ```python
    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(request):
        return virtual_backend(request.param)
    ```
    """
    if backend == "trio":
        return "trio", _trio_options(real_seconds)
    return "asyncio", {"loop_factory": lambda: VirtualEventLoop(real_seconds)}


# ---- asyncio ---------------------------------------------------------------------------------------------------------


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose time jumps to the next timer when nothing else can happen. It starts at 0."""

    def __init__(self, real_seconds: float = REAL_SECONDS) -> None:
        self._virtual_now = 0.0
        super().__init__(_VirtualSelector(self.advance, real_seconds))

    def time(self) -> float:
        """Seconds since the loop was made, in virtual time."""
        return self._virtual_now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} seconds")
        self._virtual_now += seconds


class _VirtualSelector(selectors.DefaultSelector):
    """Where the event loop would sleep, time passes instead."""

    def __init__(self, advance: Callable[[float], None], real_seconds: float) -> None:
        super().__init__()
        self._advance = advance
        self._real_seconds = real_seconds
        self._threads = set(threading.enumerate())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        # One file descriptor is always there: the loop's own, for wake-ups from threads.
        outside = len(self.get_map()) > 1 or _at_work(self._threads)
        ready = super().select(0)  # a thread that has ended since may have woken the loop before
        if ready:
            return ready
        if timeout is None:
            if outside or len(self._threads) > 1:
                return super().select(None)
            raise RuntimeError(
                "nothing can happen any more: every task waits, and there is no timer, no other thread and no socket "
                "that could wake one"
            )
        if outside:
            ready = super().select(self._real_seconds)
        if not ready:
            self._advance(timeout)
        return ready


def _at_work(before: set[threading.Thread]) -> bool:
    """True if there are threads that were not there before; one that has just given its result may end first."""
    found = set(threading.enumerate()) - before
    for thread in found:
        if thread.name.startswith("trilane ") and thread is not threading.current_thread():
            thread.join(0.001)
    return any(thread.is_alive() for thread in found)


# ---- trio ------------------------------------------------------------------------------------------------------------


def _trio_options(real_seconds: float) -> dict[str, Any]:
    from trio.testing import MockClock

    clock = MockClock(autojump_threshold=0)
    return {"clock": clock, "instruments": [_Patience(clock, real_seconds)]}


class _Patience:
    """A trio instrument that makes the clock wait before it jumps while something outside of the event loop is at work.

    That is a thread, or a task that waits for a socket, a pipe or a process.
    """

    def __init__(self, clock: Any, real_seconds: float) -> None:
        self._clock = clock
        self._real_seconds = real_seconds
        self._threads: set[threading.Thread] = set()
        self._statistics: Callable[[], Any] = lambda: None
        self._patient = False

    def before_run(self) -> None:
        import trio

        # An idle thread of trio's pool is taken for a busy one: when it takes up or puts down its work cannot be seen
        # from here without a race. It ends after ten seconds.
        self._threads = {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}
        self._statistics = trio.lowlevel.current_statistics

    def after_task_step(self, task: object) -> None:
        patient = self._outside()
        if patient is not self._patient:
            self._patient = patient
            self._clock.autojump_threshold = self._real_seconds if patient else 0

    def _outside(self) -> bool:
        # One task always waits to read: trio's own, for wake-ups from threads.
        waiting = self._statistics().io_statistics
        if getattr(waiting, "tasks_waiting_read", 1) > 1 or getattr(waiting, "tasks_waiting_write", 0):
            return True
        return _at_work(self._threads)
