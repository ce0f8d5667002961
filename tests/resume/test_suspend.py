"""`RunStream.suspend`: what it leaves in the store, and what is taken up from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from trilane import Agent, tool
from trilane.errors import RunCancelledError
from trilane.events import ReplyRequested
from trilane.stores import CallWithdrawn, QuestionClosed, RunEnded
from trilane.testing import ScriptedModel, Step, call, no_leaks, record

from .conftest import cut_off, delete, endless, records, resumed

pytestmark = pytest.mark.anyio


async def test_suspend_leaves_the_question_open_and_says_how_it_ended(make_store: Callable[[], Any]) -> None:
    store = make_store()
    agent = Agent(ScriptedModel(call("delete", path="a"), "Never."), tools=[delete], store=store)
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    break
            await run.suspend()
            with pytest.raises(RunCancelledError, match="suspended"):
                async for _ in run:
                    pass
    assert run.result.status == "cancelled"
    assert run.result.stop_reason == "suspended"
    assert [one.status for one in await records(store, RunEnded)] == ["suspended"]
    assert await records(store, QuestionClosed) == []
    events, again, _ = await resumed(store, ["Done."], [delete], {"approve": True})
    assert events.one(ReplyRequested).question.id == event.question.id
    assert again.result.output == "Done."
    assert again.result.turns == 2


async def test_a_new_run_is_told_which_calls_of_a_suspended_one_had_begun(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    store = make_store()
    tools = [delete, endless(began, seen, effect="unsafe")]
    agent = Agent(ScriptedModel([call("work"), call("delete", path="a")], "Never."), tools=tools, store=store)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                await began.wait()
                break
        await run.suspend()
    model = ScriptedModel("Done.")
    assert (await Agent(model, tools=tools, store=store).run("What now?", session="s")).output == "Done."
    work, remove = model.requests[0].messages[2].results  # type: ignore[union-attr]
    assert (work.outcome, work.content) == ("interrupted", "interrupted, result did not reach the store")
    assert remove.outcome == "not_started"
    assert remove.content == "Tool delete was not run: its run had ended before it began"


@pytest.mark.parametrize(("effect", "outcome"), [("idempotent", "ok"), ("unsafe", "interrupted")])
async def test_suspend_inside_a_tool_keeps_true_results_only(
    make_store: Callable[[], Any], effect: Any, outcome: str
) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, effect=effect)

    @tool
    async def quick() -> str:
        """Be quick."""
        return "done"

    store = make_store()
    agent = Agent(ScriptedModel([call("quick"), call("work")], "Never."), tools=[work, quick], store=store)
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            async with anyio.create_task_group() as group:

                async def read() -> None:
                    with pytest.raises(RunCancelledError):
                        await record(run)

                group.start_soon(read)
                await began.wait()
                await run.suspend()
    kept = [one.result.content for one in (await store.load("s")).records if one.kind == "call_finished"]
    assert kept == ["done"]
    _, again, _ = await resumed(store, ["Done."], [work, quick])
    assert [one.outcome for one in again.result.messages[2].results] == ["ok", outcome]


async def test_suspend_while_generating_generates_again(make_store: Callable[[], Any]) -> None:
    store = make_store()
    async with Agent(ScriptedModel(Step("Half of it.")), store=store).stream("Go", session="s") as run:
        async for event in run:
            if event.type == "text_delta":
                break
        await run.suspend()
    assert [one.kind for one in (await store.load("s")).records] == ["message", "run_ended"]
    _, again, model = await resumed(store, ["Whole."], [])
    assert [message.kind for message in model.requests[0].messages] == ["user"]
    assert again.result.output == "Whole."


async def test_the_session_goes_on_after_it_was_resumed(make_store: Callable[[], Any]) -> None:
    store = await cut_off(make_store, ["Hel lo."], [], at="text_delta")
    await resumed(store, ["Hello."], [])
    model = ScriptedModel("Bye.")
    result = await Agent(model, store=store).run("And now?", session="s")
    assert [message.kind for message in model.requests[0].messages] == ["user", "assistant", "user"]
    assert result.output == "Bye."


@pytest.mark.parametrize("held", ["message_completed", "tool_started"])
async def test_an_unsafe_call_that_was_announced_and_not_begun_runs_when_resumed(
    make_store: Callable[[], Any], held: str
) -> None:
    ran: list[str] = []

    @tool(effect="unsafe")
    async def send(text: str) -> str:
        """Send.

        Args:
            text: What.
        """
        ran.append(text)
        return "sent"

    store = make_store()
    agent = Agent(ScriptedModel(call("send", text="hello"), "Never."), tools=[send], store=store)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == held:
                break
        await run.suspend()
    assert ran == []
    assert len(await records(store, CallWithdrawn)) == 1
    _, again, model = await resumed(store, ["Done."], [send])
    assert again.result.output == "Done."
    assert ran == ["hello"]
    assert model.requests[0].messages[-1].results[0].content == "sent"
