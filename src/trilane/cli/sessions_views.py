"""What `trilane sessions list` and `show` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .console import UsageError
from .sessions_store import find_session
from .text import call_text, columns, content_text, id_text, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from trilane.messages import Message
    from trilane.stores import SessionRecord, SessionStore

__all__ = ["found_lines", "listed_lines", "shown_lines", "when"]

WIDTH = 100


async def listed_lines(store: SessionStore, limit: int, json_lines: bool) -> list[str]:
    """One line for each session."""
    from trilane.sessions import CanList

    if not isinstance(store, CanList):
        raise UsageError("this store cannot list its sessions")
    sessions = await store.list_sessions(limit=limit)
    if json_lines:
        return [info.to_json() for info in sessions]
    if not sessions:
        return ["no session is stored yet"]
    rows = [["SESSION", "LAST USED", "RECORDS", "ABOUT"]]
    for info in sessions:
        about = one_line(info.title or info.preview, 60) or "-"
        rows.append([id_text(info.id), when(info.updated), str(info.version), about])
    return columns(rows, right=(2,))


async def found_lines(store: SessionStore, text: str, limit: int, json_lines: bool) -> list[str]:
    """One line for each place where a text occurs."""
    from trilane.messages import clean_text
    from trilane.sessions import CanSearch

    if not isinstance(store, CanSearch):
        raise UsageError("this store cannot search its sessions")
    hits = await store.search_sessions(clean_text(text), limit=limit)
    if json_lines:
        return [hit.to_json() for hit in hits]
    if not hits:
        return [f"{one_line(text, 60)!r} was found nowhere"]
    rows = [["SESSION", "MESSAGE", "TEXT"]]
    rows += [[id_text(hit.session), id_text(hit.message_id), one_line(hit.excerpt, WIDTH)] for hit in hits]
    return columns(rows)


async def shown_lines(store: SessionStore, session: str, full: bool) -> list[str]:
    """The records of a session, for reading."""
    from trilane.sessions import pages

    info = await find_session(store, session)
    lines = [f"session {id_text(info.id)}" + (f": {one_line(info.title, WIDTH)}" if info.title else "")]
    if info.forked_from:
        lines.append(f"forked from {id_text(info.forked_from)}")
    position = 0
    async for page in pages(store, info.id):
        for record in page.records:
            position += 1
            lines += _about(record, position, full)
    return lines


def when(moment: datetime | None) -> str:
    """A time on the user's clock."""
    return "-" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M")


def _about(record: SessionRecord, position: int, full: bool) -> Iterator[str]:
    from trilane.sessions import known_of

    if record.kind == "damaged":
        yield f"  record {position} is damaged: {one_line(record.reason, WIDTH)}"
        return
    known = known_of(record)
    if known is None:
        yield f"  record {position} was written by a later release"
    elif known.kind == "message":
        yield from _message(known.message, full)
    elif known.kind == "call_finished":
        result = known.result
        yield f"  result of {id_text(result.call_id)} ({result.outcome}):"
        yield from _indented(content_text(result), full)
    elif known.kind == "message_hidden":
        yield f"  message {id_text(known.message_id)} is hidden from models: {one_line(known.reason, WIDTH)}"
    elif known.kind == "message_waiting":
        yield f"  said, for the next run to hear: {one_line(known.message.text, WIDTH)}"
    elif known.kind == "view_replaced":
        yield f"  from here on models see {len(known.messages)} messages instead: {one_line(known.reason, WIDTH)}"
    elif known.kind == "question":
        yield f"  asked: {one_line(known.question.prompt, WIDTH)}"
    elif known.kind == "question_closed":
        yield f"  reply: {known.status}"
    elif known.kind == "run_ended":
        yield f"  run {known.status}"


def _message(message: Message, full: bool) -> Iterator[str]:
    who = {"user": "you", "assistant": "agent"}.get(message.kind, message.kind)
    marks = " (interrupted)" if message.kind == "assistant" and message.interrupted else ""
    yield f"{who}{marks} [{id_text(message.id)}]"
    if message.kind == "tool":
        for result in message.results:
            yield from _indented(content_text(result), full)
        return
    if message.kind == "system":
        yield from _indented(message.text, full)
        return
    for part in message.parts:
        if part.kind == "text":
            yield from _indented(part.text, full)
        elif part.kind == "tool_call":
            yield f"  calls {call_text(part.call, limit=10_000 if full else WIDTH)} [{id_text(part.call.id)}]"
        elif part.kind in ("image", "audio", "file"):
            yield f"  [{part.kind}: {visible(part.media_type)}]"


def _indented(text: str, full: bool) -> Iterator[str]:
    if not full:
        yield f"  {one_line(text, WIDTH)}"
        return
    for line in visible(text).splitlines() or [""]:
        yield f"  {line}"
