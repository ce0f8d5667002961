"""Names that are blocked although no plugin has them: misspelt, or not installed here.

What is blocked is in `discovery.py`. A name that blocks nothing is said, because the plugin that was meant is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .discovery import DISABLED_VARIABLE, discover

if TYPE_CHECKING:
    from .manager import PluginManager

__all__ = ["blocks_nothing"]


def blocks_nothing(manager: PluginManager) -> dict[str, str]:
    """The names blocked in `manager` that no plugin has, installed or given as an object, each with a sentence."""
    if not manager.disabled:
        return {}
    from .checks import nearest

    known = {info.name for info in (*manager.plugins(), *discover())}
    found = {}
    for name in sorted(set(manager.disabled) - known):
        by_variable = DISABLED_VARIABLE in manager.disabled[name]
        source = DISABLED_VARIABLE if by_variable else "disabled_plugins or -p no:NAME"
        found[name] = f"{name!r} in {source} blocks nothing: no plugin of that name is installed{nearest(name, known)}"
    return found
