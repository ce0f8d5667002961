"""Warnings about plugins and their settings, on the logger `trilane`.

Each once per process: with an agent per request the same plugin fails thousands of times.
"""

from __future__ import annotations

__all__ = ["warn_once"]

_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning, unless it was logged before."""
    if message not in _warned:
        _warned.add(message)
        from logging import getLogger

        getLogger("trilane").warning(message)
