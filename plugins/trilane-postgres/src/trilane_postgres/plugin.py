"""The hooks: the stores `postgresql://…`, `postgres://…` and `postgres`, and the settings for what these leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from trilane import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilane.plugins import SettingsRegistry, StoreRegistry
    from trilane.stores import SessionStore

__all__ = ["PostgresSettings", "register_settings", "register_stores"]


class PostgresSettings(BaseModel):
    """Section `postgres`."""

    dsn: str = Field("", description="The database, a URL or `key=value` pairs; empty for libpq's variables.")
    schema_name: str = Field("trilane", description="The schema with the tables, made at the first use.")
    connections: int = Field(4, ge=1, le=100, description="For runs, at most; two more list and renew leases.")
    busy_seconds: float = Field(10.0, gt=0, description="How long what others have locked is waited for.")
    reconnect_seconds: float = Field(10.0, ge=0, description="How long a connection that was lost is tried again.")


@hookimpl
def register_settings(registry: SettingsRegistry) -> None:
    """Declare the section `postgres`."""
    registry.add("postgres", PostgresSettings)


@hookimpl
def register_stores(registry: StoreRegistry) -> None:
    """Supply `postgresql:` and `postgres:` with what stands after them, and `postgres` alone."""
    settings = registry.settings

    def maker(scheme: str) -> Callable[[str], SessionStore]:
        def make(place: str) -> SessionStore:
            from .store import PostgresStore

            chosen = settings.get("postgres", PostgresSettings)
            return PostgresStore(
                f"{scheme}:{place}" if place.startswith("//") else place or chosen.dsn,
                schema=chosen.schema_name,
                connections=chosen.connections,
                busy_seconds=chosen.busy_seconds,
                reconnect_seconds=chosen.reconnect_seconds,
            )

        return make

    for scheme in ("postgres", "postgresql"):
        registry.add(scheme, maker(scheme))
