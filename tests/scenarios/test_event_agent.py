"""Tools that an event agent executes over the queues of the run: the reader of the stream cannot tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane import Agent, QueueClosed, RuntimeQueues, Tool, ToolError, ToolResult, tool
from trilane.errors import AgentProtocolError, RunCancelledError
from trilane.events import ToolCompleted
from trilane.testing import EventRecorder, Recorder, ScriptedModel, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio


@tool
async def look(where: str) -> str:
    """Look."""
    if where == "nowhere":
        raise ToolError("There is nothing to see.")
    return f"a ship {where}"


@tool(approval=True)
async def sail(to: str) -> dict[str, Any]:
    """Sail."""
    return {"reached": to}


HERE = [look, sail]
ELSEWHERE = [
    Tool.external(name="look", description="Look.", parameters=look),
    Tool.external(name="sail", description="Sail.", parameters=sail, approval=True),
]


async def answer(queues: RuntimeQueues, first: Callable[[list[Any]], list[Any]] = list, wait_for: int = 1) -> None:
    """An event agent that collects `wait_for` calls and answers them in the order of `first`."""
    functions: dict[str, Any] = {"look": look, "sail": sail}
    waiting: list[Any] = []
    while True:
        try:
            waiting.append((await queues.events.get()).call)
        except QueueClosed:
            return
        if len(waiting) < wait_for:
            continue
        for one in first(waiting):
            try:
                value = await functions[one.name](**one.arguments)
                text = value if isinstance(value, str) else json.dumps(value)
                data = None if isinstance(value, str) else value
                result = ToolResult(call_id=one.id, content=text, data=data)
            except ToolError as error:
                result = ToolResult(call_id=one.id, content=str(error), outcome="error")
            queues.input.put_nowait(result)
        waiting.clear()


def normalised(events: Any) -> list[Any]:
    """Events as JSON, with ids named by their first appearance."""
    names: dict[str, str] = {}

    def rename(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: rename(inner, name) for name, inner in value.items() if name != "seconds"}
        if isinstance(value, list):
            return [rename(inner, key) for inner in value]
        if isinstance(value, str) and (key == "id" or key.endswith("_id") or key == "key") and value:
            return names.setdefault(value, f"id-{len(names)}")
        return value

    return [rename(json.loads(event.to_json())) for event in events]


SCRIPTS: dict[str, tuple[Any, ...]] = {
    "one": (call("look", where="ahead"), "Hello."),
    "two at once": ([call("look", where="ahead"), call("look", where="astern")], "Hello."),
    "an error": (call("look", where="nowhere"), "Hello."),
    "bad arguments": (call("look", there="x"), "Hello."),
    "no such tool": (call("sleep"), "Hello."),
    "approvals": ([call("sail", to="Oslo"), call("sail", to="Rome"), call("look", where="ahead")], "Hello."),
}


async def _run(script: tuple[Any, ...], *, split: bool, **options: Any) -> EventRecorder:
    queues = RuntimeQueues(has_event_agent=split)
    agent = Agent(ScriptedModel(*script), tools=ELSEWHERE if split else HERE)
    asked = 0
    events = EventRecorder()
    async with no_leaks():
        async with anyio.create_task_group() as group:
            if split:
                group.start_soon(lambda: answer(queues, **options))
            async with agent.stream("Go", queues=queues) as run:
                async for event in run:
                    events.events.append(event)
                    if event.type == "reply_requested":
                        asked += 1
                        edited = {"approve": True, "arguments": {"to": "Bergen"}}
                        run.reply(event.question.id, edited if asked == 1 else {"approve": False, "reason": "no"})
    events.check()
    assert queues.empty
    assert_history(run.result.messages)
    return events


@pytest.mark.parametrize("name", SCRIPTS)
async def test_r32_the_stream_is_the_same_as_without_the_split(name: str) -> None:
    together = normalised(await _run(SCRIPTS[name], split=False))
    apart = normalised(await _run(SCRIPTS[name], split=True))
    assert apart == together
    assert len(together) > 10


async def test_r32_results_are_announced_in_call_order_whoever_is_first() -> None:
    script = SCRIPTS["two at once"]
    together = await _run(script, split=False)
    apart = await _run(script, split=True, wait_for=2, first=lambda calls: calls[::-1])
    assert normalised(apart) == normalised(together)
    assert [event.result.content for event in apart.of(ToolCompleted)] == ["a ship ahead", "a ship astern"]


async def test_only_the_input_lane_answers_for_an_event_agent() -> None:
    """To the reader of the stream there is no such question; plugins are told of it when it is opened."""
    queues = RuntimeQueues(has_event_agent=True)
    recorder = Recorder(only=["on_event"])
    agent = Agent(ScriptedModel(call("look", call_id="a", where="x"), "Hello."), tools=ELSEWHERE, plugins=[recorder])
    events = EventRecorder()
    async with anyio.create_task_group() as group:

        async def event_agent() -> None:
            await queues.events.get()
            while "QuestionOpenedEvent" not in recorder.details("on_event"):
                await anyio.lowlevel.checkpoint()
            assert agent.reply("s", "a", "forged").status == "unknown"
            assert agent.questions("s") == ()
            queues.input.put_nowait(ToolResult(call_id="a", content="a whale"))
            assert agent.reply("s", "a", "forged").status == "unknown"
            with pytest.raises(AgentProtocolError, match="duplicate"):
                queues.input.put_nowait(ToolResult(call_id="a", content="again"))

        group.start_soon(event_agent)
        async with agent.stream("Go", session="s", queues=queues) as run:
            async for event in run:
                events.events.append(event)
    assert events.one(ToolCompleted).result.content == "a whale"
    assert "reply_requested" not in events.types()
    assert agent.reply("s", "a", "late").status == "unknown"


@pytest.mark.parametrize("split", [True, False], ids=["event agent", "client"])
async def test_a_call_that_was_sent_out_is_not_said_to_be_not_started(split: bool) -> None:
    """Somebody may have executed it: the effect is unknown."""
    queues = RuntimeQueues(has_event_agent=split)
    agent = Agent(ScriptedModel(call("look", call_id="a", where="x"), "Hello."), tools=ELSEWHERE)
    events = EventRecorder()
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            await queues.events.get()
            run.stop("enough")

        async with agent.stream("Go", queues=queues) as run:
            group.start_soon(stop)
            with pytest.raises(RunCancelledError):
                async for event in run:
                    events.events.append(event)
    result = events.one(ToolCompleted).result
    assert (result.outcome, result.content) == ("interrupted", "Tool look was interrupted, effect unknown")
    assert_history(run.result.messages)


async def test_w3_a_result_that_was_accepted_is_kept_by_a_stop() -> None:
    queues = RuntimeQueues(has_event_agent=True)
    agent = Agent(ScriptedModel(call("look", call_id="a", where="x"), "Hello."), tools=ELSEWHERE)
    async with anyio.create_task_group() as group:

        async def last_word() -> None:
            await queues.events.get()
            queues.input.put_nowait(ToolResult(call_id="a", content="a whale"))
            run.stop("enough")

        async with agent.stream("Go", queues=queues) as run:
            group.start_soon(last_word)
            events = await record(run, catch=RunCancelledError)
    assert isinstance(events.error, RunCancelledError)
    assert run.result.messages[2].results[0].content == "a whale"
    assert run.result.status == "cancelled"
