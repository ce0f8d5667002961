"""Anthropic's Claude as a model of Trilane agents, through the Messages API.

`AnthropicModel` is for programs that make the model themselves; `anthropic:NAME` as a model's name does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import AnthropicModel

__all__ = ["AnthropicModel"]


def __getattr__(name: str) -> object:
    if name != "AnthropicModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .model import AnthropicModel

    return AnthropicModel
