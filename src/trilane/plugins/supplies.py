"""What one plugin supplies through its `register_` hooks: kept together, so that it is dropped together.

The hooks are called before anything of the plugin is registered. If one fails, nothing of it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trilane._records import error_line
from trilane.errors import HookSpecError, PluginLoadError

from .implementations import location, positional
from .registries import ModelRegistry, StoreRegistry
from .settings import SettingsRegistry

__all__ = ["Supplies"]


class Supplies:
    """The models, stores and settings of one plugin.

    Args:
        plugin: Name of the plugin.
        settings_in_code: Settings that the host gives in code, by section and key.
    """

    __slots__ = ("models", "plugin", "registries", "settings", "stores")

    def __init__(self, plugin: str, settings_in_code: Mapping[str, Mapping[str, object]]) -> None:
        self.plugin = plugin
        self.settings = SettingsRegistry(plugin, values=settings_in_code)
        self.models = ModelRegistry(plugin, self.settings)
        self.stores = StoreRegistry(plugin, self.settings)
        # Settings first: the other two may read them.
        self.registries: dict[str, SettingsRegistry | ModelRegistry | StoreRegistry] = {
            "register_settings": self.settings,
            "register_models": self.models,
            "register_stores": self.stores,
        }

    def collect(
        self, functions: Mapping[str, Sequence[Callable[..., Any]]], hooks: Sequence[str] | None = None
    ) -> None:
        """Call the `register_` hooks among `functions`; only those in `hooks`, if given.

        Raises:
            PluginLoadError: one of them raised.
        """
        for hook, registry in self.registries.items():
            if hooks is None or hook in hooks:
                for function in functions.get(hook, ()):
                    self._call(hook, function, registry)

    def refuse_taken(self, others: Iterable[Supplies]) -> None:
        """Compare with what other plugins supply.

        Raises:
            PluginLoadError: two plugins supply the same name.
        """
        for other in others:
            for hook, registry in self.registries.items():
                taken = _names(registry) & _names(other.registries[hook])
                if taken:
                    raise PluginLoadError(
                        f"plugin {self.plugin!r}: {hook} adds {min(taken)!r}, which the plugin {other.plugin!r} has "
                        "added already; use one of the two plugins",
                        plugin=self.plugin,
                    )

    def _call(self, hook: str, function: Callable[..., Any], registry: object) -> None:
        from inspect import signature

        place = f"plugin {self.plugin!r}: {hook!r} at {location(function)}"
        try:
            returned = positional(function, ("registry",), tuple(signature(function).parameters))(registry)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the border to a plugin, of which nothing is registered yet
            raise PluginLoadError(f"{place} failed: {error_line(error)}", plugin=self.plugin) from error
        if hasattr(returned, "__await__"):
            getattr(returned, "close", lambda: None)()
            raise HookSpecError(
                f"{place} returned an awaitable, but nothing can be awaited while plugins are loaded; "
                "make it a plain def that calls no async function",
                plugin=self.plugin,
            )


def _names(registry: SettingsRegistry | ModelRegistry | StoreRegistry) -> set[str]:
    return set(registry.names()) if isinstance(registry, SettingsRegistry) else set(registry.providers)
