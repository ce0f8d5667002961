"""The plugin `anthropic`: registers the provider `anthropic` and its settings. Importing it imports no SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane import hookimpl

if TYPE_CHECKING:
    from trilane.models import Model
    from trilane.plugins import ModelRegistry, SettingsRegistry

__all__ = ["register_models", "register_settings"]

_SECTION = "anthropic"


@hookimpl
def register_settings(registry: SettingsRegistry) -> None:
    """Declare the section `anthropic`."""
    from .settings import AnthropicSettings

    registry.add(_SECTION, AnthropicSettings)


@hookimpl
def register_models(registry: ModelRegistry) -> None:
    """Supply `anthropic:NAME`."""
    from .names import KNOWN_MODELS

    def make(name: str) -> Model:
        from .model import AnthropicModel
        from .settings import AnthropicSettings

        return AnthropicModel.from_settings(name, registry.settings.get(_SECTION, AnthropicSettings))

    registry.add(
        "anthropic", make, models=KNOWN_MODELS, description="Anthropic's Claude; needs a key (ANTHROPIC_API_KEY)"
    )
