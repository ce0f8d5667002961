"""Where a session stands, read from its records: calls that had started, open questions, replies that had come.

What a resumed run does about it is in `_resume.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Core
    from .events import Question
    from .messages import UserMessage
    from .stores import QuestionStored, SessionRecord

__all__ = ["StoredPoint", "stored_question_id", "stored_reply"]


class StoredPoint:
    """What the records since the last message say about the run to continue.

    Questions are found again by the id of their call and their ordinal: 0 for one about the call itself (its approval,
    its result from outside), 1 and up for those that its tool asks.

    Attributes:
        request: The request of the run, for its `RunStarted` event.
        started: How often each call had started, by call id.
        unsafe: Ids of calls that were started with the effect `unsafe`, whatever their tool says now.
        questions: Open questions by call id and ordinal.
        replies: Replies that were stored, by call id and ordinal: the kind of the question, and the payload.
        turns: Model calls that were answered since the request.
        status: How the last run ended; empty if it was cut off, or none has ended.
        is_empty: True if nothing was said yet.
        is_answered: True if the last run has completed: there is nothing to resume. A compaction does not count.
    """

    __slots__ = (
        "_asked",
        "is_answered",
        "is_empty",
        "questions",
        "replies",
        "request",
        "started",
        "status",
        "turns",
        "unsafe",
    )

    def __init__(self) -> None:
        self.request: UserMessage | None = None
        self.turns = 0
        self.status = ""
        self.is_empty = True
        self.is_answered = False
        self._forget_calls()

    def _forget_calls(self) -> None:
        self.started: dict[str, int] = {}
        self.unsafe: set[str] = set()
        self.questions: dict[tuple[str, int], Question] = {}
        self.replies: dict[tuple[str, int], tuple[str, Any]] = {}
        self._asked: dict[str, tuple[str, int]] = {}

    def apply(self, record: SessionRecord) -> None:
        """Read one more record."""
        if record.kind == "newer":
            if record.known is None:
                return
            record = record.known
        if record.kind == "run_tape":
            return
        if record.kind == "run_ended":
            self.status = record.status
            if record.turns:  # a compaction has none
                self.is_answered = record.status == "completed"
            return
        self.status = ""
        if record.kind == "view_replaced":
            self.is_empty = False
        if record.kind == "message":
            self.is_empty = self.is_answered = False
            if record.message.kind == "user" and record.message.origin == "request":
                self.request = record.message
                self.turns = 0
            elif record.message.kind == "assistant" and not record.message.interrupted:
                self.turns += 1
            self._forget_calls()  # a new message closes everything that was about the calls of an earlier one
        elif record.kind == "call_withdrawn":
            self.started.pop(record.call_id, None)
            self.unsafe.discard(record.call_id)
        elif record.kind == "call_started":
            self.started[record.call_id] = max(self.started.get(record.call_id, 0), record.attempt)
            if record.effect == "unsafe":
                self.unsafe.add(record.call_id)
        elif record.kind == "question":
            self._open(record)
        elif record.kind == "question_closed":
            place = self._asked.get(record.question_id)
            if place is None:
                return
            question = self.questions.pop(place, None)
            if record.status == "accepted" and question is not None:
                self.replies[place] = (question.kind, record.reply)

    def _open(self, record: QuestionStored) -> None:
        question = record.question
        place = ("" if question.call is None else question.call.id, record.ordinal)
        self.questions[place] = question  # asked again after a restart, it takes the place of the earlier one
        self._asked[question.id] = place


def stored_reply(core: Core, call_id: str, ordinal: int) -> tuple[bool, Any]:
    """The reply to the `ordinal`-th question that a tool asked before it was cut off: (is there one, its payload)."""
    point = core.point
    if point is None or (call_id, ordinal) not in point.replies:
        return False, None
    return True, point.replies[call_id, ordinal][1]


def stored_question_id(core: Core, call_id: str, ordinal: int) -> str:
    """The id of the question a tool was waiting for when it was cut off, so that a reply to it still arrives.

    It is given out once: a question that a retry of the tool asks again in the same run is another one.
    """
    point = core.point
    if point is None:
        return ""
    question = point.questions.pop((call_id, ordinal), None)
    return "" if question is None else question.id
