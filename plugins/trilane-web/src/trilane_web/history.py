"""Sessions for clients: the list of a principal's, and one with its messages, from any session store."""

from __future__ import annotations

import json
from typing import Any

from pydantic import JsonValue

from trilane import SessionStore
from trilane.sessions import CanList, known_of, pages, preview_of

from .principals import Principal

__all__ = ["is_resumable", "list_sessions", "read_session"]

MAX_RECORDS = 5000


async def list_sessions(
    store: SessionStore, principal: Principal, seen: list[str], *, limit: int
) -> list[dict[str, JsonValue]]:
    """The principal's sessions, the one written to last first.

    Args:
        store: Where they live.
        principal: Whose.
        seen: Sessions that are known anyway, newest last, for stores that cannot list.
        limit: At most so many.
    """
    if not isinstance(store, CanList):
        return [await _described(store, session) for session in reversed(seen[-limit:])]
    found: list[dict[str, JsonValue]] = []
    offset = 0
    while len(found) < limit:
        batch = await store.list_sessions(limit=200, offset=offset)
        offset += len(batch)
        found += [json.loads(info.to_json()) for info in batch if principal.owns(info.id)]
        if len(batch) < 200:
            break
    return found[:limit]


async def _described(store: SessionStore, session: str) -> dict[str, JsonValue]:
    page = await store.load(session, limit=5)
    return {"id": session, "title": "", "version": page.version, "preview": preview_of(page.records)}


class _Reading:
    """Folds the records of a session into what a person wants to see of it."""

    def __init__(self, without_run: str) -> None:
        self.messages: list[dict[str, Any]] = []
        self.results: dict[str, Any] = {}
        self.status = ""
        self.unread = 0
        self._without_run = without_run

    def apply(self, record: Any) -> None:
        known = known_of(record)
        if known is None:
            self.unread += 1
            return
        if known.kind == "run_ended":
            self.status = known.status
            return
        if known.kind == "view_replaced":  # a compaction, or one taken back, leaves no run to take up
            return
        self.status = ""
        if known.run_id == self._without_run:
            return
        if known.kind == "message":
            self.messages.append(json.loads(known.message.to_json()))
        elif known.kind == "call_finished":
            self.results[known.result.call_id] = json.loads(known.result.to_json())
        elif known.kind == "message_hidden":
            self.messages = [message for message in self.messages if message["id"] != known.message_id]


async def read_session(store: SessionStore, session: str, *, without_run: str = "") -> dict[str, Any] | None:
    """A session with its messages and results; None if nothing was ever written to it.

    Args:
        store: Where it lives.
        session: Its id.
        without_run: A run whose records are left out, because its events are watched.
    """
    reading = _Reading(without_run)
    version = (await store.load(session, limit=0)).version
    if not version:
        return None
    after = max(0, version - MAX_RECORDS)
    async for page in pages(store, session, after=after):
        for record in page.records:
            reading.apply(record)
    return {
        "id": session,
        "version": version,
        "truncated": after > 0,
        "messages": reading.messages,
        "results": reading.results,
        "status": reading.status,
        "resumable": _resumable(reading.status),
    }


def _resumable(status: str) -> bool:
    return status in ("", "suspended", "cancelled", "failed", "timed_out")


async def is_resumable(store: SessionStore, session: str) -> bool:
    """True if the last run of a session did not complete."""
    version = (await store.load(session, limit=0)).version
    if not version:
        return False
    page = await store.load(session, after=version - 1)
    known = known_of(page.records[-1])
    return known is not None and (known.kind != "run_ended" or _resumable(known.status))
