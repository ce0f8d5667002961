"""Threads and processes under virtual time: however slow the machine, the case comes out the same."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import pytest

from trilane.testing.faults import At, Case, Play, Scenario, ScriptedTool, Stage, all_scenarios, play, violations
from trilane.testing.faults.scenarios import _one
from trilane.testing.faults.tools import threaded, worker
from trilane.testing.faults.trilane_adapter import TrilaneAdapter

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="not installed: /proc, where processes are seen"
)
both = pytest.mark.parametrize("backend", ["asyncio", "trio"])

SLOW_SECONDS = 0.4  # real; without a clock that stands, an hour of virtual time would pass


def _slow_program(at: At) -> object:
    """A program that a loaded machine takes long to start, and longer to run."""

    async def work() -> str:
        at.stage.tool_began(at.call_id, "program")
        assert at.process is not None
        code = f"import time; time.sleep({SLOW_SECONDS}); print('done')"
        output = await at.process([sys.executable, "-S", "-c", code])
        return at.stage.tool_returns(at.call_id, f"program printed {output.strip()}")

    return work()


def _with(tool: ScriptedTool) -> Scenario:
    def parts(_stage: Stage) -> Play:
        return Play(script=[[_one(tool.name), _one("look")], "Both."], tools=[tool, worker("look", seconds=0.1)])

    return replace(all_scenarios()["tool_process"], play=parts)


@linux
@both
@pytest.mark.parametrize(
    "tool",
    [
        ScriptedTool("program", _slow_program, timeout=5.0),
        replace(threaded("thread", seconds=SLOW_SECONDS), timeout=5.0),
    ],
    ids=["process", "thread"],
)
def test_virtual_time_stands_while_a_thread_or_a_process_is_at_work(backend: str, tool: ScriptedTool) -> None:
    began = time.perf_counter()
    played = play(Case("tool_process", "", 0, backend), _with(tool), TrilaneAdapter())  # type: ignore[arg-type]
    assert violations(played) == []
    assert time.perf_counter() - began >= SLOW_SECONDS
    trace = played.stage.tools[f"{tool.name}_1"]
    assert trace.value is not None, "its time limit of five virtual seconds came first"
    assert not trace.after_end


@linux
@both
def test_a_program_that_hangs_is_waited_for_until_it_hangs_and_until_it_is_dead(backend: str) -> None:
    played = play(
        Case("tool_process_hangs", "", 0, backend),  # type: ignore[arg-type]
        all_scenarios()["tool_process_hangs"],
        TrilaneAdapter(),
    )
    assert violations(played) == []
    assert played.evidence.status == "timed_out"
    assert played.evidence.left == ()
    outside = played.stage.outside
    assert outside is not None
    (program,) = outside._programs
    assert len(program.ids()) == 2, "the program and its child were both there before time went on"
    assert list(outside.left()) == []


@both
def test_a_thread_that_outlasts_the_run_is_listed_as_abandoned_and_nothing_else_is(backend: str) -> None:
    scenario = all_scenarios()["tool_thread_stuck"]
    played = play(Case("tool_thread_stuck", "", 0, backend), scenario, TrilaneAdapter())  # type: ignore[arg-type]
    assert violations(played) == []
    assert played.evidence.status == "completed"
    assert played.evidence.abandoned == ("stuck_1",)
    assert played.stage.tools["stuck_1"].after_end, "it came back when the case let it"


def test_a_thread_that_outlasts_the_run_unlisted_is_a_violation() -> None:
    scenario = all_scenarios()["tool_thread_stuck"]
    played = play(Case("tool_thread_stuck", "", 0, "asyncio"), scenario, TrilaneAdapter())
    played.evidence.abandoned = ()
    assert [name for name, _ in violations(played)] == ["abandoned_listed"]
    played.evidence.abandoned = ("stuck_1", "look_1")
    assert [name for name, _ in violations(played)] == ["abandoned_listed"]
