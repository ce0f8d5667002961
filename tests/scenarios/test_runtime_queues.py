"""The explicit lanes of a run: recorded, injected, and tools that somebody outside runs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, RuntimeQueues, Tool, tool
from trilane.channels import AgentEventQueue
from trilane.errors import AgentProtocolError, RunCancelledError
from trilane.events import ToolCallEvent, ToolCompleted, ToolStarted
from trilane.messages import SystemMessage, TextPart, ToolResult, UserMessage, new_id
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio

PARAMETERS = {"type": "object", "properties": {"what": {"type": "string"}}}
client = Tool.external(name="client", description="Runs in the client.", parameters=PARAMETERS)


@tool
async def look() -> str:
    """Look."""
    return "a ship"


class RecordingOutput(AgentEventQueue[Any]):
    """The output lane, writing down what is put."""

    def __init__(self, log: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.log = log

    async def put(self, *events: Any) -> None:
        self.log += [("output", event) for event in events]
        await super().put(*events)

    def put_nowait(self, *events: Any) -> None:
        self.log += [("output", event) for event in events]
        super().put_nowait(*events)


class Recording:
    """Queues whose traffic is written down, in one order for all three."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.queues = RuntimeQueues(output=RecordingOutput(self.log))
        for lane in ("input", "events"):
            self._watch(lane)

    def _watch(self, lane: str) -> None:
        queue: Any = getattr(self.queues, lane)
        put_nowait = queue.put_nowait

        def recording(item: Any) -> None:
            self.log.append((lane, item))
            put_nowait(item)

        queue.put_nowait = recording

    def of(self, lane: str) -> list[Any]:
        return [item for where, item in self.log if where == lane]


def agent(*script: Any, **options: Any) -> Agent[None, str]:
    return Agent(ScriptedModel(*script), tools=[look, client], **options)


async def test_r25_r26_a_run_has_three_lanes_and_uses_the_ones_it_was_given() -> None:
    queues = RuntimeQueues()
    async with agent("Hello.").stream("Go", queues=queues) as run:
        assert run.queues is queues
        await record(run)
    async with agent("Hello.").stream("Go") as run:
        assert isinstance(run.queues, RuntimeQueues)
        assert isinstance(run.queues.output, AgentEventQueue)
        await record(run)


async def test_r27_the_user_message_goes_through_input_before_the_first_request() -> None:
    recording = Recording()
    model = ScriptedModel("Hello.")
    system = SystemMessage(id="s", text="Be kind.")
    earlier = UserMessage(id="e", parts=(TextPart(text="Earlier."),))
    subject = Agent(model, instructions="You are a sailor.")
    async with subject.stream("Go", queues=recording.queues, history=[system, earlier]) as run:
        async for event in run:
            if event.type == "model_started":
                assert [message.text for message in recording.of("input")] == ["Go"]
                assert not model.requests
    (request,) = model.requests
    assert request.instructions == "You are a sailor."
    assert [message.text for message in request.messages] == ["Be kind.", "Earlier.", "Go"]  # type: ignore[union-attr]


async def test_r28_input_is_drained_into_the_conversation_before_each_model_call() -> None:
    queues = RuntimeQueues()
    model = ScriptedModel(call("look"), "Hello.")
    subject = Agent(model, tools=[look])
    async with subject.stream("Go", queues=queues) as run:
        async for event in run:
            if event.type == "tool_started":
                break
        queues.input.put_nowait(UserMessage(id=new_id(), parts=(TextPart(text="And quickly."),), origin="steering"))
        await record(run)
    assert model.requests[1].messages[-1].text == "And quickly."  # type: ignore[union-attr]
    assert_history(run.result.messages)


async def test_r29_r32_output_is_the_stream_with_its_order_and_payloads() -> None:
    recording = Recording()
    async with agent(call("look"), "Hello.").stream("Go", queues=recording.queues) as run:
        events = await record(run)
    assert recording.of("output") == events.events
    async with agent(call("look"), "Hello.").stream("Go") as run:
        direct = await record(run)
    assert events.types(without=()) == direct.types(without=())


async def test_calls_with_a_handler_pass_by_the_events_lane() -> None:
    recording = Recording()
    calls = [call("look", call_id="a"), call("look", call_id="b")]
    async with agent(calls, "Hello.").stream("Go", queues=recording.queues) as run:
        await record(run)
    assert [item.call.id for item in recording.of("events")] == ["a", "b"]
    assert all(isinstance(item, ToolCallEvent) for item in recording.of("events"))
    assert recording.queues.events.empty


