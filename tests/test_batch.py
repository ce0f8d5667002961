"""Batches of tool calls on running agents: order, cap, serial tools, failures, limits, what is answered and how."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, Limits, ToolContext, ToolError, hookimpl, tool
from trilane.errors import RunCancelledError, RunLimitError
from trilane.events import MessageCompleted, ToolCompleted, ToolProgress, ToolStarted
from trilane.messages import ToolCall, ToolCallPart
from trilane.models import ModelResponse
from trilane.testing import EventRecorder, ScriptedModel, Step, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio


class Pool:
    """Tools whose ends are decided by the test, and a log of what happened."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.running = 0
        self.peak = 0
        self.gates: dict[str, anyio.Event] = {}
        self.started: dict[str, anyio.Event] = {}

    def gate(self, name: str) -> anyio.Event:
        return self.gates.setdefault(name, anyio.Event())

    def begun(self, name: str) -> anyio.Event:
        return self.started.setdefault(name, anyio.Event())

    async def enter(self, name: str) -> str:
        self.log.append(f"+{name}")
        self.running += 1
        self.peak = max(self.peak, self.running)
        self.begun(name).set()
        try:
            await self.gate(name).wait()
        finally:
            self.running -= 1
        self.log.append(f"-{name}")
        return f"done {name}"


def tools(pool: Pool) -> list[Any]:
    @tool
    async def work(name: str) -> str:
        """Work until the gate opens.

        Args:
            name: Which gate.
        """
        return await pool.enter(name)

    @tool(parallel=False)
    async def alone(name: str) -> str:
        """Work, and nothing beside it.

        Args:
            name: Which gate.
        """
        return await pool.enter(name)

    @tool
    async def quick(name: str) -> str:
        """Return at once.

        Args:
            name: What.
        """
        pool.log.append(f"!{name}")
        return f"quick {name}"

    @tool
    async def fail(name: str) -> str:
        """Fail.

        Args:
            name: What.
        """
        if name == "known":
            raise ToolError("the text for the model")
        raise KeyError("internal detail")

    @tool(on_error="raise")
    async def fatal(name: str) -> str:
        """Fail, and the run with it.

        Args:
            name: What.
        """
        raise ConnectionError(name)

    return [work, alone, quick, fail, fatal]


def agent(pool: Pool, *calls: ToolCall, **options: Any) -> Agent[None, str]:
    return Agent(ScriptedModel(list(calls), "Done."), tools=tools(pool), **options)


def results(run: Any) -> list[Any]:
    found = [one for message in run.result.messages if message.kind == "tool" for one in message.results]
    assert_history(run.result.messages)
    return found


async def test_w17_tools_run_side_by_side_and_history_and_events_keep_the_call_order() -> None:
    pool = Pool()
    calls = [call("work", call_id=one, name=one) for one in ("a", "b", "c")]
    async with agent(pool, *calls).stream("Go") as run:
        async with anyio.create_task_group() as group:

            async def conduct() -> None:
                for one in ("a", "b", "c"):
                    await pool.begun(one).wait()
                assert pool.running == 3
                for one in ("c", "b", "a"):
                    pool.gate(one).set()
                    while f"-{one}" not in pool.log:
                        await anyio.lowlevel.checkpoint()

            group.start_soon(conduct)
            events = await record(run)
    events.check()
    finished = [one.result.call_id for one in events.of(ToolCompleted)]
    assert (sorted(pool.log[:3]), pool.log[3:]) == (["+a", "+b", "+c"], ["-c", "-b", "-a"])
    assert finished == ["a", "b", "c"]
    assert [one.call_id for one in results(run)] == ["a", "b", "c"]


@pytest.mark.parametrize("cap", [1, 2, 8])
async def test_r86_w18_at_most_so_many_tools_run_at_once(cap: int) -> None:
    pool = Pool()
    names = [str(number) for number in range(10)]
    for one in names:
        pool.gate(one)
    calls = [call("work", call_id=one, name=one) for one in names]
    async with agent(pool, *calls, tool_concurrency=cap).stream("Go") as run:
        async with anyio.create_task_group() as group:

            async def conduct() -> None:
                for position, one in enumerate(names):
                    await pool.begun(one).wait()
                    assert pool.running <= cap
                    if position >= cap - 1:
                        # As many as may run do run; let the oldest go.
                        assert pool.running == cap
                        pool.gate(names[position - cap + 1]).set()
                for one in names:
                    pool.gate(one).set()

            group.start_soon(conduct)
            events = await record(run)
    events.check()
    assert pool.peak == cap
    assert [one.call_id for one in results(run)] == names


async def test_r86_the_cap_must_allow_one() -> None:
    with pytest.raises(ValueError, match="at least 1 tool"):
        Agent(ScriptedModel(), tool_concurrency=0)


