"""What a plugin is called, and what is called the same. For the manager."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from trilane.errors import PluginLoadError

if TYPE_CHECKING:
    from .discovery import PluginInfo

__all__ = ["name_of", "two_plugins", "value_of"]


def name_of(plugin: object) -> str:
    """Name of a plugin that is given as an object: its attribute `name`, else the name of its class or module."""
    try:
        name = getattr(plugin, "name", None)
    except Exception:  # a property that is not ready yet; the class has a name in any case
        name = None
    if isinstance(name, str) and name and not isinstance(plugin, type):
        return name
    if isinstance(plugin, (ModuleType, type)):
        return plugin.__name__
    return type(plugin).__name__


def value_of(plugin: object) -> str:
    """Where a plugin that is given as an object comes from, in the form of an entry point's value."""
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    return f"{type(plugin).__module__}:{type(plugin).__qualname__}"


def two_plugins(first: PluginInfo, second: PluginInfo) -> PluginLoadError:
    """The error that says that two plugins have one name."""
    return PluginLoadError(
        f"two plugins are called {first.name!r}: {first.origin} and {second.origin}; give one of them another name, "
        "or use only one",
        plugin=first.name,
    )
