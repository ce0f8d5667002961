"""The fault harness at the plugin's hooks: another plugin has the same hooks, and there everything goes wrong.

Its hooks raise, hang, fake cancels and swallow real ones, on either side of the plugin's own; and the run is cancelled,
closed, stopped and suspended at any await point, those inside the plugin's hooks included. What must hold afterwards
are the harness's invariants; what the faults are stands in `trilane.testing.faults`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trilane._records import error_line
from trilane.errors import PluginError
from trilane.messages import ToolCall
from trilane.testing.clock import Backend
from trilane.testing.faults.case import Case, Played, play
from trilane.testing.faults.invariants import violations
from trilane.testing.faults.matrix import all_cases
from trilane.testing.faults.plugins import Closer, EveryHook, Listener
from trilane.testing.faults.scenario import Play, Scenario
from trilane.testing.faults.stage import CALL_FAULTS, Injected, Stage, kind_of
from trilane.testing.faults.tools import broken, worker
from trilane.testing.faults.trilane_adapter import TrilaneAdapter
from trilane.testing.models import Step

from .subject import Subject, approve

__all__ = ["check_faults"]

#: Cases of each fault on each backend, spread over the run; there are some thousand in all. Await points are many.
CASES = {"call": 2, "event": 2, "step": 6}
MANY_HOOKS = 8  # of a plugin with more, each case is played on one of the backends only
_HOOKS = {**EveryHook.__dict__, "on_event": Listener.__dict__["on_event"]}


class _Points(Closer):
    """A point in each of some hooks, and in `close_run`."""

    def __init__(self, stage: Stage, name: str, hooks: list[str]) -> None:
        super().__init__(stage, name)
        for hook in hooks:
            if hook != "close_run" and hook in _HOOKS:
                setattr(self, hook, _HOOKS[hook].__get__(self))

    _hook = EveryHook._hook


def check_faults(subject: Subject, backends: tuple[Backend, ...]) -> Iterator[str]:
    """Play each fault of a call at each of the plugin's hooks, and a sample of the others.

    At most one complaint for each fault and backend. A plugin that ends the run by itself is left out: after it nothing
    can be expected to go on.
    """
    scenario = Scenario(
        name="conformance",
        play=partial(_parts, subject),
        needs=frozenset({"hooks"}),
        skip=frozenset({"drop"}),
        real=subject.has_threads,
    )
    dropped = replace(scenario, mode="runtime", skip=frozenset())  # elsewhere an `async with` closes the stream
    adapter = TrilaneAdapter()
    logger = logging.getLogger("trilane")
    before, logger.disabled = logger.disabled, True
    try:
        for number, backend in enumerate(backends):
            untouched = Case(scenario=scenario.name, fault="", point=0, backend=backend)
            played = play(untouched, scenario, adapter)
            if _problems(subject, played):
                return
            told: set[str] = set()
            cases = [
                *_at_hooks(untouched, played.stage.labels, number, len(backends)),
                *_spread(all_cases(scenario, adapter, backends=[backend])),
                *_spread(all_cases(dropped, adapter, backends=[backend], faults=["drop"])),
            ]
            for case in cases:
                where = dropped if case.fault == "drop" else scenario
                found = [] if case.fault in told else _problems(subject, play(case, where, adapter))
                if found:
                    told.add(case.fault)
                    yield f"{case.fault} at point {case.point} on {backend}: {'; '.join(found)}"
    finally:
        logger.disabled = before


def _at_hooks(untouched: Case, labels: Sequence[str], number: int, backends: int) -> Iterator[Case]:
    """Each fault of a call at each hook, in the plugin before it or in the one after it; for backend `number`."""
    places: dict[str, list[int]] = {}
    for point, label in enumerate(labels, start=1):
        if label.startswith("hook."):
            places.setdefault(label, []).append(point)
    shared = backends if len(places) > MANY_HOOKS else 1
    for at_hook, points in enumerate(places.values()):
        for of_fault, fault in enumerate(CALL_FAULTS):
            if (at_hook + of_fault) % shared != number % shared:
                continue
            side = (at_hook + of_fault // 2) % min(2, len(points))
            yield replace(untouched, fault=fault, point=points[side])


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
    calls = [ToolCall(id=f"{name}_1", name=name, arguments={"n": 1}) for name in ("look", "broken", "confirm")]
    first = Step("I look into it.", reasoning="This needs tools.", calls=calls)
    options = {name: value for name, value in subject.options.items() if name != "answer"}
    return Play(
        script=[first, *["All is done."] * 8],
        tools=[worker("look", seconds=0.2), broken("broken"), replace(worker("confirm"), approval=True)],
        plugins=[_Points(stage, "before", subject.hooks), subject.make(), _Points(stage, "after", subject.hooks)],
        options={"answer": subject.options.get("answer", approve)},
        run_options=options,
    )


def _problems(subject: Subject, played: Played) -> list[str]:
    # Only the harness's own plugins say how often they were closed; and who replied was told what `on_reply` raised.
    ignored = {"closed_once": repr(subject.name), "error_accounted": "hook.on_reply"}
    found = [f"{name}: {text}" for name, text in violations(played) if ignored.get(name, text + ".") not in text]
    own: list[Any] = [error for error in played.evidence.reported if not isinstance(error, Injected | PluginError)]
    return found + [f"a hook failed: {error_line(error)}" for error in own if _is_error(error)]


def _is_error(error: BaseException) -> bool:
    """True for what the plugin raised by itself, and not the harness."""
    return isinstance(error, Exception) and not isinstance(error.__cause__, Injected)
