"""Showing the events of a run: the base of all renderers, the plain one and the JSON one.

A renderer only consumes events; it neither drives the run nor answers its questions (`driver.py`, `answers.py`). The
one for terminals is in `terminal.py`, apart because it imports rich.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Any

from trilane._records import adapter, error_text
from trilane.events import (
    ChildEvent,
    CompactionCompleted,
    CompactionProgress,
    CustomEvent,
    Event,
    MessageCompleted,
    ModelStarted,
    PhaseChanged,
    PluginFailed,
    ReasoningDelta,
    ReplyReceived,
    RunCancelled,
    RunCompleted,
    RunFailed,
    TextCompleted,
    TextDelta,
    ToolCompleted,
    ToolProgress,
    ToolStarted,
    UserMessageAdded,
)
from trilane.messages import clean_text
from trilane.state import AgentPhase

from .console import say
from .text import call_text, count, one_line, result_lines, visible

if TYPE_CHECKING:
    from trilane.messages import ToolCall, ToolResult
    from trilane.result import RunResult

__all__ = ["HumanRenderer", "JsonRenderer", "PlainRenderer", "Renderer", "answer_of"]


class Renderer(ABC):
    """Shows the events of one run, in order."""

    @abstractmethod
    def show(self, event: Event) -> None:
        """Show one event.

        Raises:
            BrokenPipeError: nobody reads the output any more.
        """

    def note(self, text: str) -> None:
        """Show a line of the command's own, on stderr."""
        say(text)

    def pause(self) -> None:  # noqa: B027  (most have nothing to do there)
        """Leave the terminal in peace: a question is about to be asked."""

    def resume(self) -> None:  # noqa: B027
        """The question is answered."""

    def close(self) -> None:  # noqa: B027
        """Leave everything as it was found. May be called twice."""


class JsonRenderer(Renderer):
    """Every event as one line of JSON, and nothing else, on `out`."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def show(self, event: Event) -> None:
        self._out.write(_json_line(event) + "\n")
        self._out.flush()


class HumanRenderer(Renderer):
    """Chooses from the events what people want to see; how it looks is up to the subclass."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self.compacted = ""  # what came of the last compaction, as it was shown
        self._is_compacting = False

    def show(self, event: Event) -> None:
        self._show(event, ())

    def _show(self, event: Event, path: tuple[str, ...]) -> None:
        match event:
            case TextDelta():
                if not path:
                    self.text(event.text)
            case ReasoningDelta():
                if not path:
                    self.reasoning(event.text)
            case TextCompleted():
                if not path:
                    self.text_completed()
            case ChildEvent():
                self._show(event.event, event.path)
            case ModelStarted():
                self.model_started(event, path)
            case MessageCompleted():
                if not path:
                    self.message_completed(event)
            case ToolStarted():
                self.tool_started(event.call, path)
            case ToolProgress():
                self.tool_progress(event, path)
            case ToolCompleted():
                self.tool_completed(event.call, event.result, path)
            case RunCompleted():
                self.completed(event.result)
            case RunFailed() | RunCancelled():
                self.broken_off(event.result)
            case _:
                self._show_rare(event, "".join(f"{name} > " for name in path))

    def _show_rare(self, event: Event, prefix: str) -> None:
        match event:
            case PhaseChanged():
                if not prefix:
                    self.text_completed()
                self.detail(f"{prefix}phase {event.previous} -> {event.phase}")
            case UserMessageAdded() if event.origin != "request":
                self.detail(f"{prefix}{event.origin.replace('_', ' ')}: {one_line(event.message.text, 100)}")
            case CompactionProgress():
                # The first of a compaction says what is begun, and why nothing else is seen for a while.
                self.detail(f"{prefix}{event.text}") if self._is_compacting else self.line(f"{prefix}{event.text}")
                self._is_compacting = True
            case CompactionCompleted():
                self._is_compacting = False
                if event.changed:
                    self.compacted = event.reason
                    self.line(f"{prefix}shortened for the model: {event.reason or 'no reason given'}")
            case CustomEvent():
                data = "" if event.data is None else one_line(str(event.data), 80)
                self.detail(f"{prefix}{event.plugin}: {event.name} {data}")
            case PluginFailed():
                what = one_line(f"{type(event.error).__name__}: {error_text(event.error)}", 200)
                self.warning(f"{prefix}plugin {event.plugin} failed in {event.hook} ({what}); {_in_spite_of(event)}")
            case ReplyReceived() if event.receipt.status == "expired":
                self.warning("the question was withdrawn before it was answered")
            case _:
                pass

    # ---- what subclasses draw

    @abstractmethod
    def text(self, text: str) -> None:
        """More of the answer."""

    def text_completed(self) -> None:
        """The text that was shown so far is followed by something else."""

    def reasoning(self, text: str) -> None:
        """More of what the model thinks."""

    def model_started(self, event: ModelStarted, path: tuple[str, ...]) -> None:
        """A model is being called."""
        if event.attempt > 1:
            self.warning(f"the model call is made again (attempt {event.attempt})")

    @abstractmethod
    def message_completed(self, event: MessageCompleted) -> None:
        """A message of the model has ended."""

    @abstractmethod
    def tool_started(self, call: ToolCall, path: tuple[str, ...]) -> None:
        """A tool is about to run."""

    def tool_progress(self, event: ToolProgress, path: tuple[str, ...]) -> None:
        """A tool says how far it is."""

    @abstractmethod
    def tool_completed(self, call: ToolCall, result: ToolResult, path: tuple[str, ...]) -> None:
        """A call has its result."""

    @abstractmethod
    def completed(self, result: RunResult[Any]) -> None:
        """The run has its answer."""

    @abstractmethod
    def broken_off(self, result: RunResult[Any]) -> None:
        """The run ended without an answer."""

    @abstractmethod
    def line(self, text: str) -> None:
        """One line beside the answer."""

    def detail(self, text: str) -> None:
        """A line for those who asked for details."""
        if self.verbose:
            self.line(text)

    def warning(self, text: str) -> None:
        """A line everybody should see."""
        self.line(f"warning: {text}")


