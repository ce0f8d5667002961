"""What a turn costs does not grow with its session, nor memory with what tools returned: a sample of the benchmark.

PostgreSQL is held to it in the tests of its plugin.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "long_sessions.py"


def test_a_turn_costs_the_same_on_a_long_session_and_results_stay_out_of_memory() -> None:
    """2,000 messages instead of 10,000, but all 100 MB; times may vary where other things go on."""
    options = ["--check", "--factor", "5", "--stores", "memory,sqlite", "--sizes", "100,2000", "--megabytes", "100"]
    done = subprocess.run([sys.executable, BENCHMARK, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| sqlite | 2,000 |" in done.stdout
    assert "| sqlite | 100 |" in done.stdout


def test_the_benchmark_finds_what_grows() -> None:
    spec = importlib.util.spec_from_file_location("long_sessions", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def row(messages: int, **figures: float) -> dict[str, Any]:
        same = {"turn_ms": 2.0, "append_ms": 1.0, "page_ms": 1.0, "read": 1.0, "written": 3.0}
        return {"store": "s", "messages": messages, **same, **figures}

    def said(row_: dict[str, Any], grown: float = 5.0) -> list[str]:
        weight = {"store": "s", "megabytes": 100, "grown_mb": grown}
        found: list[str] = module.growing({"sessions": [row(100), row_], "results": [weight]})
        return found

    assert said(row(10_000, turn_ms=2.5)) == []
    assert said(row(10_000, turn_ms=9.0)) == ["s: turn_ms 2.00 with 100 messages, 9.00 with 10000"]
    assert said(row(10_000, read=10_000)) == ["s: read 1 and 10000 records a turn"]
    assert said(row(10_000), grown=130) == ["s: a run grew the process by 130 MB beside 100 MB of results"]
