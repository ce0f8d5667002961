"""Whatever is written to stdout and stderr while a chat draws on the terminal: taken aside, and shown in its place.

A stray `print` of a plugin, or a program that a tool starts, would otherwise land in the middle of the prompt.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

__all__ = ["OutputAside"]


class OutputAside:
    """Takes the file descriptors 1 and 2 away from everybody, and hands out what is written there line by line.

    `show` is called in a thread of its own, which must not depend on the event loop: a plugin that blocks the loop and
    fills the pipe would wait for ever.
    """

    def __init__(self, show: Callable[[list[str]], None]) -> None:
        self._show = show
        self._saved: list[int] = []
        self._write = -1
        self._thread: threading.Thread | None = None

    def open(self) -> int:
        """Begin; returns a file descriptor of the terminal that was stdout."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._saved = [os.dup(1), os.dup(2)]
        read, self._write = os.pipe()
        self.divert()
        self._thread = threading.Thread(target=self._read, args=(read,), name="trilane chat output", daemon=True)
        self._thread.start()
        return self._saved[0]

    def divert(self) -> None:
        """Take them away, at first and after `restore`."""
        for number in (1, 2):
            os.dup2(self._write, number)

    def close(self) -> None:
        """Give them back, after what was written has been handed out."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # who reads it is gone; there is nobody to say so to
                pass
        self.restore()
        os.close(self._write)
        if self._thread is not None:
            self._thread.join(0.5)  # a program that was left running may keep its end of the pipe for long
        for saved in self._saved:
            os.close(saved)
        self._saved = []

    def restore(self) -> None:
        """Give the file descriptors back at once; from any thread, may be called twice."""
        for number, saved in zip((1, 2), self._saved, strict=False):
            os.dup2(saved, number)

    def _read(self, read: int) -> None:
        rest = b""
        while data := os.read(read, 65536):
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                self._show([_text(line) for line in lines])
        os.close(read)
        if rest:
            self._show([_text(rest)])


def _text(line: bytes) -> str:
    """What stays of a line on a terminal: a progress bar writes over itself."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