class PlainRenderer(HumanRenderer):
    """The answer on `out`, everything else on `notes`, without colour or cursor movement.

    A pipe gets the answer once it stands and nothing before it: what a model says between tool calls, or says and
    takes back, is a note. With `live` (a terminal without capabilities) text is written as it streams.
    """

    def __init__(
        self, out: IO[str], notes: IO[str] | None = None, *, verbose: bool = False, live: bool = False
    ) -> None:
        super().__init__(verbose=verbose)
        self._out = out
        self._notes = notes
        self._live = live
        self._line_open = False
        self._written = ""

    def text(self, text: str) -> None:
        if self._live:
            self._write(visible(text))
            self._written += text

    def message_completed(self, event: MessageCompleted) -> None:
        self._end_line()
        text = event.message.text
        if event.superseded:
            self._written = ""
            self.line("the message above was taken back" if self._live else f"taken back: {one_line(text, 160)}")
        elif event.message.calls and text.strip() and not self._live:
            self.line(one_line(text, 400))
        elif event.message.calls:
            self._written = ""

    def tool_started(self, call: ToolCall, path: tuple[str, ...]) -> None:
        self.line(f"-> {call_text(call, 160, path)}")

    def tool_progress(self, event: ToolProgress, path: tuple[str, ...]) -> None:
        share = "" if event.fraction is None else f"{event.fraction:.0%} "
        self.detail(f".. {share}{one_line(event.text, 120)}")

    def tool_completed(self, call: ToolCall, result: ToolResult, path: tuple[str, ...]) -> None:
        outcome = "" if result.outcome == "ok" else f" {result.outcome.replace('_', ' ')}"
        lines = result_lines(result, lines=3, width=160)
        prefix = "".join(f"{name} > " for name in path)
        self.line("\n   ".join([f"<- {prefix}{call.name}{outcome}: {lines[0]}", *lines[1:]]))

    def completed(self, result: RunResult[Any]) -> None:
        answer = answer_of(result)
        if self._live and answer == self._written:
            self._end_line()
            return
        self._write_out(answer)

    def broken_off(self, result: RunResult[Any]) -> None:
        self._end_line()
        if result.text and not self._live:
            self._write_out(result.text)
        if result.text:
            self.line(f"the text above is not a finished answer ({count(len(result.text), 'character')})")

    def line(self, text: str) -> None:
        self._end_line()
        say(text, self._notes)

    def note(self, text: str) -> None:
        self.line(text)

    def pause(self) -> None:
        self._end_line()

    def close(self) -> None:
        self._end_line()

    def _write_out(self, text: str) -> None:
        text = clean_text(text)
        self._write(visible(text) if self._live else text)
        self._end_line()

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._line_open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._line_open:
            self._line_open = False
            self._out.write("\n")
            self._out.flush()


def _in_spite_of(event: PluginFailed) -> str:
    """What becomes of the run although a plugin failed."""
    match event.phase:
        case AgentPhase.COMPLETED:
            return "the answer stands"
        case AgentPhase.FAILED:
            return "the run had failed before"
        case AgentPhase.CANCELLED:
            return "the run was cancelled before"
        case _:
            return _ELSEWHERE.get(event.hook, "the run goes on")


_ELSEWHERE = {
    "decide_tool": "the call is denied",
    "on_model_error": "the model's error counts",
    "on_reply": "the reply is not taken",
    "on_compact": "the history stays as it is",
}


def answer_of(result: RunResult[Any]) -> str:
    """The answer as text: a plugin may have replaced what the model said."""
    output = result.output
    if isinstance(output, str):
        return output
    text: str = adapter(object).dump_json(output, indent=2, fallback=str).decode()
    return text


def _json_line(event: Event) -> str:
    try:
        return event.to_json()
    except (ValueError, UnicodeError):  # half a surrogate pair in a delta cannot be written as UTF-8
        import json

        data = adapter(type(event)).dump_python(event, mode="json")
        return json.dumps(_cleaned(data), ensure_ascii=False, separators=(",", ":"))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(str(key)): _cleaned(item) for key, item in value.items()}
    return value
