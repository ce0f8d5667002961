"""The only way to a file: paths are worked out here, and opened from the root folder downwards without following links.

`Root.place` turns what the model wrote into names below the root (links resolved, `..` gone). Nothing depends on that
answer staying true: `open_file` and `scan` walk those names from a descriptor of the root and refuse every link on the
way, so a folder or file that is swapped for a link in between is an error and never a way out. Where the system has
no descriptor-relative calls (Windows), the opened file is compared with the path again after opening.

Not confined: hard links and mounts inside the root, which are ordinary files there. What to do with the bytes is
in `decoding.py`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn

from trilane.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Entry", "Kind", "Place", "Root", "kind_of", "shown"]

Kind = Literal["file", "folder", "link", "special"]

# O_NONBLOCK: opening a pipe must not wait for its other end. O_NOCTTY: opening a terminal must not adopt it.
_FILE_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_FOLDER_FLAGS = _FILE_FLAGS | getattr(os, "O_DIRECTORY", 0)
# Passing through a folder needs less permission than listing it.
_PASS_FLAGS = _FOLDER_FLAGS | getattr(os, "O_PATH", 0)
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and os.scandir in os.supports_fd
_MOST_COMPARED = 2000
_MOST_PATH_CHARACTERS = 4096
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


def shown(name: str) -> str:
    r"""A file name as valid text on one line: bytes that are not UTF-8, and control characters, become `\xNN`.

    `Root.place` accepts that form back.
    """
    if name.isascii() and name.isprintable():
        return name
    return "".join(map(_shown_character, name))


def _shown_character(character: str) -> str:
    if unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp"):
        return character
    try:
        raw = os.fsencode(character)
    except UnicodeEncodeError:
        raw = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw)


@dataclass(frozen=True, slots=True)
class Place:
    """Names that lead from the root to a file or folder; none for the root itself.

    Attributes:
        asked: The path that led here by way of a symbolic link; empty if there was none.
    """

    parts: tuple[str, ...]
    asked: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """The place as the model may write it."""
        return shown("/".join(self.parts)) or "."


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder. Links are not followed."""

    name: str
    kind: Kind


