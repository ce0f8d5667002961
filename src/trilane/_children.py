"""Agents as tools: a child run inside a tool call, whose events travel on the parent's stream."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ._dispatch import log_error
from ._records import error_line, error_words
from ._run import RunStream
from ._tasks import clock_here
from .context import ToolContext
from .errors import EmptyReplyError, ReplyError, RunCancelledError, RunLimitError, ToolError, TrilaneError
from .events import ChildEvent
from .plugins import CompiledHooks
from .tools import Tool
from .tools.callables import written_at

if TYPE_CHECKING:
    from ._core import Core
    from ._setup import RunSetup
    from .events import Event

__all__ = ["tool_of"]

_TERMINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})


def tool_of(agent: Any, name: str, description: str, deps: Callable[[ToolContext[Any]], Any] | None) -> Tool:
    """The tool that runs an agent as a child of the run that calls it.

    Raises:
        ToolDefinitionError: the name is not one that providers take; the text names the line that made the tool.
    """

    async def call_agent(context: ToolContext[Any], request: str) -> Any:
        setup = agent._setup(request, {} if deps is None else {"deps": deps(context)})
        return await _run_child(cast("Core", context._core), setup, name, context.call.id, agent._register)

    call_agent.__doc__ = f"{description}\n\nArgs:\n    request: What the agent is asked to do, with all it must know."
    caller = sys._getframe(2)
    place = f"agent {agent.name!r} as a tool, {caller.f_globals.get('__name__', '?')}, line {caller.f_lineno}"
    return Tool.from_function(written_at(place, call_agent), name=name, description=description, effect="unsafe")


async def _run_child(
    parent: Core, setup: RunSetup, name: str, call_id: str, register: Callable[[str, RunStream[Any]], None]
) -> Any:
    """Run `setup` as a child of `parent` and return its answer.

    Raises:
        ToolError: the child failed; the text says how, without its internals.
    """
    setup.parent = parent
    setup.caller = (clock_here(parent.clock), call_id)
    setup.path = (*parent.path, name)
    setup.desk = parent.setup.desk
    seconds = parent.limits.reply_seconds
    if seconds is not None and (setup.limits.reply_seconds is None or setup.limits.reply_seconds > seconds):
        setup.limits = setup.limits.replace(reply_seconds=seconds)  # the same people are asked, for the same caller
    setup.hooks = _together(setup.hooks, parent.setup.hooks)
    setup.trace_plugins = setup.trace_plugins or parent.setup.trace_plugins
    stream: RunStream[Any] = RunStream(setup, register)
    try:
        async with stream:
            core = stream._core
            assert core is not None
            parent.children.append(core)
            if parent.stop_error is not None:
                core.suspended = parent.suspended
                core.request_stop(str(parent.stop_error))
            try:
                async for event in stream:
                    if event.type in _TERMINAL:
                        continue
                    _relay(parent, setup.path, event)
                    await parent.put()
            except Exception as error:
                if not core.finished or (error is not core.cause and error is not core.strict_error):
                    raise  # the parent's own stream failed, not the child
                if error is core.cause:  # else it has an answer, and what a strict plugin did is raised by the parent
                    raise ToolError(_told(core, name, error)) from error
            finally:
                parent.children.remove(core)
                parent.dispatcher.ledger.include(core.dispatcher.ledger)
            output = stream.result.output
    finally:
        _take_reports(parent, stream._core)
    return "null" if output is None else output  # None would be a tool that has nothing to say


def _told(child: Core, name: str, error: Exception) -> str:
    """What the parent's model is told of a child that did not complete, and the log where that is not all.

    As with tools: what was not written for a model may hold paths, queries or secrets, and is only named.
    """
    if isinstance(error, RunCancelledError):
        return f"The agent {name} was stopped: {error_words(error)}"
    if isinstance(error, (RunLimitError, EmptyReplyError)):
        return f"The agent {name} failed: {error_line(error)}"
    if isinstance(error, (ToolError, ReplyError)):
        return f"The agent {name} failed: {error_words(error)}"
    where = f"run {child.run_id}, session {child.session_id}"
    log_error(f"agent {name!r} failed as a tool", error, where)
    why = type(error).__name__
    if isinstance(error, TrilaneError) and error.__cause__ is not None:  # such as the store's own error
        why += f", caused by {type(error.__cause__).__name__}"
    return f"The agent {name} failed: {why}"


def _relay(parent: Core, path: tuple[str, ...], event: Event) -> None:
    """Show an event of a child. One of a grandchild is unwrapped, and counted by the root only: no run skips one."""
    seq = parent.seq
    if event.type == "child_event":
        parent.produce(ChildEvent, path=event.path, event=event.event)
    else:
        parent.produce(ChildEvent, path=path, event=event)
    if parent.parent is not None:
        parent.seq = seq


def _take_reports(parent: Core, child: Core | None) -> None:
    """What is reported about the child is reported with its parent: nobody else sees the child's result."""
    if child is None:
        return
    parent.failures.extend(child.failures)
    parent.stragglers.extend(child.stragglers)
    parent.store_error = parent.store_error or child.store_error
    parent.strict_error = parent.strict_error or child.strict_error
    parent.fatal = parent.fatal or child.fatal


def _together(own: CompiledHooks, parents: CompiledHooks) -> CompiledHooks:
    """The child's hooks, and those of the parent's plugins that the child does not have itself."""
    if own is parents:
        return own
    calls: dict[str, Any] = {}
    for hook in CompiledHooks.__slots__:
        mine, theirs = getattr(own, hook), getattr(parents, hook)
        have = {implementation.plugin for implementation in mine}
        calls[hook] = (*mine, *(one for one in theirs if one.plugin not in have)) if theirs else mine
    return CompiledHooks(calls)
