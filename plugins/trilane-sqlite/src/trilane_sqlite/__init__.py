"""Sessions in one SQLite file: `Agent(..., store=SqliteStore("sessions.sqlite3"))`."""

from __future__ import annotations

from .place import default_path
from .store import SqliteStore

__all__ = ["SqliteStore", "default_path"]
