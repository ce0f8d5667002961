"""The fault harness at the plugin's hooks: another plugin has the same hooks, and there everything goes wrong.

Its hooks raise, hang, fake cancels and swallow real ones, on either side of the plugin's own; and the run is cancelled,
closed, stopped and suspended at any await point, those inside the plugin's hooks included. What must hold afterwards
are the harness's invariants; what the faults are stands in `trilane.testing.faults`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from trilane.errors import PluginError
from trilane.messages import ToolCall
from trilane.testing.clock import Backend
from trilane.testing.faults.case import Case, Played, play
from trilane.testing.faults.invariants import violations
from trilane.testing.faults.matrix import all_cases
from trilane.testing.faults.plugins import Closer, EveryHook
from trilane.testing.faults.scenario import Play, Scenario
from trilane.testing.faults.stage import Injected, Stage, kind_of
from trilane.testing.faults.tools import broken, worker
from trilane.testing.faults.trilane_adapter import TrilaneAdapter
from trilane.testing.models import Step

from .subject import Subject, approve

__all__ = ["check_faults"]

#: Cases of each fault on each backend, spread over the run; there are some thousand in all. Await points are many.
CASES = {"call": 3, "event": 3, "step": 8}


class _Points(Closer):
    """A point in each of some hooks, and in `close_run`."""

    def __init__(self, stage: Stage, name: str, hooks: list[str]) -> None:
        super().__init__(stage, name)
        for hook in hooks:
            if hook != "close_run" and hook in EveryHook.__dict__:
                setattr(self, hook, EveryHook.__dict__[hook].__get__(self))

    _hook = EveryHook._hook


def check_faults(subject: Subject, backends: tuple[Backend, ...]) -> Iterator[str]:
    """Play a sample of all cases; at most one complaint for each fault and backend.

    A plugin that ends the run by itself is left out: after it nothing can be expected to go on.
    """
    scenario = Scenario(
        name="conformance",
        play=partial(_parts, subject),
        needs=frozenset({"hooks"}),
        skip=frozenset({"drop"}),
        real=subject.has_threads,
    )
    adapter = TrilaneAdapter()
    logger = logging.getLogger("trilane")
    before, logger.disabled = logger.disabled, True
    try:
        for backend in backends:
            untouched = Case(scenario=scenario.name, fault="", point=0, backend=backend)
            if _problems(subject, play(untouched, scenario, adapter)):
                return
            told: set[str] = set()
            for case in _spread(all_cases(scenario, adapter, backends=[backend])):
                found = [] if case.fault in told else _problems(subject, play(case, scenario, adapter))
                if found:
                    told.add(case.fault)
                    yield f"{case.fault} at point {case.point} on {backend}: {'; '.join(found)}"
    finally:
        logger.disabled = before


def _spread(cases: Iterable[Case]) -> Iterator[Case]:
    """Of each fault some cases, at even distances."""
    by_fault: dict[str, list[Case]] = {}
    for case in cases:
        if case.fault:
            by_fault.setdefault(case.fault, []).append(case)
    for fault, all_of_it in by_fault.items():
        count = min(CASES[kind_of(fault)], len(all_of_it))
        yield from (all_of_it[(2 * place + 1) * len(all_of_it) // (2 * count)] for place in range(count))


def _parts(subject: Subject, stage: Stage) -> Play:
    calls = [ToolCall(id=f"{name}_1", name=name, arguments={"n": 1}) for name in ("look", "broken")]
    first = Step("I look into it.", reasoning="This needs tools.", calls=calls)
    options = {name: value for name, value in subject.options.items() if name != "answer"}
    return Play(
        script=[first, *["All is done."] * 8],
        tools=[worker("look", seconds=0.2), broken("broken")],
        plugins=[_Points(stage, "before", subject.hooks), subject.make(), _Points(stage, "after", subject.hooks)],
        options={"answer": subject.options.get("answer", approve)},
        run_options=options,
    )


def _problems(subject: Subject, played: Played) -> list[str]:
    # Only the harness's own plugins say how often they were closed.
    found = [
        f"{name}: {text}"
        for name, text in violations(played)
        if not (name == "closed_once" and repr(subject.name) in text)
    ]
    own: list[Any] = [error for error in played.evidence.reported if not isinstance(error, Injected | PluginError)]
    return found + [f"a hook failed: {type(error).__name__}: {error}" for error in own if _is_error(error)]


def _is_error(error: BaseException) -> bool:
    """True for what the plugin raised by itself, and not the harness."""
    return isinstance(error, Exception) and not isinstance(error.__cause__, Injected)
