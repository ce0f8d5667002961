"""When a failed call is tried again, and after how long. Nothing else in this plugin retries, the SDK included."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["RetryPolicy", "is_retryable", "retry_after_seconds"]

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 8.0
_RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
#: Codes of a 429 that waiting does not cure.
_NO_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "insufficient_balance")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how long to wait.

    Attributes:
        max_retries: Retries after the first attempt.
        max_retry_after_seconds: The longest wait a server may ask for; above it the call fails at once.
        spread: Gives a number from 0 to 1 that spreads the waits of many clients; replaced in tests.
    """

    max_retries: int = 2
    max_retry_after_seconds: float = 60.0
    spread: Callable[[], float] = random.random

    def wait_seconds(self, attempt: int, retryable: bool, asked_seconds: float | None) -> float | None:
        """Seconds to wait after attempt number `attempt` (from 1) failed; None to give up.

        Args:
            attempt: Which attempt it was.
            retryable: Whether the same request may work later.
            asked_seconds: What the server asked for, None if nothing.
        """
        if not retryable or attempt > self.max_retries:
            return None
        if asked_seconds is not None:
            return asked_seconds if asked_seconds <= self.max_retry_after_seconds else None
        longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** (attempt - 1))
        return longest * (1 - 0.25 * self.spread())


def retry_after_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """What a response's headers ask to wait, in seconds; None if nothing or nonsense.

    Args:
        headers: With lower-case names, or any mapping that ignores case.
        now: Seconds since the epoch, for waits that are given as a date. A date in the past is no wait.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _number(text)
    return seconds if seconds is not None else _until(text, now)


def is_retryable(status: int, code: str, headers: Mapping[str, str]) -> bool:
    """Whether a response with an error may be better the next time."""
    if code in _NO_MONEY:
        return False
    said = headers.get("x-should-retry")
    return said == "true" if said in ("true", "false") else status in _RETRYABLE


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _until(text: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, at.timestamp() - now)
