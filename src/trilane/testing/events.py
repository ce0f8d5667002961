"""Checks that a UI stream obeys its invariants, whatever the run did.

It sees only the events, in the order in which the caller got them. What is in the history is checked by `history.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trilane.events import (
    AgentEvent,
    ChildEvent,
    CompactionCompleted,
    CompactionProgress,
    CompactionStarted,
    Event,
    MessageCompleted,
    MessageStarted,
    ModelStarted,
    PhaseChanged,
    ReasoningCompleted,
    ReasoningDelta,
    ReasoningStarted,
    ReplyReceived,
    ReplyRequested,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    TextCompleted,
    TextDelta,
    TextStarted,
    ToolCallDelta,
    ToolCompleted,
    ToolProgress,
    ToolStarted,
    TurnCompleted,
    TurnStarted,
)
from trilane.state import TRANSITIONS, AgentPhase

__all__ = ["assert_events", "check_events"]

_TERMINAL: Mapping[type[AgentEvent], AgentPhase] = {
    RunCompleted: AgentPhase.COMPLETED,
    RunFailed: AgentPhase.FAILED,
    RunCancelled: AgentPhase.CANCELLED,
}
_BEGINS_WORK = (TurnStarted, ModelStarted, MessageStarted, ToolStarted, ReplyRequested, CompactionStarted)


def check_events(events: Iterable[Event], *, complete: bool = True) -> list[str]:
    """What is wrong with the events of a run.

    - `seq` counts from 1 without gaps; run and session are the same throughout.
    - `RunStarted` is first, exactly one terminal event is last and fits the phase.
    - Phases change as `TRANSITIONS` allows, and each event bears the phase that the changes before it led to.
    - Turns, messages, text and reasoning parts, compactions, tools and questions are opened, closed once, and closed
      before the end; messages and parts do not overlap; deltas and progress come in between and are not empty. (A turn
      that a failure or a cancel cut off may stay open; so may the questions and tools of a suspended run.)
    - Every call of a completed message has one `ToolCompleted`.
    - The events of child runs obey the same rules, except that their terminal event is not on the stream.

    Args:
        events: The events, as the caller got them.
        complete: False for a stream that the caller left early: nothing has to be closed, no terminal event is there.

    Returns:
        One sentence for each violation, with the position and type of the event; empty if there is none.
    """
    checker = _Checker(complete)
    for event in events:
        checker.see(event)
    return checker.finish()


def assert_events(events: Iterable[Event], *, complete: bool = True) -> None:
    """Check the events of a run with `check_events`.

    Raises:
        AssertionError: they break a rule; the message lists what is wrong and then the events.
    """
    seen = list(events)
    problems = check_events(seen, complete=complete)
    if problems:
        lines = [f"  {position}: {event!r}" for position, event in enumerate(seen, 1)]
        raise AssertionError("\n".join(["the UI stream is not valid:", *problems, "the events:", *lines]))


class _Checker:
    """Goes through one stream; what is open is kept here."""

    def __init__(self, complete: bool) -> None:
        self.complete = complete
        self.problems: list[str] = []
        self.count = 0
        self.here = ""
        self.first: AgentEvent | None = None
        self.phase = AgentPhase.CREATED
        self.terminal: AgentEvent | None = None
        self.turn: int | None = None
        self.last_turn: int | None = None
        self.attempt = 0
        self.message: str | None = None
        self.messages: set[str] = set()
        self.part: tuple[str, int] | None = None
        self.indexes: set[int] = set()
        self.compacting = False
        self.started: set[str] = set()
        self.unanswered: set[str] = set()
        self.answered: set[str] = set()
        self.questions: set[str] = set()
        self.asked: set[str] = set()
        self.children: dict[str, list[Event]] = {}

    # -- the stream as a whole --

    def see(self, event: Event) -> None:
        self.count += 1
        self.here = f"event {self.count} ({event.type})"
        self._envelope(event)
        self._phases(event)
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
        if type(event) in _TERMINAL:
            self.terminal = event

    def finish(self) -> list[str]:
        self.here = "at the end"
        if self.count == 0 and self.complete:
            self._say("there is no event at all")
        elif self.complete:
            if self.terminal is None:
                self._say("no terminal event; the stream must end with run_completed, run_failed or run_cancelled")
            self._all_closed()
        for run_id, events in self.children.items():
            self.problems += [f"child run {run_id}: {text}" for text in check_events(events, complete=False)]
        return self.problems

    def _say(self, text: str) -> None:
        self.problems.append(f"{self.here}: {text}")

    def _envelope(self, event: Event) -> None:
        if self.first is None:
            self.first = event
            if not isinstance(event, RunStarted):
                self._say("the first event must be run_started")
        elif isinstance(event, RunStarted):
            self._say("the run has started before")
        if event.seq != self.count:
            self._say(f"seq is {event.seq}, expected {self.count}")
        if (event.run_id, event.session_id) != (self.first.run_id, self.first.session_id):
            self._say(f"belongs to run {event.run_id!r} of session {event.session_id!r}, the stream does not")
        if self.terminal is not None:
            self._say(f"comes after the terminal event {self.terminal.type}")

    def _phases(self, event: Event) -> None:
        if isinstance(event, PhaseChanged):
            if event.previous != self.phase:
                self._say(f"leaves {event.previous.name}, but the phase was {self.phase.name}")
            if event.phase not in TRANSITIONS[event.previous]:
                self._say(f"{event.previous.name} -> {event.phase.name} is not a transition")
            self.phase = event.phase
            return
        # `run_started` tells of the claim, which lies between CREATED and LOADING_CONTEXT.
        early = isinstance(event, RunStarted) and event.phase is AgentPhase.LOADING_CONTEXT
        if event.phase is not self.phase and not (early and self.count == 1):
            self._say(f"bears the phase {event.phase.name}, but the phase is {self.phase.name}")
        expected = _TERMINAL.get(type(event))
        if expected is not None and event.phase is not expected:
            self._say(f"must come in {expected.name}, not in {event.phase.name}")
        if isinstance(event, _BEGINS_WORK) and self.phase.accepts_new_request:
            self._say(f"begins something although the phase is {self.phase.name}")

    def _all_closed(self) -> None:
        suspended = isinstance(self.terminal, RunCancelled) and self.terminal.result.stop_reason == "suspended"
        if self.part is not None:
            self._say(f"the {self.part[0]} part {self.part[1]} was not closed")
        if self.message is not None:
            self._say(f"message {self.message!r} was not closed")
        if self.compacting:
            self._say("the compaction was not closed")
        if self.turn is not None and isinstance(self.terminal, RunCompleted):
            self._say(f"turn {self.turn} was not closed")
        if suspended:
            return
        for call_id in sorted(self.started):
            self._say(f"the tool of call {call_id!r} was started, but never completed")
        for call_id in sorted(self.unanswered - self.started):
            self._say(f"call {call_id!r} has no tool_completed")
        for question in sorted(self.questions):
            self._say(f"question {question!r} was not closed")

    # -- turns and model calls --

    def turn_started(self, event: TurnStarted) -> None:
        if self.turn is not None:
            self._say(f"turn {event.turn} starts while turn {self.turn} is open")
        if self.last_turn is not None and event.turn != self.last_turn + 1:
            self._say(f"turn {event.turn} follows turn {self.last_turn}")
        self.turn = self.last_turn = event.turn
        self.attempt = 0

    def turn_completed(self, event: TurnCompleted) -> None:
        if self.turn != event.turn:
            self._say(f"turn {event.turn} is not open")
        self.turn = None

    def model_started(self, event: ModelStarted) -> None:
        if event.attempt != self.attempt + 1:
            self._say(f"attempt {event.attempt} follows attempt {self.attempt} of the turn")
        if self.message is not None:
            self._say(f"message {self.message!r} of the attempt before is still open")
        self.attempt = event.attempt

    # -- messages and their parts --

    def message_started(self, event: MessageStarted) -> None:
        if self.message is not None:
            self._say(f"message {event.message_id!r} starts while message {self.message!r} is open")
        if event.message_id in self.messages:
            self._say(f"message {event.message_id!r} was started before")
        self.messages.add(event.message_id)
        self.message = event.message_id
        self.part = None
        self.indexes = set()

    def message_completed(self, event: MessageCompleted) -> None:
        known = event.message.id
        if self.message == known:
            if self.part is not None:
                self._say(f"the {self.part[0]} part {self.part[1]} is still open")
            self.message = self.part = None
        elif not (event.superseded and known in self.messages):
            self._say(f"message {known!r} is not open")
        calls = {call.id for call in event.message.calls}
        if event.superseded:
            self.unanswered -= calls
        else:
            self.unanswered |= calls
            self.answered -= calls

    def part_started(self, event: TextStarted | ReasoningStarted) -> None:
        self._in_message(event.message_id)
        if self.part is not None:
            self._say(f"part {event.index} starts while {self.part[0]} part {self.part[1]} is open")
        if event.index in self.indexes:
            self._say(f"part {event.index} was there before")
        self.indexes.add(event.index)
        self.part = (_kind(event), event.index)

    def part_delta(self, event: TextDelta | ReasoningDelta) -> None:
        self._in_message(event.message_id)
        if self.part != (_kind(event), event.index):
            self._say(f"{_kind(event)} part {event.index} is not open")
        if not event.text:
            self._say("is empty")

    def part_completed(self, event: TextCompleted | ReasoningCompleted) -> None:
        self._in_message(event.message_id)
        if self.part != (_kind(event), event.index):
            self._say(f"{_kind(event)} part {event.index} is not open")
        self.part = None

    def call_delta(self, event: ToolCallDelta) -> None:
        self._in_message(event.message_id)
        if self.part is not None:
            self._say(f"comes while {self.part[0]} part {self.part[1]} is open")

    def _in_message(self, message_id: str) -> None:
        if self.message != message_id:
            self._say(f"message {message_id!r} is not open")

    # -- tools, questions, compaction, children --

    def tool_started(self, event: ToolStarted) -> None:
        call_id = event.call.id
        if call_id in self.started:
            self._say(f"the tool of call {call_id!r} is running already")
        elif call_id in self.answered:
            self._say(f"call {call_id!r} has its result already")
        self.started.add(call_id)

    def tool_progress(self, event: ToolProgress) -> None:
        if event.call_id not in self.started:
            self._say(f"the tool of call {event.call_id!r} is not running")
        if event.fraction is not None and not 0 <= event.fraction <= 1:
            self._say(f"fraction is {event.fraction}, expected 0 to 1")

    def tool_completed(self, event: ToolCompleted) -> None:
        call_id = event.call.id
        if event.result.call_id != call_id:
            self._say(f"call {call_id!r} got the result of call {event.result.call_id!r}")
        if call_id in self.answered and call_id not in self.started:
            self._say(f"call {call_id!r} has its result already")
        self.started.discard(call_id)
        self.unanswered.discard(call_id)
        self.answered.add(call_id)

    def reply_requested(self, event: ReplyRequested) -> None:
        if event.question.id in self.asked:
            self._say(f"question {event.question.id!r} was asked before")
        self.asked.add(event.question.id)
        self.questions.add(event.question.id)

    def reply_received(self, event: ReplyReceived) -> None:
        if event.question_id not in self.questions:
            self._say(f"question {event.question_id!r} is not open")
        elif event.receipt.status != "invalid":
            self.questions.discard(event.question_id)

    def compaction_started(self, event: CompactionStarted) -> None:
        if self.compacting:
            self._say("the compaction before is still open")
        self.compacting = True

    def compaction_progress(self, event: CompactionProgress) -> None:
        if not self.compacting:
            self._say("no compaction is open")

    def compaction_completed(self, event: CompactionCompleted) -> None:
        if not self.compacting:
            self._say("no compaction is open")
        self.compacting = False

    def child_event(self, event: ChildEvent) -> None:
        if not event.path:
            self._say("has no path")
        if type(event.event) in _TERMINAL:
            self._say(f"{event.event.type} of a child run must not be on the stream of its parent")
            return
        self.children.setdefault(event.event.run_id, []).append(event.event)


def _kind(event: AgentEvent) -> str:
    return event.type.partition("_")[0]


_HANDLERS: Mapping[type[AgentEvent], Callable[[_Checker, Any], None]] = {
    TurnStarted: _Checker.turn_started,
    TurnCompleted: _Checker.turn_completed,
    ModelStarted: _Checker.model_started,
    MessageStarted: _Checker.message_started,
    MessageCompleted: _Checker.message_completed,
    TextStarted: _Checker.part_started,
    TextDelta: _Checker.part_delta,
    TextCompleted: _Checker.part_completed,
    ReasoningStarted: _Checker.part_started,
    ReasoningDelta: _Checker.part_delta,
    ReasoningCompleted: _Checker.part_completed,
    ToolCallDelta: _Checker.call_delta,
    ToolStarted: _Checker.tool_started,
    ToolProgress: _Checker.tool_progress,
    ToolCompleted: _Checker.tool_completed,
    ReplyRequested: _Checker.reply_requested,
    ReplyReceived: _Checker.reply_received,
    CompactionStarted: _Checker.compaction_started,
    CompactionProgress: _Checker.compaction_progress,
    CompactionCompleted: _Checker.compaction_completed,
    ChildEvent: _Checker.child_event,
}
