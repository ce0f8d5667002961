"""`agent.resume` where a reply was waited for, or had been stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from trilane import Agent, Approval, Ask, ImagePart, Tool, ToolContext, ToolResult, hookimpl, tool
from trilane.events import ReplyRequested, ToolCompleted
from trilane.messages import ToolCall
from trilane.stores import QuestionClosed
from trilane.testing import ScriptedModel, call

from .conftest import add, asking, contents, cut_off, delete, endless, killed, resumed

pytestmark = pytest.mark.anyio


async def test_an_approval_is_asked_again_under_its_id(make_store: Callable[[], Any]) -> None:
    store = await cut_off(make_store, [call("delete", path="a"), "Never."], [delete], at="reply_requested")
    asked = [one.question.id for one in (await store.load("s")).records if one.kind == "question"]
    events, _, _ = await resumed(store, ["Done."], [delete], {"approve": True})
    assert [event.question.id for event in events.of(ReplyRequested)] == asked
    assert contents(events) == ["deleted a"]


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ({"approve": True}, "deleted a"),
        ({"approve": True, "arguments": {"path": "b"}}, "deleted b"),
        ({"approve": False, "reason": "too dear"}, "Tool delete was denied: too dear"),
    ],
)
async def test_a_stored_approval_is_taken(make_store: Callable[[], Any], reply: Any, content: str) -> None:
    store = await cut_off(make_store, [call("delete", path="a"), "Never."], [delete], at="reply_requested")
    question = next(one for one in (await store.load("s")).records if one.kind == "question").question.id
    await add(store, QuestionClosed(run_id="r", question_id=question, status="accepted", payload=reply))
    events, _, _ = await resumed(store, ["Done."], [delete])
    assert events.of(ReplyRequested) == []
    assert contents(events) == [content]


async def test_an_approved_call_that_was_cut_off_is_not_asked_about_again(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, effect="idempotent", approval=True)
    store = await cut_off(make_store, [call("work"), "Never."], [work], until=began, replies=[{"approve": True}])
    events, _, _ = await resumed(store, ["Done."], [work])
    assert events.of(ReplyRequested) == []
    assert [attempt for _, attempt in seen] == [1, 2]


class Yes(Approval):
    colour: str = ""


async def test_a_stored_reply_of_a_form_of_its_own_is_taken(make_store: Callable[[], Any]) -> None:
    class Asking:
        @hookimpl
        def decide_tool(self, run: Any, call: ToolCall) -> Ask:
            return Ask(prompt="May it?", schema=Yes)

    @tool
    async def look() -> str:
        """Look."""
        return "a ship"

    store = await cut_off(make_store, [call("look"), "Never."], [look], at="reply_requested", plugins=[Asking()])
    question = next(one for one in (await store.load("s")).records if one.kind == "question").question.id
    payload = {"approve": True, "colour": "red"}
    await add(store, QuestionClosed(run_id="r", question_id=question, status="accepted", payload=payload))
    events, _, _ = await resumed(store, ["Done."], [look], plugins=[Asking()])
    assert contents(events) == ["a ship"]


async def test_questions_of_a_tool_are_found_by_their_ordinal(make_store: Callable[[], Any]) -> None:
    """The first ran out of time, the second was answered: what was said to the second is no answer to the first."""
    began = anyio.Event()
    interview = asking(began, effect="idempotent")
    store = make_store()
    agent = Agent(ScriptedModel(call("interview"), "Never."), tools=[interview], store=store)
    async with agent.stream("Go", session="s") as run:
        async with anyio.create_task_group() as group:

            async def read() -> None:
                async for event in run:
                    if event.type == "reply_requested" and event.question.prompt == "Second?":
                        assert run.reply(event.question.id, 2).status == "accepted"

            group.start_soon(read)
            await began.wait()
            twin = await killed(store, make_store)
            group.cancel_scope.cancel()
    assert [one.ordinal for one in (await twin.load("s")).records if one.kind == "question"] == [1, 2]
    events, _, _ = await resumed(twin, ["Done."], [interview], "one", "three")
    assert [event.question.prompt for event in events.of(ReplyRequested)] == ["First?", "Third?"]
    assert contents(events) == ["one, 2, three"]


async def test_a_question_of_a_tool_is_asked_again_under_its_id(make_store: Callable[[], Any]) -> None:
    @tool(effect="read")
    async def name(ctx: ToolContext) -> str:
        """Ask."""
        return "called " + await ctx.ask("What is its name?")

    store = await cut_off(make_store, [call("name"), "Never."], [name], at="reply_requested")
    asked = [one.question.id for one in (await store.load("s")).records if one.kind == "question"]
    events, _, _ = await resumed(store, ["Done."], [name], "Moby")
    assert [event.question.id for event in events.of(ReplyRequested)] == asked
    assert contents(events) == ["called Moby"]


async def test_a_question_inside_an_unsafe_tool_does_not_survive(make_store: Callable[[], Any]) -> None:
    @tool
    async def name(ctx: ToolContext) -> str:
        """Ask."""
        return "called " + await ctx.ask("What is its name?")

    store = await cut_off(make_store, [call("name"), "Never."], [name], at="reply_requested")
    events, _, _ = await resumed(store, ["Done."], [name])
    assert events.of(ReplyRequested) == []
    assert events.one(ToolCompleted).result.outcome == "interrupted"


async def test_a_stored_reply_that_does_not_fit_any_more_is_asked_for_again(make_store: Callable[[], Any]) -> None:
    def counting(schema: Any) -> Any:
        @tool(effect="read")
        async def count(ctx: ToolContext) -> str:
            """Ask."""
            return f"{await ctx.ask('How many?', schema)}"

        return count

    store = await cut_off(make_store, [call("count"), "Never."], [counting(str)], at="reply_requested")
    question = next(one for one in (await store.load("s")).records if one.kind == "question").question.id
    await add(store, QuestionClosed(run_id="r", question_id=question, status="accepted", payload="a few"))
    events, _, _ = await resumed(store, ["Done."], [counting(int)], 3)
    assert contents(events) == ["3"]


async def test_a_call_run_by_the_client_is_asked_for_again_under_its_id(make_store: Callable[[], Any]) -> None:
    locate = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})
    store = await cut_off(make_store, [call("locate", call_id="c1"), "Never."], [locate], at="reply_requested")
    events, _, _ = await resumed(store, ["Done."], [locate], "in the north")
    assert events.one(ReplyRequested).question.id == "c1"
    assert contents(events) == ["in the north"]


async def test_a_stored_result_of_the_client_is_taken(make_store: Callable[[], Any]) -> None:
    locate = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})
    store = await cut_off(make_store, [call("locate", call_id="c1"), "Never."], [locate], at="reply_requested")
    await add(store, QuestionClosed(run_id="r", question_id="c1", status="accepted", payload={"lat": 1}))
    events, _, _ = await resumed(store, ["Done."], [locate])
    assert contents(events) == ['{"lat": 1}']


async def test_a_stored_result_of_the_client_is_what_it_was(make_store: Callable[[], Any]) -> None:
    """A whole result, put on the input lane; the process ended between that and the next message."""
    locate = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})
    store = await cut_off(make_store, [call("locate", call_id="c1"), "Never."], [locate], at="reply_requested")
    given = ToolResult(call_id="c1", content=("no signal", ImagePart(data="aGk=")), outcome="error", data=[1])
    payload = json.loads(given.replace(call_id="").to_json())
    await add(store, QuestionClosed(run_id="r", question_id="c1", status="accepted", payload=payload, is_result=True))
    events, _, _ = await resumed(store, ["Done."], [locate])
    assert events.one(ToolCompleted).result == given


async def test_only_whole_results_are_stored_as_such(make_store: Callable[[], Any]) -> None:
    locate = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})
    given = ToolResult(call_id="c1", content="no signal", outcome="error", data=[1])
    for reply, is_result in ((given, True), (json.loads(given.to_json()), False), ("north", False)):
        store = make_store()
        subject = Agent(ScriptedModel(call("locate", call_id="c1"), "Done."), tools=[locate], store=store)
        async with subject.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    run.reply("c1", reply)
        (closed,) = [one for one in (await store.load("s")).records if one.kind == "question_closed"]
        assert closed.is_result is is_result
        assert closed.reply == reply
