"""The one task of a run, the lease it works under, and what its owner does when it must end.

What each phase does is in `_phases.py`, how a run ends in `_ending.py`; the stream a caller holds, in `_run.py`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import _ending
from ._backend import Waiter, new_waiter
from ._phases import PHASES
from ._tasks import Clock, Ended, GivenUp, TaskHandle, wait_shielded
from .errors import StoreError
from .state import AgentPhase

if TYPE_CHECKING:
    from ._core import Core

__all__ = ["LeaseKeeper", "RunGuard", "end_run", "run_main"]

EXTRA_SECONDS = 0.1  # beyond the grace time, before what still runs is given up
AGAIN_SECONDS = 0.05  # between cancels of a run whose model or plugin swallows them
MAIN_SHARE = 0.4  # of the grace time, for the task of the run to hear that it is cancelled


# ---- the run's task --------------------------------------------------------------------------------------------------


async def run_main(core: Core) -> None:
    """The task of a run: drive the phases to an end, whatever happens. It never raises."""
    # All in one coroutine: of each one more, every run that waits has a frame, and every delta passes through it.
    core.clock.start()
    error: BaseException | None = None
    try:
        frame = core.clock.push(core.limits.run_seconds)
        try:
            phase = core.state.phase
            while phase is not AgentPhase.COMPLETED:
                if phase is not core.state.phase:
                    core.go(phase)
                    if core.notes:
                        await core.deliver()
                phase = await PHASES[phase](core)
            await _ending.complete(core)
        except BaseException as caught:  # every kind of end is told apart in `verdict`
            error = caught
        ended = core.clock.pop(frame, error)
        core.ending = True
        if core.state.phase is AgentPhase.COMPLETED:
            await _shielded(core, _ending.after_completed(core))
        else:
            await _shielded(core, _ending.end(core, _ending.verdict(core, ended, error), core.clock))
    except GivenUp:
        return
    except BaseException as late:  # a further cancel in the ending: `finish` does the rest without waiting
        core.late_causes.append(late)
    finally:
        del error  # its traceback holds this frame
        if not core.clock.given_up:
            await _give_back(core)
            _ending.finish(core)
        core.clock.end()


async def _shielded(core: Core, ending: Any) -> Any:
    """Await in a task that a cancel of the run does not reach; on asyncio the ending takes cancels as they come."""
    if core.owner.is_trio:
        trio = sys.modules["trio"]
        with trio.CancelScope(shield=True):
            return await ending
    return await ending


async def _give_back(core: Core) -> None:
    """The lease is given back before the terminal event. The time for it is bounded, so nothing can hold it up."""
    if core.keeper is not None:
        await _shielded(core, core.keeper.release())


# ---- ending it from outside ------------------------------------------------------------------------------------------


async def end_run(core: Core, reason: str) -> int:
    """Stop a run now and wait for its end; returns how many cancels arrived meanwhile.

    A model or plugin that swallows cancels gets more of them. One that is deaf is left behind on asyncio, and the run
    is ended in another task; on trio nothing can be left behind.
    """
    core.end_now(reason)
    now, grace = core.timers.now, core.setup.grace_seconds
    started = now()
    swallowed = 0
    while now() < started + grace + EXTRA_SECONDS:
        task = core.main
        assert task is not None
        if task.done:
            if core.finished:
                break
            _take_over(core, None)  # it was cancelled before its first step
            continue
        hears = core.ending or core.owner.is_trio
        until = started + grace + EXTRA_SECONDS if hears else min(now() + AGAIN_SECONDS, started + grace)
        swallowed += await wait_shielded(
            core.timers,
            lambda task=task: task.done,  # type: ignore[misc]
            lambda waiter, task=task: task.on_done.append(waiter.wake),  # type: ignore[misc]
            until,
            core.watchdog.hurry,
        )
        if task.done or core.ending or core.owner.is_trio:
            continue
        if now() >= started + grace * MAIN_SHARE:
            _take_over(core, None)
        else:
            task.cancel()
    _ending.finish(core)
    if core.keeper is not None and not core.keeper.over:
        swallowed += await core.keeper.release()
    return swallowed


class RunGuard:
    """Ends a run whose task does not: it was cancelled before its first step, or swallows every cancel."""

    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    def left_deaf(self, clock: Clock) -> None:
        """A task of the run has outlived its time limit by the grace time, and every cancel: go on without it."""
        core = self._core
        if core.owner.is_trio or core.finished:
            return
        if clock is core.clock:
            if not core.ending:
                _take_over(core, _ending.deaf(core, clock))
        elif core.batch is not None:
            core.batch.give_up(clock)

    def main_is_done(self) -> None:
        """The task of the run is done: if it was cancelled before its first step, nobody has ended the run yet."""
        core = self._core
        if not core.finished and not core.ending and not core.clock.given_up:
            core.close_reason = core.close_reason or "the task of the run was cancelled"
            _take_over(core, None)


def _take_over(core: Core, cause: BaseException | None) -> None:
    """End the run in a new task: its own has not begun, or does not hear that it is cancelled."""
    core.clock.give_up()
    core.ending = True
    core.main = core.owner.spawn(_end_instead, core, cause)
    # The stand-in can be cancelled before its first step as well.
    core.main.on_done.append(lambda: _ending.finish(core, cause))


async def _end_instead(core: Core, cause: BaseException | None) -> None:
    clock = Clock(core.watchdog)
    clock.start()
    try:
        await _ending.end(core, cause or _ending.verdict(core, Ended.ASKED, None), clock)
    except BaseException as late:
        core.late_causes.append(late)
    finally:
        await _give_back(core)
        _ending.finish(core)
        clock.end()


# ---- the lease -------------------------------------------------------------------------------------------------------


class LeaseKeeper:
    """Holds the lease of the session in a task of its own, for the context it is may be left only where it was entered.

    So it is given back whatever becomes of the run's task.
    """

    __slots__ = ("_core", "_gate", "_outcome", "_released", "_task", "_waiter")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._outcome: list[BaseException | None] = []
        self._released = False
        self._waiter: Waiter | None = None
        self._gate: Waiter | None = None
        self._task: TaskHandle | None = None

    @property
    def over(self) -> bool:
        """True once the lease is given back, or was given up."""
        return self._released and (self._task is None or self._task.done)

    async def open(self) -> None:
        """Take the lease.

        Raises:
            SessionBusyError: another run has it.
            StoreError: the store did not answer within `Limits.store_seconds`.
        """
        core = self._core
        task = self._task = core.owner.spawn(self._hold)
        seconds = core.limits.store_seconds
        deadline = core.timers.now() + seconds
        try:
            while not self._outcome and core.timers.now() < deadline:
                waiter = self._waiter = new_waiter()
                timer = core.timers.call_at(deadline, waiter.wake)
                try:
                    await waiter.wait()
                finally:
                    timer.cancel()
        except BaseException:
            await self.release()
            raise
        if not self._outcome:
            await self.release()
            raise StoreError(
                f"session {core.session_id!r}: the store did not give a lease within {seconds:g} s; nothing was "
                "started. Check the store, or raise Limits.store_seconds."
            )
        error = self._outcome[0]
        if error is not None:
            await core.join(task, core.timers.now() + core.setup.grace_seconds)
            raise error

    async def _hold(self) -> None:
        core = self._core
        try:
            async with core.store.lease(core.session_id, ttl_seconds=30.0) as lease:
                core.lease = lease
                self._told(None)
                while not self._released:
                    self._gate = new_waiter()
                    await self._gate.wait()
        except BaseException as error:  # this is the whole task: nobody above could see it
            if self._outcome and isinstance(error, Exception):
                core.store_error = core.store_error or error
            elif self._outcome:
                return  # it took too long and was cancelled: `release` says so
            else:
                self._told(error)

    def _told(self, error: BaseException | None) -> None:
        self._outcome.append(error)
        if self._waiter is not None:
            self._waiter.wake()

    async def release(self) -> int:
        """Give the lease back, within the time there is for that; returns how many cancels arrived meanwhile."""
        core, task = self._core, self._task
        if task is None or task.done:
            self._released = True
            return 0
        first = not self._released
        self._released = True
        if not self._outcome:
            task.cancel()
        elif self._gate is not None:
            self._gate.wake()
        if not first:
            return 0
        swallowed = await self._wait_for_store(task)
        until = core.timers.now() + core.setup.grace_seconds * _ending.FLUSH_SHARE / 2
        if not task.done:
            while not task.done and core.timers.now() < until:
                task.cancel()
                swallowed += await core.join(task, min(until, core.timers.now() + AGAIN_SECONDS))
            if core.lease is not None and core.store_error is None:
                core.store_error = StoreError(f"session {core.session_id!r}: the store did not take the lease back")
        return swallowed

    async def _wait_for_store(self, task: TaskHandle) -> int:
        """Wait for the store to take the lease back; less patiently once somebody waits for the end of the run."""
        core = self._core
        swallowed = 0
        while not task.done:
            known = core.close_reason
            deadline = core.timers.now() + _ending.seconds_to_store(core, _ending.FLUSH_SHARE / 2)

            def subscribe(waiter: Waiter) -> None:
                task.on_done.append(waiter.wake)
                core.hurried.append(waiter)

            swallowed += await wait_shielded(
                core.timers,
                lambda known=known: task.done or core.close_reason != known,  # type: ignore[misc]
                subscribe,
                deadline,
            )
            core.hurried.clear()
            if core.close_reason == known:
                break
        return swallowed
