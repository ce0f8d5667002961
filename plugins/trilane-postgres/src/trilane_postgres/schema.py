"""The tables, how those of earlier schema versions are brought up to date, and opening connections to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from trilane.errors import StoreError

from .place import load_driver

if TYPE_CHECKING:
    import psycopg

    from .place import Place

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

__all__ = ["MIGRATIONS", "OLDEST_SERVER", "SCHEMA_VERSION", "AbsentError", "connect"]

#: Older servers are refused: nobody maintains them any more.
OLDEST_SERVER = 130000

#: Of a transaction whose process does not go on, because it was stopped: its locks are in the way of others.
IDLE_SECONDS = 5.0

_FIRST = """
CREATE TABLE trilane_schema (version integer NOT NULL);
INSERT INTO trilane_schema VALUES (0);
CREATE TABLE sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    title text NOT NULL DEFAULT '',
    preview text NOT NULL DEFAULT '',
    forked_from text NOT NULL DEFAULT '',
    version integer NOT NULL DEFAULT 0,
    view_start integer NOT NULL DEFAULT 0,
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX sessions_by_time ON sessions (updated, number);
CREATE TABLE records (
    session bigint NOT NULL,
    position integer NOT NULL,
    kind text NOT NULL,
    packed smallint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (session, position)
);
CREATE TABLE blobs (id text COLLATE "C" PRIMARY KEY, content bytea NOT NULL);
CREATE TABLE blob_uses (
    session bigint NOT NULL REFERENCES sessions,
    blob text COLLATE "C" NOT NULL REFERENCES blobs,
    PRIMARY KEY (session, blob)
);
CREATE INDEX blob_users ON blob_uses (blob);
CREATE TABLE leases (
    session text COLLATE "C" PRIMARY KEY,
    token text NOT NULL,
    holder text NOT NULL,
    expires timestamptz NOT NULL
);
"""


def _first(connection: Connection) -> None:
    connection.execute(_FIRST)


#: What brings the schema from version N to N + 1, in a transaction. A schema of each version is kept in the tests.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first,)

SCHEMA_VERSION = len(MIGRATIONS)


class AbsentError(StoreError):
    """There are no tables yet, and whoever only looks makes none."""


def connect(place: Place, *, busy_seconds: float, durable: bool, makes: bool = True) -> Connection:
    """Open a connection, make the schema if there is none, and bring it up to date.

    Args:
        place: The database and the schema.
        busy_seconds: How long a lock is waited for.
        durable: False for what may be lost with the server: the renewal of a lease.
        makes: False for whoever only looks.

    Raises:
        AbsentError: there is no schema, and none is to be made.
        StoreError: a later release wrote the schema, or the server cannot be used.
        psycopg.Error: no connection.
    """
    connection: Connection = load_driver().connect(place.conninfo, autocommit=True)
    try:
        _check_server(connection, place)
        settings = {
            "search_path": f'"{place.schema}"',
            "client_encoding": "UTF8",
            "default_transaction_isolation": "read committed",
            "lock_timeout": f"{busy_seconds:.3f}s",
            "idle_in_transaction_session_timeout": f"{IDLE_SECONDS:.3f}s",
        }
        if not durable:
            settings["synchronous_commit"] = "off"
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        connection.execute(f"SELECT {calls}", [text for pair in settings.items() for text in pair])
        _migrate(connection, place, makes)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_server(connection: Connection, place: Place) -> None:
    info = connection.info
    if info.server_version < OLDEST_SERVER:
        raise StoreError(
            f"{place.text}: the server is PostgreSQL {info.server_version // 10000}; trilane-postgres needs "
            f"{OLDEST_SERVER // 10000} or later"
        )
    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"{place.text}: the database has the encoding {encoding}, which cannot keep every text; make one with "
            "ENCODING 'UTF8' for the sessions"
        )


def _migrate(connection: Connection, place: Place, makes: bool) -> None:
    version = _version(connection, place)
    if version == len(MIGRATIONS):
        return
    if not version and not makes:
        raise AbsentError(f"{place.text} has no sessions yet")
    connection.execute("BEGIN")
    try:
        # One at a time; and looked at again, because another process may have been first.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"trilane.{place.schema}",))
        if not _one(connection, "SELECT to_regnamespace(%s) IS NOT NULL", place.schema):
            connection.execute(f'CREATE SCHEMA "{place.schema}"')
        for number in range(_version(connection, place), len(MIGRATIONS)):
            MIGRATIONS[number](connection)
            connection.execute("UPDATE trilane_schema SET version = %s", (number + 1,))
        connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            connection.execute("ROLLBACK")
        raise


def _version(connection: Connection, place: Place) -> int:
    # In this order: another process may commit its first migration, which makes all of them, in between.
    occupied = _one(connection, "SELECT to_regclass('sessions') IS NOT NULL OR to_regclass('records') IS NOT NULL")
    if not _one(connection, "SELECT to_regclass('trilane_schema') IS NOT NULL"):
        if occupied:
            raise StoreError(f"{place.text} has tables of something else; give the sessions a schema of their own")
        return 0
    version: int = _one(connection, "SELECT version FROM trilane_schema")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{place.text} has schema version {version}, and this trilane-postgres knows {len(MIGRATIONS)}: a later "
            "release wrote it. Upgrade trilane-postgres, or use another schema"
        )
    return version


def _one(connection: Connection, statement: str, *values: object) -> Any:
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    return row[0]
