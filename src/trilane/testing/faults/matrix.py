"""Which cases there are: every scenario, every fault, every point, on every backend. And a sample of them.

The points of a scenario are counted by playing it without a fault.
"""

from __future__ import annotations

import gc
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .adapter import Adapter
from .case import Case, play
from .invariants import violations
from .scenario import Scenario, all_scenarios
from .stage import FAULT_NEEDS, FAULTS, kind_of

__all__ = ["Failure", "Report", "all_cases", "points", "run_cases", "sample", "scenarios_for", "spread"]

GAPS = (1, 2, 5)  # await points between the two cancels of `cancel_twice`


@dataclass(frozen=True, slots=True)
class Failure:
    """One case that violates something."""

    case: Case
    problems: tuple[tuple[str, str], ...]


@dataclass
class Report:
    """What came of many cases."""

    adapter: str
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # scenario, fault, backend
    missed: int = 0  # cases whose point was not reached
    failures: list[Failure] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """How many cases were played."""
        return sum(self.counts.values())


def scenarios_for(adapter: Adapter, names: Sequence[str] = ()) -> list[Scenario]:
    """The scenarios the adapter can play; all, or those named.

    Raises:
        KeyError: there is no scenario of that name.
    """
    known = all_scenarios()
    chosen = [known[name] for name in names] if names else list(known.values())
    return [one for one in chosen if all(adapter.features.get(need, False) for need in one.needs)]


def points(scenario: Scenario, backend: str, adapter: Adapter, seed: int) -> Counter[str]:
    """How many points of each kind a scenario has."""
    case = Case(scenario=scenario.name, fault="", point=0, backend=backend, seed=seed)  # type: ignore[arg-type]
    return play(case, scenario, adapter).stage.counts


def all_cases(
    scenario: Scenario, adapter: Adapter, *, seed: int = 0, faults: Iterable[str] = (), backends: Iterable[str] = ()
) -> Iterator[Case]:
    """Every case of a scenario, without the one that has no fault."""
    for backend in adapter.backends:
        if (backends and backend not in backends) or backend not in scenario.backends:
            continue
        counted = points(scenario, backend, adapter, seed)
        yield Case(scenario=scenario.name, fault="", point=0, backend=backend, seed=seed)
        for fault in faults or FAULTS:
            if not _makes_sense(fault, scenario, adapter):
                continue
            for point in range(1, counted[kind_of(fault)] + 1):
                for gap in GAPS if fault == "cancel_twice" else (1,):
                    yield Case(scenario=scenario.name, fault=fault, point=point, backend=backend, gap=gap, seed=seed)


def _makes_sense(fault: str, scenario: Scenario, adapter: Adapter) -> bool:
    need = FAULT_NEEDS.get(fault)
    return fault not in scenario.skip and (need is None or adapter.features.get(need, False))


def sample(cases: Iterable[Case], per_backend: int, seed: int) -> list[Case]:
    """So many cases of each scenario and backend, of as many different faults, always the same for a seed."""
    groups: dict[tuple[str, str], dict[str, list[Case]]] = {}
    for case in cases:
        groups.setdefault((case.scenario, case.backend), {}).setdefault(case.fault, []).append(case)
    chosen: list[Case] = []
    for (scenario, backend), by_fault in groups.items():
        chooser = random.Random(f"{seed} {scenario} {backend}")
        faults = sorted(by_fault)
        few = chooser.sample(faults, min(per_backend, len(faults)))
        chosen += [chooser.choice(by_fault[fault]) for fault in few]
    return chosen