async def test_serial_tools_keep_their_place() -> None:
    pool = Pool()
    calls = [
        call("work", name="a"),
        call("alone", name="b"),
        call("work", name="c"),
        call("work", name="d"),
        call("alone", name="e"),
    ]
    for one in "abcde":
        pool.gate(one).set()
    async with agent(pool, *calls).stream("Go") as run:
        events = await record(run)
    events.check()
    where = pool.log.index
    assert where("-a") < where("+b") < where("-b") < where("+c")
    assert where("-b") < where("+d")
    assert max(where("-c"), where("-d")) < where("+e")
    assert [one.content for one in results(run)] == [f"done {one}" for one in "abcde"]


async def test_all_starts_are_shown_before_any_tool_begins() -> None:
    pool = Pool()
    calls = [call("quick", name="a"), call("quick", name="b")]
    seen = 0
    async with agent(pool, *calls).stream("Go") as run:
        async for event in run:
            if event.type == "tool_started":
                seen += 1
                assert pool.log == []
            if event.type == "tool_completed":
                assert seen == 2
    assert sorted(pool.log) == ["!a", "!b"]


async def test_r23_a_call_starts_when_its_announcement_was_passed() -> None:
    pool = Pool()
    async with agent(pool, call("quick", name="a")).stream("Go") as run:
        async for event in run:
            if event.type == "tool_started":
                for _ in range(50):
                    await anyio.lowlevel.checkpoint()
                assert pool.log == []
                break
    assert pool.log == []
    assert results(run)[0].outcome == "not_started"


# ---- failures


async def test_w29_errors_of_tools_go_to_the_model_and_name_no_internals() -> None:
    pool = Pool()
    calls = [call("fail", name="known"), call("fail", name="other"), call("quick", name="a")]
    async with agent(pool, *calls).stream("Go") as run:
        events = await record(run)
    events.check()
    known, other, fine = results(run)
    assert (known.content, known.outcome) == ("the text for the model", "error")
    assert other.outcome == "error"
    assert "KeyError" in str(other.content)
    assert "Traceback" not in str(other.content)
    assert fine.content == "quick a"
    assert run.result.output == "Done."


async def test_unknown_tools_and_bad_arguments_are_results_the_model_can_act_on() -> None:
    pool = Pool()
    broken = ToolCall(id="raw", name="quick", raw='{"name": "a')
    calls = [call("quack", name="a"), call("quick", nme="a"), call("quick", name=5), broken]
    async with agent(pool, *calls).stream("Go") as run:
        events = await record(run)
    events.check()
    unknown, misspelt, wrong, cut = [str(one.content) for one in results(run)]
    assert "quick" in unknown
    assert "nme" in misspelt
    assert "name" in wrong
    assert "JSON" in cut
    assert {one.outcome for one in results(run)} == {"error"}
    assert pool.log == []
    assert not events.of(ToolStarted)


async def test_on_error_raise_fails_the_run_after_its_siblings_were_stopped() -> None:
    pool = Pool()
    calls = [call("work", name="a"), call("quick", name="b"), call("fatal", name="c")]
    events = EventRecorder()
    async with no_leaks():
        async with agent(pool, *calls).stream("Go", session="s") as run:
            await events.record(run, catch=ConnectionError)
    events.check()
    assert isinstance(events.error, ConnectionError)
    assert "on_error='raise'" in events.error.__notes__[0]
    assert [one.outcome for one in results(run)] == ["interrupted", "ok", "error"]
    assert pool.running == 0
    assert "-a" not in pool.log


async def test_attempts_are_for_tools_that_may_run_again() -> None:
    attempts: list[tuple[int, str]] = []

    @tool(attempts=3, effect="idempotent")
    async def flaky(ctx: ToolContext) -> str:
        """Fail twice."""
        attempts.append((ctx.attempt, ctx.key))
        if ctx.attempt < 3:
            raise ConnectionError("again")
        return "at last"

    async with Agent(ScriptedModel(call("flaky"), "Done."), tools=[flaky]).stream("Go") as run:
        events = await record(run)
    events.check()
    assert [number for number, _ in attempts] == [1, 2, 3]
    assert len({key for _, key in attempts}) == 1
    assert results(run)[0].content == "at last"


async def test_unsafe_tools_have_one_attempt() -> None:
    with pytest.raises(ValueError, match="attempts"):
        tool(attempts=2)(lambda: None)
        Agent(ScriptedModel(), tools=[tool(attempts=2)(_nothing)])


async def _nothing() -> None:
    """Do nothing."""


# ---- calls that are not executed


async def test_w14_doubled_and_empty_call_ids_get_fresh_ones() -> None:
    pool = Pool()
    ids = ["", "", "x", "x"]
    calls = [ToolCall(id=one, name="quick", arguments={"name": str(number)}) for number, one in enumerate(ids)]
    async with agent(pool, *calls).stream("Go") as run:
        events = await record(run)
    events.check()
    assert sorted(pool.log) == ["!0", "!1", "!2", "!3"]
    assert len({one.call_id for one in results(run)}) == 4
    assert [one.content for one in results(run)] == [f"quick {number}" for number in range(4)]


