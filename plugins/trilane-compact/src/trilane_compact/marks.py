"""What this plugin writes into messages: that one is pinned, and that one is a summary.

Both are in the `extra` of a text part, which is stored with the message and which no provider is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trilane import TextPart, UserMessage
from trilane.messages import clean_text, new_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import JsonValue

    from trilane import Message

__all__ = ["is_pinned", "is_summary", "pinned", "stands_for", "summary_message", "summary_of", "view_length"]

_KEY = "compact"


def pinned(text: str) -> UserMessage:
    """A request that no compaction takes away: `agent.run(pinned("Never touch the folder `live`."))`."""
    part = TextPart(text=clean_text(text), extra={_KEY: {"pinned": True}})
    return UserMessage(id=new_id(), parts=(part,))


def is_pinned(message: Message) -> bool:
    """True for words of the host, and for what `pinned` made."""
    return message.kind == "system" or bool(_mark(message).get("pinned"))


def summary_message(summary: str, *, stands_for: int, view_length: int) -> UserMessage:
    """The message that stands for so many others, in a view that has `view_length` messages with it."""
    heading = (
        f"[Summary of {stands_for} earlier messages of this conversation, which are stored, but not shown any more: "
        "what was said and done so far, also about the last request. It is no request itself.]"
    )
    mark: JsonValue = {"summary": True, "stands_for": stands_for, "view": view_length}
    return UserMessage(id=new_id(), parts=(TextPart(text=f"{heading}\n\n{summary}", extra={_KEY: mark}),))


def is_summary(message: Message) -> bool:
    """True for what `summary_message` made."""
    return bool(_mark(message).get("summary"))


def summary_of(message: Message) -> str:
    """What such a message says, without its heading."""
    return message.text.partition("\n\n")[2] if message.kind == "user" else ""


def stands_for(message: Message) -> int:
    """How many messages it is or stands for."""
    return _number(message, "stands_for") or 1


def view_length(messages: Sequence[Message]) -> int:
    """How many of the messages were there when they were compacted; 0 if they were not."""
    for message in messages:
        if is_summary(message):
            return _number(message, "view")
    return 0


def _number(message: Message, name: str) -> int:
    number = _mark(message).get(name)
    return number if isinstance(number, int) else 0


def _mark(message: Message) -> dict[str, Any]:
    if message.kind != "user":
        return {}
    for part in message.parts:
        extra = part.extra
        if isinstance(extra, dict) and isinstance(mark := extra.get(_KEY), dict):
            return mark
    return {}
