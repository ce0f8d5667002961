"""What each phase does. Every function does the work of one phase and names the next one.

The table of phases is in `state.py`; generating is in `_generate.py`, running tools in `_batch.py`, ends in
`_ending.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ._answering import look_at_answer
from ._batch import Batch
from ._checking import checked_messages, unstorable
from ._conversation import add_user_message, has_steering, hear_waiting, take_steering, through_on_message
from ._dispatch import HookError, Withheld
from ._generate import generating
from ._records import error_line
from ._resume import first_step, take_up_tools
from ._tasks import Ended
from .decisions import CompactedHistory
from .errors import (
    ConfigError,
    PluginError,
    RunLimitError,
    StoreError,
    ToolDefinitionError,
)
from .events import (
    CompactionCompleted,
    CompactionStarted,
    MessageAppendedEvent,
    MessageCompleted,
    TurnCompleted,
    TurnStarted,
)
from .messages import AssistantMessage, TextPart, clean_text
from .models import ModelRequest, ModelResponse
from .state import AgentPhase
from .stores import MessageStored, MessageWaiting, ViewReplaced

if TYPE_CHECKING:
    from ._core import Core
    from .config import ModelSettings
    from .context import RunContext
    from .messages import UserMessage
    from .plugins import HookImplementation

__all__ = ["PHASES"]


# ---- LOADING_CONTEXT -------------------------------------------------------------------------------------------------


async def load_context(core: Core) -> AgentPhase:
    """Load the session, and let plugins add tools, edit the history, and change the user's message."""
    if core.notes:
        await core.deliver()
    await _load_session(core)
    hooks = core.hooks
    message = core.request
    said: list[UserMessage] = []
    try:
        if hooks.on_tool:
            await core.before_hook()
            await _collect_tools(core)
        if hooks.on_state:
            await core.before_hook()
            if core.dispatcher.tracing:
                await _trace_states(core)
            else:
                await core.dispatcher.each(hooks.on_state, core.clock, core.context)
            _adopt_history(core)
        if hooks.on_message and core.setup.mode == "run":
            await core.before_hook()
            for waiting in core.view.waiting:
                said.append(await through_on_message(core, waiting))  # noqa: PERF401  (kept when the next one fails)
            message = await through_on_message(core, message)
    finally:
        core.first_new = len(core.view.log)
        if core.setup.mode == "run":
            # Whatever happens in a hook, what the user said is kept.
            core.step = "begin"
            for one in (*said, *core.view.waiting[len(said) :]):  # said to an earlier run, which did not hear it
                add_user_message(core, one)
            add_user_message(core, message)
    if core.setup.mode == "compact":
        core.step = "compact_only"
    elif core.setup.mode == "resume":
        core.step = first_step(core)
        if core.step != "take_up_tools":
            hear_waiting(core)
    return AgentPhase.READY


async def _load_session(core: Core) -> None:
    setup = core.setup
    if core.append_now is not None:
        core.view = setup.store.open_now(core.session_id)  # type: ignore[attr-defined]
        core.version = core.view.version
    else:
        await _load_records(core)
    core.loaded = True
    if setup.mode == "run":
        core.view.close()
    if setup.history is not None:
        if core.view.log:
            raise ConfigError(
                f"session {core.session_id!r} already has a history of {len(core.view.log)} messages; "
                "pass history= only with a new session"
            )
        for number, message in enumerate(setup.history):
            problem = unstorable(message)
            if problem:
                raise ConfigError(f"message {number} of history= cannot be stored: {problem}")
            core.record(MessageStored(run_id=core.run_id, message=message))
        core.view.close()


