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
from math import inf
from typing import Any, Literal, Protocol
from weakref import ref

__all__ = [
    "OTHERS_WAIT",
    "EventLoop",
    "Waiter",
    "checkpoint_if_cancelled",
    "current_backend",
    "new_waiter",
    "running_event_loop",
    "start_now",
]

# --- which backend ------------------------------------------------------------------------------------------------

_modules = sys.modules
_ANYIO = "anyio._backends._asyncio"  # as long as it is not imported nobody has a scope of it

_in_trio_task: Callable[[], bool] | None = None
_asyncio_running_loop: Callable[[], Any] | None = None
# Of asyncio, once it is imported.
_current_task: Any = None
_enter_task: Any = None
_leave_task: Any = None
_InvalidState: Any = None


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
    global _asyncio_running_loop, _current_task, _enter_task, _leave_task, _InvalidState
    get_loop = _asyncio_running_loop
    if get_loop is None:
        from asyncio import InvalidStateError, get_running_loop, tasks

        _InvalidState = InvalidStateError
        _current_task, _enter_task, _leave_task = tasks.current_task, tasks._enter_task, tasks._leave_task
        if sys.version_info < (3, 12):  # where that is a function in Python around this one
            _current_task = tasks._current_tasks.get  # type: ignore[attr-defined]
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

    def hand_over(self, credit: int) -> int:
        """Wake, and where that is right let the task that waits go on within this very call, until it waits again.

        Only from a task of the same event loop. It is what the loop would do soon anyway, without two turns of it. But
        others that are ready, timers and sockets must wait so long, which is what `credit` limits.

        Returns:
            What is left of `credit`; 0 if the task was woken and no more.
        """
        ...

    def cancel_is_due(self) -> bool:
        """True if the running task has cancelled a scope of its own: the loop must tell it before it goes on."""
        ...

    def renew(self) -> None:
        """Make it as new, for another wait in the same event loop. Cheaper than a new one; only while nobody waits."""
        ...


#: What it costs of the credit to keep others waiting who are ready.
OTHERS_WAIT = 8


class _AsyncioWaiter:
    __slots__ = ("_future", "_loop", "_ready")

    def __init__(self) -> None:
        self._loop = loop = _running_asyncio_loop()
        self._ready = getattr(loop, "_ready", None)  # who has a turn soon; not every kind of loop says so
        self._future = loop.create_future()

    def wait(self) -> Awaitable[None]:
        # The future itself, not a coroutine around it: this is on the path of every event.
        future: Awaitable[None] = self._future
        return future

    def wake(self) -> None:
        future = self._future
        if not future.done():
            try:
                future.set_result(None)
            except _InvalidState:
                pass  # a signal came right here, and its handler cancelled the task that waits

    def hand_over(self, credit: int) -> int:
        future = self._future
        if future.done():
            return credit
        loop, others = self._loop, self._ready
        credit -= 1 if not others and others is not None else OTHERS_WAIT
        me = _current_task(loop)
        callbacks = future._callbacks
        if (
            credit < 0
            or me is None
            or getattr(me, "_must_cancel", True)
            or not callbacks
            or len(callbacks) > 1
            or sys.exception() is not None  # it would become the context of what the other task raises
            or (others and _ANYIO in _modules and _in_cancelled_scope())
        ):
            self.wake()
            return 0
        wake_up, context = callbacks[0]
        if not future.remove_done_callback(wake_up):
            return 0  # cancelled by a signal in this very moment: the loop has been told to wake the task
        try:
            future.set_result(None)
        except _InvalidState:
            pass  # cancelled by a signal as well: the task is woken here, and finds that
        _run_within(loop, me, context, wake_up, future)
        return credit

    def renew(self) -> None:
        self._future = self._loop.create_future()

    def cancel_is_due(self) -> bool:
        return bool(self._ready) and _ANYIO in _modules and _in_cancelled_scope()


def _in_cancelled_scope() -> bool:
    """True if the running task is in a scope of anyio that was cancelled, which it may not have been told yet."""
    deadline: float = sys.modules["anyio"].current_effective_deadline()
    return deadline == -inf


def _run_within(loop: Any, me: Any, context: Any, step: Callable[..., Any], *args: Any) -> None:
    """Make a step of another task within the running one, `me`."""
    # A task may be entered from within another if that one is left first: asyncio documents these functions for
    # whoever runs tasks themselves, and its eager tasks work like this.
    _leave_task(loop, me)
    try:
        context.run(step, *args)
    except RuntimeError:  # the context is in use: both tasks were given the same one
        loop.call_soon(step, *args, context=context)
    except (KeyboardInterrupt, SystemExit) as error:
        # It ends the loop, as it would have done from there, before anybody else has a turn.
        loop.call_soon(_raise, error)
        ready = getattr(loop, "_ready", None)
        if ready is not None:
            ready.rotate()
    finally:
        _enter_task(loop, me)


def _raise(error: BaseException) -> None:
    raise error


def start_now(task: Any) -> None:
    """Let a task of asyncio that was just made run until it first waits, instead of when the loop comes to it."""
    loop = task.get_loop()
    ready = getattr(loop, "_ready", None)
    me = _current_task(loop)
    if not ready or me is None or getattr(me, "_must_cancel", True) or sys.exception() is not None:
        return
    handle = ready[-1]
    step = handle._callback
    if getattr(step, "__self__", None) is task:
        ready.pop()
        _run_within(loop, me, handle._context, step, *handle._args)


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

    def hand_over(self, credit: int) -> int:
        self.wake()
        return 0

    def cancel_is_due(self) -> bool:
        return False

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

    __slots__ = ("__weakref__", "_call_soon", "_gone", "_is_closed", "_thread", "of")

    def __init__(
        self, call_soon: Callable[[Callable[[], object]], object], gone: type[Exception], is_closed: Callable[[], bool]
    ) -> None:
        self._call_soon = call_soon
        self._gone = gone
        self._is_closed = is_closed
        self._thread = get_ident()
        self.of: Any = None  # the loop of asyncio

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
            pass  # the event loop has ended: nobody waits


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
    global _last_event_loop
    loop = _running_asyncio_loop()
    found = _last_event_loop() if _last_event_loop is not None else None
    if found is None or found.of is not loop:
        found = EventLoop(loop.call_soon_threadsafe, RuntimeError, loop.is_closed)
        found.of = loop
        _last_event_loop = ref(found)
    return found


#: The one that was made last, as long as anybody has it: all runs of a loop share it.
_last_event_loop: ref[EventLoop] | None = None
