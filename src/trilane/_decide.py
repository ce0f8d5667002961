"""What becomes of one tool call before it runs: allowed, denied, rewritten, answered, or asked about.

Running it is in `_batch.py`.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import TYPE_CHECKING, Any

from ._dispatch import HookError
from ._questions import schema_of
from .decisions import Allow, Ask, Deny, Rewrite, UseResult
from .errors import PluginError
from .messages import Approval, ToolCall, ToolResult, clean_text
from .tools import ToolArgumentsError, error_result, parse_arguments, unknown_tool_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._core import Core
    from ._questions import OpenQuestion
    from ._tasks import Clock, TaskHandle
    from ._threads import ThreadCall
    from .plugins import HookImplementation
    from .tools import Tool

__all__ = ["CallRun", "arguments_hash", "decide", "take_approval"]

ROUNDS = 8  # of rewriting, before a call is denied


class CallRun:
    """One call of a batch, and how far it is.

    `state`: `new`, `ready` (may run), `waiting` (a question is open), `running`, `finished` (has its result).
    """

    __slots__ = (
        "announced",
        "approved_hash",
        "asked_by",
        "asks",
        "attempt",
        "began",
        "call",
        "clock",
        "entry",
        "key",
        "kwargs",
        "original",
        "question_id",
        "recorded",
        "replies_awaited",
        "result",
        "started",
        "state",
        "task",
        "thread",
        "tool",
    )

    def __init__(self, call: ToolCall, tool: Tool | None, key: str) -> None:
        self.call = call
        self.original = call
        self.tool = tool
        self.key = key
        self.attempt = 1
        self.question_id = ""  # of a question that was open when the session was left
        self.state = "new"
        self.kwargs: dict[str, object] | None = None
        self.result: ToolResult | None = None
        self.started = False  # ToolStarted was produced
        self.began = False  # its function was called, or it was sent out
        self.clock: Clock | None = None  # of its task
        self.announced = False  # ToolCompleted was produced
        self.recorded = False  # its result is in the history
        self.task: TaskHandle | None = None
        self.thread: ThreadCall | None = None
        self.entry: OpenQuestion | None = None
        self.asks: tuple[Ask, ...] = ()
        self.asked_by: tuple[str, ...] = ()
        self.approved_hash = ""
        self.replies_awaited = 0  # by its tool, while it runs

    @property
    def has_not_begun(self) -> bool:
        """True if it was announced, and neither its function nor anybody outside has begun with it."""
        return self.started and self.task is None and self.entry is None and self.result is None and self.attempt == 1

    @property
    def is_running(self) -> bool:
        """True while its function may still have effects."""
        return (self.task is not None and not self.task.done) or (self.thread is not None and not self.thread.done)

    def finish(self, result: ToolResult) -> None:
        """Commit a result for a call that does not run."""
        self.result = result
        self.state = "finished"

    def for_hooks(self) -> ToolCall:
        """The call with arguments of its own, so that a plugin that changes them changes nothing else."""
        return self.call.replace(arguments=copy.deepcopy(dict(self.call.arguments)))


def arguments_hash(arguments: Mapping[str, Any]) -> str:
    """What an approval is bound to."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


async def decide(core: Core, run: CallRun) -> None:
    """Ask every plugin about a call, and leave it `ready`, `waiting` or `finished`."""
    if run.asks:
        run.asks = run.asked_by = ()
    used: UseResult | None = None
    implementations = core.hooks.decide_tool
    if implementations:
        used = await _ask_plugins(core, run)
        if run.state == "finished":
            return
    if run.tool is None and used is None:
        run.finish(unknown_tool_result(run.call, core.tools))
        return
    if used is None and not _bind(run):
        return
    if run.tool is not None and run.tool.approval and not _is_approved(run):
        run.asks += (Ask(prompt=f"May the tool {run.call.name!r} run?"),)
        run.asked_by += (run.call.name,)
    if run.asks and (run.tool is None or _bind(run)):
        run.state = "waiting"
    elif run.state == "finished":
        return
    elif used is not None:
        run.finish(used.result.replace(call_id=run.call.id))
    else:
        run.state = "ready"


def _is_approved(run: CallRun) -> bool:
    return bool(run.approved_hash) and run.approved_hash == arguments_hash(run.call.arguments)


