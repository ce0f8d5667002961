"""The statements that read: records, lists, searches. What cannot be read of a damaged database is isolated.

They run in the threads of a pool.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from trilane.errors import SessionError
from trilane.sessions import SearchHit, SessionInfo, hits_in
from trilane.stores import DamagedRecord, SessionPage, record_from_json
from trilane.storing import PLAIN, DroppedError, unpack

from .place import load_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trilane.stores import SessionRecord

    from .pool import PostgresJob
    from .schema import Connection

__all__ = ["ODD_LETTERS", "infos", "load", "read_blob", "search", "view_start"]

_INFO = "SELECT id, title, version, created, updated, preview, forked_from FROM sessions"

# One statement sees one moment: the version and the records fit.
_LOAD = """
SELECT sessions.number, sessions.version, position, packed, body FROM sessions
LEFT JOIN records ON session = number AND position > %s AND position <= least(%s, version)
WHERE id = %s ORDER BY position
"""

_SEARCH = """
SELECT id, title, position, packed, body FROM sessions JOIN records ON session = number
WHERE kind IN ('message', 'call_finished')
AND (packed <> 0 OR body COLLATE "C" ILIKE %s OR body COLLATE "C" ~ %s)
ORDER BY updated DESC, number DESC, position
"""

FETCH = 200  # records of a search that are fetched together

#: Letters outside ASCII whose casefolded form has letters of ASCII in it: ß is ss. The server, which compares without
#: any locale, cannot know that; where they occur we look ourselves.
ODD_LETTERS = "ßİŉſǰẖẗẘẙẚẞ\N{KELVIN SIGN}ﬀﬁﬂﬃﬄﬅﬆ"


def load(connection: Connection, session: str, *, after: int, limit: int | None) -> SessionPage:
    """Records of a session, with a `DamagedRecord` in the place of each that cannot be read."""
    last = 2**31 - 1 if limit is None else after + limit
    found: dict[int, SessionRecord] = {}
    try:
        rows = connection.execute(_LOAD, (after, last, session)).fetchall()
        if not rows:
            return SessionPage(records=(), version=0)
        number, version = rows[0][:2]
        for _, _, position, packed, body in rows:
            if position is not None:
                found[position] = _record(connection, packed, body)
    except (load_driver().Error, UnicodeDecodeError) as error:
        if not _is_damage(error):
            raise
        number, version = _numbers(connection, session)
        found = _one_by_one(connection, number, range(after + 1, min(last, version) + 1))
    positions = range(after + 1, min(last, version) + 1)
    records = tuple([found.get(position) or _missing(position) for position in positions])
    return SessionPage(records=records, version=version)


def _is_damage(error: Exception) -> bool:
    """True for what the server, or we, cannot make sense of in what is stored; no lost connection, no time-out."""
    return isinstance(error, UnicodeDecodeError) or (getattr(error, "sqlstate", None) or "")[:2] in ("XX", "22", "58")


def _numbers(connection: Connection, session: str) -> tuple[int, int]:
    row = connection.execute("SELECT number, version FROM sessions WHERE id = %s", (session,)).fetchone()
    return (0, 0) if row is None else (row[0], row[1])


def _one_by_one(connection: Connection, number: int, positions: range) -> dict[int, SessionRecord]:
    """A part of the database is damaged: each record that is elsewhere can still be found by its key."""
    found: dict[int, SessionRecord] = {}
    for position in positions:
        try:
            row = connection.execute(
                "SELECT packed, body FROM records WHERE session = %s AND position = %s", (number, position)
            ).fetchone()
            if row is not None:
                found[position] = _record(connection, *row)
        except (load_driver().Error, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise
            found[position] = DamagedRecord(
                raw="", reason=f"record {position} is in a damaged part of the database: {error}"
            )
    return found


def _missing(position: int) -> DamagedRecord:
    return DamagedRecord(raw="", reason=f"record {position} is missing from the database")


def _record(connection: Connection, packed: int, body: str) -> SessionRecord:
    if packed == PLAIN:
        return record_from_json(body)
    try:
        return record_from_json(unpack(body, packed, lambda blob: read_blob(connection, blob)))
    except (ValueError, KeyError, TypeError, RecursionError, SessionError) as error:
        return DamagedRecord(raw=body, reason=f"a part of it is gone: {error}")


def read_blob(connection: Connection, blob: str) -> str:
    """
    Raises:
        SessionError: there is none of that id.
    """
    row = connection.execute("SELECT content FROM blobs WHERE id = %s", (blob,), binary=True).fetchone()
    if row is None:
        raise SessionError(f"there is no blob {blob!r}; it belonged to a session that was deleted, or was never stored")
    return bytes(row[0]).decode("utf-8", "replace")


def view_start(connection: Connection, session: str) -> int:
    """The version before the last compaction, 0 without one."""
    row = connection.execute("SELECT view_start FROM sessions WHERE id = %s", (session,)).fetchone()
    start: int = 0 if row is None else row[0]
    return start


def infos(
    connection: Connection, *, session: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SessionInfo]:
    """One session, or all, the one written to last first."""
    if session is not None:
        rows = connection.execute(f"{_INFO} WHERE id = %s", (session,))
    else:
        rows = connection.execute(f"{_INFO} ORDER BY updated DESC, number DESC LIMIT %s OFFSET %s", (limit, offset))
    return [
        SessionInfo(
            id=id,
            title=title,
            version=version,
            created=created,
            updated=updated,
            preview=preview,
            forked_from=forked_from,
        )
        for id, title, version, created, updated, preview, forked_from in rows
    ]


def search(connection: Connection, job: PostgresJob[list[SearchHit]], text: str, *, limit: int) -> list[SearchHit]:
    """Where a text occurs. The server looks through the records; only those that may have it are fetched."""
    hits: list[SearchHit] = []
    wanted = text.casefold()
    if not wanted or limit < 1:
        return hits
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        for session, title, position, packed, body in _candidates(connection, wanted):
            if job.dropped:
                raise DroppedError
            record = _record(connection, packed, body)
            hits += hits_in(record, text, session=session, title=title, position=position)
            if len(hits) >= limit:
                break
    finally:
        if not connection.closed:
            connection.execute("ROLLBACK")
    return hits[:limit]


def _candidates(connection: Connection, wanted: str) -> Iterator[tuple[str, str, int, int, str]]:
    with connection.cursor(name="trilane_search") as cursor:
        cursor.itersize = FETCH
        cursor.execute(_SEARCH, (_pattern(wanted), f"[{ODD_LETTERS}]"))
        yield from cursor


def _pattern(wanted: str) -> str:
    """What the JSON of a record with that text matches: letters outside ASCII may be any, for their case is unknown."""
    escaped = json.dumps(wanted, ensure_ascii=False)[1:-1]
    escaped = re.sub(r"[\\%_]", lambda found: "\\" + found[0], escaped)
    return "%" + re.sub(r"[^\x00-\x7f]+", "%", escaped) + "%"
