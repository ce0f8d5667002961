"""The event loop of a program that has none: `asyncio.run`, except that no signal is slept through."""

from __future__ import annotations

import asyncio
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
    themselves.
    """
    with ExitStack() as stack:
        # Restored last: closing the runner waits as well, for threads that are still at work.
        wake = stack.enter_context(_signal_pair())
        runner = stack.enter_context(asyncio.Runner())
        if wake is not None:
            with suppress(NotImplementedError):  # on Windows, whose loop sees to it itself
                runner.get_loop().add_reader(wake, _drain, wake)
        return runner.run(main)


@contextmanager
def _signal_pair() -> Iterator[socket.socket | None]:
    """A socket that can be read from once a signal has come; None where signals are not heard."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    read, write = socket.socketpair()
    with read, write:
        read.setblocking(False)
        write.setblocking(False)
        before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        try:
            yield read
        finally:
            signal.set_wakeup_fd(before)


def _drain(wake: socket.socket) -> None:
    with suppress(OSError):  # nothing there after all; the loop is awake, which is all that is wanted
        wake.recv(4096)
