"""Which server a model name means, and which key is sent there. A key goes to no server but its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trilane.errors import ConfigError

from .presets import COMPATIBLE, PRESETS, Preset
from .secret import Secret

if TYPE_CHECKING:
    from .settings import OpenAISettings

__all__ = ["Target", "preset_named", "target_of"]


@dataclass(frozen=True, slots=True)
class Target:
    """A server, the name of a model there, and how to get in.

    Attributes:
        name: The model, as the server knows it.
        preset: What kind of server it is.
        base_url: Where it is.
        key: What it wants to see; empty if nothing.
        key_source: Where the key was found, for messages.
        organization: OpenAI's organization; empty if none.
    """

    name: str
    preset: Preset
    base_url: str
    key: Secret
    key_source: str = ""
    organization: str = ""


def target_of(name: str, settings: OpenAISettings, environ: Mapping[str, str] = os.environ) -> Target:
    """What `openai:name` means.

    Raises:
        ConfigError: an unknown preset, no key, no address, or no model name; the text says what to set.
    """
    chosen = bool(settings.preset or settings.base_url)
    first, slash, rest = name.partition("/")
    if not chosen and first in PRESETS and (slash or first != "openai"):
        preset, name, own = PRESETS[first], rest, False
    else:
        own = True
        preset = preset_named(settings.preset) if settings.preset else COMPATIBLE if chosen else PRESETS["openai"]
    base_url, where = (settings.base_url, "base_url") if own and settings.base_url else _address(preset, environ)
    key, source = _key(preset, settings, environ, own=own, given_address=where == "base_url")
    name = name or (settings.model if own else "") or preset.default_model
    if not name:
        raise ConfigError(
            f"openai: which model of {preset.name}? Write its name: openai:{'' if chosen else preset.name + '/'}NAME"
        )
    if preset.needs_key and not key:
        raise ConfigError(_no_key(preset, base_url, own=own))
    organization = settings.organization if preset.name == "openai" else ""
    return Target(name, preset, base_url, Secret(key), source, organization)


def preset_named(name: str) -> Preset:
    """The preset of that name.

    Raises:
        ConfigError: there is none; the text lists those there are.
    """
    if name not in PRESETS:
        raise ConfigError(f"openai: there is no preset {name!r}; presets are {', '.join(PRESETS)}")
    return PRESETS[name]


def _address(preset: Preset, environ: Mapping[str, str]) -> tuple[str, str]:
    for variable in preset.url_variables:
        if environ.get(variable):
            url = environ[variable].rstrip("/")
            if preset.name == "azure" and not url.endswith("/v1"):
                url += "/openai/v1"
            return url, variable
    if not preset.base_url:
        raise ConfigError(
            f"openai: where is {preset.name}? Set {' or '.join(preset.url_variables)}, or base_url and "
            f'preset = "{preset.name}" under [openai] in trilane.toml'
        )
    return preset.base_url, "the preset"


def _key(
    preset: Preset, settings: OpenAISettings, environ: Mapping[str, str], *, own: bool, given_address: bool
) -> tuple[str, str]:
    if own and settings.api_key is not None:
        return settings.api_key.get_secret_value(), "the setting api_key"
    if preset.name in settings.api_keys:
        return settings.api_keys[preset.name].get_secret_value(), f"the setting api_keys[{preset.name!r}]"
    if given_address and not settings.preset:
        return "", ""  # a key of the environment is meant for the server it is named after, not for any address
    for variable in preset.key_variables:
        if environ.get(variable):
            return environ[variable], variable
    return "", ""


def _no_key(preset: Preset, base_url: str, *, own: bool) -> str:
    variable = preset.key_variables[0]
    setting = "TRILANE_OPENAI_API_KEY, or api_key" if own else f"api_keys.{preset.name}"
    return (
        f"openai: there is no API key for {preset.name} ({base_url}). Set {variable}; or set {setting} under [openai] "
        "in trilane.toml; or use a model that needs none, such as openai:ollama/NAME on this machine, or offline."
    )
