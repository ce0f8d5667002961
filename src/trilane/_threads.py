"""Calls of sync functions in daemon threads of our own, which nobody can cancel and nobody has to wait for.

The pools of asyncio and anyio are not used: both wait for their threads when the program ends, so a tool that hangs
would keep the process.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ._backend import new_waiter, running_event_loop

__all__ = ["ThreadCall", "call_in_thread"]


class ThreadCall:
    """One call in a thread. Made in the event loop; `on_done` functions are called there."""

    __slots__ = ("_loop", "done", "error", "on_done", "value")

    def __init__(self, function: Callable[..., Any], *args: Any, name: str = "trilane call") -> None:
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.on_done: list[Callable[[], None]] = []
        self._loop = running_event_loop()
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work, function, args), name=name, daemon=True).start()

    def _work(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            self.value = function(*args)
        except BaseException as error:  # whatever it is, the task that waits must hear of it
            self.error = error
        self._loop.call(self._finish)

    def _finish(self) -> None:
        self.done = True
        for call in self.on_done:
            call()
        self.on_done.clear()

    def result(self) -> Any:
        """What the function returned.

        Raises:
            BaseException: what the function raised.
        """
        if self.error is not None:
            raise self.error
        return self.value


async def call_in_thread(function: Callable[..., Any], *args: Any, name: str = "trilane call") -> Any:
    """`function(*args)` in a thread. A cancelled wait returns at once; the thread goes on by itself."""
    call = ThreadCall(function, *args, name=name)
    while not call.done:
        waiter = new_waiter()
        call.on_done.append(waiter.wake)
        await waiter.wait()
    return call.result()
