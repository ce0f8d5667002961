"""The hooks: the store `sqlite:PATH`, and the settings that say where the file is when no path is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from trilane import hookimpl

if TYPE_CHECKING:
    from trilane.plugins import SettingsRegistry, StoreRegistry
    from trilane.stores import SessionStore

__all__ = ["SqliteSettings", "register_settings", "register_stores"]


class SqliteSettings(BaseModel):
    """Section `sqlite`."""

    path: str = Field("", description="The file; empty for TRILANE_SESSIONS, else the user's data folder.")
    synchronous: Literal["full", "normal"] = Field(
        "full", description="full: what was stored survives a power failure; normal: only the end of the process."
    )
    busy_seconds: float = Field(10.0, gt=0, description="How long other processes that write are waited for.")


@hookimpl
def register_settings(registry: SettingsRegistry) -> None:
    """Declare the section `sqlite`."""
    registry.add("sqlite", SqliteSettings)


@hookimpl
def register_stores(registry: StoreRegistry) -> None:
    """Supply `sqlite:PATH`."""
    settings = registry.settings

    def make(place: str) -> SessionStore:
        from .place import default_path
        from .store import SqliteStore

        chosen = settings.get("sqlite", SqliteSettings)
        return SqliteStore(
            place or chosen.path or default_path(),
            synchronous=chosen.synchronous,
            busy_seconds=chosen.busy_seconds,
        )

    registry.add("sqlite", make)
