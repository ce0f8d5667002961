"""What was typed in earlier chats, one entry a line as JSON, so that an entry may have several lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from trilane.messages import clean_text

__all__ = ["History", "history_path"]

MOST = 1000


def history_path(environ: Mapping[str, str]) -> Path | None:
    """Where the history is kept: `TRILANE_HISTORY`, or a file in the user's folder for such things.

    Returns:
        None if `TRILANE_HISTORY` is set and empty: then nothing is kept.
    """
    if "TRILANE_HISTORY" in environ:
        return Path(environ["TRILANE_HISTORY"]).expanduser() if environ["TRILANE_HISTORY"] else None
    if environ.get("XDG_STATE_HOME"):
        state = Path(environ["XDG_STATE_HOME"])
    elif sys.platform == "win32" and environ.get("LOCALAPPDATA"):
        state = Path(environ["LOCALAPPDATA"])
    else:
        state = Path(environ.get("HOME") or os.path.expanduser("~")) / ".local" / "state"
    return state / "trilane" / "chat-history.jsonl"


class History:
    """The entries of a history file, the newest last.

    Attributes:
        entries: What can be gone back to.
        problem: Why nothing is kept, empty if all is well; set by `add` and when the file is read.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries: list[str] = []
        self.problem = ""
        if path is not None:
            self._load(path)

    def add(self, text: str) -> None:
        """Keep an entry. One that begins with a space, or repeats the last, is not kept."""
        text = clean_text(text)
        if not text.strip() or text[0] == " " or (self.entries and self.entries[-1] == text):
            return
        self.entries.append(text)
        if self._path is None or self.problem:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # What people type may be private: nobody else may read it.
            with open(self._path, "a", encoding="utf-8", opener=_private) as file:
                file.write(json.dumps(text, ensure_ascii=False) + "\n")
        except OSError as error:
            self.problem = f"the history cannot be kept in {self._path}: {error.strerror or error}"

    def _load(self, path: Path) -> None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            return
        except OSError as error:
            self.problem = f"the history in {path} cannot be read: {error.strerror or error}"
            return
        self.entries = [entry for line in lines if (entry := _entry(line))][-MOST:]
        if len(lines) > 2 * MOST + 1:
            self._shorten(path)

    def _shorten(self, path: Path) -> None:
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            with open(beside, "w", encoding="utf-8", opener=_private) as file:
                file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in self.entries)
            os.replace(beside, path)
        except OSError:  # it stays long
            pass


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _entry(line: str) -> str:
    """What a line of the file means, empty if nothing."""
    try:
        value = json.loads(line)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""
