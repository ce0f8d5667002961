"""The time limits of one attempt: one cancel scope, whose deadline moves with what is waited for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import anyio

__all__ = ["TimeLimits", "Watch"]


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds; the settings of the same names say what of."""

    connect_seconds: float = 10.0
    first_byte_seconds: float = 300.0
    idle_seconds: float = 300.0
    total_seconds: float | None = None


class Watch:
    """Watches one attempt. Enter `scope`; when it has caught a cancellation, `passed` says which limit it was.

    The time in which a delta waits for the caller does not count: `pause` before it, `expect` after it.
    """

    __slots__ = ("_limits", "_paused_at", "_total_at", "passed", "scope")

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._paused_at = 0.0
        self._total_at = math.inf if limits.total_seconds is None else anyio.current_time() + limits.total_seconds
        self.passed = ""
        self.scope = anyio.CancelScope()
        self.expect("first_byte_seconds")

    def expect(self, setting: str) -> None:
        """Something has arrived, or the caller is ready again: what comes next has this limit."""
        now = anyio.current_time()
        if self._paused_at:
            self._total_at += now - self._paused_at
            self._paused_at = 0.0
        at: float = now + getattr(self._limits, setting)
        self.passed = setting if at <= self._total_at else "total_seconds"
        self.scope.deadline = min(at, self._total_at)

    def pause(self) -> None:
        """The caller is waited for."""
        self._paused_at = anyio.current_time()
        self.scope.deadline = math.inf

    def seconds(self) -> float:
        """The limit that passed."""
        value: float = getattr(self._limits, self.passed)
        return value
