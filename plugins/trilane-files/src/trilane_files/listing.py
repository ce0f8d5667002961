"""Walks the files below a folder in a fixed order and lists those that match a pattern.

Links to folders are never followed, so a walk ends and stays inside the root. Patterns are in `patterns.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trilane.errors import ToolError

from .bounded import Deadline, Page, require_at_least
from .confine import Entry, Kind, Place, Root, kind_of, shown
from .patterns import FilePattern, States

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MOST_FILES", "Found", "Walk", "is_ignored", "list_files", "start_walk"]

MOST_FILES = 1000
_MOST_ENTRIES = 200_000
_SECONDS = 10.0
_VENDOR_FOLDERS = frozenset({"__pycache__", "__pypackages__", "bower_components", "node_modules", "venv", "vendor"})


def is_ignored(folder: str) -> bool:
    """True for hidden folders, caches and folders of other people's code."""
    return folder.startswith(".") or folder in _VENDOR_FOLDERS or folder.endswith(".egg-info")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a walk: a regular one or a link (which may lead anywhere)."""

    place: Place
    kind: Kind


@dataclass(slots=True)
class Walk:
    """One walk: yields matching files, sorted by the names on their way, and keeps account of what it left out.

    Attributes:
        start: The folder to walk.
        ignored: Number of folders left out because of their name.
        unreadable: Folders that could not be read.
        special: Matching pipes, sockets and devices.
        stopped: Why the walk ended early; empty if it did not.
    """

    root: Root
    start: Place
    pattern: FilePattern
    include_ignored: bool
    deadline: Deadline
    ignored: int = 0
    unreadable: list[str] = field(default_factory=list)
    special: int = 0
    stopped: str = ""
    _entries: int = 0

    def __iter__(self) -> Iterator[Found]:
        """Yield the files.

        Raises:
            ToolError: The folder to start from cannot be read.
        """
        stack: list[tuple[Place, Kind, States]] = [(self.start, "folder", self.pattern.start)]
        while stack and not self.stopped:
            place, kind, states = stack.pop()
            if kind == "folder":
                for entry in sorted(self._scan(place), key=lambda entry: entry.name, reverse=True):
                    inner = self._reaches(states, entry)
                    if inner is not None:
                        stack.append((Place((*place.parts, entry.name)), entry.kind, inner))
            elif kind == "special":
                self.special += 1
            else:
                yield Found(place, kind)
            if self.deadline.passed:
                self.stopped = f"stopped after {self.deadline.seconds:g} seconds at '{place.shown}'"

    def _reaches(self, states: States, entry: Entry) -> States | None:
        """The states inside a folder, the same states for a matching file, None if nothing there can match."""
        if entry.kind != "folder":
            return states if self.pattern.accepts(states, entry.name) else None
        if not self.include_ignored and is_ignored(entry.name) and not self.pattern.names(entry.name):
            self.ignored += 1
            return None
        return self.pattern.enter(states, entry.name) or None

    def _scan(self, place: Place) -> list[Entry]:
        try:
            entries = self.root.scan(place, most=_MOST_ENTRIES - self._entries)
        except ToolError:
            if place == self.start:
                raise
            self.unreadable.append(place.shown)
            return []
        self._entries += len(entries)
        if self._entries >= _MOST_ENTRIES:
            self.stopped = f"stopped at '{place.shown}' after {_MOST_ENTRIES:,} names"
        elif self._is_environment(place, entries):
            self.ignored += 1
            return []
        return entries

    def _is_environment(self, place: Place, entries: list[Entry]) -> bool:
        """True for a virtual environment, whatever its name, that was not asked for."""
        if self.include_ignored or place == self.start or self.pattern.names(place.parts[-1]):
            return False
        return any(entry.name == "pyvenv.cfg" for entry in entries)

    def notes(self) -> list[str]:
        """What was left out and what to do about it."""
        notes: list[str] = []
        if self.stopped:
            notes.append(f"[{self.stopped}: narrow path or pattern to see the rest]")
        if self.unreadable:
            more = ", ..." if len(self.unreadable) > 3 else ""
            names = ", ".join(f"'{name}'" for name in self.unreadable[:3])
            notes.append(f"[left out, unreadable folders: {len(self.unreadable):,}, {names}{more}]")
        if self.special:
            notes.append(f"[left out, pipes, sockets or devices: {self.special:,}]")
        return notes

    def hint_on_ignored(self) -> str:
        """A sentence on the folders left out because of their name; empty if there were none."""
        if not self.ignored:
            return ""
        return (
            f" Hidden and vendor folders ({self.ignored:,}) were not looked into; include_ignored=True looks into them."
        )


def list_files(
    root: Root,
    pattern: str = "**/*",
    *,
    path: str = ".",
    max_results: int = 200,
    offset: int = 0,
    include_ignored: bool = False,
    deadline: Deadline | None = None,
) -> str:
    """Paths of matching files below `root`, one a line; the tool of the same name explains the arguments.

    Raises:
        ToolError: The folder cannot be read, or an argument cannot be used.
    """
    require_at_least(1, max_results=max_results)
    require_at_least(0, offset=offset)
    walk = start_walk(root, path, pattern, include_ignored, deadline or Deadline(_SECONDS))
    page = Page(offset=offset, most=min(max_results, MOST_FILES))
    dead_links = 0
    for found in walk:
        if found.kind == "link" and not _leads_to_file(root, found.place):
            dead_links += 1
        else:
            page.add(found.place.shown)
    notes = [page.note("files", complete=not walk.stopped), *walk.notes()]
    if dead_links:
        notes.append(
            f"[left out, symbolic links that lead to no file inside the folder these tools may read: {dead_links:,}]"
        )
    if page.total == 0:
        notes.insert(0, f"No file in '{walk.start.shown}' matches '{shown(pattern)}'.{walk.hint_on_ignored()}")
    return "\n".join([*page.lines, *filter(None, notes)])


def start_walk(root: Root, path: str, pattern: str, include_ignored: bool, deadline: Deadline) -> Walk:
    """A walk of the folder `path`.

    Raises:
        ToolError: It is not a folder below the root, or the pattern cannot be used.
    """
    start = root.place(path)
    if kind_of(root.status(start).st_mode) == "file":
        raise ToolError(f"'{start.shown}' is a file, not a folder. read_file(path='{start.shown}') shows its text.")
    return Walk(root, start, FilePattern(pattern), include_ignored, deadline)


def _leads_to_file(root: Root, link: Place) -> bool:
    try:
        target = root.place("/".join(link.parts))
        return kind_of(root.status(target).st_mode) == "file"
    except ToolError:
        return False
