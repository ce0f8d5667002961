"""Field cases about replies, running tools, and their results through whole runs: F036, F040 to F054."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from trilane import Agent, InMemoryStore, ToolContext, hookimpl, tool
from trilane.decisions import RetryModel
from trilane.errors import EmptyReplyError, ToolError
from trilane.events import ToolCompleted, ToolProgress
from trilane.messages import Delta
from trilane.testing import ScriptedModel, Step, assert_history, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


def results(messages: Any) -> list[tuple[str, Any]]:
    return [(one.outcome, one.content) for message in messages if message.kind == "tool" for one in message.results]


@pytest.mark.parametrize("streamed", [True, False])
async def test_f036_text_before_a_call_does_not_end_the_run(streamed: bool) -> None:
    step = Step("I will look.", calls=[call("look")])
    if not streamed:
        step.deltas = ()
    result = await Agent(ScriptedModel(step, "A ship."), tools=[look]).run("Go")
    assert result.output == result.text == "A ship."
    assert results(result.messages) == [("ok", "a ship")]


async def test_f037_an_attempt_that_was_shown_is_marked_and_only_the_last_is_kept() -> None:
    class Retrier:
        name = "retrier"

        @hookimpl
        def on_model_error(self, error: Exception) -> RetryModel:
            return RetryModel()

    model = ScriptedModel(Step(deltas=[Delta(text="Hello wo")], error=ConnectionError("cut")), "Hello world", "Next.")
    agent = Agent(model, plugins=[Retrier()])
    async with agent.stream("Go", session="s") as run:
        events = await record(run)
    events.check()
    completed = [event for event in events.events if event.type == "message_completed"]
    assert [event.superseded for event in completed] == [True, False]
    await agent.run("More", session="s")
    texts = [getattr(message, "text", "") for message in model.requests[2].messages]
    assert texts == ["Go", "Hello world", "More"]


async def test_f040_empty_replies_are_asked_again_and_then_an_error_and_nobody_said_the_note() -> None:
    model = ScriptedModel("", "", "Hello.", "Next.")
    agent = Agent(model)
    assert (await agent.run("Go", session="s")).output == "Hello."
    await agent.run("More", session="s")
    assert [getattr(message, "text", "") for message in model.requests[3].messages] == ["Go", "Hello.", "More"]
    with pytest.raises(EmptyReplyError):
        await Agent(ScriptedModel("", "", "")).run("Go")


async def test_f041_an_empty_text_is_in_no_later_request() -> None:
    model = ScriptedModel(Step(parts=(), deltas=[Delta(text="")]), Step("", calls=[call("look")]), "Done.", "Next.")
    agent = Agent(model, tools=[look])
    await agent.run("Go", session="s")
    await agent.run("More", session="s")
    for request in model.requests:
        assert_history(request.messages, as_request=True)


async def test_f039_long_lines_of_a_process_arrive_whole_and_several_of_one_write_apart() -> None:
    sizes: list[int] = []
    code = "print('x' * 200_000); print('y' * 5_000_000); print('a\\nb')"

    @tool
    async def talk(ctx: ToolContext) -> str:
        """Talk."""

        async def line(text: str) -> None:
            sizes.append(len(text))

        result = await ctx.run_process([sys.executable, "-c", code], on_line=line, max_output_bytes=1000)
        return result.stdout

    result = await Agent(ScriptedModel(call("talk"), "Done."), tools=[talk]).run("Go")
    assert sizes == [200_000, 5_000_000, 1, 1]
    ((outcome, text),) = results(result.messages)
    assert outcome == "ok"
    assert len(text) < 2000


def test_f044_a_thread_that_ends_late_answers_no_later_call(anyio_backend: Backend) -> None:
    gates = [threading.Event(), threading.Event()]
    ended: list[int] = []
    number = iter(range(2))

    @tool(timeout=0.1)
    def slow() -> str:
        """Be slow the first time."""
        mine = next(number)
        if mine == 0:
            gates[0].wait(10)
            ended.append(mine)
        return f"result {mine}"

    async def main() -> Any:
        def free() -> Step:
            gates[0].set()
            return Step("Done.")

        model = ScriptedModel(call("slow"), call("slow"), lambda request: free())
        return await Agent(model, tools=[slow]).run("Go")

    result = run_virtual(main, backend=anyio_backend)
    first, second = results(result.messages)
    assert first[0] in ("timed_out", "still_running")
    assert "may" in first[1] or "still" in first[1]
    assert second == ("ok", "result 1")


def test_f045_a_limit_around_a_child_reports_the_thread_it_leaves_behind(anyio_backend: Backend) -> None:
    gate = threading.Event()

    @tool
    def blocks() -> str:
        """Block."""
        gate.wait(10)
        return "late"

    child = Agent(ScriptedModel(call("blocks"), "Never."), tools=[blocks], grace_seconds=0.1)

    @tool(timeout=0.2)
    async def outer() -> str:
        """Work."""
        return (await child.run("Go", session="inner")).output

    agent = Agent(ScriptedModel(call("outer"), "Done."), tools=[outer])

    async def main() -> Any:
        try:
            result = await agent.run("Go")
            return result, await child.store.load("inner")
        finally:
            gate.set()

    result, page = run_virtual(main, backend=anyio_backend)
    ((outcome, text),) = results(result.messages)
    assert outcome == "timed_out"
    assert "0.2" in text
    assert result.output == "Done."
    left = [record.result.outcome for record in page.records if record.kind == "call_finished"]
    assert left == ["still_running"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_f046_a_generator_that_fails_after_progress_is_an_error_result_and_closed(kind: str) -> None:
    closed: list[str] = []

    @tool
    async def steps_async() -> Any:
        """Yield, then fail."""
        try:
            yield "half"
            raise ToolError("no more")
        finally:
            closed.append("async")

    @tool
    def steps_sync() -> Any:
        """Yield, then fail."""
        try:
            yield "half"
            raise ToolError("no more")
        finally:
            closed.append("sync")

    agent = Agent(ScriptedModel(call(f"steps_{kind}"), "Done."), tools=[steps_async, steps_sync])
    async with no_leaks(), agent.stream("Go") as run:
        events = await record(run)
    events.check()
    assert [event.text for event in events.of(ToolProgress)] == ["half"]
    assert events.one(ToolCompleted).result.outcome == "error"
    assert "no more" in str(events.one(ToolCompleted).result.content)
    assert run.result.output == "Done."
    assert closed == [kind]


@pytest.mark.parametrize("value", ["ok \ud83d", "a\x00b", {"k\x00": ["x\ud83d"]}, "ok \U0001f600"])
async def test_f051_f053_text_that_cannot_be_stored_is_the_same_in_history_events_and_store(value: Any) -> None:
    @tool
    async def odd() -> Any:
        """Return something odd."""
        return value

    store = InMemoryStore()
    model = ScriptedModel(call("odd"), "One.", "Two.", "Three.")
    async with Agent(model, tools=[odd], store=store).stream("Go", session="s") as run:
        events = await record(run)
    for request in ("And?", "And then?"):
        result = await Agent(model, tools=[odd], store=store).run(request, session="s")
    shown = events.one(ToolCompleted).result.content
    for sent in model.requests[1:]:
        ((_, content),) = results(sent.messages)
        assert content == shown
        content.encode()
        assert "\x00" not in content
    assert ("\U0001f600" in shown) is ("\U0001f600" in str(value))
    for record_of in (await store.load("s")).records:
        record_of.to_json().encode()
    assert result.output == "Three."


async def test_f049_results_without_text_keep_their_value_and_history_stays_valid() -> None:
    values: tuple[Any, ...] = ("", None, [], "  \n")
    for value in values:

        @tool
        async def nothing(value: Any = value) -> Any:
            """Return nothing much."""
            return value

        async with Agent(ScriptedModel(call("nothing"), "Done."), tools=[nothing]).stream("Go") as run:
            events = await record(run)
        assert events.one(ToolCompleted).result.outcome == "ok"
        assert run.result.output == "Done."
        assert_history(run.result.messages)


async def test_f050_what_the_model_reads_is_cut_and_each_tool_sets_its_own_limit() -> None:
    long = "x" * 300_000

    @tool
    async def usual() -> str:
        """Much."""
        return long

    @tool(max_result_chars=500)
    async def short() -> str:
        """Little of much."""
        return long

    model = ScriptedModel([call("usual"), call("short")], "Done.")
    async with Agent(model, tools=[usual, short]).stream("Go") as run:
        events = await record(run)
    sizes = [len(content) for _, content in results(model.requests[1].messages)]
    assert sizes == [len(str(event.result.content)) for event in events.of(ToolCompleted)]
    assert sizes[0] < 300_000
    assert sizes[1] <= 500
