"""OpenAI and compatible servers as models of Trilane agents. Importing this imports no SDK.

`Agent("openai:NAME")` needs nothing from here; `OpenAIModel` is for models that are made in code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import OpenAIModel
    from .presets import PRESETS, Preset
    from .settings import OpenAISettings

__all__ = ["PRESETS", "OpenAIModel", "OpenAISettings", "Preset"]

_MODULES = {"PRESETS": "presets", "OpenAIModel": "model", "OpenAISettings": "settings", "Preset": "presets"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
