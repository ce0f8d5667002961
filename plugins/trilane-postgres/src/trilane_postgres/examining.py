"""Is everything there? Reads all of it, in a thread and connection of its own, so that no run waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .place import load_driver
from .reading import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .schema import Connection

__all__ = ["problems"]

PAGE = 500  # records that are looked at together

_BEYOND = """
SELECT id, version, count(*) FROM sessions JOIN records ON session = number
WHERE position > version OR position < 1 GROUP BY number ORDER BY number
"""

_ORPHANS = "SELECT count(*) FROM records WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE number = session)"

_UNUSED = "SELECT count(*) FROM blobs WHERE NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = id)"


def problems(connection: Connection, place: str) -> list[str]:
    """What is wrong, in words."""
    error_type = load_driver().Error
    try:
        sessions = connection.execute("SELECT id, version FROM sessions ORDER BY number").fetchall()
    except error_type as error:
        if connection.closed:
            raise
        return [f"{place}: the list of sessions cannot be read: {_line(error)}; restore a backup"]
    found = [problem for session, version in sessions for problem in _problems_of(connection, session, version)]
    try:
        found += [
            f"session {session!r}: has {count} records beyond its version {version}"
            for session, version, count in connection.execute(_BEYOND)
        ]
        found += _counted(connection, _ORPHANS, "{} records belong to no session; they are harmless")
        found += _counted(connection, _UNUSED, "{} large texts belong to no session; they are harmless")
    except error_type as error:
        if connection.closed:
            raise
        found.append(f"{place}: {_line(error)}")
    return found


def _problems_of(connection: Connection, session: str, version: int) -> Iterator[str]:
    for after in range(0, version, PAGE):
        page = load(connection, session, after=after, limit=min(PAGE, version - after))
        for position, record in enumerate(page.records, after + 1):
            if record.kind == "damaged":
                yield f"session {session!r}: record {position} of {version} is damaged: {record.reason}"


def _counted(connection: Connection, statement: str, text: str) -> list[str]:
    row = connection.execute(statement).fetchone()
    return [text.format(row[0])] if row is not None and row[0] else []


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
