"""How a run ends: `settle` at once and synchronously, then flush, hooks, and the one terminal event.

`settle` and `finish` do not wait and may be called by the run's task or by its owner, whoever comes first; the second
call does nothing. So even a run whose task never took a step, or never gives way, ends in a terminal phase with every
call answered and its session free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._asking import withdraw_all
from ._batch import AGAIN_SECONDS, Batch
from ._conversation import keep_unheard
from ._tasks import INFINITE, Clock, Ended
from .errors import HookTimeoutError, PluginError, RunCancelledError, RunError, RunTimeoutError
from .events import (
    CompactionCompleted,
    MessageAppendedEvent,
    MessageCompleted,
    RunCancelled,
    RunCancelledEvent,
    RunCompleted,
    RunFailed,
)
from .messages import Outcome, StopReason, TextPart
from .result import RunResult
from .state import AgentPhase
from .stores import CallWithdrawn, MessageStored, RunEnded

if TYPE_CHECKING:
    from ._core import Core

__all__ = ["complete", "deaf", "end", "finish", "seconds_to_store", "settle", "verdict"]

# Parts of the grace time that are kept for each: a tool that hangs must not take the flush's, nor a hook close_run's.
TOOLS_SHARE = 0.4
FLUSH_SHARE = 0.25
CLOSE_SHARE = 0.15


# What a call is said to have come to, where its tool did not say it.
_MADE_UP = frozenset({"interrupted", "still_running", "not_started"})


# ---- the normal end --------------------------------------------------------------------------------------------------


async def complete(core: Core) -> None:
    """READY -> COMPLETED: the answer is stored, then the phase is committed, then everybody is told."""
    await core.flush()
    core.check()
    core.go(AgentPhase.COMPLETED)
    core.status = "completed"
    core.settled = True


async def after_completed(core: Core) -> None:
    """Hooks of a completed run. Nothing here changes the answer or the status."""
    core.dispatcher.shielded = core.clock
    core.clock.accept_cancels()
    if core.notes:
        await core.deliver()
    result = make_result(core)
    hooks, dispatcher, clock = core.hooks, core.dispatcher, core.clock
    if hooks.after_run:
        await dispatcher.notify(hooks.after_run, clock, core.context, result, remaining=lambda: _left(core))
    if hooks.on_success:
        await dispatcher.notify(hooks.on_success, clock, core.context, result, remaining=lambda: _left(core))
    grace = core.setup.grace_seconds
    # Once its reader has left there is a deadline already (`Core.end_now`); some of the grace time is kept for this.
    core.deadline = core.timers.now() + grace if core.deadline == INFINITE else core.deadline + grace * CLOSE_SHARE
    if core.answer_tasks:
        await _stop_answering(core, core.timers.now() + core.setup.grace_seconds * TOOLS_SHARE)
    if hooks.close_run:
        await dispatcher.teardown(hooks.close_run, clock, lambda: _left(core), core.context, core.status)
    if core.notes:
        await core.deliver()
    await _flush_bookkeeping(core)
    await _stop_answering(core, core.timers.now() + grace * FLUSH_SHARE)


# ---- the other ends --------------------------------------------------------------------------------------------------


def verdict(core: Core, ended: Ended, error: BaseException | None) -> BaseException:
    """What ended the run, as the exception its caller will see: a cancel before errors, the first before later ones."""
    error = _ungrouped(error)
    if core.stop_error is not None and (error is core.stop_error or ended is Ended.ASKED):
        return core.stop_error
    if ended is Ended.ASKED or (core.main is not None and core.main.cancels and ended is not Ended.FATAL):
        cancelled = RunCancelledError(core.close_reason or "the task of the run was cancelled")
        if isinstance(error, Exception):
            cancelled.__cause__ = error
        return cancelled
    if ended is Ended.TIMED_OUT:
        return RunTimeoutError(
            f"the run did not end within its {core.limits.run_seconds:g} s (Limits.run_seconds), "
            "not counting time it waited for its caller"
        )
    if core.lane_error is not None and ended is not Ended.FATAL:
        return core.lane_error
    if error is None or ended is Ended.FAKED:
        failure = PluginError(
            f"the run was ended by {type(error).__name__}, which nobody had asked for", plugin="", hook=""
        )
        failure.__cause__ = error
        return failure
    return error


def deaf(core: Core, clock: Clock) -> BaseException:
    """What ends a run whose task does not come back from a part that is over time, and swallows every cancel."""
    if clock.plugin:
        return HookTimeoutError(
            f"a hook of plugin {clock.plugin!r} did not end in its time and swallows every cancel; it was left behind",
            plugin=clock.plugin,
            hook="",
        )
    return RunTimeoutError(
        f"the run did not end in its time: in phase {core.state.phase.name} something swallows every cancel "
        "(a model, if the phase is GENERATING); it was left behind"
    )


def _ungrouped(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def end(core: Core, cause: BaseException, clock: Clock) -> None:
    """End a run that does not complete: stop its tools, settle, store, tell plugins, within the grace time.

    `clock` is that of the task this runs in: the run's own, or the one that ends it in its stead.
    """
    core.cause = cause
    core.dispatcher.shielded = clock
    clock.accept_cancels()
    core.watchdog.revive()
    grace = core.setup.grace_seconds
    started = core.timers.now()
    core.deadline = started + grace
    for task in tuple(core.answer_tasks):
        task.cancel()
    if core.batch is not None:
        if isinstance(cause, RunTimeoutError):
            core.batch.cut_off_as = "timed_out"
        await core.batch.stop(started + grace * TOOLS_SHARE)
    await _stop_answering(core, started + grace * TOOLS_SHARE)
    if core.suspended:
        await _store_checkpoint(core, core.timers.now() + grace * FLUSH_SHARE)
    settle(core, cause)
    hooks_until = core.deadline - grace * FLUSH_SHARE / 2
    await _flush_settled(core, core.timers.now() + grace * FLUSH_SHARE)
    await _tell_plugins(core, cause, hooks_until, clock)
    await _flush_bookkeeping(core)
    await _stop_answering(core, core.timers.now() + grace * FLUSH_SHARE)


async def _stop_answering(core: Core, until: float) -> None:
    """No `answer=` function and no late write goes on after the run; whoever swallows a cancel gets another."""
    while core.timers.now() < until:
        tasks = [task for task in core.answer_tasks if not task.done]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await core.join(tasks[0], min(until, core.timers.now() + AGAIN_SECONDS))


async def _store_checkpoint(core: Core, until: float) -> None:
    """Of a suspended run what really happened is stored; what a cancelled tool is said to have been is not."""
    core.outbox = [one for one in core.outbox if one.kind != "call_finished" or one.result.outcome not in _MADE_UP]
    keep_unheard(core)
    batch = core.batch
    for run in batch.runs if batch is not None else ():
        if batch is not None and run.has_not_begun:
            core.record(CallWithdrawn(run_id=core.run_id, message_id=batch.message_id, call_id=run.call.id))
    await _flush_until(core, until)


async def _flush_until(core: Core, until: float) -> None:
    core.deadline, whole = min(core.deadline, until), core.deadline
    try:
        await core.flush()
    except Exception as error:
        core.store_error = core.store_error or error
    finally:
        core.deadline = whole


async def _flush_settled(core: Core, until: float) -> None:
    if core.suspended:
        core.outbox.clear()
        return
    await _flush_until(core, until)


async def _tell_plugins(core: Core, cause: BaseException, until: float, clock: Clock) -> None:
    hooks, dispatcher = core.hooks, core.dispatcher
    # Half of what is left for the reason, the rest for close_run: a hanging on_error must not cost it its time.
    middle = core.timers.now() + max(0.0, until - core.timers.now()) / 2

    def first_half() -> float:
        return middle - core.timers.now()

    if core.state.phase is AgentPhase.CANCELLED:
        reason = str(cause)
        if hooks.on_event:
            core.notes.append(RunCancelledEvent(reason=reason))
            await _deliver(core, first_half, clock)
        if hooks.on_cancel:
            await dispatcher.teardown(hooks.on_cancel, clock, first_half, core.context, reason)
    else:
        if hooks.on_event:
            await _deliver(core, first_half, clock)
        if hooks.on_error:
            await dispatcher.teardown(hooks.on_error, clock, first_half, core.context, cause)
    if hooks.close_run:
        await dispatcher.teardown(hooks.close_run, clock, lambda: until - core.timers.now(), core.context, core.status)
    if core.notes:
        await _deliver(core, lambda: until - core.timers.now(), clock)


async def _deliver(core: Core, remaining: Any, clock: Clock) -> None:
    while core.notes:
        note = core.notes.pop(0)
        await core.dispatcher.teardown(core.hooks.on_event, clock, remaining, core.context, note)


async def _flush_bookkeeping(core: Core) -> None:
    """Store how the run ended. A failure here is only reported."""
    core.deadline = core.timers.now() + seconds_to_store(core, FLUSH_SHARE)
    if not core.version and not core.outbox and core.setup.mode != "run":
        return  # there is no such session, and a run that could do nothing in it is not to make one
    status: Any = "suspended" if core.suspended else core.status
    core.record(RunEnded(run_id=core.run_id, status=status, usage=core.own_usage, turns=core.turn))
    try:
        await core.flush()
    except Exception as error:
        core.store_error = core.store_error or error


def seconds_to_store(core: Core, share: float) -> float:
    """Time for a last dealing with the store: what it is always given, or a share of the grace if somebody waits."""
    if core.status == "completed" and not core.close_reason:
        return core.limits.store_seconds
    return core.setup.grace_seconds * share


def _left(core: Core) -> float:
    return core.deadline - core.timers.now()


# ---- synchronous -----------------------------------------------------------------------------------------------------


def settle(core: Core, cause: BaseException) -> None:
    """Close what is open, answer every call with the truth, keep partial text, and set the phase. Idempotent."""
    if core.settled:
        return
    core.settled = True
    cancelled = isinstance(cause, RunCancelledError)
    core.cause = cause
    core.status = "cancelled" if cancelled else "timed_out" if isinstance(cause, RunTimeoutError) else "failed"
    stop_reason: StopReason = "cancelled" if cancelled else "error"
    _keep_partial(core, stop_reason)
    if core.step == "respond" and core.last_message is not None:  # whole, but the caller was not told yet
        core.produce(MessageCompleted, message=core.last_message, stop_reason=core.last_message.stop_reason)
        if core.hooks.on_event:
            core.notes.append(MessageAppendedEvent(message=core.last_message))
    outcome: Outcome = "timed_out" if core.status == "timed_out" else "interrupted"
    text = f"the run was cancelled ({cause})" if cancelled else "the run failed before it could start"
    batch = core.batch
    if batch is None and core.view.unanswered is not None and core.setup.mode != "compact":
        batch = Batch(core, core.view.unanswered)
    if batch is not None:
        batch.settle(text, outcome)
        core.stragglers.extend(run for run in batch.runs if run.is_running and run not in core.stragglers)
    withdraw_all(core)
    keep_unheard(core)
    if core.compacting:
        core.produce(CompactionCompleted, changed=False, reason="the run ended")
    if core.state.phase is AgentPhase.CREATED:
        core.go(AgentPhase.LOADING_CONTEXT)
    core.go(AgentPhase.CANCELLED if cancelled else AgentPhase.FAILED)


def _keep_partial(core: Core, stop_reason: StopReason) -> None:
    assembly = core.assembly
    if assembly is None:
        return
    core.assembly = None
    message = assembly.interrupted()
    if message is None:
        return
    message = message.replace(stop_reason=stop_reason, model=core.setup.model.name)
    if core.withheld:
        message = message.replace(parts=(TextPart(text=core.withheld),))
    if message.parts:
        core.last_message = message
        core.record(MessageStored(run_id=core.run_id, message=message))
    if assembly.shown:
        core.produce(MessageCompleted, message=message, stop_reason=stop_reason, interrupted=True)


def make_result(core: Core) -> RunResult[Any]:
    """The result as it stands. Made once; `finish` completes it."""
    if core.result is not None:
        return core.result
    message = core.last_message
    reason: StopReason
    if core.status == "completed":
        reason = message.stop_reason if message is not None else "end"
    elif core.suspended:
        reason = "suspended"
    elif core.status == "cancelled":
        reason = "cancelled"
    else:
        reason = "limit" if isinstance(core.cause, RunError) else "error"
    core.result = RunResult(
        status=core.status or "failed",
        stop_reason=reason,
        run_id=core.run_id,
        session_id=core.session_id,
        output=core.output,
        message=message,
        usage=core.own_usage,
        turns=core.turn,
        error=core.cause,
        ledger=core.dispatcher.ledger,
        messages=core.view.log,
        first_new=core.first_new,
        earlier_new=core.compacted or (),
    )
    return core.result


def finish(core: Core, cause: BaseException | None = None) -> None:
    """The very end: result, session free, terminal event. Idempotent; after it the run's task may do nothing more."""
    if core.finished:
        return
    if not core.settled:
        settle(core, cause or RunCancelledError(core.close_reason or "the run was given up"))
    _store_now(core)
    core.finished = True
    core.watchdog.stop()
    core.watchdog.give_up_all()
    result = make_result(core)
    result.store_error = core.store_error
    result.hook_failures = tuple(core.failures)
    result.abandoned = tuple(run.call for run in core.stragglers if run.is_running)
    if core.suspended and core.append_now is not None:
        core.store.reload_now(core.session_id)  # type: ignore[attr-defined]
    if core.claims is not None:
        core.claims.discard(core.session_id)
    if core.watched_by is not None:
        core.watched_by.discard(core)
    for call in core.on_finish:
        call()
    core.on_finish.clear()
    _say_goodbye(core, result)
    for waiter in core.end_waiters:
        waiter.wake()
    core.end_waiters.clear()


