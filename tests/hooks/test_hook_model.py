"""The hooks around a model call: the request, the call, its deltas, its errors, and its answer."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, Limits, RetryModel, hookimpl, tool
from trilane.errors import ModelError, PluginError
from trilane.messages import Delta, TextPart
from trilane.models import ModelResponse
from trilane.state import AgentPhase
from trilane.testing import EventRecorder, ScriptedModel, Step, assert_history, call, record

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


def plugin(hook: str, function: Any, name: str = "under-test", **marks: Any) -> Any:
    """A plugin that implements one hook."""
    made = type("Plugin", (), {"name": name, hook: staticmethod(hookimpl(**marks)(function))})
    return made()


async def streamed(agent: Agent[Any, Any], *, catch: Any = ()) -> tuple[EventRecorder, Any]:
    async with agent.stream("Go") as run:
        events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


def shown(events: EventRecorder) -> str:
    """The text that the caller has seen."""
    return "".join(event.text for event in events.events if event.type == "text_delta")


# ---- on_model_request ------------------------------------------------------------------------------------------------


async def test_hook_on_model_request_changes_what_is_sent_and_nothing_that_is_kept() -> None:
    turns: list[tuple[AgentPhase, int]] = []

    def outer(run: Any, request: Any) -> Any:
        turns.append((run.state.phase, request.turn))
        return request.with_context("Today is Monday.")

    async def inner(run: Any, request: Any) -> Any:
        assert request.context == ("Today is Monday.",)
        return request.replace(instructions="Be brief.")

    model = ScriptedModel(call("look"), "A ship.")
    plugins = [plugin("on_model_request", inner, "inner"), plugin("on_model_request", outer, "outer")]
    result = await Agent(model, tools=[look], plugins=plugins).run("Go")
    assert turns == [(AgentPhase.READY, 1), (AgentPhase.READY, 2)]
    assert [request.instructions for request in model.requests] == ["Be brief.", "Be brief."]
    assert "Monday" not in repr(result.messages)


async def test_hook_on_model_request_that_raises_fails_the_run() -> None:
    def on_model_request(run: Any, request: Any) -> Any:
        raise ValueError("too long")

    model = ScriptedModel()
    with pytest.raises(ValueError, match="too long"):
        await Agent(model, plugins=[plugin("on_model_request", on_model_request)]).run("Go")
    assert model.requests == []


async def test_hook_on_model_request_must_return_a_request() -> None:
    agent = Agent(ScriptedModel(), plugins=[plugin("on_model_request", lambda run, request: "text")])
    with pytest.raises(PluginError, match=r"on_model_request .* returned str; return ModelRequest or None"):
        await agent.run("Go")


# ---- around_model ----------------------------------------------------------------------------------------------------


async def test_hook_around_model_wraps_the_call_like_a_layer() -> None:
    order: list[str] = []

    def layer(name: str) -> Any:
        async def around_model(run: Any, request: Any, call_next: Any) -> Any:
            assert run.state.phase is AgentPhase.GENERATING
            order.append(f"{name} in")
            response = await call_next(request.replace(instructions=f"{request.instructions}{name}"))
            order.append(f"{name} out")
            return response

        return plugin("around_model", around_model, name)

    model = ScriptedModel("Fine.")
    await Agent(model, plugins=[layer("b"), layer("a")]).run("Go")
    assert order == ["a in", "b in", "b out", "a out"]
    assert model.requests[0].instructions == "ab"


async def test_hook_around_model_may_answer_itself() -> None:
    async def around_model(run: Any, request: Any, call_next: Any) -> Any:
        return ModelResponse(parts=(TextPart(text="From the cache."),), model="cache")

    model = ScriptedModel()
    events, run = await streamed(Agent(model, plugins=[plugin("around_model", around_model)]))
    assert run.result.output == "From the cache."
    assert shown(events) == "From the cache."
    assert model.requests == []


async def test_hook_around_model_may_answer_where_the_model_failed() -> None:
    async def around_model(run: Any, request: Any, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except ModelError:
            return ModelResponse(parts=(TextPart(text="Ask me later."),), model="fallback")

    model = ScriptedModel(Step("Let me", error=ModelError("gone", model="m")))
    events, run = await streamed(Agent(model, plugins=[plugin("around_model", around_model)]))
    completed = [event for event in events.events if event.type == "message_completed"]
    assert [(event.message.text, event.superseded) for event in completed] == [
        ("Let me", True),
        ("Ask me later.", False),
    ]
    assert shown(events) == "Let meAsk me later."
    assert run.result.output == "Ask me later."


async def test_hook_around_model_may_call_again_and_what_was_shown_is_superseded() -> None:
    async def around_model(run: Any, request: Any, call_next: Any) -> Any:
        await call_next(request)
        return await call_next(request.with_context("Once more."))

    model = ScriptedModel("First try.", "Second try.")
    events, run = await streamed(Agent(model, plugins=[plugin("around_model", around_model)]))
    completed = [event for event in events.events if event.type == "message_completed"]
    assert [(event.message.text, event.superseded) for event in completed] == [
        ("First try.", True),
        ("Second try.", False),
    ]
    assert [message.text for message in run.result.messages] == ["Go", "Second try."]


async def test_hook_around_model_that_raises_is_a_failed_model_call() -> None:
    errors: list[Exception] = []

    class Both:
        name = "both"

        @hookimpl
        async def around_model(self, run: Any, request: Any, call_next: Any) -> Any:
            raise ConnectionError("limiter is down")

        @hookimpl
        def on_model_error(self, run: Any, request: Any, error: Exception) -> None:
            errors.append(error)

    with pytest.raises(ConnectionError, match="limiter is down"):
        await Agent(ScriptedModel(), plugins=[Both()]).run("Go")
    assert [str(error) for error in errors] == ["limiter is down"]


async def test_hook_around_model_that_raises_after_the_answer_does_not_throw_it_away() -> None:
    async def around_model(run: Any, request: Any, call_next: Any) -> Any:
        await call_next(request)
        raise KeyError("meter")

    result = await Agent(ScriptedModel("Fine."), plugins=[plugin("around_model", around_model)]).run("Go")
    assert result.output == "Fine."
    assert [(one.plugin, one.hook) for one in result.hook_failures] == [("under-test", "around_model")]


# ---- on_delta --------------------------------------------------------------------------------------------------------


async def test_hook_on_delta_decides_what_is_shown_and_not_what_is_kept() -> None:
    def on_delta(run: Any, delta: Delta, final: bool) -> Delta:
        assert run.state.phase is AgentPhase.GENERATING
        return delta.replace(text=delta.text.replace("secret", "***"))

    events, run = await streamed(Agent(ScriptedModel("The secret word."), plugins=[plugin("on_delta", on_delta)]))
    assert shown(events) == "The *** word."
    assert run.result.output == "The secret word."


async def test_hook_on_delta_may_hold_back_until_the_segment_ends() -> None:
    held: list[str] = []

    def on_delta(run: Any, delta: Delta, final: bool) -> Any:
        held.append(delta.text)
        return [delta.replace(text="".join(held))] if final else []

    events, _ = await streamed(Agent(ScriptedModel("One two three."), plugins=[plugin("on_delta", on_delta)]))
    assert [event.text for event in events.events if event.type == "text_delta"] == ["One two three."]


async def test_hook_on_delta_passes_its_value_to_the_next_plugin() -> None:
    def suffix(text: str) -> Any:
        return lambda run, delta, final: delta if final else delta.replace(text=delta.text + text)

    plugins = [plugin("on_delta", suffix("2"), "inner"), plugin("on_delta", suffix("1"), "outer")]
    events, _ = await streamed(Agent(ScriptedModel("Hi"), plugins=plugins))
    assert shown(events) == "Hi12"


async def test_hook_on_delta_that_raises_fails_the_run() -> None:
    def on_delta(run: Any, delta: Delta, final: bool) -> Any:
        raise KeyError("filter")

    agent = Agent(ScriptedModel("The secret word."), plugins=[plugin("on_delta", on_delta)])
    events, run = await streamed(agent, catch=KeyError)
    assert run.result.status == "failed"
    assert shown(events) == ""


async def test_hook_on_delta_that_is_required_withholds_the_segment() -> None:
    def on_delta(run: Any, delta: Delta, final: bool) -> Any:
        raise KeyError("filter")

    agent = Agent(ScriptedModel("The secret word."), plugins=[plugin("on_delta", on_delta, required=True)])
    events, run = await streamed(agent, catch=KeyError)
    assert run.result.status == "failed"
    assert "secret" not in shown(events) + repr(run.result.messages)


# ---- on_model_error --------------------------------------------------------------------------------------------------


async def test_hook_on_model_error_may_retry() -> None:
    seen: list[tuple[AgentPhase, str, int]] = []

    async def on_model_error(run: Any, request: Any, error: Exception) -> RetryModel:
        seen.append((run.state.phase, str(error), request.turn))
        return RetryModel()

    model = ScriptedModel(ModelError("busy", model="m"), ModelError("still busy", model="m"), "Fine.")
    events, run = await streamed(Agent(model, plugins=[plugin("on_model_error", on_model_error)]))
    assert run.result.output == "Fine."
    assert seen == [(AgentPhase.GENERATING, "busy", 1), (AgentPhase.GENERATING, "still busy", 1)]
    assert [event.attempt for event in events.events if event.type == "model_started"] != []


async def test_hook_on_model_error_may_answer_instead_and_the_first_answer_counts() -> None:
    asked: list[str] = []

    def answering(name: str, value: Any) -> Any:
        def on_model_error(run: Any, request: Any, error: Exception) -> Any:
            asked.append(name)
            return value

        return plugin("on_model_error", on_model_error, name)

    fallback = ModelResponse(parts=(TextPart(text="Ask me later."),))
    plugins = [answering("third", RetryModel()), answering("second", fallback), answering("first", None)]
    result = await Agent(ScriptedModel(ModelError("down", model="m")), plugins=plugins).run("Go")
    assert result.output == "Ask me later."
    assert asked == ["first", "second"]


async def test_hook_on_model_error_that_raises_keeps_the_original_error() -> None:
    def on_model_error(run: Any, request: Any, error: Exception) -> Any:
        raise KeyError("retry table")

    original = ModelError("down", model="m")
    agent = Agent(ScriptedModel(original), plugins=[plugin("on_model_error", on_model_error)])
    _, run = await streamed(agent, catch=ModelError)
    assert run.result.error is original
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", "on_model_error")]


async def test_hook_on_model_error_is_not_called_for_a_stop() -> None:
    called: list[Exception] = []

    def on_model_error(run: Any, request: Any, error: Exception) -> None:
        called.append(error)

    agent = Agent(ScriptedModel("One two three."), plugins=[plugin("on_model_error", on_model_error)])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "text_delta":
                break
    assert run.result.status == "cancelled"
    assert called == []


# ---- after_model -----------------------------------------------------------------------------------------------------


async def test_hook_after_model_changes_what_the_history_keeps_in_reverse_order() -> None:
    order: list[tuple[str, AgentPhase, str]] = []

    def keeping(name: str) -> Any:
        def after_model(run: Any, response: ModelResponse) -> ModelResponse:
            assert response.parts is not None
            text = "".join(part.text for part in response.parts if part.kind == "text")
            order.append((name, run.state.phase, text))
            return response.replace(parts=(TextPart(text=f"{text} [{name}]"),))

        return plugin("after_model", after_model, name)

    events, run = await streamed(Agent(ScriptedModel("Fine."), plugins=[keeping("inner"), keeping("outer")]))
    assert order == [("inner", AgentPhase.READY, "Fine."), ("outer", AgentPhase.READY, "Fine. [inner]")]
    assert run.result.output == "Fine. [inner] [outer]"
    assert shown(events) == "Fine."


async def test_hook_after_model_that_raises_is_reported_and_the_message_stands() -> None:
    def after_model(run: Any, response: ModelResponse) -> None:
        raise KeyError("meter")

    events, run = await streamed(Agent(ScriptedModel("Fine."), plugins=[plugin("after_model", after_model)]))
    assert run.result.output == "Fine."
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("under-test", "after_model")]
    assert [event.hook for event in events.events if event.type == "plugin_failed"] == ["after_model"]


async def test_hook_after_model_that_is_required_withholds_the_message() -> None:
    def after_model(run: Any, response: ModelResponse) -> None:
        raise KeyError("filter")

    agent = Agent(ScriptedModel(Step("A secret.")), plugins=[plugin("after_model", after_model, required=True)])
    _, run = await streamed(agent, catch=KeyError)
    assert run.result.status == "failed"
    assert "secret" not in repr(run.result.messages)
    assert "withheld: plugin under-test failed" in repr(run.result.messages)


async def test_hook_after_model_sees_every_call_of_a_run_with_limits() -> None:
    reasons: list[str] = []

    async def after_model(run: Any, response: ModelResponse) -> None:
        reasons.append(response.stop_reason)

    agent = Agent(
        ScriptedModel(call("look"), "", "A ship."),
        tools=[look],
        limits=Limits(empty_replies=1),
        plugins=[plugin("after_model", after_model)],
    )
    await agent.run("Go")
    assert reasons == ["tool_calls", "end", "end"]
