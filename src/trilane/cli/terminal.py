"""The renderer for terminals: streaming Markdown, tool calls that finish in place, a line that shows what goes on.

Finished things are printed and stay; what may still change is drawn in a region below them that rich redraws some ten
times a second from its own thread, so that an event costs next to nothing. Imports rich; `rendering.py` does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment, SegmentLines
from rich.spinner import Spinner
from rich.text import Text

from .console import say
from .markdown import GrowingMarkdown, crop
from .rendering import HumanRenderer, answer_of
from .text import call_text, count, one_line, result_lines, visible

if TYPE_CHECKING:
    from trilane.events import MessageCompleted, ModelStarted, ToolProgress
    from trilane.messages import ToolCall, ToolResult
    from trilane.result import RunResult

__all__ = ["TerminalRenderer"]

_STYLES = {"ok": "green", "error": "red", "denied": "yellow", "timed_out": "red"}


class _RunningTool:
    __slots__ = ("label", "progress", "since")

    def __init__(self, label: str) -> None:
        self.label = label
        self.progress = ""
        self.since = monotonic()


class TerminalRenderer(HumanRenderer):
    """Draws on `console`. Notes go there too, unless stderr leads elsewhere."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        super().__init__(verbose=verbose)
        self._console = console
        self._ascii = not (console.encoding or "").lower().startswith("utf")
        self._live: Live | None = None
        self._paused = False
        self._growing = GrowingMarkdown()
        self._running: dict[tuple[tuple[str, ...], str], _RunningTool] = {}
        self._waiting = ""
        self._waiting_since = 0.0
        self._thought = ""
        self._spinner = Spinner("line" if self._ascii else "dots", style="cyan")
        self._gap: str | None = None  # what stands above: a blank line goes between answer and tools
        self._message: list[str] = []

    # ---- events

    def text(self, text: str) -> None:
        self._thought = self._waiting = ""
        self._message.append(text)
        self._ensure_live()
        finished = self._growing.add(visible(text))
        if finished:
            self._print_markdown(finished)

    def text_completed(self) -> None:
        rest = self._growing.finish()
        if rest:
            self._print_markdown(rest)

    def reasoning(self, text: str) -> None:
        self._thought = (self._thought + text)[-2000:]
        self._ensure_live()

    def model_started(self, event: ModelStarted, path: tuple[str, ...]) -> None:
        super().model_started(event, path)
        if not path:
            self._waiting, self._waiting_since = event.model, monotonic()
            self._message.clear()
            self._ensure_live()

    def message_completed(self, event: MessageCompleted) -> None:
        self._waiting = self._thought = ""
        self.text_completed()
        if event.superseded:
            self._message.clear()
            self.warning("the message above was taken back")
        elif event.interrupted:
            self.warning("the message above was cut off")

    def tool_started(self, call: ToolCall, path: tuple[str, ...]) -> None:
        self._waiting = ""
        self._running[path, call.id] = _RunningTool(call_text(call, self._width - 12, path))
        self._ensure_live()

    def tool_progress(self, event: ToolProgress, path: tuple[str, ...]) -> None:
        tool = self._running.get((path, event.call_id))
        if tool is not None:
            share = "" if event.fraction is None else f"{event.fraction:.0%} "
            tool.progress = share + one_line(event.text, 60)

    def tool_completed(self, call: ToolCall, result: ToolResult, path: tuple[str, ...]) -> None:
        tool = self._running.pop((path, call.id), None)
        style = _STYLES.get(result.outcome, "yellow")
        line = Text(self._mark(result.outcome) + " ", style=style, no_wrap=True, overflow="ellipsis")
        line.append(call_text(call, self._width - 24, path), style="bold")
        if result.outcome != "ok":
            line.append(f"  {result.outcome.replace('_', ' ')}", style=style)
        if tool is not None and monotonic() - tool.since >= 0.1:
            line.append(f"  {monotonic() - tool.since:.1f} s", style="dim")
        self._print(line, kind="tool")
        for shown in result_lines(result, lines=4, width=self._width - 4):
            self._print(Text("  " + shown, style="dim", no_wrap=True, overflow="ellipsis"), kind="tool")

    def completed(self, result: RunResult[Any]) -> None:
        self.text_completed()
        answer = answer_of(result)
        if result.message is None:  # of a compaction: what came of it, unless its events have told
            if answer != self.compacted:
                self.line(answer)
        elif answer != "".join(self._message) and answer != result.text:
            # A plugin replaced the answer after it was shown: what counts is what the caller gets.
            self.warning("a plugin replaced the answer; it is now:")
            self._print_markdown(visible(answer))
        self.close()

    def broken_off(self, result: RunResult[Any]) -> None:
        self.text_completed()
        self.close()
        if result.text:
            self.line(f"the text above is not a finished answer ({count(len(result.text), 'character')})")

    # ---- lines of the command's own

    def line(self, text: str) -> None:
        style = "yellow" if text.startswith("warning:") else "dim"
        self._print(Text(visible(text), style=style), kind="note")

    def note(self, text: str) -> None:
        if sys.stderr.isatty():
            self._print(Text(visible(text), style="yellow"), kind="note")
        else:
            say(text)

    def pause(self) -> None:
        self._paused = True
        self._stop_live()

    def resume(self) -> None:
        self._paused = False
        if self._running:
            self._ensure_live()

    def close(self) -> None:
        self._waiting = self._thought = ""
        self._stop_live()
        self.text_completed()

    # ---- drawing

    @property
    def _width(self) -> int:
        return max(self._console.width, 30)

    def _mark(self, outcome: str) -> str:
        marks = ("ok", "x", "-") if self._ascii else ("✓", "✗", "–")
        return marks[0] if outcome == "ok" else marks[1] if outcome in ("error", "timed_out") else marks[2]

    def _print_markdown(self, text: str) -> None:
        if self._gap is not None:
            self._console.print()
        self._gap = "text"
        lines = _markdown_lines(self._console, self._console.options, text)
        self._console.print(SegmentLines(lines, new_lines=True))

    def _print(self, text: Text, *, kind: str) -> None:
        if kind != self._gap and "text" in (kind, self._gap) and self._gap is not None:
            self._console.print()
        self._gap = kind
        self._console.print(text)

    def _ensure_live(self) -> None:
        if self._live is None and not self._paused:
            self._live = Live(
                get_renderable=lambda: _Region(self),
                console=self._console,
                transient=True,
                refresh_per_second=10,
                redirect_stderr=sys.stderr.isatty(),
            )
            self._live.start()

    def _stop_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def region(self, console: Console, options: ConsoleOptions) -> Iterator[list[Segment]]:
        """Lines of what may still change, at most a screen of them. Called from rich's thread."""
        room = max(console.height - 2, 4)
        status = list(self._status_lines())[:room]
        tail = crop(self._growing.tail, room * 2)
        if not tail and self._thought:
            tail = one_line(self._thought[-self._width * 2 :], self._width * 2)
            lines = console.render_lines(Text(tail, style="dim italic"), options.update(height=None), pad=False)
        else:
            lines = _markdown_lines(console, options, tail)
        if lines and self._gap is not None:
            lines.insert(0, [])
        if lines and status:
            lines.append([])
        yield from lines[-max(room - len(status), 1) :]
        for line in status:
            yield from console.render_lines(line, options.update(height=None, no_wrap=True), pad=False)[:1]

    def _status_lines(self) -> Iterator[Text]:
        for tool in list(self._running.values()):
            yield self._status(tool.label, tool.since, tool.progress)
        if self._waiting:
            yield self._status(f"asking {self._waiting}", self._waiting_since, "")

    def _status(self, label: str, since: float, progress: str) -> Text:
        now = monotonic()
        frame = self._spinner.render(now)
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append_text(frame if isinstance(frame, Text) else Text("*"))
        line.append(f" {label}")
        if progress:
            line.append(f"  {progress}", style="cyan")
        if now - since >= 1:
            line.append(f"  {now - since:.0f} s", style="dim")
        return line


def _markdown_lines(console: Console, options: ConsoleOptions, text: str) -> list[list[Segment]]:
    """`text` drawn, with one blank line where rich puts one or more, and none at its ends."""
    if not text.strip():
        return []
    lines: list[list[Segment]] = []
    blank = False
    for line in console.render_lines(_Markdown(text), options.update(height=None), pad=False):
        if not any(map(_is_seen, line)):
            blank = bool(lines)
            continue
        lines += [[], line] if blank else [line]
        blank = False
    return lines


def _is_seen(part: Segment) -> bool:
    return bool(part.text.strip()) or (part.style is not None and part.style.bgcolor is not None)


class _LeftHeading(Heading):
    """A heading where reading begins; rich centres those of the first level."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}


class _Region:
    """What rich draws below the finished lines."""

    def __init__(self, renderer: TerminalRenderer) -> None:
        self._renderer = renderer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._renderer.region(console, options):
            yield from line
            yield Segment.line()