def spread(
    scenarios: Iterable[Scenario],
    adapter: Adapter,
    *,
    seed: int = 0,
    faults: Iterable[str] = (),
    backends: Iterable[str] = (),
) -> Iterator[Case]:
    """Every fault at an early, a middle and a late point of every scenario, on every backend, in turn.

    Each beginning of it is a fair sample: before a scenario has its next case on a backend, every other one has had as
    many, and neighbours are given different faults and different thirds of their points.
    """
    pairs = [
        (scenario, backend)
        for scenario in scenarios
        for backend in adapter.backends
        if backend in scenario.backends and (not backends or backend in backends)
    ]
    lanes = [
        _lane(scenario, backend, adapter, number, seed, tuple(faults) or tuple(FAULTS))
        for number, (scenario, backend) in enumerate(pairs)
    ]
    while lanes:
        going = []
        for lane in lanes:
            case = next(lane, None)
            if case is not None:
                yield case
                going.append(lane)
        lanes = going


PARTS = 3  # early, middle, late


def _lane(
    scenario: Scenario, backend: str, adapter: Adapter, number: int, seed: int, faults: Sequence[str]
) -> Iterator[Case]:
    """The cases of one scenario on one backend: each fault once, and then again at another part, until all had all."""

    def case(fault: str, point: int, gap: int = 1) -> Case:
        return Case(scenario.name, fault, point, backend, gap, seed)  # type: ignore[arg-type]

    yield case("", 0)
    counted = points(scenario, backend, adapter, seed)
    chooser = random.Random(f"{seed} {scenario.name} {backend}")
    possible = [fault for fault in faults if _makes_sense(fault, scenario, adapter) and counted[kind_of(fault)]]
    given: set[tuple[str, int]] = set()
    for again in range(PARTS):
        for position in range(len(possible)):
            fault = possible[(number + position) % len(possible)]
            count = counted[kind_of(fault)]
            part = (number + position + again) % PARTS
            first, last = count * part // PARTS + 1, count * (part + 1) // PARTS
            point = chooser.randint(min(first, count), max(last, 1))
            if (fault, point) in given:
                continue
            given.add((fault, point))
            yield case(fault, point, chooser.choice(GAPS) if fault == "cancel_twice" else 1)


def run_cases(
    cases: Iterable[Case],
    adapter: Adapter,
    *,
    scenarios: Mapping[str, Scenario] | None = None,
    on_failure: Callable[[Failure], None] = lambda _failure: None,
    enough: Callable[[Report], bool] = lambda _report: False,
) -> Report:
    """Play cases and check them, until none is left or `enough` says so.

    Args:
        cases: What is played.
        adapter: Whose runs are interrupted.
        scenarios: The scenarios of the cases by name; without it, those that are there for all.
        on_failure: Told of each case that violates something.
        enough: Asked after each case.

    Example:
        ```python
        def parts(_stage):
            return Play(script=["An answer."], plugins=[MyPlugin()])

        mine, adapter = Scenario("mine", parts), TrilaneAdapter()
        report = run_cases(all_cases(mine, adapter), adapter, scenarios={"mine": mine})
        assert report.failures == []
        ```
    """
    report = Report(adapter.name)
    known = all_scenarios() if scenarios is None else scenarios
    logger = logging.getLogger("trilane")
    before, logger.disabled = logger.disabled, True
    seen: set[tuple[str, str]] = set()
    try:
        for case in cases:
            if (case.scenario, case.backend) not in seen:
                # What was imported by now stays; so looking for garbage after every case costs little.
                seen.add((case.scenario, case.backend))
                gc.collect()
                gc.freeze()
            report.counts[case.scenario, case.fault or "none", case.backend] += 1
            problems, fired = _check(case, known[case.scenario], adapter)
            if case.fault and not fired:
                report.missed += 1
            if problems:
                failure = Failure(case, tuple(problems))
                report.failures.append(failure)
                on_failure(failure)
            if enough(report):
                break
    finally:
        logger.disabled = before
        gc.unfreeze()
    return report


def _check(case: Case, scenario: Scenario, adapter: Adapter) -> tuple[list[tuple[str, str]], bool]:
    """Play one case; give what it violates, and whether the fault struck."""
    played = play(case, scenario, adapter)
    problems, fired = violations(played), played.stage.fired
    watched = played.evidence.watched
    del played
    gc.collect()
    problems += [("nothing_left", f"not freed: {name}") for name, reference in watched.items() if reference()]
    return problems, fired
