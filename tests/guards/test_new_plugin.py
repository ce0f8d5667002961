"""`trilane plugins new`, as users meet it: written, built, installed into a fresh environment, listed, used, tested.

What else can be said of the command is in `tests/cli/test_plugins_new.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trilane.cli.scaffold import KINDS

if TYPE_CHECKING:
    from conftest import Environment

#: For each kind what is run, and what is said then by the answer or by what `--stats` adds to it.
USE = {
    "tools": (["Count the letters of 'Hello, you!'", "-m", "offline"], "8"),
    "provider": (["Hello, you!", "-m", "hello-provider"], "Hello, you!"),
    "guard": (["Count the words of a.txt", "-m", "offline"], "the settings of hello-guard deny count_words"),
    "observer": (["Hello", "-m", "offline"], "close_run"),
    "store": (["Hello", "-m", "offline"], "completed"),
}
SECONDS = 60.0


@pytest.fixture(scope="module")
def fresh(wheels: dict[str, Path], environment: Callable[[], Environment]) -> Environment:
    """What `pip install "trilane[cli,testing]"` brings, from the built wheels."""
    made = environment()
    brought = (wheels[f"trilane-{name}"] for name in ("files", "offline", "sqlite"))
    made.install(f"trilane[cli,testing] @ {wheels['trilane'].as_uri()}", *brought)
    (made.where / "a.txt").write_text("one two", encoding="utf-8")
    return made


def test_every_kind_is_used() -> None:
    assert set(USE) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_installed_listed_used_and_tested(fresh: Environment, kind: str) -> None:
    before = os.times()
    name, (request, says) = f"hello-{kind}", USE[kind]
    written = fresh.output("trilane", "plugins", "new", name, "--kind", kind)
    assert f"trilane-{name}{os.sep}README.md" in written
    fresh.install_project(fresh.where / f"trilane-{name}")
    (line,) = [
        line.split() for line in fresh.output("trilane", "plugins", "list").splitlines() if line.startswith(f"{name} ")
    ]
    assert line[1:4] == [f"trilane-{name}", "0.1.0", "loaded"]
    assert fresh.output("trilane", "plugins", "doctor").rstrip().endswith("all is well")
    settings = {"TRILANE_HELLO_GUARD_DENY": '["count_words"]', "TRILANE_SESSIONS": str(fresh.where / "sessions.db")}
    done = fresh.run("trilane", "run", *request, "--stats", env=settings)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout + done.stderr
    tests = fresh.run("trilane", "plugins", "test", f"trilane-{name}", "-q", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout
    assert " passed" in tests.stdout
    after = os.times()
    spent = sum(after[2:4]) - sum(before[2:4])  # of the processes it took, whatever else the machine does
    assert spent < SECONDS
