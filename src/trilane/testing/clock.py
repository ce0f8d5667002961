"""Virtual time: a test that waits an hour takes a millisecond, on asyncio and on trio.

Whenever every task waits, the clock jumps to the next timer. Work outside of the event loop still takes real time:
while threads that were started meanwhile are alive, or sockets and pipes are open, the loop waits a short real moment
before each jump, so that a thread's result comes before a timeout it would have met. How long that must be depends on
the machine; who knows what is at work outside says so with `held`, and time stands exactly as long.

On asyncio, `anyio.wait_all_tasks_blocked` sleeps in steps of 0.1 seconds and so moves the virtual clock; wait for
something definite instead where the time matters.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

__all__ = ["REAL_SECONDS", "Backend", "VirtualEventLoop", "run_virtual", "virtual_backend"]

Backend: TypeAlias = Literal["asyncio", "trio"]
T = TypeVar("T")

_NOTHING = (
    "nothing can happen any more: every task waits, and there is no timer, no other thread and no socket that could "
    "wake one"
)
HELD_SECONDS = 0.001  # between two looks at whether time is still held
STUCK_SECONDS = 60.0  # real: after so long without a timer, whatever else is at work is not going to wake a task

#: Real seconds that threads, sockets and pipes get before each jump, unless told otherwise.
REAL_SECONDS = 0.02


def run_virtual(
    function: Callable[..., Awaitable[T]],
    *args: Any,
    backend: Backend = "asyncio",
    real_seconds: float = REAL_SECONDS,
    held: Callable[[], bool] | None = None,
) -> T:
    """Run an async function in virtual time, in an event loop of its own.

    Args:
        function: What to run, with `args`.
        backend: The event loop.
        real_seconds: How long to wait, in real time, for threads, sockets and pipes before each jump. A test that
            needs the output of a process wants seconds here, one that lets a thread hang wants little.
        held: Asked whenever nothing can happen inside of the event loop: while it is true, time does not jump. It
            takes the place of `real_seconds`, which is then not looked at.

    Returns:
        What the function returns.

    Raises:
        RuntimeError: on asyncio, every task waits for something that cannot come: no timer, no thread, no socket.
    """
    if backend == "trio":
        import trio

        value: T = trio.run(function, *args, **_trio_options(real_seconds, held))
        return value

    async def main() -> T:
        return await function(*args)

    with asyncio.Runner(loop_factory=lambda: VirtualEventLoop(real_seconds, held)) as runner:
        return runner.run(main())


def virtual_backend(
    backend: Backend, *, real_seconds: float = REAL_SECONDS, held: Callable[[], bool] | None = None
) -> tuple[str, dict[str, Any]]:
    """What the fixture `anyio_backend` returns to run tests in virtual time. Make a new one for each test.

    `real_seconds` and `held` are those of `run_virtual`.

    ```python
    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(request):
        return virtual_backend(request.param)
    ```
    """
    if backend == "trio":
        return "trio", _trio_options(real_seconds, held)
    return "asyncio", {"loop_factory": lambda: VirtualEventLoop(real_seconds, held)}


# ---- asyncio ---------------------------------------------------------------------------------------------------------


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose time jumps to the next timer when nothing else can happen. It starts at 0."""

    def __init__(self, real_seconds: float = REAL_SECONDS, held: Callable[[], bool] | None = None) -> None:
        self._virtual_now = 0.0
        super().__init__(_VirtualSelector(self.advance, real_seconds, held))

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

    def __init__(self, advance: Callable[[float], None], real_seconds: float, held: Callable[[], bool] | None) -> None:
        super().__init__()
        self._advance = advance
        self._real_seconds = real_seconds
        self._held = held
        self._threads = set(threading.enumerate())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._held is not None:
            return self._select_when_free(timeout, self._held)
        # One file descriptor is always there: the loop's own, for wake-ups from threads.
        outside = len(self.get_map()) > 1 or _at_work(self._threads)
        ready = super().select(0)  # a thread that has ended since may have woken the loop before
        if ready:
            return ready
        if timeout is None:
            if outside or len(self._threads) > 1:
                ready = super().select(STUCK_SECONDS)
            if not ready:
                raise RuntimeError(_NOTHING)
            return ready
        if outside:
            ready = super().select(self._real_seconds)
        if not ready:
            self._advance(timeout)
        return ready

    def _select_when_free(
        self, timeout: float | None, held: Callable[[], bool]
    ) -> list[tuple[selectors.SelectorKey, int]]:
        while held():
            ready = super().select(HELD_SECONDS)
            if ready:
                return ready
        ready = super().select(0)  # what let it go may have woken the loop
        if not ready:
            if timeout is None:
                raise RuntimeError(_NOTHING)
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


def _trio_options(real_seconds: float, held: Callable[[], bool] | None) -> dict[str, Any]:
    from trio.testing import MockClock

    if held is not None:
        return {"clock": MockClock(autojump_threshold=HELD_SECONDS), "instruments": [_Held(held)]}
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


class _Held:
    """A trio instrument that keeps the event loop awake while time is held, so that the clock finds no idle moment."""

    def __init__(self, held: Callable[[], bool]) -> None:
        self._held = held
        self._token: Any = None

    def before_run(self) -> None:
        self._token = None

    def before_io_wait(self, timeout: float) -> None:
        # There is a timeout only if no task can go on.
        if timeout <= 0 or not self._held():
            return
        if self._token is None:
            import trio

            self._token = trio.lowlevel.current_trio_token()
        time.sleep(HELD_SECONDS)
        self._token.run_sync_soon(_nothing, idempotent=True)


def _nothing() -> None:
    return None
