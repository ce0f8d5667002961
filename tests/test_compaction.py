"""What the core does for compactions: asked for or not, progress, model calls beside the conversation, taking back."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, CompactedHistory, InMemoryStore, Limits, ModelRequest, ModelResponse, hookimpl, tool
from trilane.errors import (
    AgentProtocolError,
    ModelError,
    RunCancelledError,
    RunLimitError,
    SessionBusyError,
    SessionError,
    UnknownModelError,
)
from trilane.events import CompactionCompleted, CompactionProgress, PluginFailed
from trilane.messages import AssistantMessage, Delta, TextPart, ToolCall, ToolCallPart, Usage, UserMessage
from trilane.sessions import fork_session
from trilane.stores import MessageStored, ViewReplaced, undo_compaction
from trilane.testing import ScriptedModel, Step, assert_history, call, record, run_virtual
from trilane.testing.stores import append_all

pytestmark = pytest.mark.anyio


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


class PlainStore:
    """A store that has to be awaited."""

    def __init__(self) -> None:
        inner = InMemoryStore()
        self.lease, self.load, self.append = inner.lease, inner.load, inner.append


class Compactor:
    """Keeps the first message and the last, when it is asked for."""

    name = "compactor"

    def __init__(self, automatic: bool = False) -> None:
        self.automatic = automatic
        self.requested: list[bool] = []

    @hookimpl
    async def on_compact(self, run: Any, requested: bool) -> CompactedHistory | None:
        self.requested.append(requested)
        history = run.history
        if (requested or self.automatic) and len(history) > 2:
            await run.progress("half")
            return CompactedHistory(messages=(history[0], history[-1]), reason="the middle is left out")
        return None


class Asking:
    """Calls a model whenever it can compact."""

    name = "asking"

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.answers: list[ModelResponse | Exception] = []

    @hookimpl
    async def on_compact(self, run: Any) -> None:
        request = ModelRequest(instructions="Sum up.", messages=tuple(run.history))
        try:
            self.answers.append(await run.call_model(request, **self.options))
        except Exception as error:
            self.answers.append(error)


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages if message.kind in ("user", "assistant")]


async def seen(store: Any, session: str = "s") -> list[str]:
    """What a model sees of a session now."""
    model = ScriptedModel("Seen.")
    fork = await fork_session(store, session)
    await Agent(model, store=store).run("And?", session=fork)
    assert_history(model.requests[0].messages, as_request=True)
    return texts(model.requests[0].messages)[:-1]


# ---- asked for -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_store", [InMemoryStore, PlainStore])
async def test_hook_on_compact_is_told_whether_somebody_asked(make_store: Any) -> None:
    plugin, store = Compactor(), make_store()
    agent = Agent(ScriptedModel("One.", "Two."), plugins=[plugin], store=store)
    await agent.run("First", session="s")
    await agent.run("Second", session="s")
    assert await agent.compact("s") is True
    assert plugin.requested == [False, False, True]
    assert await seen(store) == ["First", "Two."]
    assert await agent.compact("s") is False


async def test_a_compaction_that_is_asked_for_shows_its_events_and_says_what_came_of_it() -> None:
    agent = Agent(ScriptedModel("One.", "Two."), plugins=[Compactor()])
    await agent.run("First", session="s")
    await agent.run("Second", session="s")
    for changed, output in ((True, "the middle is left out"), (False, "nothing to compact")):
        async with agent.stream_compaction("s") as run:
            events = await record(run)
        events.check()
        assert run.result.output == output
        done = events.one(CompactionCompleted)
        assert (done.changed, done.reason) == (changed, output)
        assert [event.text for event in events.of(CompactionProgress)] == ["half"] * changed


async def test_without_a_plugin_a_compaction_says_what_to_install() -> None:
    agent = Agent(ScriptedModel("One."))
    await agent.run("First", session="s")
    assert await agent.compact("s") is False
    async with agent.stream_compaction("s") as run:
        assert (await run.wait()).output == "no plugin can compact; pip install trilane-compact"


async def test_a_session_with_an_active_run_is_not_compacted() -> None:
    agent = Agent(ScriptedModel("One."), plugins=[Compactor()])
    async with agent.stream("First", session="s"):
        for compaction in (agent.compact, agent.undo_compaction):
            with pytest.raises(SessionBusyError):
                await compaction("s")


@pytest.mark.parametrize("make_store", [InMemoryStore, PlainStore])
async def test_a_call_that_waits_for_its_result_is_neither_answered_nor_compacted_away(make_store: Any) -> None:
    store = make_store()
    asked = AssistantMessage(id="a", parts=(ToolCallPart(call=ToolCall(id="c1", name="look")),))
    said = [UserMessage(id=f"u{n}", parts=(TextPart(text="Go"),)) for n in range(3)]
    await append_all(store, "s", *(MessageStored(run_id="r", message=message) for message in (*said, asked)))
    agent = Agent(ScriptedModel("Done."), tools=[look], plugins=[Compactor()], store=store)
    assert await agent.compact("s") is False
    async with agent.stream_compaction("s") as run:
        assert "resume it first" in (await run.wait()).output
    async with agent.stream_compaction("s") as run:  # left at once: nothing is answered in its name either
        pass
    async with agent.resume("s") as resumed:
        result = await resumed.wait()
    assert result.output == "Done."
    (answer,) = [message for message in result.messages if message.kind == "tool"]
    assert answer.results[0].content == "seen"


@pytest.mark.parametrize("make_store", [InMemoryStore, PlainStore])
async def test_what_a_plugin_made_of_the_history_for_one_run_is_not_stored_by_a_compaction(make_store: Any) -> None:
    class Reminder:
        name = "reminder"

        @hookimpl
        def on_state(self, run: Any) -> None:
            run.history.insert(0, UserMessage(id="reminder", parts=(TextPart(text="Remember the tide."),)))

    store, model = make_store(), ScriptedModel("One.", "Two.", "Three.")
    agent = Agent(model, plugins=[Compactor(automatic=True), Reminder()], store=store)
    for text in ("First", "Second", "Third"):
        result = await agent.run(text, session="s")
        assert texts(result.new_messages)[0] == text
    assert texts(model.requests[2].messages) == ["Remember the tide.", "Third"]
    assert await seen(store) == ["First", "One.", "Second", "Two.", "Third", "Three."]
    assert await agent.compact("s") is False
    async with agent.stream_compaction("s") as run:
        assert "edits the history" in (await run.wait()).output


async def test_the_new_messages_of_a_run_are_all_there_when_it_was_compacted() -> None:
    model = ScriptedModel("One.", call("look"), [call("look"), call("look")], "Done.")
    agent = Agent(model, tools=[look], plugins=[Compactor(automatic=True)])
    await agent.run("First", session="s")

    class Whole:
        name = "compactor"

        @hookimpl
        def on_compact(self, run: Any) -> CompactedHistory | None:
            history = list(run.history)
            return CompactedHistory(messages=(history[0], *history[-2:])) if len(history) > 3 else None

    agent = Agent(model, tools=[look], plugins=[Whole()], store=agent.store)
    result = await agent.run("Second", session="s")
    kinds = [message.kind for message in result.new_messages]
    assert kinds == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert texts(result.new_messages)[0] == "Second"
    assert len(result.messages) == 4
    for request in model.requests:
        assert_history(request.messages, as_request=True)


# ---- taking back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_store", [InMemoryStore, PlainStore])
async def test_compactions_are_taken_back_one_by_one_and_what_came_since_stays(make_store: Any) -> None:
    store, plugin = make_store(), Compactor()
    agent = Agent(ScriptedModel(*"12345"), plugins=[plugin], store=store)
    for text in "ab":
        await agent.run(text, session="s")
    await agent.compact("s")
    await agent.run("c", session="s")
    await agent.compact("s")
    await agent.run("d", session="s")
    assert await seen(store) == ["a", "3", "d", "4"]
    assert await agent.undo_compaction("s") is True
    assert await seen(store) == ["a", "2", "c", "3", "d", "4"]
    await agent.run("e", session="s")
    assert await agent.undo_compaction("s") is True
    assert await seen(store) == ["a", "1", "b", "2", "c", "3", "d", "4", "e", "5"]
    assert await agent.undo_compaction("s") is False
    assert await agent.compact("s") is True  # and it can be compacted anew
    assert await undo_compaction(store, "s") is True
    assert await seen(store) == ["a", "1", "b", "2", "c", "3", "d", "4", "e", "5"]
    assert await undo_compaction(store, "nowhere") is False


async def test_a_fork_of_a_compacted_session_can_be_taken_back_by_itself() -> None:
    store = InMemoryStore()
    agent = Agent(ScriptedModel(*"1234"), plugins=[Compactor()], store=store)
    for text in "ab":
        await agent.run(text, session="s")
    await agent.compact("s")
    await fork_session(store, "s", "t")
    assert await agent.undo_compaction("t") is True
    assert await seen(store, "t") == ["a", "1", "b", "2"]
    assert await seen(store) == ["a", "2"]
    first = (await store.load("s")).records[0]
    assert first.kind == "message"
    await fork_session(store, "s", "before", at_message=first.message.id)
    assert await agent.undo_compaction("before") is False


async def test_no_compaction_is_taken_back_while_a_call_waits() -> None:
    store = InMemoryStore()
    said = UserMessage(id="u", parts=(TextPart(text="Go"),))
    asked = AssistantMessage(id="a", parts=(ToolCallPart(call=ToolCall(id="c1", name="look")),))
    replaced = ViewReplaced(run_id="r", messages=(said,))
    await append_all(store, "s", MessageStored(run_id="r", message=said), replaced)
    await append_all(store, "s", MessageStored(run_id="r", message=asked))
    with pytest.raises(SessionError, match="resume the session first"):
        await undo_compaction(store, "s")
    async with store.lease("s", ttl_seconds=1):
        with pytest.raises(SessionBusyError):
            await undo_compaction(store, "s")


# ---- model calls beside the conversation -----------------------------------------------------------------------------


async def test_a_hook_has_the_model_of_the_run_answer_beside_the_conversation() -> None:
    plugin = Asking()
    model = ScriptedModel(Step("A sum.", usage=Usage(input_tokens=7, output_tokens=2)), "Hello.")
    async with Agent(model, plugins=[plugin]).stream("Go") as run:
        events = await record(run)
    events.check()
    (answer,) = plugin.answers
    assert isinstance(answer, ModelResponse)
    assert answer.parts == (TextPart(text="A sum."),)
    assert run.result.output == "Hello."
    assert run.result.turns == 1
    assert run.result.usage.input_tokens == 7  # counted, though it belongs to no turn
    assert "".join(event.text for event in events.events if event.type == "text_delta") == "Hello."
    assert texts(run.result.messages) == ["Go", "Hello."]


async def test_another_model_can_be_named_or_given() -> None:
    other = ScriptedModel("A sum.", "A sum.", name="other")

    class Provider:
        name = "other"

        @hookimpl
        def register_models(self, registry: Any) -> None:
            registry.add("other", lambda name: other)

    for chosen in ("other:model", other):
        plugin = Asking(model=chosen)
        model = ScriptedModel("Hello.")
        assert (await Agent(model, plugins=[plugin, Provider()]).run("Go")).output == "Hello."
        assert isinstance(plugin.answers[0], ModelResponse)
        assert len(model.requests) == 1
    plugin = Asking(model="nowhere")
    await Agent(ScriptedModel("Hello."), plugins=[plugin]).run("Go")
    assert isinstance(plugin.answers[0], UnknownModelError)


async def test_a_response_without_parts_is_what_was_emitted() -> None:
    heard: list[Delta] = []

    async def hear(delta: Delta) -> None:
        heard.append(delta)

    deltas = [
        Delta(kind="reasoning", text="Well", index=0),
        Delta(text="A ", index=1),
        Delta(text="sum.", index=1),
        Delta(kind="arguments", call_id="c", name="look", index=2),
        Delta(kind="arguments", text='{"n": 1}', index=2),
        Delta(kind="arguments", call_id="d", name="look", text="{", index=3),
    ]
    plugin = Asking(emit=hear)
    model = ScriptedModel(Step(deltas=deltas), "Hello.")
    await Agent(model, plugins=[plugin]).run("Go")
    (answer,) = plugin.answers
    assert isinstance(answer, ModelResponse)
    assert answer.parts is not None
    assert [part.kind for part in answer.parts] == ["reasoning", "text", "tool_call", "tool_call"]
    assert getattr(answer.parts[1], "text", "") == "A sum."
    calls = [part.call for part in answer.parts if part.kind == "tool_call"]
    assert [(one.id, dict(one.arguments), one.raw) for one in calls] == [("c", {"n": 1}, '{"n": 1}'), ("d", {}, "{")]
    assert heard == deltas


@pytest.mark.parametrize(
    ("returned", "failure", "text"),
    [
        (OSError("no network"), OSError, "no network"),
        (RunCancelledError("faked"), RunCancelledError, "faked"),
        (GeneratorExit(), ModelError, "raised GeneratorExit, which nobody had asked for"),
        ("nothing", ModelError, "call() returned str, not a ModelResponse"),
    ],
)
async def test_what_a_model_does_wrong_is_told_to_the_hook(returned: Any, failure: Any, text: str) -> None:
    class Wrong:
        name = "wrong"

        async def call(self, request: ModelRequest, emit: Any) -> Any:
            if isinstance(returned, BaseException):
                raise returned
            return returned

    plugin = Asking(model=Wrong())
    assert (await Agent(ScriptedModel("Hello."), plugins=[plugin]).run("Go")).output == "Hello."
    (error,) = plugin.answers
    assert isinstance(error, failure)
    assert text in str(error)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("limit", ["timeout", "model_seconds"])
def test_a_model_call_of_a_hook_has_its_time_which_stands_still_while_the_caller_is_waited_for(
    backend: Any, limit: str
) -> None:
    class Slow:
        name = "slow"

        async def call(self, request: ModelRequest, emit: Any) -> ModelResponse:
            await emit(Delta(text="A"))
            await anyio.sleep(1000)
            return ModelResponse()

    async def main() -> None:
        class Telling(Asking):
            @hookimpl
            async def on_compact(self, run: Any) -> None:
                async def tell(delta: Delta) -> None:
                    await run.progress(delta.text)

                self.options["emit"] = tell
                await super().on_compact(run)

        plugin = Telling(model=Slow(), timeout=5 if limit == "timeout" else None)
        limits = Limits(model_seconds=5 if limit == "model_seconds" else 50)
        async with Agent(ScriptedModel("Hello."), plugins=[plugin], limits=limits).stream("Go") as run:
            started = 0.0
            async for event in run:
                if event.type == "compaction_progress":
                    await anyio.sleep(600)  # the caller takes its time
                    started = anyio.current_time()
                if event.type == "compaction_completed":
                    assert anyio.current_time() - started == pytest.approx(5, abs=0.1)
        (error,) = plugin.answers
        assert isinstance(error, ModelError)
        assert "did not answer within 5 s" in str(error)
        assert run.result.output == "Hello."

    run_virtual(main, backend=backend)


async def test_what_a_model_call_of_a_hook_uses_counts_against_the_limits() -> None:
    model = ScriptedModel(Step("A sum.", usage=Usage(output_tokens=500)), "Hello.")
    with pytest.raises(RunLimitError, match="limit of 100 output tokens"):
        await Agent(model, plugins=[Asking()], limits=Limits(output_tokens=100)).run("Go")


async def test_no_model_is_called_after_the_run_and_no_progress_told_outside_of_a_compaction() -> None:
    class Plugin:
        name = "plugin"
        run: Any = None
        model_name = ""

        @hookimpl
        async def before_run(self, run: Any) -> None:
            self.run, self.model_name = run, run.model.name
            await run.progress("too early")

    plugin = Plugin()
    with pytest.raises(AgentProtocolError, match="none is going on"):
        await Agent(ScriptedModel("Hello."), plugins=[plugin]).run("Go")
    assert plugin.model_name == "scripted"
    with pytest.raises(AgentProtocolError, match="after the run has ended"):
        await plugin.run.call_model(ModelRequest())


async def test_progress_is_told_in_words() -> None:
    class Plugin:
        name = "plugin"

        @hookimpl
        async def on_compact(self, run: Any) -> None:
            await run.progress(5)

    async with Agent(ScriptedModel("Hello."), plugins=[Plugin()]).stream("Go") as run:
        events = await record(run)
    assert "takes text as a str, not int" in str(events.one(PluginFailed).error)
    assert events.one(CompactionCompleted).changed is False
    assert run.result.output == "Hello."
