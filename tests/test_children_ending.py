"""Child runs and what ends, waits for, or reports about them: as with one run, wherever in the tree it happens."""

from __future__ import annotations

import logging
import sys
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from trilane import Agent, InMemoryStore, Limits, ToolContext, hookimpl, tool
from trilane.errors import PluginError, RunCancelledError, RunLimitError, ToolError
from trilane.events import ToolCompleted
from trilane.testing import ScriptedModel, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


@tool(effect="read")
async def ask(ctx: ToolContext) -> str:
    """Ask."""
    return await ctx.ask("Which ship?")


def nested(depth: int, *script: Any, limits: Limits | None = None, **options: Any) -> Agent[Any, Any]:
    """An agent that delegates, `depth` times over, to one that plays `script` and may `ask`."""
    options = {"tools": [ask], **options}
    agent = Agent(ScriptedModel(*script), name="leaf", **options)
    for level in range(depth):
        delegate = agent.as_tool(name="delegate", description="Delegates.")
        store = options.get("store")
        outer = {"limits": limits} if level == depth - 1 else {}
        agent = Agent(
            ScriptedModel(call("delegate", request="Go"), f"Done {level}."), tools=[delegate], store=store, **outer
        )
    return agent


async def until_asked(run: Any) -> Any:
    async for event in run:
        inner = event.event if event.type == "child_event" else event
        if inner.type == "reply_requested":
            return inner.question
    raise AssertionError("nothing was asked")


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_waiting_without_reading_closes_what_children_ask(depth: int) -> None:
    agent = nested(depth, call("ask"), "Nobody said.")
    async with no_leaks():
        async with agent.stream("Go", session="root") as run:
            question = await until_asked(run)
            assert run.questions == agent.questions("root") == (question,)
            with anyio.fail_after(10):
                result = await run.wait()
    assert result.status == "completed"
    assert run.questions == agent.questions("root") == ()


async def test_an_answer_function_still_answers_a_child_while_nobody_reads() -> None:
    asked, go = anyio.Event(), anyio.Event()

    async def answer(_question: Any) -> str:
        asked.set()
        await go.wait()
        return "Moby"

    leaf = Agent(ScriptedModel(call("ask"), "Said."), tools=[ask], answer=answer)
    agent = Agent(
        ScriptedModel(call("delegate", request="Go"), "Done."), tools=[leaf.as_tool(name="delegate", description="It.")]
    )
    async with agent.stream("Go") as run:
        await until_asked(run)
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                with anyio.fail_after(10):
                    await run.wait()

            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            assert len(run.questions) == 1
            go.set()
    assert asked.is_set()
    assert run.result.output == "Done."


@pytest.mark.parametrize("depth", [1, 2])
async def test_suspending_settles_nothing_of_children(depth: int) -> None:
    store = InMemoryStore()
    agent = nested(depth, call("ask"), "Never.", store=store)
    async with no_leaks():
        async with agent.stream("Go", session="root") as run:
            question = await until_asked(run)
            await run.suspend()
            with pytest.raises(RunCancelledError, match="suspended"):
                async for _ in run:
                    pass
    assert len(store.sessions()) == depth + 1
    for session in store.sessions():
        kinds = [one.kind for one in (await store.load(session)).records]
        assert kinds[:3] == ["message", "message", "call_started"]
        assert kinds[3:] in (["run_ended"], ["question", "run_ended"])
        (ended,) = [one for one in (await store.load(session)).records if one.kind == "run_ended"]
        assert ended.status == "suspended"
        if "question" in kinds:
            leaf = session
    # Its own agent can take it up, and is asked again.
    again = Agent(ScriptedModel("It is Moby."), tools=[ask], store=store)
    async with again.resume(leaf) as run:
        async for event in run:
            if event.type == "reply_requested":
                assert event.question.id == question.id
                assert run.reply(question.id, "Moby").status == "accepted"
    assert run.result.output == "It is Moby."


class Strict:
    """Fails after each run inside another, and is strict about it."""

    name = "strict"
    strict = True

    @hookimpl
    def after_run(self, run: Any) -> None:
        if run.path:
            raise ValueError("observer broke")