async def test_r30_r31_r36_an_event_agent_runs_external_tools() -> None:
    recording = Recording()
    queues = recording.queues
    calls = [call("client", call_id="a", what="x"), call("look", call_id="b"), call("client", call_id="c", what="y")]
    async with no_leaks():
        async with agent(calls, "Hello.").stream("Go", queues=queues) as run:
            async with anyio.create_task_group() as group:

                async def event_agent() -> None:
                    for _ in range(2):
                        event = await queues.events.get()
                        what = event.call.arguments["what"]
                        queues.input.put_nowait(ToolResult(call_id=event.call.id, content=f"did {what}"))

                group.start_soon(event_agent)
                events = await record(run)
    events.check()
    assert_history(run.result.messages)
    results = run.result.messages[2]
    assert results.kind == "tool"
    assert [(one.call_id, one.content) for one in results.results] == [("a", "did x"), ("b", "a ship"), ("c", "did y")]
    assert {event.call.id: event.external for event in events.of(ToolStarted)} == {"a": True, "b": False, "c": True}
    for call_id in ("a", "c"):
        order = [
            lane
            for lane, item in recording.log
            if (lane == "output" and isinstance(item, (ToolStarted, ToolCompleted)) and item.call.id == call_id)
            or (lane == "events" and item.call.id == call_id)
            or (lane == "input" and isinstance(item, ToolResult) and item.call_id == call_id)
        ]
        assert order == ["output", "events", "input", "output"]
    assert len(recording.of("events")) == 3
    assert (queues.input.empty, queues.output.empty, queues.events.empty) == (True, True, True)


async def test_external_tools_are_answered_by_reply_with_the_calls_id() -> None:
    events = EventRecorder()
    async with agent(call("client", call_id="a", what="x"), "Hello.").stream("Go", session="s") as run:
        async for event in run:
            events.events.append(event)
            if event.type == "reply_requested":
                question = event.question
                assert (question.kind, question.id, question.call.id) == ("external_tool", "a", "a")  # type: ignore[union-attr]
                assert run.reply("a", {"answer": 42}).status == "accepted"
                assert run.reply("a", "again").status == "duplicate"
    events.check()
    result = events.one(ToolCompleted).result
    assert (result.data, result.outcome) == ({"answer": 42}, "ok")


async def test_results_for_nobody_are_refused_where_they_are_put() -> None:
    queues = RuntimeQueues()
    async with agent(call("client", call_id="a", what="x"), "Hello.").stream("Go", queues=queues) as run:
        async for event in run:
            if event.type == "reply_requested":
                with pytest.raises(AgentProtocolError, match="unknown"):
                    queues.input.put_nowait(ToolResult(call_id="nonsense", content="x"))
                queues.input.put_nowait(ToolResult(call_id="a", content="x"))
                with pytest.raises(AgentProtocolError, match="duplicate"):
                    queues.input.put_nowait(ToolResult(call_id="a", content="y"))
    assert run.result.output == "Hello."


async def test_a_stop_while_the_client_works_answers_the_call() -> None:
    events = EventRecorder()
    subject = agent(call("client", call_id="a", what="x"), "Hello.")
    async with no_leaks():
        async with subject.stream("Go", session="s") as run:
            with pytest.raises(RunCancelledError):
                async for event in run:
                    events.events.append(event)
                    if event.type == "reply_requested":
                        run.stop("enough")
    events.check()
    assert_history(run.result.messages)
    assert subject.reply("s", "a", "late").status == "expired"


async def test_r34_two_runs_never_see_each_others_items() -> None:
    recordings = [Recording(), Recording()]
    async with anyio.create_task_group() as group:

        async def one(recording: Recording, request: str) -> None:
            subject = agent(call("look"), "Hello.")
            async with subject.stream(request, queues=recording.queues) as run:
                await record(run)

        for number, recording in enumerate(recordings):
            group.start_soon(one, recording, f"request {number}")
    for number, recording in enumerate(recordings):
        assert len({event.run_id for event in recording.of("output")}) == 1
        assert [message.text for message in recording.of("input")] == [f"request {number}"]


async def test_r38_wrong_types_are_refused() -> None:
    queues = RuntimeQueues()
    async with agent("Hello.").stream("Go", queues=queues) as run:
        for wrong in ("text", 5, None):
            with pytest.raises(AgentProtocolError, match="lane takes"):
                queues.input.put_nowait(wrong)  # type: ignore[arg-type]
        await record(run)


async def test_queues_serve_one_run() -> None:
    queues = RuntimeQueues()
    async with agent("Hello.").stream("Go", queues=queues) as run:
        await record(run)
    with pytest.raises(AgentProtocolError):
        async with agent("Hello.").stream("Go", session="s", queues=queues) as run:
            await record(run)