def _bind(run: CallRun) -> bool:
    """Check the arguments; a call that cannot be bound is finished with what is wrong."""
    assert run.tool is not None
    try:
        if run.call.raw and not run.call.arguments and run.call is run.original:
            parse_arguments(run.call.raw)
        run.kwargs = run.tool.bind(run.call.arguments)
    except ToolArgumentsError as error:
        run.finish(error_result(run.call, error))
        return False
    return True


async def _ask_plugins(core: Core, run: CallRun) -> UseResult | None:
    """Ask in rounds until nobody rewrites the arguments; denials finish the call."""
    rewriters: list[str] = []
    for _ in range(ROUNDS):
        run.asks = run.asked_by = ()
        used: UseResult | None = None
        rewriter = ""
        for implementation in core.hooks.decide_tool:
            plugin = implementation.plugin
            try:
                decision = await core.dispatcher.call(implementation, core.clock, core.context, run.for_hooks())
                if isinstance(decision, Ask):
                    _check_ask(core, implementation, decision)
                elif isinstance(decision, (Deny, Rewrite, UseResult)):
                    decision = core.dispatcher.usable(implementation, decision)
            except HookError as failure:
                core.dispatcher.report(failure)
                run.finish(_denied(run, f"plugin {plugin!r} failed while deciding about it"))
                return None
            if decision is None or isinstance(decision, Allow):
                continue
            if isinstance(decision, Deny):
                core.dispatcher.changed(implementation, None, decision, run.call)
                run.finish(_denied(run, decision.reason))
                return None
            if isinstance(decision, Rewrite):
                if dict(decision.arguments) != dict(run.call.arguments):
                    before, after = dict(run.call.arguments), dict(decision.arguments)
                    core.dispatcher.changed(implementation, before, after, run.call, subject="arguments")
                    rewriter = plugin
                    run.call = run.call.replace(arguments=copy.deepcopy(dict(decision.arguments)))
                    break
            elif isinstance(decision, UseResult):
                core.dispatcher.changed(implementation, None, decision, run.call)
                used = used or decision
            elif isinstance(decision, Ask):
                if not _is_approved(run):
                    core.dispatcher.changed(implementation, None, decision, run.call)
                    run.asks += (decision,)
                    run.asked_by += (plugin,)
            else:
                core.dispatcher.blame(implementation, _not_a_decision(plugin, decision))
                run.finish(_denied(run, f"plugin {plugin!r} gave no usable decision"))
                return None
        if not rewriter:
            return used
        rewriters.append(rewriter)
    names = ", ".join(sorted(set(rewriters)))
    run.finish(_denied(run, f"its arguments were rewritten {ROUNDS} times without end, by plugins: {names}"))
    return None


def _denied(run: CallRun, reason: str) -> ToolResult:
    return ToolResult(call_id=run.call.id, content=f"Tool {run.call.name} was denied: {reason}", outcome="denied")


def _check_ask(core: Core, implementation: HookImplementation, ask: Ask) -> None:
    """Raise `HookError` if nobody can be asked that. Its schema may be any type, which no check of records knows."""
    try:
        if not isinstance(ask.prompt, str):
            raise TypeError(f"its prompt is a str, not {type(ask.prompt).__name__}")
        schema_of(ask.schema)
    except TypeError as error:
        raise core.dispatcher.unusable(implementation, ask, error) from None


def _not_a_decision(plugin: str, value: object) -> PluginError:
    what = type(value).__name__
    if isinstance(value, type):
        what = f"the class {value.__name__}, not {value.__name__}(...)"
    return PluginError(
        f"plugin {plugin!r}: decide_tool returned {what}; return Allow, Deny, Rewrite, UseResult, Ask or None",
        plugin=plugin,
        hook="decide_tool",
    )


async def take_approval(core: Core, run: CallRun, value: Any) -> None:
    """A question about the call was answered: attach the approval and decide again, or deny."""
    approval = value if isinstance(value, Approval) else Approval(approve=bool(getattr(value, "approve", value)))
    if not approval.approve:
        reason = clean_text(approval.reason or "") or "the user did not approve it"
        run.finish(_denied(run, reason))
        return
    arguments = dict(run.call.arguments) if approval.arguments is None else dict(approval.arguments)
    run.call = run.call.replace(arguments=arguments, approval=approval)
    run.approved_hash = arguments_hash(arguments)
    run.state = "new"
    await decide(core, run)
