"""Runs under a scheduler that is not kind: tasks in any order, and every model, tool, hook and store takes its time.

The scenarios and what must hold are those of `trilane.testing.faults`. On asyncio the tasks that are ready in one pass
of the loop take their steps in an order of our own, and all of them do; what is not a task keeps its place, for there
asyncio promises the order. On trio a batch of tasks is shuffled anyhow. The number of a test is its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from trilane.testing import VirtualEventLoop
from trilane.testing.clock import Backend, virtual_backend
from trilane.testing.faults import FAULTS, Case, Scenario, Stage, case, play, run_cases
from trilane.testing.faults.matrix import scenarios_for
from trilane.testing.faults.stage import kind_of
from trilane.testing.faults.trilane_adapter import TrilaneAdapter

FIRST = 6 * int(os.environ.get("TRILANE_TEST_SEED", "0"))  # set by tests/repeat.py
SEEDS = range(FIRST, FIRST + 6)
SCENARIOS = 10  # of each seed and backend
FAULTS_EACH = 4


class ShuffledLoop(VirtualEventLoop):
    """Tasks that are ready at the same time take their steps in a random order."""

    def __init__(self, chooser: random.Random) -> None:
        self.chooser = chooser
        self.shuffled = 0
        super().__init__(0.0)

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        places = [place for place, handle in enumerate(ready) if _is_step_of_a_task(handle)]
        if len(places) > 1:
            self.shuffled += 1
            handles = [ready[place] for place in places]
            self.chooser.shuffle(handles)
            for place, handle in zip(places, handles, strict=True):
                ready[place] = handle
        super()._run_once()  # type: ignore[misc]


def _is_step_of_a_task(handle: Any) -> bool:
    callback = handle._callback
    return type(callback).__name__ == "TaskStepMethWrapper" or isinstance(
        getattr(callback, "__self__", None), asyncio.Task
    )


class SlowStage(Stage):
    """Whatever the script awaits takes a random while."""

    chooser = random.Random()

    async def call(self, label: str) -> None:
        assert self.checkpoint is not None
        assert self.sleep is not None
        for _ in range(self.chooser.choice((0, 0, 1, 2, 5))):
            await self.checkpoint()
        if self.chooser.random() < 0.1:
            await self.sleep(0.001)  # real time: timers fire in between
        await super().call(label)


@pytest.fixture(params=SEEDS)
def chooser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """The source of all chance in a test, and what makes the harness use it."""
    source = random.Random(request.param)

    def backend(name: Backend, *, real_seconds: float, held: None) -> tuple[str, dict[str, Any]]:
        assert held is None, "scenarios with something real in them are left out"
        if name == "asyncio":
            return name, {"loop_factory": lambda: ShuffledLoop(source)}
        return virtual_backend(name, real_seconds=real_seconds)

    monkeypatch.setattr(case, "virtual_backend", backend)
    monkeypatch.setattr(case, "Stage", SlowStage)
    monkeypatch.setattr(SlowStage, "chooser", source)
    return source


def chosen_cases(scenario: Scenario, backend: Backend, source: random.Random) -> list[Case]:
    """A few of a scenario's cases. How many points it has changes with the schedule: these are those of one."""
    seed = source.randrange(1_000_000)
    plain = Case(scenario.name, "", 0, backend, seed=seed)
    counted = play(plain, scenario, TrilaneAdapter()).stage.counts
    faults = [fault for fault in sorted(FAULTS) if fault not in scenario.skip and counted[kind_of(fault)]]
    cases = [plain]
    for fault in source.sample(faults, FAULTS_EACH):
        # The first step may be the harness's own, and a caller that has not begun hears of no cancel.
        first = 2 if kind_of(fault) == "step" else 1
        point = source.randint(first, counted[kind_of(fault)])
        cases.append(Case(scenario.name, fault, point, backend, source.randint(1, 6), seed))
    return cases


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_r91_runs_hold_under_random_schedules(backend: Backend, chooser: random.Random) -> None:
    adapter = TrilaneAdapter()
    possible = [one for one in scenarios_for(adapter) if backend in one.backends and not one.real]
    cases = [
        one for scenario in chooser.sample(possible, SCENARIOS) for one in chosen_cases(scenario, backend, chooser)
    ]
    report = run_cases(cases, adapter)
    assert report.cases == SCENARIOS * (1 + FAULTS_EACH)
    assert report.missed < report.cases // 2, "most faults did not strike"
    assert [f"{failure.case}: {failure.problems}" for failure in report.failures] == []


def test_r91_the_schedule_is_another_for_another_seed_and_the_same_for_the_same() -> None:
    def order(seed: int) -> list[int]:
        seen: list[int] = []

        async def one(number: int) -> None:
            await asyncio.sleep(0)
            seen.append(number)

        async def main() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(8):
                    tasks.create_task(one(number))

        with asyncio.Runner(loop_factory=lambda: ShuffledLoop(random.Random(seed))) as runner:
            runner.run(main())
        assert sorted(seen) == list(range(8)), "every task had its turn"
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) == 10
