"""Golden orders of the UI stream: what a caller sees, event by event, for the three ends and for every lane."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, Ask, hookimpl, tool
from trilane.errors import RunCancelledError
from trilane.events import MessageCompleted, RunCancelled, RunCompleted, RunFailed, ToolCompleted, ToolStarted
from trilane.messages import Usage
from trilane.testing import EventRecorder, ScriptedModel, Step, call, no_leaks, record

pytestmark = pytest.mark.anyio

MODEL_CALL = ["phase_changed", "model_started", "message_started"]
TEXT = ["text_started", "text_delta", "text_completed"]


@tool
async def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: One.
        b: Another.
    """
    return a + b


async def streamed(agent: Agent[Any, Any], request: str = "Go", catch: Any = (), **options: Any) -> EventRecorder:
    async with no_leaks():
        async with agent.stream(request, **options) as run:
            events = await record(run, catch=catch)
    events.check()
    return events


async def test_r13_a_completed_run_ends_with_exactly_one_run_completed() -> None:
    events = await streamed(Agent(ScriptedModel("Hello.")))
    events.expect(
        *("run_started", "phase_changed", "user_message_added", "phase_changed", "turn_started"),
        *(*MODEL_CALL, *TEXT, "phase_changed", "message_completed", "turn_completed", "phase_changed"),
        "run_completed",
        without=(),
    )
    assert [phase.value for phase in events.phases()] == [
        "loading_context",
        "ready",
        "generating",
        "ready",
        "completed",
    ]
    assert events.one(RunCompleted).result.output == "Hello."
    assert events.events[-1].type == "run_completed"


async def test_golden_order_with_reasoning_text_and_two_tools() -> None:
    calls = [call("add", call_id="one", a=1, b=2), call("add", call_id="two", a=3, b=4)]
    model = ScriptedModel(Step("Adding.", reasoning="Hm.", calls=calls, usage=Usage(input_tokens=7)), "3 and 7.")
    events = await streamed(Agent(model, tools=[add]))
    events.expect(
        *("run_started", "phase_changed", "user_message_added", "phase_changed", "turn_started", *MODEL_CALL),
        *("reasoning_started", "reasoning_delta", "reasoning_completed", *TEXT),
        *["tool_call_delta"] * 6,
        *("phase_changed", "message_completed", "phase_changed", "tool_started", "tool_started"),
        *("tool_completed", "tool_completed", "phase_changed", "turn_completed", "turn_started", *MODEL_CALL),
        *("text_started", *["text_delta"] * 3, "text_completed"),
        *("phase_changed", "message_completed", "turn_completed", "phase_changed", "run_completed"),
        without=(),
    )
    assert [event.call.id for event in events.of(ToolStarted)] == ["one", "two"]
    assert [event.result.content for event in events.of(ToolCompleted)] == ["3", "7"]
    assert events.one(RunCompleted).result.usage.input_tokens == 7


async def test_a_failed_run_ends_with_run_failed_and_raises_the_same_object() -> None:
    boom = ConnectionError("gone")
    events = await streamed(Agent(ScriptedModel(Step("Half of", error=boom))), catch=ConnectionError)
    events.expect(
        *("run_started", "user_message_added", "turn_started", "model_started", "message_started", "text_started"),
        *("text_delta", "text_delta", "text_completed", "message_completed", "run_failed"),
    )
    assert events.error is boom
    failed = events.one(RunFailed)
    assert failed.error is boom
    assert failed.status == "failed"
    message = events.one(MessageCompleted)
    assert (message.message.text, message.interrupted, message.stop_reason) == ("Half of", True, "error")


async def test_a_stopped_run_ends_with_run_cancelled_and_raises_the_reason() -> None:
    agent = Agent(ScriptedModel("A long answer."))
    events = EventRecorder()
    async with agent.stream("Go") as run:
        with pytest.raises(RunCancelledError, match="enough") as caught:
            async for event in run:
                events.events.append(event)
                if event.type == "text_delta":
                    run.stop("enough")
    events.check()
    events.expect(
        *("run_started", "user_message_added", "turn_started", "model_started", "message_started", "text_started"),
        *("text_delta", "text_completed", "message_completed", "run_cancelled"),
    )
    assert events.one(RunCancelled).reason == "enough"
    assert caught.value.result is run.result
    assert run.result.status == "cancelled"


