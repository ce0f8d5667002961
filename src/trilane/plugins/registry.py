"""pluggy's registry with our specifications. Imported when the first plugin is registered, because pluggy costs."""

from __future__ import annotations

import pluggy

from trilane.hookspecs import HOOKS, HookSpecs
from trilane.hookspecs.markers import SPEC_ATTRIBUTE

__all__ = ["Registry"]


class Registry(pluggy.PluginManager):
    """Knows every hook. Looks only at attributes that can matter, which halves the cost of a manager."""

    def __init__(self) -> None:
        super().__init__("trilane")
        self.add_hookspecs(HookSpecs)

    def parse_hookspec_opts(self, module_or_class: object, name: str) -> pluggy.HookspecOpts | None:
        if name not in HOOKS:
            return None
        options: pluggy.HookspecOpts = getattr(getattr(module_or_class, name), SPEC_ATTRIBUTE)
        return options

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)
