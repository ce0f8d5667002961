"""Many runs, stopped at random: nothing grows. Ten thousand: `python -m trilane.testing.faults --soak 10000`."""

from __future__ import annotations

import pytest

from trilane.testing.faults.soak import Measured, grown, soak


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_nothing_grows_over_runs_that_are_stopped_at_random(backend: str) -> None:
    measured = list(soak(200, backend, seed=5))  # type: ignore[arg-type]
    assert [one.runs for one in measured] == list(range(20, 201, 20))
    assert grown(measured) == []


def test_growth_is_told() -> None:
    few = Measured(runs=10, tasks=1, threads=1, files=5, memory=1_000_000)
    many = Measured(runs=100, tasks=3, threads=1, files=5, memory=50_000_000)
    assert grown([few, many]) == [
        "tasks: 1 after 10 runs, 3 after 100",
        "memory grew by 49.0 MB",
    ]
