"""Field cases about histories that stay valid, parallel calls and arguments: F014 to F030."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, CompactedHistory, InMemoryStore, SendBack, hookimpl, tool
from trilane.errors import RefusalError, RunCancelledError, ToolError
from trilane.events import CompactionCompleted
from trilane.messages import (
    AssistantMessage,
    Delta,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from trilane.models import ModelResponse
from trilane.sessions import fork_session
from trilane.stores import MessageStored
from trilane.testing import ScriptedModel, Step, assert_history, call, no_leaks, record
from trilane.testing.stores import append_all

pytestmark = pytest.mark.anyio


@tool(effect="read")
async def look(what: str = "ships") -> str:
    """Look.

    Args:
        what: At what.
    """
    return f"seen {what}"


class PlainStore:
    """A store that has to be awaited."""

    def __init__(self) -> None:
        inner = InMemoryStore()
        self.lease, self.load, self.append = inner.lease, inner.load, inner.append


def results(messages: Any) -> list[tuple[str, str]]:
    return [
        (one.outcome, str(one.content)) for message in messages if message.kind == "tool" for one in message.results
    ]


def kinds(messages: Any) -> list[str]:
    return [message.kind for message in messages]


def valid(model: ScriptedModel) -> None:
    for request in model.requests:
        assert_history(request.messages, as_request=True)


async def test_f014_a_call_that_was_left_open_is_answered_before_the_next_message() -> None:
    store = InMemoryStore()
    asked = AssistantMessage(id="a", parts=(ToolCallPart(call=ToolCall(id="c1", name="look")),))
    said = UserMessage(id="u", parts=(TextPart(text="Go"),))
    await append_all(store, "s", *(MessageStored(run_id="r", message=message) for message in (said, asked)))
    model = ScriptedModel("Fine.")
    result = await Agent(model, tools=[look], store=store).run("And now?", session="s")
    assert result.output == "Fine."
    assert kinds(model.requests[0].messages) == ["user", "assistant", "tool", "user"]
    ((outcome, text),) = results(model.requests[0].messages)
    assert outcome in ("not_started", "interrupted")
    assert text
    valid(model)


@pytest.mark.parametrize("times", [1, 3])
async def test_f015_calls_of_a_reply_that_failed_are_not_run_and_the_session_goes_on(times: int) -> None:
    opened = (Delta(kind="arguments", call_id="c", name="look"), Delta(kind="arguments", text="{}"))
    broken = [Step(deltas=opened, error=ConnectionError("cut")) for _ in range(times)]
    model = ScriptedModel(*broken, "Fine.")
    agent = Agent(model, tools=[look])
    for _ in range(times):
        with pytest.raises(ConnectionError):
            await agent.run("Go", session="s")
    result = await agent.run("Go on", session="s")
    assert result.output == "Fine."
    assert "ok" not in [outcome for outcome, _ in results(result.messages)]
    assert len({str(answer) for answer in results(result.messages)}) <= 1  # each time the same way
    valid(model)


@pytest.mark.parametrize("window", range(1, 22))
async def test_f016_f017_no_window_parts_calls_from_results(window: int) -> None:
    """A plugin that keeps the last messages at any price: what parts calls from results is not used."""

    class Window:
        name = "window"

        @hookimpl
        def on_compact(self, run: Any) -> CompactedHistory | None:
            first, *rest = run.history
            return CompactedHistory(messages=(first, *rest[-window:])) if len(rest) > window else None

    steps: list[Any] = [call("look") for _ in range(5)]
    steps.insert(2, [call("look", what=what) for what in "abc"])
    model = ScriptedModel(*steps, "Done.")
    async with Agent(model, tools=[look], plugins=[Window()]).stream("Go", session="s") as run:
        events = await record(run)
        result = run.result
    used = [event.changed for event in events.of(CompactionCompleted)]
    assert result.output == "Done."
    # Round trips are left out as a whole: an odd number of messages would begin with results.
    assert any(used) is (window % 2 == 0 and window < 12)
    for request in model.requests:
        assert_history(request.messages, as_request=True)
        assert getattr(request.messages[0], "text", "") == "Go"
    assert_history(result.messages)


async def test_f016_a_history_with_tool_calls_can_start_another_session() -> None:
    first = await Agent(ScriptedModel(call("look"), [call("look"), call("look")], "Done."), tools=[look]).run("Go")
    for store in (InMemoryStore(), PlainStore()):
        model = ScriptedModel("Fine.", "Forked.")
        agent = Agent(model, store=store)
        result = await agent.run("Again", session="s", history=first.messages)
        assert result.messages[: len(first.messages)] == first.messages
        assert_history(result.messages)
        fork = await fork_session(store, "s", "t", at_message=first.messages[4].id)
        await agent.run("Other", session=fork)
        assert kinds(model.requests[1].messages) == ["user", "assistant", "tool", "assistant", "tool", "user"]
        assert results(model.requests[1].messages) == [("ok", "seen ships")] * 3
        valid(model)


async def test_f016_calls_that_a_given_history_does_not_answer_are_answered() -> None:
    asked = AssistantMessage(
        id="a",
        parts=tuple(ToolCallPart(call=ToolCall(id=one, name="look")) for one in ("c1", "c2")),
    )
    said = UserMessage(id="u", parts=(TextPart(text="Go"),))
    half = ToolMessage(id="t", results=(ToolResult(call_id="c2", content="two"),))
    model = ScriptedModel("Fine.")
    await Agent(model, tools=[look]).run("Again", history=(said, asked, half))
    assert [outcome for outcome, _ in results(model.requests[0].messages)] == ["interrupted", "ok"]
    valid(model)


async def test_f018_a_reply_that_is_sent_back_is_in_no_later_request_in_either_way_to_run() -> None:
    class Guard:
        name = "guard"

        @hookimpl
        def on_answer(self, output: object) -> SendBack | None:
            return SendBack(feedback="Politely, please.") if output == "Rude." else None

    seen = []
    for streamed in (False, True):
        model = ScriptedModel("Rude.", "Polite.", "Next.")
        agent = Agent(model, plugins=[Guard()])
        if streamed:
            async with agent.stream("Go", session="s") as run:
                (await record(run)).check()
        else:
            assert (await agent.run("Go", session="s")).output == "Polite."
        await agent.run("More", session="s")
        texts = [message.text for message in model.requests[2].messages if message.kind in ("user", "assistant")]
        seen.append(texts)
        valid(model)
    assert seen[0] == seen[1]
    assert "Rude." not in seen[0]
    assert seen[0][0] == "Go"
    assert seen[0][-2:] == ["Polite.", "More"]


async def test_f019_half_an_answer_is_in_the_next_request_and_marked() -> None:
    model = ScriptedModel("One two three four five.", "Going on.")
    agent = Agent(model)
    with pytest.raises(RunCancelledError):
        async with agent.stream("Count", session="s") as run:
            shown = 0
            async for event in run:
                shown += event.type == "text_delta"
                if shown == 3:
                    run.stop("enough")
    await agent.run("Go on", session="s")
    cut = model.requests[1].messages[1]
    assert isinstance(cut, AssistantMessage)
    assert cut.interrupted
    assert cut.text.startswith("One two three")
    valid(model)


@pytest.mark.parametrize("way", ["run", "stream", "resume"])
async def test_f020_known_and_unknown_tools_are_answered_alike_on_all_paths(way: str) -> None:
    store = InMemoryStore()
    asked = [call("look", call_id="a"), call("lock", call_id="b")]
    agent = Agent(ScriptedModel(asked, "Done."), tools=[look], store=store)
    if way == "run":
        result = await agent.run("Go", session="s")
    else:
        async with agent.stream("Go", session="s") as run:
            if way == "stream":
                result = await run.wait()
            else:
                async for event in run:
                    if event.type == "message_completed":
                        await run.suspend()
                        break
        if way == "resume":
            again = Agent(ScriptedModel("Done."), tools=[look], store=store)
            async with again.resume("s") as resumed:
                result = await resumed.wait()
    first, second = results(result.messages)
    assert first == ("ok", "seen ships")
    assert second[0] == "error"
    assert "look" in second[1]
    assert_history(result.messages)


async def test_f021_three_results_in_call_order_whichever_ends_first() -> None:
    ended = anyio.Event()

    @tool
    async def fails() -> str:
        """Fail."""
        ended.set()
        raise ToolError("no such ship")

    @tool
    async def slowest() -> str:
        """Wait for the others."""
        await ended.wait()
        return "slow"

    model = ScriptedModel([call("slowest"), call("fails"), call("look")], "Done.")
    await Agent(model, tools=[look, fails, slowest]).run("Go")
    answers = results(model.requests[1].messages)
    assert [outcome for outcome, _ in answers] == ["ok", "error", "ok"]
    assert "no such ship" in answers[1][1]
    valid(model)


async def test_f022_where_a_failure_ends_the_run_its_siblings_have_ended_before_it_is_raised() -> None:
    waiting = anyio.Event()
    done: list[str] = []

    @tool(on_error="raise")
    async def fails() -> str:
        """Fail."""
        await waiting.wait()
        raise KeyError("no")

    @tool
    async def slow() -> str:
        """Never end by itself."""
        try:
            waiting.set()
            await anyio.sleep_forever()
        finally:
            done.append("cleaned up")
        return "never"

    model = ScriptedModel([call("fails"), call("slow")], "Fine.")
    agent = Agent(model, tools=[fails, slow])
    async with no_leaks():
        with pytest.raises(KeyError):
            await agent.run("Go", session="s")
        assert done == ["cleaned up"]
    result = await agent.run("Go on", session="s")
    assert len(results(result.messages)) == 2
    valid(model)


async def test_f023_empty_and_doubled_ids_are_run_and_answered_once_each() -> None:
    calls = [call("look", call_id=call_id, what=str(n)) for n, call_id in enumerate(["", "", "x", "x"])]
    model = ScriptedModel(calls, "Done.")
    async with Agent(model, tools=[look]).stream("Go") as run:
        result = await run.wait()
    assert [text for _, text in results(result.messages)] == [f"seen {n}" for n in range(4)]
    asked = model.requests[1].messages[1]
    assert isinstance(asked, AssistantMessage)
    ids = [one.id for one in asked.calls]
    assert len({*ids}) == 4
    assert all(ids)
    assert "x" in ids
    valid(model)


async def test_f024_an_id_that_comes_again_in_a_later_turn_is_another_call() -> None:
    model = ScriptedModel(call("look", call_id="call_1", what="a"), call("look", call_id="call_1", what="b"), "Done.")
    result = await Agent(model, tools=[look]).run("Go", session="s")
    assert [text for _, text in results(model.requests[2].messages)] == ["seen a", "seen b"]
    valid(model)
    assert result.output == "Done."


@pytest.mark.parametrize("raw", ["", "  ", "{}"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_f025_a_tool_without_parameters_runs_whatever_stands_for_nothing(raw: str, streamed: bool) -> None:
    @tool
    async def ping() -> str:
        """Ping."""
        return "pong"

    deltas = [Delta(kind="arguments", call_id="c", name="ping"), Delta(kind="arguments", text=raw)]
    whole = [ToolCallPart(call=ToolCall(id="c", name="ping", raw=raw))]
    step = Step(deltas=deltas, stop_reason="tool_calls") if streamed else Step(parts=whole, deltas=())
    model = ScriptedModel(step, "Done.", "Again.")
    agent = Agent(model, tools=[ping])
    await agent.run("Go", session="s")
    result = await agent.run("Go on", session="s")
    assert results(result.messages) == [("ok", "pong")]
    for request in model.requests[1:]:
        asked = request.messages[1]
        assert isinstance(asked, AssistantMessage)
        assert dict(asked.calls[0].arguments) == {}
    valid(model)


@pytest.mark.parametrize("streamed", [True, False])
async def test_f026_f027_arguments_that_were_cut_are_not_run_and_stay_valid(streamed: bool) -> None:
    ran: list[str] = []

    @tool
    async def search(q: str) -> str:
        """Search.

        Args:
            q: For what.
        """
        ran.append(q)
        return q

    raw = '{"q": "Par'
    deltas = [Delta(kind="arguments", call_id="c", name="search"), Delta(kind="arguments", text=raw)]
    whole = [ToolCallPart(call=ToolCall(id="c", name="search", raw=raw))]
    step = Step(deltas=deltas, stop_reason="tool_calls") if streamed else Step(parts=whole, deltas=())
    model = ScriptedModel(step, "Sorry.", "Again.")
    store = InMemoryStore()
    await Agent(model, tools=[search], store=store).run("Go", session="s")
    await Agent(model, tools=[search], store=store).run("Go on", session="s")
    assert ran == []
    for request in model.requests[1:]:
        asked = request.messages[1]
        assert isinstance(asked, AssistantMessage)
        assert (dict(asked.calls[0].arguments), asked.calls[0].raw) == ({}, raw)
        ((outcome, text),) = results(request.messages)
        assert outcome == "error"
        assert "search" in text
    valid(model)


async def test_f030_a_hook_may_send_a_call_to_another_tool() -> None:
    @tool
    async def browser_fill_form(text: str) -> str:
        """Fill in."""
        return f"filled {text}"

    class Renaming:
        name = "renaming"

        @hookimpl
        def after_model(self, response: ModelResponse) -> ModelResponse:
            parts = tuple(
                part.replace(call=part.call.replace(name="browser_fill_form")) if part.kind == "tool_call" else part
                for part in response.parts or ()
            )
            return response.replace(parts=parts)

    found = []
    for plugins in ([Renaming()], []):
        model = ScriptedModel(call("browser_fill", text="x"), "Done.")
        result = await Agent(model, tools=[browser_fill_form], plugins=plugins).run("Go")
        found += results(result.messages)
    assert found[0] == ("ok", "filled x")
    assert found[1][0] == "error"
    assert "browser_fill_form" in found[1][1]


@pytest.mark.parametrize("output_type", [None, int])
async def test_f042_a_refusal_ends_the_run_after_one_request(output_type: Any) -> None:
    model = ScriptedModel(Step("I would rather not.", stop_reason="refusal"))
    with pytest.raises(RefusalError, match="I would rather not"):
        await Agent(model, output_type=output_type).run("Go")
    assert len(model.requests) == 1
