"""What commands say beside their output: lines on stderr, errors as one paragraph, and a log that stays quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

__all__ = ["UsageError", "quiet_logging", "report_error", "say"]


class UsageError(Exception):
    """The command line cannot be used as it is; exit status 2."""


def say(text: str, stream: IO[str] | None = None) -> None:
    """Write a line to stderr; if nobody is there to read it, that must not stop anything."""
    from trilane.messages import clean_text

    try:
        print(clean_text(text), file=stream or sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def report_error(error: BaseException, *, debug: bool = False) -> int:
    """One readable paragraph on stderr, after the traceback if it was asked for; returns the exit status."""
    from trilane.errors import TrilaneError, UnknownModelError

    from .text import error_paragraph, visible

    if isinstance(error, UsageError):
        say(f"trilane: {visible(str(error))}")
        return 2
    if debug:
        import traceback

        say(visible("".join(traceback.format_exception(error)).rstrip()))
    hint = "" if debug or isinstance(error, TrilaneError) else " Run it again with --debug for the traceback."
    say(f"trilane: {error_paragraph(error)}{hint}")
    return 2 if isinstance(error, UnknownModelError) else 1


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Keep Trilane's log from stderr: the command reports the same things in better words."""
    import logging

    logger = logging.getLogger("trilane")
    handler, propagated = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
