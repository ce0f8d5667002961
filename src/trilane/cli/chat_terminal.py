"""A chat on a terminal: one line at the bottom that is always there, for requests, steering and answers.

What is drawn is in `chat_screen.py`, what keys do in `chat_editor.py`. Needs termios; elsewhere a chat has plain lines.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from trilane.events import Event, UserMessageAdded

from .answers import NobodyAnswers
from .chat_editor import Action, LineEditor
from .chat_front import ChatFront, ChatLeft, stopping
from .chat_history import History
from .chat_keys import Key, KeyDecoder
from .chat_output import OutputAside
from .chat_screen import Screen
from .interrupts import Interrupts
from .rendering import Renderer
from .tally import Tally
from .terminal import TerminalRenderer
from .text import one_line, visible

if TYPE_CHECKING:
    from trilane import RunStream

__all__ = ["ChatRenderer", "ChatTerminal"]

_WORKING = "type to steer, > before it for after the answer, Ctrl-C stops"
_WAITING = Style(dim=True, italic=True)
_FRAME_SECONDS = 0.1
_PASTES = ("\x1b[?2004h", "\x1b[?2004l")


class ChatTerminal(ChatFront):
    """Context manager, entered inside the event loop: takes over the terminal of stdin and stdout."""

    is_interactive = True
    can_ask = True

    def __init__(
        self, history: History, *, complete: Callable[[str], Sequence[str]] | None = None, verbose: bool = False
    ) -> None:
        self._history = history
        self._verbose = verbose
        self._complete = complete
        self._lines: deque[str] = deque()  # said before anybody could take it
        self._news = asyncio.Event()
        self._left: ChatLeft | None = None
        self._take: Callable[[str], None] | None = None
        self._run: RunStream[Any] | None = None
        self._asking: asyncio.Future[str] | None = None
        self._saying: list[str] = []  # said, and not yet heard by the run
        self._renderer: ChatRenderer | None = None
        self._decoder = KeyDecoder()
        self._keys: deque[Key] = deque()
        self._line = LineEditor(entries=history.entries, complete=complete)
        self._output = OutputAside(self._stray)
        self._before: list[Any] = []
        self._signals: dict[signal.Signals, Any] = {}
        self._ticking: asyncio.TimerHandle | None = None

    # ---- taking over and giving back ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._before = termios.tcgetattr(0)
        encoding = sys.stdout.encoding
        self._tty: IO[str] = os.fdopen(os.dup(self._output.open()), "w", encoding=encoding, errors="replace")
        self._screen = Screen(Console(file=self._tty, highlight=False))
        self._screen.region = self._region
        self._screen.editor = self._line
        self._mode(working=False)
        self._tty.write(_PASTES[0])
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGWINCH):
            self._signals[number] = signal.signal(number, self._signalled)
        self._loop.add_reader(0, self._readable)
        self._screen.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.remove_reader(0)
        for number, handler in self._signals.items():
            signal.signal(number, handler)
        try:
            with suppress(OSError):  # the terminal may be gone
                self._screen.close()
            self._output.close()
        finally:
            self._restore()
            with suppress(OSError):
                self._tty.close()

    def _mode(self, *, working: bool) -> None:
        """Keys as they are typed. While a run is on, Ctrl-C is a signal, so that it works whatever the loop does."""
        mode = [*self._before[:6], list(self._before[6])]
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        if not working:
            mode[3] &= ~termios.ISIG
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        mode[6][termios.VSUSP] = os.fpathconf(0, "PC_VDISABLE").to_bytes(1, "little")
        try:
            termios.tcsetattr(0, termios.TCSANOW, mode)
        except termios.error:  # it was closed; reading from it says so
            pass

    def _restore(self) -> None:
        """Give the terminal back as it was; from any thread, and from a signal handler."""
        self._output.restore()
        try:
            os.write(self._tty.fileno(), f"{_PASTES[1]}\x1b[?25h".encode())
            termios.tcsetattr(0, termios.TCSANOW, self._before)
        except (OSError, termios.error):  # the terminal is gone, and what it was with it
            pass

    def _leave(self, status: int) -> None:
        self._restore()
        os._exit(status)

    def _write_raw(self, text: str) -> None:
        os.write(self._tty.fileno(), f"\r\n\x1b[Jtrilane: {text}\r\n".encode())

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        what = self._screen.draw if number == signal.SIGWINCH else lambda: self._end(ChatLeft(128 + number))
        self._loop.call_soon_threadsafe(what)

    def _suspend(self) -> None:
        """Ctrl-Z: to the shell and back."""
        self._screen.close()
        self._restore()
        os.kill(0, signal.SIGTSTP)
        # Here the shell has brought us back.
        self._output.divert()
        self._mode(working=self._run is not None)
        os.write(self._tty.fileno(), _PASTES[0].encode())
        self._screen.open()
        self._screen.draw()

    # ---- keys --------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = os.read(0, 4096)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(0)
            self._end(ChatLeft())
            return
        self._keys += self._decoder.feed(data)
        self._pump()

    def _pump(self) -> None:
        """Act on what was typed; what follows an answer waits until it is clear what is asked next."""
        while self._keys and not (self._asking is not None and self._asking.done()):
            editor = self._screen.editor
            action = None if editor is None else editor.feed(self._keys.popleft())
            if action is not None and editor is not None:
                self._act(action, editor)
        self._screen.draw()

    def _act(self, action: Action, editor: LineEditor) -> None:
        if action == "submit":
            text = editor.text
            editor.set("")
            self._submit(text)
        elif action == "clear":
            self._screen.clear()
        elif action == "suspend":
            self._suspend()
        elif action == "interrupt" and editor.text:
            editor.set("")
        elif self._asking is not None:
            if action == "eof":
                self._asking.set_exception(NobodyAnswers("the question was left open"))
        elif self._run is None:
            self._end(ChatLeft(130 if action == "interrupt" else 0))

    def _submit(self, text: str) -> None:
        if self._asking is not None:
            self._asking.set_result(text)
        elif not text.strip():
            return
        else:
            self._history.add(text)
            if self._take is not None:
                self._take(text)
            else:
                self._lines.append(text)
                self._news.set()

    def _end(self, left: ChatLeft) -> None:
        self._left = self._left or left
        self._news.set()
        if self._asking is not None and not self._asking.done():
            self._asking.set_exception(NobodyAnswers("the terminal was closed"))
        if self._run is not None:
            self._run.stop("the terminal was closed")

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def request(self) -> str:
        self._renderer = None
        self._screen.placeholder = "/help shows what can be typed" if not self._history.entries else ""
        self._screen.draw()
        while not self._lines:
            if self._left is not None:
                raise self._left
            self._news.clear()
            await self._news.wait()
        text = self._lines.popleft()
        self._screen.placeholder = ""
        self._say(text)
        return text

    def give_back(self, text: str) -> None:
        self._line.set(f"{text}\n{self._line.text}" if self._line.text else text)

    def _say(self, text: str) -> None:
        self._screen.print("\n> " + visible(text).replace("\n", "\n  "), "bold")

    # ---- a run -------------------------------------------------------------------------------------------------------

    def renderer(self) -> Renderer:
        self._renderer = ChatRenderer(self._screen, self._heard, verbose=self._verbose)
        return self._renderer

    @contextmanager
    def attend(self, run: RunStream[Any], take: Callable[[str], None]) -> Iterator[None]:
        def taken(text: str) -> None:
            if not text.startswith("/"):
                self._saying.append(text)
            take(text)

        self._run, self._take = run, taken
        self._screen.placeholder = _WORKING
        self._mode(working=True)
        self._tick()
        if self._left is not None:
            run.stop("the terminal was closed")
        try:
            yield
        finally:
            self._run = self._take = None
            self._saying.clear()
            self._screen.placeholder = ""
            if self._ticking is not None:
                self._ticking.cancel()
            self._mode(working=False)

    def make_interrupts(self, run: RunStream[Any], renderer: Renderer, tally: Tally) -> Interrupts:
        return stopping(run, renderer, tally, last_seconds=3.0, write=self._write_raw, leave=self._leave)

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(_FRAME_SECONDS, self._tick)
        if self._asking is None:
            self._screen.draw()

    def _heard(self, text: str) -> None:
        """The run has taken in what was said."""
        for said in self._saying:
            if said.lstrip("> ").strip() == text:
                self._saying.remove(said)
                break
        self._say(text)

    def _region(self, console: Console, options: ConsoleOptions, room: int) -> list[list[Segment]]:
        if self._asking is not None:
            return []
        lines = [] if self._renderer is None else list(self._renderer.region(console, options))
        for said in self._saying:
            lines.append([Segment(one_line(f"waiting to be heard: {said}", console.width - 1), _WAITING)])
        return lines[-room:] if room > 0 else []

    # ---- questions and remarks ---------------------------------------------------------------------------------------

    async def ask(self, prompt: str, text: str = "", *, choices: Sequence[str] = ()) -> str:
        if self._left is not None:
            raise NobodyAnswers("the terminal was closed")

        def complete(line: str) -> Sequence[str]:
            return [choice for choice in choices if choice.startswith(line)]

        screen = self._screen
        before = screen.placeholder
        self._asking = self._loop.create_future()
        screen.editor = LineEditor(text, complete=complete, multiline=False)
        screen.prompt, screen.placeholder, screen.spaced = prompt, "", False
        screen.draw()
        try:
            line = await self._asking
            screen.print(f"{prompt}{visible(line)}")
            return line
        finally:
            self._asking = None
            screen.editor = self._line
            screen.prompt, screen.placeholder, screen.spaced = "> ", before, True
            self._loop.call_soon(self._pump)

    def show(self, text: str) -> None:
        self._screen.print(visible(text))

    def tell(self, text: str) -> None:
        self._screen.print(visible(text), cut=True)

    def note(self, text: str) -> None:
        self._screen.print(visible(text), "yellow")

    def error(self, text: str) -> None:
        self._screen.print(visible(text), "red")

    def _stray(self, lines: list[str]) -> None:
        """What somebody wrote to stdout or stderr. In a thread of its own."""
        text = "\n".join(f"| {visible(line).expandtabs(4)}" for line in lines)
        try:
            self._loop.call_soon_threadsafe(self._screen.print, text, "dim")
        except RuntimeError:  # the loop is closed already
            os.write(self._tty.fileno(), text.encode() + b"\r\n")


class ChatRenderer(TerminalRenderer):
    """Draws a run on the screen of a chat, which calls for what may still change."""

    def __init__(self, screen: Screen, heard: Callable[[str], None], *, verbose: bool) -> None:
        super().__init__(screen.console, verbose=verbose)
        self._heard = heard

    def show(self, event: Event) -> None:
        if isinstance(event, UserMessageAdded) and event.origin in ("steering", "follow_up"):
            self.text_completed()
            self._heard(event.message.text)
            self._gap = "text"
        else:
            super().show(event)

    def note(self, text: str) -> None:
        self._print(Text(visible(text), style="yellow"), kind="note")

    def _ensure_live(self) -> None:
        pass

    def _stop_live(self) -> None:
        pass
