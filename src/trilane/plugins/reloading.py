"""Importing a plugin's modules anew, and putting the old ones back if that fails.

For `PluginManager.reload`. What is registered, and in which place, is the manager's business.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["TakenOut"]


class TakenOut:
    """The modules of an installed plugin, taken out of `sys.modules` so that the next import runs their code again.

    These are the top-level package that the entry point names and everything below it. Objects that other code has
    taken from them stay as they are.

    Args:
        entry_point: The plugin's.
    """

    __slots__ = ("_modules", "_name")

    def __init__(self, entry_point: EntryPoint) -> None:
        from importlib import invalidate_caches

        self._name = entry_point.module.partition(".")[0]
        self._modules: dict[str, ModuleType] = {}
        if self._name == __name__.partition(".")[0]:
            return  # a plugin inside Trilane itself: registered anew, but not imported anew
        self._modules = self._take()
        invalidate_caches()

    def _take(self) -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name == self._name or name.startswith(f"{self._name}.")]
        return {name: sys.modules.pop(name) for name in names}

    def put_back(self) -> None:
        """Undo it: whatever was imported meanwhile is dropped, the old modules are there again."""
        if self._modules:
            self._take()
            sys.modules.update(self._modules)
