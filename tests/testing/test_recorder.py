"""The recorder of hooks, and the recorder of events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest

from trilane.events import Event, PhaseTransitionEvent, Question, RunFailed, RunStarted, TextDelta, TextStarted
from trilane.hookspecs import HOOKS
from trilane.messages import AssistantMessage, Delta, TextPart, ToolResult, UserMessage
from trilane.models import ModelRequest, ModelResponse
from trilane.plugins import PluginManager
from trilane.result import RunResult
from trilane.state import AgentPhase, AgentState
from trilane.testing import EventRecorder, Recorder, call, record

CALL = call("search", call_id="c1")
RESULT = ToolResult(call_id="c1", content="found")
RESPONSE = ModelResponse()


async def next_model(request: ModelRequest) -> ModelResponse:
    return RESPONSE


async def next_tool() -> ToolResult:
    return RESULT


#: A value for each argument, by hook where the same name means different things.
ARGUMENTS: dict[str, Any] = {
    "run": SimpleNamespace(state=AgentState()),
    "message": UserMessage(id="u", parts=(TextPart(text="hello"),)),
    "turn": 3,
    "request": ModelRequest(turn=3),
    "around_model.call_next": next_model,
    "around_tool.call_next": next_tool,
    "delta": Delta(text="hi"),
    "final": False,
    "error": LookupError("x"),
    "response": RESPONSE,
    "call": CALL,
    "result": RunResult(status="completed", run_id="r", session_id="s"),
    "after_tool.result": RESULT,
    "after_turn.message": AssistantMessage(id="a"),
    "on_answer.message": AssistantMessage(id="a"),
    "output": 42,
    "reason": "closed",
    "status": "failed",
    "notification": PhaseTransitionEvent(previous=AgentPhase.CREATED, phase=AgentPhase.LOADING_CONTEXT),
    "question": Question(id="q", kind="approval", prompt="may I?", schema={}),
    "payload": True,
    "registry": object(),
}
DETAILS: dict[str, object] = {
    "on_message": "hello",
    "before_turn": 3,
    "on_model_request": 3,
    "around_model": 3,
    "on_delta": ("hi", False),
    "on_model_error": "LookupError",
    "after_model": "end",
    "decide_tool": "search",
    "before_tool": "search",
    "around_tool": "search",
    "after_tool": ("search", "ok"),
    "after_turn": 3,
    "on_answer": 42,
    "after_run": "completed",
    "on_success": "completed",
    "on_error": "LookupError",
    "on_cancel": "closed",
    "close_run": "failed",
    "on_event": "PhaseTransitionEvent",
    "on_reply": "approval",
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def arguments(hook: str) -> list[object]:
    return [ARGUMENTS.get(f"{hook}.{name}", ARGUMENTS.get(name)) for name in HOOKS[hook].arguments]


@pytest.mark.anyio
async def test_every_hook_is_registered_written_down_and_changes_nothing() -> None:
    recorder = Recorder()
    manager = PluginManager()
    manager.load([recorder])
    recorder.clear()  # loading has called the register_ hooks
    hooks = manager.compile()
    for hook in HOOKS:
        (implementation,) = getattr(hooks, hook)
        value = implementation.call(*arguments(hook))
        value = await value if isawaitable(value) else value
        assert value is {"around_model": RESPONSE, "around_tool": RESULT}.get(hook), hook
    assert recorder.names() == list(HOOKS)
    for made in recorder.calls:
        assert made.phase is (None if made.hook.startswith("register_") else AgentPhase.CREATED)
        assert made.detail == DETAILS.get(made.hook), made.hook


def test_only_the_chosen_hooks_are_there() -> None:
    some = Recorder("some", only=["before_turn", "close_run"])
    others = Recorder("others", without=["on_delta", "before_turn"])
    manager = PluginManager()
    manager.load([some, others])
    hooks = manager.compile()
    assert [implementation.plugin for implementation in hooks.before_turn] == ["some"]
    assert [implementation.plugin for implementation in hooks.on_tool] == ["others"]
    assert {implementation.plugin for implementation in hooks.close_run} == {"some", "others"}
    assert hooks.on_delta == ()


def test_a_hook_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="there is no hook 'on_tools'"):
        Recorder(only=["on_tools"])


def test_names_and_details_can_be_asked_for() -> None:
    recorder: Any = Recorder(only=["before_turn", "before_run"])
    recorder.before_run(ARGUMENTS["run"])
    recorder.before_turn(ARGUMENTS["run"], 1)
    recorder.before_turn(ARGUMENTS["run"], 2)
    assert recorder.names("before_turn") == ["before_turn", "before_turn"]
    assert recorder.names("before_run", "before_turn") == recorder.names()
    assert recorder.details("before_turn") == [1, 2]
    assert repr(recorder) == "<Recorder of 3 calls>"


# ---- events ----------------------------------------------------------------------------------------------------------


def envelope(seq: int, phase: AgentPhase = AgentPhase.CREATED) -> dict[str, Any]:
    return {"seq": seq, "run_id": "r", "session_id": "s", "phase": phase}


def text_events() -> list[Event]:
    return [
        RunStarted(**envelope(1), request=UserMessage(id="u", parts=())),
        TextStarted(**envelope(2), message_id="m", index=0),
        TextDelta(**envelope(3), message_id="m", index=0, text="Hel"),
        TextDelta(**envelope(4), message_id="m", index=0, text="lo"),
        TextStarted(**envelope(5), message_id="m", index=1),
        TextDelta(**envelope(6), message_id="m", index=1, text="again"),
    ]


async def stream_of(events: list[Event], error: BaseException | None = None) -> AsyncIterator[Event]:
    for event in events:
        yield event
    if error is not None:
        raise error


@pytest.mark.anyio
async def test_a_stream_is_read_to_its_end() -> None:
    events = await record(stream_of(text_events()))
    assert list(events) == text_events()
    assert len(events) == 6
    assert events.error is None
    assert events.texts() == ["Hello", "again"]
    assert len(events.of(TextDelta)) == 3
    assert events.one(RunStarted).seq == 1
    assert repr(events).startswith("<EventRecorder: run_started, text_started, ")


@pytest.mark.anyio
async def test_an_error_comes_through_unless_it_is_asked_for() -> None:
    boom = LookupError("boom")
    with pytest.raises(LookupError) as caught:
        await record(stream_of(text_events(), boom))
    assert caught.value is boom
    events = await record(stream_of(text_events(), boom), catch=LookupError)
    assert events.error is boom
    assert len(events) == 6
    with pytest.raises(LookupError):
        await record(stream_of([], boom), catch=(ValueError, KeyError))


def test_a_mismatch_is_shown_line_by_line() -> None:
    events = EventRecorder(text_events()[:3])
    events.expect("run_started", "text_started", "text_delta")
    with pytest.raises(AssertionError) as caught:
        events.expect("run_started", "turn_started", "text_started", "text_delta")
    assert str(caught.value).splitlines() == [
        "the events are not as expected:",
        "  run_started",
        "- turn_started",
        "  text_started",
        "  text_delta",
    ]


def test_one_says_what_there_is() -> None:
    events = EventRecorder(text_events()[:4])
    with pytest.raises(AssertionError, match="expected one TextDelta, found 2 in: run_started, text_started, text_del"):
        events.one(TextDelta)
    with pytest.raises(AssertionError, match="expected one RunFailed, found 0 in"):
        events.one(RunFailed)


def test_check_uses_the_invariants() -> None:
    with pytest.raises(AssertionError, match="no terminal event"):
        EventRecorder(text_events()).check()
