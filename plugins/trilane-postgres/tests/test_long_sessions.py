"""What a turn costs does not grow with its session, nor memory with what tools returned: a sample of the benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trilane_postgres.testing import TemporaryServer

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmarks" / "long_sessions.py"


def test_a_turn_costs_the_same_on_a_long_session_and_results_stay_out_of_memory(server: TemporaryServer) -> None:
    """1,000 messages instead of 10,000 and 30 MB instead of 100; times may vary where other things go on."""
    options = ["--check", "--factor", "5", "--stores", "postgres", "--sizes", "100,1000", "--megabytes", "30"]
    done = subprocess.run(
        [sys.executable, BENCHMARK, *options],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TRILANE_POSTGRES_DSN": server.dsn},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| postgres | 1,000 |" in done.stdout
    assert "| postgres | 30 |" in done.stdout
