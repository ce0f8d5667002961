"""Steering and follow-ups: what is said while a run works, in each phase, and when it is heard."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, Limits, hookimpl, tool
from trilane.errors import AgentProtocolError
from trilane.events import ToolCompleted, UserMessageAdded
from trilane.messages import TextPart
from trilane.testing import EventRecorder, Recorder, ScriptedModel, Step, assert_history, call, record

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


async def steered(at: str, *script: Any, say: Any = None, **options: Any) -> tuple[EventRecorder, Any, ScriptedModel]:
    """A run to which something is said when the first event of type `at` comes."""
    model = ScriptedModel(*script)
    events = EventRecorder()
    said = False
    async with Agent(model, tools=[look], **options).stream("Go") as run:
        async for event in run:
            events.events.append(event)
            if event.type == at and not said:
                said = True
                (say or (lambda run: run.steer("Faster!")))(run)
    events.check()
    assert_history(run.result.messages)
    model.assert_finished()
    return events, run, model


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages if message.kind in ("user", "assistant")]


@pytest.mark.parametrize("hooks", [(), ("before_turn",), ("on_model_request",), ("around_model",), ("on_message",)])
@pytest.mark.parametrize("at", ["run_started", "user_message_added", "turn_started"])
async def test_steering_before_the_first_model_call_is_in_the_first_request(at: str, hooks: tuple[str, ...]) -> None:
    """R28: what is on the input lane is taken in before each model call."""
    plugins = [Recorder(only=hooks)] if hooks else []
    events, _, model = await steered(at, "Hello.", plugins=plugins)
    assert texts(model.requests[0].messages) == ["Go", "Faster!"]
    assert [event.origin for event in events.of(UserMessageAdded)] == ["request", "steering"]


@pytest.mark.parametrize("at", ["text_delta", "tool_call_delta", "message_completed", "tool_started", "tool_completed"])
async def test_steering_during_a_turn_with_tools_is_in_the_next_request(at: str) -> None:
    events, _, model = await steered(at, Step("Looking.", calls=[call("look")]), "Hello.")
    first, second = model.requests
    assert texts(first.messages) == ["Go"]
    assert texts(second.messages) == ["Go", "Looking.", "Faster!"]
    assert [message.kind for message in second.messages] == ["user", "assistant", "tool", "user"]
    # Calls that have not started do not start.
    assert events.one(ToolCompleted).result.outcome == ("ok" if at == "tool_completed" else "superseded")


@pytest.mark.parametrize("hook", ["on_delta", "after_run"])
@pytest.mark.parametrize("at", ["text_delta", "message_completed", "turn_completed"])
async def test_steering_that_comes_too_late_becomes_a_follow_up(at: str, hook: str) -> None:
    if hook == "on_delta" and at != "text_delta":
        return  # nothing comes after the answer: these are shown together with the end
    events, run, model = await steered(at, "Hello.", "Faster.", plugins=[Recorder(only=[hook])])
    assert run.result.output == "Faster."
    assert texts(model.requests[1].messages) == ["Go", "Hello.", "Faster!"]
    assert events.types().count("run_completed") == 1
    assert run.result.turns == 2


async def test_calls_that_have_not_started_are_superseded_and_running_ones_finish() -> None:
    gate = anyio.Event()
    begun = anyio.Event()
    ran: list[str] = []

    @tool
    async def work(name: str) -> str:
        """Work.

        Args:
            name: What.
        """
        ran.append(name)
        begun.set()
        await gate.wait()
        return f"did {name}"

    model = ScriptedModel([call("work", name="a"), call("work", name="b")], "Hello.")
    async with Agent(model, tools=[work], tool_concurrency=1).stream("Go") as run:
        async with anyio.create_task_group() as group:

            async def speak() -> None:
                await begun.wait()
                run.steer("Stop that!")
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                gate.set()

            group.start_soon(speak)
            events = await record(run)
    events.check()
    assert ran == ["a"]
    assert [event.result.outcome for event in events.of(ToolCompleted)] == ["ok", "superseded"]
    assert texts(model.requests[1].messages) == ["Go", "", "Stop that!"]


async def test_follow_ups_are_worked_one_after_the_other_after_the_answer() -> None:
    def say(run: Any) -> None:
        run.follow_up("And then?")
        run.follow_up("And finally?")

    events, run, model = await steered("run_started", "One.", "Two.", "Three.", say=say)
    assert run.result.output == "Three."
    assert texts(run.result.messages) == ["Go", "One.", "And then?", "Two.", "And finally?", "Three."]
    assert [event.origin for event in events.of(UserMessageAdded)] == ["request", "follow_up", "follow_up"]
    assert texts(model.requests[0].messages) == ["Go"]


async def test_on_message_sees_steering_and_follow_ups() -> None:
    seen: list[tuple[str, str]] = []

    class Plugin:
        name = "plugin"

        @hookimpl
        def on_message(self, message: Any) -> Any:
            seen.append((message.origin, message.text))
            return message.replace(parts=(TextPart(text=message.text.upper()),))

    def say(run: Any) -> None:
        run.steer("faster")
        run.follow_up("and then?")

    _, run, _ = await steered("run_started", "One.", "Two.", say=say, plugins=[Plugin()])
    assert seen == [("request", "Go"), ("steering", "faster"), ("follow_up", "and then?")]
    assert texts(run.result.messages) == ["GO", "FASTER", "One.", "AND THEN?", "Two."]


async def test_several_things_said_keep_their_order() -> None:
    def say(run: Any) -> None:
        for number in range(5):
            run.steer(str(number))

    _, _, model = await steered("run_started", "Hello.", say=say)
    assert texts(model.requests[0].messages) == ["Go", "0", "1", "2", "3", "4"]


async def test_steering_from_a_thread_and_from_another_task_through_the_agent() -> None:
    import threading

    agent = Agent(ScriptedModel(call("look"), "Hello."), tools=[look])
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "tool_completed":
                stream = agent.active("s")
                assert stream is run
                thread = threading.Thread(target=stream.steer, args=("From a thread.",))
                thread.start()
                thread.join()
    assert texts(run.result.messages) == ["Go", "", "From a thread.", "Hello."]


async def test_nothing_can_be_said_to_a_run_that_has_ended() -> None:
    async with Agent(ScriptedModel("Hello.")).stream("Go") as run:
        await record(run)
        for say in (run.steer, run.follow_up):
            with pytest.raises(AgentProtocolError, match="the run has ended"):
                say("Hello?")


async def test_steering_cleans_text() -> None:
    _, run, _ = await steered("run_started", "Hello.", say=lambda run: run.steer("a\ud800b\x00c"))
    assert texts(run.result.messages)[1] == "a\ufffdb\ufffdc"


async def test_each_follow_up_has_retries_of_its_own() -> None:
    def say(run: Any) -> None:
        run.follow_up("And then?")
        run.follow_up("And finally?")

    script = ("bad", "1", "bad", "", "2", "", "bad", "3")
    limits = Limits(answer_retries=1, empty_replies=1)
    _, run, _ = await steered("run_started", *script, say=say, output_type=int, limits=limits)
    assert run.result.output == 3
