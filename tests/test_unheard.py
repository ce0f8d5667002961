"""What was said to a run that ends before it could hear it: the next run on the session does, or it was refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, ToolContext, hookimpl, tool
from trilane.decisions import CompactedHistory
from trilane.errors import AgentProtocolError
from trilane.events import UserMessageAdded
from trilane.messages import TextPart, UserMessage
from trilane.stores import InMemoryStore, undo_compaction
from trilane.testing import EventRecorder, ScriptedModel, Step, assert_history, call, record

from .resume.conftest import PlainStore

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[InMemoryStore, PlainStore])
def make_store(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return request.param  # type: ignore[no-any-return]


@tool(effect="read")
async def ask(ctx: ToolContext[Any]) -> str:
    """Ask."""
    return await ctx.ask("Which?")


def said(messages: Any) -> list[str]:
    return [f"{one.origin}: {one.text}" for one in messages if one.kind == "user"]


async def kinds(store: Any) -> list[str]:
    return [one.kind for one in (await store.load("s")).records]


async def end_while_talking(store: Any, *, how: str, queues: bool = False, **options: Any) -> Any:
    """A run on session `s` to which two things are said, and which then fails, is stopped, closed, or put aside."""
    steps: list[Any] = [call("ask")] if how == "suspend" else [Step("Half of it.", error=ConnectionError("gone"))]
    at = "reply_requested" if how == "suspend" else "text_delta"
    done = False
    async with Agent(ScriptedModel(*steps), tools=[ask], store=store, **options).stream("Go", session="s") as run:
        if queues:
            assert run.queues.input.empty
        try:
            async for event in run:
                if event.type == at and not done:
                    done = True
                    run.follow_up("And then?")
                    run.steer("Faster!")
                    if how == "stop":
                        run.stop("enough")
                    elif how == "close":
                        break
                    elif how == "suspend":
                        await run.suspend()
                        break
        except Exception:
            assert how in ("fail", "stop")
    for say in (run.steer, run.follow_up):
        with pytest.raises(AgentProtocolError, match="the run has ended"):
            say("Hello?")
    return run


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("how", ["fail", "stop", "close", "suspend"])
async def test_the_next_run_hears_it_before_its_request(make_store: Callable[[], Any], how: str, queues: bool) -> None:
    store = make_store()
    await end_while_talking(store, how=how, queues=queues)
    model = ScriptedModel("Hello.", "Hello again.")
    events = EventRecorder()
    async with Agent(model, tools=[ask], store=store).stream("Go on", session="s") as run:
        async for event in run:
            events.events.append(event)
    events.check()
    assert said(model.requests[0].messages) == [
        "request: Go",
        "steering: Faster!",
        "follow_up: And then?",
        "request: Go on",
    ]
    assert [event.origin for event in events.of(UserMessageAdded)] == ["steering", "follow_up", "request"]
    assert said(run.result.new_messages) == ["steering: Faster!", "follow_up: And then?", "request: Go on"]
    assert_history(run.result.messages)
    result = await Agent(model, store=store).run("More", session="s")
    assert said(result.messages)[1:] == ["steering: Faster!", "follow_up: And then?", "request: Go on", "request: More"]


@pytest.mark.parametrize("how", ["fail", "stop", "close", "suspend"])
async def test_the_resumed_run_hears_it_as_the_first_would_have(make_store: Callable[[], Any], how: str) -> None:
    store = make_store()
    await end_while_talking(store, how=how)
    model = ScriptedModel("Hello.", "Then that.")
    async with Agent(model, tools=[ask], store=store).resume("s") as run:
        async for event in run:
            if event.type == "reply_requested":  # the question is still open, and what was said does not close it
                run.reply(event.question.id, "this one")
    assert said(model.requests[0].messages) == ["request: Go", "steering: Faster!"]
    assert said(run.result.messages) == ["request: Go", "steering: Faster!", "follow_up: And then?"]
    assert run.result.output == "Then that."
    assert_history(run.result.messages)
    model.assert_finished()
    again = await Agent(ScriptedModel("Yes."), store=store).run("More", session="s")
    assert said(again.messages)[1:] == ["steering: Faster!", "follow_up: And then?", "request: More"]


async def test_a_resumed_run_that_ends_before_it_hears_it_leaves_it_to_the_next(make_store: Callable[[], Any]) -> None:
    store = make_store()
    await end_while_talking(store, how="suspend")
    for text in ("Louder!", "Now!"):
        async with Agent(ScriptedModel(), tools=[ask], store=store).resume("s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    run.steer(text)
                    await run.suspend()
                    break
    result = await Agent(ScriptedModel("Hello."), store=store).run("Go on", session="s")
    assert sorted(said(result.messages)[1:-1]) == sorted(
        ["steering: Faster!", "steering: Louder!", "steering: Now!", "follow_up: And then?"]
    )


async def test_on_message_sees_what_an_earlier_run_did_not_hear(make_store: Callable[[], Any]) -> None:
    class Hiding:
        @hookimpl
        def on_message(self, message: UserMessage) -> UserMessage:
            return UserMessage(id=f"another-{message.text}", parts=(TextPart(text="***"),), origin=message.origin)

    store = make_store()
    await end_while_talking(store, how="fail")
    agent = Agent(ScriptedModel("Hello.", "Hello."), plugins=[Hiding()], store=store)
    for _ in range(2):
        result = await agent.run("Go on", session="s")
    assert said(result.messages) == ["request: Go", "steering: ***", "follow_up: ***", "request: ***", "request: ***"]


async def test_what_a_hook_fails_at_is_kept_as_it_was_said_and_does_not_come_back(
    make_store: Callable[[], Any],
) -> None:
    class Refusing:
        @hookimpl
        def on_message(self, message: UserMessage) -> None:
            if message.origin == "steering":
                raise ValueError("no")

    store = make_store()
    model = ScriptedModel(call("ask"), "Hello.")
    agent = Agent(model, plugins=[Refusing()], tools=[ask], store=store)
    async with agent.stream("Go", session="s") as run:
        with pytest.raises(ValueError, match="no"):
            async for event in run:
                if event.type == "turn_started":
                    run.steer("Faster!")
    assert said(run.result.messages) == ["request: Go", "steering: Faster!"]
    assert "message_waiting" not in await kinds(store)
    result = await Agent(ScriptedModel("Hello."), plugins=[Refusing()], store=store).run("Go on", session="s")
    assert said(result.messages) == ["request: Go", "steering: Faster!", "request: Go on"]


class Shortening:
    @hookimpl
    def on_compact(self, requested: bool) -> CompactedHistory | None:
        summary = UserMessage(id="summary", parts=(TextPart(text="In short"),))
        return CompactedHistory(messages=(summary,)) if requested else None


async def test_nothing_can_be_said_to_a_compaction(make_store: Callable[[], Any]) -> None:
    store = make_store()
    agent = Agent(ScriptedModel("Hello.", "Yes."), plugins=[Shortening()], store=store)
    await agent.run("Go", session="s")
    async with agent.stream_compaction("s") as run:
        async for _ in run:
            for say in (run.steer, run.follow_up):
                with pytest.raises(AgentProtocolError, match="a compaction hears nothing; say it to the next run"):
                    say("Hello?")
    assert run.result.status == "completed"


async def test_a_compaction_and_taking_it_back_keep_what_waits(make_store: Callable[[], Any]) -> None:
    store = make_store()
    await end_while_talking(store, how="fail")
    agent = Agent(ScriptedModel("Hello."), plugins=[Shortening()], store=store)
    assert await agent.compact("s")
    assert (await kinds(store)).count("message_waiting") == 4
    assert await undo_compaction(store, "s")
    assert await agent.compact("s")
    result = await agent.run("Go on", session="s")
    assert said(result.messages) == ["request: In short", "steering: Faster!", "follow_up: And then?", "request: Go on"]


@pytest.mark.parametrize("lane", [False, True])
async def test_what_is_said_in_the_step_that_ends_a_run_is_heard_or_refused(
    lane: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread says something when the run has looked whether more was said, and has not ended yet."""
    from trilane import _answering

    looked = _answering.hears_more
    outcome: list[str] = []

    def look_and_let_others_speak(core: Any) -> bool:
        more = looked(core)

        def speak() -> None:
            try:
                if lane:
                    run.queues.input.put_nowait(UserMessage(id="x", parts=(TextPart(text="Late"),), origin="follow_up"))
                else:
                    run.follow_up("Late")
                outcome.append("accepted")
            except AgentProtocolError as error:
                outcome.append(str(error))

        if not more:
            thread = threading.Thread(target=speak)
            thread.start()
            thread.join()
        return more

    monkeypatch.setattr(_answering, "hears_more", look_and_let_others_speak)
    async with Agent(ScriptedModel("Hello.")).stream("Go") as run:
        if lane:
            assert run.queues.input.empty
        await record(run)
        if lane:
            assert run.queues.input.empty
    assert outcome == ["the run has ended; start another one on the session with agent.run(...)"]
    assert said(run.result.messages) == ["request: Go"]


async def test_threads_that_talk_until_they_are_refused_lose_nothing() -> None:
    accepted: list[str] = []

    async with Agent(ScriptedModel(*["Hello."] * 60)).stream("Go") as run:

        def talk(who: int) -> None:
            for number in range(25):
                text = f"{who}-{number}"
                try:
                    (run.steer if number % 2 else run.follow_up)(text)
                except AgentProtocolError:
                    return
                accepted.append(text)

        threads = [threading.Thread(target=talk, args=(who,)) for who in range(2)]
        async for event in run:
            if event.type == "run_started":
                for thread in threads:
                    thread.start()
        for thread in threads:
            thread.join()
    heard = [one.text for one in run.result.messages if one.kind == "user"][1:]
    assert sorted(heard) == sorted(accepted)
