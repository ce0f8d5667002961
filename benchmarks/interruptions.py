"""Interrupts Trilane and other frameworks in the same ways, and counts what each leaves behind.

The harness is `trilane.testing.faults`; a framework is an adapter for it (`peers/faults_NAME.py`). Each call plays one
framework in the environment it is installed in, and keeps its row in `interruptions.json`; see the README.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trilane.testing.faults import FAULTS, INVARIANTS, Case, all_cases, all_scenarios, run_cases
from trilane.testing.faults.__main__ import load_adapter
from trilane.testing.faults.stage import CALL_FAULTS

HERE = Path(__file__).resolve().parent
ROWS = HERE / "interruptions.json"
TABLE = HERE / "interruptions.md"

#: What a scenario may need: that a tool, a model and a run can be given time limits, and that a stream may be read
#: without closing it.
COMMON = {"limits", "runtime"}
#: Violations after which the session, the caller or the process is the worse for it.
UNUSABLE = (
    "returns_in_time",
    "right_exception",
    "one_terminal",
    "valid_events",
    "valid_history",
    "closed_once",
    "session_free",
    "nothing_left",
)


def kinds() -> list[str]:
    """The 26 kinds of interruption: a call of the model or of a tool, an await point, an event, and none at all."""
    calls = [f"{fault} ({where})" for fault in CALL_FAULTS for where in ("model", "tool")]
    return ["none", *calls, *(fault for fault in FAULTS if fault not in CALL_FAULTS)]


def main() -> None:
    """Play one framework, or only write the table anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", default="", help="MODULE:NAME; Trilane without it")
    parser.add_argument("--distribution", default="trilane", help="for its version")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="of the run")
    parser.add_argument("--report", action="store_true", help="only write interruptions.md from interruptions.json")
    options = parser.parse_args()
    row = None if options.report else measured(options)
    # Read only now: another framework may have been measured at the same time.
    rows: dict[str, Any] = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}
    if row is not None:
        rows[options.distribution] = row
        ROWS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    TABLE.write_text("\n".join(table(rows)) + "\n", encoding="utf-8")
    print(TABLE.read_text(encoding="utf-8"))


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """One row: cases and violations, by kind and by invariant."""
    adapter = load_adapter(options.adapter)
    labels: dict[tuple[str, str, int], str] = {}
    chosen = [one for one in all_scenarios().values() if one.needs <= COMMON and _has(adapter, one.needs)]
    undisturbed = run_cases((Case(one.name, "", 0, "asyncio") for one in chosen), adapter)
    left_out = [failure.case.scenario for failure in undisturbed.failures]

    def cases() -> Iterator[Case]:
        for scenario in chosen:
            if scenario.name not in left_out:
                labels.update(_labels(scenario.name, adapter))
                # A bare stream is there to be dropped; whoever does anything else to it has been told to close it.
                faults = ["drop"] if scenario.mode == "runtime" else []
                yield from all_cases(scenario, adapter, backends=["asyncio"], faults=faults)

    def kind_of(case: Case) -> str:
        if case.fault not in CALL_FAULTS:
            return case.fault or "none"
        return f"{case.fault} ({labels.get((case.scenario, 'call', case.point), 'tool')})"

    played: Counter[str] = Counter()

    def counted() -> Iterator[Case]:
        for case in cases():
            played[kind_of(case)] += 1
            yield case

    report = run_cases(counted(), adapter)
    bad, useless, rules = Counter[str](), Counter[str](), Counter[str]()
    for failure in report.failures:
        found = {name for name, _ in failure.problems}
        bad[kind_of(failure.case)] += 1
        useless[kind_of(failure.case)] += bool(found & set(UNUSABLE))
        rules.update(found)
    return {
        "version": importlib.metadata.version(options.distribution),
        "date": options.date,
        "python": platform.python_version(),
        "cases": report.cases,
        "failed": len(report.failures),
        "scenarios": len(chosen) - len(left_out),
        "left_out": left_out,
        "kinds": {kind: [played[kind], useless[kind], bad[kind]] for kind in kinds() if played[kind]},
        "rules": dict(rules),
    }


def _has(adapter: Any, needs: frozenset[str]) -> bool:
    return all(adapter.features.get(need, False) for need in needs)


def _labels(name: str, adapter: Any) -> dict[tuple[str, str, int], str]:
    from trilane.testing.faults import play

    stage = play(Case(name, "", 0, "asyncio"), all_scenarios()[name], adapter).stage
    return {
        (name, "call", point): "model" if label.startswith("model") else "tool"
        for point, label in enumerate(stage.labels, 1)
    }


def table(rows: dict[str, Any]) -> Iterator[str]:
    """The table in Markdown."""
    names = sorted(rows, key=lambda name: rows[name]["failed"] / rows[name]["cases"])
    yield "# Interruptions, counted"
    yield ""
    yield "Written by `interruptions.py`; every case is played in virtual time on asyncio."
    yield ""
    yield "| | version | date | Python | cases | without any violation | kinds: all usable | kinds: nothing violated |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in names:
        row = rows[name]
        tried = row["kinds"].values()
        usable = sum(not useless for _, useless, _ in tried)
        right = sum(not bad for _, _, bad in tried)
        share = f"{100 * (row['cases'] - row['failed']) / row['cases']:.1f} %"
        yield (
            f"| {name} | {row['version']} | {row['date']} | {row['python']} | {row['cases']} | {share} | "
            f"{usable} of {len(tried)} | {right} of {len(tried)} |"
        )
    yield ""
    for name in names:
        left_out = ", ".join(f"`{one}`" for one in rows[name]["left_out"])
        said = f"{name}: {rows[name]['scenarios']} scenarios"
        yield (
            f"- {said}; left out, because a rule is violated without any interruption: {left_out}"
            if left_out
            else f"- {said}"
        )
    yield ""
    yield "Cases that violate a rule:"
    yield ""
    yield f"| rule | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for rule, check in INVARIANTS.items():
        if any(rows[name]["rules"].get(rule) for name in names):
            meaning = (check.__doc__ or "").splitlines()[0]
            yield f"| {meaning} | {' | '.join(str(rows[name]['rules'].get(rule, 0)) for name in names)} |"
    yield ""
    yield "Kinds of interruption: cases after which something is unusable / cases with any violation / cases played."
    yield ""
    yield f"| kind | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for kind in kinds():
        cells = [rows[name]["kinds"].get(kind) for name in names]
        if any(cells):
            yield f"| {kind} | {' | '.join(f'{c[1]} / {c[2]} / {c[0]}' if c else 'has none' for c in cells)} |"


if __name__ == "__main__":
    main()
