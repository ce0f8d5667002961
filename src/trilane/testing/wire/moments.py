"""Things that happen in the server's thread, waited for in a test's event loop or thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trilane._backend import new_waiter, running_event_loop

__all__ = ["Moment"]


class Moment:
    """Something that happens once. Any thread may say so; asyncio, trio and threads may wait for it.

    Attributes:
        at: When it happened, as `time.perf_counter` counts; None before.
    """

    __slots__ = ("_description", "_flag", "_lock", "_wakers", "at")

    def __init__(self, description: str) -> None:
        self._description = description
        self._flag = threading.Event()
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []
        self.at: float | None = None

    def happen(self) -> None:
        """It has happened. Only the first time counts."""
        with self._lock:
            if self.at is not None:
                return
            self.at = time.perf_counter()
            wakers, self._wakers = self._wakers, []
        self._flag.set()
        for wake in wakers:
            wake()

    async def wait(self, timeout: float = 5.0) -> float:
        """Wait in a task, and say when it happened.

        Raises:
            TimeoutError: it did not happen within `timeout` seconds; the message says what.
        """
        import anyio

        waiter, loop = new_waiter(), running_event_loop()

        def wake() -> None:
            loop.call(waiter.wake)

        with self._lock:
            if self.at is not None:
                return self.at
            self._wakers.append(wake)
        try:
            with anyio.move_on_after(timeout):
                await waiter.wait()
        finally:
            with self._lock:
                if wake in self._wakers:
                    self._wakers.remove(wake)
        return self._happened(timeout)

    def wait_sync(self, timeout: float = 5.0) -> float:
        """Wait in a thread without an event loop; otherwise as `wait`."""
        self._flag.wait(timeout)
        return self._happened(timeout)

    def _happened(self, timeout: float) -> float:
        if self.at is None:
            raise TimeoutError(f"{self._description}: did not happen within {timeout:g} s")
        return self.at
