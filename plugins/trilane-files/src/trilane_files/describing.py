"""Says what a file or folder is: kind, size, time, and for text its lines, words and line ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane.errors import ToolError

from .bounded import Deadline
from .confine import Place, Root, kind_of
from .counting import words_in
from .decoding import NotTextError, TextPieces

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["file_info"]

_SECONDS = 5.0
_MOST_ENTRIES = 100_000
_LINE_ENDS = {"\n": "LF", "\r": "CR", "\r\n": "CRLF"}


def file_info(root: Root, path: str, *, deadline: Deadline | None = None) -> str:
    """One line on a file or folder below `root`.

    Raises:
        ToolError: It is missing or cannot be reached.
    """
    place = root.place(path)
    status = root.status(place)
    kind = kind_of(status.st_mode)
    if kind == "folder":
        what = _folder(root, place)
    elif kind == "file":
        what = f"file, {status.st_size:,} bytes, {_content(root, place, deadline or Deadline(_SECONDS))}"
    elif kind == "link":
        what = "symbolic link that cannot be followed: it leads in a circle"
    else:
        what = f"{_special(status)}, never read"
    return f"{place.shown}: {what}, modified {_time(status.st_mtime)}"


def _folder(root: Root, place: Place) -> str:
    try:
        entries = root.scan(place, most=_MOST_ENTRIES)
    except ToolError as error:
        return f"folder ({error})"
    if not entries:
        return "empty folder"
    folders = sum(entry.kind == "folder" for entry in entries)
    more = "at least " if len(entries) == _MOST_ENTRIES else ""
    return f"folder with {more}{folders:,} folders and {len(entries) - folders:,} files directly in it"


def _content(root: Root, place: Place, deadline: Deadline) -> str:
    try:
        with root.open_file(place) as file:
            text = _Counted(TextPieces(file, place.shown), deadline)
            words = words_in(text)
    except NotTextError as error:
        return "binary" if error.reason == "binary" else "not UTF-8 text (read_file takes an encoding)"
    except ToolError as error:
        return f"content unknown ({error})"
    if not text.characters:
        return "empty"
    more = "" if text.complete else "at least "
    ends = "/".join(_LINE_ENDS[end] for end in text.pieces.line_ends)
    return f"UTF-8 text, {more}{text.lines:,} lines{f' ({ends})' if ends else ''}, {more}{words:,} words"


class _Counted:
    """Passes pieces of text on and counts lines and characters, until the deadline."""

    def __init__(self, pieces: TextPieces, deadline: Deadline) -> None:
        self.pieces = pieces
        self.characters = 0
        self.complete = True
        self._deadline = deadline
        self._breaks = 0
        self._open_line = False

    @property
    def lines(self) -> int:
        return self._breaks + self._open_line

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces:
            self.characters += len(piece)
            self._breaks += piece.count("\n")
            self._open_line = not piece.endswith("\n")
            yield piece
            if self._deadline.passed:
                self.complete = False
                return


def _special(status: os.stat_result) -> str:
    import stat

    names = {
        stat.S_IFIFO: "named pipe",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "character device",
        stat.S_IFBLK: "block device",
    }
    return names.get(stat.S_IFMT(status.st_mode), "special file")


def _time(seconds: float) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
