"""Importing a plugin without letting it hang, kill or talk over the program that imports it.

An import runs in a daemon thread with a limit, so that a hanging one is given up. Whatever it raises is contained,
except KeyboardInterrupt. What it prints goes into the report, because standard output may be somebody's protocol.
Text that is written to the file descriptor itself, by C code or child processes, is not caught.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["ImportReport", "import_value"]


class ImportReport:
    """What became of an import.

    Attributes:
        value: What the entry point names; None if it failed.
        error: What it raised, TimeoutError if it took too long, None if it succeeded.
        output: What it printed.
    """

    __slots__ = ("error", "output", "value")

    def __init__(self, *, value: object = None, error: BaseException | None = None, output: str = "") -> None:
        self.value = value
        self.error = error
        self.output = output


def import_value(entry_point: EntryPoint, *, import_seconds: float) -> ImportReport:
    """Import what `entry_point` names, in a thread if it is not imported yet.

    Raises:
        KeyboardInterrupt: the user's, or one that the import raised.
    """
    if _is_imported(entry_point.module):
        try:
            return ImportReport(value=entry_point.load())
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return ImportReport(error=error)
    key = entry_point.value
    with _lock:
        task = _running.get(key)
        if task is None or not task.thread.is_alive():
            task = _running[key] = _Import(entry_point)
            task.thread.start()
            seconds = import_seconds
        else:
            seconds = 0.0 if task.given_up else import_seconds
    task.thread.join(seconds)
    if task.thread.is_alive():
        task.given_up = True
        return ImportReport(
            error=TimeoutError(f"the import has not ended within {import_seconds:g} s"), output=task.output.text()
        )
    with _lock:
        _running.pop(key, None)
    if isinstance(task.error, KeyboardInterrupt):
        raise task.error
    return ImportReport(value=task.value, error=task.error, output=task.output.text())


# Imports are the process's, not a manager's: one that hangs holds its module's lock, and everybody who asks again would
# wait as long for nothing.
_running: dict[str, _Import] = {}
_lock = threading.Lock()


class _Import:
    def __init__(self, entry_point: EntryPoint) -> None:
        self.entry_point = entry_point
        self.value: object = None
        self.error: BaseException | None = None
        self.given_up = False
        self.output = _Captured()
        self.thread = threading.Thread(target=self.run, name=f"trilane import {entry_point.name}", daemon=True)

    def run(self) -> None:
        try:
            with _StdoutRouter.capture(self.output):
                self.value = self.entry_point.load()
        except BaseException as error:  # SystemExit included: a plugin must not end the program it is imported by
            self.error = error


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    # importlib marks a module that is still running its own code; waiting for that may take for ever.
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


class _Captured:
    """Text written by one thread, cut off where nobody would read on."""

    LIMIT = 10_000

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def write(self, text: str) -> int:
        if self._length < self.LIMIT:
            self._pieces.append(text[: self.LIMIT - self._length])
            self._length += len(text)
        return len(text)

    def text(self) -> str:
        return "".join(self._pieces)


class _StdoutRouter:
    """Stands in for `sys.stdout` while plugins are imported: their threads write into buffers, all others through.

    `contextlib.redirect_stdout` would swallow what the rest of the program prints meanwhile.
    """

    _lock = threading.Lock()
    _current: _StdoutRouter | None = None

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout
        self._buffers: dict[int, _Captured] = {}

    def write(self, text: str) -> int:
        buffer = self._buffers.get(threading.get_ident())
        return buffer.write(text) if buffer is not None else self._stdout.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stdout, name)

    @staticmethod
    def capture(buffer: _Captured) -> _Capturing:
        return _Capturing(buffer)


class _Capturing:
    """Sends what the current thread prints into a buffer, from enter to exit."""

    def __init__(self, buffer: _Captured) -> None:
        self._buffer = buffer
        self._router: _StdoutRouter | None = None

    def __enter__(self) -> None:
        with _StdoutRouter._lock:
            router = _StdoutRouter._current
            if router is None or sys.stdout is not router:
                router = _StdoutRouter._current = _StdoutRouter(sys.stdout)
                sys.stdout = router
            router._buffers[threading.get_ident()] = self._buffer
            self._router = router

    def __exit__(self, *_: object) -> None:
        with _StdoutRouter._lock:
            router = self._router
            assert router is not None
            router._buffers.pop(threading.get_ident(), None)
            if not router._buffers and sys.stdout is router:
                sys.stdout = router._stdout
                _StdoutRouter._current = None
