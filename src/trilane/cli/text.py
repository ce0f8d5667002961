"""Text for people: safe on a terminal, short enough to read. No output happens here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from trilane._records import error_text
from trilane.messages import clean_text

if TYPE_CHECKING:
    from trilane.messages import ToolCall, ToolResult

__all__ = [
    "call_text",
    "columns",
    "content_text",
    "count",
    "error_paragraph",
    "id_text",
    "one_line",
    "result_lines",
    "visible",
]

# A file or a model may hold escape sequences that move the cursor or set the window's title; they are shown, not sent.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(128, 160), 65533)


def visible(text: str) -> str:
    """`text` with control characters replaced by pictures of them, for a terminal. Newlines and tabs stay."""
    return clean_text(text.replace("\r\n", "\n")).translate(_PICTURES)


def one_line(text: str, limit: int) -> str:
    """`text` on one line of at most `limit` characters; a cut is marked by an ellipsis."""
    # Cutting first keeps a megabyte from being split into words for the sake of eighty characters.
    line = " ".join(visible(text[: limit * 4 + 64]).split())
    if len(line) > limit or len(text) > limit * 4 + 64:
        return line[: max(limit - 1, 0)].rstrip() + "…"
    return line


def id_text(text: str, limit: int = 64) -> str:
    """An id for a line of a list: whatever is in it, the line stays one line. A cut is marked by an ellipsis."""
    # Its beginning is enough to name a session, so a cut does no harm.
    shown = visible(text[: limit + 1]).translate({9: 0x2409, 10: 0x240A})
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def call_text(call: ToolCall, limit: int = 100, path: Iterable[str] = ()) -> str:
    """`name(key="value", …)`; `path` names the tools that lead to a child run's call."""
    prefix = "".join(f"{name} > " for name in path)
    return one_line(f"{prefix}{call.name}({_arguments(call.arguments, limit)})", limit)


def content_text(result: ToolResult) -> str:
    """What the model was told, with media named."""
    if isinstance(result.content, str):
        return result.content
    return "\n".join(part if isinstance(part, str) else f"[{part.kind}: {part.media_type}]" for part in result.content)


def result_lines(result: ToolResult, *, lines: int, width: int) -> list[str]:
    """The first `lines` lines of a result, each cut to `width` characters, and how much more there is."""
    # The lines that are shown are taken from the front, so that a huge result costs no more than a small one.
    text = content_text(result).strip("\n")
    if not text:
        return ["(no output)"]
    total = text.count("\n") + 1
    shown = [line[: width * 4] for line in text.split("\n", lines)[:lines]]
    cut = [visible(line).expandtabs(4).rstrip() for line in shown]
    cut = [line if len(line) <= width else line[: width - 1] + "…" for line in cut]
    if total > lines:
        cut.append(f"… {count(total - lines, 'more line')}")
    return cut


def error_paragraph(error: BaseException) -> str:
    """One readable paragraph about an error, its notes included."""
    text = error_text(error).strip() or "no message was given"
    name = type(error).__name__
    if not type(error).__module__.startswith("trilane"):
        text = f"{name}: {text}"
    for note in map(str, getattr(error, "__notes__", ())):
        is_sentence = note[:1].isupper() and text[-1:] not in ".!?:"
        text += f"{'.' if is_sentence else ''} {note}"
    return visible(" ".join(text.split()))


def count(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def columns(rows: list[list[str]], *, right: Iterable[int] = ()) -> list[str]:
    """`rows` as lines of aligned columns; those numbered in `right` are aligned to the right."""
    if not rows:
        return []
    right = set(right)
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _arguments(arguments: Mapping[str, object], limit: int) -> str:
    shown: list[str] = []
    length = 0
    for name, value in arguments.items():
        text = f"{name}={_value(value, limit)}"
        shown.append(text)
        length += len(text) + 2
        if length > limit:
            break
    return ", ".join(shown)


def _value(value: object, limit: int) -> str:
    if isinstance(value, str):
        value = value[:limit]
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return repr(value)
