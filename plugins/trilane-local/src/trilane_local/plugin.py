"""The plugin `local`: registers the provider `local` and its settings. Importing it loads no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane import hookimpl

if TYPE_CHECKING:
    from trilane.models import Model
    from trilane.plugins import ModelRegistry, SettingsRegistry

__all__ = ["register_models", "register_settings"]

_SECTION = "local"


@hookimpl
def register_settings(registry: SettingsRegistry) -> None:
    """Declare the section `local`."""
    from .settings import LocalSettings

    registry.add(_SECTION, LocalSettings)


@hookimpl
def register_models(registry: ModelRegistry) -> None:
    """Supply `local:NAME` and `local:PATH`."""

    def make(name: str) -> Model:
        from .model import LocalModel
        from .settings import LocalSettings

        return LocalModel.from_settings(name, registry.settings.get(_SECTION, LocalSettings))

    registry.add(
        "local", make, models=("smollm2",), description="A small language model in this process; no key, no network"
    )
