"""A real language model inside the process: no key, no network.

`LocalModel` is for programs that make the model themselves, `local:NAME` as a model's name does the same. `LocalServer`
offers a model to other programs of this machine, in OpenAI's chat format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import LocalServer
    from .model import LocalModel

__all__ = ["LocalModel", "LocalServer"]

_MODULES = {"LocalModel": "model", "LocalServer": "engine"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
