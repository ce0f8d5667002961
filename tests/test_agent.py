"""The façade: sync and async ways to run, event loops, sessions, and bad input of every kind."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, ToolContext, UserMessage, hookimpl, tool
from trilane.errors import (
    ConfigError,
    HookSpecError,
    PluginLoadError,
    RunSyncError,
    ToolDefinitionError,
    UnknownModelError,
)
from trilane.events import RunCompleted, ToolCompleted
from trilane.messages import ImagePart, TextPart
from trilane.testing import FunctionModel, ScriptedModel, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


def agent(*script: Any, **options: Any) -> Agent[None, str]:
    return Agent(ScriptedModel(*script), tools=[look], **options)


# ---- the same agent everywhere


class TestWithoutALoop:
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    def test_f007_run_sync_twice_and_two_event_loops_with_one_agent(self) -> None:
        subject = agent(call("look"), "One.", "Two.", "Three.", "Four.", "Five.")
        with no_leaks():
            assert subject.run_sync("Go", session="s").output == "One."
            assert subject.run_sync("Go", session="s").output == "Two."
            assert asyncio.run(subject.run("Go", session="s")).output == "Three."
            assert asyncio.run(subject.run("Go", session="s")).output == "Four."
            result = anyio.run(lambda: subject.run("Go", session="s"), backend="trio")
        assert result.output == "Five."
        assert_history(result.messages)

    def test_stream_sync_is_acknowledged_all_the_same(self) -> None:
        log: list[str] = []

        @tool
        async def write() -> str:
            """Write."""
            log.append("written")
            return "done"

        subject = Agent(ScriptedModel(call("write"), "Done."), tools=[write])
        types: list[str] = []
        with no_leaks(), subject.stream_sync("Go") as events:
            for event in events:
                types.append(event.type)
                if event.type == "tool_started":
                    assert log == []
        assert (types[0], types[-1], log) == ("run_started", "run_completed", ["written"])

    def test_leaving_stream_sync_early_stops_the_run(self) -> None:
        subject = agent("A long answer.", "Fine.")
        with no_leaks():
            with subject.stream_sync("Go", session="s") as events:
                for event in events:
                    if event.type == "text_delta":
                        break
            assert subject.active("s") is None
            assert subject.run_sync("Again", session="s").output == "Fine."

    def test_errors_come_out_of_the_sync_ways_as_they_are(self) -> None:
        gone = ConnectionError("gone")
        with pytest.raises(ConnectionError) as caught:
            agent(gone).run_sync("Go")
        assert caught.value is gone
        own = KeyError("mine")
        with pytest.raises(KeyError) as mine, agent("Hello.").stream_sync("Go") as events:
            for _ in events:
                raise own
        assert mine.value is own


@pytest.mark.parametrize("way", ["run_sync", "stream_sync"])
async def test_f008_the_sync_ways_inside_a_loop_say_what_to_do(way: str) -> None:
    subject = agent("Hello.")
    with pytest.raises(RunSyncError, match="await agent.run" if way == "run_sync" else "async with agent.stream"):
        getattr(subject, way)("Go")
    assert (await subject.run("Go")).output == "Hello."


# ---- sessions in memory


async def test_r39_a_second_run_continues_the_history() -> None:
    model = ScriptedModel(call("look"), "One.", "Two.")
    subject = Agent(model, tools=[look])
    first = await subject.run("First", session="s")
    second = await subject.run("Second", session="s")
    kinds = [message.kind for message in model.requests[2].messages]
    assert kinds == ["user", "assistant", "tool", "assistant", "user"]
    assert [message.kind for message in second.new_messages] == ["user", "assistant"]
    assert len(first.messages) == 4
    assert len(second.messages) == 6
    assert first.run_id != second.run_id
    assert first.session_id == second.session_id == "s"


async def test_runs_without_a_session_know_nothing_of_each_other() -> None:
    model = ScriptedModel("One.", "Two.")
    subject = Agent(model)
    results = [await subject.run("First"), await subject.run("Second")]
    assert len(model.requests[1].messages) == 1
    assert results[0].session_id != results[1].session_id


async def test_history_starts_a_session_and_is_refused_by_one_that_has_some() -> None:
    first = await agent("One.").run("First")
    model = ScriptedModel("Two.")
    subject = Agent(model)
    result = await subject.run("Second", session="s", history=first.messages)
    assert [message.text for message in model.requests[0].messages] == ["First", "One.", "Second"]  # type: ignore[union-attr]
    assert len(result.new_messages) == 2
    with pytest.raises(ValueError, match="already has a history of 4 messages"):
        await subject.run("Third", session="s", history=first.messages)
    # It was refused before anything was said.
    model = ScriptedModel("Three.")
    await subject.run("Third", session="s", model=model)
    assert [message.text for message in model.requests[0].messages] == [  # type: ignore[union-attr]
        *("First", "One.", "Second", "Two.", "Third")
    ]


async def test_two_agents_share_a_store() -> None:
    store = InMemoryStore()
    await agent("One.", store=store).run("First", session="s")
    model = ScriptedModel("Two.")
    await Agent(model, store=store).run("Second", session="s")
    assert len(model.requests[0].messages) == 3
    assert store.sessions() == ("s",)
    assert store.delete("s")
    assert not store.delete("s")


async def test_many_sessions_at_once() -> None:
    async def answer(request: Any, _emit: Any) -> str:
        await anyio.lowlevel.checkpoint()
        return request.messages[-1].text.upper()  # type: ignore[no-any-return]

    subject = Agent(FunctionModel(answer))
    outputs: dict[str, str] = {}

    async def one(name: str) -> None:
        outputs[name] = (await subject.run(name, session=name)).output

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(one, f"s{number}")
    assert outputs == {f"s{number}": f"S{number}" for number in range(50)}


async def test_instructions_may_be_a_function_once_per_turn() -> None:
    turns: list[int] = []

    async def instructions(run: Any) -> str:
        turns.append(run.turn)
        return f"Turn {run.turn}."

    model = ScriptedModel(call("look"), "Done.")
    await Agent(model, tools=[look], instructions=instructions).run("Go")
    assert turns == [1, 2]
    assert [request.instructions for request in model.requests] == ["Turn 1.", "Turn 2."]
    wrong: Callable[[Any], Any] = lambda run: 5  # noqa: E731
    with pytest.raises(ConfigError, match="instructions= returned int"):
        await Agent(ScriptedModel("Hello."), instructions=wrong).run("Go")


async def test_options_of_one_run_hold_for_that_run() -> None:
    @tool
    async def extra() -> str:
        """Do more."""
        return "extra"

    subject = agent("One.", instructions="Always.")
    model = ScriptedModel(call("extra"), "Two.")
    await subject.run("Go", model=model, instructions="Now.", tools=[extra])
    assert [spec.name for spec in model.requests[0].tools] == ["look", "extra"]
    assert model.requests[0].instructions == "Now."
    result = await subject.run("Go")
    assert result.output == "One."


# ---- bad input


async def test_a_wrong_model_name_names_the_nearest_right_one() -> None:
    class Provider:
        name = "harbour"

        @hookimpl
        def register_models(self, registry: Any) -> None:
            registry.add("harbour", lambda name: ScriptedModel("Hello.", name=name))

    with pytest.raises(UnknownModelError, match="harbour"):
        Agent("harbor:big", plugins=[Provider()])
    assert (await Agent("harbour:big", plugins=[Provider()]).run("Go")).output == "Hello."


async def test_bad_plugins_are_named_with_place_and_cure() -> None:
    class Misspelt:
        name = "misspelt"

        @hookimpl
        def before_tun(self) -> None: ...

    with pytest.raises(HookSpecError, match=r"before_run|before_turn"):
        agent(plugins=[Misspelt()])

    class Forgotten:
        name = "forgotten"

        def before_run(self) -> None: ...

    with pytest.raises(HookSpecError, match="@hookimpl"):
        agent(plugins=[Forgotten()])
    with pytest.raises((PluginLoadError, ConfigError), match=r"\(\)"):
        agent(plugins=[Misspelt])
    with pytest.raises(PluginLoadError, match="no_such_plugin"):
        agent(plugins=["no_such_plugin"])


async def test_bad_tools_are_refused_when_the_agent_is_made() -> None:
    with pytest.raises(ToolDefinitionError, match="lambda"):
        Agent(ScriptedModel(), tools=[lambda path: path])
    with pytest.raises(ToolDefinitionError, match="5"):
        Agent(ScriptedModel(), tools=[5])  # type: ignore[list-item]

    @tool(name="look")
    async def another() -> str:
        """Look elsewhere."""
        return "nothing"

    with pytest.raises(ToolDefinitionError, match="'look'"):
        Agent(ScriptedModel(), tools=[look, another])
    with pytest.raises(ToolDefinitionError, match="'look'"):
        await agent("Hello.").run("Go", tools=[another])


async def test_a_tool_without_annotations_takes_any_json() -> None:
    seen: list[Any] = []

    @tool
    async def unannotated(path):  # type: ignore[no-untyped-def]
        """Do something."""
        seen.append(path)

    subject = Agent(ScriptedModel(call("unannotated", path=["a", 1]), "Done."), tools=[unannotated])
    assert (await subject.run("Go")).output == "Done."
    assert seen == [["a", 1]]


async def test_deps_are_checked_against_the_tools() -> None:
    @tool
    async def needs_text(ctx: ToolContext[str]) -> str:
        """Use the dependencies."""
        return ctx.deps

    with pytest.raises(ToolDefinitionError, match="int"):
        Agent(ScriptedModel(), tools=[needs_text], deps_type=int)
    assert Agent(ScriptedModel(), tools=[needs_text], deps_type=str)

    @tool
    async def anything(ctx: ToolContext[Any]) -> str:
        """Use whatever there is."""
        return str(ctx.deps)

    assert Agent(ScriptedModel(), tools=[anything], deps_type=int)


async def test_a_result_that_cannot_be_written_as_json_is_a_result_all_the_same() -> None:
    @tool
    async def odd() -> Any:
        """Return something odd."""
        return {"handle": object(), "number": float("inf")}

    async with Agent(ScriptedModel(call("odd"), "Done."), tools=[odd]).stream("Go") as run:
        events = await record(run)
    assert run.result.output == "Done."
    assert events.one(ToolCompleted).result.content
    for event in events:
        json.loads(event.to_json())


@pytest.mark.parametrize("request_", ["", "   \n", [], ["", " "], UserMessage(id="x", parts=())])
async def test_an_empty_request_is_refused_before_anything_starts(request_: Any) -> None:
    subject = agent()
    with pytest.raises(ConfigError, match="empty"):
        await subject.run(request_, session="s")
    with pytest.raises(ConfigError, match="empty"):
        subject.stream(request_)
    assert subject.store.sessions() == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize("request_", [5, None, [5], b"bytes", {"text": "x"}])
async def test_a_request_of_the_wrong_type_is_refused(request_: Any) -> None:
    with pytest.raises((ConfigError, TypeError)) as caught:
        await agent().run(request_)
    assert "request" in str(caught.value)


async def test_a_request_of_a_megabyte_with_media_is_nothing_special() -> None:
    big = "word " * 200_000
    model = ScriptedModel("Read.")
    image = ImagePart(url="https://example.org/ship.png")
    async with Agent(model).stream([big, image]) as run:
        events = await record(run)
    (message,) = model.requests[0].messages
    assert message.text == big  # type: ignore[union-attr]
    assert message.parts[1] == image  # type: ignore[union-attr]
    assert events.one(RunCompleted).result.output == "Read."


async def test_lone_surrogates_and_nul_are_replaced_everywhere() -> None:
    bad = "a\ud83d b\x00c \U0001f6a2"
    good = "a\ufffd b\ufffdc \U0001f6a2"

    @tool
    async def echo(text: str) -> str:
        """Say it back.

        Args:
            text: What.
        """
        return text

    model = ScriptedModel(call("echo", text=bad), bad)
    async with Agent(model, tools=[echo]).stream(bad, session="s") as run:
        events = await record(run)
    assert_history(run.result.messages)
    assert model.requests[0].messages[0].text == good  # type: ignore[union-attr]
    assert events.one(ToolCompleted).result.content == good
    assert run.result.output == good
    for event in events:
        event.to_json().encode()
    for one in (await Agent(model).store.load("s")).records:
        one.to_json().encode()


async def test_unknown_and_impossible_options() -> None:
    with pytest.raises(TypeError, match="unknown sesion; known are"):
        await agent().run("Go", sesion="s")  # type: ignore[call-overload]
    for wrong in ({"tool_concurrency": 0}, {"hook_timeout": 0}, {"grace_seconds": -1}):
        with pytest.raises(ConfigError):
            agent(**wrong)


def test_f118_agents_and_stores_say_why_they_cannot_be_copied() -> None:
    subject = agent()
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="live parts"):
            copying(subject)  # type: ignore[operator]
        with pytest.raises(TypeError, match="InMemoryStore"):
            copying(subject.store)  # type: ignore[operator]


async def test_aclose_stops_runs_and_closes_models() -> None:
    closed: list[bool] = []

    class Model(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(True)

    subject = Agent(Model("Fine."))
    async with subject.stream("Go", session="s") as run:
        await run.__anext__()
        await subject.aclose()
        assert run.state.is_terminal
        assert closed == [True]
    assert (await subject.run("Again", session="s")).output == "Fine."


async def test_a_user_message_is_taken_as_it_is() -> None:
    message = UserMessage(id="mine", parts=(TextPart(text="Go"),))
    result = await agent("Hello.").run(message)
    assert result.messages[0] == message


@pytest.mark.parametrize("model", [None, 3, object()])
def test_what_is_no_model_is_refused_when_the_agent_is_made(model: Any) -> None:
    with pytest.raises(ConfigError, match="is no model"):
        Agent(model)


@pytest.mark.parametrize("session", ["a\ud800", "a\x00b"])
def test_a_session_id_that_no_store_can_keep_is_refused(session: str) -> None:
    agent = Agent(ScriptedModel("Never."))
    with pytest.raises(ConfigError, match="half a surrogate pair"):
        agent.run_sync("Go", session=session)
