"""The plugin `offline`: registers the provider `offline` with its one model, `planner`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane import hookimpl

if TYPE_CHECKING:
    from trilane.models import Model
    from trilane.plugins import ModelRegistry

__all__ = ["register_models"]


@hookimpl
def register_models(registry: ModelRegistry) -> None:
    """Supply `offline:planner`."""
    registry.add(
        "offline", _make, models=("planner",), description="Deterministic planner, not an AI; no key, no network"
    )


def _make(name: str) -> Model:
    from .model import NAME, OfflineModel

    if name not in ("", NAME):
        raise LookupError(f"the provider 'offline' has one model, 'offline:{NAME}', and none named {name!r}")
    return OfflineModel()
