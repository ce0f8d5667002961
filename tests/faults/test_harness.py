"""The harness itself: it finds what it should find, tells the points apart, and prints what reproduces a failure."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from trilane import hookimpl
from trilane.messages import AssistantMessage, Message, TextPart, ToolCallPart, ToolMessage, ToolResult, UserMessage
from trilane.testing.faults import (
    FAULTS,
    INVARIANTS,
    At,
    Case,
    Evidence,
    Injected,
    Play,
    Scenario,
    Stage,
    all_cases,
    all_scenarios,
    play,
    run_cases,
    sample,
    spread,
    violations,
)
from trilane.testing.faults.__main__ import main
from trilane.testing.faults.adapter import Backend
from trilane.testing.faults.trilane_adapter import TrilaneAdapter


class Toy:
    """A small agent loop on asyncio that is right, or wrong in one way."""

    name = "toy"
    backends: Sequence[Backend] = ("asyncio",)
    features: Mapping[str, bool] = {}

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong

    def open(self, scenario: Scenario, stage: Stage) -> ToyRun:
        return ToyRun(scenario, stage, self.wrong)


class ToyRun:
    def __init__(self, scenario: Scenario, stage: Stage, wrong: str) -> None:
        self.parts = scenario.play(stage)
        self.stage = stage
        self.wrong = wrong
        self.messages: list[Message] = [UserMessage(id="1", parts=(TextPart(text="Go on."),))]
        self.status: str | None = None

    async def play(self, evidence: Evidence) -> None:
        try:
            for number, step in enumerate(self.parts.script, 2):
                await self.turn(number, step)
            self.status = "completed"
        except asyncio.CancelledError:
            self.status = "cancelled"
            if self.wrong != "swallows the cancel":
                raise
        except BaseException as error:
            self.status = "failed"
            if self.wrong == "groups":
                raise BaseExceptionGroup("wrapped", [error]) from None
            raise

    async def turn(self, number: int, step: Any) -> None:
        self.stage.begin("model")
        await self.stage.call("model.start")
        if isinstance(step, str):
            self.messages.append(AssistantMessage(id=str(number), parts=(TextPart(text=step),)))
            return
        message = AssistantMessage(id=str(number), parts=tuple(ToolCallPart(call=call) for call in step))
        results: dict[str, ToolResult] = {}
        if self.wrong != "answers late":
            self.messages.append(message)
        try:
            if self.wrong == "leaves tasks":
                tasks = [asyncio.ensure_future(self.tool(call, results)) for call in step]
                await asyncio.gather(*map(asyncio.shield, tasks))
            else:
                for call in step:
                    await self.tool(call, results)
        finally:
            if self.wrong == "loses results" and len(results) < len(step):
                results.clear()
            if self.wrong != "leaves calls open" or len(results) == len(step):
                self.messages.append(self.answered(number, step, results))

    def answered(self, number: int, calls: Sequence[Any], results: Mapping[str, ToolResult]) -> ToolMessage:
        began = self.stage.tools
        missing = {
            call.id: ToolResult(
                call_id=call.id,
                content="effect unknown" if call.id in began else "not run",
                outcome="interrupted" if call.id in began else "not_started",
            )
            for call in calls
        }
        return ToolMessage(id=f"{number}r", results=tuple(results.get(call.id) or missing[call.id] for call in calls))

    async def tool(self, call: Any, results: dict[str, ToolResult]) -> None:
        tool = next(tool for tool in self.parts.tools if tool.name == call.name)
        try:
            value = await tool.work(At(self.stage, call.id, call.name, dict(call.arguments)))
            results[call.id] = ToolResult(call_id=call.id, content=value)
        except Exception as error:
            results[call.id] = ToolResult(call_id=call.id, content=type(error).__name__, outcome="error")

    async def close(self) -> None: ...

    def stop(self) -> None: ...

    async def suspend(self) -> None: ...

    async def testify(self, evidence: Evidence) -> None:
        evidence.messages = evidence.kept = tuple(self.messages)
        evidence.status = self.status
        evidence.next_outcome = "busy" if self.wrong == "stays busy" and self.status != "completed" else "completed"


TOY_FAULTS = ("raise", "cancel_once", "cancel_twice", "hang_cancel")


def problems_of(wrong: str, name: str = "parallel") -> set[str]:
    adapter = Toy(wrong)
    report = run_cases(all_cases(all_scenarios()[name], adapter, faults=TOY_FAULTS), adapter)
    assert report.cases >= 20
    return {invariant for failure in report.failures for invariant, _ in failure.problems}


def test_a_correct_toy_passes() -> None:
    assert problems_of("") == set()


@pytest.mark.parametrize(
    ("wrong", "caught"),
    [
        ("swallows the cancel", "right_exception"),
        ("groups", "right_exception"),
        ("leaves tasks", "nothing_left"),
        ("loses results", "results_kept"),
        ("leaves calls open", "valid_history"),
        ("answers late", "valid_history"),
        ("stays busy", "session_free"),
    ],
)
def test_each_mistake_of_a_toy_is_caught(wrong: str, caught: str) -> None:
    assert caught in problems_of(wrong)


def test_the_same_case_always_does_the_same() -> None:
    adapter, scenarios = TrilaneAdapter(), all_scenarios()
    for backend in adapter.backends:
        case = Case("parallel", "cancel_once", 25, backend, seed=3)
        seen = []
        for _ in range(3):
            played = play(case, scenarios["parallel"], adapter)
            assert played.stage.fired
            seen.append(
                (
                    played.stage.counts,
                    [(work.label, work.time) for work in played.stage.work],
                    [event.type for event in played.evidence.events],  # type: ignore[attr-defined]
                )
            )
        assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("name", [name for name, one in all_scenarios().items() if len(one.backends) == 2])
def test_an_uninterrupted_scenario_comes_out_the_same_on_both_backends(name: str) -> None:
    scenario, outcomes = all_scenarios()[name], []
    for backend in scenario.backends:
        played = play(Case(name, "", 0, backend), scenario, TrilaneAdapter())  # type: ignore[arg-type]
        assert violations(played) == []
        results = [
            (result.outcome, str(result.content))  # and not the id: it may be a fresh one
            for message in played.evidence.messages or ()
            if isinstance(message, ToolMessage)
            for result in message.results
        ]
        outcomes.append((played.evidence.status, results, len(played.stage.tools)))
    assert outcomes[0] == outcomes[1]


def test_every_fault_strikes_somewhere() -> None:
    adapter = TrilaneAdapter()
    struck = set()
    for name in ("tool", "plain_runtime"):
        scenario = all_scenarios()[name]
        for case in sample(all_cases(scenario, adapter), 30, seed=1):
            if play(case, scenario, adapter).stage.fired:
                struck.add((case.fault, case.backend))
    assert struck == {(fault, backend) for fault in FAULTS for backend in adapter.backends}


def test_the_injected_exception_is_what_the_caller_gets() -> None:
    adapter = TrilaneAdapter()
    for backend in adapter.backends:
        played = play(Case("plain", "raise", 1, backend), all_scenarios()["plain"], adapter)
        assert isinstance(played.stage.injected, Injected)
        assert played.evidence.error is played.stage.injected
        assert violations(played) == []


def test_a_failure_is_printed_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", "tool", "--fault", "cancel_twice", "--point", "3", "--gap", "2", "--backend", "trio"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "seed 0" in printed
    assert "struck at await point" in printed
    command = Case("tool", "cancel_twice", 3, "trio", gap=2).command()
    assert command == "python -m trilane.testing.faults " + " ".join(
        ["--scenario tool", "--point 3 --fault cancel_twice", "--gap 2", "--backend trio --seed 0"]
    )


def test_the_command_fails_with_the_commands_that_reproduce(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trilane.testing.faults.__main__.load_adapter", lambda _reference: Toy("stays busy"))
    assert main(["--scenario", "tool", "--fault", "cancel_once"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "python -m trilane.testing.faults --scenario tool --point 1 --fault cancel_once" in "\n".join(lines)
    assert lines[-1].startswith("toy: ")
    assert lines[-1].endswith("cases")


def test_the_sample_is_the_same_for_a_seed_and_another_for_another() -> None:
    adapter, scenario = TrilaneAdapter(), all_scenarios()["tool"]
    cases = list(all_cases(scenario, adapter))
    assert sample(cases, 5, 1) == sample(cases, 5, 1)
    assert sample(cases, 5, 1) != sample(cases, 5, 2)


def test_every_invariant_says_what_it_is_about() -> None:
    assert all(check.__doc__ and check.__doc__.endswith(".") for check in INVARIANTS.values())


def test_scenarios_a_framework_cannot_play_are_left_out() -> None:
    from trilane.testing.faults import scenarios_for

    names = {scenario.name for scenario in scenarios_for(Toy())}
    assert "parallel" in names
    assert not names & {"hooks", "store", "sink", "child", "ask", "compaction"}


def test_any_beginning_of_the_spread_is_a_fair_sample() -> None:
    adapter = TrilaneAdapter()
    scenarios = [all_scenarios()[name] for name in ("plain", "tool", "parallel", "plain_run", "plain_runtime", "sink")]
    cases = list(spread(scenarios, adapter, seed=4))
    lanes = {(case.scenario, case.backend) for case in cases}
    assert len(lanes) == 12
    for beginning in (12, 50, 100, 300):
        counts = Counter((case.scenario, case.backend) for case in cases[:beginning])
        assert set(counts) == lanes
        assert max(counts.values()) - min(counts.values()) <= 1
    longest = max(len(one.skip) for one in scenarios)
    faults = {(case.scenario, case.backend, case.fault) for case in cases[: 12 * (len(FAULTS) - longest + 1)]}
    assert len(faults) == 12 * (len(FAULTS) - longest + 1), "no fault comes again before every other has come"
    assert cases == list(spread(scenarios, adapter, seed=4))
    assert cases != list(spread(scenarios, adapter, seed=5))


def test_the_spread_reaches_early_middle_and_late_points() -> None:
    adapter, scenario = TrilaneAdapter(), all_scenarios()["parallel"]
    for backend in adapter.backends:
        last: dict[str, int] = {}
        for case in all_cases(scenario, adapter, backends=[backend]):
            last[case.fault] = max(last.get(case.fault, 0), case.point)
        struck: dict[str, list[int]] = {}
        for case in spread([scenario], adapter, backends=[backend]):
            if case.fault:
                struck.setdefault(case.fault, []).append(case.point)
        assert set(struck) == set(FAULTS) - scenario.skip
        for fault, chosen in struck.items():
            early, middle, late = sorted(chosen)
            third = last[fault] // 3
            assert early <= third + 1 <= middle <= 2 * third + 2 <= late + 1, fault


def test_the_sample_ends_in_time_with_one_summary_line_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trilane.testing.faults.__main__.SAMPLE_SECONDS", 0.5)
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 0"
    assert lines[-2].startswith("stopped after ")
    assert re.fullmatch(r"trilane: \d+ cases of \d+ scenarios in \d+\.\d s, 0 violations in 0 cases", lines[-1])


def test_the_author_of_a_plugin_breaks_runs_that_have_it() -> None:
    turns: list[int] = []

    class Counts:
        name = "counts"

        @hookimpl
        async def before_turn(self, run: Any, turn: int) -> None:
            turns.append(turn)

    def parts(_stage: Stage) -> Play:
        return Play(script=["An answer."], plugins=[Counts()])

    mine, adapter = Scenario("mine", parts), TrilaneAdapter()
    cases = all_cases(mine, adapter, faults=["cancel_once", "hang_cancel"], backends=["asyncio"])
    report = run_cases(cases, adapter, scenarios={"mine": mine})
    assert report.cases >= 20
    assert report.failures == []
    assert len(turns) > report.cases
