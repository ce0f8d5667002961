"""The modes of hooks and what an exception does in each, on running agents. `decide_tool` is in `test_decide.py`."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, hookimpl, tool
from trilane.decisions import CompactedHistory, Replace, RetryModel, SendBack
from trilane.errors import PluginError, RunLimitError, ToolDefinitionError
from trilane.events import CompactionCompleted, ExtensionEvent, MessageCompleted, PluginFailed, ToolCompleted
from trilane.messages import TextPart, ToolResult, UserMessage
from trilane.models import ModelRequest, ModelResponse
from trilane.testing import EventRecorder, Recorder, ScriptedModel, Step, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


async def streamed(
    *plugins: Any, script: tuple[Any, ...] = ("Hello.",), catch: Any = (), **options: Any
) -> tuple[EventRecorder, Any]:
    """The events and the stream of one run; `plugins` are called in the order given."""
    agent = Agent(ScriptedModel(*script), tools=[look], plugins=list(reversed(plugins)))
    async with no_leaks():
        async with agent.stream("Go", **options) as run:
            events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


# ---- each, chain: the first error fails the run


@pytest.mark.parametrize("hook", ["on_tool", "on_state", "on_message", "before_run", "before_turn", "on_model_request"])
async def test_r45_w30_an_error_on_the_way_in_fails_the_run_and_keeps_what_was_said(hook: str) -> None:
    recorder = Recorder()

    error = ValueError("boom")

    class Plugin:
        name = "broken"

    def fail() -> None:
        raise error

    broken = Plugin()
    setattr(broken, hook, hookimpl(fail))
    events, run = await streamed(broken, recorder, catch=ValueError)
    assert events.error is error
    assert any("plugin 'broken'" in note and hook in note for note in error.__notes__)
    assert run.result.status == "failed"
    assert recorder.names("on_error", "on_cancel", "on_success", "after_run", "close_run") == ["on_error", "close_run"]
    assert recorder.names(hook) == []  # the first error ends it: the one behind was not called
    # W30: what the user said is kept, whichever hook failed.
    assert [message.kind for message in run.result.messages] == ["user"]


async def test_each_on_tool_adds_tools_and_names_who_offers_a_name_twice() -> None:
    def offering(name: str) -> Any:
        class Plugin:
            @hookimpl
            def on_tool(self) -> Any:
                async def extra() -> str:
                    """Do more."""
                    return f"extra of {name}"

                return [extra]

        made = Plugin()
        made.name = name  # type: ignore[attr-defined]
        return made

    events, _ = await streamed(offering("one"), script=(call("extra"), "Done."))
    assert events.one(ToolCompleted).result.content == "extra of one"
    events, _ = await streamed(offering("one"), offering("two"), catch=ToolDefinitionError)
    assert "plugin 'two' offers a tool named 'extra', and plugin 'one' has one" in str(events.error)


async def test_each_on_tool_may_be_a_generator_of_tools() -> None:
    class Plugin:
        name = "generator"

        @hookimpl
        def on_tool(self) -> Any:
            async def extra() -> str:
                """Do more."""
                return "extra"

            return (one for one in [extra])

    events, _ = await streamed(Plugin(), script=(call("extra"), "Done."))
    assert events.one(ToolCompleted).result.content == "extra"


async def test_chain_passes_the_value_through_and_none_keeps_it() -> None:
    class Shout:
        name = "shout"

        @hookimpl
        def on_message(self, message: UserMessage) -> UserMessage:
            return message.replace(parts=(TextPart(text=message.text.upper()),))

    class Bang:
        name = "bang"

        @hookimpl
        async def on_message(self, message: UserMessage) -> UserMessage:
            return message.replace(parts=(TextPart(text=message.text + "!"),))

    class Nothing:
        name = "nothing"

        @hookimpl
        def on_message(self, message: UserMessage) -> None:
            return None

    _, run = await streamed(Shout(), Nothing(), Bang())
    assert run.result.messages[0].text == "GO!"
    changes = {row.plugin: row.changes for row in run.result.ledger}
    assert changes == {"shout": 1, "nothing": 0, "bang": 1}


async def test_chain_of_the_wrong_type_fails_and_names_the_place() -> None:
    class Odd:
        name = "odd"

        @hookimpl
        def on_message(self, message: UserMessage) -> Any:
            return "text"

    events, _ = await streamed(Odd(), catch=PluginError)
    assert "plugin 'odd': on_message" in str(events.error)
    assert "return UserMessage or None" in str(events.error)


async def test_a_changed_request_never_touches_the_history() -> None:
    class Context:
        name = "context"

        @hookimpl
        def on_model_request(self, request: ModelRequest) -> ModelRequest:
            return request.with_context("It is Sunday.").replace(instructions="Be brief.")

    model = ScriptedModel(call("look"), "Done.")
    result = await Agent(model, tools=[look], plugins=[Context()]).run("Go")
    assert [request.context for request in model.requests] == [("It is Sunday.",)] * 2
    assert model.requests[0].instructions == "Be brief."
    assert "Sunday" not in "".join(message.to_json() for message in result.messages)


async def test_on_state_edits_what_this_run_sees_and_not_the_store() -> None:
    class Forget:
        name = "forget"

        @hookimpl
        def on_state(self, run: Any) -> None:
            del run.history[:]

        @hookimpl
        def before_run(self, run: Any) -> None:
            with pytest.raises(Exception, match="on_state only"):
                del run.history[:]

    model = ScriptedModel("One.", "Two.", "Three.")
    agent = Agent(model, plugins=[Forget()])
    await agent.run("First", session="s")
    await agent.run("Second", session="s")
    assert [message.text for message in model.requests[1].messages] == ["Second"]
    plain = Agent(model, store=agent.store)
    await plain.run("Third", session="s")
    assert [message.text for message in model.requests[2].messages] == ["First", "One.", "Second", "Two.", "Third"]


# ---- the committed value stands


async def test_w03_an_error_in_after_tool_or_after_model_is_reported_and_the_value_stands() -> None:
    class Broken:
        name = "broken"

        @hookimpl
        def after_model(self) -> None:
            raise KeyError("model")

        @hookimpl
        async def after_tool(self) -> None:
            raise KeyError("tool")

    events, run = await streamed(Broken(), script=(call("look"), "Done."))
    assert run.result.output == "Done."
    assert events.one(ToolCompleted).result.content == "a ship"
    reported = [(event.plugin, event.hook) for event in events.of(PluginFailed)]
    assert reported == [("broken", "after_model"), ("broken", "after_tool"), ("broken", "after_model")]
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == reported


async def test_after_tool_and_after_model_change_what_history_keeps() -> None:
    class Change:
        name = "change"

        @hookimpl
        def after_model(self, response: ModelResponse) -> Any:
            if response.stop_reason == "end":
                return response.replace(parts=(TextPart(text="Changed."),))
            return None

        @hookimpl
        def after_tool(self, result: ToolResult) -> ToolResult:
            return result.replace(content="two ships", call_id="nonsense")

    events, run = await streamed(Change(), script=(call("look"), "Done."))
    assert events.texts() == ["Done."]  # what was shown is on_delta's
    assert run.result.output == "Changed."
    completed = events.one(ToolCompleted)
    assert (completed.result.content, completed.result.call_id) == ("two ships", completed.call.id)
    assert events.of(MessageCompleted)[-1].message.text == "Changed."


@pytest.mark.parametrize("hook", ["after_model", "after_tool", "on_delta"])
async def test_required_hooks_withhold_the_value_and_fail_the_run(hook: str) -> None:
    error = ValueError("boom")

    def fail() -> None:
        raise error

    class Guard:
        name = "guard"

    guard = Guard()
    setattr(guard, hook, hookimpl(required=True)(fail))
    script = (call("look"), "Done.") if hook == "after_tool" else ("the secret word",)
    events, run = await streamed(guard, script=script, catch=ValueError)
    assert events.error is error
    assert run.result.status == "failed"
    stored = "".join(message.to_json() for message in run.result.messages)
    assert "withheld: plugin guard failed" in stored
    secret = "a ship" if hook == "after_tool" else "secret"
    assert secret not in stored
    shown = "".join(event.to_json() for event in events if event.type != "text_delta")
    assert secret not in shown
    if hook == "on_delta":
        assert not events.texts()


# ---- first


async def test_first_takes_the_first_result_that_is_not_none() -> None:
    asked: list[str] = []

    def retrier(name: str, value: Any) -> Any:
        class Plugin:
            @hookimpl
            async def on_model_error(self, error: Exception) -> Any:
                asked.append(name)
                return value

        made = Plugin()
        made.name = name  # type: ignore[attr-defined]
        return made

    _, run = await streamed(
        *(retrier("no", None), retrier("yes", RetryModel()), retrier("late", None)),
        script=(ConnectionError(), "Hello."),
    )
    assert (run.result.output, asked) == ("Hello.", ["no", "yes"])


async def test_an_error_in_on_model_error_keeps_the_original_error() -> None:
    class Broken:
        name = "broken"

        @hookimpl
        def on_model_error(self) -> None:
            raise KeyError("another")

    gone = ConnectionError("gone")
    events, run = await streamed(Broken(), script=(gone,), catch=ConnectionError)
    assert events.error is gone
    assert [(one.plugin, one.hook) for one in run.result.hook_failures] == [("broken", "on_model_error")]


async def test_on_model_error_may_answer_itself() -> None:
    class Answer:
        name = "answer"

        @hookimpl
        def on_model_error(self) -> ModelResponse:
            return ModelResponse(parts=(TextPart(text="The model is away."),))

    events, run = await streamed(Answer(), script=(Step("Half an", error=ConnectionError()),))
    assert run.result.output == "The model is away."
    first, second = events.of(MessageCompleted)
    assert (first.superseded, first.interrupted, second.superseded) == (True, True, False)
    assert [message.text for message in run.result.messages] == ["Go", "The model is away."]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (KeyError("x"), "plugin 'compactor' failed: KeyError"),
        (CompactedHistory(messages=()), "not used: it is empty"),
        ("nonsense", "not used: on_compact returned str"),
        (None, "nothing to compact"),
    ],
)
async def test_w31_compaction_is_optional_and_never_fails_a_run(value: Any, reason: str) -> None:
    class Compactor:
        name = "compactor"

        @hookimpl
        def on_compact(self) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

    events, run = await streamed(Compactor())
    assert run.result.output == "Hello."
    completed = events.one(CompactionCompleted)
    assert (completed.changed, completed.reason.startswith(reason)) == (False, True)


async def test_a_compaction_changes_what_the_model_sees() -> None:
    class Compactor:
        name = "compactor"

        @hookimpl
        def on_compact(self, run: Any) -> Any:
            if len(run.history) < 3:
                return None
            summary = UserMessage(id="summary", parts=(TextPart(text="Earlier: hello."),))
            return CompactedHistory(messages=(summary, run.history[-1]), reason="too long")

    model = ScriptedModel("One.", "Two.")
    agent = Agent(model, plugins=[Compactor()])
    await agent.run("First", session="s")
    async with agent.stream("Second", session="s") as run:
        events = await record(run)
    events.check()
    assert [message.text for message in model.requests[1].messages] == ["Earlier: hello.", "Second"]
    assert events.one(CompactionCompleted).changed
    page = await agent.store.load("s")
    raw = [record.message.text for record in page.records if record.kind == "message"]  # type: ignore[union-attr]
    assert raw == ["First", "One.", "Second", "Two."]


async def test_a_compaction_that_parts_calls_from_results_is_not_used() -> None:
    class Compactor:
        name = "compactor"

        @hookimpl
        def on_compact(self, run: Any) -> Any:
            if run.history[-1].kind != "tool":
                return None
            return CompactedHistory(messages=tuple(run.history[:-1]))

    events, run = await streamed(Compactor(), script=(call("look"), "Done."))
    assert run.result.output == "Done."
    assert "parted from its result" in events.of(CompactionCompleted)[-1].reason


# ---- on_answer


async def test_on_answer_replace_asks_everybody_again() -> None:
    seen: list[tuple[str, Any]] = []

    class Observer:
        name = "observer"

        @hookimpl
        def on_answer(self, output: Any) -> None:
            seen.append(("observer", output))

    class Replacer:
        name = "replacer"

        @hookimpl
        def on_answer(self, output: Any) -> Replace:
            seen.append(("replacer", output))
            return Replace(output="Better.")

    _, run = await streamed(Observer(), Replacer())
    assert run.result.output == "Better."
    assert run.result.text == "Hello."
    assert seen == [("observer", "Hello."), ("replacer", "Hello."), ("observer", "Better."), ("replacer", "Better.")]


async def test_on_answer_send_back_hides_the_message_and_shows_it_superseded() -> None:
    class Critic:
        name = "critic"

        @hookimpl
        def on_answer(self, output: Any) -> Any:
            return SendBack(feedback="Longer, please.") if output == "Short." else None

    model = ScriptedModel("Short.", "A longer answer.")
    agent = Agent(model, plugins=[Critic()])
    async with agent.stream("Go", session="s") as run:
        events = await record(run)
    events.check()
    assert run.result.output == "A longer answer."
    superseded = [event.message.text for event in events.of(MessageCompleted) if event.superseded]
    assert superseded == ["Short."]
    assert [message.text for message in run.result.messages] == ["Go", "A longer answer."]
    assert [message.text for message in model.requests[1].messages] == ["Go"]
    assert model.requests[1].context == ("Longer, please.",)
    page = await agent.store.load("s")
    raw = [record.message.text for record in page.records if record.kind == "message"]  # type: ignore[union-attr]
    assert raw == ["Go", "Short.", "A longer answer."]


async def test_on_answer_send_back_has_an_end() -> None:
    class Critic:
        name = "critic"

        @hookimpl
        def on_answer(self) -> SendBack:
            return SendBack(feedback="Again.")

    events, run = await streamed(Critic(), script=("a", "b", "c"), catch=RunLimitError)
    assert isinstance(events.error, RunLimitError)
    assert "3 attempts" in str(events.error)
    assert "Again." in str(events.error)
    assert run.result.turns == 3


async def test_an_error_in_on_answer_fails_the_run() -> None:
    error = KeyError("no")

    class Broken:
        name = "broken"

        @hookimpl
        def on_answer(self) -> None:
            raise error

    events, _ = await streamed(Broken(), catch=KeyError)
    assert events.error is error


async def test_a_replace_without_end_fails_the_run() -> None:
    class Counter:
        name = "counter"
        count = 0

        @hookimpl
        def on_answer(self) -> Replace:
            self.count += 1
            return Replace(output=self.count)

    events, _ = await streamed(Counter(), catch=PluginError)
    assert "counter" in str(events.error)


# ---- publish


class Note(ExtensionEvent):
    text: str


async def test_publish_calls_everybody_or_one_plugin() -> None:
    heard: list[tuple[str, str]] = []

    def hearer(name: str) -> Any:
        class Plugin:
            @hookimpl
            def on_event(self, notification: Any) -> None:
                if isinstance(notification, Note):
                    heard.append((name, notification.text))

        made = Plugin()
        made.name = name  # type: ignore[attr-defined]
        return made

    class Publisher:
        name = "publisher"

        @hookimpl
        async def before_run(self, run: Any) -> None:
            await run.publish(Note(text="all"))
            await run.publish(Note(text="one"), to="b")
            with pytest.raises(Exception, match="no active plugin of that name"):
                await run.publish(Note(text="none"), to="nobody")

    await streamed(hearer("a"), hearer("b"), Publisher())
    assert heard == [("a", "all"), ("b", "all"), ("b", "one")]


async def test_publish_inside_on_event_is_refused() -> None:
    refused: list[str] = []

    class Echo:
        name = "echo"

        @hookimpl
        async def on_event(self, run: Any, notification: Any) -> None:
            try:
                await run.publish(Note(text="again"))
            except Exception as error:
                refused.append(str(error))

    await streamed(Echo())
    assert refused
    assert "inside on_event" in refused[0]
