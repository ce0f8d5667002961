"""The statements that read: records, lists, searches. What cannot be read of a damaged file is isolated.

They run in the thread of a worker.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trilane.errors import SessionError
from trilane.sessions import SearchHit, SessionInfo, hits_in
from trilane.stores import DamagedRecord, SessionPage, record_from_json
from trilane.storing import PLAIN, unpack

from .schema import SPAN

if TYPE_CHECKING:
    from trilane.stores import SessionRecord

__all__ = ["infos", "load", "read_blob", "search", "snapshot", "view_start"]

_INFO = "SELECT id, title, version, created, updated, preview, forked_from FROM sessions"


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several statements that see the same moment of the file."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def load(connection: sqlite3.Connection, session: str, *, after: int, limit: int | None) -> SessionPage:
    """Records of a session, with a `DamagedRecord` in the place of each that cannot be read."""
    with snapshot(connection):
        row = connection.execute("SELECT number, version FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            return SessionPage(records=(), version=0)
        number, version = row
        last = version if limit is None else min(version, after + limit)
        if last <= after:
            return SessionPage(records=(), version=version)
        found: dict[int, SessionRecord] = {}
        try:
            rows = connection.execute(
                "SELECT key, packed, CAST(body AS BLOB) FROM records WHERE key BETWEEN ? AND ?",
                (number * SPAN + after + 1, number * SPAN + last),
            )
            for key, packed, body in rows:
                found[key - number * SPAN] = _record(connection, packed, body)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            found = _one_by_one(connection, number, range(after + 1, last + 1))
        records = tuple([found.get(position) or _missing(position) for position in range(after + 1, last + 1)])
        return SessionPage(records=records, version=version)


def _one_by_one(connection: sqlite3.Connection, number: int, positions: range) -> dict[int, SessionRecord]:
    """A part of the file is damaged: each record that is elsewhere can still be found by its key."""
    found: dict[int, SessionRecord] = {}
    for position in positions:
        try:
            row = connection.execute(
                "SELECT packed, CAST(body AS BLOB) FROM records WHERE key = ?", (number * SPAN + position,)
            ).fetchone()
            if row is not None:
                found[position] = _record(connection, *row)
        except sqlite3.DatabaseError as error:
            found[position] = DamagedRecord(
                raw="", reason=f"record {position} is in a damaged part of the file: {error}"
            )
    return found


def _missing(position: int) -> DamagedRecord:
    return DamagedRecord(raw="", reason=f"record {position} is missing from the file")


def _record(connection: sqlite3.Connection, packed: int, body: bytes) -> SessionRecord:
    if packed == PLAIN:
        return record_from_json(body)
    try:
        return record_from_json(unpack(body.decode(), packed, lambda blob: read_blob(connection, blob)))
    except (ValueError, KeyError, TypeError, RecursionError, SessionError) as error:
        return DamagedRecord(raw=body.decode("utf-8", "backslashreplace"), reason=f"a part of it is gone: {error}")


def read_blob(connection: sqlite3.Connection, blob: str) -> str:
    """
    Raises:
        SessionError: there is none of that id.
    """
    row = connection.execute("SELECT content FROM blobs WHERE id = ?", (blob,)).fetchone()
    if row is None:
        raise SessionError(f"there is no blob {blob!r}; it belonged to a session that was deleted, or was never stored")
    content: bytes = row[0]
    return content.decode("utf-8", "replace")


def view_start(connection: sqlite3.Connection, session: str) -> int:
    """The version before the last compaction, 0 without one."""
    row = connection.execute("SELECT view_start FROM sessions WHERE id = ?", (session,)).fetchone()
    start: int = 0 if row is None else row[0]
    return start


def infos(
    connection: sqlite3.Connection, *, session: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SessionInfo]:
    """One session, or all, the one written to last first."""
    if session is not None:
        rows = connection.execute(f"{_INFO} WHERE id = ?", (session,))
    else:
        rows = connection.execute(
            f"{_INFO} ORDER BY updated DESC, number DESC LIMIT ? OFFSET ?", (-1 if limit is None else limit, offset)
        )
    return [
        SessionInfo(
            id=id,
            title=title,
            version=version,
            created=datetime.fromtimestamp(created, UTC),
            updated=datetime.fromtimestamp(updated, UTC),
            preview=preview,
            forked_from=forked_from,
        )
        for id, title, version, created, updated, preview, forked_from in rows
    ]


def search(connection: sqlite3.Connection, text: str, *, limit: int) -> list[SearchHit]:
    """Where a text occurs. Records are looked through in the file; only those that may have it are read."""
    hits: list[SearchHit] = []
    wanted = text.casefold()
    if not wanted or limit < 1:
        return hits
    escaped = json.dumps(wanted, ensure_ascii=False)[1:-1]
    connection.create_function("trilane_has", 1, lambda body: escaped in body.casefold(), deterministic=True)
    with snapshot(connection):
        sessions = connection.execute("SELECT number, id, title FROM sessions ORDER BY updated DESC").fetchall()
        for number, session, title in sessions:
            rows = connection.execute(
                "SELECT key, packed, CAST(body AS BLOB) FROM records WHERE key BETWEEN ? AND ?"
                " AND kind IN ('message', 'call_finished') AND (packed <> 0 OR trilane_has(body))",
                (number * SPAN + 1, number * SPAN + SPAN - 1),
            )
            for key, packed, body in rows:
                record = _record(connection, packed, body)
                hits += hits_in(record, text, session=session, title=title, position=key - number * SPAN)
                if len(hits) >= limit:
                    return hits[:limit]
    return hits
