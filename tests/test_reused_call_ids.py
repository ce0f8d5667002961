"""Models that count their calls anew in each message: `call_0`, and in the next one `call_0` again.

A reply says by its id what it answers. It must never be taken for the answer to another call of the same id.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, ModelResponse, RuntimeQueues, Tool, ToolContext, ToolResult, tool
from trilane.messages import ToolCall, ToolCallPart
from trilane.testing import FunctionModel, ScriptedModel, assert_history, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio

WHAT = {"type": "object", "properties": {"what": {"type": "string"}}}
click = Tool.external(name="click", description="Click.", parameters=WHAT, timeout=10)


@tool(effect="read")
async def pay(ctx: ToolContext, to: str) -> str:
    """Pay."""
    sure = await ctx.ask(f"Pay {to}?", bool)
    pin = await ctx.ask(f"PIN for {to}?")
    return f"{to} {sure} {pin}"


def results(run: Any) -> list[Any]:
    assert_history(run.result.messages)
    return [one.content for message in run.result.messages if message.kind == "tool" for one in message.results]


async def test_what_was_replied_before_a_restart_answers_no_later_call() -> None:
    store = InMemoryStore()
    first = Agent(ScriptedModel(call("pay", call_id="call_0", to="Ada")), tools=[pay], store=store)
    async with first.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                if event.question.prompt == "PIN for Ada?":
                    await run.suspend()
                    break
                run.reply(event.question.id, True)
    asked: list[str] = []
    second = Agent(ScriptedModel(call("pay", call_id="call_0", to="Eve"), "Done."), tools=[pay], store=store)
    async with second.resume("s") as run:
        async for event in run:
            if event.type == "reply_requested":
                asked.append(event.question.prompt)
                run.reply(event.question.id, False if event.question.prompt == "Pay Eve?" else "1")
    assert asked == ["PIN for Ada?", "Pay Eve?", "PIN for Eve?"]
    assert results(run) == ["Ada True 1", "Eve False 1"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("again", ["in the same run", "in the next run", "in another process"])
def test_a_late_reply_answers_no_later_call(backend: Backend, again: str) -> None:
    async def main() -> None:
        store = InMemoryStore()
        steps = [call("click", call_id="call_0", what=what) for what in ("first", "second")]
        agent = Agent(ScriptedModel(*steps, "Done."), tools=[click], store=store)
        if again != "in the same run":
            agent = Agent(ScriptedModel(steps[0], "Done.", steps[1], "Done."), tools=[click], store=store)
            await anyio.lowlevel.checkpoint()
            async with agent.stream("Go", session="s") as run:
                await record(run)
        if again == "in another process":
            agent = Agent(ScriptedModel(steps[1], "Done."), tools=[click], store=store)
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "reply_requested" and event.question.call.arguments == {"what": "second"}:  # type: ignore[union-attr]
                    assert agent.reply("s", "call_0", "of the first").status in ("expired", "unknown")
                    assert event.question.id == event.question.call.id  # type: ignore[union-attr]
                    assert agent.reply("s", event.question.id, "of the second").status == "accepted"
        assert results(run)[-1] == "of the second"

    run_virtual(main, backend=backend)


def counting(request: Any, emit: Any) -> Any:
    """A model that calls once, and then says what came of it."""
    last = request.messages[-1]
    if last.kind == "tool":
        return f"clicked {last.results[0].content}"
    return ModelResponse(parts=(ToolCallPart(call=ToolCall(id="call_0", name="click")),), stop_reason="tool_calls")


async def test_children_whose_models_count_alike_are_asked_apart() -> None:
    child = Agent(FunctionModel(counting), tools=[click], name="child").as_tool(name="child", description="Click.")
    calls = [call("child", request="a"), call("child", request="b"), call("click", call_id="call_0")]
    parent = Agent(ScriptedModel(calls, "Done."), tools=[child, click])
    open_ids: list[str] = []
    async with no_leaks(), parent.stream("Go", session="root") as run:
        async for event in run:
            inner: Any = event.event if event.type == "child_event" else event
            if inner.type == "reply_requested":
                open_ids.append(inner.question.id)
                if len(open_ids) == 3:
                    for number, one in enumerate(open_ids):
                        assert parent.reply("root", one, str(number)).status == "accepted"
    assert len(set(open_ids)) == 3
    assert {text[-1] for text in results(run)} == {"0", "1", "2"}


async def test_an_event_agent_answers_each_call_by_its_id() -> None:
    queues = RuntimeQueues()
    steps = [call("click", call_id="call_0", what=str(number)) for number in range(3)]
    async with anyio.create_task_group() as group:

        async def client() -> None:
            for _ in steps:
                event = await queues.events.get()
                await queues.input.put(ToolResult(call_id=event.call.id, content=f"did {event.call.arguments['what']}"))

        group.start_soon(client)
        async with Agent(ScriptedModel(*steps, "Done."), tools=[click]).stream("Go", queues=queues) as run:
            await record(run)
    assert results(run) == ["did 0", "did 1", "did 2"]


@pytest.mark.parametrize("answering", ["as it came", "after a restart"])
async def test_such_a_session_is_replayed(answering: str) -> None:
    store = InMemoryStore()
    steps: list[Any] = [call("click", call_id="call_0", what=str(number)) for number in range(3)]

    def agent(*script: Any) -> Agent[Any, Any]:
        return Agent(ScriptedModel(*script), tools=[click], store=store, replayable=True)

    async def read(run: Any, stop_at: str = "") -> None:
        async for event in run:
            if event.type == "reply_requested":
                what = event.question.call.arguments["what"]
                if what == stop_at:
                    await run.suspend()
                    return
                run.reply(event.question.id, f"did {what}")

    if answering == "as it came":
        async with agent(*steps, "Done.").stream("Go", session="s") as run:
            await read(run)
    else:
        async with agent(*steps[:2]).stream("Go", session="s") as run:
            await read(run, "1")
        async with agent(steps[2], "Done.").resume("s") as run:
            await read(run)
    assert results(run) == ["did 0", "did 1", "did 2"]
    assert (await agent().replay("s")).difference is None
