"""What a run has done so far, told from its events: for the summary after an interruption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane.events import (
    ChildEvent,
    Event,
    MessageCompleted,
    ModelStarted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    TextDelta,
    ToolCompleted,
    ToolStarted,
    TurnStarted,
)

from .text import call_text, count

if TYPE_CHECKING:
    from trilane.messages import Outcome, ToolCall

__all__ = ["Tally"]

_NOT_DONE: dict[Outcome, str] = {
    "denied": "denied",
    "not_started": "not started",
    "interrupted": "interrupted, it may have had an effect",
    "timed_out": "timed out, it may have had an effect",
    "still_running": "still running when it was given up, its effect is unknown",
    "superseded": "not started, superseded by a newer message",
}


class Tally:
    """Follows the events of one run and can say, at any moment, what was done and what was not."""

    def __init__(self) -> None:
        self.turns = 0
        self.tools_started = 0
        self._calls: dict[tuple[tuple[str, ...], str], tuple[ToolCall, str]] = {}
        self._done: dict[tuple[tuple[str, ...], str], str] = {}
        self._answering = False
        self._characters = 0
        self._ended = False

    def add(self, event: Event, path: tuple[str, ...] = ()) -> None:
        """Take one event into account."""
        match event:
            case TextDelta():
                self._characters += len(event.text) if not path else 0
            case ChildEvent():
                self.add(event.event, event.path)
            case TurnStarted() if not path:
                self.turns = event.turn
            case ModelStarted() if not path:
                self._answering, self._characters = True, 0
            case MessageCompleted() if not event.superseded:
                self._answering = self._answering and (bool(path) or event.interrupted)
                for call in event.message.calls:
                    self._calls.setdefault((path, call.id), (call, "not started"))
            case ToolStarted():
                self.tools_started += 1
                self._calls[path, event.call.id] = (event.call, "was running, its effect is unknown")
            case ToolCompleted():
                self._complete(event, path)
            case RunCompleted() | RunFailed() | RunCancelled() if not path:
                self._ended = True
            case _:
                pass

    def _complete(self, event: ToolCompleted, path: tuple[str, ...]) -> None:
        key = (path, event.call.id)
        outcome = event.result.outcome
        self._calls[key] = (event.call, _NOT_DONE.get(outcome, ""))
        if outcome in ("ok", "error"):
            self._done[key] = "" if outcome == "ok" else "it reported an error"

    def lines(self, width: int = 100) -> list[str]:
        """What was done and what was not, one line each."""
        lines: list[str] = []
        for key, (call, state) in self._calls.items():
            name = call_text(call, width - 14, key[0])
            if key in self._done:
                remark = self._done[key]
                lines.append(f"  done      {name}{': ' + remark if remark else ''}")
            else:
                lines.append(f"  not done  {name}: {state}")
        if self._answering:
            got = f"cut off after {count(self._characters, 'character')}" if self._characters else "not begun"
            lines.append(f"  not done  the model's answer of turn {self.turns}: {got}")
        elif not lines:
            lines.append("  done      nothing: no model was called, no tool was run")
        return lines
