"""A line being edited: its text, its cursor, and what keys do to them. It draws nothing, see `chat_screen.py`.

Not stdlib `readline`: that waits for a line with the thread stopped, so that no question could expire, no steering be
typed while an answer is drawn above it, and nothing be printed without tearing the line; and what it can do (pasting
several lines, say) depends on what it was built with. A larger editor would be a dependency for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from rich.cells import cell_len

from .chat_keys import Key
from .text import visible

__all__ = ["Action", "LineEditor", "layout"]

Action: TypeAlias = Literal["submit", "interrupt", "eof", "clear", "suspend"]

_WORD = re.compile(r"\w+|[^\w\s]+")


class LineEditor:
    """One text, perhaps of several lines, with a cursor.

    Attributes:
        text: The text.
        cursor: Offset of the cursor in it.
        hint: What the last Tab could mean, for a line below.
    """

    def __init__(
        self,
        text: str = "",
        *,
        entries: Sequence[str] = (),
        complete: Callable[[str], Sequence[str]] | None = None,
        multiline: bool = True,
    ) -> None:
        self.text = text
        self.cursor = len(text)
        self.hint = ""
        self._entries = entries
        self._complete = complete
        self._multiline = multiline
        self._at: int | None = None  # which entry of the history is shown
        self._draft = ""
        self._killed = ""

    def set(self, text: str) -> None:
        """Replace the text."""
        self.text, self.cursor, self._at, self.hint = text, len(text), None, ""

    def feed(self, key: Key) -> Action | None:
        """What `key` asks for beyond the line; None if it only changed it."""
        self.hint = ""
        if key.name == "text":
            self._insert(key.text)
            return None
        if key.name == "paste":
            self._insert(key.text.rstrip("\n") if self._multiline else " ".join(key.text.split()))
            return None
        if key.name == "enter":
            return self._enter()
        if key.name == "ctrl-d" and not self.text:
            return "eof"
        outside = _OUTSIDE.get(key.name)
        if outside is None:
            action = _EDITS.get(key.name)
            if action is not None:
                action(self)
        return outside

    def _enter(self) -> Action | None:
        if self._multiline and self.cursor == len(self.text) and _continues(self.text):
            self.text = self.text[:-1]
            self.cursor -= 1
            self._insert("\n")
            return None
        return "submit"

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _newline(self) -> None:
        if self._multiline:
            self._insert("\n")

    def _delete(self, start: int, end: int, *, keep: bool = False) -> None:
        if keep and start < end:
            self._killed = self.text[start:end]
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _move(self, by: int) -> None:
        self.cursor = min(max(self.cursor + by, 0), len(self.text))

    @property
    def _row_start(self) -> int:
        return self.text.rfind("\n", 0, self.cursor) + 1

    @property
    def _row_end(self) -> int:
        end = self.text.find("\n", self.cursor)
        return len(self.text) if end < 0 else end

    def _word_start(self) -> int:
        starts = [found.start() for found in _WORD.finditer(self.text) if found.start() < self.cursor]
        return starts[-1] if starts else 0

    def _word_end(self) -> int:
        return next((found.end() for found in _WORD.finditer(self.text) if found.end() > self.cursor), len(self.text))

    def _space_start(self) -> int:
        before = self.text[: self.cursor].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _up(self) -> None:
        start = self._row_start
        if start:
            column = self.cursor - start
            above = self.text.rfind("\n", 0, start - 1) + 1
            self.cursor = min(above + column, start - 1)
        else:
            self._recall(-1)

    def _down(self) -> None:
        end = self._row_end
        if end < len(self.text):
            column = self.cursor - self._row_start
            below = self.text.find("\n", end + 1)
            self.cursor = min(end + 1 + column, len(self.text) if below < 0 else below)
        else:
            self._recall(1)

    def _recall(self, step: int) -> None:
        at = (len(self._entries) if self._at is None else self._at) + step
        if at < 0 or (self._at is None and step > 0):
            return
        if self._at is None:
            self._draft = self.text
        if at >= len(self._entries):
            self.set(self._draft)
            return
        self.set(self._entries[at])
        self._at = at

    def _tab(self) -> None:
        if self._complete is None or self.cursor < len(self.text):
            return
        found = self._complete(self.text)
        if not found:
            return
        start = max(self.text.rfind(" "), self.text.rfind("\n")) + 1
        if len(found) == 1:
            self.set(self.text[:start] + found[0] + " ")
            return
        common = found[0]
        for other in found:
            while not other.startswith(common):
                common = common[:-1]
        if len(common) > len(self.text) - start:
            self.set(self.text[:start] + common)
        self.hint = "  ".join(found)


def _continues(text: str) -> bool:
    """True if the text ends in an odd number of backslashes: the line goes on."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


_OUTSIDE: dict[str, Action] = {"ctrl-c": "interrupt", "ctrl-l": "clear", "ctrl-z": "suspend"}
_EDITS: dict[str, Callable[[LineEditor], None]] = {
    "newline": LineEditor._newline,
    "left": lambda line: line._move(-1),
    "ctrl-b": lambda line: line._move(-1),
    "right": lambda line: line._move(1),
    "ctrl-f": lambda line: line._move(1),
    "home": lambda line: setattr(line, "cursor", line._row_start),
    "ctrl-a": lambda line: setattr(line, "cursor", line._row_start),
    "end": lambda line: setattr(line, "cursor", line._row_end),
    "ctrl-e": lambda line: setattr(line, "cursor", line._row_end),
    "alt-b": lambda line: setattr(line, "cursor", line._word_start()),
    "alt-f": lambda line: setattr(line, "cursor", line._word_end()),
    "backspace": lambda line: line._delete(max(line.cursor - 1, 0), line.cursor),
    "delete": lambda line: line._delete(line.cursor, line.cursor + 1),
    "ctrl-d": lambda line: line._delete(line.cursor, line.cursor + 1),
    "ctrl-k": lambda line: line._delete(line.cursor, line._row_end, keep=True),
    "ctrl-u": lambda line: line._delete(line._row_start, line.cursor, keep=True),
    "ctrl-w": lambda line: line._delete(line._space_start(), line.cursor, keep=True),
    "alt-d": lambda line: line._delete(line.cursor, line._word_end(), keep=True),
    "ctrl-y": lambda line: line._insert(line._killed),
    "up": LineEditor._up,
    "ctrl-p": LineEditor._up,
    "down": LineEditor._down,
    "ctrl-n": LineEditor._down,
    "tab": LineEditor._tab,
}


def _shown(letter: str) -> tuple[str, int]:
    shown = "    " if letter == "\t" else visible(letter)
    return shown, cell_len(shown)


def layout(text: str, cursor: int, *, prompt: str, width: int) -> tuple[list[str], int, int]:
    """`text` as rows of at most `width` cells, behind `prompt`, and the row and column of the cursor."""
    indent = " " * cell_len(prompt)
    rows = [prompt]
    used = len(indent)
    place = (0, used)
    for offset, letter in enumerate(text):
        if letter != "\n":
            shown, cells = (letter, 1) if " " <= letter <= "~" else _shown(letter)
            if used + cells > width - 1:
                rows.append(indent)
                used = len(indent)
        if offset == cursor:
            place = (len(rows) - 1, used)
        if letter == "\n":
            rows.append(indent)
            used = len(indent)
        else:
            rows[-1] += shown
            used += cells
    if cursor >= len(text):
        place = (len(rows) - 1, used)
    return rows, *place
