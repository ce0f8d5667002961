"""What deciding hooks return. How decisions are combined is in `_dispatch.py` and `_batch.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ._records import Record
from .messages import Approval, Message, ToolResult

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = [
    "Allow",
    "AnswerDecision",
    "Ask",
    "CompactedHistory",
    "Deny",
    "Reject",
    "Replace",
    "RetryModel",
    "Rewrite",
    "SendBack",
    "ToolDecision",
    "UseResult",
]


class Allow(Record):
    """From `decide_tool`: run the call. The same as returning None."""


class Deny(Record):
    """From `decide_tool`: do not run the call; the model is told `reason`."""

    reason: str


class Rewrite(Record):
    """From `decide_tool`: run the call with these arguments. Every plugin is asked again about them."""

    arguments: Mapping[str, JsonValue]


class UseResult(Record):
    """From `decide_tool`: do not run the call, this is its result (a cached one, say)."""

    result: ToolResult


class Ask(Record):
    """From `decide_tool`: ask outside before the call runs. The reply validates as `schema`."""

    prompt: str
    schema: Any = Approval


class Replace(Record):
    """From `on_answer`: give the caller this output instead. Every plugin is asked again about it."""

    output: Any


class SendBack(Record):
    """From `on_answer`: return to the model with this feedback, at most `Limits.answer_retries` times."""

    feedback: str


class RetryModel(Record):
    """From `on_model_error`: call the model again after so many seconds."""

    after_seconds: float = 0.0


class Reject(Record):
    """From `on_reply`: do not take this reply; the question stays open and the sender is told `reason`."""

    reason: str


class CompactedHistory(Record):
    """From `on_compact`: what models see from now on. The stored history is not changed."""

    messages: tuple[Message, ...]
    reason: str = ""


ToolDecision: TypeAlias = Allow | Deny | Rewrite | UseResult | Ask
AnswerDecision: TypeAlias = Replace | SendBack
