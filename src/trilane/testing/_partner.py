"""A process that is told something and answers, line by line: for what several processes share.

What it writes to stderr is kept, so that an error can say why it ended too early. What the processes do is in
`races.py` and `sharing.py`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

__all__ = ["EndedError", "Partner"]

LINES = 6  # of what it wrote to stderr: of a traceback the error, and where it was raised
PATIENCE_SECONDS = 10.0  # for the end of a process that has closed its stdout


class EndedError(AssertionError):
    """The process has ended and was expected to answer."""


class Partner:
    """One process, as its parent sees it. It is killed when its context is left with an error.

    Args:
        name: What messages call it.
        command: How it is started.
        advice: What to do if it ends too early, as a sentence.
    """

    def __init__(self, name: str, command: Sequence[str], *, advice: str = "") -> None:
        self.name = name
        self._advice = advice
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (see __exit__)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )

    def __enter__(self) -> Partner:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        if kind is None:
            sys.stderr.write(self._written())
        self._stderr.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill it, and wait until it is dead."""
        self._process.kill()
        self._process.wait()

    def tell(self, text: str) -> None:
        """Write a line to it.

        Raises:
            EndedError: it has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def hear(self) -> str:
        """Its next line.

        Raises:
            EndedError: it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return line.strip()

    def _ended(self) -> EndedError:
        try:
            status = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"has ended with status {status}"
        last = [line for line in self._written().splitlines() if line.strip()][-LINES:]
        wrote = "\n    ".join(["; it last wrote:", *last]) if last else " and wrote no error"
        return EndedError(f"the process {self.name!r} {how}{wrote}" + (f"\n{self._advice}" if self._advice else ""))

    def _written(self) -> str:
        """What it wrote to stderr. Once it has ended: they share the place in the file."""
        self._stderr.seek(0)
        return self._stderr.read()
