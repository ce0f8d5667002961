"""What is installed and can do nothing: hooks that are never called, commands that another one hides.

For `trilane plugins doctor`. Which hooks need what is read from the catalogue; what there is, from the live registry
and a trial run of the agent that `trilane run` would make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trilane.hookspecs import HOOKS

if TYPE_CHECKING:
    from trilane.tools import Tool

    from .registry import LiveRegistry

__all__ = ["idle_hooks", "shadowed_commands"]

#: Hooks that get a tool call are called for one; those that get a question, when something was asked.
_NEED_A_TOOL = tuple(hook.name for hook in HOOKS.values() if "call" in hook.arguments)
_NEED_A_QUESTION = tuple(hook.name for hook in HOOKS.values() if "question" in hook.arguments)


def idle_hooks(registry: LiveRegistry, plugin: str, tools: Sequence[Tool] | None) -> Iterator[str]:
    """A sentence for each group of a plugin's hooks that `trilane run` can never call.

    Args:
        registry: The loaded plugins.
        plugin: Name of the plugin.
        tools: What a trial run offered; None if there was none, then each plugin with `on_tool` is taken to offer some.
    """
    if registry.problem is not None:
        return
    own = {call.hook for call in registry.hooks_of(plugin)}
    why = _no_tools(registry, tools)
    idle = [hook for hook in _NEED_A_TOOL if hook in own]
    if why and idle:
        yield f"{', '.join(idle)} can never be called: {why}"
    why = why or _no_questions(registry, tools)
    idle = [hook for hook in _NEED_A_QUESTION if hook in own]
    if why and idle:
        yield f"{', '.join(idle)} can never be called: nothing asks a question, {why}"


def _no_tools(registry: LiveRegistry, tools: Sequence[Tool] | None) -> str:
    if not registry.manager.order("on_tool"):
        return "no plugin supplies a tool with on_tool"
    if tools is not None and not tools:
        names = ", ".join(name for name, _ in registry.manager.order("on_tool"))
        return f"on_tool of {names} offered no tool in a trial run"
    return ""


def _no_questions(registry: LiveRegistry, tools: Sequence[Tool] | None) -> str:
    """Questions come from tools that need an approval, have no handler or get a context, and from `decide_tool`."""
    if tools is None or registry.manager.order("decide_tool"):
        return ""
    if any(tool.approval or tool.is_external or tool.context_parameter for tool in tools):
        return ""
    return "no tool needs an approval or can ask, and no plugin decides about calls with decide_tool"


def shadowed_commands() -> Iterator[tuple[str, str]]:
    """Commands of plugins that cannot be reached: the distribution, and a sentence."""
    from importlib.metadata import entry_points

    from .app import app
    from .groups import COMMAND_GROUP

    own = {info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands}
    own |= {info.name for info in app.registered_groups}
    seen: dict[str, str] = {}
    for point in entry_points(group=COMMAND_GROUP):
        origin = point.dist.name if point.dist is not None else point.value
        if point.name in own:
            yield origin, f"its command {point.name!r} can never be called: Trilane has one of that name"
        elif seen.setdefault(point.name, origin) != origin:
            yield origin, f"its command {point.name!r} can never be called: {seen[point.name]} has one of that name"
