"""One tool call: its hooks, its attempts, its time limit, and the commit of what it returned.

A function of the event loop is cancelled when the run is. One in a thread cannot be: it is waited for as long as the
ending allows, so that its true result is kept, and then given up. Which calls run, and when, is in `_batch.py`.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast

from ._dispatch import HookError, Withheld, log_error
from ._tasks import Clock, Ended, GivenUp, wait_shielded
from ._threads import ThreadCall
from .context import ToolContext
from .errors import PluginError, RunCancelledError, StoreError, ToolError, ToolTimeoutError
from .events import LateResultEvent
from .messages import Outcome, ToolResult
from .stores import CallStarted
from .tools import error_result, render_result
from .tools.results import UnreadableError, is_for_model, rendered, unreadable_result

if TYPE_CHECKING:
    from ._batch import Batch
    from ._core import Core
    from ._decide import CallRun
    from .plugins import HookImplementation

__all__ = ["cut_off", "execute", "withhold_unseen"]


async def execute(core: Core, batch: Batch, run: CallRun) -> None:
    """The task of one call. It never raises; what must end the run goes to `batch.fatal`."""
    clock = run.clock = Clock(core.watchdog)
    clock.start()
    try:
        if core.stop_error is not None:  # it came between the start of this task and its first step
            run.result = _not_run(run, f"the run was stopped ({core.stop_error})")
        elif core.hooks.before_tool or core.hooks.around_tool or core.hooks.after_tool:
            await _with_hooks(core, batch, run, clock)
        else:
            await _attempts(core, batch, run, clock)
    except GivenUp:
        return  # the call was answered without it
    except Withheld as withheld:
        run.result = ToolResult(call_id=run.call.id, content=str(withheld), outcome="error")
        _fail(batch, withheld.failure.annotated())
    except BaseException as error:
        ended = clock.classify(error)
        if ended is not Ended.ASKED:
            _fail(batch, error)
        if run.result is None and not run.began:
            run.result = _not_run(run, "the run ended before it could start")
        elif run.result is None:
            run.result = cut_off(run, batch.cut_off_as, still_running=run.thread is not None and not run.thread.done)
        else:
            withhold_unseen(core, run)
    finally:
        clock.end()
        if not core.finished and not clock.given_up:
            if run.state == "running":
                run.state = "finished"
                batch.commit(run)
            batch.wake()
        if run.task is not None:
            run.task.ends()


def cut_off(run: CallRun, outcome: Outcome, *, still_running: bool) -> ToolResult:
    """The answer to a call that had begun and has no result."""
    text = f"Tool {run.call.name} was interrupted, effect unknown"
    if still_running:
        text, outcome = f"Tool {run.call.name} is still running, effect unknown", "still_running"
    return ToolResult(call_id=run.call.id, content=text, outcome=outcome)


def withhold_unseen(core: Core, run: CallRun) -> None:
    """The run ends with `after_tool` still to come: where one of these hooks is required, nobody gets the result."""
    for hook in core.hooks.after_tool if run.began else ():
        if hook.required:
            why = f"withheld: the run ended before plugin {hook.plugin} had seen the result"
            text = f"Tool {run.call.name} has run; {why}"
            run.result = ToolResult(call_id=run.call.id, content=text, outcome="error")
            return


def _not_run(run: CallRun, why: str) -> ToolResult:
    return ToolResult(call_id=run.call.id, content=f"Tool {run.call.name} was not run: {why}", outcome="not_started")


def _fail(batch: Batch, error: BaseException) -> None:
    if batch.fatal is None:
        batch.fatal = error


async def _with_hooks(core: Core, batch: Batch, run: CallRun, clock: Clock) -> None:
    hooks = core.hooks
    if hooks.before_tool:
        await core.dispatcher.notify(hooks.before_tool, clock, core.context, run.for_hooks())
    if hooks.around_tool:
        result = await _layer(core, batch, run, clock, 0)
        if run.result is None or result is not run.result:
            run.result = result.replace(call_id=run.call.id)
    else:
        await _attempts(core, batch, run, clock)
    if hooks.after_tool and run.result is not None:
        run.result = await core.dispatcher.chain(
            hooks.after_tool, clock, (core.context, run.for_hooks()), run.result, ToolResult, contained=True
        )
        if run.result.call_id != run.call.id:
            run.result = run.result.replace(call_id=run.call.id)


async def _layer(core: Core, batch: Batch, run: CallRun, clock: Clock, depth: int) -> ToolResult:
    """One `around_tool` hook: an error before the tool ran is the result; after it the committed result stands."""
    implementations = core.hooks.around_tool
    if depth == len(implementations):
        await _attempts(core, batch, run, clock)
        assert run.result is not None
        return run.result
    implementation = implementations[depth]
    passed: list[ToolResult | None] = []
    refused: list[PluginError] = []

    async def call_next(*given: object) -> ToolResult:
        if given or passed:
            refused.append(_misused(implementation, twice=not given))
            raise refused[-1]
        passed.append(None)
        passed[0] = result = await _layer(core, batch, run, clock, depth + 1)
        return result

    try:
        result = await core.dispatcher.around(implementation, clock, (core.context, run.for_hooks()), call_next)
        if not isinstance(result, ToolResult):
            raise HookError(
                implementation,
                PluginError(
                    f"plugin {implementation.plugin!r}: around_tool ({implementation.location}) returned "
                    f"{type(result).__name__}; return the ToolResult that `await call_next()` gave, or another one",
                    plugin=implementation.plugin,
                    hook="around_tool",
                ),
            )
        if not passed or result is not passed[0]:
            result = cast("ToolResult", core.dispatcher.usable(implementation, result))
    except (HookError, PluginError) as failure:
        if isinstance(failure, HookError):
            core.dispatcher.report(failure)
        elif any(failure is one for one in refused):  # it came out of `call_next`, but is this hook's own
            core.dispatcher.blame(implementation, failure)
        else:
            raise
        committed = passed[0] if passed else None
        if committed is not None:
            return committed
        if run.result is not None:
            return run.result
        text = f"Tool {run.call.name} was not run: plugin {implementation.plugin!r} failed around it"
        return ToolResult(call_id=run.call.id, content=text, outcome="error")
    inner = passed[0] if passed else None
    if result is not inner and result != inner:
        core.dispatcher.changed(implementation, inner, result, run.call)
    return result


def _misused(implementation: HookImplementation, *, twice: bool) -> PluginError:
    what = (
        "called call_next twice; a tool runs at most once. To run it again, give the tool attempts=."
        if twice
        else "gave call_next an argument; it takes none, for what runs is what was decided. To change the arguments, "
        "return Rewrite from decide_tool."
    )
    return PluginError(
        f"plugin {implementation.plugin!r}: around_tool {what}", plugin=implementation.plugin, hook="around_tool"
    )


async def _attempts(core: Core, batch: Batch, run: CallRun, clock: Clock) -> None:
    """Call the function until it succeeds or its attempts are used up; the last outcome is the result."""
    tool = run.tool
    assert tool is not None
    while True:
        if core.stop_error is not None and not run.began:  # it came while hooks before the tool ran
            run.result = _not_run(run, f"the run was stopped ({core.stop_error})")
            return
        assert run.kwargs is not None
        run.began = True
        context: ToolContext[Any] = ToolContext(core, run.call, run.key, run.attempt)
        value: Any
        try:
            frame = clock.push(tool.timeout)
            try:
                # Not in a coroutine more: of each, every tool that waits has a frame.
                value = tool.call(run.kwargs, context) if tool.kind == "async" else _call(core, batch, run, context)
                value = await value
            except BaseException as error:
                _raise_as_of_tool(core, run, clock.pop(frame, error), error)
                raise
            if clock.pop(frame, None) is Ended.TIMED_OUT and run.thread is not None and not run.thread.done:
                raise _timed_out(core, run)
            # No await between the return of the handler and this line: a cancel cannot take the result away.
            run.result = _result_of(core, run, value)
            return
        except Exception as error:
            raised = error.__cause__ or error if isinstance(error, _Foreign) else error
            run.result = error_result(run.call, raised, max_chars=tool.max_result_chars)
            if isinstance(error, StoreError) and core.unsure:  # the session's, when it asked or reported
                _fail(batch, error)
                return
            if isinstance(error, RunCancelledError) and core.stop_error is not None:
                # What it waited for was withdrawn with the run: it did not fail by itself.
                text = f"Tool {run.call.name} was interrupted, effect unknown"
                run.result = ToolResult(call_id=run.call.id, content=text, outcome=batch.cut_off_as)
                return
            if run.attempt < tool.attempts and core.stop_error is None:
                _log_failure(core, run, raised, "failed and is tried again", again=True)
                await _store_retry(core, batch, run)
                run.result = None
                continue
            if tool.on_error == "raise":
                if raised is not error:  # neither a class of ours that nobody can name, nor what would end a task
                    error = ToolError(f"raised {type(raised).__name__}, which nobody had asked for")
                    error.__cause__ = raised
                error.add_note(f"raised by tool {tool.name!r}, which has on_error='raise'")
                _fail(batch, error)
            if batch.fatal is not error:  # that one is raised to the caller
                _log_failure(core, run, raised)
            return


def _result_of(core: Core, run: CallRun, value: Any) -> ToolResult:
    """What the function returned, as a result; if that raises, the developer hears of it, and the model less."""
    assert run.tool is not None
    try:
        return rendered(value, run.call.id, run.tool.max_result_chars)
    except Exception as error:
        if not isinstance(error, UnreadableError):
            _log_failure(core, run, error, "returned what cannot be turned into text")
        return unreadable_result(value, error, run.call.id)


def _log_failure(core: Core, run: CallRun, error: BaseException, what: str = "failed", *, again: bool = False) -> None:
    """Log what a tool did not raise on purpose: of that the model is told the type only, and nobody else anything."""
    if is_for_model(error):
        return
    where = f"call {run.call.id} of run {core.run_id}, session {core.session_id}"
    log_error(f"tool {run.call.name!r} {what}", error, where, is_warning=not again)


async def _store_retry(core: Core, batch: Batch, run: CallRun) -> None:
    """Another attempt is stored before it begins, so that no attempt after a crash has the number of an earlier one."""
    assert run.tool is not None
    run.attempt += 1
    core.record(
        CallStarted(
            run_id=core.run_id,
            message_id=batch.message_id,
            call_id=run.call.id,
            key=run.key,
            effect=run.tool.effect,
            attempt=run.attempt,
        )
    )
    await core.flush()


def _raise_as_of_tool(core: Core, run: CallRun, ended: Ended, error: BaseException) -> None:
    """Raise what is an error of the tool, but not one that its function raised as such.

    An ordinary exception, a cancel the run was asked for, KeyboardInterrupt and SystemExit are left to the caller.

    Raises:
        ToolTimeoutError: the time of the call is over.
        _Foreign: a cancel nobody asked for, or another exception that is no `Exception`.
    """
    if ended is Ended.TIMED_OUT:
        raise _timed_out(core, run) from error
    if ended is Ended.FAKED or (ended is Ended.ERROR and not isinstance(error, Exception)):
        raise _Foreign(type(error).__name__) from error


class _Foreign(Exception):
    """A tool raised something that is no ordinary exception, such as a cancellation nobody asked for."""


def _timed_out(core: Core, run: CallRun) -> ToolTimeoutError:
    assert run.tool is not None
    text = f"Tool {run.call.name} did not end within {run.tool.timeout:g} s"
    if run.thread is not None and not run.thread.done:
        core.stragglers.append(run)
        _announce_late(core, run, run.thread)
        text += "; it may still finish, effect unknown"
    return ToolTimeoutError(text)


def _announce_late(core: Core, run: CallRun, thread: ThreadCall) -> None:
    """When a function that was given up returns after all, plugins are told; its call keeps the answer it has."""
    call = run.call

    def late() -> None:
        if core.finished or not core.hooks.on_event:
            return
        try:
            result = render_result(thread.result(), call_id=call.id)
        except BaseException as error:
            result = error_result(call, error)
        core.notes.append(LateResultEvent(call=call, result=result))

    thread.on_done.append(late)


async def _call(core: Core, batch: Batch, run: CallRun, context: ToolContext[Any]) -> Any:
    """Call the function wherever it belongs, and await or iterate what it gives."""
    tool = run.tool
    assert tool is not None
    assert run.kwargs is not None
    if tool.kind == "sync" and tool.run_on == "thread":
        value = await _in_thread(core, batch, run, lambda: tool.call(run.kwargs or {}, context))
    elif tool.kind == "generator" and tool.run_on == "thread":
        return await _in_thread(
            core, batch, run, lambda: _drain_in_thread(tool.call(run.kwargs or {}, context), context)
        )
    else:
        value = tool.call(run.kwargs, context)
    if tool.kind == "async_generator":
        return await _drain_async(value, context)
    if tool.kind == "generator":
        return await _drain(value, context)
    return await value if isawaitable(value) else value


async def _in_thread(core: Core, batch: Batch, run: CallRun, function: Any) -> Any:
    thread = run.thread = ThreadCall(function, name=f"trilane tool {run.call.name}")

    def subscribe(waiter: Any) -> None:
        thread.on_done.append(waiter.wake)

    from ._backend import new_waiter

    try:
        while not thread.done:
            waiter = new_waiter()
            subscribe(waiter)
            await waiter.wait()
    except BaseException:
        if batch.deadline < float("inf"):  # the run ends: keep the true result if it comes in time
            await wait_shielded(core.timers, lambda: thread.done, subscribe, batch.deadline)
            if thread.done and thread.error is None and run.tool is not None:
                run.result = _result_of(core, run, thread.value)
            elif thread.done and isinstance(thread.error, Exception):
                run.result = error_result(run.call, thread.error)
                if not isinstance(thread.error, RunCancelledError):  # what it waited for was withdrawn with the run
                    _log_failure(core, run, thread.error)
        raise
    return thread.result()


# ---- generators: what they yield is progress, what they return (or else yielded last) is the result


async def _drain_async(generator: Any, context: ToolContext[Any]) -> Any:
    last: Any = None
    try:
        async for item in generator:
            last = item
            await _show(item, context)
    finally:
        await generator.aclose()
    return last


async def _drain(generator: Any, context: ToolContext[Any]) -> Any:
    last: Any = None
    try:
        while True:
            try:
                last = next(generator)
            except StopIteration as stop:
                return stop.value if stop.value is not None else last
            await _show(last, context)
    finally:
        generator.close()


def _drain_in_thread(generator: Any, context: ToolContext[Any]) -> Any:
    last: Any = None
    try:
        while True:
            try:
                last = next(generator)
            except StopIteration as stop:
                return stop.value if stop.value is not None else last
            context.blocking.run(_show, last, context)
    finally:
        generator.close()


async def _show(item: Any, context: ToolContext[Any]) -> None:
    if isinstance(item, str):
        await context.progress(item)
        return
    shown = render_result(item, call_id=context.call.id, max_chars=2000)
    await context.progress(shown.content if isinstance(shown.content, str) else "", data=shown.data)
