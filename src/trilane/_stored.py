"""Where a session stands, read from its records: calls that had started, open questions, replies that had come.

What a resumed run does about it is in `_resume.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Core
    from .messages import UserMessage
    from .stores import SessionRecord

__all__ = ["StoredPoint", "find_point", "stored_question_id", "stored_reply"]


class StoredPoint:
    """What the records since the last run that ended say about the run to continue.

    Attributes:
        request: The request of the run, for its `RunStarted` event.
        started: How often each call had started, by call id.
        questions: Open questions of calls, by call id, in the order in which they were asked.
        replies: Replies that were stored, by call id, in order.
        turns: Turns the suspended run had begun.
    """

    __slots__ = ("questions", "replies", "request", "started", "turns")

    def __init__(self) -> None:
        self.request: UserMessage | None = None
        self.started: dict[str, int] = {}
        self.questions: dict[str, list[dict[str, Any]]] = {}
        self.replies: dict[str, list[tuple[str, Any]]] = {}
        self.turns = 0


def find_point(records: Sequence[SessionRecord]) -> StoredPoint:
    """Read what a resumed run must know besides its history."""
    point = StoredPoint()
    asked: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.kind == "message":
            if record.message.kind == "user" and record.message.origin == "request":
                point.request = record.message
            # A new message closes everything that was about the calls of an earlier one.
            point.started, point.questions, point.replies, asked = {}, {}, {}, {}
        elif record.kind == "call_started":
            point.started[record.call_id] = max(point.started.get(record.call_id, 0), record.attempt)
        elif record.kind == "question":
            call = record.question.get("call")
            call_id = str(call["id"]) if isinstance(call, dict) else ""
            asked[str(record.question["id"])] = record.question
            others = [one for one in point.questions.get(call_id, ()) if one["id"] != record.question["id"]]
            point.questions[call_id] = [*others, record.question]  # asked again after a restart: the same question
        elif record.kind == "question_closed":
            question = asked.get(record.question_id)
            call = question.get("call") if question else None
            if question is None or not isinstance(call, dict):
                continue
            call_id = str(call["id"])
            if record.status == "accepted":
                point.replies.setdefault(call_id, []).append((str(question["kind"]), record.payload))
            point.questions[call_id] = [one for one in point.questions[call_id] if one["id"] != record.question_id]
        elif record.kind == "run_ended":
            point.turns = record.turns if record.status == "suspended" else 0
    return point


def stored_reply(core: Core, call_id: str, ordinal: int) -> tuple[bool, Any]:
    """The reply to the `ordinal`-th question that a tool asked before it was cut off: (is there one, its payload)."""
    point = core.point
    if point is None:
        return False, None
    replies = [payload for kind, payload in point.replies.get(call_id, ()) if kind == "question"]
    if ordinal <= len(replies):
        return True, replies[ordinal - 1]
    return False, None


def stored_question_id(core: Core, call_id: str) -> str:
    """The id of the question a tool was waiting for when it was cut off, so that a reply to it still arrives."""
    point = core.point
    if point is None:
        return ""
    waiting = [one for one in point.questions.get(call_id, ()) if one.get("kind") == "question"]
    if not waiting:
        return ""
    point.questions[call_id].remove(waiting[0])
    return str(waiting[0]["id"])
