"""The plugin `openai`: registers the provider `openai` and its settings. The SDK is imported at the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane import hookimpl

if TYPE_CHECKING:
    from trilane.models import Model
    from trilane.plugins import ModelRegistry, SettingsRegistry

__all__ = ["register_models", "register_settings"]


@hookimpl
def register_settings(registry: SettingsRegistry) -> None:
    """Declare the section `openai`."""
    from .settings import OpenAISettings

    registry.add("openai", OpenAISettings)


@hookimpl
def register_models(registry: ModelRegistry) -> None:
    """Supply `openai:NAME`, `openai:PRESET/NAME`, and `openai` for the model of the settings."""

    def make(name: str) -> Model:
        from .model import OpenAIModel
        from .settings import OpenAISettings

        return OpenAIModel.from_settings(name, registry.settings.get("openai", OpenAISettings))

    registry.add("openai", make, description="OpenAI, and every server that speaks its Chat Completions")