@pytest.mark.parametrize("where", ["parent", "child"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_strict_plugin_takes_no_answer_away_and_is_raised_to_the_caller(
    where: str, depth: int, streamed: bool
) -> None:
    leaf = Agent(ScriptedModel("The answer."), plugins=[Strict()] if where == "child" else [])
    agent = leaf
    for level in range(depth):
        delegate = agent.as_tool(name="delegate", description="Delegates.")
        plugins = [Strict()] if where == "parent" and level == depth - 1 else []
        agent = Agent(ScriptedModel(call("delegate", request="Go"), "The answer."), tools=[delegate], plugins=plugins)
    with pytest.raises(PluginError, match="'strict' failed in after_run: ValueError: observer broke") as caught:
        if streamed:
            async with agent.stream("Go") as run:
                async for _ in run:
                    pass
        else:
            await agent.run("Go")
    result = caught.value.result
    assert result is not None
    assert (result.status, result.output) == ("completed", "The answer.")
    assert [one.content for one in result.messages[2].results] == ["The answer."]  # type: ignore[union-attr]
    assert result.hook_failures[0].plugin == "strict"


class Ship(BaseModel):
    name: str


async def told(child: Agent[Any, Any]) -> str:
    delegate = child.as_tool(name="delegate", description="Delegates.")
    parent = Agent(ScriptedModel(call("delegate", request="Go"), "Done."), tools=[delegate])
    async with parent.stream("Go") as run:
        events = await record(run)
    result = events.one(ToolCompleted).result
    assert result.outcome == "error"
    return str(result.content)


async def test_an_error_of_ours_is_named_with_its_cause() -> None:
    class Full:
        def __init__(self) -> None:
            self._inner = InMemoryStore()
            self.lease, self.load = self._inner.lease, self._inner.load

        async def append(self, session: str, records: Any, **options: Any) -> int:
            raise OSError("no space left in /secret/place")

    child = Agent(ScriptedModel("Hello."), store=Full())  # type: ignore[arg-type]
    assert await told(child) == "The agent delegate failed: StoreError, caused by OSError"


async def test_what_a_child_fails_with_is_only_named_and_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    error = ConnectionError("cannot reach postgresql://admin:hunter2@db")
    with caplog.at_level(logging.DEBUG, "trilane"):
        assert await told(Agent(ScriptedModel(error))) == "The agent delegate failed: ConnectionError"
    warning, detail = caplog.records
    assert warning.getMessage().startswith("agent 'delegate' failed as a tool: ConnectionError; run ")
    assert (warning.levelno, warning.exc_info) == (logging.WARNING, None)
    assert (detail.levelno, detail.exc_info) == (logging.DEBUG, (ConnectionError, error, error.__traceback__))


async def test_what_was_written_for_a_model_is_told_to_the_parents() -> None:
    @tool(on_error="raise")
    async def sail() -> str:
        """Sail."""
        raise ToolError("there is no wind")

    text = await told(Agent(ScriptedModel(call("sail")), tools=[sail]))
    assert text == "The agent delegate failed: there is no wind"


async def test_an_order_for_the_childs_model_is_not_given_to_the_parents() -> None:
    model = ScriptedModel("a", "b")
    child: Agent[Any, Any] = Agent(model, output_type=Ship, limits=Limits(answer_retries=1))
    text = await told(child)
    assert text.startswith("The agent delegate failed: RunLimitError: the answer was not accepted after 2 attempts")
    assert "Limits.answer_retries" in text
    assert "required JSON schema" in text
    assert "Answer again" not in text
    assert "Answer again with JSON" in str(model.requests[1].messages[-1])
    with pytest.raises(RunLimitError) as caught:
        await Agent(ScriptedModel("a"), output_type=Ship, limits=Limits(answer_retries=0)).run("Go")
    assert "Limits.answer_retries" in str(caught.value)
    assert "Answer again" not in str(caught.value)


async def test_the_stack_does_not_grow_with_the_depth() -> None:
    async def deepest(depth: int) -> int:
        found = 0
        async with nested(depth, "Leaf.").stream("Go") as run:
            async for _ in run:
                frame, count = sys._getframe(), 0
                while frame is not None:
                    frame, count = frame.f_back, count + 1  # type: ignore[assignment]
                found = max(found, count)
        assert run.result.output == f"Done {depth - 1}."
        return found

    assert await deepest(20) == await deepest(8)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("own", [None, 1000, 10])
def test_the_time_for_a_reply_holds_for_children_too(backend: Backend, own: float | None) -> None:
    async def main() -> None:
        leaf = Agent(ScriptedModel(call("ask"), "Nobody said."), tools=[ask], limits=Limits(reply_seconds=own))
        delegate = leaf.as_tool(name="delegate", description="Delegates.")
        agent = Agent(
            ScriptedModel(call("delegate", request="Go"), "Done."), tools=[delegate], limits=Limits(reply_seconds=30)
        )
        start = anyio.current_time()
        async with agent.stream("Go") as run:
            events = await record(run)
        assert anyio.current_time() - start == pytest.approx(30 if own != 10 else 10)
        assert events.one(ToolCompleted).result.content == "Nobody said."

    run_virtual(main, backend=backend)
