"""Reads a page of a text file: some lines, from a line and column on, with a note that says what was left out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trilane.errors import ToolError

from .bounded import RESULT_CHARACTERS, Deadline, require_at_least
from .decoding import Encoding, TextPieces

if TYPE_CHECKING:
    from .confine import Root

__all__ = ["MOST_LINES", "read_file"]

MOST_LINES = 2000
_FIND_SECONDS = 20.0
_COUNT_SECONDS = 1.0
_SEGMENT = re.compile(r"[^\n]*\n|[^\n]+")


def read_file(
    root: Root,
    path: str,
    *,
    offset: int = 1,
    limit: int = 500,
    column: int = 1,
    encoding: Encoding = "utf-8",
    deadline: Deadline | None = None,
) -> str:
    """Lines of a text file below `root`; the tool of the same name explains the arguments.

    Raises:
        ToolError: It cannot be read as text, or has no such line.
    """
    require_at_least(1, offset=offset, limit=limit, column=column)
    place = root.place(path)
    page = _LinePage(offset=offset, limit=min(limit, MOST_LINES), column=column)
    with root.open_file(place) as file:
        pieces = TextPieces(file, place.shown, encoding)
        complete = _fill(page, pieces, place.shown, deadline or Deadline(_FIND_SECONDS))
    if complete and page.last_line == 0:
        return f"['{place.shown}' is empty: {pieces.read_bytes} bytes]"
    if not page.text:
        raise ToolError(page.miss(place.shown))
    note = page.note(complete=complete)
    between = "\n" if note and not page.text.endswith("\n") else ""
    return f"{page.text}{between}{note}"


def _fill(page: _LinePage, pieces: TextPieces, name: str, deadline: Deadline) -> bool:
    """Feed the page; when it is full, only count lines for a while. True if the end of the file was reached."""
    counting: Deadline | None = None
    try:
        for piece in pieces:
            page.feed(piece)
            if page.full:
                counting = counting or Deadline(_COUNT_SECONDS)
                if counting.passed:
                    return False
            elif deadline.passed:
                raise ToolError(
                    f"Line {page.offset:,} of '{name}' was not reached within {deadline.seconds:g} seconds "
                    f"({pieces.read_bytes:,} bytes were read). Use a smaller offset, or search_text."
                )
    except ToolError:
        if not page.full:
            raise
        return False  # what is wrong comes after the page: the page itself is good
    return True


class _LinePage:
    """Takes the text of a file in pieces, counts its lines and keeps one page of them."""

    def __init__(self, *, offset: int, limit: int, column: int) -> None:
        self.offset = offset
        self.full = False
        self._limit = limit
        self._column = column
        self._line = 1
        self._line_characters = 0
        self._kept: list[str] = []
        self._room = RESULT_CHARACTERS
        self._next = (0, 1)  # line and column behind the page, once it is full

    @property
    def text(self) -> str:
        return "".join(self._kept)

    @property
    def last_line(self) -> int:
        """Number of the last line so far that has a character or a line end."""
        return self._line if self._line_characters else self._line - 1

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        if self.full or self._line + piece.count("\n") < self.offset:
            self._advance(piece)
            return
        for segment in _SEGMENT.findall(piece):
            if self._line >= self.offset and not self.full:
                self._keep(segment)
            self._advance(segment)

    def _advance(self, text: str) -> None:
        breaks = text.count("\n")
        self._line += breaks
        self._line_characters = len(text) - text.rfind("\n") - 1 if breaks else self._line_characters + len(text)

    def _keep(self, segment: str) -> None:
        """Keep what belongs to the page of one line, or of a part of one."""
        skip = max(0, self._column - 1 - self._line_characters) if self._line == self.offset else 0
        text = segment[skip:]
        if not text:
            # A line shorter than the column: nothing to show, and the next line is not what was asked for.
            self.full = segment.endswith("\n")
        elif len(text) > self._room:
            self._kept.append(text[: self._room])
            self.full, self._next = True, (self._line, self._line_characters + skip + self._room + 1)
        else:
            self._kept.append(text)
            self._room -= len(text)
            if text.endswith("\n") and self._line + 1 - self.offset == self._limit:
                self.full, self._next = True, (self._line + 1, 1)

    def miss(self, name: str) -> str:
        """Why there is nothing on the page."""
        if self.last_line >= self.offset:
            return f"Line {self.offset:,} of '{name}' ends before column={self._column}."
        return f"'{name}' has {self.last_line:,} lines: offset={self.offset} is past its end."

    def note(self, *, complete: bool) -> str:
        """Which part of the file the page is and how to get the rest; empty for the whole file."""
        line, column = self._next
        is_cut = self.full and (not complete or column > 1 or self.last_line >= line)
        if not is_cut and self.offset == 1 and self._column == 1:
            return ""
        last = self.last_line if not is_cut else line if column > 1 else line - 1
        start = f", from column {self._column:,}" if self._column > 1 else ""
        total = f"{self.last_line:,}" if complete else f"at least {self.last_line:,}"
        lines = f"lines {self.offset:,}-{last:,} of {total}{start}"
        if not is_cut:
            return f"[{lines}: the end of the file]"
        further = f", column={column}" if column > 1 else ""
        return f"[{lines}; continue with offset={line}{further}]"
