"""Counts words as `wc -w` does, without loading the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trilane.errors import ToolError

from .bounded import Deadline
from .decoding import Encoding, TextPieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .confine import Root

__all__ = ["WHITE_SPACE", "count_words", "words_in"]

_SECONDS = 30.0

#: What separates words: white space of the C.UTF-8 locale, with the no-break spaces that `wc` adds to it.
WHITE_SPACE = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u2060\u3000"

_WORD = re.compile(f"[^{WHITE_SPACE}]+")
_STARTS_WITH_WORD = re.compile(f"[^{WHITE_SPACE}]")
_ENDS_WITH_WORD = re.compile(f"[^{WHITE_SPACE}]\\Z")


def count_words(root: Root, path: str, *, encoding: Encoding = "utf-8", deadline: Deadline | None = None) -> int:
    """Number of words of a text file below `root`.

    Raises:
        ToolError: It cannot be read as text, or not within the time.
    """
    place = root.place(path)
    deadline = deadline or Deadline(_SECONDS)
    with root.open_file(place) as file:
        pieces = TextPieces(file, place.shown, encoding, translate=False)
        return words_in(_in_time(pieces, deadline, place.shown))


def words_in(pieces: Iterable[str]) -> int:
    """Number of words of a text that comes in non-empty pieces, cut anywhere."""
    words, in_word = 0, False
    for piece in pieces:
        words += len(_WORD.findall(piece))
        if in_word and _STARTS_WITH_WORD.match(piece):
            words -= 1
        in_word = _ENDS_WITH_WORD.search(piece, len(piece) - 1) is not None
    return words


def _in_time(pieces: TextPieces, deadline: Deadline, name: str) -> Iterable[str]:
    for piece in pieces:
        if deadline.passed:
            raise ToolError(
                f"'{name}' is too large: {pieces.read_bytes:,} bytes were counted in {deadline.seconds:g} seconds and "
                "the end was not reached. file_info shows its size; choose a smaller file."
            )
        yield piece
