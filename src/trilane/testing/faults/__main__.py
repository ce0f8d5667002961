"""`python -m trilane.testing.faults`: interrupt every scenario at every point and check what is left.

Without arguments a sample of at most half a minute; `--all` for everything; `--scenario`, `--point`, `--fault` and
`--backend` for one case, as printed with each failure.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from .adapter import Adapter
from .case import Case, play
from .invariants import violations
from .matrix import Failure, Report, all_cases, run_cases, scenarios_for, spread
from .scenario import all_scenarios
from .stage import FAULTS

__all__ = ["main"]

SAMPLE_SECONDS = 25.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 1 if anything was violated."""
    options = _parser().parse_args(arguments)
    adapter = load_adapter(options.adapter)
    if options.list:
        _list()
        return 0
    print(f"seed {options.seed}", flush=True)
    if options.soak:
        return _soak(options)
    if options.point:
        return _one(options, adapter)
    started = time.perf_counter()
    cases = _cases(options, adapter)

    sampled = not (options.all or options.scenario)
    seconds = options.seconds or (SAMPLE_SECONDS if sampled else 0.0)

    def late(report: Report) -> bool:
        if options.first and report.failures:
            return True
        return bool(seconds) and time.perf_counter() - started > seconds

    def show(failure: Failure) -> None:
        print(failure.case.command(options.adapter), flush=True)
        for name, text in failure.problems:
            print(f"    {name}: {text}", flush=True)

    report = run_cases(cases, adapter, on_failure=show, enough=late)
    if options.all or options.scenario:
        _table(report)
    if seconds and late(report):
        rest = (
            "each scenario had as many cases as the others, --all has them all" if sampled else "there are more cases"
        )
        print(f"stopped after {seconds:.0f} s; {rest}")
    print(_summary(report, time.perf_counter() - started))
    return 1 if report.failures else 0


def load_adapter(reference: str) -> Adapter:
    """The adapter `MODULE:NAME` (a class or a function that makes one); Trilane's own without a reference."""
    if not reference:
        from .trilane_adapter import TrilaneAdapter

        return TrilaneAdapter()
    from importlib import import_module

    module, _, name = reference.partition(":")
    made: Adapter = getattr(import_module(module), name)()
    return made


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trilane.testing.faults", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every case, not a sample")
    parser.add_argument("--list", action="store_true", help="list scenarios and faults")
    parser.add_argument("--scenario", action="append", default=[], help="only this scenario; all of its cases")
    parser.add_argument("--fault", action="append", default=[], choices=sorted(FAULTS), help="only this fault")
    parser.add_argument("--backend", action="append", default=[], choices=["asyncio", "trio"], help="only this one")
    parser.add_argument("--point", type=int, default=0, help="only this point, with one --scenario and one --fault")
    parser.add_argument("--gap", type=int, default=1, help="await points between the cancels of cancel_twice")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long; the cases are then shuffled")
    parser.add_argument("--first", action="store_true", help="end with the first case that violates something")
    parser.add_argument("--soak", type=int, default=0, metavar="RUNS", help="stop so many runs at random, and measure")
    parser.add_argument("--seed", type=int, default=0, help="of the sample, and of the order of tasks on trio")
    parser.add_argument("--adapter", default="", help="MODULE:NAME of another framework's adapter")
    return parser


def _list() -> None:
    for scenario in all_scenarios().values():
        print(f"{scenario.name:24} {scenario.mode:8} {' '.join(sorted(scenario.needs))}")
    for fault, text in FAULTS.items():
        print(f"{fault:24} {text}")


def _cases(options: argparse.Namespace, adapter: Adapter) -> Iterator[Case]:
    chosen = scenarios_for(adapter, options.scenario)
    if not (options.all or options.scenario):
        yield from spread(chosen, adapter, seed=options.seed, faults=options.fault, backends=options.backend)
        return
    cases = (
        case
        for scenario in chosen
        for case in all_cases(scenario, adapter, seed=options.seed, faults=options.fault, backends=options.backend)
    )
    if options.seconds:
        shuffled = list(cases)
        random.Random(options.seed).shuffle(shuffled)
        yield from shuffled
    else:
        yield from cases


def _one(options: argparse.Namespace, adapter: Adapter) -> int:
    if len(options.scenario) != 1 or len(options.fault) != 1:
        print("--point needs one --scenario and one --fault", file=sys.stderr)
        return 2
    failed = False
    for backend in options.backend or adapter.backends:
        case = Case(options.scenario[0], options.fault[0], options.point, backend, options.gap, options.seed)
        played = play(case, all_scenarios()[case.scenario], adapter)
        _tell(case, played)
        problems = violations(played)
        for name, text in problems:
            print(f"    {name}: {text}")
        failed = failed or bool(problems)
    return 1 if failed else 0


def _soak(options: argparse.Namespace) -> int:
    from .soak import grown, soak

    failed = False
    for backend in options.backend or ("asyncio", "trio"):
        measured = list(soak(options.soak, backend, options.seed))
        print(f"{backend}:", *(f"  {one}" for one in measured), sep="\n")
        problems = grown(measured)
        print(f"{backend}: {'; '.join(problems) or 'nothing grew'}", flush=True)
        failed = failed or bool(problems)
    return 1 if failed else 0


def _tell(case: Case, played: object) -> None:
    from .case import Played

    assert isinstance(played, Played)
    stage, evidence = played.stage, played.evidence
    where = f"struck at {stage.fired_label} after {stage.fired_at:.2f} s" if stage.fired else "point not reached"
    print(f"{case.backend}: {where}; {evidence.outcome} {evidence.error!r}; status {evidence.status}")
    for position, event in enumerate(evidence.events, 1):
        print(f"    event {position}: {getattr(event, 'type', event)}")
    for work in stage.work:
        print(f"    {work.time:6.2f} {work.label} {work.key}{' (consumer holds an event)' if work.holding else ''}")


def _table(report: Report) -> None:
    scenarios: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    backends: Counter[str] = Counter()
    for (scenario, fault, backend), count in report.counts.items():
        scenarios[scenario] += count
        faults[fault] += count
        backends[backend] += count
    for title, counts in (("scenario", scenarios), ("fault", faults), ("backend", backends)):
        print(f"{title:28} cases")
        for name, count in counts.items():
            print(f"  {name:26} {count:5}")


def _summary(report: Report, seconds: float) -> str:
    scenarios = len({scenario for scenario, _, _ in report.counts})
    violated = sum(len(failure.problems) for failure in report.failures)
    return (
        f"{report.adapter}: {report.cases} cases of {scenarios} scenarios in {seconds:.1f} s, "
        f"{violated} violations in {len(report.failures)} cases"
    )


if __name__ == "__main__":
    sys.exit(main())
