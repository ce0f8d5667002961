"""The catalogue: one row for each hook, which the dispatcher, the registration checks and the documentation read.

Argument names come from the specifications, phases from the phase table; neither is written down twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from trilane._records import Record
from trilane.state import HOOKS_BY_PHASE, AgentPhase

from .specs import HookSpecs

__all__ = ["HOOKS", "HookInfo", "HookMode"]

HookMode: TypeAlias = Literal["each", "chain", "first", "decide", "around", "notify", "teardown", "register"]
"""How the implementations of a hook are combined, and what an exception does."""


class HookInfo(Record):
    """One row of the catalogue.

    Attributes:
        name: Name of the hook.
        arguments: Names of its arguments, in order.
        mode: How the implementations are combined.
        reverse: True if they run in reverse order, so that plugins nest.
        sync: True if implementations must be plain functions that return at once.
        phases: Phases in which it is called; none for hooks that are called while a plugin is loaded.
        required_allowed: True if `@hookimpl(required=True)` is allowed.
    """

    name: str
    arguments: tuple[str, ...]
    mode: HookMode
    reverse: bool = False
    sync: bool = False
    phases: tuple[AgentPhase, ...] = ()
    required_allowed: bool = False

    @property
    def signature(self) -> str:
        """Name and arguments as they are written in a plugin: `decide_tool(run, call)`."""
        return f"{self.name}({', '.join(self.arguments)})"


_MODES: Mapping[str, HookMode] = {
    "on_tool": "each",
    "on_state": "each",
    "on_message": "chain",
    "before_run": "each",
    "before_turn": "each",
    "on_model_request": "chain",
    "around_model": "around",
    "on_delta": "chain",
    "on_model_error": "first",
    "after_model": "chain",
    "decide_tool": "decide",
    "before_tool": "notify",
    "around_tool": "around",
    "after_tool": "chain",
    "after_turn": "notify",
    "on_answer": "decide",
    "after_run": "notify",
    "on_success": "notify",
    "on_error": "notify",
    "on_cancel": "notify",
    "close_run": "teardown",
    "on_event": "notify",
    "on_reply": "first",
    "on_compact": "first",
    "register_models": "register",
    "register_stores": "register",
    "register_settings": "register",
}
_REVERSED = frozenset(
    {"after_model", "after_tool", "after_turn", "after_run", "on_success", "on_error", "on_cancel", "close_run"}
)
_SYNC = frozenset({"on_delta", "on_reply", "register_models", "register_stores", "register_settings"})
_REQUIRED_ALLOWED = frozenset({"after_model", "after_tool", "on_delta"})
_IN_ANY_PHASE = frozenset({"on_event", "on_reply"})


def _arguments(name: str) -> tuple[str, ...]:
    code = HookSpecs.__dict__[name].__code__
    return tuple(code.co_varnames[1 : code.co_argcount])


def _phases(name: str) -> tuple[AgentPhase, ...]:
    return tuple(phase for phase in AgentPhase if name in HOOKS_BY_PHASE[phase] or name in _IN_ANY_PHASE)


#: Every hook by name, in the order of a run.
HOOKS: Mapping[str, HookInfo] = MappingProxyType(
    {
        name: HookInfo(
            name=name,
            arguments=_arguments(name),
            mode=mode,
            reverse=name in _REVERSED,
            sync=name in _SYNC,
            phases=_phases(name),
            required_allowed=name in _REQUIRED_ALLOWED,
        )
        for name, mode in _MODES.items()
    }
)
