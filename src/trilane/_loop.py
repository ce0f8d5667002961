"""The event loop of a program that has none: `asyncio.run`, except that no signal is slept through."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

__all__ = ["run_loop"]

T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in an event loop of its own, as `asyncio.run` does.

    A handler of `signal.signal` runs between two instructions of Python, and the loop waits within one: a signal that
    comes when it is about to wait, or that the system hands to another thread, would be kept until something else
    wakes the loop: until a model says something, or for ever in a chat that nobody types into. So signals wake it
    themselves, until `main` takes its last handler away with `loop.remove_signal_handler`, which asyncio follows by
    waking nobody.
    """
    with ExitStack() as stack:
        # Restored last: closing the runner waits as well, for threads that are still at work.
        wake = stack.enter_context(_signal_pair())
        runner = stack.enter_context(asyncio.Runner())
        if wake is not None:
            with suppress(NotImplementedError):  # on Windows, whose loop sees to it itself
                runner.get_loop().add_reader(wake[0], _drain, *wake)
        return runner.run(main)


@contextmanager
def _signal_pair() -> Iterator[tuple[socket.socket, int] | None]:
    """A socket that can be read from once a signal has come, and whom to tell; None where signals are not heard."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    read, write = socket.socketpair()
    with read, write:
        read.setblocking(False)
        write.setblocking(False)
        try:
            before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        except ValueError:  # a subinterpreter, or a thread that only `threading` takes for the main one
            yield None
            return
        try:
            yield read, before
        finally:
            try:
                signal.set_wakeup_fd(before)
            except (OSError, ValueError):  # it was closed meanwhile
                signal.set_wakeup_fd(-1)
            _drain(read, before)


def _drain(wake: socket.socket, before: int) -> None:
    """The loop is awake, which is all that is wanted; whoever was woken by signals before is told of them as well."""
    with suppress(OSError):  # nothing there after all, or nobody to tell
        came = wake.recv(4096)
        if before != -1:
            os.write(before, came)
