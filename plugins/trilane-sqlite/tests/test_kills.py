"""A sample of `python -m trilane.testing.kills`: killed with SIGKILL at writes and awaits, and resumed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trilane.testing.kills.harness import Points
from trilane.testing.kills.verdict import problems
from trilane.testing.kills.victim import EFFECTS


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_killed_run_is_resumed_with_nothing_but_the_truth(backend: str) -> None:
    """In a process of its own, because that of the tests has threads and may not be forked."""
    command = [sys.executable, "-m", "trilane.testing.kills", "--backend", backend, "--sample", "8", "--twice", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    assert "12 cases, 1" in done.stdout  # so many were killed
    assert "0 failed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--store", "nosuch"], "no plugin 'nosuch' is installed"),
        (["--at", "write:900:before", "--backend", "asyncio"], "a run does not come to write:900:before"),
    ],
)
def test_what_cannot_be_killed_is_said_in_words(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "trilane.testing.kills", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_every_point_is_a_case() -> None:
    assert Points(writes=1, awaits=2).cases() == ["write:1:before", "write:1:after", "await:1", "await:2"]


def test_the_verdict_finds_what_is_wrong() -> None:
    """The judge is judged: a true run passes, each lie about it is found."""
    import tempfile

    import anyio

    from trilane import InMemoryStore
    from trilane.testing.kills.victim import SESSION, Switch, effects_of, work

    store = InMemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        result = work(store, f"{folder}/journal", Switch(), "asyncio")
        effects = effects_of(f"{folder}/journal")
    records = anyio.run(store.load, SESSION).records
    assert problems(result, records, effects) == []
    assert {name for name, _, _ in effects} == set(EFFECTS)
    pay = next(one for one in effects if one[0] == "pay")
    put = next(one for one in effects if one[0] == "put")
    assert "pay is unsafe and ran 2 times" in problems(result, records, [*effects, pay])
    without = [one for one in effects if one[0] != "pay"]
    assert problems(result, records, without) == ["the model was told that pay was done, and it was not"]
    another = problems(result, records, [*effects, (put[0], "another key", 2)])
    assert any("put ran under several keys" in problem for problem in another)
    assert any("put ran as attempt 2, which was not stored before" in problem for problem in another)
