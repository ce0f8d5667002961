"""The fault-injection harness: interrupt a run at every point at which it can be interrupted, and look what is left.

A *scenario* is a small scripted run. A *point* of it is an await point of any task, a call of scripted code (model,
tool, hook, store, consumer), or an event that the consumer holds. A *fault* is what is done there: raise, cancel once
or twice, close, drop, hang. Each *case* is played in an event loop of its own, in virtual time, on asyncio and on trio,
and then every *invariant* is checked. The same case always does the same.

    python -m trilane.testing.faults                  # a sample, half a minute at most
    python -m trilane.testing.faults --all            # everything
    python -m trilane.testing.faults --list

It prints for each failure the command that plays it again. Another framework is put under test by an `Adapter`
(`--adapter MODULE:NAME`). For the checks of one stream or one history see `trilane.testing.events` and `history`.
"""

from __future__ import annotations

from .adapter import Adapter, Evidence, Subject
from .case import Case, Played, play
from .invariants import INVARIANTS, violations
from .matrix import Failure, Report, all_cases, run_cases, sample, scenarios_for, spread
from .scenario import At, Play, Scenario, ScriptedTool, all_scenarios
from .stage import FAULT_NEEDS, FAULTS, Injected, Stage

__all__ = [
    "FAULTS",
    "FAULT_NEEDS",
    "INVARIANTS",
    "Adapter",
    "At",
    "Case",
    "Evidence",
    "Failure",
    "Injected",
    "Play",
    "Played",
    "Report",
    "Scenario",
    "ScriptedTool",
    "Stage",
    "Subject",
    "all_cases",
    "all_scenarios",
    "play",
    "run_cases",
    "sample",
    "scenarios_for",
    "spread",
    "violations",
]
