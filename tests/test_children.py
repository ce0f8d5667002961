"""Agents as tools: events on the parent's stream, shared budget, plugins and cancel, questions through the root."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from trilane import Agent, Limits, ToolContext, hookimpl, tool
from trilane.errors import RunCancelledError, RunLimitError, ToolDefinitionError
from trilane.events import ChildEvent, ToolCompleted
from trilane.messages import Usage
from trilane.testing import (
    EventRecorder,
    Recorder,
    ScriptedModel,
    Step,
    assert_history,
    call,
    no_leaks,
    record,
    run_virtual,
)
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask."""
    return await ctx.ask("Which ship?")


def family(*script: Any, parent: tuple[Any, ...] = (), **options: Any) -> tuple[Agent[Any, Any], Agent[Any, Any]]:
    """A parent that delegates once, and its child, which plays `script`."""
    child = Agent(ScriptedModel(*script, name="child model"), name="child", tools=[look, ask])
    delegate = child.as_tool(name="delegate", description="Delegates a piece of work.")
    steps = parent or (call("delegate", call_id="p", request="Look"), "Done.")
    return Agent(ScriptedModel(*steps), name="parent", tools=[delegate], **options), child


async def streamed(agent: Agent[Any, Any], *, catch: Any = (), **options: Any) -> tuple[EventRecorder, Any]:
    async with no_leaks():
        async with agent.stream("Go", session="root", **options) as run:
            events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


async def test_the_childs_events_travel_on_the_parents_stream_and_its_terminal_event_does_not() -> None:
    parent, _ = family(call("look"), "One ship.")
    events, run = await streamed(parent)
    assert run.result.output == "Done."
    assert events.one(ToolCompleted).result.content == "One ship."
    children = events.of(ChildEvent)
    assert {event.path for event in children} == {("delegate",)}
    types = [event.event.type for event in children if event.event.type != "phase_changed"]
    assert types[0] == "run_started"
    assert "tool_completed" in types
    assert "run_completed" not in types
    assert [event.event.seq for event in children] == list(range(1, len(children) + 1))


async def test_the_description_and_the_parameter_are_the_models() -> None:
    parent, _ = family("One.")
    model = ScriptedModel("Done.")
    await parent.run("Go", model=model)
    (spec,) = model.requests[0].tools
    assert (spec.name, spec.description) == ("delegate", "Delegates a piece of work.")
    assert spec.parameters["required"] == ["request"]


async def test_nothing_runs_ahead_in_a_child_either() -> None:
    log: list[str] = []

    class Watcher:
        name = "watcher"

        @hookimpl
        def before_tool(self, call: Any) -> None:
            log.append(call.name)

    parent, _ = family(call("look"), "One ship.", plugins=[Watcher()])
    async with parent.stream("Go") as run:
        async for event in run:
            before = list(log)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert log == before
            if event.type == "child_event" and event.event.type == "tool_started":
                assert log == ["delegate"]
    assert log == ["delegate", "look"]


async def test_usage_and_limits_are_shared() -> None:
    step = Step("One ship.", usage=Usage(input_tokens=60))
    parent, _ = family(step)
    _, run = await streamed(parent)
    assert run.result.usage.input_tokens == 60

    many = [Step(calls=[call("delegate", request="Look")], usage=Usage(input_tokens=10)) for _ in range(3)]
    parent, _ = family(*[step] * 3, parent=(*many, "Done."))
    events, run = await streamed(parent, catch=RunLimitError, limits=Limits(input_tokens=100))
    assert run.result.status == "failed"
    assert run.result.turns == 2
    assert "input tokens" in str(events.error)


async def test_tool_calls_of_children_count() -> None:
    parent, _ = family([call("look"), call("look")], "Ships.")
    events, run = await streamed(parent, limits=Limits(tool_calls=2))
    result = events.one(ToolCompleted).result
    assert result.outcome == "error"
    assert "RunLimitError" in str(result.content)
    assert run.result.output == "Done."


async def test_plugins_of_the_parent_see_the_child_with_its_path() -> None:
    seen: list[tuple[str, str, tuple[str, ...]]] = []

    class Watcher:
        name = "watcher"

        @hookimpl
        def before_turn(self, run: Any) -> None:
            seen.append((run.agent_name, run.session_id, run.path))

    parent, _ = family("One.", plugins=[Watcher()])
    await streamed(parent)
    names = [(name, path) for name, _, path in seen]
    assert names == [("parent", ()), ("child", ("delegate",)), ("parent", ())]
    assert seen[0][1] == "root"
    assert seen[1][1] != "root"