async def test_a_denied_call_is_completed_without_having_started() -> None:
    class Denier:
        name = "denier"

        @hookimpl
        def decide_tool(self, call: Any) -> Any:
            from trilane import Deny

            return Deny(reason="not today") if call.id == "no" else None

    calls = [call("add", call_id="no", a=1, b=2), call("add", call_id="yes", a=3, b=4)]
    events = await streamed(Agent(ScriptedModel(calls, "Done."), tools=[add], plugins=[Denier()]))
    assert [event.call.id for event in events.of(ToolStarted)] == ["yes"]
    completed = events.of(ToolCompleted)
    assert [(event.call.id, event.result.outcome) for event in completed] == [("no", "denied"), ("yes", "ok")]


async def test_w19_golden_order_of_an_approval_beside_a_call_that_needs_none() -> None:
    """W19: the sibling starts and ends while the question is open; the approved call is announced alone."""

    class Asker:
        name = "asker"

        @hookimpl
        def decide_tool(self, call: Any) -> Any:
            return Ask(prompt="May I?") if call.id == "ask" else None

    calls = [call("add", call_id="ask", a=1, b=2), call("add", call_id="free", a=3, b=4)]
    agent = Agent(ScriptedModel(calls, "Done."), tools=[add], plugins=[Asker()])
    events = EventRecorder()
    questions: list[str] = []
    async with agent.stream("Go") as run:
        async for event in run:
            events.events.append(event)
            if event.type == "reply_requested":
                questions.append(event.question.id)
            if event.type == "tool_completed" and event.call.id == "free":
                assert run.reply(questions[0], {"approve": True}).status == "accepted"
    events.check()
    types = events.types()
    first = types.index("tool_started")
    assert types[first : first + 6] == [
        *("tool_started", "reply_requested", "tool_completed", "reply_received", "tool_started", "tool_completed")
    ]
    assert [event.call.id for event in events.of(ToolStarted)] == ["free", "ask"]
    history = run.result.messages[2]
    assert history.kind == "tool"
    assert [result.call_id for result in history.results] == ["ask", "free"]


async def test_r35_the_order_of_events_is_the_same_200_times() -> None:
    first: list[str] = []
    for _ in range(200):
        calls = [call("add", a=1, b=2), call("add", a=3, b=4)]
        async with Agent(ScriptedModel(calls, "Done."), tools=[add]).stream("Go") as run:
            types = (await record(run)).types(without=())
        first = first or types
        assert types == first


async def test_events_carry_the_phase_they_were_produced_in() -> None:
    events = await streamed(Agent(ScriptedModel(call("add", a=1, b=2), "Three."), tools=[add]))
    phases = {event.type: event.phase.value for event in events}
    assert phases["turn_started"] == "ready"
    assert phases["text_delta"] == "generating"
    assert phases["message_completed"] == "ready"
    assert phases["tool_started"] == "running_tool"
    assert phases["tool_completed"] == "running_tool"
    assert phases["run_completed"] == "completed"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_model_that_returns_without_deltas_is_shown_as_one() -> None:
    model = ScriptedModel(Step("All at once.", deltas=()))
    events = await streamed(Agent(model))
    assert events.texts() == ["All at once."]
    assert events.types().count("text_delta") == 1


async def test_r53_the_three_lanes_do_not_mix() -> None:
    """Notifications never show on the UI stream; UI events, custom ones included, never reach `on_event`."""
    from trilane.events import ExtensionEvent

    class Note(ExtensionEvent):
        text: str

    heard: list[object] = []

    class Plugin:
        name = "plugin"

        @hookimpl
        async def before_run(self, run: Any) -> None:
            await run.publish(Note(text="for plugins"))
            await run.emit("custom", {"for": "the caller"})

        @hookimpl
        def on_event(self, notification: Any) -> None:
            heard.append(notification)

    events = await streamed(Agent(ScriptedModel("Hello."), plugins=[Plugin()]))
    assert Note(text="for plugins") in heard
    assert all(isinstance(note, ExtensionEvent) for note in heard)
    custom = [event for event in events if event.type == "custom_event"]
    assert [(event.plugin, event.name, event.data) for event in custom] == [("plugin", "custom", {"for": "the caller"})]
    assert "Note" not in {type(event).__name__ for event in events}
    assert "for plugins" not in "".join(event.to_json() for event in events)
