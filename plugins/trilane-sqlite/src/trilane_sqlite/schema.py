"""The tables, and how files of earlier schema versions are brought up to date."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable

from trilane.errors import ConfigError, StoreError

from .worker import RETRY_SECONDS, is_busy

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SCHEMA_VERSION", "SPAN", "connect"]

#: Marks the file as one of ours, for `file` and for us.
APPLICATION_ID = 0x7472696C

#: A record has the key `number of its session * SPAN + its position`: one tree, sessions side by side, no other index.
SPAN = 2**32


def _first(connection: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE sessions (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            title TEXT NOT NULL DEFAULT '',
            preview TEXT NOT NULL DEFAULT '',
            forked_from TEXT NOT NULL DEFAULT '',
            version INTEGER NOT NULL DEFAULT 0,
            view_start INTEGER NOT NULL DEFAULT 0,
            created REAL NOT NULL,
            updated REAL NOT NULL
        )""",
        "CREATE INDEX sessions_by_time ON sessions (updated)",
        """CREATE TABLE records (
            key INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            packed INTEGER NOT NULL DEFAULT 0,
            body TEXT NOT NULL
        )""",
        "CREATE TABLE blobs (id TEXT PRIMARY KEY, content BLOB NOT NULL)",
        """CREATE TABLE blob_uses (
            session INTEGER NOT NULL,
            blob TEXT NOT NULL,
            PRIMARY KEY (session, blob)
        ) WITHOUT ROWID""",
        "CREATE INDEX blob_users ON blob_uses (blob)",
        """CREATE TABLE leases (
            session TEXT PRIMARY KEY,
            token TEXT NOT NULL,
            holder TEXT NOT NULL,
            expires REAL NOT NULL
        ) WITHOUT ROWID""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ):
        connection.execute(statement)


#: What brings a file from schema version N to N + 1, in a transaction. A file of each version is kept in the tests.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first,)

SCHEMA_VERSION = len(MIGRATIONS)


def connect(path: str, *, busy_seconds: float, synchronous: str) -> sqlite3.Connection:
    """Open the file, make it if there is none, and bring its schema up to date.

    Raises:
        StoreError: it cannot be opened, is no session file, or a later release wrote it.
    """
    _create(path)
    try:
        is_truncated = bool(_missing_bytes(path))
    except OSError as error:
        what = "is a folder" if os.path.isdir(path) else f"cannot be read: {error.strerror}"
        raise StoreError(f"session file {path} {what}. Give the path of a file that you may write") from error
    if is_truncated:
        return _open_truncated(path)
    try:
        connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    except sqlite3.Error as error:
        raise StoreError(
            f"session file {path} cannot be opened: {error}. Check the path and its permissions"
        ) from error
    try:
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"), busy_seconds)
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
        _patiently(lambda: _migrate(connection, path), busy_seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: str) -> None:
    """An empty file that only its owner may read: sessions are private."""
    if path == ":memory:" or path.startswith("file:"):
        raise ConfigError(f"SqliteStore wants the path of a file, not {path!r}; trilane.InMemoryStore keeps no file")
    if os.path.exists(path):
        return
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"session file {path} cannot be made: {error.strerror}. Check the folder") from error


def _missing_bytes(path: str) -> int:
    """How much shorter the file is than its header says."""
    with open(path, "rb") as file:
        header = file.read(100)
        size = file.seek(0, os.SEEK_END)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0") or os.path.exists(f"{path}-wal"):
        return 0  # with a log beside it the file may well be short
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page) - size


def _open_truncated(path: str) -> sqlite3.Connection:
    """SQLite opens no file that is too short: what is left is read from a copy of the right length."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="trilane-", ignore_cleanup_errors=True) as folder:
        copy = os.path.join(folder, "truncated.sqlite3")
        shutil.copyfile(path, copy)
        os.truncate(copy, os.path.getsize(path) + _missing_bytes(path))
        connection = sqlite3.connect(copy, isolation_level=None)
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the file, which is then unlinked
    connection.execute("PRAGMA query_only = ON")
    return connection


def _patiently(action: Callable[[], object], busy_seconds: float) -> None:
    """SQLite does not wait for others while it changes the journal mode."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("BEGIN")  # what is read is of one moment: another process may be making the tables right now
    try:
        version = _version(connection, path)
    finally:
        connection.execute("ROLLBACK")
    if version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Looked at again: another process may have been first.
        for number in range(_version(connection, path), len(MIGRATIONS)):
            MIGRATIONS[number](connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: str) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise StoreError(
            f"session file {path} has schema version {version}, and this trilane-sqlite knows {len(MIGRATIONS)}: "
            "a later release wrote it. Upgrade trilane-sqlite, or use another file"
        )
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{path} is a database of something else; give the sessions a file of their own")
        return 0
    return version
