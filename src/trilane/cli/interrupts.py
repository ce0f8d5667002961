"""Ctrl-C and termination while a run is on: once politely, twice at once.

Ctrl-C stops the run. Whoever terminates the program (a restart, a terminal that is closed) does not mean the run: it is
put aside, so that it can be resumed where it was.

The handler is a plain `signal.signal` one and only hands the news to the event loop: with asyncio's own
`add_signal_handler` a plugin that blocks the loop would make Ctrl-C do nothing at all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextvars import copy_context
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from trilane import RunStream

__all__ = ["Interrupts"]

_SIGNALS = {
    number: reason
    for name, reason in {
        "SIGINT": "interrupted by Ctrl-C",
        "SIGTERM": "put aside: terminated by a signal",
        "SIGHUP": "put aside: the terminal was closed",
    }.items()
    if (number := getattr(signal, name, None)) is not None  # not every system has all of them
}


class Interrupts:
    """Context manager: while it is entered, signals stop `run`.

    The first Ctrl-C calls `run.stop(reason)` and, if the run has not ended `patience_seconds` later, `run.close()`; the
    first of the other signals calls `run.suspend()`. The second closes at once and gives up `last_seconds` later
    whatever has not ended by then; if the loop has not even noticed the first one, or at the third, the process ends
    there and then.

    `on_first` is told what to say of the first signal. `write` and `leave` write to the terminal and end the process:
    past all buffers, from a signal handler or another thread.

    Attributes:
        reason: Why the run was stopped; empty while no signal has come.
        exit_status: 128 and the number of the signal; 0 while no signal has come.
        interrupted: Set by the first signal.
        puts_aside: True once a signal came that puts the run aside, even before the event loop has noticed.
    """

    def __init__(
        self,
        run: RunStream[Any],
        *,
        on_first: Callable[[str], None],
        on_give_up: Callable[[], None],
        patience_seconds: float = 0.5,
        last_seconds: float = 0.3,
        write: Callable[[str], None] | None = None,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self.reason = ""
        self.exit_status = 0
        self.interrupted = asyncio.Event()
        self.puts_aside = False
        self._run = run
        self._on_first = on_first
        self._on_give_up = on_give_up
        self._patience_seconds = patience_seconds
        self._last_seconds = last_seconds
        self._write = write or _write
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        # A signal may arrive while a task of the run holds the thread; what it starts must not belong to the run.
        self._context = copy_context()
        self._count = 0
        self._noticed = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._watch: threading.Timer | None = None
        self._closing: asyncio.Task[None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) == signal.SIG_IGN:
                continue  # started with nohup: it is meant to outlive its terminal
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for timer in self._timers:
            timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Runs between two instructions of the main thread, whatever that is doing."""
        self._count += 1
        self.puts_aside = self.puts_aside or (self._count == 1 and number != signal.SIGINT)
        if self._count >= 3 or (self._count == 2 and not self._noticed):
            self._write("stopped at once; what was running was left as it was")
            self._leave(128 + number)
        self._watch = threading.Timer(self._patience_seconds, self._tell_if_unnoticed, (number,))
        self._watch.daemon = True
        self._watch.start()
        self._loop.call_soon_threadsafe(self._notice, number, context=self._context)

    def _tell_if_unnoticed(self, number: int) -> None:
        if not self._noticed:
            again = "press Ctrl-C again" if number == signal.SIGINT else "send another signal"
            self._write(f"a tool or a plugin blocks the event loop; {again} to stop at once")

    def _notice(self, number: int) -> None:
        self._noticed += 1
        if self._noticed == 1:
            self.reason = _SIGNALS[signal.Signals(number)]
            self.exit_status = 128 + number
            self.interrupted.set()
            if number != signal.SIGINT:
                self._closing = self._loop.create_task(self._run.suspend())
                self._on_first("putting the run aside")
                return
            self._on_first("stopping at the next boundary; press Ctrl-C again to stop at once")
            self._run.stop(self.reason)
            self._timers.append(self._loop.call_later(self._patience_seconds, self._close))
        else:
            self._timers.append(self._loop.call_later(self._last_seconds, self._give_up))
            self._close()

    def _close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._run.close())

    def _give_up(self) -> None:
        self._on_give_up()
        self._leave(self.exit_status)


def _write(text: str) -> None:
    """Past all buffers, because a print may have been interrupted half-way; and with the cursor shown again."""
    shown = "\x1b[?25h" if os.isatty(2) else ""
    os.write(2, f"{shown}\ntrilane: {text}\n".encode())
