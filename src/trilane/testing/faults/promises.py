"""What is told is stored by then: which record an event or a notification tells of, and whether the store has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trilane import InMemoryStore
from trilane.events import MessageAppendedEvent, QuestionClosedEvent, QuestionOpenedEvent
from trilane.messages import ToolMessage

from .stage import Stage

__all__ = ["StageMemory", "keep", "told_of"]


def told_of(told: Any) -> list[tuple[str, str]]:
    """Kind and key of the records that an event of the stream, or a notification, tells of."""
    match getattr(told, "type", ""):
        case "user_message_added":
            return [("message", told.message.id)]
        case "message_completed":
            gone = told.superseded or not told.message.parts  # such a message is in no history
            return [] if gone else [("message", told.message.id)]
        case "tool_started":
            return [("call_started", told.call.id)]
        case "tool_completed":
            return [("call_finished", told.call.id)]
        case "reply_requested":
            return [("question", told.question.id)]
        case "reply_received":
            return [("question_closed", told.question_id)]
    if isinstance(told, MessageAppendedEvent):
        if isinstance(told.message, ToolMessage):  # it consists of the results, which are stored one by one
            return [("call_finished", result.call_id) for result in told.message.results]
        return [("message", told.message.id)]
    if isinstance(told, QuestionOpenedEvent):
        return [("question", told.question.id)]
    if isinstance(told, QuestionClosedEvent):
        return [("question_closed", told.question_id)]
    return []


def keep(stage: Stage, records: Iterable[Any]) -> None:
    """The store has these records now."""
    for record in records:
        match record.kind:
            case "message":
                key = record.message.id
            case "call_started":
                key = record.call_id
            case "call_finished":
                key = record.result.call_id
            case "question":
                key = record.question.id
            case "question_closed":
                key = record.question_id
            case _:
                continue
        stage.stored.add((record.kind, key))


class StageMemory(InMemoryStore):
    """The default store, which tells the stage what it has."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def append_now(self, session: str, records: Any, *, expected_version: int) -> int:
        """Add all records or none."""
        version = super().append_now(session, records, expected_version=expected_version)
        keep(self._stage, records)
        return version
