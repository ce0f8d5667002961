"""`agent.replay`: stored runs again, offline, through today's plugins; the first thing that is not as it was."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, Limits, Tool, ToolContext, tool
from trilane.decisions import Ask, CompactedHistory, RetryModel, Rewrite, SendBack, UseResult
from trilane.errors import ModelError
from trilane.events import ToolStarted
from trilane.messages import ImagePart, TextPart, ToolCall, ToolResult, UserMessage
from trilane.models import ModelRequest
from trilane.replay import Difference
from trilane.testing import FunctionModel, ScriptedModel, Step, call

from .conftest import SCRIPT, all_hooks, break_it, first, look, named, ran, recorded, replay

pytestmark = pytest.mark.anyio


# ---- nothing has changed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugins", [0, 1], ids=["bare", "busy"])
async def test_a_run_is_as_it_was(plugins: int) -> None:
    store = await recorded(SCRIPT, plugins=[all_hooks()] * plugins)
    found = await replay(store, plugins=[all_hooks()] * plugins)
    assert found.difference is None
    (run,) = found.runs
    assert (run.status, run.compared[0], run.count > 10) == ("completed", "hooks", True)


async def test_a_run_that_was_watched_is_as_it_was() -> None:
    store = InMemoryStore()
    agent = Agent(ScriptedModel(*SCRIPT), tools=[look], plugins=[all_hooks()], store=store, replayable=True)
    async with agent.stream("Where?", session="s") as run:
        texts = [event.text async for event in run if event.type == "text_delta"]
    assert "".join(texts) == "A SHIP."
    ran.clear()
    assert (await replay(store, plugins=[all_hooks()], tools=[look])).difference is None
    loud = named("loud", on_delta=lambda self, run, delta, final: delta.replace(text=delta.text.replace("s", "$")))
    found = first(await replay(store, plugins=[all_hooks(), loud], tools=[look], ignore=["hooks"]))
    assert (found.aspect, found.was, found.now) == ("events", {"shown": "A SHIP."}, {"shown": "A $HIP."})


async def test_every_run_of_a_session_with_steering_and_history() -> None:
    store = InMemoryStore()
    model = ScriptedModel("One.", *SCRIPT, "Two.", "Three.", "Four.")
    agent = Agent(model, tools=[look], plugins=[all_hooks()], store=store, replayable=True)
    given = (UserMessage(id="u0", parts=(TextPart(text="Long ago"), ImagePart(data="aGk="))),)
    await agent.run("First", session="s", history=given)
    async with agent.stream("Second", session="s") as run:
        async for event in run:
            if isinstance(event, ToolStarted):
                run.steer("faster")
                run.follow_up("and then?")
    await agent.run("Third", session="s")
    ran.clear()
    found = await replay(store, plugins=[all_hooks()], tools=[look])
    assert found.difference is None
    assert [one.status for one in found.runs] == ["completed"] * 3
    only = await replay(store, plugins=[all_hooks()], tools=[look], run_id=found.runs[1].run_id[:6])
    assert [one.run_id for one in only.runs] == [found.runs[1].run_id]


async def test_errors_retries_answers_sent_back_and_compactions() -> None:
    def plugin() -> Any:
        tries: list[str] = []

        def send_back(self: Any, run: Any, message: Any, output: str) -> Any:
            return SendBack(feedback="longer") if output == "No." else None

        def compact(self: Any, run: Any) -> Any:
            tries.append("compact")
            if len(tries) == 2:
                raise ValueError("it is not to be called again")
            return CompactedHistory(messages=tuple(run.history)[:1], reason="short") if len(tries) == 3 else None

        return named(
            "again",
            on_model_error=lambda self, run, request, error: RetryModel(after_seconds=0),
            on_answer=send_back,
            on_compact=compact,
        )

    script = (Step("half", error=ModelError("busy", model="m", retryable=True)), *SCRIPT[:1], "No.", "", "Yes, a ship.")
    store = await recorded(script, plugins=[plugin()])
    kinds = [one.kind for one in (await store.load("s")).records]
    assert {"view_replaced", "message_hidden"} <= set(kinds)
    found = await replay(store, plugins=[plugin()])
    assert found.difference is None
    assert found.runs[0].status == "completed"
    bare = InMemoryStore()
    bare.append_now("s", [one for one in (await store.load("s")).records if one.kind != "run_tape"], expected_version=0)
    calm = named("calm", on_compact=lambda self, run: None, on_answer=lambda self, run, message, output: None)
    assert first(await replay(bare, plugins=[calm])).aspect == "messages"


async def test_models_that_plugins_call_answer_again() -> None:
    def plugin(name: str) -> Any:
        async def before_turn(self: Any, run: Any, turn: int) -> None:
            request = ModelRequest(messages=(UserMessage(id="q", parts=(TextPart(text="What?"),)),))
            try:
                answer = await run.call_model(request, model=FunctionModel(ask) if turn == 2 else None)
            except ModelError as error:
                run.stash["aside"] = str(error)
            else:
                run.stash["aside"] = "".join(part.text for part in answer.parts)

        async def on_model_request(self: Any, run: Any, request: Any) -> Any:
            return request.with_context(run.stash["aside"])

        return named(name, before_turn=before_turn, on_model_request=on_model_request)

    def ask(request: ModelRequest, emit: Any) -> str:
        ran.append("another model")
        raise ModelError("it is asleep", model="another")

    async def think(context: ToolContext[Any]) -> str:
        request = ModelRequest(messages=(UserMessage(id="q", parts=(TextPart(text="And?"),)),))
        answer = await context.call_model(request)
        return str(answer.parts)

    tools = [Tool.from_function(think, effect="read")]
    script = ["An aside.", call("think"), "For the tool.", "Done."]
    store = await recorded(script, tools=tools, plugins=[plugin("curious")])
    found = await replay(store, tools=tools, plugins=[plugin("curious")])
    assert found.difference is None
    different = first(await replay(store, tools=tools, plugins=[plugin("new")], ignore=["hooks"]))
    assert different.was == {"context": ["An aside."]}
    assert different.now == {"context": ["a replay asks no model, and the stored run has no answer to this"]}


async def test_a_failed_run_is_as_it_was() -> None:
    store = await recorded([call("look", place="sea"), ModelError("no more", model="m")])
    found = await replay(store)
    assert (found.difference, found.runs[0].status) == (None, "failed")


async def test_a_tool_that_fails_its_run_fails_it_again() -> None:
    strict = Tool.from_function(break_it, on_error="raise")
    store = await recorded([call("break_it")], tools=[strict])
    found = await replay(store, tools=[strict])
    assert (found.difference, found.runs[0].status) == (None, "failed")


async def test_a_limit_is_reached_again() -> None:
    store = await recorded([call("look", place="sea")] * 3, limits=Limits(turns=2))
    found = await replay(store)
    assert (found.difference, found.runs[0].status) == (None, "failed")


async def test_replies_come_again_without_anybody_to_ask() -> None:
    asking = Tool.from_function(look, approval=True)
    outside = Tool.external(name="place", parameters={"type": "object"})
    replies = {"approval": {"approve": True, "arguments": {"place": "bay"}}, "external_tool": "here"}

    async def answer(question: Any) -> Any:
        return replies[question.kind]

    async def ask(context: ToolContext[Any]) -> str:
        ran.append("asked")
        return await context.ask("Which?")

    replies["question"] = "that one"
    script = [[call("look", place="sea"), call("place"), call("ask")], "Fine."]
    tools = [asking, outside, Tool.from_function(ask)]
    store = await recorded(script, tools=tools, answer=answer)
    assert (await replay(store, tools=tools)).difference is None


async def test_nobody_could_answer() -> None:
    asking = Tool.from_function(look, approval=True)
    store = await recorded([call("look", place="sea"), "Fine."], tools=[asking])
    assert (await replay(store, tools=[asking])).difference is None


async def test_the_answer_function_failed() -> None:
    async def answer(question: Any) -> Any:
        raise RuntimeError("the window is gone")

    asking = Tool.from_function(look, approval=True)
    outside = Tool.external(name="place", description="Name a place.", parameters={"type": "object"})
    script = [[call("look", place="sea"), call("place")], "Fine."]
    store = await recorded(script, tools=[asking, outside], answer=answer)
    assert (await replay(store, tools=[asking, outside])).difference is None


async def test_parallel_calls_may_end_in_any_order() -> None:
    done = {name: anyio.Event() for name in "ab"}

    async def slow(name: str) -> str:
        if name == "a":
            await done["b"].wait()
        done[name].set()
        return name

    recorder = named("w", before_tool=lambda self, run, call: None, after_tool=lambda self, run, call, result: None)
    tools = [Tool.from_function(slow, effect="read")]
    store = await recorded([[call("slow", name="a"), call("slow", name="b")], "Fine."], tools=tools, plugins=[recorder])
    assert (await replay(store, tools=tools, plugins=[recorder])).difference is None


# ---- something has changed -------------------------------------------------------------------------------------------


async def test_a_plugin_that_alters_arguments_is_the_first_difference_by_name() -> None:
    def plugin(place: str) -> Any:
        def decide(self: Any, run: Any, call: ToolCall) -> Any:
            return Rewrite(arguments={"place": place})

        return named("cartographer", decide_tool=decide)

    store = await recorded(SCRIPT, plugins=[plugin("lake")])
    assert (await replay(store, plugins=[plugin("lake")])).difference is None
    assert first(await replay(store, plugins=[plugin("pond")])) == Difference(
        aspect="arguments",
        where="turn 1, tool look",
        was={"arguments": {"place": "lake"}},
        now={"arguments": {"place": "pond"}},
        plugins=("cartographer",),
    )


async def test_a_plugin_that_is_new_alters_arguments() -> None:
    store = await recorded(SCRIPT)
    meddler = named("meddler", decide_tool=lambda self, run, call: Rewrite(arguments={"place": "pond"}))
    found = first(await replay(store, plugins=[meddler]))
    assert (found.aspect, found.where, found.was, found.plugins) == ("hooks", "turn 1", None, ("meddler",))
    assert found.now == {"hook": "decide_tool", "plugin": "meddler"}
    found = first(await replay(store, plugins=[meddler], ignore=["hooks"]))
    assert (found.aspect, found.plugins) == ("arguments", ("meddler",))
    assert (found.was, found.now) == ({"arguments": {"place": "sea"}}, {"arguments": {"place": "pond"}})


async def test_a_plugin_that_is_gone() -> None:
    watcher = named("watcher", before_turn=lambda self, run, turn: None)
    found = first(await replay(await recorded(SCRIPT, plugins=[watcher])))
    assert (found.aspect, found.was, found.now) == ("hooks", {"hook": "before_turn", "plugin": "watcher"}, None)


async def test_a_plugin_that_compacts_is_gone() -> None:
    found = first(await replay(await recorded(SCRIPT, plugins=[named("short", on_compact=lambda self, run: None)])))
    assert (found.aspect, found.was, found.plugins) == (
        "events",
        {"event": "CompactionStarted", "plugin": "short"},
        ("short",),
    )


async def test_the_order_of_hooks() -> None:
    one, two = (named(name, before_turn=lambda self, run, turn: None) for name in ("one", "two"))
    found = first(await replay(await recorded(SCRIPT, plugins=[one, two]), plugins=[two, one]))
    assert (found.aspect, set(found.plugins)) == ("hooks", {"one", "two"}) or found.plugins in (("one",), ("two",))
    assert found.where == "before the first answer"


async def test_a_request() -> None:
    store = await recorded(SCRIPT)
    adding = named("adding", on_model_request=lambda self, run, request: request.with_context("Hurry."))
    found = first(await replay(store, plugins=[adding], ignore=["hooks"]))
    assert (found.aspect, found.where, found.plugins) == ("requests", "the request of turn 1", ("adding",))
    assert (found.was, found.now) == ({"context": []}, {"context": ["Hurry."]})
    found = first(await replay(store, instructions="Be brief."))
    assert (found.aspect, found.was, found.now) == ("requests", {"instructions": ""}, {"instructions": "Be brief."})


async def test_messages_of_a_request() -> None:
    trimming = named(
        "trimming", on_model_request=lambda self, run, request: request.replace(messages=request.messages[-1:])
    )
    store = await recorded(SCRIPT)
    found = first(await replay(store, plugins=[trimming], ignore=["hooks"]))
    assert (found.aspect, found.where) == ("requests", "the request of turn 2")
    assert found.now == {"messages": {"first": 0, "last": 1, "of": 3, "instead": []}}


async def test_a_result_and_the_message_that_is_kept() -> None:
    store = await recorded(SCRIPT)
    cutting = named("cutting", after_tool=lambda self, run, call, result: result.replace(content="…"))
    found = first(await replay(store, plugins=[cutting], ignore=["hooks"]))
    assert (found.aspect, found.where, found.plugins) == ("results", "turn 1, tool look", ("cutting",))
    assert (found.was, found.now) == ({"result": {"content": "a ship at sea"}}, {"result": {"content": "…"}})
    rude = named("rude", after_model=lambda self, run, response: response.replace(extra="rude"))
    found = first(await replay(store, plugins=[rude], ignore=["hooks"]))
    assert (found.aspect, found.plugins) == ("messages", ("rude",))


async def test_a_tool_that_is_gone_and_one_whose_arguments_are_others() -> None:
    @tool(effect="read")
    def look(where: str) -> str:
        return where

    store = await recorded(SCRIPT)
    found = first(await replay(store, tools=[break_it]))
    assert found.aspect == "requests"  # it is not offered any more
    for tools in ([break_it], [look]):
        found = first(await replay(store, tools=tools, ignore=["requests"]))
        assert (found.aspect, found.where) == ("arguments", "turn 1, tool look")
        assert isinstance(found.now, dict), "it has an error as its result at once"


async def test_a_call_that_is_answered_without_its_tool() -> None:
    store = await recorded(SCRIPT)
    caching = named(
        "caching", decide_tool=lambda self, run, call: UseResult(result=ToolResult(call_id=call.id, content="cached"))
    )
    found = first(await replay(store, plugins=[caching], ignore=["hooks"]))
    assert (found.aspect, found.plugins) == ("arguments", ("caching",))
    assert found.now == {"tool": "look", "result": {"call_id": "c1", "content": "cached"}}


async def test_a_question_that_is_new() -> None:
    store = await recorded(SCRIPT)
    asking = named("asking", decide_tool=lambda self, run, call: Ask(prompt="Really?"))
    found = first(await replay(store, plugins=[asking], ignore=["hooks", "arguments"]))
    assert (found.aspect, found.where) == ("results", "turn 1, tool look")


async def test_a_plugin_that_fails_today() -> None:
    def fail(self: Any, run: Any, turn: int) -> None:
        raise ValueError("no")

    quiet = named("p", before_turn=lambda self, run, turn: None)
    store = await recorded(SCRIPT, plugins=[quiet])
    found = first(await replay(store, plugins=[named("p", before_turn=fail)]))
    assert (found.aspect, found.plugins) == ("events", ("p",))
    assert found.where == "before the first answer"