async def _load_records(core: Core) -> None:
    """Fold in the records of a store that has to be waited for, within its time."""
    from ._views import fold

    seconds = core.limits.store_seconds
    frame = core.clock.push(seconds)
    try:
        await fold(core)
    except BaseException as error:
        ended = core.clock.pop(frame, error)
        if ended in (Ended.ASKED, Ended.FATAL):
            raise
        what = f"did not load within {seconds:g} s" if ended is Ended.TIMED_OUT else error_line(error)
        raise StoreError(f"session {core.session_id!r} could not be loaded: {what}") from error
    core.clock.pop(frame, None)


async def _collect_tools(core: Core) -> None:
    from .tools import as_tool

    values = await core.dispatcher.each(core.hooks.on_tool, core.clock, core.context)
    tools = dict(core.tools)
    owners: dict[str, str] = {}
    for implementation, offered in values:
        if offered is None:
            continue
        try:
            offered = [as_tool(one) for one in _tools_in(implementation, offered)]
        except ToolDefinitionError as error:
            where = f"plugin {implementation.plugin!r}: on_tool ({implementation.location})"
            raise ToolDefinitionError(f"{where} returned what is no tool: {error}") from error
        core.dispatcher.changed(implementation, None, [tool.name for tool in offered])
        for tool in offered:
            if tool.name in tools:
                owner = f"plugin {owners[tool.name]!r}" if tool.name in owners else "the agent"
                raise ToolDefinitionError(
                    f"plugin {implementation.plugin!r} offers a tool named {tool.name!r}, and {owner} has one already; "
                    "rename one of them, or leave one plugin out"
                )
            tools[tool.name] = tool
            owners[tool.name] = implementation.plugin
    core.tools = tools


def _tools_in(implementation: HookImplementation, offered: Any) -> Iterable[Any]:
    """What `on_tool` returned, if it can be tools at all."""
    if isinstance(offered, Iterable) and not isinstance(offered, str | bytes):
        return offered
    from .tools import Tool

    what = getattr(offered, "__name__", None) or getattr(offered, "name", None)
    is_tool = what and not isinstance(offered, type) and (isinstance(offered, Tool) or callable(offered))
    such = f", such as [{what}]" if is_tool else ": functions, or what Tool.from_function makes"
    raise PluginError(
        f"plugin {implementation.plugin!r}: on_tool ({implementation.location}) returned {type(offered).__name__}; "
        f"return a list of tools{such}",
        plugin=implementation.plugin,
        hook="on_tool",
    )


async def _trace_states(core: Core) -> None:
    """One plugin at a time, so that it can be told which of them edited the history."""
    for implementation in core.hooks.on_state:
        before = tuple(core.history)
        await core.dispatcher.each((implementation,), core.clock, core.context)
        if core.history.edited and tuple(core.history) != before:
            core.dispatcher.changed(implementation, before, tuple(core.history))


def _adopt_history(core: Core) -> None:
    """A plugin edited `run.history`: this run sees the edit, the store does not."""
    history = core._history
    if history is None or not history.edited:
        return
    core.shared_view = core.view
    core.view = core.view.copy()
    log = history.log
    unanswered = core.view.unanswered
    if unanswered is not None and (not log or log[-1].id != unanswered.id):
        # A resumed run goes on with these calls: their results must come right behind them.
        log = [*(message for message in log if message.id != unanswered.id), unanswered]
    core.view.log = log
    history.edited = False


# ---- READY -----------------------------------------------------------------------------------------------------------


async def ready(core: Core) -> AgentPhase:
    """Between the others: prepare a turn, look at an answer, decide about tools."""
    while True:
        core.check()
        target = await _STEPS[core.step](core)
        if target is not None:
            return target


async def _begin(core: Core) -> None:
    if core.hooks.before_run:
        await core.before_hook()
        await core.dispatcher.each(core.hooks.before_run, core.clock, core.context)
    core.step = "turn"


