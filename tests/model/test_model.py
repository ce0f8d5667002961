"""The Promela model of a run: what must hold does in every order of steps, and the model notices when it does not."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("run.pml")
PHASES = Path(__file__).with_name("phases.pml")
GENERATOR = PHASES.with_name("generate.py")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

needs_spin = pytest.mark.skipif(
    not (shutil.which("spin") and COMPILER),
    reason="not installed: spin (Debian package `spin`) and a C compiler, which check the Promela model of a run",
)


def explore(folder: Path, *mistakes: str) -> str:
    """Walk every order of steps of the model; what pan says of it."""
    for path in (MODEL, PHASES):
        shutil.copy(path, folder)
    commands = (
        ("spin", *(f"-D{name}" for name in mistakes), "-a", MODEL.name),
        # Optimising takes the compiler longer than it saves pan.
        (COMPILER, "-O0", "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"),
        (str(folder / "pan"), "-n", "-m10000", "-w22"),
    )
    said = ""
    for command in commands:
        done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{said}"
        assert "Error:" not in said, said
    return said


def test_phases_of_the_model_are_those_of_the_runtime() -> None:
    wanted = runpy.run_path(str(GENERATOR))["phases"]()
    assert PHASES.read_text(encoding="utf-8") == wanted, "run: python tests/model/generate.py"


@needs_spin
def test_r08_r23_r24_r87_model_never_runs_ahead_never_hangs_and_ends_once(tmp_path: Path) -> None:
    said = explore(tmp_path)
    assert "errors: 0" in said, said
    assert "max search depth too small" not in said, said
    assert "Search not completed" not in said, said
    states = re.search(r"(\d+) states, stored", said)
    assert states is not None
    assert int(states[1]) > 1_000_000, "the model has lost most of its states; is anything left in it?"


@needs_spin
@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        ("ACKNOWLEDGE_ON_HAND_OVER", "passed==produced"),
        ("NO_SECOND_CANCEL_GUARD", "assertion violated"),
        ("NO_TAKE_OVER", "invalid end state"),
        ("NO_FINISH_INSTEAD", "invalid end state"),
        ("LAST_SIGNAL_WINS", "signals==1"),
        ("SIGNAL_LEAVES_PUT_PARKED", "invalid end state"),
        ("SETTLE_FORGETS_CALLS", "answers[0]"),
    ],
)
def test_model_notices_a_mistake(tmp_path: Path, mistake: str, found: str) -> None:
    said = explore(tmp_path, mistake)
    assert "errors: 1" in said, said
    assert found in said, said
