"""The fault harness on a session that is compacted by a model: every fault at every point of the summary.

Here a sample is played; `TRILANE_ALL_FAULTS=1 python -m pytest plugins/trilane-compact/tests/test_faults.py` plays all.
"""

from __future__ import annotations

import gc
import logging
import os
from typing import Any

import pytest

from trilane import AssistantMessage, TextPart, UserMessage
from trilane.testing import call
from trilane.testing.faults.case import Case, play
from trilane.testing.faults.invariants import violations
from trilane.testing.faults.matrix import all_cases, sample
from trilane.testing.faults.plugins import Closer
from trilane.testing.faults.scenario import Play, Scenario
from trilane.testing.faults.stage import Stage
from trilane.testing.faults.tools import worker
from trilane.testing.faults.trilane_adapter import TrilaneAdapter
from trilane_compact import CompactPlugin

LONG = "ships and harbours " * 10
SAMPLE = 8  # cases of each scenario and backend


def earlier() -> list[Any]:
    """What the session has already: more than a small context holds."""
    history: list[Any] = []
    for n in range(8):
        history.append(UserMessage(id=f"u{n}", parts=(TextPart(text=f"{n}: {LONG}"),)))
        history.append(AssistantMessage(id=f"a{n}", parts=(TextPart(text=f"Re {n}: {LONG}"),)))
    return history


def compacting(store: Any) -> Any:
    """A run that is compacted before its first turn, and works on with a tool."""

    def scenario(stage: Stage) -> Play:
        return Play(
            script=["It is summed up.", [call("look", call_id="look_1", n=1)], "Found."],
            tools=[worker("look", seconds=0.1)],
            plugins=[CompactPlugin(context_tokens=1000), Closer(stage, "closer")],
            run_options={"history": earlier()},
            store=store,
        )

    return scenario


SCENARIOS = {
    name: Scenario(name=name, play=compacting(store), mode=mode)
    for name, store, mode in (
        ("compact", "memory", "stream"),
        ("compact_run", "memory", "run"),
        ("compact_store", "slow", "stream"),
    )
}


def problems(case: Case) -> list[str]:
    played = play(case, SCENARIOS[case.scenario], TrilaneAdapter())
    # Only the plugins of the harness say how often they were closed.
    found = [
        f"{case.command()}: {name}: {text}"
        for name, text in violations(played)
        if not (name == "closed_once" and "'compact'" in text)
    ]
    watched = played.evidence.watched
    del played
    gc.collect()
    return found + [f"{case.command()}: not freed: {name}" for name, reference in watched.items() if reference()]


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_uninterrupted_run_is_compacted(name: str) -> None:
    for backend in ("asyncio", "trio"):
        case = Case(scenario=name, fault="", point=0, backend=backend)  # type: ignore[arg-type]
        played = play(case, SCENARIOS[name], TrilaneAdapter())
        assert [text for check, text in violations(played) if check != "closed_once"] == []
        summary, first, *_ = played.evidence.requests
        assert len(summary) == 1
        assert len(first) < 10
        assert played.evidence.status == "completed"


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_fault_while_a_model_summarises_leaves_a_session_that_works(name: str) -> None:
    cases = [case for case in all_cases(SCENARIOS[name], TrilaneAdapter()) if case.fault]
    if not os.environ.get("TRILANE_ALL_FAULTS"):
        cases = sample(cases, SAMPLE, seed=0)
    assert {case.backend for case in cases} == {"asyncio", "trio"}
    logger = logging.getLogger("trilane")
    before, logger.disabled = logger.disabled, True
    gc.collect()
    gc.freeze()  # what was imported by now stays; so looking for garbage after every case costs little
    try:
        found = [text for case in cases for text in problems(case)]
    finally:
        gc.unfreeze()
        logger.disabled = before
    assert found == []
