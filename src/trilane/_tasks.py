"""Tasks, timers and deadlines of a run, the same on asyncio and trio.

On asyncio tasks are plain tasks: a task group waits for every child, and one that swallows each cancel would hold the
caller for ever. On trio a nursery must own them; each runs in a shielded scope of its own, so that a cancel of the
caller reaches a run only through the stream, in order. Waiting and waking is in `_backend.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any, TypeVar

from ._backend import Waiter, current_backend, new_waiter, running_event_loop, start_now

__all__ = [
    "Clock",
    "Ended",
    "Frame",
    "GivenUp",
    "TaskHandle",
    "TaskOwner",
    "Timers",
    "Watchdog",
    "clock_here",
    "current_clock",
    "in_own_clock",
    "is_foreign",
    "wait_shielded",
]

INFINITE = float("inf")

R = TypeVar("R")


# ---- time ------------------------------------------------------------------------------------------------------------


class Timers:
    """`now` and `call_at` of the running event loop."""

    __slots__ = ("backend", "call_at", "loop", "now")

    loop: Any
    now: Callable[[], float]
    call_at: Callable[[float, Callable[[], None]], Any]

    def __init__(self) -> None:
        self.backend = current_backend()
        if self.backend == "asyncio":
            import asyncio

            self.loop = asyncio.get_running_loop()
            # Most loops tell the time by `monotonic`; asking it directly spares a call on each event.
            self.now = monotonic if type(self.loop).time is asyncio.BaseEventLoop.time else self.loop.time
            self.call_at = self.loop.call_at
        else:
            import trio

            self.loop = trio.lowlevel.current_trio_token()
            self.now = trio.current_time
            self.call_at = _trio_timers().call_at


class _TrioTimer:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class _TrioTimers:
    """What asyncio's `call_at` does, for trio: one system task for all runs of an event loop."""

    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._heap: list[tuple[float, int, _TrioTimer]] = []
        self._order = count()
        self._waiter: Waiter | None = None
        trio.lowlevel.spawn_system_task(self._serve, name="trilane timers")

    def call_at(self, when: float, call: Callable[[], None]) -> _TrioTimer:
        timer = _TrioTimer(call)
        heappush(self._heap, (when, next(self._order), timer))
        if self._heap[0][2] is timer and self._waiter is not None:
            self._waiter.wake()
        return timer

    async def _serve(self) -> None:
        trio = self._trio
        while True:
            while self._heap and (self._heap[0][2].call is None or self._heap[0][0] <= trio.current_time()):
                timer = heappop(self._heap)[2]
                if timer.call is not None:
                    timer.call()
            self._waiter = new_waiter()
            deadline = self._heap[0][0] if self._heap else INFINITE
            with trio.CancelScope(deadline=deadline):
                await self._waiter.wait()
            self._waiter = None


_timers_of_run: Any = None


def _trio_timers() -> _TrioTimers:
    global _timers_of_run
    import trio

    if _timers_of_run is None:
        _timers_of_run = trio.lowlevel.RunVar("trilane timers")
    try:
        found: _TrioTimers = _timers_of_run.get()
    except LookupError:
        found = _TrioTimers(trio)
        _timers_of_run.set(found)
    return found


# ---- tasks -----------------------------------------------------------------------------------------------------------


class TaskHandle:
    """One task of a run."""

    __slots__ = ("_native", "_scope", "cancels", "done", "on_done")

    def __init__(self) -> None:
        self.done = False
        self.cancels = 0
        self.on_done: list[Callable[[], None]] = []
        self._native: Any = None
        self._scope: Any = None

    def cancel(self) -> None:
        """Ask the task to end. On asyncio each call is one cancel; on trio the first holds until the end."""
        if self.done:
            return
        self.cancels += 1
        if self._scope is not None:
            self._scope.cancel()
        else:
            self._native.cancel()

    def ends(self) -> None:
        """Say so from within the task, as the last thing: on asyncio that spares the event loop a turn."""
        if self._native is not None:
            self._native.remove_done_callback(self._finish)
            self._finish()

    def _finish(self, _task: object = None) -> None:
        if not self.done:
            self.done = True
            for call in self.on_done:
                call()
            self.on_done.clear()