async def test_an_agent_inside_an_agent_inside_an_agent() -> None:
    inner = Agent(ScriptedModel(call("look"), "A ship."), name="inner", tools=[look])
    middle = Agent(
        ScriptedModel(call("inner", request="Look"), "It saw one."),
        name="middle",
        tools=[inner.as_tool(name="inner", description="Looks.")],
    )
    outer = Agent(
        ScriptedModel(call("middle", request="Look"), "Done."),
        tools=[middle.as_tool(name="middle", description="Delegates.")],
    )
    events, _ = await streamed(outer)
    paths = {event.path for event in events.of(ChildEvent)}
    assert paths == {("middle",), ("middle", "inner")}
    assert events.one(ToolCompleted).result.content == "It saw one."


async def test_a_child_that_fails_is_an_error_result() -> None:
    recorder = Recorder(only=["on_error", "close_run"])
    parent, _ = family(ConnectionError("the network is down"), plugins=[recorder])
    events, run = await streamed(parent)
    result = events.one(ToolCompleted).result
    assert result.outcome == "error"
    assert result.content == "The agent delegate failed: ConnectionError"
    assert run.result.output == "Done."
    assert recorder.names() == ["on_error", "close_run", "close_run"]


async def test_stopping_the_parent_stops_the_child() -> None:
    recorder = Recorder(only=["on_cancel", "close_run"])
    parent, child = family(call("ask"), "One.", plugins=[recorder])
    events = EventRecorder()
    async with no_leaks():
        async with parent.stream("Go", session="root") as run:
            with pytest.raises(RunCancelledError):
                async for event in run:
                    events.events.append(event)
                    if event.type == "child_event" and event.event.type == "reply_requested":
                        run.stop("enough")
    events.check()
    assert_history(run.result.messages)
    assert recorder.names() == ["on_cancel", "close_run", "on_cancel", "close_run"]
    for session in child.store.sessions():  # type: ignore[attr-defined]
        assert child.active(session) is None


async def test_leaving_the_parents_stream_stops_the_child() -> None:
    parent, child = family(Step("A long answer of the child."))
    async with no_leaks():
        async with parent.stream("Go", session="root") as run:
            async for event in run:
                if event.type == "child_event" and event.event.type == "text_delta":
                    break
    assert run.result.status == "cancelled"
    assert_history(run.result.messages)
    for session in child.store.sessions():  # type: ignore[attr-defined]
        assert child.active(session) is None


async def test_questions_of_a_child_are_answered_through_the_root_session() -> None:
    parent, child = family(call("ask"), "It is Moby.")
    events = EventRecorder()
    async with parent.stream("Go", session="root") as run:
        async for event in run:
            events.events.append(event)
            if event.type == "child_event" and event.event.type == "reply_requested":
                question = event.event.question
                assert (question.session_id, question.path) == ("root", ("delegate",))
                assert child.reply(event.event.session_id, question.id, "x").status != "accepted"
                assert parent.reply("root", question.id, "Moby").status == "accepted"
    events.check()
    assert run.result.output == "Done."


async def test_nobody_can_answer_a_child_under_run_and_answer_is_inherited() -> None:
    parent, _ = family(call("ask"), "Nobody said.")
    assert (await parent.run("Go")).output == "Done."

    asked: list[Any] = []

    async def answer(question: Any) -> Any:
        asked.append(question.path)
        return "Moby"

    parent, _ = family(call("ask"), "It is Moby.")
    assert (await parent.run("Go", answer=answer)).output == "Done."
    assert asked == [("delegate",)]


async def test_deps_of_a_child_are_made_from_the_call() -> None:
    seen: list[Any] = []

    @tool
    async def see(ctx: ToolContext[str]) -> str:
        """See."""
        seen.append(ctx.deps)
        return ctx.deps

    child: Agent[str, str] = Agent(ScriptedModel(call("see"), "Seen."), tools=[see], deps_type=str)
    delegate = child.as_tool(name="delegate", description="Delegates.", deps=lambda ctx: f"from {ctx.deps}")
    parent: Agent[int, str] = Agent(
        ScriptedModel(call("delegate", request="Go"), "Done."), tools=[delegate], deps_type=int
    )
    assert (await parent.run("Go", deps=5)).output == "Done."
    assert seen == ["from 5"]


