"""Mistakes that the matrix found in Trilane, each with the cases that found it, so that they stay found."""

from __future__ import annotations

import pytest

from trilane.testing.faults import Case, all_scenarios, play, run_cases
from trilane.testing.faults.trilane_adapter import TrilaneAdapter


def _at(scenario: str, fault: str, backend: str, beginning: str) -> list[Case]:
    """The fault at every call point of the scenario whose label begins so."""
    played = play(Case(scenario, "", 0, backend), all_scenarios()[scenario], TrilaneAdapter())  # type: ignore[arg-type]
    return [
        Case(scenario, fault, point, backend)  # type: ignore[arg-type]
        for point, label in enumerate(played.stage.labels, 1)
        if label.startswith(beginning)
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("fault", ["hang_cancel", "swallow"])
def test_w02_a_child_whose_last_write_hangs_is_ended_within_its_parents_time(fault: str, backend: str) -> None:
    cases = _at("child_store", fault, backend, "store.append")
    report = run_cases(cases, TrilaneAdapter())
    assert report.cases >= 20
    assert report.failures == []
