"""The hooks between turns and at a good end: `after_turn`, `on_compact`, `on_answer`, `after_run`, `on_success`."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, Limits, Replace, SendBack, hookimpl, tool
from trilane.decisions import CompactedHistory
from trilane.errors import PluginError, RunLimitError
from trilane.messages import AssistantMessage, TextPart, UserMessage
from trilane.state import AgentPhase
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, record

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


def plugin(hook: str, function: Any, name: str = "under-test", **attributes: Any) -> Any:
    """A plugin that implements one hook."""
    made = type("Plugin", (), {"name": name, hook: staticmethod(hookimpl(function)), **attributes})
    return made()


async def streamed(agent: Agent[Any, Any], *, catch: Any = (), **options: Any) -> tuple[EventRecorder, Any]:
    async with agent.stream("Go", **options) as run:
        events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


# ---- after_turn ------------------------------------------------------------------------------------------------------


async def test_hook_after_turn_is_called_at_the_end_of_each_turn_in_reverse_order() -> None:
    seen: list[tuple[str, AgentPhase, int, str]] = []

    def noting(name: str) -> Any:
        def after_turn(run: Any, turn: int, message: AssistantMessage) -> None:
            seen.append((name, run.state.phase, turn, message.stop_reason))

        return plugin("after_turn", after_turn, name)

    agent = Agent(ScriptedModel(call("look"), "A ship."), tools=[look], plugins=[noting("inner"), noting("outer")])
    await streamed(agent)
    ready = AgentPhase.READY
    assert seen == [
        ("inner", ready, 1, "tool_calls"),
        ("outer", ready, 1, "tool_calls"),
        ("inner", ready, 2, "end"),
        ("outer", ready, 2, "end"),
    ]


async def test_hook_after_turn_that_raises_is_reported_and_the_run_goes_on() -> None:
    def after_turn(run: Any, turn: int, message: AssistantMessage) -> None:
        raise KeyError("log")

    _, run = await streamed(
        Agent(ScriptedModel(call("look"), "A ship."), tools=[look], plugins=[plugin("after_turn", after_turn)])
    )
    assert run.result.output == "A ship."
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", "after_turn")] * 2


# ---- on_compact ------------------------------------------------------------------------------------------------------

SHORT = (UserMessage(id="short", parts=(TextPart(text="They talked about ships."),)),)


async def test_hook_on_compact_shortens_what_models_see_and_not_what_is_stored() -> None:
    phases: list[AgentPhase] = []

    async def on_compact(run: Any) -> CompactedHistory | None:
        phases.append(run.state.phase)
        return CompactedHistory(messages=SHORT, reason="summarised") if len(run.history) > 2 else None

    model = ScriptedModel("A ship.", "Blue.")
    agent = Agent(model, plugins=[plugin("on_compact", on_compact)])
    await agent.run("What is there?", session="s")
    events, _ = await streamed(agent, session="s")
    assert set(phases) == {AgentPhase.COMPACTING}
    assert [message.text for message in model.requests[1].messages] == ["They talked about ships."]
    done = [event for event in events.events if event.type == "compaction_completed"]
    assert [(event.changed, event.reason) for event in done] == [(True, "summarised")]
    # The store has both: what was said, and that it was replaced.
    texts = [record.message.text for record in (await agent.store.load("s")).records if record.kind == "message"]
    assert texts[:2] == ["What is there?", "A ship."]


async def test_hook_on_compact_is_asked_until_one_answers() -> None:
    asked: list[str] = []

    def compacting(name: str, value: Any) -> Any:
        def on_compact(run: Any) -> Any:
            asked.append(name)
            return value

        return plugin("on_compact", on_compact, name)

    history = CompactedHistory(messages=SHORT)
    plugins = [compacting("third", history), compacting("second", history), compacting("first", None)]
    await streamed(Agent(ScriptedModel("Fine."), plugins=plugins))
    assert asked == ["first", "second"]


async def test_hook_on_compact_that_raises_is_reported_and_the_history_stays() -> None:
    def on_compact(run: Any) -> None:
        raise KeyError("summary")

    model = ScriptedModel("Fine.")
    events, run = await streamed(Agent(model, plugins=[plugin("on_compact", on_compact)]))
    assert run.result.output == "Fine."
    assert [message.text for message in model.requests[0].messages] == ["Go"]
    done = [event for event in events.events if event.type == "compaction_completed"]
    assert (done[0].changed, done[0].reason) == (False, "plugin 'under-test' failed: KeyError: 'summary'")


@pytest.mark.parametrize("returned", ["short", CompactedHistory(messages=())])
async def test_hook_on_compact_that_returns_what_cannot_be_used_changes_nothing(returned: object) -> None:
    model = ScriptedModel("Fine.")
    events, _ = await streamed(Agent(model, plugins=[plugin("on_compact", lambda run: returned)]))
    assert [message.text for message in model.requests[0].messages] == ["Go"]
    done = [event for event in events.events if event.type == "compaction_completed"]
    assert done[0].changed is False
    assert done[0].reason.startswith("not used: ")


# ---- on_answer -------------------------------------------------------------------------------------------------------


async def test_hook_on_answer_sees_the_answer_before_the_run_completes() -> None:
    seen: list[tuple[AgentPhase, str, object]] = []

    async def on_answer(run: Any, message: AssistantMessage, output: object) -> None:
        seen.append((run.state.phase, message.text, output))

    _, run = await streamed(Agent(ScriptedModel("7"), output_type=int, plugins=[plugin("on_answer", on_answer)]))
    assert seen == [(AgentPhase.READY, "7", 7)]
    assert run.result.output == 7


async def test_hook_on_answer_may_replace_and_everybody_is_asked_again() -> None:
    asked: list[tuple[str, object]] = []

    def answering(name: str, function: Any) -> Any:
        def on_answer(run: Any, message: AssistantMessage, output: Any) -> Any:
            asked.append((name, output))
            return function(output)

        return plugin("on_answer", on_answer, name)

    plugins = [
        answering("inner", lambda output: Replace(output=output.rstrip(".")) if output.endswith(".") else None),
        answering("outer", lambda output: None),
    ]
    _, run = await streamed(Agent(ScriptedModel("Fine."), plugins=plugins))
    assert run.result.output == "Fine"
    assert asked == [("outer", "Fine."), ("inner", "Fine."), ("outer", "Fine"), ("inner", "Fine")]


async def test_hook_on_answer_may_send_back_to_the_model() -> None:
    def on_answer(run: Any, message: AssistantMessage, output: str) -> SendBack | None:
        return SendBack(feedback="Name the colour.") if "blue" not in output else None

    model = ScriptedModel("A ship.", "A blue ship.")
    events, run = await streamed(Agent(model, plugins=[plugin("on_answer", on_answer)]))
    assert run.result.output == "A blue ship."
    assert model.requests[1].context == ("Name the colour.",)
    superseded = [
        event.message.text for event in events.events if event.type == "message_completed" and event.superseded
    ]
    assert superseded == ["A ship."]
    assert [message.text for message in run.result.messages] == ["Go", "A blue ship."]


async def test_hook_on_answer_that_never_accepts_ends_at_the_limit() -> None:
    agent = Agent(
        ScriptedModel("One.", "Two."),
        limits=Limits(answer_retries=1),
        plugins=[plugin("on_answer", lambda run, message, output: SendBack(feedback="no"))],
    )
    _, run = await streamed(agent, catch=RunLimitError)
    assert run.result.status == "failed"
    assert "not accepted after 2 attempts; raise Limits.answer_retries" in str(run.result.error)


async def test_hook_on_answer_that_replaces_for_ever_is_named() -> None:
    agent = Agent(
        ScriptedModel("x"), plugins=[plugin("on_answer", lambda run, message, output: Replace(output=output + "x"))]
    )
    _, run = await streamed(agent, catch=PluginError)
    assert "replaced 8 times without end by on_answer hooks, by plugins: under-test" in str(run.result.error)


async def test_hook_on_answer_that_raises_fails_the_run() -> None:
    def on_answer(run: Any, message: AssistantMessage, output: object) -> None:
        raise ValueError("no judge")

    _, run = await streamed(Agent(ScriptedModel("Fine."), plugins=[plugin("on_answer", on_answer)]), catch=ValueError)
    assert run.result.status == "failed"
    assert run.result.text == "Fine."


# ---- after_run, on_success -------------------------------------------------------------------------------------------


def endings(order: list[tuple[str, str, AgentPhase, str]], name: str) -> Any:
    class Plugin:
        @hookimpl
        async def after_run(self, run: Any, result: Any) -> None:
            order.append((name, "after_run", run.state.phase, result.output))

        @hookimpl
        def on_success(self, run: Any, result: Any) -> None:
            order.append((name, "on_success", run.state.phase, result.output))

    made: Any = Plugin()
    made.name = name
    return made


async def test_hook_after_run_comes_before_every_on_success_and_both_in_reverse_order() -> None:
    order: list[tuple[str, str, AgentPhase, str]] = []
    await streamed(Agent(ScriptedModel("Fine."), plugins=[endings(order, "inner"), endings(order, "outer")]))
    completed = AgentPhase.COMPLETED
    assert order == [
        ("inner", "after_run", completed, "Fine."),
        ("outer", "after_run", completed, "Fine."),
        ("inner", "on_success", completed, "Fine."),
        ("outer", "on_success", completed, "Fine."),
    ]


async def test_hook_on_success_and_after_run_are_not_called_for_a_run_that_failed_or_was_stopped() -> None:
    order: list[tuple[str, str, AgentPhase, str]] = []
    agent = Agent(ScriptedModel(ConnectionError("gone"), "One two."), plugins=[endings(order, "one")])
    with pytest.raises(ConnectionError):
        await agent.run("Go")
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "text_delta":
                break
    assert run.result.status == "cancelled"
    assert order == []


@pytest.mark.parametrize("hook", ["after_run", "on_success"])
async def test_hook_after_run_and_on_success_that_raise_are_reported_and_the_answer_stands(hook: str) -> None:
    def fail(run: Any, result: Any) -> None:
        raise KeyError("outbox")

    _, run = await streamed(Agent(ScriptedModel("Fine."), plugins=[plugin(hook, fail)]))
    assert (run.result.status, run.result.output) == ("completed", "Fine.")
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", hook)]


@pytest.mark.parametrize("hook", ["after_run", "on_success"])
async def test_hook_on_success_of_a_strict_plugin_raises_and_the_result_is_there(hook: str) -> None:
    def fail(run: Any, result: Any) -> None:
        raise KeyError("outbox")

    with pytest.raises(PluginError, match="strict plugin 'under-test' failed") as caught:
        await Agent(ScriptedModel("Fine."), plugins=[plugin(hook, fail, strict=True)]).run("Go")
    assert caught.value.result is not None
    assert caught.value.result.output == "Fine."