class Ship(BaseModel):
    name: str
    masts: int


@pytest.mark.parametrize(
    ("output_type", "answer", "value"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (Ship, '{"name": "Moby", "masts": 3}', Ship(name="Moby", masts=3)),
        (Ship | None, "null", "null"),
        (int, "3", 3),
    ],
)
async def test_an_answer_that_is_no_text_is_the_result_that_a_function_would_have(
    output_type: Any, answer: str, value: Any
) -> None:
    @tool
    async def plain() -> Any:
        """It."""
        return value

    child: Agent[None, Any] = Agent(ScriptedModel(answer), output_type=output_type)
    delegate = child.as_tool(name="delegate", description="Delegates.")
    parent = Agent(ScriptedModel([call("delegate", request="Go"), call("plain")], "Done."), tools=[delegate, plain])
    events, _ = await streamed(parent)
    first, second = (event.result for event in events.of(ToolCompleted))
    assert (first.content, first.data) == (second.content, second.data)
    assert first.content == answer


async def test_a_tool_has_the_name_of_its_agent_unless_it_is_given_another() -> None:
    child = Agent(ScriptedModel("Here."), name="geo")
    parent = Agent(ScriptedModel(call("geo", request="Go"), "Done."), tools=[child.as_tool(description="Places.")])
    events, _ = await streamed(parent)
    assert events.one(ToolCompleted).result.content == "Here."
    assert {event.path for event in events.of(ChildEvent)} == {("geo",)}


async def test_mistakes_with_agents_as_tools_name_the_agent_and_the_line() -> None:
    child = Agent(ScriptedModel("Here."), name="geo")
    line = sys._getframe().f_lineno + 2
    with pytest.raises(ToolDefinitionError) as caught:
        child.as_tool(name="a b", description="Places.")
    assert str(caught.value).startswith(f"Tool 'a b' (agent 'geo' as a tool, {__name__}, line {line}): the name is not")
    with pytest.raises(ToolDefinitionError, match=r"^The agent 'geo' is not a tool by itself: .*as_tool\(description"):
        Agent(ScriptedModel("Done."), tools=[child])  # type: ignore[list-item]
    with pytest.raises(ToolDefinitionError, match=r"Two tools .*agent 'geo' as a tool.*agent 'other' as a tool"):
        other = Agent(ScriptedModel("There."), name="other")
        tools = [child.as_tool(description="Places."), other.as_tool(name="geo", description="Places.")]
        Agent(ScriptedModel("Done."), tools=tools)


async def test_children_run_side_by_side() -> None:
    child = Agent(ScriptedModel("One.", "Two."), name="child")
    delegate = child.as_tool(name="delegate", description="Delegates.")
    calls = [call("delegate", call_id="a", request="A"), call("delegate", call_id="b", request="B")]
    parent = Agent(ScriptedModel(calls, "Done."), tools=[delegate])
    events, _ = await streamed(parent)
    assert {event.result.content for event in events.of(ToolCompleted)} == {"One.", "Two."}
    assert len({event.event.run_id for event in events.of(ChildEvent)}) == 2


class TestTime:
    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return request.param  # type: ignore[no-any-return]

    def test_the_parents_clock_stands_still_while_its_child_awaits_a_reply(self, backend: Backend) -> None:
        async def main() -> None:
            async def answer(_question: Any) -> Any:
                await anyio.sleep(1000)
                return "Moby"

            parent, _ = family(call("ask"), "It is Moby.")
            async with parent.stream("Go", answer=answer, limits=Limits(run_seconds=30)) as run:
                events = await record(run)
            events.check()
            assert run.result.output == "Done."

        run_virtual(main, backend=backend)

    def test_the_parents_limit_ends_the_child(self, backend: Backend) -> None:
        async def main() -> None:
            async def wait() -> None:
                await anyio.sleep(1000)

            parent, _ = family(Step("Never.", before=wait))
            start = anyio.current_time()
            async with parent.stream("Go", limits=Limits(run_seconds=30)) as run:
                await record(run, catch=RunLimitError)
            assert run.result.status == "timed_out"
            assert anyio.current_time() - start < 35

        run_virtual(main, backend=backend)
