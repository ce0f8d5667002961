"""Limits of a run and knobs of a model call, validated when they are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ._records import Record
from .errors import ConfigError

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = ["Limits", "ModelSettings"]


class Limits(Record):
    """What one run may use. None means no limit. Reaching one ends the run FAILED with `RunLimitError`.

    Attributes:
        turns: Model calls with their tools.
        tool_calls: Tool calls that are executed.
        input_tokens: Tokens sent to models, summed over all turns.
        output_tokens: Tokens received from models.
        cost: US dollars, where the provider reports or the plugin computes them.
        run_seconds: Time of the whole run, without the time it waits for its caller.
        model_seconds: Time of one model call.
        reply_seconds: Time a question may stay open.
        store_seconds: Time of one write to the session store.
        answer_retries: How often an answer that is not accepted goes back to the model.
        empty_replies: How often an empty reply is asked again.
    """

    turns: int | None = 100
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    run_seconds: float | None = None
    model_seconds: float | None = 600.0
    reply_seconds: float | None = None
    store_seconds: float = 10.0
    answer_retries: int = 2
    empty_replies: int = 2

    def __post_init__(self) -> None:
        for name, value in self._items():
            if value is not None and not (isinstance(value, (int, float)) and value >= 0):
                raise ConfigError(f"Limits.{name} is {value!r}; give a number of at least 0, or None for no limit")


class ModelSettings(Record):
    """Common knobs of a model call. None leaves the provider's default; `extra` goes to the provider as it is.

    Attributes:
        temperature: Randomness, in the provider's scale.
        top_p: Nucleus sampling.
        max_output_tokens: Where the provider cuts the answer off.
        stop: Texts at which the model stops.
        seed: Seed, where the provider has one.
        tool_choice: `auto`, `none`, `required`, or a tool's name. Applies to the first turn only, so that a forced
            choice cannot keep a run going for ever.
        reasoning: Effort to think: `none`, `low`, `medium`, `high`, or the provider's own word.
        extra: Provider-specific options.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: str | None = None
    reasoning: str | None = None
    extra: Mapping[str, JsonValue] = {}

    def merged(self, other: ModelSettings | None) -> ModelSettings:
        """These settings, overridden by whatever `other` sets."""
        if other is None:
            return self
        changes = {name: value for name, value in other._items() if value != self._record_defaults[name]}
        if "extra" in changes:
            changes["extra"] = {**self.extra, **other.extra}
        return self.replace(**changes) if changes else self