class Root:
    """A folder and everything below it.

    Args:
        path: The folder. Links in this path are resolved now, once.
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)

    def place(self, path: str) -> Place:
        """Where `path` (relative to the root, or absolute but inside it) leads. It need not exist.

        Raises:
            ToolError: It leads out of the root, or cannot be a path.
        """
        place = self._resolve(path)
        if "\\x" in path and os.sep == "/" and not os.path.lexists(os.path.join(self.path, *place.parts)):
            raw = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), os.fsencode(path))
            return self._resolve(os.fsdecode(raw))
        return place

    def _resolve(self, path: str) -> Place:
        try:
            usable = b"\0" not in os.fsencode(path)
        except UnicodeEncodeError:
            usable = False
        if len(path) > _MOST_PATH_CHARACTERS:
            raise ToolError(f"A path of {len(path):,} characters is too long for any file. {_LIST}")
        if not usable:
            raise ToolError(f"'{shown(path)}' has characters that no file name can have. {_LIST}")
        try:
            # Twice: behind a link that leads to itself the first leaves what follows as it is, and links in it too.
            real = os.path.realpath(os.path.realpath(os.path.join(self.path, path)))
            inner = os.path.relpath(real, self.path)
        except (OSError, ValueError):  # ValueError: another drive
            inner = os.pardir
        parts = () if inner == os.curdir else tuple(inner.split(os.sep))
        if os.pardir in parts:
            raise ToolError(
                f"'{shown(path)}' is outside the folder these tools may read. Use a path inside that folder. {_LIST}"
            )
        lexical = os.path.normpath(os.path.join(self.path, path))
        return Place(parts, "" if lexical == os.path.join(self.path, *parts) else path)

    def open_file(self, place: Place) -> io.FileIO:
        """Open a regular file for reading, unbuffered. Never blocks.

        Raises:
            ToolError: It is missing, a folder, a special file, unreadable, or was swapped for a link just now.
        """
        with self._explained(place):
            descriptor = self._open(place)
        try:
            _require_file(kind_of(os.fstat(descriptor).st_mode), place)
            return io.FileIO(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def _open(self, place: Place) -> int:
        if not place.parts:
            _require_file("folder", place)
        if not _BY_DESCRIPTOR:
            return self._open_and_compare(place)
        with self._folder(place.parts[:-1]) as folder:
            name = place.parts[-1]
            # Looked at before it is opened: opening a device can already have an effect.
            _require_file(kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode), place)
            return os.open(name, _FILE_FLAGS, dir_fd=folder)

    def _open_and_compare(self, place: Place) -> int:
        path = os.path.join(self.path, *place.parts)
        _require_file(kind_of(os.lstat(path).st_mode), place)
        descriptor = os.open(path, _FILE_FLAGS)
        try:
            same = os.path.realpath(path) == path and os.path.samestat(os.fstat(descriptor), os.lstat(path))
            if not same:
                _require_file("link", place)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @contextmanager
    def _folder(self, parts: tuple[str, ...], last_flags: int = _PASS_FLAGS) -> Iterator[int]:
        """A descriptor of a folder below the root, reached name by name without following a link."""
        descriptor = os.open(self.path, _PASS_FLAGS if parts else last_flags)
        try:
            for index, name in enumerate(parts, 1):
                flags = last_flags if index == len(parts) else _PASS_FLAGS
                inner = os.open(name, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def status(self, place: Place) -> os.stat_result:
        """The status of a file or folder; a link in its place is not followed.

        Raises:
            ToolError: It is missing or cannot be reached.
        """
        with self._explained(place):
            if not _BY_DESCRIPTOR or not place.parts:
                return os.lstat(os.path.join(self.path, *place.parts))
            with self._folder(place.parts[:-1]) as folder:
                return os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False)

    def scan(self, place: Place, *, most: int) -> list[Entry]:
        """Names in a folder, in no order, at most `most`.

        Raises:
            ToolError: It is missing, not a folder, unreadable, or was swapped for a link just now.
        """
        with self._explained(place):
            if not _BY_DESCRIPTOR:
                path = os.path.join(self.path, *place.parts)
                if os.path.realpath(path) != path:
                    _require_file("link", place)
                return _entries(path, most)
            with self._folder(place.parts, _FOLDER_FLAGS) as folder:
                return _entries(folder, most)

    @contextmanager
    def _explained(self, place: Place) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._explain(error, place)

    def _explain(self, error: OSError, place: Place) -> NoReturn:
        if error.errno == errno.ENOENT and place.parts:
            way = f", where the symbolic link '{shown(place.asked)}' leads" if place.asked else ""
            raise ToolError(f"There is no '{place.shown}'{way}.{self._similar(place)} {_LIST}") from error
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise ToolError(
                f"'{place.shown}' cannot be reached: a name on the way is a file, a link that leads in a circle, "
                f"or changed just now. {_LIST}"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ToolError(
                f"'{place.shown}' cannot be read: permission denied. Go on without it, or ask the user to allow it."
            ) from error
        raise ToolError(
            f"'{place.shown}' cannot be read: {error.strerror or type(error).__name__}. Go on without it."
        ) from error

    def _similar(self, place: Place) -> str:
        import difflib

        *above, name = place.parts
        if above and not os.path.isdir(os.path.join(self.path, *above)):
            return ""
        try:
            names = {entry.name.lower(): entry.name for entry in self.scan(Place(tuple(above)), most=_MOST_COMPARED)}
        except (ToolError, OSError):
            return ""
        near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
        return f" Did you mean '{Place((*above, names[near[0]])).shown}'?" if near else ""


_LIST = "list_files() shows what is there."


def _entries(folder: int | str, most: int) -> list[Entry]:
    found: list[Entry] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) == most:
                break
            found.append(Entry(entry.name, _entry_kind(entry)))
    return found


def _entry_kind(entry: os.DirEntry[str]) -> Kind:
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else "special"
    except OSError:  # it went away since the folder was read
        return "special"


def kind_of(mode: int) -> Kind:
    """What kind of entry a status mode stands for."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "special"


def _require_file(kind: Kind, place: Place) -> None:
    if kind == "folder":
        raise ToolError(f"'{place.shown}' is a folder. list_files(path='{place.shown}') shows the files in it.")
    if kind == "link":
        raise ToolError(
            f"'{place.shown}' is a symbolic link that cannot be followed: it leads in a circle, or changed just now. "
            f"{_LIST}"
        )
    if kind == "special":
        raise ToolError(
            f"'{place.shown}' is a pipe, socket or device, not a regular file. It is never read; choose another file."
        )
