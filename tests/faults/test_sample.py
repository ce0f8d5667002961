"""A sample of the fault matrix, on both backends: every scenario, a few of its faults. All of it: `--all`."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from trilane.testing.faults import all_scenarios, run_cases, spread
from trilane.testing.faults.trilane_adapter import TrilaneAdapter

SEED = 11 + int(os.environ.get("TRILANE_TEST_SEED", "0"))  # set by tests/repeat.py


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", list(all_scenarios()))
def test_nothing_is_left_after_an_interruption(name: str, backend: str) -> None:
    scenario, adapter = all_scenarios()[name], TrilaneAdapter()
    report = run_cases(islice(spread([scenario], adapter, seed=SEED, backends=[backend]), 7), adapter)
    told = "\n".join(
        f"{failure.case.command()}\n    " + "\n    ".join(f"{name}: {text}" for name, text in failure.problems)
        for failure in report.failures
    )
    assert not report.failures, told
    assert report.cases > 0 or backend not in scenario.backends
