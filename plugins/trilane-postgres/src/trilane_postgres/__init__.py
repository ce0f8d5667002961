"""Sessions in PostgreSQL: `Agent(..., store=PostgresStore("postgresql://host/database"))`. This loads no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store import PostgresStore

__all__ = ["PostgresStore"]


def __getattr__(name: str) -> object:
    if name != "PostgresStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .store import PostgresStore

    return PostgresStore
