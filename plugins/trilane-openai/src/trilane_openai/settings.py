"""The settings of the plugin, section `openai`: see the README for where they come from."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

__all__ = ["OpenAISettings"]

_Seconds = Annotated[float, Field(gt=0)]


class OpenAISettings(BaseModel):
    """Which server, with which key, and how long to wait.

    Attributes:
        api_key: Key of the server that `preset` or `base_url` names, else of OpenAI. Never sent to another server.
        api_keys: Keys by preset, for models chosen as `openai:PRESET/NAME`.
        base_url: Where the server is, up to and including the version.
        preset: What kind of server it is. With `base_url` or `preset` set, names of models are taken whole.
        model: The model of a bare `openai`.
        organization: OpenAI's organization, for accounts that have several.
        connect_seconds: Time to reach the server.
        first_byte_seconds: Time from the request to the first byte of the answer.
        idle_seconds: Time between two pieces of the answer. Keep-alive comments count as pieces.
        total_seconds: Time of one attempt without the time its deltas wait for the caller; None for no limit.
        max_retries: How often a call that failed before anything was shown is tried again.
        max_retry_after_seconds: The longest wait a server may ask for; above it the call fails at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_key: SecretStr | None = None
    api_keys: dict[str, SecretStr] = {}
    base_url: str = ""
    preset: str = ""
    model: str = ""
    organization: str = ""
    connect_seconds: _Seconds = 10.0
    first_byte_seconds: _Seconds = 300.0
    idle_seconds: _Seconds = 300.0
    total_seconds: _Seconds | None = None
    max_retries: Annotated[int, Field(ge=0)] = 2
    max_retry_after_seconds: Annotated[float, Field(ge=0)] = 60.0