def _store_now(core: Core) -> None:
    """Store what nobody had the time to store, where that needs no waiting."""
    if core.append_now is None or not core.outbox:
        return
    if core.suspended:
        core.outbox = [one for one in core.outbox if one.kind == "message_waiting"]
    if not core.loaded:
        core.outbox.clear()
    if not core.outbox:
        return
    records, core.outbox = tuple(core.outbox), []
    try:
        core.version = core.append_now(core.session_id, records, expected_version=core.version)
    except Exception as error:
        core.store_error = core.store_error or error
        core.store.reload_now(core.session_id)  # type: ignore[attr-defined]


def _say_goodbye(core: Core, result: RunResult[Any]) -> None:
    cause = core.cause
    if isinstance(cause, RunError):
        cause.result = result
    if core.strict_error is not None:
        core.strict_error.result = result
    if core.status == "completed":
        core.produce(RunCompleted, result=result)
        core.put_nowait()
        if core.fatal is not None or core.strict_error is not None:
            core.queue.fail_now(core.fatal or core.strict_error)  # type: ignore[arg-type]
        else:
            core.queue.close_now(complete=True)
    else:
        assert cause is not None
        if core.status == "cancelled":
            core.produce(RunCancelled, reason=str(cause), result=result)
        else:
            core.produce(RunFailed, error=cause, status=result.status, result=result)
        core.put_nowait()
        core.queue.fail_now(core.fatal or cause)
    if core.queues is not None:
        core.queues.input.close()  # what is in it still is taken out by its putters, who are refused
        core.queues.events.drain()
        core.queues.events.close()
    core.silent = True  # what a task that was given up still wants to show is not kept
