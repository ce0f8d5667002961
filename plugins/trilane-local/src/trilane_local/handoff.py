"""Brings what a thread makes into a task, one piece at a time: the thread waits until the task has taken it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio

__all__ = ["Handoff"]

T = TypeVar("T")


class Handoff(Generic[T]):
    """Runs a function in a thread of its own and gets what it hands over. Make it in the task that gets.

    Args:
        work: Called in the thread with a function that takes a piece and answers whether to stop.
    """

    def __init__(self, work: Callable[[Callable[[T], bool]], None]) -> None:
        self._work = work
        self._call_soon = _call_soon()
        self._pieces: list[T] = []
        self._arrived = anyio.Event()
        self._may_go_on = threading.Semaphore(0)
        self._is_stopped = False
        self._has_ended = False
        self._ended = anyio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="trilane local model", daemon=True)
        self._thread.start()

    async def get(self) -> T | None:
        """The next piece, None at the end. The thread goes on when the piece after it is asked for.

        Raises:
            BaseException: what the function raised.
        """
        self._may_go_on.release()
        while not self._pieces and not self._has_ended:
            await self._arrived.wait()
            self._arrived = anyio.Event()
        if self._pieces:
            return self._pieces.pop(0)
        if self._error is not None:
            raise self._error
        return None

    async def stop(self, grace_seconds: float) -> bool:
        """Let the function be told to stop, and wait for it, whatever is being cancelled.

        Returns:
            Whether it has ended.
        """
        self._is_stopped = True
        self._may_go_on.release()
        with anyio.move_on_after(grace_seconds, shield=True):
            await self._ended.wait()
        return self._has_ended

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work(self._take)
        except BaseException as error:  # for the task that gets
            self._error = error
        self._tell(self._end)

    def _take(self, piece: T) -> bool:
        self._may_go_on.acquire()
        if not self._is_stopped:
            self._tell(lambda: self._put(piece))
        return self._is_stopped

    def _tell(self, function: Callable[[], object]) -> None:
        try:
            self._call_soon(function)
        except RuntimeError:  # the loop has ended, and with it the task
            self._is_stopped = True

    # ---- in the event loop -------------------------------------------------------------------------------------------

    def _put(self, piece: T) -> None:
        self._pieces.append(piece)
        self._arrived.set()

    def _end(self) -> None:
        self._has_ended = True
        self._arrived.set()
        self._ended.set()


def _call_soon() -> Callable[[Callable[[], object]], object]:
    """What calls a function in the running event loop, from any thread."""
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        run_soon: Callable[[Callable[[], object]], object] = trio.lowlevel.current_trio_token().run_sync_soon
        return run_soon
    from asyncio import get_running_loop

    return get_running_loop().call_soon_threadsafe
