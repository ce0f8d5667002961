"""Who is active: which plugins an agent has, where they come from, in which order they stand, and what they supply.

What can be hooked is in `hookspecs`; how hooks are called is in `_dispatch.py`.
"""

from __future__ import annotations

from .discovery import DISABLED_VARIABLE, Installed, PluginInfo, discover, installed
from .implementations import Calls, CompiledHooks, HookImplementation
from .manager import PluginManager
from .registries import (
    ModelProvider,
    ModelRegistry,
    StoreProvider,
    StoreRegistry,
    resolve_model,
    resolve_store,
    store_plugin,
)
from .settings import SettingsRegistry

__all__ = [
    "DISABLED_VARIABLE",
    "Calls",
    "CompiledHooks",
    "HookImplementation",
    "Installed",
    "ModelProvider",
    "ModelRegistry",
    "PluginInfo",
    "PluginManager",
    "SettingsRegistry",
    "StoreProvider",
    "StoreRegistry",
    "discover",
    "installed",
    "resolve_model",
    "resolve_store",
    "store_plugin",
]
