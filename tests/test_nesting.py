"""What comes in from outside and is to be stored is nested only as deeply as every reader can follow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from trilane import (
    Agent,
    Approval,
    Delta,
    InMemoryStore,
    ModelRequest,
    ModelResponse,
    Rewrite,
    RunContext,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolContext,
    ToolMessage,
    ToolResult,
    UseResult,
    UserMessage,
    hookimpl,
    tool,
)
from trilane._plain import DEEPEST, is_too_deep, plain_json
from trilane.errors import ConfigError, ModelError
from trilane.messages import ImagePart
from trilane.stores import record_from_json
from trilane.testing import FunctionModel, ScriptedModel, Step, call

pytestmark = pytest.mark.anyio

DEPTHS = [DEEPEST, DEEPEST + 1, 250, 900, 5000]  # of a value; with the object around it the first is one too many
WORDS = f"nested more than {DEEPEST} levels deep"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@tool
async def take(x: Any = None) -> str:
    """Take."""
    return "taken"


@tool(approval=True)
async def careful(x: Any = None) -> str:
    """Take with care."""
    return "taken"


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask."""
    return f"got {type(await ctx.ask('Well?', Any)).__name__}"


async def read_back(store: InMemoryStore) -> list[str]:
    """The kinds of what was stored; all of it can be read from its JSON."""
    records = (await store.load("s")).records
    again = [record_from_json(record.to_json()) for record in records]
    assert [record.kind for record in again] == [record.kind for record in records]
    return [record.kind for record in again]


def result_of(run: Any) -> Any:
    return next(message for message in run.messages if message.kind == "tool").results[0]


def test_depth() -> None:
    assert not is_too_deep(nested(DEEPEST))
    assert is_too_deep(nested(DEEPEST + 1))
    assert is_too_deep({"a": ({"b": nested(DEEPEST - 1)},)})
    assert not is_too_deep("[" * 1000)
    twice: Any = []
    for _ in range(DEEPEST - 1):
        twice = [twice, twice]
    assert not is_too_deep(twice)
    twice.append(twice)
    assert is_too_deep(twice)

    class Node(BaseModel):
        inner: Any

    assert plain_json(Node(inner=nested(DEEPEST - 1))) == {"inner": nested(DEEPEST - 1)}
    with pytest.raises(TypeError, match=WORDS):
        plain_json(Node(inner=nested(DEEPEST)))


@pytest.mark.parametrize("depth", [DEEPEST - 1, *DEPTHS])
async def test_arguments_in_deltas(depth: int) -> None:
    raw = '{"x":' + "[" * depth + "]" * depth + "}"
    delta = Delta(kind="arguments", text=raw, call_id="c1", name="take")
    store = InMemoryStore()
    model = ScriptedModel(Step(deltas=[delta], stop_reason="tool_calls"), "Done.")
    agent: Agent[Any, str] = Agent(model, tools=[take], store=store)
    result = result_of(await agent.run("Go", session="s"))
    if depth < DEEPEST:
        assert (result.outcome, result.content) == ("ok", "taken")
    else:
        assert result.outcome == "error"
        assert "Tool take was not run. The arguments are not valid:" in result.content
        assert "nested" in result.content
    assert ("call_started" in await read_back(store)) == (depth < DEEPEST)


@pytest.mark.parametrize("replayable", [False, True])
@pytest.mark.parametrize("depth", [DEEPEST - 1, *DEPTHS])
async def test_arguments_that_a_model_parsed(depth: int, replayable: bool) -> None:
    store = InMemoryStore()
    part = ToolCallPart(call=ToolCall(id="c1", name="take", arguments={"x": nested(depth)}))

    async def answer(request: ModelRequest, emit: Any) -> Any:
        if any(message.kind == "tool" for message in request.messages):
            return "Done."
        return ModelResponse(parts=(part,), stop_reason="tool_calls")

    agent: Agent[Any, str] = Agent(FunctionModel(answer), tools=[take], store=store, replayable=replayable)
    if depth < DEEPEST:
        assert result_of(await agent.run("Go", session="s")).outcome == "ok"
    else:
        with pytest.raises(ModelError, match=rf"model .* cannot be used: parts\.0\.call\.arguments: it is {WORDS}"):
            await agent.run("Go", session="s")
    await read_back(store)


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1, 250, 900])
async def test_extra_of_a_model(depth: int) -> None:
    store = InMemoryStore()
    model = ScriptedModel(Step(deltas=[Delta(text="Hi.", extra=nested(depth))]))
    agent: Agent[Any, str] = Agent(model, store=store)
    if depth <= DEEPEST:
        assert (await agent.run("Go", session="s")).output == "Hi."
    else:
        with pytest.raises(TypeError, match=rf"a Delta that can be used.* extra: it is {WORDS}"):
            await agent.run("Go", session="s")
    await read_back(store)


