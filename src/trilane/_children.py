"""Agents as tools: a child run inside a tool call, whose events travel on the parent's stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._run import RunStream
from ._tasks import current_clock
from .errors import ToolError
from .events import ChildEvent
from .plugins import CompiledHooks

if TYPE_CHECKING:
    from ._core import Core, RunSetup

__all__ = ["run_child"]

_TERMINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})


async def run_child(
    parent: Core, setup: RunSetup, name: str, call_id: str, register: Callable[[str, RunStream[Any]], None]
) -> str:
    """Run `setup` as a child of `parent` and return its answer as text.

    Raises:
        ToolError: the child failed; the text says how, without its internals.
    """
    setup.parent = parent
    setup.caller = (current_clock.get(), call_id)
    setup.path = (*parent.path, name)
    setup.desk = parent.setup.desk
    setup.hooks = _together(setup.hooks, parent.setup.hooks)
    setup.trace_plugins = setup.trace_plugins or parent.setup.trace_plugins
    stream: RunStream[Any] = RunStream(setup, register)
    async with stream:
        try:
            async for event in stream:
                if event.type in _TERMINAL:
                    continue
                if event.type == "child_event":
                    parent.produce(ChildEvent, path=event.path, event=event.event)
                else:
                    parent.produce(ChildEvent, path=setup.path, event=event)
                await parent.put()
        except Exception as error:
            core = stream._core
            if core is None or not core.finished or error is not core.cause:
                raise  # the parent's own stream failed, not the child
            raise ToolError(f"The agent {name} failed: {type(error).__name__}: {error}") from error
        finally:
            if stream._core is not None:
                parent.dispatcher.ledger.include(stream._core.dispatcher.ledger)
        output = stream.result.output
    return output if isinstance(output, str) else _as_json(output)


def _as_json(value: Any) -> str:
    from pydantic_core import to_json

    return to_json(value, fallback=str).decode()


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
