"""Reads tool results: their text, the value behind it, the items of a list, the notes on what is not shown.

What is said about them is in `answer.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.messages import ToolCall, ToolResult

__all__ = ["Done", "described", "items_of", "notes_of", "number_of", "text_of_result", "value_of"]

_NUMBER = re.compile(r"[-+]?\d{1,300}(?:\.\d{1,300})?(?:[eE][-+]?\d{1,3})?")
_NAMES = ("path", "file", "name", "filename", "id", "url")
_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Done:
    """A call and its result."""

    call: ToolCall
    result: ToolResult

    @property
    def ok(self) -> bool:
        """Whether the tool returned something."""
        return self.result.outcome == "ok"


def text_of_result(result: ToolResult) -> str:
    """The text of a result; media are named, not shown."""
    if isinstance(result.content, str):
        return result.content
    parts = [part if isinstance(part, str) else f"[{part.kind}: {part.media_type}]" for part in result.content]
    return "\n".join(parts)


def value_of(result: ToolResult) -> JsonValue:
    """The value behind the text, where the text is that value written as JSON; else the text.

    Where the two differ (a plugin changed the text, or the tool wrote its own) only the text was meant for a model.
    """
    text = text_of_result(result)
    if result.data is None:
        return text
    try:
        same = json.loads(text) == result.data
    except (ValueError, RecursionError):
        same = False
    return result.data if same else text


def number_of(result: ToolResult) -> str:
    """The number a result consists of, as it is written there; empty if it is something else."""
    value = value_of(result)
    if isinstance(value, bool):
        return ""
    text = text_of_result(result).strip()
    return text if _NUMBER.fullmatch(text) else ""


def items_of(result: ToolResult) -> list[str]:
    """The items of a result that is a list: of texts, of objects with a path or name, or of lines of text."""
    value = value_of(result)
    if isinstance(value, dict):
        value = next((inner for inner in value.values() if isinstance(inner, list)), None)
    if isinstance(value, list):
        return [name for item in value if (name := _name_of(item))]
    if not isinstance(value, str):
        return []
    lines = [line for line in value.split("\n") if line.strip() and not _is_note(line)]
    return [] if lines and re.match(r"No\s.+\.$", lines[0]) else lines


def _name_of(item: JsonValue) -> str:
    if isinstance(item, dict):
        return next((str(item[name]) for name in _NAMES if isinstance(item.get(name), str)), "")
    return item if isinstance(item, str) else ""


def notes_of(result: ToolResult) -> list[str]:
    """The lines of a text that say what it leaves out: those in square brackets."""
    value = value_of(result)
    return [line for line in value.split("\n") if _is_note(line)] if isinstance(value, str) else []


def _is_note(line: str) -> bool:
    return line.startswith("[") and line.endswith("]")


def described(arguments: Mapping[str, JsonValue], *, without: frozenset[str] = frozenset()) -> str:
    """Arguments in one line, as a programmer writes them."""
    shown = [f"{name}={_short(value)}" for name, value in arguments.items() if name not in without]
    return ", ".join(shown)


def _short(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
