"""Finds a text or a regular expression in lines.

A regular expression runs in a process of its own. In this one it could neither be interrupted nor would it let any
other thread run, and a short line is enough for some patterns to take hours; a process can be ended.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Protocol

from trilane.errors import ToolError

from .confine import shown

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from .bounded import Deadline

__all__ = ["Match", "Matcher", "PatternTooSlowError", "expression_matcher", "text_matcher"]

#: Index of the line, start and end of the first match in it.
Match = tuple[int, int, int]


class Matcher(Protocol):
    """Something that finds matches in lines."""

    def __call__(self, lines: list[str], /) -> list[Match]:
        """The first match of each line that has one, in order.

        Raises:
            PatternTooSlowError: The time was over before they were found.
        """


class PatternTooSlowError(ToolError):
    """The regular expression needs more time than there is."""


def text_matcher(text: str, *, ignore_case: bool) -> Matcher:
    """A matcher for plain text."""
    search = re.compile(re.escape(text), re.IGNORECASE if ignore_case else 0).search

    def match(lines: list[str]) -> list[Match]:
        found = ((index, search(line)) for index, line in enumerate(lines))
        return [(index, *hit.span()) for index, hit in found if hit]

    return match


@contextmanager
def expression_matcher(pattern: str, *, ignore_case: bool, deadline: Deadline) -> Iterator[Matcher]:
    """A matcher for a regular expression; its process ends with the context, or with the time left now.

    Raises:
        ToolError: It is not a regular expression, or no process can be started.
    """
    import subprocess
    import threading

    seconds = deadline.left_seconds
    process = _start()
    killer = threading.Timer(seconds, process.kill)
    killer.daemon = True
    killer.start()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        ask = _Exchange(process.stdin, process.stdout)
        first = ask({"pattern": pattern, "ignore_case": ignore_case, "seconds": seconds})
        problem = first.get("error") if isinstance(first, dict) else None
        if problem:
            raise ToolError(
                f"'{shown(pattern)}' is not a regular expression: {problem}. Correct it, or search as plain text with "
                "regex=False."
            )
        yield ask.match
    finally:
        killer.cancel()
        process.kill()
        try:
            process.communicate()
        except (OSError, ValueError, subprocess.SubprocessError):
            process.wait()


class _Exchange:
    """A line of JSON to the process, a line of JSON back."""

    def __init__(self, to: IO[str], back: IO[str]) -> None:
        self._to = to
        self._back = back

    def __call__(self, value: object) -> object:
        import json

        try:
            self._to.write(json.dumps(value) + "\n")
            self._to.flush()
            answer = self._back.readline()
        except OSError:
            answer = ""
        if not answer.endswith("\n"):
            raise PatternTooSlowError(
                "The regular expression takes too long here. Use a simpler one, without repeats inside repeats such as "
                "'(a+)+', or search as plain text with regex=False."
            )
        result: object = json.loads(answer)
        return result

    def match(self, lines: list[str]) -> list[Match]:
        answer = self(lines)
        return [(index, start, end) for index, start, end in answer] if isinstance(answer, list) else []


def _start() -> subprocess.Popen[str]:
    import subprocess
    import sys
    from importlib import resources

    program = resources.files(__package__ or "trilane_files").joinpath("regex_child.py").read_text(encoding="utf-8")
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
        )
    except OSError as error:
        raise ToolError(
            f"No process for the regular expression can be started ({error.strerror}). Search as plain text with "
            "regex=False."
        ) from error
