"""`trilane sessions doctor`: where a session stands, what resuming it would do, and what is damaged, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane._stored import StoredPoint
from trilane.stores import SessionView

from .sessions_store import find_session
from .text import call_text, count, id_text, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trilane.events import Question
    from trilane.messages import ToolCall
    from trilane.stores import SessionRecord, SessionStore

__all__ = ["examine", "explain"]

WIDTH = 100


async def examine(store: SessionStore, session: str) -> tuple[list[str], bool]:
    """What is to be said of a session, or of the whole store, and whether all of it can be read."""
    if session:
        info = await find_session(store, session)
        from trilane.sessions import pages

        records: list[SessionRecord] = []
        async for page in pages(store, info.id):
            records += page.records
        lines = [f"session {id_text(info.id)}", *explain(records), *await _owner(store, info.id)]
        return lines, not any(record.kind == "damaged" for record in records)
    from trilane.sessions import CanCheck, CanList

    lines = []
    problems = list(await store.check()) if isinstance(store, CanCheck) else []
    lines += problems
    if isinstance(store, CanList):
        sessions = await store.list_sessions()
        lines.append(f"{count(len(sessions), 'session')}, {count(sum(info.version for info in sessions), 'record')}")
    lines.append("restore a backup, or export what can be read" if problems else "all of the store can be read")
    return lines, not problems


async def _owner(store: SessionStore, session: str) -> list[str]:
    """Who works on it now: whoever has the lease."""
    from trilane.errors import SessionBusyError

    try:
        async with store.lease(session, ttl_seconds=5):
            return []
    except SessionBusyError as error:
        return [f"now: {error}"]


def explain(records: list[SessionRecord]) -> list[str]:
    """Where a session stands."""
    view, point = SessionView(), StoredPoint()
    runs: dict[str, int] = {}
    lines: list[str] = []
    for position, record in enumerate(records, 1):
        view.apply(record)
        point.apply(record)
        if record.kind == "run_ended":
            runs[record.status] = runs.get(record.status, 0) + 1
        elif record.kind == "damaged":
            lines.append(f"record {position} is damaged: {one_line(record.reason, WIDTH)}")
        elif record.kind == "newer":
            lines.append(f"record {position} was written by a later release; {_understood(record.known is not None)}")
    ended = ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in runs.items()) or "none"
    return [
        f"{count(len(records), 'record')}; models see {count(len(view.log), 'message')}; runs that ended: {ended}",
        *lines,
        *_state(view, point),
    ]


def _understood(known: bool) -> str:
    return "what is known of it is used" if known else "it is kept and not used"


def _state(view: SessionView, point: StoredPoint) -> Iterator[str]:
    last = view.log[-1] if view.log else None
    if view.unanswered is not None:
        yield _how_it_ended(point.status) + " while tools were called; resuming it:"
        for call in view.unanswered.calls:
            yield f"  {call_text(call, 60)}: {_fate(call, view, point)}"
    elif last is None:
        yield "nothing was said yet; there is nothing to resume"
    elif point.is_answered:
        yield "the last run has completed; there is nothing to resume"
    elif last.kind == "assistant" and not last.interrupted:
        yield f"{_how_it_ended(point.status)} after the answer was stored; resuming it ends the run with that answer"
    else:
        yield f"{_how_it_ended(point.status)} before the model had answered; resuming it asks the model again"


def _how_it_ended(status: str) -> str:
    if not status:
        return "the last run was cut off"
    if status == "suspended":
        return "the last run was put aside"
    return f"the last run {'failed' if status == 'failed' else 'was ' + status.replace('_', ' ')}"


def _fate(call: ToolCall, view: SessionView, point: StoredPoint) -> str:
    if call.id in view.results:
        return f"its result is stored ({view.results[call.id].outcome}) and stays"
    kind, _ = point.replies.get((call.id, 0), ("", None))
    if kind == "external_tool":
        return "its result came from outside and is taken"
    attempts = point.started.get(call.id, 0)
    asked = point.questions.get((call.id, 0))
    if asked is not None:
        return f"waits for a reply to {_prompt(asked)}, which is asked again under its id"
    inside = [question for (owner, ordinal), question in point.questions.items() if owner == call.id and ordinal]
    if not attempts and kind == "approval":
        return "was approved, and runs if that still holds"
    if not attempts:
        return "had not started, and is decided again"
    if call.id in point.unsafe:
        return (
            "had started and may not run twice: its reconcile decides, or the model is told that its effect is unknown"
        )
    text = f"had started {count(attempts, 'time')} and is safe to repeat: it runs again with the same key"
    return f"{text}; its question {_prompt(inside[0])} is asked again" if inside else text


def _prompt(question: Question) -> str:
    return f"“{one_line(question.prompt, 60)}”"
