"""The invariants of UI streams, on good and on bad ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trilane.events import (
    AgentEvent,
    ChildEvent,
    CompactionCompleted,
    CompactionProgress,
    CompactionStarted,
    CustomEvent,
    Event,
    MessageCompleted,
    MessageStarted,
    ModelStarted,
    PhaseChanged,
    PluginFailed,
    Question,
    ReasoningCompleted,
    ReasoningDelta,
    ReasoningStarted,
    Receipt,
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
    UserMessageAdded,
)
from trilane.messages import (
    AssistantMessage,
    StopReason,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResult,
    Usage,
    UserMessage,
)
from trilane.result import RunResult, Status
from trilane.state import AgentPhase
from trilane.testing import assert_events, check_events

USER = UserMessage(id="u", parts=(TextPart(text="hello"),))
CALL = ToolCall(id="c1", name="search")


class Stream:
    """Makes events with the right envelope. Attributes of the envelope can be forced to make a bad one."""

    def __init__(self, run_id: str = "r") -> None:
        self.run_id = run_id
        self.phase = AgentPhase.CREATED
        self.events: list[Event] = []

    def add(self, make: Callable[..., Any], **values: Any) -> Stream:
        envelope = {"seq": len(self.events) + 1, "run_id": self.run_id, "session_id": "s", "phase": self.phase}
        self.events.append(make(**{**envelope, **values}))
        return self

    def go(self, *phases: AgentPhase) -> Stream:
        for phase in phases:
            previous, self.phase = self.phase, phase
            self.add(PhaseChanged, previous=previous)
        return self

    def begin(self) -> Stream:
        self.add(RunStarted, request=USER)
        self.go(AgentPhase.LOADING_CONTEXT)
        self.add(UserMessageAdded, message=USER, origin="request")
        return self.go(AgentPhase.READY)

    def turn(self, number: int = 1) -> Stream:
        self.add(TurnStarted, turn=number).go(AgentPhase.GENERATING)
        return self.add(ModelStarted, model="m")

    def message(self, id: str = "m1", *calls: ToolCall) -> Stream:
        """A whole message of one text part and calls, and back to READY."""
        self.add(MessageStarted, message_id=id).text(id)
        for index, item in enumerate(calls, 1):
            delta = {"index": index, "call_id": item.id, "name": item.name, "arguments": "{}"}
            self.add(ToolCallDelta, message_id=id, **delta)
        self.add(MessageCompleted, message=said(id, *calls), stop_reason="end")
        return self.go(AgentPhase.READY)

    def text(self, id: str = "m1", index: int = 0) -> Stream:
        self.add(TextStarted, message_id=id, index=index)
        self.add(TextDelta, message_id=id, index=index, text="hi")
        return self.add(TextCompleted, message_id=id, index=index)

    def tool(self, call: ToolCall = CALL, outcome: str = "ok") -> Stream:
        self.add(ToolStarted, call=call)
        return self.add(ToolCompleted, call=call, result=result_of(call, outcome))

    def close_turn(self, number: int = 1) -> Stream:
        return self.add(TurnCompleted, turn=number, usage=Usage())

    def complete(self) -> list[Event]:
        self.go(AgentPhase.COMPLETED).add(RunCompleted, result=ended("completed"))
        return self.events

    def fail(self) -> list[Event]:
        error = ValueError("x")
        self.go(AgentPhase.FAILED).add(RunFailed, error=error, status="failed", result=ended("failed"))
        return self.events

    def cancel(self, stop_reason: StopReason = "cancelled") -> list[Event]:
        self.go(AgentPhase.CANCELLED)
        self.add(RunCancelled, reason="closed", result=ended("cancelled", stop_reason))
        return self.events


def ended(status: Status, stop_reason: StopReason = "end") -> RunResult[Any]:
    return RunResult(status=status, run_id="r", session_id="s", stop_reason=stop_reason)


def said(id: str, *calls: ToolCall) -> AssistantMessage:
    return AssistantMessage(id=id, parts=(TextPart(text="hi"), *(ToolCallPart(call=item) for item in calls)))


def result_of(call: ToolCall, outcome: str = "ok") -> ToolResult:
    return ToolResult(call_id=call.id, content="found", outcome=outcome)  # type: ignore[arg-type]


def plain() -> list[Event]:
    return Stream().begin().turn().message().close_turn().complete()


def with_tool() -> list[Event]:
    stream = Stream().begin().turn().message("m1", CALL).go(AgentPhase.RUNNING_TOOL)
    stream.add(ToolStarted, call=CALL).add(ToolProgress, call_id="c1", text="half", fraction=0.5)
    stream.add(ToolCompleted, call=CALL, result=result_of(CALL)).go(AgentPhase.READY).close_turn()
    # The same call id again, in the next turn.
    stream.turn(2).message("m2", CALL).go(AgentPhase.RUNNING_TOOL).tool().go(AgentPhase.READY).close_turn(2)
    return stream.turn(3).message("m3").close_turn(3).complete()


def with_question() -> list[Event]:
    stream = Stream().begin().turn().message("m1", CALL).go(AgentPhase.RUNNING_TOOL)
    stream.add(ReplyRequested, question=question())
    stream.add(ReplyReceived, question_id="q1", receipt=Receipt(status="invalid", reasons=("no",)))
    stream.add(ReplyReceived, question_id="q1", receipt=Receipt(status="accepted"))
    return stream.tool().go(AgentPhase.READY).close_turn().complete()


def question() -> Question:
    return Question(id="q1", kind="approval", prompt="may I?", schema={})


def denied() -> list[Event]:
    stream = Stream().begin().turn().message("m1", CALL)
    stream.add(ToolCompleted, call=CALL, result=result_of(CALL, "denied"))
    return stream.close_turn().complete()


def with_reasoning_and_retry() -> list[Event]:
    stream = Stream().begin().turn().add(MessageStarted, message_id="m1")
    stream.add(ReasoningStarted, message_id="m1", index=0)
    stream.add(ReasoningDelta, message_id="m1", index=0, text="hm")
    stream.add(ReasoningCompleted, message_id="m1", index=0).text("m1", 1)
    stream.add(MessageCompleted, message=said("m1"), stop_reason="error", superseded=True)
    stream.add(ModelStarted, model="m", attempt=2).message("m2")
    # An answer that is sent back is superseded after it was completed.
    stream.add(MessageCompleted, message=said("m2"), stop_reason="end", superseded=True).close_turn()
    return stream.turn(2).message("m3").close_turn(2).complete()


def with_compaction() -> list[Event]:
    stream = Stream().begin().go(AgentPhase.COMPACTING).add(CompactionStarted).add(CompactionProgress, text="half")
    stream.add(CompactionCompleted, changed=True).go(AgentPhase.READY)
    return stream.turn().message().close_turn().complete()


def failed_early() -> list[Event]:
    stream = Stream().add(RunStarted, request=USER).go(AgentPhase.LOADING_CONTEXT)
    stream.add(PluginFailed, plugin="p", hook="on_tool", error=ValueError())
    return stream.fail()


def cancelled_in_the_middle() -> list[Event]:
    stream = Stream().begin().turn().add(MessageStarted, message_id="m1").text()
    stream.add(MessageCompleted, message=said("m1"), stop_reason="cancelled", interrupted=True)
    return stream.cancel()


def suspended() -> list[Event]:
    stream = Stream().begin().turn().message("m1", CALL).go(AgentPhase.RUNNING_TOOL)
    return stream.add(ReplyRequested, question=question()).cancel("suspended")


def with_child() -> list[Event]:
    child = Stream("child").begin().turn().message().close_turn().go(AgentPhase.COMPLETED)
    stream = Stream().begin().turn().message("m1", CALL).go(AgentPhase.RUNNING_TOOL).add(ToolStarted, call=CALL)
    for event in child.events:
        stream.add(ChildEvent, path=("ask_child",), event=event)
    stream.add(ToolCompleted, call=CALL, result=result_of(CALL)).go(AgentPhase.READY).close_turn()
    stream.add(CustomEvent, plugin="p", name="note")
    return stream.complete()


def started_after_the_claim() -> list[Event]:
    stream = Stream().add(RunStarted, request=USER, phase=AgentPhase.LOADING_CONTEXT)
    return stream.go(AgentPhase.LOADING_CONTEXT).fail()


GOOD = [
    plain,
    with_tool,
    with_question,
    denied,
    with_reasoning_and_retry,
    with_compaction,
    failed_early,
    cancelled_in_the_middle,
    suspended,
    with_child,
    started_after_the_claim,
]


@pytest.mark.parametrize("make", GOOD)
def test_good_streams_pass(make: Callable[[], list[Event]]) -> None:
    assert check_events(make()) == []
    assert_events(make())


@pytest.mark.parametrize("make", GOOD)
def test_every_beginning_of_a_good_stream_is_a_good_incomplete_one(make: Callable[[], list[Event]]) -> None:
    events = make()
    for length in range(len(events)):
        assert check_events(events[:length], complete=False) == []
        assert "at the end:" in check_events(events[:length])[-1]


@pytest.mark.parametrize("make", GOOD)
def test_r01_a_lost_doubled_or_swapped_event_is_found(make: Callable[[], list[Event]]) -> None:
    events = make()
    for index in range(len(events) - 1):
        lost = events[:index] + events[index + 1 :]
        doubled = events[: index + 1] + events[index:]
        swapped = [*events[:index], events[index + 1], events[index], *events[index + 2 :]]
        for broken in (lost, doubled, swapped):
            assert any(": seq is " in problem for problem in check_events(broken))


def ready() -> Stream:
    return Stream().begin()


def generating() -> Stream:
    return ready().turn().add(MessageStarted, message_id="m1")


def running() -> Stream:
    return ready().turn().message("m1", CALL).go(AgentPhase.RUNNING_TOOL)


def text(make: Callable[..., Any], **values: Any) -> dict[str, Any]:
    return {"make": make, "message_id": "m1", "index": 0, **values}


BAD: dict[str, tuple[list[Event], str]] = {
    "nothing": ([], "at the end: there is no event at all"),
    "another first": (
        Stream().go(AgentPhase.LOADING_CONTEXT).events,
        "event 1 (phase_changed): the first event must be run_started",
    ),
    "two starts": (
        ready().add(RunStarted, request=USER).events,
        "event 5 (run_started): the run has started before",
    ),
    "another run": (
        ready().add(TurnStarted, turn=1, run_id="x").events,
        "event 5 (turn_started): belongs to run 'x' of session 's', the stream does not",
    ),
    "no terminal event": (ready().events, "at the end: no terminal event; the stream must end with"),
    "an illegal change": (
        ready().go(AgentPhase.GENERATING, AgentPhase.COMPACTING).events,
        "event 6 (phase_changed): GENERATING -> COMPACTING is not a transition",
    ),
    "a change from elsewhere": (
        ready().add(PhaseChanged, previous=AgentPhase.GENERATING, phase=AgentPhase.READY).events,
        "event 5 (phase_changed): leaves GENERATING, but the phase was READY",
    ),
    "a wrong stamp": (
        ready().add(TurnStarted, turn=1, phase=AgentPhase.GENERATING).events,
        "event 5 (turn_started): bears the phase GENERATING, but the phase is READY",
    ),
    "the wrong end": (
        ready().go(AgentPhase.FAILED).add(RunCompleted, result=ended("completed")).events,
        "event 6 (run_completed): must come in COMPLETED, not in FAILED",
    ),
    "work after the end": (
        ready().go(AgentPhase.FAILED).add(TurnStarted, turn=1).events,
        "event 6 (turn_started): begins something although the phase is FAILED",
    ),
    "two turns at once": (
        ready().add(TurnStarted, turn=1).add(TurnStarted, turn=2).events,
        "event 6 (turn_started): turn 2 starts while turn 1 is open",
    ),
    "a turn left out": (
        ready().add(TurnStarted, turn=1).close_turn().add(TurnStarted, turn=3).events,
        "event 7 (turn_started): turn 3 follows turn 1",
    ),
    "a turn closed that is not open": (
        ready().close_turn(4).events,
        "event 5 (turn_completed): turn 4 is not open",
    ),
    "a turn left open": (ready().turn().message().complete(), "at the end: turn 1 was not closed"),
    "an attempt left out": (
        ready().turn().add(ModelStarted, model="m", attempt=3).events,
        "event 8 (model_started): attempt 3 follows attempt 1 of the turn",
    ),
    "an attempt while the message is open": (
        generating().add(ModelStarted, model="m", attempt=2).events,
        "event 9 (model_started): message 'm1' of the attempt before is still open",
    ),
    "two messages at once": (
        generating().add(MessageStarted, message_id="m2").events,
        "event 9 (message_started): message 'm2' starts while message 'm1' is open",
    ),
    "a message twice": (
        ready().turn().message().close_turn().turn(2).add(MessageStarted, message_id="m1").events,
        "(message_started): message 'm1' was started before",
    ),
    "a message closed that is not open": (
        generating().add(MessageCompleted, message=said("m2"), stop_reason="end").events,
        "event 9 (message_completed): message 'm2' is not open",
    ),
    "a message closed twice": (
        ready().turn().message().add(MessageCompleted, message=said("m1"), stop_reason="end").events,
        "(message_completed): message 'm1' is not open",
    ),
    "a message left open": (generating().fail(), "at the end: message 'm1' was not closed"),
    "w26 an empty delta": (
        generating().add(**text(TextStarted)).add(**text(TextDelta, text="")).events,
        "event 10 (text_delta): is empty",
    ),
    "w27 parts that overlap": (
        generating().add(**text(TextStarted)).add(**text(ReasoningStarted, index=1)).events,
        "event 10 (reasoning_started): part 1 starts while text part 0 is open",
    ),
    "w27 a call in a text": (
        generating()
        .add(**text(TextStarted))
        .add(**text(ToolCallDelta, index=1, call_id="c", name="t", arguments=""))
        .events,
        "event 10 (tool_call_delta): comes while text part 0 is open",
    ),
    "a part twice": (
        generating().text().text().events,
        "event 12 (text_started): part 0 was there before",
    ),
    "a delta of a part that is not open": (
        generating().add(**text(TextDelta, text="hi")).events,
        "event 9 (text_delta): text part 0 is not open",
    ),
    "a delta of another kind": (
        generating().add(**text(TextStarted)).add(**text(ReasoningDelta, text="hm")).events,
        "event 10 (reasoning_delta): reasoning part 0 is not open",
    ),
    "a part closed that is not open": (
        generating().add(**text(TextCompleted)).events,
        "event 9 (text_completed): text part 0 is not open",
    ),
    "w10 a part left open": (
        generating().add(**text(TextStarted)).fail(),
        "at the end: the text part 0 was not closed",
    ),
    "w10 a message closed over its part": (
        generating().add(**text(TextStarted)).add(MessageCompleted, message=said("m1"), stop_reason="end").events,
        "event 10 (message_completed): the text part 0 is still open",
    ),
    "a part of another message": (
        generating().add(**text(TextStarted, message_id="m9")).events,
        "event 9 (text_started): message 'm9' is not open",
    ),
    "r55 a tool left open": (
        running().add(ToolStarted, call=CALL).fail(),
        "at the end: the tool of call 'c1' was started, but never completed",
    ),
    "w04 a call without a result": (running().fail(), "at the end: call 'c1' has no tool_completed"),
    "a tool started twice": (
        running().add(ToolStarted, call=CALL).add(ToolStarted, call=CALL).events,
        "(tool_started): the tool of call 'c1' is running already",
    ),
    "a tool started again": (
        running().tool().add(ToolStarted, call=CALL).events,
        "(tool_started): call 'c1' has its result already",
    ),
    "two results": (
        running().tool().add(ToolCompleted, call=CALL, result=result_of(CALL)).events,
        "(tool_completed): call 'c1' has its result already",
    ),
    "the result of another": (
        running().add(ToolCompleted, call=CALL, result=ToolResult(call_id="c2", content="")).events,
        "(tool_completed): call 'c1' got the result of call 'c2'",
    ),
    "progress of nothing": (
        running().add(ToolProgress, call_id="c1").events,
        "(tool_progress): the tool of call 'c1' is not running",
    ),
    "progress beyond the end": (
        running().add(ToolStarted, call=CALL).add(ToolProgress, call_id="c1", fraction=1.5).events,
        "(tool_progress): fraction is 1.5, expected 0 to 1",
    ),
    "a question twice": (
        running().add(ReplyRequested, question=question()).add(ReplyRequested, question=question()).events,
        "(reply_requested): question 'q1' was asked before",
    ),
    "a reply to nothing": (
        running().add(ReplyReceived, question_id="q1", receipt=Receipt(status="accepted")).events,
        "(reply_received): question 'q1' is not open",
    ),
    "a question left open": (
        running().add(ReplyRequested, question=question()).tool().fail(),
        "at the end: question 'q1' was not closed",
    ),
    "r55 a compaction left open": (
        ready().go(AgentPhase.COMPACTING).add(CompactionStarted).fail(),
        "at the end: the compaction was not closed",
    ),
    "two compactions at once": (
        ready().go(AgentPhase.COMPACTING).add(CompactionStarted).add(CompactionStarted).events,
        "(compaction_started): the compaction before is still open",
    ),
    "a compaction closed that is not open": (
        ready().add(CompactionCompleted, changed=False).events,
        "(compaction_completed): no compaction is open",
    ),
    "progress of no compaction": (
        ready().add(CompactionProgress, text="x").events,
        "(compaction_progress): no compaction is open",
    ),
    "the end of a child": (
        running().add(ChildEvent, path=("t",), event=plain()[-1]).events,
        "(child_event): run_completed of a child run must not be on the stream of its parent",
    ),
    "a child without a path": (
        running().add(ChildEvent, path=(), event=plain()[0]).events,
        "(child_event): has no path",
    ),
    "a bad child": (
        running().add(ChildEvent, path=("t",), event=plain()[1]).events,
        "child run r: event 1 (phase_changed): the first event must be run_started",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_streams_are_found_out(name: str) -> None:
    events, expected = BAD[name]
    problems = check_events(events)
    assert any(expected in problem for problem in problems), problems


def test_r13_nothing_comes_after_the_terminal_event() -> None:
    stream = ready()
    stream.fail()
    stream.add(CustomEvent, plugin="p", name="late")
    assert check_events(stream.events) == ["event 7 (custom_event): comes after the terminal event run_failed"]
    twice = ready()
    twice.fail()
    twice.add(RunFailed, error=ValueError(), status="failed", result=ended("failed"))
    assert check_events(twice.events) == ["event 7 (run_failed): comes after the terminal event run_failed"]


def test_a_failed_check_shows_the_events() -> None:
    with pytest.raises(AssertionError, match=r"(?s)the UI stream is not valid:\nat the end: .*\n  1: RunStarted\("):
        assert_events(ready().events)


def test_every_event_type_was_checked() -> None:
    """So that a new event is not forgotten here."""
    import typing

    known = {type(event) for make in GOOD for event in make()} | {RunFailed, RunCancelled}
    everything = set(typing.get_args(Event))
    assert everything - known == set()
    assert all(issubclass(kind, AgentEvent) for kind in everything)