async def _turn(core: Core) -> AgentPhase | None:
    """Take in what was said, compact if somebody can, and prepare the request of the next turn."""
    if has_steering(core):
        await take_steering(core)
    if core.outbox:
        await core.flush()
    if core.hooks.on_compact and core.compacted_turn != core.turn and core.view.log:
        core.compacted_turn = core.turn
        return AgentPhase.COMPACTING
    _check_limits(core)
    core.turn += 1
    core.produce(TurnStarted, turn=core.turn)
    hooks = core.hooks
    if hooks.before_turn:
        await core.before_hook()
        await core.dispatcher.each(hooks.before_turn, core.clock, core.context, core.turn)
    if hooks.on_model_request or hooks.around_model or hooks.on_message:
        # Until the first of these is called; where there is none, until the model is, see `_generate`.
        await core.before_hook()
        while await take_steering(core):
            await core.before_hook()
    instructions: Any = core.setup.instructions
    if callable(instructions):
        instructions = await _call_instructions(core, instructions)
    request = _make_request(core, instructions)
    if hooks.on_model_request:
        request = await core.dispatcher.chain(
            hooks.on_model_request, core.clock, (core.context,), request, ModelRequest
        )
    core.model_request = request
    return AgentPhase.GENERATING


def _check_limits(core: Core) -> None:
    turns = core.limits.turns
    if turns is not None and core.turn >= turns:
        raise _over("turns", turns, core.turn)
    for one in core.lineage():  # a child run spends what the runs around it may use
        limits, used = one.limits, one.own_usage
        if limits.input_tokens is not None and used.input_tokens >= limits.input_tokens:
            raise _over("input_tokens", limits.input_tokens, used.input_tokens)
        if limits.output_tokens is not None and used.output_tokens >= limits.output_tokens:
            raise _over("output_tokens", limits.output_tokens, used.output_tokens)
        if limits.cost is not None and (used.cost or 0) >= limits.cost:
            raise _over("cost", limits.cost, used.cost or 0)


def _over(name: str, limit: float, value: float) -> RunLimitError:
    return RunLimitError(
        f"the run reached its limit of {limit:g} {name.replace('_', ' ')} (used {value:g}) before the model "
        f"had answered; raise Limits.{name}, or look at result.messages for what it was doing"
    )


def _make_request(core: Core, instructions: str) -> ModelRequest:
    setup = core.setup
    context, core.notes_for_model = core.notes_for_model, ()
    return ModelRequest(
        instructions=instructions,
        messages=core.view.log,
        count=len(core.view.log),
        tools=tuple([tool.spec for tool in core.tools.values()]),
        output_schema=setup.output.schema,
        settings=_settings(core),
        turn=core.turn,
        context=context,
    )


async def _call_instructions(core: Core, function: Callable[[RunContext[Any]], Any]) -> str:
    """What an `instructions=` function returns. Like a hook it has its time, and nobody else's cancels."""
    seconds = core.setup.hook_timeout
    frame = core.clock.push(seconds)
    try:
        value = function(core.context)
        if isawaitable(value):
            value = await value
    except BaseException as error:
        ended = core.clock.pop(frame, error)
        if ended is Ended.TIMED_OUT:
            raise ConfigError(f"instructions= did not return within {seconds:g} s (Agent.hook_timeout)") from error
        if ended is Ended.FAKED:
            text = f"instructions= raised {type(error).__name__}, which nobody had asked for"
            raise ConfigError(text) from error
        raise
    core.clock.pop(frame, None)
    if not isinstance(value, str):
        raise ConfigError(f"instructions= returned {type(value).__name__}; return a str")
    return value


def _settings(core: Core) -> ModelSettings:
    settings = core.setup.settings
    # A forced choice holds for the first turn only: a model that obeys it every time would never answer.
    if core.turn > 1 and settings.tool_choice not in (None, "auto", "none"):
        return settings.replace(tool_choice=None)
    return settings


