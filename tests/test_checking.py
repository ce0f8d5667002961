"""What is wrong inside of what plugins, models and callers hand in is found there, and named: it hurts nobody else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from trilane import (
    Agent,
    Ask,
    CompactedHistory,
    Delta,
    Deny,
    InMemoryStore,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    Replace,
    RetryModel,
    Rewrite,
    SendBack,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResult,
    Usage,
    UseResult,
    UserMessage,
    hookimpl,
    tool,
)
from trilane.errors import ModelError, PluginError, ToolDefinitionError
from trilane.events import PluginFailed, ToolCompleted
from trilane.messages import ReasoningPart
from trilane.stores import record_from_json
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, no_leaks
from trilane.tools import Tool

pytestmark = pytest.mark.anyio

THING = object()  # nothing that JSON can express
NUL = "a\x00b\ud83d"


@tool
async def act(n: int) -> str:
    """Act."""
    return f"acted on {n}"


def plugin(hook: str, change: Callable[[Any], Any]) -> Any:
    """A plugin whose one hook returns what `change` makes of its argument."""

    class Odd:
        name = "odd"

        @hookimpl
        def on_message(self, message: Any) -> Any:
            return change(message)

        @hookimpl
        def on_model_request(self, request: Any) -> Any:
            return change(request)

        @hookimpl
        async def around_model(self, request: Any, call_next: Any) -> Any:
            return change(await call_next())

        @hookimpl
        def after_model(self, response: Any) -> Any:
            return change(response)

        @hookimpl
        def on_delta(self, delta: Any) -> Any:
            return change(delta)

        @hookimpl
        def on_model_error(self) -> Any:
            return change(None)

        @hookimpl
        def decide_tool(self) -> Any:
            return change(None)

        @hookimpl
        async def around_tool(self, call_next: Any) -> Any:
            return change(await call_next())

        @hookimpl
        def after_tool(self, result: Any) -> Any:
            return change(result)

        @hookimpl
        def on_answer(self, output: Any) -> Any:
            return change(output)

        @hookimpl
        def on_state(self, run: Any) -> None:
            change(run.history)

        @hookimpl
        def on_tool(self) -> Any:
            return change(None)

    return type("Odd", (), {"name": "odd", hook: vars(Odd)[hook]})()


async def read(agent: Agent[Any, Any], store: InMemoryStore) -> tuple[EventRecorder, Any]:
    """A run to its end; whatever came of it can be stored, and the session takes another run."""
    events = EventRecorder()
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            try:
                async for event in run:
                    events.events.append(event)
            finally:
                for record in (await store.load("s")).records:
                    assert record_from_json(record.to_json()).kind == record.kind
    assert_history(run.result.messages)
    return events, run.result


def agent_with(hook: str, change: Callable[[Any], Any], store: InMemoryStore) -> Agent[Any, Any]:
    model = ScriptedModel(call("act", n=1), "Done.", "Done.", "Done.")
    return Agent(model, tools=[act], plugins=[plugin(hook, change)], store=store)


CONTAINED: list[tuple[str, Callable[[Any], Any], str]] = [
    ("after_model", lambda response: response.replace(parts=(5,)), "parts.0"),
    ("after_model", lambda response: response.replace(parts=(TextPart(text=None),)), "parts.0.TextPart.text"),  # type: ignore[arg-type]
    ("after_model", lambda response: response.replace(stop_reason="done"), "stop_reason"),
    ("after_model", lambda response: response.replace(usage=5), "usage"),
    ("after_model", lambda response: response.replace(extra={"a": THING}), "extra"),
    ("around_model", lambda response: response.replace(parts=(TextPart(text=5),)), "parts.0.TextPart.text"),  # type: ignore[arg-type]
    ("after_tool", lambda result: result.replace(content=THING), "content"),
    ("after_tool", lambda result: result.replace(content=None), "content"),
    ("after_tool", lambda result: result.replace(outcome="fine"), "outcome"),
    ("after_tool", lambda result: result.replace(data=THING), "data"),
    ("around_tool", lambda result: result.replace(content=THING), "content"),
    ("around_tool", lambda result: result.replace(data={"a": {THING}}), "data"),
]


@pytest.mark.parametrize(("hook", "change", "where"), CONTAINED)
async def test_what_cannot_be_used_is_reported_and_what_was_there_before_stands(
    hook: str, change: Callable[[Any], Any], where: str
) -> None:
    store = InMemoryStore()
    events, result = await read(agent_with(hook, change, store), store)
    assert result.output == "Done."
    assert [event.result.content for event in events.of(ToolCompleted)] == ["acted on 1"]
    error = str(events.of(PluginFailed)[0].error)
    assert f"plugin 'odd': {hook} (" in error
    assert f"that cannot be used: {where}" in error


FATAL: list[tuple[str, Callable[[Any], Any], str]] = [
    ("on_message", lambda message: message.replace(parts=(5,)), "UserMessage that cannot be used: parts.0"),
    ("on_message", lambda message: message.replace(parts=(TextPart(text=5),)), "parts.0.TextPart.text"),  # type: ignore[arg-type]
    ("on_model_request", lambda request: request.replace(instructions=5), "instructions: int, not str"),
    ("on_model_request", lambda request: request.replace(settings=5), "settings: int, not ModelSettings"),
    ("on_model_request", lambda request: request.replace(tools=(5,)), "tools.0: int, not ToolSpec"),
    ("on_model_request", lambda request: request.replace(tools=5), "tools: int, not tuple"),
    ("on_model_request", lambda request: request.replace(messages=(5,)), "messages.0: int, not a message"),
    ("on_model_request", lambda request: request.replace(context=(5,)), "context.0: int, not str"),
    ("on_delta", lambda delta: delta.replace(text=5), "Delta that cannot be used: text"),
    ("on_delta", lambda delta: [delta, delta.replace(kind="sound")], "Delta that cannot be used: kind"),
    ("on_answer", lambda output: SendBack(feedback=5), "SendBack that cannot be used: feedback"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("hook", "change", "reason"), FATAL)
async def test_where_an_error_of_a_hook_ends_the_run_it_says_whose_it_is(
    hook: str, change: Callable[[Any], Any], reason: str
) -> None:
    store = InMemoryStore()
    with pytest.raises(PluginError, match=rf"plugin 'odd': {hook} \(") as caught:
        await read(agent_with(hook, change, store), store)
    assert reason in str(caught.value)
    again: Agent[Any, str] = Agent(ScriptedModel("Fine."), tools=[act], store=store)
    assert (await again.run("Go", session="s")).output == "Fine."


DECISIONS: list[Any] = [
    Deny(reason=None),  # type: ignore[arg-type]
    Rewrite(arguments="n=1"),  # type: ignore[arg-type]
    Rewrite(arguments={"n": THING}),  # type: ignore[dict-item]
    UseResult(result=None),  # type: ignore[arg-type]
    UseResult(result=ToolResult(call_id="x", content=THING)),  # type: ignore[arg-type]
    Ask(prompt=None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: type(decision).__name__)
async def test_a_decision_that_cannot_be_used_denies_the_call(decision: Any) -> None:
    store = InMemoryStore()
    events, result = await read(agent_with("decide_tool", lambda _: decision, store), store)
    assert result.output == "Done."
    assert [event.result.outcome for event in events.of(ToolCompleted)] == ["denied"]
    returned = f"returned {'an' if isinstance(decision, Ask) else 'a'} {type(decision).__name__}"
    assert f"{returned} that cannot be used" in str(events.one(PluginFailed).error)


async def test_a_decision_about_an_error_that_cannot_be_used_leaves_the_error() -> None:
    class Failing:
        name = "failing"

        async def call(self, request: Any, emit: Any) -> Any:
            raise ValueError("no luck")

    store = InMemoryStore()
    retry = RetryModel(after_seconds="soon")  # type: ignore[arg-type]
    agent: Agent[Any, str] = Agent(Failing(), plugins=[plugin("on_model_error", lambda _: retry)], store=store)
    with pytest.raises(ValueError, match="no luck"):
        await read(agent, store)


async def test_what_is_put_into_the_history_of_a_run_is_checked_where_that_is_done() -> None:
    found: list[str] = []

    def change(history: Any) -> None:
        good = UserMessage(id="m0", parts=[TextPart(text=NUL)])  # type: ignore[arg-type]
        history[:] = [*history, good]
        assert history[0] == UserMessage(id="m0", parts=(TextPart(text="a\ufffdb\ufffd"),))
        bad = UserMessage(id="m1", parts=(5,))  # type: ignore[arg-type]
        for edit in (lambda: history.append(5), lambda: history.insert(0, bad), lambda: history.extend([bad])):
            with pytest.raises((TypeError, ValueError)) as caught:
                edit()
            found.append(str(caught.value))
        with pytest.raises(TypeError):
            history[0] = "Hello"
        assert len(history) == 1
        first = history[0]
        history[0] = first
        history.append(first)
        history.reverse()
        assert history.pop() is history[0] is first

    store = InMemoryStore()
    await read(agent_with("on_state", change, store), store)
    assert found[0] == "0: int, not a message"
    assert "parts.0" in found[1] == found[2]


async def test_a_tool_of_a_plugin_that_is_none_is_named_with_its_plugin() -> None:
    store = InMemoryStore()
    with pytest.raises(ToolDefinitionError, match=r"plugin 'odd': on_tool \(.*returned what is no tool: 5"):
        await read(agent_with("on_tool", lambda _: [5], store), store)


def a_tool() -> str:
    """Return a text."""
    return ""


@pytest.mark.parametrize(
    ("offered", "advice"),
    [
        ("a text", "returned str; return a list of tools: functions, or what Tool.from_function makes"),
        (5, "returned int; return a list of tools: functions, or what Tool.from_function makes"),
        (a_tool, "returned function; return a list of tools, such as [a_tool]"),
        (Tool.from_function(a_tool, name="named"), "returned Tool; return a list of tools, such as [named]"),
    ],
)
async def test_what_is_no_list_of_tools_is_told_with_what_to_return(offered: Any, advice: str) -> None:
    store = InMemoryStore()
    with pytest.raises(PluginError) as caught:
        await read(agent_with("on_tool", lambda _: offered, store), store)
    assert str(caught.value).endswith(advice)


async def test_lists_become_what_was_declared_and_texts_what_every_store_can_keep() -> None:
    store = InMemoryStore()
    agent = agent_with("on_message", lambda message: message.replace(parts=[TextPart(text=NUL)]), store)
    _, result = await read(agent, store)
    assert result.messages[0] == result.messages[0].replace(parts=(TextPart(text="a\ufffdb\ufffd"),))
    events, _ = await read(agent_with("after_tool", lambda one: one.replace(content=NUL, data=[NUL]), store), store)
    shown = events.of(ToolCompleted)[0].result
    assert (shown.content, shown.data) == ("a\ufffdb\ufffd", ["a\ufffdb\ufffd"])


async def test_what_can_be_written_as_json_becomes_json() -> None:
    class Place(BaseModel):
        name: str = "Kuopio"

    data = {"places": (Place(),), "on": date(2026, 1, 2)}
    store = InMemoryStore()
    events, _ = await read(agent_with("after_tool", lambda one: one.replace(data=data), store), store)
    assert events.of(ToolCompleted)[0].result.data == {"places": [{"name": "Kuopio"}], "on": "2026-01-02"}


async def test_what_is_right_is_left_as_it_is_whatever_a_subclass_adds() -> None:
    class Raw:
        """What an SDK gave; nothing that pydantic knows."""

    class Traced(ModelResponse):
        raw: Any = None

    Traced.__annotations__["raw"] = Traced._record_fields["raw"] = "Raw"  # a name that only a type checker can see

    class Noted(ToolResult):
        raw: Any = None

    class Counted(Usage):
        audio_tokens: int = 0

    seen: list[Any] = []

    def change(result: Any) -> Any:
        seen.append(Noted(call_id=result.call_id, content=(f"noted {result.content}",), raw=Raw()))
        return seen[0]

    def look(response: Any) -> None:
        seen.append(response.usage)

    model = Answering(Traced(extra={"a": 1}, usage=Counted(audio_tokens=3), raw=Raw()), Delta(text="Said."))
    store = InMemoryStore()
    _, result = await read(Agent(model, plugins=[plugin("after_model", look)], store=store), store)
    assert result.output == "Said."
    assert seen.pop().audio_tokens == 3
    store = InMemoryStore()
    events, _ = await read(agent_with("after_tool", change, store), store)
    assert events.of(ToolCompleted)[0].result is seen[0]


async def test_parts_may_come_from_a_generator_whatever_else_is_made_of_the_answer() -> None:
    parts = (part for part in [TextPart(text="first "), TextPart(text="second", extra={"t": (1, 2)})])  # type: ignore[dict-item]
    store = InMemoryStore()
    _, result = await read(Agent(Answering(ModelResponse(parts=parts)), store=store), store)  # type: ignore[arg-type]
    assert result.output == "first second"
    assert result.messages[1].parts[1].extra == {"t": [1, 2]}


async def test_none_stands_for_what_may_be_left_out() -> None:
    deltas = [
        Delta(kind="arguments", text="", index=None, call_id="c", name="act"),  # type: ignore[arg-type]
        Delta(kind="arguments", text='{"n": 1}', index=None, call_id=None, name=None),  # type: ignore[arg-type]
    ]
    answers = iter(
        [
            (deltas, ModelResponse(model=None, stop_reason="tool_calls")),  # type: ignore[arg-type]
            ([], ModelResponse(parts=(ToolCallPart(call=ToolCall(id=None, name="act", arguments={"n": 2})),))),  # type: ignore[arg-type]
            ([], ModelResponse(parts=(ToolCallPart(call=ToolCall(id=None, name="act", arguments={"n": [3]})),))),  # type: ignore[arg-type]
            ([], ModelResponse(parts=(ReasoningPart(text="Hm.", signature=None), TextPart(text="Done.")), usage=None)),  # type: ignore[arg-type]
        ]
    )

    class Sparing(Answering):
        async def call(self, request: Any, emit: Any) -> Any:
            deltas, answer = next(answers)
            for delta in deltas:
                await emit(delta)
            return answer

    store = InMemoryStore()
    events, result = await read(Agent(Sparing(None), tools=[act], store=store), store)
    assert [event.result.content for event in events.of(ToolCompleted)][:2] == ["acted on 1", "acted on 2"]
    assert len(events.of(ToolCompleted)) == 3
    assert result.output == "Done."
    assert result.messages[-1].parts[0].signature == ""


async def test_an_output_may_be_anything() -> None:
    store = InMemoryStore()
    _, result = await read(agent_with("on_answer", lambda _: Replace(output=THING), store), store)
    assert result.output is THING


class Broken:
    """An iterator that fails."""

    def __iter__(self) -> Broken:
        return self

    def __next__(self) -> Any:
        raise KeyError("a")


ANSWERS: list[tuple[Any, str]] = [
    (ModelResponse(parts=(5,)), "parts.0"),  # type: ignore[arg-type]
    (ModelResponse(parts=5), "parts"),  # type: ignore[arg-type]
    (ModelResponse(parts=(TextPart(text=None),)), "parts.0.TextPart.text"),  # type: ignore[arg-type]
    (ModelResponse(parts=(ReasoningPart(text="x", signature=5),)), "parts.0.ReasoningPart.signature"),  # type: ignore[arg-type]
    (ModelResponse(parts=(TextPart(text="x", extra=THING),)), "parts.0.TextPart.extra"),  # type: ignore[arg-type]
    (ModelResponse(parts=(ToolCallPart(call=None),)), "parts.0.ToolCallPart.call"),  # type: ignore[arg-type]
    (ModelResponse(parts=(ToolCallPart(call=ToolCall(id=7, name="act")),)), "parts.0.ToolCallPart.call.id"),  # type: ignore[arg-type]
    (
        ModelResponse(parts=(ToolCallPart(call=ToolCall(id="c", name="act", arguments={"n": THING})),)),  # type: ignore[dict-item]
        "parts.0.ToolCallPart.call.arguments.n",
    ),
    (ModelResponse(stop_reason="done"), "stop_reason"),  # type: ignore[arg-type]
    (ModelResponse(stop_reason=["end"]), "stop_reason"),  # type: ignore[arg-type]
    (ModelResponse(parts=Broken()), "reading it failed with KeyError"),  # type: ignore[arg-type]
    (ModelResponse(usage=5), "usage"),  # type: ignore[arg-type]
    (ModelResponse(usage=Usage(input_tokens="many")), "usage.input_tokens"),  # type: ignore[arg-type]
    (ModelResponse(extra=THING), "extra"),  # type: ignore[arg-type]
    (ModelResponse(model=5), "model"),  # type: ignore[arg-type]
]


class Answering:
    """A model with one answer, after one delta."""

    name = "answering"

    def __init__(self, answer: Any, *deltas: Any) -> None:
        self.answer = answer
        self.deltas = deltas

    async def call(self, request: Any, emit: Any) -> Any:
        for delta in self.deltas:
            await emit(delta)
        return self.answer


@pytest.mark.parametrize(("answer", "where"), ANSWERS, ids=[where for _, where in ANSWERS])
async def test_an_answer_that_cannot_be_used_is_an_error_of_its_model(answer: Any, where: str) -> None:
    store = InMemoryStore()
    agent: Agent[Any, str] = Agent(Answering(answer, Delta(text="Said.")), tools=[act], store=store)
    with pytest.raises(ModelError, match="model answering: call") as caught:
        await read(agent, store)
    assert f"returned a ModelResponse that cannot be used: {where}" in str(caught.value)
    again: Agent[Any, str] = Agent(ScriptedModel("Fine."), store=store)
    kept = (await again.run("Go", session="s")).messages
    assert kept[-1].kind == "assistant"


async def test_an_answer_of_another_shape_is_taken_as_it_was_declared() -> None:
    parts = [
        TextPart(text="Well."),
        ToolCallPart(call=ToolCall(id="c", name="act", arguments={"n": 1}), extra={"a": [1]}),
    ]
    answers = iter(
        [ModelResponse(parts=parts, stop_reason="tool_calls"), ModelResponse(parts=(TextPart(text="Done."),))]
    )  # type: ignore[arg-type]

    class Two(Answering):
        async def call(self, request: Any, emit: Any) -> Any:
            return next(answers)

    store = InMemoryStore()
    _, result = await read(Agent(Two(None), tools=[act], store=store), store)
    assert result.output == "Done."
    assert result.messages[1].parts == tuple(parts)


@pytest.mark.parametrize(
    ("delta", "where"),
    [
        (Delta(text=5), "text"),  # type: ignore[arg-type]
        (Delta(text="x", kind="sound"), "kind"),  # type: ignore[arg-type]
        (Delta(text="x", index="first"), "index"),  # type: ignore[arg-type]
        (Delta(kind="arguments", text="{}", name=5), "name"),  # type: ignore[arg-type]
        (Delta(text="x", extra=THING), "extra"),  # type: ignore[arg-type]
    ],
)
async def test_a_delta_that_cannot_be_used_is_refused_where_it_is_emitted(delta: Any, where: str) -> None:
    store = InMemoryStore()
    agent: Agent[Any, str] = Agent(Answering(ModelResponse(), delta), store=store)
    with pytest.raises(TypeError, match=rf"emit\(\) takes a Delta that can be used, and of this one {where}"):
        await read(agent, store)


async def test_a_result_of_a_tool_with_an_outcome_that_there_is_not_is_an_error() -> None:
    @tool
    async def odd() -> Any:
        """Be odd."""
        return ToolResult(call_id="x", content="ok", outcome="fine")  # type: ignore[arg-type]

    store = InMemoryStore()
    events, _ = await read(Agent(ScriptedModel(call("odd"), "Done."), tools=[odd], store=store), store)
    result = events.of(ToolCompleted)[0].result
    assert result.outcome == "error"
    assert "its outcome is 'fine', which is none of ok, error, denied" in str(result.content)


async def test_a_compaction_keeps_what_was_there_and_checks_what_is_new() -> None:
    made: list[Any] = [UserMessage(id="new", parts=(5,))]  # type: ignore[arg-type]

    class Compacting:
        name = "compacting"

        @hookimpl
        def on_compact(self, run: Any, requested: bool) -> Any:
            return CompactedHistory(messages=(*made, *run.history[-2:])) if requested else None

    store = InMemoryStore()
    agent: Agent[Any, str] = Agent(ScriptedModel("One.", "Two."), plugins=[Compacting()], store=store)
    await agent.run("First", session="s")
    last = await agent.run("Second", session="s")
    events = EventRecorder()
    for _ in range(2):
        async with agent.stream_compaction("s") as run:
            async for event in run:
                events.events.append(event)
        made[0] = UserMessage(id="new", parts=(TextPart(text="Before."),))
    assert "not used: 0.parts.0" in str(events.events)
    log = store.open_now("s").log
    assert [message.id for message in log] == ["new", *(message.id for message in last.messages[-2:])]
    assert log[-1] is last.messages[-1]


async def test_a_result_of_a_hook_needs_no_id() -> None:
    for hook in ("after_tool", "around_tool"):
        store = InMemoryStore()
        agent = agent_with(hook, lambda one: one.replace(call_id=None, content="redacted"), store)
        events, _ = await read(agent, store)
        result = events.of(ToolCompleted)[0].result
        assert result.call_id.startswith("call_")
        assert result.content == "redacted"


async def test_of_settings_only_what_a_plugin_changed_is_its_own() -> None:
    def change(request: Any) -> Any:
        return request.replace(settings=request.settings.replace(temperature="0.5"), instructions=None, context=None)

    seen: list[Any] = []

    class Looking(Answering):
        async def call(self, request: Any, emit: Any) -> Any:
            seen.append(request)
            return self.answer

    store = InMemoryStore()
    settings = ModelSettings(extra={"criteria": THING})  # type: ignore[dict-item]
    model = Looking(ModelResponse(parts=(TextPart(text="Done."),)))
    await read(Agent(model, plugins=[plugin("on_model_request", change)], model_settings=settings, store=store), store)
    assert (seen[0].settings.temperature, seen[0].settings.extra) == (0.5, {"criteria": THING})
    assert (seen[0].instructions, seen[0].context) == ("", ())


async def test_numbers_become_the_numbers_that_were_declared() -> None:
    answer = ModelResponse(parts=(TextPart(text="Done."),), usage=Usage(cost=Decimal("0.25"), input_tokens=5.0))  # type: ignore[arg-type]
    store = InMemoryStore()
    _, result = await read(Agent(Answering(answer), store=store), store)
    assert (result.usage.cost, type(result.usage.cost), type(result.usage.input_tokens)) == (0.25, float, int)


async def test_what_a_provider_wants_back_can_be_stored_too() -> None:
    answer = ModelResponse(extra={"id": NUL})
    delta = Delta(kind="reasoning", text="Hm.", extra={"details": [{"text": NUL}]})
    store = InMemoryStore()
    _, result = await read(Agent(Answering(answer, delta, Delta(text="Said.")), store=store), store)
    assert result.messages[1].extra == {"id": "a\ufffdb\ufffd"}
    assert result.messages[1].parts[0].extra == {"details": [{"text": "a\ufffdb\ufffd"}]}


async def test_a_model_beside_the_conversation_is_named_as_well() -> None:
    outcomes: list[str] = []

    class Asking:
        name = "asking"

        @hookimpl
        async def before_run(self, run: Any) -> None:
            request = ModelRequest(messages=(UserMessage(id="m", parts=(TextPart(text="Hello"),)),))
            for answer in (ModelResponse(parts=5), ModelResponse(usage=5)):  # type: ignore[arg-type]
                with pytest.raises(ModelError) as caught:
                    await run.call_model(request, model=Answering(answer))
                outcomes.append(str(caught.value))
            fine = await run.call_model(request, model=Answering(ModelResponse(usage=None), Delta(text="Hi.")))  # type: ignore[arg-type]
            outcomes.append(fine.parts[0].text)

    agent: Agent[Any, str] = Agent(ScriptedModel("Done."), plugins=[Asking()])
    await agent.run("Go")
    assert "model answering: call() returned a ModelResponse that cannot be used: parts" in outcomes[0]
    assert "that cannot be used: usage" in outcomes[1]
    assert outcomes[2] == "Hi."
