"""A sample of `python -m trilane.testing.kills`: killed with SIGKILL at writes and awaits, and resumed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_killed_run_is_resumed_with_nothing_but_the_truth(dsn: str, backend: str) -> None:
    """In a process of its own, because that of the tests has threads and may not be forked."""
    command = [sys.executable, "-m", "trilane.testing.kills", "--store", dsn]
    command += ["--backend", backend, "--sample", "3", "--twice", "1", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 cases, " in done.stdout
    assert ", 0 killed" not in done.stdout
    assert "0 failed" in done.stdout
