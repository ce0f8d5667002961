"""What keeps a result small and a tool call short: `Page` for lines of a result, `Deadline` for time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trilane.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RESULT_CHARACTERS", "Deadline", "Page", "require_at_least"]

#: Characters of a tool result, its closing note not counted.
RESULT_CHARACTERS = 16_000


class Deadline:
    """A moment after which a tool stops looking and says so.

    Args:
        seconds: From now.
        clock: Seconds that only grow.
    """

    __slots__ = ("_clock", "_end", "seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    @property
    def passed(self) -> bool:
        """True from that moment on."""
        return self._clock() >= self._end

    @property
    def left_seconds(self) -> float:
        """Seconds until then, never negative."""
        return max(0.0, self._end - self._clock())


class Page:
    """Counts every line it is given and keeps those of one page.

    Args:
        offset: Lines before the page.
        most: Lines of the page; fewer where `RESULT_CHARACTERS` is reached.
    """

    __slots__ = ("_characters", "_full", "_most", "lines", "offset", "total")

    def __init__(self, *, offset: int, most: int) -> None:
        self.offset = offset
        self.lines: list[str] = []
        self.total = 0
        self._most = most
        self._characters = 0
        self._full = False

    def add(self, line: str) -> None:
        """Count a line, and keep it if it belongs to the page."""
        self.total += 1
        if self._full or self.total <= self.offset:
            return
        too_long = self.lines and self._characters + len(line) > RESULT_CHARACTERS
        if too_long or len(self.lines) == self._most:
            self._full = True
            return
        self.lines.append(line)
        self._characters += len(line) + 1

    def note(self, what: str, *, complete: bool) -> str:
        """Which part of the whole the page is and how to get the rest; empty if it is the whole.

        Args:
            what: Plural noun for the lines.
            complete: False if there may be lines that were never added.
        """
        if complete and len(self.lines) == self.total:
            return ""
        total = f"{self.total:,}" if complete else f"at least {self.total:,}"
        if not self.lines:
            return f"[no {what} after offset={self.offset}: there are {total}]" if self.offset else ""
        end = self.offset + len(self.lines)
        more = f"; continue with offset={end}" if end < self.total else ""
        return f"[{what} {self.offset + 1:,}-{end:,} of {total}{more}]"


def require_at_least(least: int, **arguments: int) -> None:
    """Check numbers given by the model.

    Raises:
        ToolError: One is smaller than `least`; the text names it.
    """
    for name, value in arguments.items():
        if value < least:
            raise ToolError(f"{name}={value} cannot be used: it must be {least} or more.")
