"""The settings of the plugin, section `anthropic`: see the README for where they come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

__all__ = ["AnthropicSettings"]

_Seconds = Annotated[float, Field(gt=0)]


class AnthropicSettings(BaseModel):
    """Which key, which server, what is asked by default, and how long to wait.

    Attributes:
        api_key: The key. Without it: `ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN`, or a profile of the SDK.
        base_url: Another server that speaks the Messages format; without it `ANTHROPIC_BASE_URL` or Anthropic's own.
        max_output_tokens: Where an answer is cut off if the run sets nothing; None for what the model allows, as far
            as this plugin knows.
        cache: Whether cache points are set: after the tools, the instructions and the history.
        cache_ttl: How long the provider keeps what is cached.
        thinking: How models are asked to think: `adaptive` (they decide how much), `budget` (a number of tokens), or
            `auto`, which chooses by the model's name.
        structured: How an output schema is asked for: `native` (the API's own structured output), `tool` (an
            instruction and a tool that must be called), or `auto`, which chooses by the model's name.
        betas: Names of beta features to switch on.
        connect_seconds: Time to reach the server.
        first_byte_seconds: Time from the request to the first byte of the answer.
        idle_seconds: Time between two signs of life in the answer.
        total_seconds: Time of one attempt without the time its deltas wait for the caller; None for no limit.
        max_retries: How often a call that failed before anything was shown is tried again.
        max_retry_after_seconds: The longest wait the provider may ask for; above it the call fails at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_key: SecretStr | None = None
    base_url: str = ""
    max_output_tokens: Annotated[int, Field(gt=0)] | None = None
    cache: bool = True
    cache_ttl: Literal["5m", "1h"] = "5m"
    thinking: Literal["auto", "adaptive", "budget"] = "auto"
    structured: Literal["auto", "native", "tool"] = "auto"
    betas: tuple[str, ...] = ()
    connect_seconds: _Seconds = 10.0
    first_byte_seconds: _Seconds = 300.0
    idle_seconds: _Seconds = 120.0
    total_seconds: _Seconds | None = None
    max_retries: Annotated[int, Field(ge=0)] = 2
    max_retry_after_seconds: Annotated[float, Field(ge=0)] = 60.0
