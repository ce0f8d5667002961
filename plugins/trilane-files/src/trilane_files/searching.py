"""Searches the text of files, line by line, and lists the lines that match.

What matches is decided in `matching.py`, which files are searched in `listing.py`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from trilane.errors import ToolError

from .bounded import Deadline, Page, require_at_least
from .confine import Place, Root, kind_of, shown
from .decoding import Encoding, NotTextError, TextPieces
from .listing import Walk, start_walk
from .matching import Matcher, PatternTooSlowError, expression_matcher, text_matcher

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LINE_CHARACTERS", "MOST_MATCHES", "search_text"]

MOST_MATCHES = 500
#: Longer lines are searched only so far.
LINE_CHARACTERS = 10_000
_SHOWN_CHARACTERS = 300
_SHOWN_BEFORE = 60
_MOST_QUERY_CHARACTERS = 1000
_SECONDS = 10.0


def search_text(
    root: Root,
    query: str,
    *,
    pattern: str = "**/*",
    path: str = ".",
    regex: bool = False,
    ignore_case: bool = False,
    max_results: int = 100,
    offset: int = 0,
    include_ignored: bool = False,
    encoding: Encoding = "utf-8",
    deadline: Deadline | None = None,
) -> str:
    """Matching lines of files below `root`; the tool of the same name explains the arguments.

    Raises:
        ToolError: An argument cannot be used, or the one file to search is not text.
    """
    require_at_least(1, max_results=max_results)
    require_at_least(0, offset=offset)
    _require_query(query)
    deadline = deadline or Deadline(_SECONDS)
    page = Page(offset=offset, most=min(max_results, MOST_MATCHES))
    with _matcher(query, regex, ignore_case, deadline) as matcher:
        search = _Search(root, matcher, page, deadline, encoding)
        start = root.place(path)
        if kind_of(root.status(start).st_mode) == "folder":
            walk = start_walk(root, path, pattern, include_ignored, deadline)
            search.folder(walk)
            return search.result(query, walk)
        search.file(start)
        return search.result(query, None)


def _require_query(query: str) -> None:
    if not 0 < len(query) <= _MOST_QUERY_CHARACTERS or "\n" in query or "\r" in query:
        raise ToolError(
            f"query must be 1 to {_MOST_QUERY_CHARACTERS} characters on one line: the search goes line by line."
        )


@contextmanager
def _matcher(query: str, regex: bool, ignore_case: bool, deadline: Deadline) -> Iterator[Matcher]:
    if not regex:
        yield text_matcher(query, ignore_case=ignore_case)
        return
    with expression_matcher(query, ignore_case=ignore_case, deadline=deadline) as matcher:
        yield matcher


class _Search:
    """One search: the page of its matches and an account of what was left out."""

    def __init__(self, root: Root, matcher: Matcher, page: Page, deadline: Deadline, encoding: Encoding) -> None:
        self._root = root
        self._matcher = matcher
        self._page = page
        self._deadline = deadline
        self._encoding: Encoding = encoding
        self._files = 0
        self._long_lines = 0
        self._left_out: dict[str, list[str]] = {}
        self._stopped = ""

    def folder(self, walk: Walk) -> None:
        """Search every file of a walk. Links are left out: what they lead to is in the walk, or was left out of it."""
        for found in walk:
            if found.kind != "file":
                continue
            try:
                self.file(found.place)
            except PatternTooSlowError as error:
                self._stopped = f"stopped in '{found.place.shown}': {error}"
            except NotTextError as error:
                reason = "binary files" if error.reason == "binary" else f"files that are not {self._encoding} text"
                self._left_out.setdefault(reason, []).append(found.place.shown)
            except ToolError:
                self._left_out.setdefault("unreadable files", []).append(found.place.shown)
            if self._stopped:
                return

    def file(self, place: Place) -> None:
        """Search one file.

        Raises:
            ToolError: It cannot be read as text.
        """
        with self._root.open_file(place) as file:
            lines = _Lines(TextPieces(file, place.shown, self._encoding))
            number = 1
            for batch in lines:
                for index, start, end in self._matcher(batch):
                    self._page.add(f"{place.shown}:{number + index}: {_around(batch[index], start, end)}")
                number += len(batch)
                if self._deadline.passed:
                    self._stopped = f"stopped after {self._deadline.seconds:g} seconds in '{place.shown}'"
                    break
        self._files += 1
        self._long_lines += lines.cut

    def result(self, query: str, walk: Walk | None) -> str:
        """The text of the page, with notes on what is not on it."""
        complete = not self._stopped and not (walk and walk.stopped)
        notes = [self._page.note("matching lines", complete=complete)]
        if self._stopped:
            notes.append(f"[{self._stopped}; narrow path or pattern to search the rest]")
        notes += walk.notes() if walk else []
        if self._long_lines:
            notes.append(
                f"[searched only up to column {LINE_CHARACTERS:,}, longer lines: {self._long_lines:,}; "
                f"read_file(..., column={LINE_CHARACTERS + 1}) shows the rest]"
            )
        for reason, names in sorted(self._left_out.items()):
            more = ", ..." if len(names) > 3 else ""
            listed = ", ".join(f"'{name}'" for name in names[:3])
            notes.append(f"[left out, {reason}: {len(names):,}, {listed}{more}]")
        if self._page.total == 0:
            hint = walk.hint_on_ignored() if walk else ""
            files = "1 file" if self._files == 1 else f"{self._files:,} files"
            notes.insert(0, f"No line matches '{shown(query)}' in the {files} searched.{hint}")
        return "\n".join([*self._page.lines, *filter(None, notes)])


class _Lines:
    """Iterates over the lines of a text in batches, each line cut after `LINE_CHARACTERS`."""

    def __init__(self, pieces: TextPieces) -> None:
        self._pieces = pieces
        self.cut = 0

    def __iter__(self) -> Iterator[list[str]]:
        begun, length = "", 0
        for piece in self._pieces:
            first, *others = piece.split("\n")
            begun = begun + first[: max(0, LINE_CHARACTERS - len(begun))]
            length += len(first)
            if not others:
                continue
            *whole, last = others
            yield [self._bounded(begun, length), *(self._bounded(line, len(line)) for line in whole)]
            begun, length = last[:LINE_CHARACTERS], len(last)
        if length:
            yield [self._bounded(begun, length)]

    def _bounded(self, line: str, length: int) -> str:
        self.cut += length > LINE_CHARACTERS
        return line[:LINE_CHARACTERS]


def _around(line: str, start: int, end: int) -> str:
    """The line, or the part of a long one around its match."""
    if len(line) <= _SHOWN_CHARACTERS:
        return line
    first = max(0, min(start - _SHOWN_BEFORE, len(line) - _SHOWN_CHARACTERS))
    last = min(len(line), max(first + _SHOWN_CHARACTERS, min(end, first + 2 * _SHOWN_CHARACTERS)))
    return f"{'...' if first else ''}{line[first:last]}{'...' if last < len(line) else ''}"