async def _respond(core: Core) -> AgentPhase | None:
    """The model has answered: hooks may change what the history keeps, then it is stored and shown."""
    message = core.last_message
    assert message is not None
    if core.hooks.after_model:
        if core.notes:
            await core.deliver()
        await core.put(stored=False)  # nothing tells of the message yet, which may become another one
        core.check()
        message = await _through_after_model(core, message)
    if not message.calls:
        await core.flush()  # else with what is recorded when the calls start: nobody is told of it before
    if core.hooks.on_event:
        core.notes.append(MessageAppendedEvent(message=message))
    core.produce(MessageCompleted, message=message, stop_reason=message.stop_reason)
    if message.calls:
        core.step = "tools_done"
        core.point = None  # what was stored about calls before is about those of the message that was taken up
        batch = core.batch = Batch(core, message)
        await batch.decide()
        if batch.needs_running:
            return AgentPhase.RUNNING_TOOL
        await batch.finish_refused()
        return None
    core.step = "answer"
    if core.hooks.after_turn:
        await _tell_turn(core, message)
    core.produce(TurnCompleted, turn=core.turn, usage=message.usage)
    return None


async def _through_after_model(core: Core, message: AssistantMessage) -> AssistantMessage:
    response = ModelResponse(
        parts=message.parts,
        stop_reason=message.stop_reason,
        usage=message.usage,
        model=message.model,
        extra=message.extra,
    )
    try:
        changed: ModelResponse = await core.dispatcher.chain(
            core.hooks.after_model, core.clock, (core.context,), response, ModelResponse, contained=True
        )
    except Withheld as withheld:
        text = str(withheld)
        core.withheld = text
        _replace_last(core, message.replace(parts=(TextPart(text=text),), stop_reason="error"))
        withheld.failure.raise_again()
    if changed is response:
        return message
    message = message.replace(
        parts=message.parts if changed.parts is None else changed.parts,
        stop_reason=changed.stop_reason,
        usage=changed.usage,
        model=changed.model,
        extra=changed.extra,
    )
    _replace_last(core, message)
    return message


def _replace_last(core: Core, message: AssistantMessage) -> None:
    """The message that was just recorded, and is not stored yet, becomes another one."""
    core.last_message = message
    core.outbox[-1] = MessageStored(run_id=core.run_id, message=message)
    core.view.replace_last(message)
    if core.shared_view is not None:
        core.shared_view.replace_last(message)


async def _take_up_tools(core: Core) -> AgentPhase | None:
    """A resumed run: go on with the calls of the last message."""
    batch = await take_up_tools(core)
    core.step = "taken_up"
    if batch.needs_running:
        return AgentPhase.RUNNING_TOOL
    await batch.finish_refused()
    return None


async def _taken_up(core: Core) -> None:
    """The calls of the last message have their results: what was said while they ran before is heard next."""
    hear_waiting(core)
    await _tools_done(core)


async def _compact_only(core: Core) -> AgentPhase:
    """`agent.compact`: one compaction, and nothing else. What came of it is the output."""
    if core.compacted_turn < 0:
        core.compacted_turn = 0
        return AgentPhase.COMPACTING
    return AgentPhase.COMPLETED


async def _tools_done(core: Core) -> None:
    core.batch = None
    message = core.last_message
    assert message is not None
    if core.hooks.after_turn:
        await _tell_turn(core, message)
    core.produce(TurnCompleted, turn=core.turn, usage=message.usage)
    core.step = "turn"


async def _tell_turn(core: Core, message: AssistantMessage) -> None:
    await core.before_hook()
    await core.dispatcher.notify(core.hooks.after_turn, core.clock, core.context, core.turn, message)


_STEPS: Mapping[str, Callable[[Core], Awaitable[AgentPhase | None]]] = MappingProxyType(
    {
        "begin": _begin,
        "take_up_tools": _take_up_tools,
        "taken_up": _taken_up,
        "compact_only": _compact_only,
        "turn": _turn,
        "respond": _respond,
        "tools_done": _tools_done,
        "answer": look_at_answer,
    }
)


