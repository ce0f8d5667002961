"""What commands say beside their output: lines on stderr, errors as one paragraph, and a log that stays quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import IO, ParamSpec

import typer

__all__ = ["UsageError", "logging_to", "report_error", "reported", "say"]

P = ParamSpec("P")

#: What a shell reports for a program that was ended by SIGPIPE.
_PIPE_CLOSED = 141


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
    text = error_paragraph(error)
    if hint and text[-1:] not in ".!?":
        text += "."
    say(f"trilane: {text}{hint}")
    return 2 if isinstance(error, UnknownModelError) else 1


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Decorator of every command: an error becomes one paragraph, a reader that went away a quiet end."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except typer.Exit:
            raise
        except KeyboardInterrupt:  # once a run is on, Ctrl-C is its own affair (`interrupts.py`)
            say("trilane: interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # as with `| head`; the interpreter must not try to flush what is left
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(_PIPE_CLOSED) from None
        except Exception as error:
            raise typer.Exit(report_error(error)) from None

    return run


@contextmanager
def logging_to(write: Callable[[str], None] | None, *, debug: bool | None = None) -> Iterator[None]:
    """Pass warnings of Trilane's log to `write`, or nowhere if the command reports the same things in better words.

    With `debug` a traceback comes with it; without it there is a hint, unless the command has no such option (None).
    """
    import logging

    from trilane._dispatch import IN_DEBUG

    from .text import visible

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # A failure that is contained is shown as an event as well, `PluginFailed`.
            if write is None or (record.module, record.funcName) == ("_core", "report"):
                return
            text = record.getMessage().removesuffix(IN_DEBUG)
            if record.levelno >= logging.WARNING:
                text = f"warning: {text}"
            elif not record.exc_info:
                return
            if record.exc_info and debug:
                text = f"{logging.Formatter().formatException(record.exc_info)}\n{text}"
            elif debug is False and (record.exc_info or record.getMessage().endswith(IN_DEBUG)):
                text += ". Run it again with --debug for the traceback."
            write(visible(text))

    logger = logging.getLogger("trilane")
    handler, propagated, level = Handler(), logger.propagate, logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagated
