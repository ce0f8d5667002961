"""The hooks around a tool call: the decision, the invocation, its result."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane import Agent, Allow, Ask, Deny, Rewrite, UseResult, hookimpl, tool
from trilane.messages import ToolCall, ToolResult
from trilane.state import AgentPhase
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, record

pytestmark = pytest.mark.anyio


def plugin(hook: str, function: Any, name: str = "under-test", **marks: Any) -> Any:
    """A plugin that implements one hook."""
    made = type("Plugin", (), {"name": name, hook: staticmethod(hookimpl(**marks)(function))})
    return made()


class Till:
    """A tool and what it was called with."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay

    def agent(self, *plugins: Any, calls: Any = None) -> Agent[Any, Any]:
        model = ScriptedModel(calls if calls is not None else call("pay", amount=5), "Done.")
        return Agent(model, tools=[self.pay], plugins=plugins)


async def streamed(agent: Agent[Any, Any], *, catch: Any = (), **options: Any) -> tuple[EventRecorder, Any]:
    async with agent.stream("Go", **options) as run:
        events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


def results(run: Any) -> list[tuple[str, str]]:
    """Outcome and content of every tool result of the run."""
    return [
        (one.outcome, str(one.content))
        for message in run.result.messages
        if message.kind == "tool"
        for one in message.results
    ]


# ---- decide_tool -----------------------------------------------------------------------------------------------------


async def test_hook_decide_tool_is_asked_for_every_call_before_any_starts() -> None:
    till = Till()
    asked: list[tuple[AgentPhase, int, int]] = []

    async def decide_tool(run: Any, call: ToolCall) -> Allow:
        asked.append((run.state.phase, call.arguments["amount"], len(till.paid)))  # type: ignore[arg-type]
        return Allow()

    calls = [call("pay", amount=1), call("pay", amount=2)]
    _, run = await streamed(till.agent(plugin("decide_tool", decide_tool), calls=calls))
    assert asked == [(AgentPhase.READY, 1, 0), (AgentPhase.READY, 2, 0)]
    assert results(run) == [("ok", "paid 1"), ("ok", "paid 2")]


async def test_hook_decide_tool_may_deny_and_nobody_else_is_asked() -> None:
    till = Till()
    asked: list[str] = []

    def deciding(name: str, decision: Any) -> Any:
        def decide_tool(run: Any, call: ToolCall) -> Any:
            asked.append(name)
            return decision

        return plugin("decide_tool", decide_tool, name)

    agent = till.agent(
        deciding("third", None), deciding("second", Deny(reason="not today")), deciding("first", Allow())
    )
    events, run = await streamed(agent)
    assert asked == ["first", "second"]
    assert results(run) == [("denied", "Tool pay was denied: not today")]
    assert till.paid == []
    assert "tool_started" not in events.types()
    assert run.result.output == "Done."


async def test_hook_decide_tool_may_rewrite_and_everybody_is_asked_again() -> None:
    till = Till()
    seen: list[tuple[str, int]] = []

    def deciding(name: str, limit: int) -> Any:
        def decide_tool(run: Any, call: ToolCall) -> Any:
            amount: Any = call.arguments["amount"]
            seen.append((name, amount))
            return Rewrite(arguments={"amount": limit}) if amount > limit else None

        return plugin("decide_tool", decide_tool, name)

    _, run = await streamed(till.agent(deciding("inner", 2), deciding("outer", 3)))
    assert seen[0] == ("outer", 5)
    assert seen[-2:] == [("outer", 2), ("inner", 2)]
    assert till.paid == [2]
    assert results(run) == [("ok", "paid 2")]


async def test_hook_decide_tool_may_give_the_result_itself() -> None:
    till = Till()

    def decide_tool(run: Any, call: ToolCall) -> UseResult:
        return UseResult(result=ToolResult(call_id=call.id, content="paid before"))

    _, run = await streamed(till.agent(plugin("decide_tool", decide_tool)))
    assert results(run) == [("ok", "paid before")]
    assert till.paid == []


async def test_hook_decide_tool_may_ask_and_is_asked_again_about_the_approved_call() -> None:
    till = Till()
    seen: list[tuple[AgentPhase, bool]] = []

    def decide_tool(run: Any, call: ToolCall) -> Ask:
        seen.append((run.state.phase, call.approval is not None))
        return Ask(prompt=f"Pay {call.arguments['amount']}?")

    async with till.agent(plugin("decide_tool", decide_tool)).stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                assert (event.question.kind, event.question.prompt) == ("approval", "Pay 5?")
                assert run.reply(event.question.id, {"approve": True}).status == "accepted"
    assert seen == [(AgentPhase.READY, False), (AgentPhase.RUNNING_TOOL, True)]
    assert till.paid == [5]


@pytest.mark.parametrize("returned", ["yes", 1, {"approve": True}])
async def test_hook_decide_tool_that_returns_something_else_denies(returned: object) -> None:
    till = Till()
    _, run = await streamed(till.agent(plugin("decide_tool", lambda run, call: returned)))
    assert [outcome for outcome, _ in results(run)] == ["denied"]
    assert till.paid == []


async def test_hook_decide_tool_that_returns_a_class_is_told_to_make_an_instance() -> None:
    _, run = await streamed(Till().agent(plugin("decide_tool", lambda run: Deny)))
    (failure,) = run.result.hook_failures
    assert "decide_tool returned the class Deny, not Deny(...)" in str(failure.error)


async def test_hook_decide_tool_that_raises_denies() -> None:
    till = Till()

    def decide_tool(run: Any, call: ToolCall) -> None:
        raise KeyError("policy")

    _, run = await streamed(till.agent(plugin("decide_tool", decide_tool)))
    assert [outcome for outcome, _ in results(run)] == ["denied"]
    assert "under-test" in results(run)[0][1]
    assert till.paid == []
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", "decide_tool")]


# ---- before_tool -----------------------------------------------------------------------------------------------------


async def test_hook_before_tool_sees_the_call_that_was_decided() -> None:
    till = Till()
    seen: list[tuple[AgentPhase, dict[str, Any], list[int]]] = []

    class Both:
        name = "both"

        @hookimpl
        def decide_tool(self, call: ToolCall) -> Rewrite | None:
            return Rewrite(arguments={"amount": 1}) if call.arguments["amount"] != 1 else None

        @hookimpl
        def before_tool(self, run: Any, call: ToolCall) -> None:
            seen.append((run.state.phase, dict(call.arguments), list(till.paid)))

    events, _ = await streamed(till.agent(Both()))
    assert seen == [(AgentPhase.RUNNING_TOOL, {"amount": 1}, [])]
    assert till.paid == [1]
    assert events.types().index("tool_started") < events.types().index("tool_completed")


async def test_hook_before_tool_comes_after_its_event_was_seen() -> None:
    till = Till()
    called: list[str] = []

    def before_tool(run: Any, call: ToolCall) -> None:
        called.append(call.name)

    async with till.agent(plugin("before_tool", before_tool)).stream("Go") as run:
        async for event in run:
            if event.type == "tool_started":
                break
    assert called == []
    assert till.paid == []


async def test_hook_before_tool_that_raises_is_reported_and_the_tool_runs() -> None:
    till = Till()

    def before_tool(run: Any, call: ToolCall) -> None:
        raise KeyError("log")

    _, run = await streamed(till.agent(plugin("before_tool", before_tool)))
    assert till.paid == [5]
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", "before_tool")]


# ---- around_tool -----------------------------------------------------------------------------------------------------


async def test_hook_around_tool_wraps_the_invocation_like_a_layer() -> None:
    till = Till()
    order: list[str] = []

    def layer(name: str) -> Any:
        async def around_tool(run: Any, call: ToolCall, call_next: Any) -> Any:
            assert run.state.phase is AgentPhase.RUNNING_TOOL
            order.append(f"{name} in, paid {till.paid}")
            result = await call_next()
            order.append(f"{name} out, paid {till.paid}")
            return result.replace(content=f"{result.content} [{name}]")

        return plugin("around_tool", around_tool, name)

    _, run = await streamed(till.agent(layer("b"), layer("a")))
    assert order == ["a in, paid []", "b in, paid []", "b out, paid [5]", "a out, paid [5]"]
    assert results(run) == [("ok", "paid 5 [b] [a]")]


async def test_hook_around_tool_may_answer_instead_of_the_tool() -> None:
    till = Till()

    async def around_tool(run: Any, call: ToolCall, call_next: Any) -> ToolResult:
        return ToolResult(call_id=call.id, content="from the cache")

    _, run = await streamed(till.agent(plugin("around_tool", around_tool)))
    assert results(run) == [("ok", "from the cache")]
    assert till.paid == []


async def test_hook_around_tool_may_call_the_tool_once_only() -> None:
    till = Till()

    async def around_tool(run: Any, call: ToolCall, call_next: Any) -> Any:
        await call_next()
        return await call_next()

    _, run = await streamed(till.agent(plugin("around_tool", around_tool)))
    assert till.paid == [5]
    assert results(run) == [("ok", "paid 5")]
    assert [one.hook for one in run.result.hook_failures] == ["around_tool"]


async def test_hook_around_tool_cannot_give_the_tool_other_arguments() -> None:
    till = Till()

    async def changing(run: Any, call: ToolCall, call_next: Any) -> ToolResult:
        result: ToolResult = await call_next(call.replace(arguments={"amount": 500}))
        return result

    _, run = await streamed(till.agent(plugin("around_tool", changing)))
    (failure,) = run.result.hook_failures
    assert "around_tool gave call_next an argument; it takes none" in str(failure.error)
    assert (till.paid, results(run)[0][0]) == ([], "error")


async def test_hook_around_tool_that_raises_before_the_tool_gives_an_error_result() -> None:
    till = Till()

    async def around_tool(run: Any, call: ToolCall, call_next: Any) -> Any:
        raise KeyError("span")

    _, run = await streamed(till.agent(plugin("around_tool", around_tool)))
    assert [outcome for outcome, _ in results(run)] == ["error"]
    assert till.paid == []
    assert run.result.output == "Done."


async def test_hook_around_tool_that_raises_after_the_tool_keeps_the_result() -> None:
    till = Till()

    async def around_tool(run: Any, call: ToolCall, call_next: Any) -> Any:
        await call_next()
        raise KeyError("span")

    _, run = await streamed(till.agent(plugin("around_tool", around_tool)))
    assert results(run) == [("ok", "paid 5")]
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", "around_tool")]


# ---- after_tool ------------------------------------------------------------------------------------------------------


async def test_hook_after_tool_changes_what_the_model_is_told_in_reverse_order() -> None:
    till = Till()

    def adding(name: str) -> Any:
        def after_tool(run: Any, call: ToolCall, result: ToolResult) -> ToolResult:
            assert run.state.phase is AgentPhase.RUNNING_TOOL
            return result.replace(content=f"{result.content} [{name}]")

        return plugin("after_tool", after_tool, name)

    events, run = await streamed(till.agent(adding("inner"), adding("outer")))
    assert results(run) == [("ok", "paid 5 [inner] [outer]")]
    completed = [event for event in events.events if event.type == "tool_completed"]
    assert completed[0].result.content == "paid 5 [inner] [outer]"


async def test_hook_after_tool_that_raises_is_reported_and_the_result_stands() -> None:
    till = Till()

    def after_tool(run: Any, call: ToolCall, result: ToolResult) -> None:
        raise KeyError("filter")

    _, run = await streamed(till.agent(plugin("after_tool", after_tool)))
    assert results(run) == [("ok", "paid 5")]
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", "after_tool")]


async def test_hook_after_tool_that_is_required_withholds_the_result() -> None:
    till = Till()

    def after_tool(run: Any, call: ToolCall, result: ToolResult) -> None:
        raise KeyError("filter")

    events, run = await streamed(till.agent(plugin("after_tool", after_tool, required=True)), catch=KeyError)
    assert run.result.status == "failed"
    assert till.paid == [5]
    assert "paid 5" not in repr(run.result.messages) + repr(events.events)
    assert "withheld: plugin under-test failed" in repr(run.result.messages)


@pytest.mark.parametrize("hook", ["after_tool", "around_tool"])
async def test_what_a_hook_takes_out_of_the_content_of_a_result_is_not_in_its_data(hook: str) -> None:
    @tool
    async def read() -> dict[str, str]:
        """Read."""
        return {"key": "sk-123"}

    def after_tool(result: ToolResult) -> ToolResult:
        return result.replace(content=str(result.content).replace("sk-123", "***"))

    async def around_tool(run: Any, call_next: Any) -> ToolResult:
        result: ToolResult = await call_next()
        return after_tool(result)

    redacting = plugin(hook, around_tool if hook == "around_tool" else after_tool)
    model = ScriptedModel(call("read"), "Done.")
    agent = Agent(model, tools=[read], plugins=[redacting])
    events, run = await streamed(agent, session="s")
    assert results(run) == [("ok", '{"key": "***"}')]
    kept = (await agent.store.load("s")).records
    everywhere = [*events.events, run.result, *kept, *model.requests]
    assert not [one for one in everywhere if "sk-123" in one.to_json()]


def test_a_result_with_other_content_has_no_data_unless_it_is_given() -> None:
    result = ToolResult(call_id="1", content="two", data=2)
    assert result.replace(content="three") == ToolResult(call_id="1", content="three")
    assert result.replace(content="three", data=3) == ToolResult(call_id="1", content="three", data=3)
    assert result.replace(content="two", outcome="error").data == result.replace(call_id="2").data == 2


@pytest.mark.parametrize("hook", ["after_tool", "around_tool", "stubborn"])
async def test_a_result_that_a_required_hook_has_not_seen_when_the_run_ends_is_withheld(
    hook: str, anyio_backend_name: str
) -> None:
    if hook == "stubborn" and anyio_backend_name != "asyncio":
        return  # on trio nobody can swallow a cancel for ever
    till, seen, let_go = Till(), list[str](), anyio.Event()

    async def wait() -> None:
        seen.append("waits")
        while not let_go.is_set():
            try:
                await let_go.wait()
            except anyio.get_cancelled_exc_class():
                if hook != "stubborn":
                    raise

    async def after_tool(result: ToolResult) -> None:
        if hook != "around_tool":
            await wait()

    async def around_tool(run: Any, call_next: Any) -> Any:
        result = await call_next()
        if hook == "around_tool":
            await wait()
        return result

    plugins = [plugin("after_tool", after_tool, required=True), plugin("around_tool", around_tool, "layer")]
    agent = Agent(ScriptedModel(call("pay", amount=5)), tools=[till.pay], plugins=plugins, grace_seconds=0.2)
    async with agent.stream("Go", session="s") as run, anyio.create_task_group() as group:

        async def close() -> None:
            while not seen:
                await anyio.lowlevel.checkpoint()
            await run.close()

        group.start_soon(close)
        events = await record(run, catch=Exception)
    let_go.set()
    assert till.paid == [5]
    told = "Tool pay has run; withheld: the run ended before plugin under-test had seen the result"
    assert results(run) == [("error", told)]
    assert "paid 5" not in repr(events.events) + repr(run.result)


@pytest.mark.parametrize("hook", ["before_tool", "around_tool"])
async def test_hook_after_tool_comes_for_each_call_that_before_tool_came_for_also_if_a_stop_kept_it_from_running(
    hook: str,
) -> None:
    till, seen = Till(), list[tuple[str, str, str]]()

    class Pairs:
        name = "pairs"

        @hookimpl(tryfirst=True)
        def before_tool(self, run: Any, call: ToolCall) -> None:
            seen.append(("before", call.id, ""))

        @hookimpl
        def after_tool(self, run: Any, call: ToolCall, result: ToolResult) -> None:
            seen.append(("after", call.id, result.outcome))

    async def stopping_around(run: Any, call_next: Any) -> Any:
        run.stop("enough")
        return await call_next()

    stopping = (lambda run: run.stop("enough")) if hook == "before_tool" else stopping_around
    agent = till.agent(Pairs(), plugin(hook, stopping, "stops"), calls=[call("pay", amount=n) for n in (1, 2)])
    _, run = await streamed(agent, catch=Exception)
    assert till.paid == []
    assert {outcome for outcome, _ in results(run)} == {"not_started"}
    begun = [call_id for what, call_id, _ in seen if what == "before"]
    assert begun
    assert [(call_id, outcome) for what, call_id, outcome in seen if what == "after"] == [
        (call_id, "not_started") for call_id in begun
    ]


async def test_hook_after_tool_does_not_come_when_the_run_is_cancelled_before_the_tool() -> None:
    till, seen = Till(), list[str]()

    async def hanging(run: Any) -> None:
        seen.append("before")
        await anyio.sleep_forever()

    agent = till.agent(
        plugin("before_tool", hanging), plugin("after_tool", lambda result: seen.append(result.outcome), "sees")
    )
    async with agent.stream("Go") as run, anyio.create_task_group() as group:

        async def close() -> None:
            while not seen:
                await anyio.lowlevel.checkpoint()
            await run.close()

        group.start_soon(close)
        await record(run, catch=Exception)
    assert seen == ["before"]
    assert [outcome for outcome, _ in results(run)] == ["not_started"]
