"""Glob patterns for files, matched name by name, so that no pattern is slow and a walk knows where not to go.

`*.md` is any depth, `docs/*.md` and `./*.md` are one folder, `**` is any number of folders, `{a,b}` are alternatives.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from trilane.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FilePattern", "States"]

#: How far the names walked so far have come: (alternative, its next part) each.
States = frozenset[tuple[int, int]]

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAGIC = re.compile(r"[*?\[]")
_MOST_ALTERNATIVES = 64
_MOST_CHARACTERS = 1000


class FilePattern:
    """One glob pattern.

    Args:
        pattern: As the model wrote it.

    Raises:
        ToolError: It is empty, too long, or climbs with `..`.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern.strip("/") or len(pattern) > _MOST_CHARACTERS:
            raise ToolError(
                f"pattern must have 1 to {_MOST_CHARACTERS} characters, such as '*.md' (any depth) or 'docs/**/*.md'."
            )
        self._alternatives = [_parts(one) for one in _expand(pattern)]
        self._literals = {part for parts in self._alternatives for part in parts if not _MAGIC.search(part)}
        self._compiled = {
            part: re.compile(fnmatch.translate(part)) for parts in self._alternatives for part in parts if part != "**"
        }

    @property
    def start(self) -> States:
        """Where the walk of a folder begins."""
        return self._closed((index, 0) for index in range(len(self._alternatives)))

    def names(self, folder: str) -> bool:
        """True if the pattern has this very name as one of its parts."""
        return folder in self._literals

    def enter(self, states: States, name: str) -> States:
        """States inside the folder `name`; none if nothing below it can match."""
        return self._closed(self._steps(states, name))

    def accepts(self, states: States, name: str) -> bool:
        """True if the file `name` matches here."""
        return any(part == len(self._alternatives[index]) for index, part in self._steps(states, name))

    def _steps(self, states: States, name: str) -> Iterable[tuple[int, int]]:
        for index, position in states:
            parts = self._alternatives[index]
            if position == len(parts):
                continue
            if parts[position] == "**":
                yield index, position
            elif self._compiled[parts[position]].match(name):
                yield index, position + 1

    def _closed(self, states: Iterable[tuple[int, int]]) -> States:
        """With `**` also standing for no folder at all."""
        closed: set[tuple[int, int]] = set()
        for index, position in states:
            parts = self._alternatives[index]
            closed.add((index, position))
            while position < len(parts) and parts[position] == "**":
                position += 1
                closed.add((index, position))
        return frozenset(closed)


def _parts(pattern: str) -> list[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError("pattern cannot contain '..': give the folder to look in as path.")
    if not parts:
        raise ToolError("pattern names no file. Use a pattern such as '*.md'.")
    if parts[-1] == "**":
        parts.append("*")
    return parts if "/" in pattern else ["**", *parts]


def _expand(pattern: str) -> list[str]:
    """The pattern once for each choice of its `{a,b}` groups."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > _MOST_ALTERNATIVES:
            raise ToolError(f"pattern has more than {_MOST_ALTERNATIVES} alternatives in braces. Use a simpler one.")
        current = waiting.pop()
        group = _BRACES.search(current)
        if group is None:
            done.append(current)
        else:
            waiting.extend(current[: group.start()] + one + current[group.end() :] for one in group[1].split(","))
    return done
