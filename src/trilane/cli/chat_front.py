"""Where a chat meets whoever uses it: a terminal (`chat_terminal.py`), or plain lines (`chat_plain.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from .interrupts import Interrupts
from .rendering import Renderer
from .tally import Tally

if TYPE_CHECKING:
    from trilane import RunStream

__all__ = ["ChatFront", "ChatLeft", "stopping"]


class ChatLeft(Exception):
    """Whoever uses the chat wants to leave it.

    Attributes:
        exit_status: 0, or 128 and the number of the signal that says so.
    """

    def __init__(self, exit_status: int = 0) -> None:
        super().__init__(exit_status)
        self.exit_status = exit_status


class ChatFront(ABC):
    """Takes lines in, shows what there is to see.

    Attributes:
        is_interactive: True if somebody sits there; then a stopped or failed run does not decide the exit status.
        can_ask: True if questions of a run can be put to somebody.
    """

    is_interactive = False
    can_ask = False

    @abstractmethod
    async def request(self) -> str:
        """The next thing somebody says while no run is on.

        Raises:
            ChatLeft: there will be no more.
        """

    @abstractmethod
    def give_back(self, text: str) -> None:
        """Put a text that was not heard where it can be used again."""

    @abstractmethod
    def renderer(self) -> Renderer:
        """What shows the next run."""

    @abstractmethod
    def attend(self, run: RunStream[Any], take: Callable[[str], None]) -> AbstractContextManager[object]:
        """While it is entered, `run` is on, and what is said goes to `take`."""

    @abstractmethod
    def make_interrupts(self, run: RunStream[Any], renderer: Renderer, tally: Tally) -> Interrupts:
        """What signals do while a run is on."""

    @abstractmethod
    async def ask(self, prompt: str, text: str = "", *, choices: Sequence[str] = ()) -> str:
        """Ask for one line; `text` stands there to be edited.

        Raises:
            NobodyAnswers: the prompt was closed.
        """

    @abstractmethod
    def show(self, text: str) -> None:
        """Show lines about a question."""

    @abstractmethod
    def tell(self, text: str) -> None:
        """Show what a command was asked for."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a remark of the chat's own."""

    @abstractmethod
    def error(self, text: str) -> None:
        """Show what went wrong."""


def stopping(
    run: RunStream[Any],
    renderer: Renderer,
    tally: Tally,
    *,
    last_seconds: float,
    write: Callable[[str], None] | None = None,
    leave: Callable[[int], None] | None = None,
) -> Interrupts:
    """Signals as in `trilane run`, except that a run which cannot be stopped is waited for a little longer."""
    from .driver import summary, unless_gone

    def first(text: str) -> None:
        unless_gone(lambda: renderer.note(text))

    def give_up() -> None:
        renderer.close()
        renderer.note(summary(None, tally))

    options: dict[str, Any] = {} if leave is None else {"leave": leave}
    return Interrupts(run, on_first=first, on_give_up=give_up, last_seconds=last_seconds, write=write, **options)
