"""The stored sessions, as a chat sees them: which there are, which was last, and where one stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .text import columns, count, id_text, one_line

if TYPE_CHECKING:
    from trilane.sessions import SessionInfo
    from trilane.stores import SessionStore

__all__ = ["SessionState", "known_sessions", "session_lines", "where_it_stands"]

MOST = 20


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a session stands.

    Attributes:
        is_new: True if nothing was ever said on it.
        is_cut_off: True if its last run did not end with an answer, so that it can be resumed.
        text: All that in words.
    """

    is_new: bool
    is_cut_off: bool
    text: str


async def known_sessions(store: SessionStore) -> Sequence[SessionInfo]:
    """The sessions of a store, the one written to last first; none if it cannot list them."""
    from trilane.sessions import CanList

    return await store.list_sessions(limit=MOST) if isinstance(store, CanList) else ()


def session_lines(sessions: Sequence[SessionInfo], current: str) -> list[str]:
    """One line for each session; the current one is marked."""
    if not sessions:
        return ["no sessions are stored"]
    rows = [["", "SESSION", "LAST USED", "ABOUT"]]
    for session in sessions:
        when = session.updated.astimezone().strftime("%Y-%m-%d %H:%M") if session.updated is not None else "-"
        mark = "*" if session.id == current else ""
        rows.append([mark, id_text(session.id), when, one_line(session.title or session.preview, 60) or "-"])
    return columns(rows)


async def where_it_stands(store: SessionStore, session: str) -> SessionState:
    """Look at the records of a session."""
    from trilane._stored import StoredPoint
    from trilane.sessions import known_of, pages

    requests, last, point = 0, "", StoredPoint()
    async for page in pages(store, session):
        for record in page.records:
            point.apply(record)
            known = known_of(record)
            if known is not None and known.kind == "message" and known.message.kind == "user":
                requests += 1
                last = known.message.text
    if not requests:
        return SessionState(True, False, "new")
    text = f"{count(requests, 'message')} of yours, the last: {one_line(last, 80)}"
    if point.is_answered:
        return SessionState(False, False, text)
    how = {
        "suspended": "was put aside",
        "timed_out": "timed out",
        "failed": "failed",
        "cancelled": "was cancelled",
    }.get(point.status, "was cut off")
    return SessionState(False, True, f"{text}\nits last run {how}; /resume takes it up")