# ---- COMPACTING, GENERATING, RUNNING_TOOL ----------------------------------------------------------------------------


async def compact(core: Core) -> AgentPhase:
    """Ask plugins for a shorter view of the history. It is an optimisation: nothing here fails a run."""
    core.compacting = True
    core.produce(CompactionStarted)
    await core.before_hook()
    changed, reason = await _ask_to_compact(core)
    if changed:
        await core.flush()
    core.compacting = False
    core.produce(CompactionCompleted, changed=changed, reason=reason)
    if core.setup.mode == "compact":
        core.output = reason
    return AgentPhase.READY


async def _ask_to_compact(core: Core) -> tuple[bool, str]:
    """Whether the view has changed, and why or why not."""
    requested = core.setup.mode == "compact"
    if core.view.unanswered is not None:
        return False, "a tool call of the session has no result yet; resume it first"
    if not core.hooks.on_compact:
        return False, "no plugin can compact; pip install trilane-compact"
    try:
        value = await core.dispatcher.first(core.hooks.on_compact, core.clock, core.context, requested)
    except HookError as failure:
        error = failure.error
        if error is core.stop_error:  # from a model call that was not to begin any more
            core.check()
        core.dispatcher.report(failure)
        return False, f"plugin {failure.implementation.plugin!r} failed: {error_line(error)}"
    if value is None:
        return False, "nothing to compact"
    if not isinstance(value, CompactedHistory):
        return False, f"not used: on_compact returned {type(value).__name__}, not a CompactedHistory"
    known = {id(message) for message in core.view.log}
    try:
        value = value.replace(messages=checked_messages(value.messages, known), reason=clean_text(value.reason))
    except (AttributeError, TypeError, ValueError) as error:
        return False, f"not used: {error}"
    problems = _cannot_replace(value)
    if problems:
        return False, f"not used: {problems}"
    return _replace_view(core, value, requested)


def _replace_view(core: Core, value: CompactedHistory, requested: bool) -> tuple[bool, str]:
    """From now on models see what a plugin has made of the history."""
    reason = value.reason or "compacted"
    record = ViewReplaced(run_id=core.run_id, messages=value.messages, reason=value.reason)
    replaced, waiting = core.view.log, core.view.waiting
    if core.shared_view is None:
        core.record(record)
        for message in waiting:
            core.record(MessageWaiting(run_id=core.run_id, message=message))
    elif requested:
        return False, "not used: a plugin edits the history of each run, and the store must not keep that"
    else:
        core.view.apply(record)  # what on_state made of the history is for this run only, and so is what comes of it
        core.view.waiting = waiting
    core.compacted = (*(core.compacted or ()), *replaced[core.first_new :])
    core.first_new = len(core.view.log)
    return True, reason


def _cannot_replace(value: CompactedHistory) -> str:
    """Why a compacted history is not one that providers take; empty if it is."""
    if not value.messages:
        return "it is empty"
    open_calls: set[str] = set()
    for message in value.messages:
        if message.kind == "tool":
            answered = {result.call_id for result in message.results}
            if answered != open_calls:
                return "a tool result is parted from its call"
            open_calls = set()
        elif open_calls:
            return "a tool call is parted from its result"
        elif message.kind == "assistant":
            open_calls = {call.id for call in message.calls}
    return "a tool call is parted from its result" if open_calls else ""


def running_tool(core: Core) -> Awaitable[AgentPhase]:
    """One batch of tool calls."""
    assert core.batch is not None
    return core.batch.run()


#: What is done in each phase that is not an end.
PHASES: Mapping[AgentPhase, Callable[[Core], Awaitable[AgentPhase]]] = MappingProxyType(
    {
        AgentPhase.LOADING_CONTEXT: load_context,
        AgentPhase.READY: ready,
        AgentPhase.COMPACTING: compact,
        AgentPhase.GENERATING: generating,
        AgentPhase.RUNNING_TOOL: running_tool,
    }
)
