"""Tells whether the machine is quiet. On a shared one, others take caches and clock cycles that no counter shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["ADDITIONS", "slowness", "when_quiet"]

T = TypeVar("T")

ADDITIONS = 3_000_000
"""How many additions the loop makes that is timed."""


def slowness() -> float:
    """Milliseconds that a plain loop takes now."""
    began = time.perf_counter()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return (time.perf_counter() - began) * 1e3


def when_quiet(take: Callable[[], T], limit_ms: float, name: str) -> T:
    """What `take` returns, called again until the machine was quiet just before and just after it.

    Args:
        take: Takes one sample.
        limit_ms: The most that the loop may take on a quiet machine, in milliseconds; find it with `slowness`.
        name: What the sample is, for those who wait.
    """
    told = time.monotonic()
    while True:
        before = slowness()
        if before <= limit_ms:
            sample = take()
            if slowness() <= limit_ms:
                return sample
        elif time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"waiting with {name}: the loop takes {before:.0f} ms, not {limit_ms:g}", file=sys.stderr, flush=True)
        else:
            time.sleep(0.5)
