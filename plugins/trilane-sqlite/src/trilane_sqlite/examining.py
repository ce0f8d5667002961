"""Is the file whole, and copies of it. In a thread and connection of their own, so that no run waits for them."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

from trilane.errors import SessionError

from .reading import load
from .schema import SPAN

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["back_up", "problems"]

PAGE = 500  # records that are looked at together


def problems(connection: sqlite3.Connection, path: str) -> list[str]:
    """What is wrong with the file, in words."""
    found = []
    try:
        rows = connection.execute("PRAGMA integrity_check(20)").fetchall()
        found += [f"{path}: {row[0]}" for row in rows if row[0] != "ok"]
    except sqlite3.DatabaseError as error:
        found.append(f"{path}: {error}")
    try:
        sessions = connection.execute("SELECT number, id, version FROM sessions ORDER BY number").fetchall()
    except sqlite3.DatabaseError as error:
        return [*found, f"{path}: the list of sessions cannot be read: {error}; restore a backup"]
    for number, session, version in sessions:
        found += _problems_of(connection, number, session, version)
    return found


def _problems_of(connection: sqlite3.Connection, number: int, session: str, version: int) -> Iterator[str]:
    for after in range(0, version, PAGE):
        try:
            page = load(connection, session, after=after, limit=PAGE)
        except sqlite3.DatabaseError as error:
            yield f"session {session!r}: records {after + 1} to {min(version, after + PAGE)} cannot be read: {error}"
            continue
        for position, record in enumerate(page.records, after + 1):
            if record.kind == "damaged":
                yield f"session {session!r}: record {position} of {version} is damaged: {record.reason}"
    try:
        beyond = connection.execute(
            "SELECT count(*) FROM records WHERE key BETWEEN ? AND ?",
            (number * SPAN + version + 1, number * SPAN + SPAN - 1),
        ).fetchone()[0]
    except sqlite3.DatabaseError:
        return
    if beyond:
        yield f"session {session!r}: has {beyond} records beyond its version {version}"


def back_up(connection: sqlite3.Connection, path: str, target: str) -> None:
    """Write a copy of the file as it is at one moment. Others may write meanwhile.

    Raises:
        SessionError: the target exists, or cannot be written.
    """
    target = os.path.abspath(os.path.expanduser(target))
    if os.path.exists(target):
        raise SessionError(f"{target} exists; a backup never replaces a file, choose another name")
    unfinished = f"{target}.unfinished-{os.getpid()}"
    try:
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection.execute("VACUUM INTO ?", (unfinished,))
        os.link(unfinished, target)  # as a rename, but never over a file
    except FileExistsError as error:
        raise SessionError(f"{target} exists; a backup never replaces a file, choose another name") from error
    except (OSError, sqlite3.OperationalError) as error:
        raise SessionError(
            f"the backup of {path} to {target} failed: {error}; the sessions are as they were"
        ) from error
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
