"""`agent.resume`: what a session that was cut off anywhere continues with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from trilane import Agent, Allow, ToolContext, hookimpl, tool
from trilane.errors import SessionError
from trilane.events import RunStarted, ToolCompleted, ToolStarted
from trilane.messages import TextPart, ToolCall, UserMessage
from trilane.stores import CallStarted
from trilane.testing import Recorder, ScriptedModel, assert_history, call

from .conftest import PlainStore, contents, cut_off, endless, killed, records, resumed

pytestmark = pytest.mark.anyio


# ---- where there is nothing to do -----------------------------------------------------------------------------------


async def test_a_run_whose_answer_was_stored_and_its_end_was_not_ends_with_it(make_store: Callable[[], Any]) -> None:
    store = make_store()
    await Agent(ScriptedModel("Hello."), store=store).run("Go", session="s")
    store = await killed(store, make_store, keep=2)
    events, run, _ = await resumed(store, [], [])
    assert run.result.output == "Hello."
    assert run.result.new_messages == ()
    assert events.one(RunStarted).request.text == "Go"
    assert len(run.result.messages) == 2


async def refused(store: Any, session: str, why: str) -> None:
    """It cannot be resumed, and nothing comes of trying: no hook is called and no record is written."""
    recorder = Recorder()
    before = (await store.load(session)).records
    agent = Agent(ScriptedModel(), store=store, plugins=[recorder])
    for _ in range(2):
        with pytest.raises(SessionError, match=why):
            await agent.resume(session).__aenter__()
    assert [one for one in recorder.calls if one.phase is not None] == []
    assert (await store.load(session)).records == before
    assert agent.active(session) is None


async def test_a_session_whose_last_run_has_completed_cannot_be_resumed(make_store: Callable[[], Any]) -> None:
    store = make_store()
    why = "session 's' has nothing to resume: its last run has completed, and its answer is stored; read it with"
    agent = Agent(ScriptedModel("Hello.", "Yes."), store=store)
    await agent.run("Go", session="s")
    await refused(store, "s", why)
    assert not await agent.compact("s")
    await refused(store, "s", why)
    await agent.run("Go on", session="s")
    await refused(store, "s", why)


async def test_a_compaction_does_not_make_a_session_that_was_cut_off_a_finished_one(
    make_store: Callable[[], Any],
) -> None:
    store = await cut_off(make_store, ["Hel lo."], [], at="text_delta")
    assert not await Agent(ScriptedModel(), store=store).compact("s")
    _, run, _ = await resumed(store, ["Hello."], [])
    assert run.result.output == "Hello."


async def test_an_empty_session_cannot_be_resumed_and_is_not_made(make_store: Callable[[], Any]) -> None:
    store = make_store()
    await refused(store, "s", "session 's' is empty, there is nothing to resume")
    memory = getattr(store, "inner", store)
    assert await memory.list_sessions() == []


async def test_a_compaction_of_an_empty_session_does_not_make_it(make_store: Callable[[], Any]) -> None:
    store = make_store()
    assert not await Agent(ScriptedModel(), store=store).compact("s")
    memory = getattr(store, "inner", store)
    assert await memory.list_sessions() == []
    assert memory.sessions() == ()


async def test_neither_on_message_nor_before_run_is_called_again(make_store: Callable[[], Any]) -> None:
    called: list[str] = []

    class Counting:
        @hookimpl
        def on_state(self, run: Any) -> None:
            called.append("on_state")

        @hookimpl
        def on_message(self, run: Any, message: Any) -> None:
            called.append("on_message")

        @hookimpl
        def before_run(self, run: Any) -> None:
            called.append("before_run")

    store = await cut_off(make_store, ["Hel lo."], [], at="text_delta")
    _, run, _ = await resumed(store, ["Hello."], [], plugins=[Counting()])
    assert called == ["on_state"]
    assert run.result.output == "Hello."


# ---- cut off while generating ---------------------------------------------------------------------------------------


async def test_an_answer_that_was_cut_off_is_generated_again(make_store: Callable[[], Any]) -> None:
    store = await cut_off(make_store, ["Hel lo."], [], at="text_delta")
    _, run, model = await resumed(store, ["Hello again."], [])
    assert run.result.output == "Hello again."
    assert [message.kind for message in model.requests[0].messages] == ["user"]
    assert [message.kind for message in run.result.messages] == ["user", "assistant"]


async def test_half_an_answer_of_a_closed_run_is_not_in_the_next_request(make_store: Callable[[], Any]) -> None:
    store = make_store()
    async with Agent(ScriptedModel("Half of it."), store=store).stream("Go", session="s") as run:
        async for event in run:
            if event.type == "text_delta":
                break
    assert run.result.messages[-1].interrupted
    _, run, model = await resumed(store, ["Hello."], [])
    assert [message.kind for message in model.requests[0].messages] == ["user"]
    assert run.result.output == "Hello."
    kept = [one.message.text for one in (await store.load("s")).records if one.kind == "message"]
    assert kept[0] == "Go"
    assert kept[1].startswith("Half")  # the raw history has it still


async def test_a_run_that_failed_in_the_model_is_tried_again(make_store: Callable[[], Any]) -> None:
    store = make_store()
    with pytest.raises(OSError, match="no route"):
        await Agent(ScriptedModel(OSError("no route")), store=store).run("Go", session="s")
    _, run, _ = await resumed(store, ["Hello."], [])
    assert run.result.output == "Hello."


# ---- cut off inside a tool ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edit", ["append", "remove"])
async def test_what_on_state_edits_comes_before_the_calls_that_wait_for_results(
    make_store: Callable[[], Any], edit: str
) -> None:
    class Editor:
        name = "editor"

        @hookimpl
        def on_state(self, run: Any) -> None:
            if edit == "append":
                run.history.append(UserMessage(id="note", parts=(TextPart(text="It is raining."),)))
            else:
                del run.history[-1]

    began = anyio.Event()
    work = endless(began, [], effect="read")
    store = await cut_off(make_store, [call("work"), "Never."], [work], until=began)
    _, run, model = await resumed(store, ["Done."], [work], plugins=[Editor()])
    kinds = [message.kind for message in model.requests[0].messages]
    assert kinds == (["user", "user"] if edit == "append" else ["user"]) + ["assistant", "tool"]
    assert run.result.output == "Done."


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_safe_tool_runs_again_with_the_same_key_and_a_higher_attempt(
    make_store: Callable[[], Any], effect: Any
) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, effect=effect)
    store = await cut_off(make_store, [call("work", what="x"), "Never."], [work], until=began)
    events, run, _ = await resumed(store, ["Done."], [work])
    assert seen[0][1] == 1
    assert seen[1] == (seen[0][0], 2)
    assert contents(events) == ["worked"]
    assert [one.attempt for one in await records(store, CallStarted)] == [1, 2]
    assert run.result.output == "Done."


async def test_an_unsafe_tool_is_not_run_again_and_the_model_is_told(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen)
    store = await cut_off(make_store, [call("work"), "Never."], [work], until=began)
    events, _, model = await resumed(store, ["Done."], [work])
    assert len(seen) == 1
    assert events.of(ToolStarted) == []
    told = model.requests[0].messages[-1].results[0]
    assert told.outcome == "interrupted"
    assert told.content.startswith("Tool work was interrupted, effect unknown.")


async def test_a_tool_that_was_unsafe_when_it_ran_is_not_safe_afterwards(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    store = await cut_off(make_store, [call("work"), "Never."], [endless(began, seen)], until=began)
    events, _, _ = await resumed(store, ["Done."], [endless(began, seen, effect="idempotent")])
    assert len(seen) == 1
    assert events.one(ToolCompleted).result.outcome == "interrupted"


async def test_a_tool_that_is_gone_is_said_to_have_been_interrupted(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    store = await cut_off(make_store, [call("work"), "Never."], [endless(began, seen, effect="read")], until=began)
    events, _, _ = await resumed(store, ["Done."], [])
    assert "interrupted, effect unknown" in str(contents(events)[0])


async def test_reconcile_decides_about_an_unsafe_call(make_store: Callable[[], Any]) -> None:
    asked: list[tuple[str, str, int]] = []

    async def look_it_up(ctx: ToolContext, what: str) -> str:
        asked.append((what, ctx.key, ctx.attempt))
        return "it was done"

    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, reconcile=look_it_up)
    store = await cut_off(make_store, [call("work", what="x"), "Never."], [work], until=began)
    events, _, _ = await resumed(store, ["Done."], [work])
    assert asked == [("x", seen[0][0], 2)]
    assert len(seen) == 1
    assert contents(events) == ["it was done"]


async def test_results_that_reached_the_store_are_kept_and_calls_not_started_run(make_store: Callable[[], Any]) -> None:
    began, seen, ran = anyio.Event(), list[tuple[str, int]](), list[str]()

    @tool
    async def first() -> str:
        """First."""
        ran.append("first")
        return "one"

    @tool(parallel=False)
    async def last() -> str:
        """Last."""
        ran.append("last")
        return "three"

    work = endless(began, seen, parallel=False)
    tools = [first, work, last]
    script = [[call("first"), call("work"), call("last")], "Never."]
    store = await cut_off(make_store, script, tools, until=began)
    assert ran == ["first"]
    _, run, _ = await resumed(store, ["Done."], tools)
    # All three were announced before the first of them ran: of the last nobody knows that it had not begun.
    assert ran == ["first"]
    assert [one.outcome for one in run.result.messages[-2].results] == ["ok", "interrupted", "interrupted"]


async def test_a_retry_of_a_tool_is_stored_before_it_runs(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[int]()

    @tool(effect="idempotent", attempts=3)
    async def work(ctx: ToolContext) -> str:
        """Work."""
        seen.append(ctx.attempt)
        if len(seen) == 1:
            raise OSError("once")
        if len(seen) == 2:
            began.set()
            await anyio.sleep_forever()
        return "worked"

    store = await cut_off(make_store, [call("work"), "Never."], [work], until=began)
    await resumed(store, ["Done."], [work])
    assert seen == [1, 2, 3]


async def test_calls_that_had_not_started_are_decided_again(make_store: Callable[[], Any]) -> None:
    decided: list[str] = []

    class Deciding:
        @hookimpl
        def decide_tool(self, run: Any, call: ToolCall) -> Allow:
            decided.append(call.name)
            return Allow()

    @tool
    async def look() -> str:
        """Look."""
        return "a ship"

    store = await cut_off(make_store, [call("look"), "Never."], [look], at="message_completed", plugins=[Deciding()])
    events, _, _ = await resumed(store, ["Done."], [look], plugins=[Deciding()])
    assert decided[-1:] == ["look"]
    assert contents(events) == ["a ship"]
    assert [one.attempt for one in await records(store, CallStarted)] == [1]


async def test_every_prefix_of_what_was_written_can_be_resumed() -> None:
    """As if killed at any write of a run with parallel calls, an approval and a question."""
    effects: list[str] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        effects.append(f"pay {amount}")
        return f"paid {amount}"

    @tool(effect="idempotent")
    async def note(ctx: ToolContext) -> str:
        """Note."""
        return "noted " + await ctx.ask("What?")

    @tool(approval=True)
    async def delete() -> str:
        """Delete."""
        effects.append("delete")
        return "deleted"

    tools = [pay, note, delete]
    calls = [
        call("pay", call_id="p1", amount=1),
        call("note", call_id="n"),
        call("delete", call_id="d"),
        call("pay", call_id="p2", amount=2),
    ]
    store = PlainStore()
    agent = Agent(ScriptedModel(calls, "Done."), tools=tools, store=store)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                run.reply(event.question.id, {"approve": True} if event.question.kind == "approval" else "this")
    sizes = [len(batch) for batch in store.writes]
    assert len(sizes) >= 7
    for writes in range(1, len(sizes)):  # the last one says that the run has completed
        twin = await killed(store, PlainStore, keep=sum(sizes[:writes]))
        before = [one for batch in store.writes[:writes] for one in batch]
        started = {one.call_id for one in before if one.kind == "call_started"}
        finished = {one.result.call_id for one in before if one.kind == "call_finished"}
        effects.clear()
        needs_model = not any(one.kind == "message" and one.message.kind == "assistant" for one in before)
        has_answer = any(one.kind == "message" and getattr(one.message, "text", "") == "Done." for one in before)
        script: list[Any] = [calls, "Done."] if needs_model else [] if has_answer else ["Done."]
        model = ScriptedModel(*script)
        async with Agent(model, tools=tools, store=twin).resume("s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    payload: Any = {"approve": True} if event.question.kind == "approval" else "this"
                    assert run.reply(event.question.id, payload).status == "accepted"
        model.assert_finished()
        assert_history(run.result.messages)
        assert run.result.output == "Done."
        names = {"p1": "pay 1", "d": "delete", "p2": "pay 2"}
        assert sorted(effects) == sorted(text for id, text in names.items() if id not in started)
        told = {one.call_id: one for one in run.result.messages[2].results}
        for id in names:
            assert told[id].outcome == ("interrupted" if id in started - finished else "ok"), (writes, id)
        assert told["n"].content == "noted this"
