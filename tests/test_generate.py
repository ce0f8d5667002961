"""Model calls: hooks around them, retries, what is shown of deltas, and models that break their protocol."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, ModelResponse, RetryModel, hookimpl, tool
from trilane.errors import ModelError, PluginError, RunCancelledError, RunLimitError
from trilane.events import MessageCompleted, ModelStarted, PluginFailed, ReasoningDelta, TextDelta, ToolCallDelta
from trilane.messages import Delta, TextPart, ToolCall, ToolCallPart, Usage
from trilane.testing import (
    EventRecorder,
    FunctionModel,
    ScriptedModel,
    Step,
    assert_history,
    call,
    no_leaks,
    record,
    run_virtual,
)
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


async def streamed(model: Any, *plugins: Any, catch: Any = (), **options: Any) -> tuple[EventRecorder, Any]:
    """The events and the stream of one run; `plugins` are called in the order given."""
    agent = Agent(model, plugins=list(reversed(plugins)), **options)
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


# ---- around_model


def around(name: str, function: Any) -> Any:
    class Plugin:
        @hookimpl
        async def around_model(self, run: Any, request: Any, call_next: Any) -> Any:
            return await function(request, call_next)

    made: Any = Plugin()
    made.name = name
    return made


async def test_around_model_is_an_onion() -> None:
    order: list[str] = []

    def layer(name: str) -> Any:
        async def wrap(request: Any, call_next: Any) -> Any:
            order.append(f"in {name}")
            response = await call_next(request)
            order.append(f"out {name}")
            return response

        return around(name, wrap)

    await streamed(ScriptedModel("Hello."), layer("a"), layer("b"))
    assert order == ["in a", "in b", "out b", "out a"]


async def test_nothing_is_called_around_a_model_before_the_caller_has_seen_the_turn() -> None:
    called: list[str] = []

    async def wrap(request: Any, call_next: Any) -> Any:
        called.append("called")
        return await call_next(request)

    async with Agent(ScriptedModel("Hello."), plugins=[around("a", wrap)]).stream("Go") as run:
        async for event in run:
            await anyio.lowlevel.checkpoint()
            if event.type in ("run_started", "user_message_added", "turn_started"):
                assert called == []


async def test_around_model_may_answer_without_the_model() -> None:
    async def cached(request: Any, call_next: Any) -> Any:
        return ModelResponse(parts=(TextPart(text="From the cache."),), model="cache")

    model = ScriptedModel()
    events, run = await streamed(model, around("cache", cached))
    assert (run.result.output, events.texts()) == ("From the cache.", ["From the cache."])
    assert model.requests == []


async def test_around_model_may_change_the_request_and_call_again() -> None:
    async def again(request: Any, call_next: Any) -> Any:
        await call_next(request)
        return await call_next(request.with_context("Think again."))

    model = ScriptedModel("First thought.", "Second thought.")
    events, run = await streamed(model, around("again", again))
    assert run.result.output == "Second thought."
    assert model.requests[1].context == ("Think again.",)
    assert [event.attempt for event in events.of(ModelStarted)] == [1, 2]
    first, second = events.of(MessageCompleted)
    assert (first.superseded, first.interrupted, first.message.text) == (True, True, "First thought.")
    assert not second.superseded
    assert [message.text for message in run.result.messages] == ["Go", "Second thought."]
    assert run.result.turns == 1


async def test_an_answer_is_not_thrown_away_for_a_plugin_that_fails_afterwards() -> None:
    async def late(request: Any, call_next: Any) -> Any:
        await call_next(request)
        raise KeyError("late")

    events, run = await streamed(ScriptedModel("Hello."), around("late", late))
    assert run.result.output == "Hello."
    assert events.one(PluginFailed).hook == "around_model"


async def test_an_error_before_the_model_fails_the_run() -> None:
    error = KeyError("early")

    async def early(request: Any, call_next: Any) -> Any:
        raise error

    events, _ = await streamed(ScriptedModel("Hello."), around("early", early), catch=KeyError)
    assert events.error is error


async def test_an_error_of_the_model_passes_through_and_is_not_the_plugins() -> None:
    gone = ConnectionError("gone")
    seen: list[BaseException] = []

    async def watch(request: Any, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except ConnectionError as error:
            seen.append(error)
            raise

    events, run = await streamed(ScriptedModel(gone), around("watch", watch), catch=ConnectionError)
    assert events.error is gone
    assert seen == [gone]
    assert run.result.hook_failures == ()
    assert [row.errors for row in run.result.ledger] == [0]


async def test_something_that_is_no_response_fails_or_keeps_the_answer() -> None:
    async def odd(request: Any, call_next: Any) -> Any:
        return "text"

    events, _ = await streamed(ScriptedModel("Hello."), around("odd", odd), catch=PluginError)
    assert "around_model" in str(events.error)
    assert "returned str" in str(events.error)

    async def forgetful(request: Any, call_next: Any) -> None:
        await call_next(request)

    _, run = await streamed(ScriptedModel("Hello."), around("forgetful", forgetful))
    assert run.result.output == "Hello."


# ---- on_model_error


class Retrier:
    name = "retrier"

    def __init__(self, seconds: float = 0.0, times: int = 3) -> None:
        self.left = times
        self.seconds = seconds
        self.errors: list[str] = []

    @hookimpl
    def on_model_error(self, error: Exception) -> Any:
        self.errors.append(type(error).__name__)
        self.left -= 1
        return RetryModel(after_seconds=self.seconds) if self.left >= 0 else None


async def test_a_retry_marks_what_was_shown_as_superseded() -> None:
    gone = ConnectionError("gone")
    model = ScriptedModel(Step("Hello wo", error=gone), Step(error=gone), "Hello world.")
    events, run = await streamed(model, Retrier())
    assert run.result.output == "Hello world."
    assert [event.attempt for event in events.of(ModelStarted)] == [1, 2, 3]
    assert [(event.message.text, event.superseded) for event in events.of(MessageCompleted)] == [
        ("Hello wo", True),
        ("Hello world.", False),
    ]
    assert [message.text for message in run.result.messages] == ["Go", "Hello world."]
    assert run.result.turns == 1


async def test_retries_end_with_the_last_error() -> None:
    errors = [ConnectionError(str(number)) for number in range(3)]
    retrier = Retrier(times=2)
    events, _ = await streamed(ScriptedModel(*errors), retrier, catch=ConnectionError)
    assert events.error is errors[-1]
    assert retrier.errors == ["ConnectionError"] * 3


async def test_retries_without_a_pause_let_others_run() -> None:
    class Broken:
        name = "broken"

        async def call(self, request: Any, emit: Any) -> ModelResponse:
            raise ConnectionError("gone")

    retrier, turns = Retrier(times=10_000), 0
    async with anyio.create_task_group() as tasks:

        async def stop_it() -> None:
            nonlocal turns
            while turns < 20:
                turns += 1
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

        tasks.start_soon(stop_it)
        await Agent(Broken(), plugins=[retrier]).run("Go")
    assert turns == 20
    assert 0 < len(retrier.errors) < 1000


async def test_limits_are_not_retried() -> None:
    retrier = Retrier()
    await streamed(ScriptedModel(RunLimitError("spent")), retrier, catch=RunLimitError)
    assert retrier.errors == []


class TestPauses:
    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return request.param  # type: ignore[no-any-return]

    def test_a_retry_waits_and_a_stop_ends_the_wait(self, backend: Backend) -> None:
        async def main() -> None:
            start = anyio.current_time()
            model = ScriptedModel(ConnectionError(), "Hello.")
            result = await Agent(model, plugins=[Retrier(50)]).run("Go")
            assert result.output == "Hello."
            assert 50 <= anyio.current_time() - start < 52

            agent = Agent(ScriptedModel(ConnectionError(), "Hello."), plugins=[Retrier(1000)])
            start = anyio.current_time()
            async with agent.stream("Go") as run:
                async with anyio.create_task_group() as group:

                    async def stop() -> None:
                        await anyio.sleep(10)
                        run.stop("enough")

                    group.start_soon(stop)
                    events = await record(run, catch=RunCancelledError)
            events.check()
            assert anyio.current_time() - start < 12

        run_virtual(main, backend=backend)


# ---- on_delta


class Filter:
    def __init__(self, function: Any, name: str = "filter") -> None:
        self.function = function
        self.name = name
        self.seen: list[tuple[str, str, bool]] = []

    @hookimpl
    def on_delta(self, run: Any, delta: Any, final: bool) -> Any:
        self.seen.append((delta.kind, delta.text, final))
        return self.function(delta, final)


async def test_on_delta_decides_what_is_shown_and_not_what_is_kept() -> None:
    upper = Filter(lambda delta, final: delta.replace(text=delta.text.upper()))
    events, run = await streamed(ScriptedModel("one two"), upper)
    assert events.texts() == ["ONE TWO"]
    assert run.result.output == "one two"


async def test_on_delta_may_hold_back_and_let_out_at_the_end() -> None:
    held: list[str] = []

    def hold(delta: Any, final: bool) -> Any:
        if delta.kind != "text":
            return None
        if final:
            return [delta.replace(text="".join(held))]
        held.append(delta.text)
        return []

    events, run = await streamed(ScriptedModel("one two three"), Filter(hold))
    assert [event.text for event in events.of(TextDelta)] == ["one two three"]
    assert run.result.output == "one two three"


async def test_on_delta_may_hide_everything_or_split_one_into_many() -> None:
    events, run = await streamed(ScriptedModel("one two"), Filter(lambda delta, final: []))
    assert (events.texts(), run.result.output) == ([], "one two")
    split = Filter(lambda delta, final: [delta.replace(text=letter) for letter in delta.text])
    events, _ = await streamed(ScriptedModel("one"), split)
    assert [event.text for event in events.of(TextDelta)] == ["o", "n", "e"]


async def test_on_delta_is_a_chain_and_told_of_the_end_of_each_segment() -> None:
    first = Filter(lambda delta, final: delta.replace(text=delta.text + "1") if delta.text else None)
    second = Filter(lambda delta, final: delta.replace(text=delta.text + "2") if delta.text else None, "second")
    events, _ = await streamed(ScriptedModel(Step("b", reasoning="a")), first, second)
    assert [event.text for event in events.of(ReasoningDelta)] == ["a12"]
    assert [event.text for event in events.of(TextDelta)] == ["b12"]
    assert first.seen == [("reasoning", "a", False), ("reasoning", "", True), ("text", "b", False), ("text", "", True)]


async def test_on_delta_sees_an_answer_without_deltas_as_one() -> None:
    upper = Filter(lambda delta, final: delta.replace(text=delta.text.upper()))
    events, _ = await streamed(ScriptedModel(Step("one two", deltas=())), upper)
    assert events.texts() == ["ONE TWO"]


@pytest.mark.parametrize("swallowing", [False, True])
async def test_an_error_in_on_delta_fails_the_run_even_if_the_model_swallows_it(swallowing: bool) -> None:
    error = KeyError("mine")

    def fail(delta: Any, final: bool) -> Any:
        raise error

    async def model(request: Any, emit: Any) -> str:
        try:
            await emit(Delta(text="Hello."))
        except KeyError:
            if not swallowing:
                raise
        return "Hello."

    retrier = Retrier()
    events, run = await streamed(FunctionModel(model), Filter(fail), retrier, catch=KeyError)
    assert events.error is error
    assert retrier.errors == []
    assert run.result.status == "failed"


async def test_something_that_is_no_delta_names_the_plugin() -> None:
    events, _ = await streamed(ScriptedModel("Hello."), Filter(lambda delta, final: "text"), catch=PluginError)
    assert "plugin 'filter': on_delta" in str(events.error)


# ---- what models emit


async def test_w26_empty_deltas_are_not_shown() -> None:
    deltas = [Delta(text=""), Delta(text="a"), Delta(text=""), Delta(kind="reasoning", text=""), Delta(text="b")]
    events, run = await streamed(ScriptedModel(Step(deltas=deltas)))
    assert [event.text for event in events.of(TextDelta)] == ["a", "b"]
    assert not events.of(ReasoningDelta)
    assert run.result.output == "ab"


async def test_w27_segments_never_overlap() -> None:
    deltas = [
        Delta(kind="reasoning", text="r1", index=0),
        Delta(text="t1", index=1),
        Delta(kind="reasoning", text="r2", index=2),
        Delta(text="t2", index=3),
        Delta(kind="arguments", index=4, call_id="c", name="look"),
        Delta(kind="arguments", index=4, text="{}"),
    ]
    model = ScriptedModel(Step(deltas=deltas), "Done.")

    @tool
    async def look() -> str:
        """Look."""
        return "a ship"

    events, run = await streamed(model, tools=[look])
    message = run.result.messages[1]
    assert [part.kind for part in message.parts] == ["reasoning", "text", "reasoning", "text", "tool_call"]
    assert message.text == "t1t2"
    assert len(events.of(ToolCallDelta)) == 2


async def test_a_message_is_put_together_from_its_deltas() -> None:
    deltas = [
        Delta(text="Hel"),
        Delta(text="lo."),
        Delta(kind="arguments", index=1, call_id="a", name="look", text='{"na'),
        Delta(kind="arguments", index=1, text='me": "x"}'),
        Delta(kind="arguments", index=2, call_id="b", name="look", text="{"),
    ]

    @tool
    async def look(name: str) -> str:
        """Look.

        Args:
            name: At what.
        """
        return name

    model = ScriptedModel(Step(deltas=deltas, usage=Usage(input_tokens=1)), "Done.")
    _, run = await streamed(model, tools=[look])
    message, results = run.result.messages[1:3]
    assert message.text == "Hello."
    assert [made.arguments for made in message.calls] == [{"name": "x"}, {}]
    assert [one.outcome for one in results.results] == ["ok", "error"]
    assert message.usage.input_tokens == 1


async def test_surrogate_pairs_that_are_split_between_deltas_are_joined() -> None:
    ship = "\U0001f6a2"
    halves = ship.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert halves == ship
    high, low = "\ud83d", "\udea2"
    deltas = [Delta(text="a " + high), Delta(text=low + " b"), Delta(text=" c" + high)]
    events, run = await streamed(ScriptedModel(Step(deltas=deltas)))
    assert run.result.output == f"a {ship} b c\ufffd"
    assert "".join(events.texts()).startswith(f"a {ship} b c")


async def test_a_model_that_breaks_its_protocol_is_a_failed_model() -> None:
    async def wrong_delta(request: Any, emit: Any) -> str:
        await emit("text")
        return "never"

    events, _ = await streamed(FunctionModel(wrong_delta), catch=TypeError)
    assert "emit() takes a Delta, not str" in str(events.error)

    class Odd:
        name = "odd"

        async def call(self, request: Any, emit: Any) -> Any:
            return "text"

    events, _ = await streamed(Odd(), catch=ModelError)
    assert "call() returned str" in str(events.error)


async def test_r83_deltas_after_the_call_has_ended_are_refused() -> None:
    kept: list[Any] = []

    async def model(request: Any, emit: Any) -> str:
        kept.append(emit)
        await emit(Delta(text="Hello."))
        return "Hello."

    agent = Agent(FunctionModel(model))
    async with agent.stream("Go") as run:
        await record(run)
    with pytest.raises(Exception, match="after the model call had ended"):
        await kept[0](Delta(text="late"))


async def test_r83_a_model_that_waits_to_hand_over_a_delta_hears_the_cancel() -> None:
    heard: list[BaseException] = []
    handed = 0

    async def model(request: Any, emit: Any) -> str:
        nonlocal handed
        try:
            for handed in range(1, 100):
                await emit(Delta(text=f"{handed} "))
        except BaseException as error:
            heard.append(error)
            raise
        return "all of them"

    async with no_leaks(), Agent(FunctionModel(model)).stream("Go") as run:
        async for event in run:
            if event.type == "text_delta":
                await anyio.wait_all_tasks_blocked()
                break  # the reader holds the event: the model waits in `emit`
    assert handed == 1
    assert isinstance(heard[0], anyio.get_cancelled_exc_class())
    assert run.result.status == "cancelled"


async def test_r82_when_a_call_ends_for_any_reason_it_is_over() -> None:
    for end in ("return", "raise", "stop", "leave"):
        model = ScriptedModel(Step("One two three.", error=ConnectionError() if end == "raise" else None))
        async with no_leaks():
            async with Agent(model).stream("Go") as run:
                try:
                    async for event in run:
                        if event.type == "text_delta":
                            if end == "stop":
                                run.stop("enough")
                            if end == "leave":
                                break
                except (ConnectionError, RunCancelledError):
                    pass
        assert model.active == 0


async def test_parts_no_delta_can_carry_are_kept() -> None:
    from trilane.messages import CitationPart, ServerToolPart

    parts = (ServerToolPart(name="search", output="x"), TextPart(text="Hello."), CitationPart(text="y"))
    _, run = await streamed(ScriptedModel(Step(parts=parts)))
    assert run.result.messages[1].parts == parts


async def test_arguments_that_no_json_can_carry_do_not_end_the_run() -> None:
    part = ToolCallPart(call=ToolCall(id="a", name="look", raw="{broken"))
    _, run = await streamed(ScriptedModel(Step(parts=(part,)), "Done."))
    assert run.result.output == "Done."
    assert run.result.messages[2].results[0].outcome == "error"


async def test_a_forced_tool_choice_holds_for_the_first_turn_only() -> None:
    from trilane.config import ModelSettings

    @tool
    async def look() -> str:
        """Look."""
        return "a ship"

    model = ScriptedModel(call("look"), "Done.")
    agent = Agent(model, tools=[look], model_settings=ModelSettings(tool_choice="look", temperature=0.5))
    await agent.run("Go")
    assert [request.settings.tool_choice for request in model.requests] == ["look", None]
    assert [request.settings.temperature for request in model.requests] == [0.5, 0.5]
