"""It is an optimisation: whatever goes wrong, the history stays, the run goes on, and somebody is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from trilane import Agent, Delta, Limits, ModelRequest, ModelResponse, TextPart, ToolCall, ToolCallPart
from trilane.errors import ModelError, RunCancelledError
from trilane.events import CompactionCompleted, PluginFailed
from trilane.testing import assert_history, no_leaks, record, run_virtual
from trilane_compact import compact
from trilane_compact.summarising import CompactionError

Make = Callable[..., Any]
LONG = "ships and harbours " * 30


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages if message.kind in ("user", "assistant")]


async def say_much(request: ModelRequest, emit: Any) -> ModelResponse:
    for _ in range(2000):
        await emit(Delta(text="on and on "))
    return ModelResponse()


def refuse(request: ModelRequest, emit: Any) -> ModelResponse:
    return ModelResponse(parts=(TextPart(text="I would rather not."),), stop_reason="refusal")


def call_tools(request: ModelRequest, emit: Any) -> ModelResponse:
    return ModelResponse(parts=(ToolCallPart(call=ToolCall(id="c", name="look")),), stop_reason="tool_calls")


async def stall(request: ModelRequest, emit: Any) -> ModelResponse:
    await emit(Delta(text="The ships"))
    await anyio.sleep_forever()
    return ModelResponse()


WRONG = {
    "raises": (OSError("no network"), OSError, "no network"),
    "fails": (ModelError("overloaded", retryable=True), ModelError, "overloaded"),
    "fakes a cancel": (RunCancelledError("faked"), RunCancelledError, "faked"),
    "stops the world": (GeneratorExit("no"), ModelError, "which nobody had asked for"),
    "stalls": (stall, ModelError, "did not answer within 60 s"),
    "empty": ("", CompactionError, "wrote an empty summary"),
    "blank": (" \n\t", CompactionError, "wrote an empty summary"),
    "nothing": (ModelResponse(parts=()), CompactionError, "wrote an empty summary"),
    "longer": (say_much, CompactionError, "saves too little"),
    "as long": ("word " * 1100, CompactionError, "saves too little"),
    "refuses": (refuse, CompactionError, "did not summarise (refusal)"),
    "calls tools": (call_tools, CompactionError, "wrote an empty summary"),
    "no response": (17, TypeError, ""),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_f016_w31_a_summary_that_goes_wrong_never_fails_a_run_and_changes_nothing(
    worker: Make, wrong: str, backend: Any
) -> None:
    summary, kind, told = WRONG[wrong]

    async def main() -> None:
        model = worker(summary if callable(summary) or isinstance(summary, BaseException) else lambda *_: summary)
        agent = Agent(model, plugins=[compact(context_tokens=2000)])
        for n in range(5):
            await agent.run(f"{n}: {LONG}", session="s")
        async with no_leaks():
            async with agent.stream(f"5: {LONG}", session="s") as run:
                events = await record(run)
        events.check()
        assert run.result.output == f"Re: 5: {LONG}"
        done = events.one(CompactionCompleted)
        assert not done.changed
        assert done.reason.startswith("plugin 'compact' failed: ")
        failure = events.one(PluginFailed)
        assert failure.plugin == "compact"
        assert isinstance(failure.error, kind)
        assert told in str(failure.error)
        assert len(model.turns[-1].messages) == 11
        assert texts(model.turns[-1].messages)[0] == f"0: {LONG}"
        page = await agent.store.load("s")
        assert not [one for one in page.records if one.kind == "view_replaced"]

    run_virtual(main, backend=backend)


@pytest.mark.anyio
async def test_what_failed_is_tried_again_only_when_there_is_more(worker: Make) -> None:
    model = worker(OSError("no network"))
    agent = Agent(model, plugins=[compact(context_tokens=20_000)])
    tried = []
    for n in range(70):
        await agent.run(f"{n}: {LONG}", session="s")
        tried.append(len(model.asked))
    assert tried[40] == 0
    assert 2 <= tried[-1] <= 5  # at 80 percent of the context, at 90, at 100
    model._summary = "It is summed up."
    assert await agent.compact("s") is True  # somebody who asks for it need not wait


@pytest.mark.anyio
async def test_a_summary_that_was_cut_off_is_used_and_says_so(worker: Make) -> None:
    cut = ModelResponse(parts=(TextPart(text="The ships are"),), stop_reason="length")
    model = worker(lambda *_: cut)
    agent = Agent(model, plugins=[compact(context_tokens=2000)])
    for n in range(6):
        await agent.run(f"{n}: {LONG}", session="s")
    assert texts(model.turns[-1].messages)[1].endswith("The ships are (cut off here)")


@pytest.mark.anyio
async def test_a_part_that_fails_undoes_those_before_it(worker: Make) -> None:
    def second_fails(request: ModelRequest, emit: Any) -> str:
        if 'part="2"' in request.messages[0].text:
            raise OSError("no network")
        return "Sum."

    model = worker(second_fails)
    agent = Agent(model, plugins=[compact()])
    for n in range(30):
        await agent.run(f"{n}: {LONG}", session="s")
    small = Agent(model, plugins=[compact(context_tokens=2000)], store=agent.store)
    assert await small.compact("s") is False
    assert len(model.asked) == 2
    assert 'part="1" of="7"' in model.asked[0].messages[0].text
    await small.run("And now?", session="s")
    assert len(model.turns[-1].messages) == 61


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancel_while_it_summarises_ends_the_run_and_leaves_the_history(worker: Make, backend: Any) -> None:
    async def main() -> None:
        model = worker(stall)
        agent = Agent(model, plugins=[compact(context_tokens=2000)])
        for n in range(5):
            await agent.run(f"{n}: {LONG}", session="s")
        events: list[Any] = []
        async with no_leaks():
            with anyio.CancelScope() as scope:
                async with agent.stream(f"5: {LONG}", session="s") as run:
                    async for event in run:
                        events.append(event)
                        if event.type == "compaction_progress":
                            scope.deadline = anyio.current_time() + 1
            assert scope.cancelled_caught
        assert run.result.status == "cancelled"
        model._summary = "It is summed up."
        await agent.run("And now?", session="s")
        assert texts(model.turns[-1].messages)[0] == f"0: {LONG}"
        assert_history(model.turns[-1].messages, as_request=True)
        assert texts(model.turns[-1].messages)[-1] == "And now?"

    run_virtual(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_caller_that_takes_its_time_over_the_progress_is_no_stall(worker: Make, backend: Any) -> None:
    async def main() -> None:
        agent = Agent(worker(), plugins=[compact(context_tokens=2000, seconds=5)])
        for n in range(5):
            await agent.run(f"{n}: {LONG}", session="s")
        changed = []
        async with agent.stream(f"5: {LONG}", session="s") as run:
            async for event in run:
                if event.type.startswith("compaction"):
                    await anyio.sleep(3600)
                if event.type == "compaction_completed":
                    changed.append(event.changed)
        assert changed == [True]

    run_virtual(main, backend=backend)


@pytest.mark.anyio
async def test_a_run_that_is_stopped_while_it_summarises_keeps_what_was_said(worker: Make) -> None:
    agent = Agent(worker(), plugins=[compact(context_tokens=2000)])
    for n in range(5):
        await agent.run(f"{n}: {LONG}", session="s")
    with pytest.raises(RunCancelledError):
        async with agent.stream(f"5: {LONG}", session="s") as run:
            async for event in run:
                if event.type == "compaction_progress":
                    run.stop("enough")
    assert texts(run.result.new_messages) == [f"5: {LONG}"]
    model = worker()
    await Agent(model, store=agent.store).run("And now?", session="s")
    assert_history(model.turns[0].messages, as_request=True)


@pytest.mark.anyio
async def test_a_limit_of_the_run_holds_for_summaries_too(worker: Make) -> None:
    agent = Agent(worker(stall), plugins=[compact(context_tokens=2000)], limits=Limits(model_seconds=0.05))
    for n in range(5):
        await agent.run(f"{n}: {LONG}", session="s")
    result = await agent.run(f"5: {LONG}", session="s")
    assert "did not answer within 0.05 s" in str(result.hook_failures[0].error)
