"""How many tokens a message has: an estimate from its characters, without a tokenizer and without a network.

Tokenizers differ from model to model by a third; the estimate errs on the high side, because too early costs less than
too late. What a provider reports of its own counting is preferred where there is any, see `gauge.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trilane import Message
    from trilane.messages import MediaPart, ToolResult

__all__ = ["MEDIA_TOKENS", "tokens_of", "tokens_of_all", "tokens_of_text"]

MEDIA_TOKENS = 1500
"""An image, or whatever is only a link: about what the large providers count for a picture of a million pixels."""

_MESSAGE_TOKENS = 4  # role and borders
_CALL_TOKENS = 8
_ASCII_CHARACTERS = 3.6  # English prose has 4 to 4.5 characters in a token, code and JSON 3 to 3.5
_OTHER_BYTES = 2.8  # UTF-8 bytes: Cyrillic or Greek some 4, Chinese or Japanese 2.5 to 3


def tokens_of_text(text: str) -> int:
    """About how many tokens a text has; 0 for an empty one."""
    if text.isascii():
        return round(len(text) / _ASCII_CHARACTERS + 0.5) if text else 0
    characters = len(text.encode("ascii", "ignore"))
    others = len(text.encode("utf-8", "surrogatepass")) - characters
    return round(characters / _ASCII_CHARACTERS + others / _OTHER_BYTES + 0.5)


def tokens_of(message: Message) -> int:
    """About how many tokens a message has, as a model is sent it."""
    if message.kind == "system":
        return _MESSAGE_TOKENS + tokens_of_text(message.text)
    if message.kind == "tool":
        return _MESSAGE_TOKENS + sum([_result(result) for result in message.results])
    count = _MESSAGE_TOKENS
    for part in message.parts:
        if part.kind == "text":
            count += tokens_of_text(part.text)
        elif part.kind == "tool_call":
            call = part.call
            count += _CALL_TOKENS + tokens_of_text(call.name) + tokens_of_text(call.raw or _json(dict(call.arguments)))
        elif part.kind == "reasoning":
            count += tokens_of_text(part.text)
        elif part.kind == "server_tool":
            count += _CALL_TOKENS + tokens_of_text(_json(part.input)) + tokens_of_text(_json(part.output))
        elif part.kind == "citation":
            count += tokens_of_text(part.text) + tokens_of_text(part.title)
        else:
            count += _medium(part)
    return count


def tokens_of_all(messages: Iterable[Message]) -> int:
    """About how many tokens all of them have."""
    return sum([tokens_of(message) for message in messages])


def _result(result: ToolResult) -> int:
    if isinstance(result.content, str):
        return _CALL_TOKENS + tokens_of_text(result.content)
    pieces = [tokens_of_text(piece) if isinstance(piece, str) else _medium(piece) for piece in result.content]
    return _CALL_TOKENS + sum(pieces)


def _medium(part: MediaPart) -> int:
    """By its size where that says something: a page of a document or a second of sound counts, a pixel hardly."""
    size = len(part.data) * 3 // 4
    if part.kind == "image" or not size:
        return MEDIA_TOKENS
    if part.kind == "audio":
        return max(50, size // 600)
    return size // 3 if part.media_type.startswith("text/") else max(MEDIA_TOKENS, size // 50)


def _json(value: object) -> str:
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)