class TaskOwner:
    """Where the tasks of a run (or of a runtime) live."""

    __slots__ = ("_manager", "_nursery", "event_loop", "is_trio", "timers")

    def __init__(self) -> None:
        self.timers = Timers()
        self.event_loop = running_event_loop()
        self.is_trio = self.timers.backend == "trio"
        self._manager: Any = None
        self._nursery: Any = None

    async def open(self) -> None:
        """On trio, open the nursery: only in a place that `close` is called from in the same task."""
        if self.is_trio and self._nursery is None:
            import trio

            self._manager = trio.open_nursery()
            self._nursery = await self._manager.__aenter__()

    async def close(self) -> None:
        """On trio, wait for the nursery. Every task in it must have ended or been cancelled."""
        if self._manager is None:
            return
        manager, nursery = self._manager, self._nursery
        self._manager = self._nursery = None
        nursery.cancel_scope.shield = True
        # Never given the caller's exception: it must come out as it is, not in a group.
        await manager.__aexit__(None, None, None)

    def spawn(self, function: Callable[..., Awaitable[None]], *args: Any) -> TaskHandle:
        """Start `function(*args)` in a task of its own. It must not raise."""
        handle = TaskHandle()
        self.start(handle, function, *args)
        return handle

    def start(
        self, handle: TaskHandle, function: Callable[..., Awaitable[None]], *args: Any, now: bool = False
    ) -> None:
        """`spawn`, with a handle that is there before. `now`: it runs until it first waits, where that is possible."""
        if self.is_trio:
            import trio

            handle._scope = trio.CancelScope(shield=True)
            self._nursery.start_soon(_run_on_trio, handle, function, args)
            return
        handle._native = task = self.timers.loop.create_task(function(*args))
        task.add_done_callback(handle._finish)
        if now:
            start_now(task)