@pytest.mark.parametrize("reason", ["length", "refusal", "content_filter"])
async def test_w15_calls_of_a_cut_or_refused_response_are_not_executed(reason: Any) -> None:
    pool = Pool()
    model = ScriptedModel(Step(calls=[call("quick", name="a")], stop_reason=reason), "Done.")
    async with Agent(model, tools=tools(pool)).stream("Go") as run:
        events = await record(run)
    events.check()
    (result,) = results(run)
    assert (result.outcome, pool.log) == ("not_started", [])
    assert "was not run" in str(result.content)
    assert run.result.output == "Done."


async def test_calls_with_any_other_stop_reason_are_executed() -> None:
    pool = Pool()
    model = ScriptedModel(Step(calls=[call("quick", name="a")], stop_reason="end"), "Done.")
    result = await Agent(model, tools=tools(pool)).run("Go")
    assert (result.output, pool.log) == ("Done.", ["!a"])


async def test_after_model_may_take_calls_out_of_a_message() -> None:
    pool = Pool()

    class Censor:
        name = "censor"

        @hookimpl
        def after_model(self, response: ModelResponse) -> Any:
            if response.parts is None:
                return None
            parts = tuple(one for one in response.parts if not isinstance(one, ToolCallPart))
            return response.replace(parts=parts) if len(parts) < len(response.parts) else None

    model = ScriptedModel(Step("Just text.", calls=[call("quick", name="a")]))
    async with Agent(model, tools=tools(pool), plugins=[Censor()]).stream("Go") as run:
        events = await record(run)
    assert (run.result.output, pool.log) == ("Just text.", [])
    assert not events.one(MessageCompleted).message.calls


# ---- ends in the middle


async def test_w03_closing_in_the_middle_of_a_batch_keeps_every_finished_result() -> None:
    pool = Pool()
    calls = [call("quick", name="a"), call("work", name="b"), call("quick", name="c")]
    async with no_leaks():
        async with agent(pool, *calls).stream("Go", session="s") as run:
            async for event in run:
                if event.type == "tool_completed":
                    break
            await pool.begun("b").wait()
            while "!c" not in pool.log:
                await anyio.lowlevel.checkpoint()
    assert [(one.outcome, one.content) for one in results(run)][::2] == [("ok", "quick a"), ("ok", "quick c")]
    assert results(run)[1].outcome == "interrupted"


async def test_a_stop_lets_running_tools_finish_and_starts_no_other() -> None:
    pool = Pool()
    calls = [call("work", name="a"), call("work", name="b")]
    async with agent(pool, *calls, tool_concurrency=1).stream("Go") as run:
        async with anyio.create_task_group() as group:

            async def conduct() -> None:
                await pool.begun("a").wait()
                run.stop("enough")
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                pool.gate("a").set()

            group.start_soon(conduct)
            events = await record(run, catch=RunCancelledError)
    events.check()
    assert [(one.outcome, one.content) for one in results(run)] == [
        ("ok", "done a"),
        ("not_started", "Tool work was not run: the run was stopped (enough)"),
    ]


async def test_progress_is_shown_between_start_and_end() -> None:
    @tool
    async def slow(ctx: ToolContext) -> str:
        """Work."""
        await ctx.progress("half", fraction=0.5, data={"bytes": 5})
        await ctx.progress("all", fraction=1.0)
        return "done"

    async with Agent(ScriptedModel(call("slow"), "Done."), tools=[slow]).stream("Go") as run:
        events = await record(run)
    events.check()
    shown = [(one.text, one.fraction, one.data) for one in events.of(ToolProgress)]
    assert shown == [("half", 0.5, {"bytes": 5}), ("all", 1.0, None)]


async def test_r07_r89_what_parallel_tools_show_is_one_after_the_other() -> None:
    """Each `progress` returns when its event was passed; nobody's events come between those of one put."""
    shown: list[str] = []

    @tool(name="talk")
    async def talking(ctx: ToolContext, name: str) -> str:
        """Talk.

        Args:
            name: Who.
        """
        for number in range(20):
            await ctx.progress(f"{name} {number}")
            shown.append(f"{name} {number}")
        return name

    calls = [call("talk", name=one) for one in "abc"]
    seen: list[str] = []
    async with Agent(ScriptedModel(calls, "Done."), tools=[talking]).stream("Go") as run:
        async for event in run:
            if event.type == "tool_progress":
                # The one that is held is not through, and none after it.
                assert event.text not in shown
                assert len(seen) - len(shown) in (0, 1)
                seen.append(event.text)
    for one in "abc":
        assert [text for text in seen if text.startswith(one)] == [f"{one} {number}" for number in range(20)]


async def test_limits_tool_calls_is_looked_at_before_a_batch_starts() -> None:
    pool = Pool()
    model = ScriptedModel(call("quick", name="a"), [call("quick", name="b"), call("quick", name="c")], "Done.")
    async with Agent(model, tools=tools(pool), limits=Limits(tool_calls=2)).stream("Go") as run:
        events = await record(run, catch=RunLimitError)
    events.check()
    assert "2 tool calls" in str(events.error)
    assert pool.log == ["!a"]
    assert [one.outcome for one in results(run)] == ["ok", "not_started", "not_started"]
