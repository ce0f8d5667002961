"""A chat in plain lines: from a pipe or a file, or on a terminal that can do no more."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from trilane.events import Event, MessageCompleted, UserMessageAdded

from .answers import NobodyAnswers, can_prompt
from .chat_front import ChatFront, ChatLeft, stopping
from .console import say
from .interrupts import Interrupts
from .rendering import PlainRenderer, Renderer
from .tally import Tally
from .text import one_line, visible

if TYPE_CHECKING:
    from trilane import RunStream

__all__ = ["ChatPlain", "LineSource"]


class LineSource:
    """Lines of a file descriptor, read in threads, so that anything can be read and nothing waits for it.

    What is read stays ready if whoever waited for it was cancelled.
    """

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._rest = b""
        self._reading: asyncio.Future[str | None] | None = None

    async def read(self) -> str | None:
        """The next line without its end; None if there are no more."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_future()
            # Not the loop's executor: a thread of that keeps the program from ending until somebody presses Enter.
            threading.Thread(target=self._work, args=(self._reading,), name="trilane chat input", daemon=True).start()
        reading = self._reading
        line = await asyncio.shield(reading)
        if self._reading is reading and line is not None:
            self._reading = None
        return line

    def _work(self, reading: asyncio.Future[str | None]) -> None:
        line = self._next()

        def arrive() -> None:
            if not reading.done():
                reading.set_result(line)

        try:
            reading.get_loop().call_soon_threadsafe(arrive)
        except RuntimeError:  # the loop is closed: the chat is over
            pass

    def _next(self) -> str | None:
        while b"\n" not in self._rest:
            try:
                got = os.read(self._fd, 4096)
            except OSError:
                got = b""
            if not got:
                if not self._rest:
                    return None
                got = b"\n"
            self._rest += got
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode("utf-8", "replace").rstrip("\r")


class ChatPlain(ChatFront):
    """Answers on `out`, everything else on stderr. On a terminal what is typed while a run works is steering."""

    def __init__(self, out: IO[str], source: LineSource | None = None, *, verbose: bool = False) -> None:
        self._out = out
        self._source = source or LineSource()
        self._verbose = verbose
        self.is_interactive = sys.stdin is not None and sys.stdin.isatty()
        self.can_ask = can_prompt()
        self._lines: deque[str] = deque()
        self._asking: asyncio.Future[str | None] | None = None
        self._is_closed = False

    async def request(self) -> str:
        text = ""
        while True:
            if self.is_interactive:
                _prompt("... " if text else "> ")
            line = self._lines.popleft() if self._lines else await self._source.read()
            if line is None:
                if text:
                    return text
                if self.is_interactive:
                    say("")
                raise ChatLeft
            text += line
            if not line.endswith("\\"):
                return text
            text = text[:-1] + "\n"

    def give_back(self, text: str) -> None:
        self.note(f"not heard: {one_line(text, 160)}")

    def renderer(self) -> Renderer:
        return _Renderer(self._out, verbose=self._verbose, live=self._out.isatty())

    @contextmanager
    def attend(self, run: RunStream[Any], take: Callable[[str], None]) -> Iterator[None]:
        if not self.is_interactive:
            yield
            return
        listening = asyncio.get_running_loop().create_task(self._listen(take))
        try:
            yield
        finally:
            listening.cancel()

    async def _listen(self, take: Callable[[str], None]) -> None:
        while (line := await self._source.read()) is not None:
            if self._asking is not None and not self._asking.done():
                self._asking.set_result(line)
            elif line.strip():
                take(line)
        self._is_closed = True
        if self._asking is not None and not self._asking.done():
            self._asking.set_result(None)

    def make_interrupts(self, run: RunStream[Any], renderer: Renderer, tally: Tally) -> Interrupts:
        return stopping(run, renderer, tally, last_seconds=0.3 if not self.is_interactive else 3.0)

    async def ask(self, prompt: str, text: str = "", *, choices: Sequence[str] = ()) -> str:
        if self._is_closed:
            raise NobodyAnswers("standard input was closed")
        _prompt(f"{prompt.rstrip().removesuffix('>')} [{visible(text)}]> " if text else prompt)
        self._asking = asyncio.get_running_loop().create_future()
        try:
            line = await self._asking
        finally:
            self._asking = None
        if line is None:
            raise NobodyAnswers("standard input was closed")
        return line if line or not text else text

    def show(self, text: str) -> None:
        say(visible(text))

    def tell(self, text: str) -> None:
        print(visible(text), file=self._out, flush=True)

    def note(self, text: str) -> None:
        say(visible(text))

    def error(self, text: str) -> None:
        say(f"trilane: {visible(text)}")


class _Renderer(PlainRenderer):
    """One run may have several answers: one to the request, and one to each follow-up."""

    _answer = ""

    def show(self, event: Event) -> None:
        if isinstance(event, MessageCompleted):
            self._answer = "" if event.message.calls or event.superseded else event.message.text
        elif isinstance(event, UserMessageAdded) and event.origin == "follow_up":
            if not self._live:
                self._write_out(self._answer)
            self._written = ""
        super().show(event)


def _prompt(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody sees it; reading the answer will say so
        pass