@pytest.mark.parametrize("depth", DEPTHS)
async def test_replies(depth: int) -> None:
    store = InMemoryStore()
    agent: Agent[Any, str] = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask], store=store)
    receipts = []
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                receipts = [run.reply(event.question.id, nested(depth)), run.reply(event.question.id, "text")]
    assert [receipt.status for receipt in receipts] == (
        ["accepted", "duplicate"] if depth <= DEEPEST else ["invalid", "accepted"]
    )
    if depth > DEEPEST:
        assert receipts[0].reasons == (f"the reply must not be {WORDS}",)
    await read_back(store)


@pytest.mark.parametrize("depth", DEPTHS)
async def test_approvals(depth: int) -> None:
    store = InMemoryStore()
    agent: Agent[Any, str] = Agent(ScriptedModel(call("careful"), "Done."), tools=[careful], store=store)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                changed = Approval(approve=True, arguments={"x": nested(depth)})
                receipt = run.reply(event.question.id, changed)
                assert receipt.status == "invalid"
                assert WORDS in receipt.reasons[0]
                assert run.reply(event.question.id, Approval(approve=True)).status == "accepted"
    assert result_of(run.result).outcome == "ok"
    await read_back(store)


@pytest.mark.parametrize("depth", DEPTHS[1:])
async def test_what_tools_and_plugins_give(depth: int) -> None:
    @tool
    async def show() -> Any:
        """Show."""
        return ImagePart(url="x", extra=nested(depth))

    @tool
    async def give() -> Any:
        """Give."""
        return nested(depth)

    @tool
    async def tell(ctx: ToolContext) -> str:
        """Tell."""
        for work in (ctx.emit("told", nested(depth)), ctx.progress("so far", data=nested(depth))):
            with pytest.raises(TypeError, match=WORDS):
                await work
        return ""

    class Deciding:
        name = "deciding"

        @hookimpl
        async def decide_tool(self, run: RunContext[Any], call: ToolCall) -> Any:
            about = call.arguments.get("x")
            if about == "rewritten":
                return Rewrite(arguments={"x": nested(depth)})
            return UseResult(ToolResult(call_id="", content="", data=nested(depth))) if about == "used" else None

    asked = [call("show"), call("give"), call("tell"), call("take", x="rewritten"), call("take", x="used")]
    store = InMemoryStore()
    model = ScriptedModel(*asked, "Done.")
    agent: Agent[Any, str] = Agent(
        model, tools=[show, give, tell, take], plugins=[Deciding()], store=store, replayable=True
    )
    done = await agent.run("Go", session="s")
    results = [result for message in done.messages if isinstance(message, ToolMessage) for result in message.results]
    assert [result.outcome for result in results] == ["error", "error", "ok", "denied", "denied"]
    assert all(WORDS in str(result.content) for result in results[:2])
    assert "plugin 'deciding' failed" in str(results[3].content)
    await read_back(store)


@pytest.mark.parametrize("depth", DEPTHS[1:])
async def test_what_callers_give(depth: int) -> None:
    agent: Agent[Any, str] = Agent(ScriptedModel("Done."))
    image = ImagePart(url="x", extra=nested(depth))
    whole = UserMessage(id="u", parts=(TextPart(text="See", extra=nested(depth)),))
    for request, number in ((["See", image], 1), (whole, 0)):
        with pytest.raises(ConfigError, match=f"part {number} of the request cannot be stored: extra: it is {WORDS}"):
            await agent.run(request)
    with pytest.raises(ConfigError, match=rf"message 0 of history= cannot be stored: parts\.0\.extra: it is {WORDS}"):
        await agent.run("Go", history=[whole])


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"kind":"message","x":' + "[" * 100_000])
async def test_a_record_that_is_nested_too_deeply_is_damaged(text: str) -> None:
    record = record_from_json(text)
    assert record.kind == "damaged"
    assert record.reason == "it is nested too deeply to be read"
    assert record.to_json() == text
    json.dumps(record.reason)


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")]])
async def test_numbers_that_would_be_stored_as_null_are_no_arguments(value: Any) -> None:
    part = ToolCallPart(call=ToolCall(id="c1", name="take", arguments={"x": value}))
    response = ModelResponse(parts=(part,), stop_reason="tool_calls")
    agent: Agent[Any, str] = Agent(FunctionModel(lambda request, emit: response), tools=[take])
    with pytest.raises(ModelError, match=r"parts\.0\.call\.arguments: it has a number that JSON cannot express"):
        await agent.run("Go")

    class Rewriting:
        name = "rewriting"

        @hookimpl
        async def decide_tool(self, run: RunContext[Any], call: ToolCall) -> Any:
            return Rewrite(arguments={"x": value})

    agent = Agent(ScriptedModel(call("take"), "Done."), tools=[take], plugins=[Rewriting()])
    result = result_of(await agent.run("Go"))
    assert result.content == "Tool take was denied: plugin 'rewriting' failed while deciding about it"
