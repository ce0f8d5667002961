"""The statements that write records. They run in the thread of the store's worker, inside its transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trilane.errors import SessionConflictError, SessionError
from trilane.messages import clean_text
from trilane.sessions import known_of, preview_of
from trilane.storing import Packed, pack

from .schema import SPAN

if TYPE_CHECKING:
    from trilane.stores import SessionRecord

__all__ = ["PackedRecord", "append", "copy", "delete", "pack_all", "rename"]

PackedRecord = tuple[str, Packed]
"""Its kind, and what is stored of it."""


def pack_all(records: Iterable[SessionRecord]) -> list[PackedRecord]:
    """Records as they are to be stored. Needs no connection and no transaction."""
    return [(_kind(record), pack(record)) for record in records]


def append(
    connection: sqlite3.Connection,
    session: str,
    records: Sequence[SessionRecord],
    packed: Sequence[PackedRecord],
    *,
    expected_version: int,
    now: float,
) -> int:
    """Add records and return the new version.

    Raises:
        SessionConflictError: the session has another version.
    """
    row = connection.execute("SELECT number, version, preview FROM sessions WHERE id = ?", (session,)).fetchone()
    number, version, preview = row if row is not None else (0, 0, "")
    if version != expected_version:
        raise SessionConflictError(
            f"session {session!r} has version {version}, not {expected_version}: somebody else wrote to it. "
            "Nothing was written; load it again."
        )
    if not records:
        return expected_version
    if row is None:
        number = _new_session(connection, session, now)
    base = number * SPAN + version
    connection.executemany(
        "INSERT INTO records (key, kind, packed, body) VALUES (?, ?, ?, ?)",
        [(base + place, kind, one.packed, one.body) for place, (kind, one) in enumerate(packed, 1)],
    )
    _keep_blobs(connection, number, [one for _, one in packed])
    starts = [version + place for place, (kind, _) in enumerate(packed) if kind == "view_replaced"]
    connection.execute(
        "UPDATE sessions SET version = ?, updated = ?, preview = ?, view_start = coalesce(?, view_start)"
        " WHERE number = ?",
        (
            version + len(records),
            now,
            preview or preview_of(records),
            starts[-1] if starts else None,
            number,
        ),
    )
    return version + len(records)


def rename(connection: sqlite3.Connection, session: str, title: str) -> None:
    """
    Raises:
        SessionError: there is no such session.
    """
    if connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (clean_text(title), session)).rowcount == 0:
        raise SessionError(f"there is no session {session!r}")


def copy(connection: sqlite3.Connection, session: str, new_session: str, *, version: int, now: float) -> None:
    """Make a session of the first records of another.

    Raises:
        SessionError: there is no such session, or one of the new id already.
    """
    row = connection.execute("SELECT number, preview FROM sessions WHERE id = ?", (session,)).fetchone()
    if row is None:
        raise SessionError(f"there is no session {session!r}")
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (new_session,)).fetchone():
        raise SessionError(f"there is a session {new_session!r} already; choose another id")
    number, preview = row
    twin = _new_session(connection, new_session, now)
    first, last = number * SPAN + 1, number * SPAN + version
    connection.execute(
        "INSERT INTO records (key, kind, packed, body)"
        " SELECT key + ?, kind, packed, body FROM records WHERE key BETWEEN ? AND ?",
        ((twin - number) * SPAN, first, last),
    )
    connection.execute("INSERT INTO blob_uses SELECT ?, blob FROM blob_uses WHERE session = ?", (twin, number))
    start = connection.execute(
        "SELECT max(key) FROM records WHERE kind = 'view_replaced' AND key BETWEEN ? AND ?", (first, last)
    ).fetchone()[0]
    connection.execute(
        "UPDATE sessions SET version = ?, preview = ?, forked_from = ?, view_start = ? WHERE number = ?",
        (version, preview, session, start - first if start else 0, twin),
    )


def delete(connection: sqlite3.Connection, session: str) -> bool:
    """Delete a session, and the blobs that nothing else uses; False if there is none."""
    row = connection.execute("SELECT number FROM sessions WHERE id = ?", (session,)).fetchone()
    if row is None:
        return False
    number = row[0]
    connection.execute("DELETE FROM records WHERE key BETWEEN ? AND ?", (number * SPAN + 1, number * SPAN + SPAN - 1))
    connection.execute(
        "DELETE FROM blobs WHERE id IN (SELECT blob FROM blob_uses WHERE session = ?)"
        " AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = blobs.id AND session <> ?)",
        (number, number),
    )
    connection.execute("DELETE FROM blob_uses WHERE session = ?", (number,))
    connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
    return True


def _new_session(connection: sqlite3.Connection, session: str, now: float) -> int:
    cursor = connection.execute("INSERT INTO sessions (id, created, updated) VALUES (?, ?, ?)", (session, now, now))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _keep_blobs(connection: sqlite3.Connection, number: int, packed: Sequence[Packed]) -> None:
    for one in packed:
        if one.blobs:
            connection.executemany(
                "INSERT OR IGNORE INTO blobs (id, content) VALUES (?, ?)",
                [(blob, text.encode()) for blob, text in one.blobs.items()],
            )
        if one.uses:
            connection.executemany(
                "INSERT OR IGNORE INTO blob_uses (session, blob) VALUES (?, ?)", [(number, use) for use in one.uses]
            )


def _kind(record: SessionRecord) -> str:
    known = known_of(record)
    return record.kind if known is None else known.kind
