"""The few places where asyncio and trio differ.

For waiting and waking, and for reaching the event loop from another thread. Not for what is waited for: a waiter
carries no data, the state lives with its owner, who looks at it again after every wake-up. So neither a lost wake-up
nor a cancelled wait can lose an item.

Nothing here imports asyncio, trio or anyio before it runs inside one of them.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

__all__ = [
    "EventLoop",
    "Waiter",
    "checkpoint_if_cancelled",
    "current_backend",
    "new_waiter",
    "running_event_loop",
]

# --- which backend ------------------------------------------------------------------------------------------------

_in_trio_task: Callable[[], bool] | None = None
_asyncio_running_loop: Callable[[], Any] | None = None


def _is_trio() -> bool:
    global _in_trio_task
    check = _in_trio_task
    if check is None:
        # Without the function trio is not imported, or another thread is importing it: it cannot be running here.
        check = getattr(sys.modules.get("trio.lowlevel"), "in_trio_task", None)
        if check is None:
            return False
        _in_trio_task = check
    return check()


def _running_asyncio_loop() -> Any:
    global _asyncio_running_loop
    get_loop = _asyncio_running_loop
    if get_loop is None:
        from asyncio import get_running_loop

        get_loop = _asyncio_running_loop = get_running_loop
    return get_loop()


def current_backend() -> Literal["asyncio", "trio"]:
    """The backend of the running task.

    Raises:
        RuntimeError: called outside a task of either.
    """
    if _is_trio():
        return "trio"
    _running_asyncio_loop()
    return "asyncio"


# --- waiting ------------------------------------------------------------------------------------------------------


class Waiter(Protocol):
    """One wait of one task. A wake before the wait is remembered; a cancelled wait leaves nothing behind."""

    def wait(self) -> Awaitable[None]:
        """Await the result, once: it returns after `wake`, without a checkpoint if that came first."""
        ...

    def wake(self) -> None:
        """Let the wait return. Idempotent, never waits; only from the thread of the event loop."""
        ...

    def renew(self) -> None:
        """Make it as new, for another wait in the same event loop. Cheaper than a new one; only while nobody waits."""
        ...


class _AsyncioWaiter:
    __slots__ = ("_create_future", "_future")

    def __init__(self) -> None:
        self._create_future = _running_asyncio_loop().create_future
        self._future = self._create_future()

    def wait(self) -> Awaitable[None]:
        # The future itself, not a coroutine around it: this is on the path of every event.
        future: Awaitable[None] = self._future
        return future

    def wake(self) -> None:
        future = self._future
        if not future.done():
            future.set_result(None)

    def renew(self) -> None:
        self._future = self._create_future()


class _TrioWaiter:
    __slots__ = ("_lowlevel", "_task", "_woken")

    def __init__(self) -> None:
        self._lowlevel: Any = sys.modules["trio.lowlevel"]
        self._task: Any = None
        self._woken = False

    async def wait(self) -> None:
        if self._woken:
            return
        lowlevel = self._lowlevel
        self._task = lowlevel.current_task()
        await lowlevel.wait_task_rescheduled(self._abort)

    def wake(self) -> None:
        self._woken = True
        task = self._task
        if task is not None:
            self._task = None
            self._lowlevel.reschedule(task)

    def renew(self) -> None:
        self._woken = False

    def _abort(self, _raise_cancel: object) -> Any:
        self._task = None
        return self._lowlevel.Abort.SUCCEEDED


def new_waiter() -> Waiter:
    """A waiter for the running task.

    Raises:
        RuntimeError: called outside a task of asyncio or trio.
    """
    return _TrioWaiter() if _is_trio() else _AsyncioWaiter()


async def checkpoint_if_cancelled() -> None:
    """Let a cancellation that was asked for already be delivered here; otherwise return without giving up control."""
    if _is_trio():
        await sys.modules["trio.lowlevel"].checkpoint_if_cancelled()
        return
    import asyncio

    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)
    if "anyio" in sys.modules:
        # A scope that this very task cancelled reaches it only at its next wait; `cancelling` does not show it.
        import anyio.lowlevel

        await anyio.lowlevel.checkpoint_if_cancelled()


# --- from other threads -------------------------------------------------------------------------------------------


class EventLoop:
    """The event loop a channel is used in, for reaching it from any thread."""

    __slots__ = ("_call_soon", "_gone", "_is_closed", "_thread")

    def __init__(
        self, call_soon: Callable[[Callable[[], object]], object], gone: type[Exception], is_closed: Callable[[], bool]
    ) -> None:
        self._call_soon = call_soon
        self._gone = gone
        self._is_closed = is_closed
        self._thread = get_ident()

    def call(self, function: Callable[[], object]) -> None:
        """Call `function` in the loop's thread: at once if this is it, else soon. Never waits.

        Once the loop has ended nothing waits in it any more, and the call is dropped.
        """
        if get_ident() == self._thread:
            if not self._is_closed():
                function()
            return
        try:
            self._call_soon(function)
        except self._gone:
            pass


def running_event_loop() -> EventLoop:
    """The event loop of the running task.

    Raises:
        RuntimeError: called outside a task of asyncio or trio.
    """
    if _is_trio():
        trio: Any = sys.modules["trio"]
        token = trio.lowlevel.current_trio_token()
        # After a trio run its waiters are aborted and waking them does nothing, so it need not be asked for.
        return EventLoop(token.run_sync_soon, trio.RunFinishedError, bool)
    loop = _running_asyncio_loop()
    return EventLoop(loop.call_soon_threadsafe, RuntimeError, loop.is_closed)
