"""Parts of a message as content blocks of the Messages API. The order of blocks and messages is in `conversion.py`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from trilane.messages import (
    AudioPart,
    CitationPart,
    FilePart,
    ImagePart,
    ReasoningPart,
    ServerToolPart,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
    clean_text,
)

__all__ = [
    "MARK",
    "NO_OUTPUT",
    "Block",
    "Report",
    "media",
    "note",
    "own",
    "plain",
    "said",
    "text",
    "tool_input",
    "tool_result",
    "user",
]

Block: TypeAlias = dict[str, Any]
Report: TypeAlias = Callable[[str], None]
"""Says what could not be expressed."""

#: Marks in `extra` what this provider made, so that it can tell its own from that of others.
MARK = "anthropic"
NO_OUTPUT = "(no output)"
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_LONGEST_NOTE = 2000


def text(value: str) -> list[Block]:
    """A text block; none for a blank text, which the API refuses."""
    value = clean_text(value)
    return [{"type": "text", "text": value}] if value.strip() else []


def note(words: str) -> Block:
    """A text in place of something that cannot be sent."""
    words = clean_text(words)
    return {"type": "text", "text": words if len(words) <= _LONGEST_NOTE else f"{words[:_LONGEST_NOTE]}…"}


def own(part: TextPart | ReasoningPart | ServerToolPart | CitationPart | ImagePart | AudioPart | FilePart) -> Any:
    """What this provider has put into a part's `extra`; None if it did not make the part."""
    return part.extra.get(MARK) if isinstance(part.extra, dict) else None


# ---- users -----------------------------------------------------------------------------------------------------------


def user(message: UserMessage, report: Report) -> list[Block]:
    """The blocks of what the user said."""
    blocks: list[Block] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            blocks += text(part.text)
        else:
            blocks.append(media(part, report))
    return blocks


def media(part: ImagePart | AudioPart | FilePart, report: Report) -> Block:
    """An image or document block, or a text that says what is missing."""
    block = _image(part) if isinstance(part, ImagePart) else _document(part) if isinstance(part, FilePart) else None
    if block is None:
        report(f"{part.kind} of type {part.media_type}: the Messages API takes none")
        where = f", at {part.url}" if part.url else ""
        named = f" named {part.name}" if isinstance(part, FilePart) and part.name else ""
        return note(f"[{part.kind} of type {part.media_type}{named}{where}, which this model cannot be given]")
    options = own(part)
    return {**block, **plain(options)} if isinstance(options, Mapping) else block


def _image(part: ImagePart) -> Block | None:
    if part.data and part.media_type in _IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
    return {"type": "image", "source": {"type": "url", "url": part.url}} if part.url else None


def _document(part: FilePart) -> Block | None:
    title = {"title": clean_text(part.name)} if part.name else {}
    if part.media_type == "application/pdf" and (part.data or part.url):
        source = (
            {"type": "base64", "media_type": "application/pdf", "data": part.data}
            if part.data
            else {"type": "url", "url": part.url}
        )
        return {"type": "document", "source": source, **title}
    if part.data and (
        part.media_type.startswith("text/") or part.media_type in ("application/json", "application/xml")
    ):
        try:
            words = clean_text(base64.b64decode(part.data).decode("utf-8", "replace"))
        except ValueError:
            return None
        if words.strip():
            return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": words}, **title}
    return None


# ---- models ----------------------------------------------------------------------------------------------------------


def said(
    part: TextPart | ReasoningPart | ServerToolPart | CitationPart | ImagePart | AudioPart | FilePart,
    before: Sequence[Block],
    report: Report,
) -> list[Block]:
    """The blocks of one part of what a model said, calls excepted. A citation goes into the text block before it."""
    if isinstance(part, TextPart):
        return text(part.text)
    if isinstance(part, ReasoningPart):
        return _thinking(part, report)
    if isinstance(part, ServerToolPart):
        return _server_tool(part, report)
    if isinstance(part, CitationPart):
        return _citation(part, before, report)
    report(f"{part.kind} in a message of the model: only users can send one")
    return [note(f"[{part.kind} of type {part.media_type}]")]


def _thinking(part: ReasoningPart, report: Report) -> list[Block]:
    made = own(part)
    if not isinstance(made, Mapping):
        if part.text.strip() or part.signature:
            report("reasoning of another provider")
        return []
    if not part.signature:
        report("reasoning that was interrupted before it was signed")
        return []
    if made.get("redacted"):
        return [{"type": "redacted_thinking", "data": part.signature}]
    # As it came, to the letter: the signature is over this text.
    return [{"type": "thinking", "thinking": part.text, "signature": part.signature}]


def _server_tool(part: ServerToolPart, report: Report) -> list[Block]:
    made = own(part)
    blocks = made.get("blocks") if isinstance(made, Mapping) else None
    if isinstance(blocks, list):
        return [plain(block) for block in blocks if isinstance(block, Mapping)]
    report("tools that another provider ran, which are told as text")
    return [note(f"[{part.name} ran. Input: {_json(part.input)} Output: {_json(part.output)}]")]


def _citation(part: CitationPart, before: Sequence[Block], report: Report) -> list[Block]:
    made = own(part)
    if isinstance(made, Mapping) and before and before[-1]["type"] == "text":
        before[-1].setdefault("citations", []).append(plain(made))
        return []
    report("citations of another provider, which are told as text")
    words = " ".join(word for word in (part.title, part.source, part.text) if word.strip())
    return [note(f"[source: {words}]")] if words else []


def tool_input(call: ToolCall) -> Any:
    """The arguments of a call as the API wants them. Those that were no JSON object are shown as they were written."""
    if not call.arguments and call.raw.strip() not in ("", "{}", "null"):
        return {"INVALID_JSON": clean_text(call.raw)}
    return plain(call.arguments)


def tool_result(sent_id: str, result: ToolResult | None, report: Report) -> Block:
    """The result of one call; what is said if there is none."""
    if result is None:
        report("calls without a result, which are answered for")
        said_instead = text("No result was recorded for this call; its effect is unknown.")
        return {"type": "tool_result", "tool_use_id": sent_id, "content": said_instead, "is_error": True}
    pieces = (result.content,) if isinstance(result.content, str) else result.content
    content: list[Block] = []
    for piece in pieces:
        content += text(piece) if isinstance(piece, str) else [media(piece, report)]
    block = {"type": "tool_result", "tool_use_id": sent_id, "content": content or text(NO_OUTPUT)}
    return block if result.outcome == "ok" else {**block, "is_error": True}


# ---- JSON ------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A JSON value that any encoder takes: plain dicts and lists, clean texts, no NaN."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {clean_text(str(key)): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)