async def _run_on_trio(handle: TaskHandle, function: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
    try:
        with handle._scope:
            await function(*args)
    finally:
        handle._finish()


async def wait_shielded(
    timers: Timers,
    is_over: Callable[[], bool],
    subscribe: Callable[[Waiter], None],
    deadline: float,
    on_cancel: Callable[[], None] | None = None,
) -> int:
    """Wait until `is_over()`, through cancels, but not beyond `deadline`.

    `subscribe` is given a waiter to wake whenever `is_over` may have changed. On asyncio the number of cancels that
    arrived meanwhile is returned, `on_cancel` is called for each, and the caller must let one of them take effect. On
    trio a cancel stays pending anyway.
    """
    swallowed = 0
    while not is_over() and timers.now() < deadline:
        waiter = new_waiter()
        subscribe(waiter)
        timer = timers.call_at(deadline, waiter.wake) if deadline < INFINITE else None
        try:
            if timers.backend == "trio":
                trio = sys.modules["trio"]
                with trio.CancelScope(shield=True):
                    await waiter.wait()
            else:
                await waiter.wait()
        except BaseException as error:
            import asyncio

            if not isinstance(error, asyncio.CancelledError):
                raise
            swallowed += 1
            if on_cancel is not None:
                on_cancel()
        finally:
            if timer is not None:
                timer.cancel()
    return swallowed


# ---- deadlines -------------------------------------------------------------------------------------------------------


class Ended(Enum):
    """How a bounded part ended, as `Clock.pop` finds it."""

    OK = "ok"
    ERROR = "error"
    TIMED_OUT = "timed_out"
    ASKED = "asked"  # a cancel that the run was asked for: it must go on outwards
    FATAL = "fatal"  # KeyboardInterrupt or SystemExit: it must go on outwards too
    FAKED = "faked"  # a cancellation nobody asked for: the failure of whoever raised it


class GivenUp(BaseException):
    """Ends a task that the run has left behind, at the first moment at which that is possible."""


class Frame:
    """One bounded part: a hook, a tool, a model call, a run. Its deadline is in the time of its clock (`lost`)."""

    __slots__ = ("deadline", "fired", "scope")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.fired = 0
        self.scope: Any = None


class Watchdog:
    """Cancels whatever outlives its deadline: one timer for a run, moved only when a nearer deadline comes up."""

    __slots__ = ("_clocks", "_next", "_timer", "on_deaf", "patience", "timers")

    #: A part that swallowed its cancel gets another one after so many seconds.
    AGAIN_SECONDS = 0.05

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self._clocks: list[Clock] = []
        #: Told of a clock whose innermost overdue part has swallowed cancels for `patience` seconds.
        self.on_deaf: Callable[[Clock], None] | None = None
        self.patience = 1.5
        self._next = INFINITE
        self._timer: Any = None

    def watch(self, deadline: float) -> None:
        """Make sure to look again at `deadline`."""
        if deadline < self._next:
            if self._timer is not None:
                self._timer.cancel()
            self._next = deadline
            self._timer = self.timers.call_at(deadline, self._fire)

    def stop(self) -> None:
        """Never fire again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.on_deaf = None  # it refers to the run
        self._next = -INFINITE

    def revive(self) -> None:
        """Look again at all deadlines; those of parts that were cut off are gone."""
        for clock in self._clocks:
            clock.watch_again()

    def hurry(self) -> None:
        """Let every deadline be now."""
        now = self.timers.now()
        for clock in self._clocks:
            for frame in clock.frames:
                frame.deadline = min(frame.deadline, now - clock.lost)
        self.watch(now)

    def _fire(self) -> None:
        self._timer = None
        self._next = INFINITE
        now = self.timers.now()
        nearest = INFINITE
        deaf: list[Clock] = []
        for clock in self._clocks:
            if clock.paused:
                clock.overlooked = True
                continue
            for frame in clock.frames:
                due = frame.deadline + clock.lost
                if due <= now:
                    if self.on_deaf is not None and frame.fired * self.AGAIN_SECONDS > self.patience:
                        deaf.append(clock)
                        break
                    clock.interrupt(frame)
                    frame.deadline = now + self.AGAIN_SECONDS - clock.lost
                    nearest = min(nearest, now + self.AGAIN_SECONDS)
                    break
                nearest = min(nearest, due)
        if nearest < INFINITE:
            self.watch(nearest)
        for clock in deaf:
            if self.on_deaf is not None:
                self.on_deaf(clock)

    def give_up_all(self) -> None:
        """The run has ended: whatever task of it goes on ends where it next leaves a bounded part."""
        for clock in self._clocks:
            clock.given_up = True


current_clock: ContextVar[Clock] = ContextVar("trilane_clock")
"""The clock of the task that runs."""


def clock_here(own: Clock) -> Clock:
    """The clock of the task that runs; `own` for a task or a thread that is none of the run's.

    Plugins, models and tools have workers that live longer than a run, or that know nothing of it: what those show or
    ask takes place in the time of the run, or of the call they work for.
    """
    clock = current_clock.get(own)
    return clock if clock is own or clock.watchdog is own.watchdog else own


class Clock:
    """The bounded parts that a task is in, outermost first. It stands still while the task waits for the outside."""

    __slots__ = (
        "_asyncio",
        "_since",
        "_task",
        "_trio",
        "baseline",
        "frames",
        "given_up",
        "lost",
        "now",
        "overlooked",
        "paused",
        "plugin",
        "watchdog",
    )

    def __init__(self, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.now: Callable[[], float] = watchdog.timers.now
        self.frames: list[Frame] = []
        self.paused = 0
        self._since = 0.0  # when the first of the pauses that hold began
        self.lost = 0.0  # seconds that all pauses took: so far behind the event loop's time it is
        self.overlooked = False  # the watchdog came by in a pause, and will not come again by itself
        self.baseline = 0
        self.given_up = False  # nobody waits for the task any more
        self.plugin = ""  # whose hook runs, for what it emits
        self._task: Any = None
        self._trio: Any = sys.modules.get("trio") if watchdog.timers.backend == "trio" else None
        self._asyncio: Any = None if self._trio else sys.modules["asyncio"]

    def start(self) -> None:
        """Begin, in the task itself."""
        if self._asyncio is not None:
            self._task = self._asyncio.current_task()
            self.baseline = self._task.cancelling()
        self.watchdog._clocks.append(self)
        current_clock.set(self)

    def end(self) -> None:
        """The task ends."""
        if self in self.watchdog._clocks:
            self.watchdog._clocks.remove(self)
        self._task = None  # it holds its context, which holds this clock

    def give_up(self) -> None:
        """Leave the task behind: it is not watched any more, and ends where it next leaves a bounded part."""
        self.given_up = True
        if self in self.watchdog._clocks:
            self.watchdog._clocks.remove(self)

    def accept_cancels(self) -> None:
        """Cancels that have arrived so far are known and dealt with; only later ones count as asked for."""
        if self._task is not None:
            self.baseline = self._task.cancelling()

    def push(self, seconds: float | None) -> Frame:
        """Enter a part that may take `seconds`; None for no limit. Must be left by `pop` in the same task."""
        deadline = INFINITE if seconds is None else self.now() + seconds
        frame = Frame(deadline - self.lost)
        self.frames.append(frame)
        if self._trio is not None:
            frame.scope = self._trio.CancelScope()
            frame.scope.__enter__()
        watchdog = self.watchdog
        if deadline < watchdog._next:
            watchdog.watch(deadline)
        return frame

    def pop(self, frame: Frame, error: BaseException | None) -> Ended:
        """Leave the part, with what it raised, and say how it ended."""
        self.frames.pop()
        if frame.scope is not None:
            return self._pop_trio(frame, error)
        if self.given_up:
            raise GivenUp
        if frame.fired:
            for _ in range(frame.fired):
                self._task.uncancel()
        elif error is None:
            return Ended.OK
        return self.classify(error, timed_out=frame.fired > 0)

    def renew(self, frame: Frame) -> None:
        """Enter a part again that `pop` has left, without a limit for now."""
        frame.fired = 0
        frame.deadline = INFINITE
        self.frames.append(frame)
        if self._trio is not None:
            frame.scope = self._trio.CancelScope()
            frame.scope.__enter__()

    def leave(self, frame: Frame) -> None:
        """Leave a part that ended as it should, unless `pop` has left it already."""
        frames = self.frames
        if frames and frames[-1] is frame:
            frames.pop()
            if frame.scope is not None:
                frame.scope.__exit__(None, None, None)

    def _pop_trio(self, frame: Frame, error: BaseException | None) -> Ended:
        scope = frame.scope
        if error is None:
            scope.__exit__(None, None, None)
            return Ended.TIMED_OUT if frame.fired else Ended.OK
        try:
            caught = scope.__exit__(type(error), error, error.__traceback__)
        except BaseException as left:
            error, caught = left, False
        if caught or scope.cancelled_caught:
            return Ended.TIMED_OUT
        return self.classify(error, timed_out=frame.fired > 0)

    def classify(self, error: BaseException | None, *, timed_out: bool = False) -> Ended:
        """What kind of end `error` is, for a part that has no deadline of its own or whose deadline has passed."""
        if isinstance(error, Exception):
            return Ended.TIMED_OUT if timed_out else Ended.ERROR
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return Ended.FATAL
        if self._trio is not None:
            if isinstance(error, self._trio.Cancelled) or _holds(error, self._trio.Cancelled):
                return Ended.ASKED
        elif isinstance(error, self._asyncio.CancelledError):
            if self._task.cancelling() > self.baseline:
                return Ended.ASKED
            return Ended.TIMED_OUT if timed_out else Ended.FAKED
        if timed_out:
            return Ended.TIMED_OUT
        return Ended.FAKED if type(error).__name__ in ("CancelledError", "Cancelled") else Ended.ERROR

    def exclude(self, frame: Frame) -> float:
        """Stop the clock of one part only (an `around_` hook inside its `call_next`); give the result to `include`."""
        left = frame.deadline + self.lost - self.now()
        frame.deadline = INFINITE
        return left

    def include(self, frame: Frame, left: float) -> None:
        """Start the clock of the part again, with the time it had left."""
        self.limit(frame, self.now() + left)

    def interrupt(self, frame: Frame) -> None:
        """Cancel the part `frame` stands for."""
        frame.fired += 1
        if frame.scope is not None:
            frame.scope.cancel()
        else:
            self._task.cancel()

    def pause(self) -> None:
        """Stand still until `resume`. Pauses may overlap: another task may wait in the name of this one."""
        if not self.paused:
            self._since = self.now()
        self.paused += 1

    def resume(self) -> None:
        """Go on, if this ends the last pause: the time since the first does not count."""
        self.paused -= 1
        if self.paused:
            return
        self.lost += self.now() - self._since
        if self.overlooked:
            self.overlooked = False
            self.watch_again()

    def skip(self, since: float) -> None:
        """What happened since then, without a wait in it, does not count."""
        if not self.paused:
            self.lost += self.now() - since

    def limit(self, frame: Frame, until: float) -> None:
        """Let the part end at a time of the event loop; later, if there are pauses before."""
        frame.deadline = until - self.lost
        if until < self.watchdog._next:
            self.watchdog.watch(until)

    def watch_again(self) -> None:
        """Make sure that the watchdog looks at the nearest deadline."""
        nearest = min((frame.deadline for frame in self.frames), default=INFINITE) + self.lost
        if nearest < INFINITE:
            self.watchdog.watch(nearest)


def _holds(error: BaseException | None, kind: type[BaseException]) -> bool:
    """True if `error` is a group with nothing but `kind` in it: what a nursery makes of a cancel."""
    return isinstance(error, BaseExceptionGroup) and error.split(kind)[1] is None


def is_foreign(watchdog: Watchdog) -> bool:
    """True if the task that runs is none of the run's."""
    clock = current_clock.get(None)
    return clock is None or clock.watchdog is not watchdog


async def in_own_clock(watchdog: Watchdog, function: Callable[..., Awaitable[R]], *args: Any) -> R:
    """Await `function(*args)` in a task that is none of the run's, with a clock for its bounded parts."""
    clock = Clock(watchdog)
    token = current_clock.set(clock)
    clock.start()
    try:
        return await function(*args)
    finally:
        clock.end()
        current_clock.reset(token)
