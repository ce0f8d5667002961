"""The examples run and print what they say; the plugin template works when it is copied out of the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


def test_every_example_is_listed() -> None:
    listed = set(
        re.findall(r"^\| `([\w-]+(?:\.py|/))` \|", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert len(PROGRAMS) >= 4
    assert listed == {*(path.name for path in PROGRAMS), "chat_and_event_agent/", "plugins/", "plugin-template/"}


def test_the_first_agent_and_the_first_plugin_are_short() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (EXAMPLES.parent / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [sum(1 for line in block.splitlines() if line.strip()) for block in blocks]
    assert lines[0] <= 15
    assert lines[1] <= 10


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_an_example_prints_what_it_says(program: Path) -> None:
    _, _, comment = program.read_text(encoding="utf-8").partition("\n# Prints:\n")
    assert comment, "end it with a comment `Prints:` and the output"
    command = [sys.executable, "-W", "error", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line.removeprefix("# ") for line in comment.splitlines()]


def test_the_plugin_template_works_alone(
    tmp_path: Path, wheels: dict[str, Path], environment: Callable[[], Environment]
) -> None:
    copy = shutil.copytree(EXAMPLES / "plugin-template", tmp_path / "my-plugin")
    # Built as its author would, against what is published.
    alone = environment()
    alone.install(f"trilane[cli,testing] @ {wheels['trilane'].as_uri()}", *wheels.values(), "hatchling")
    alone.install("--no-build-isolation", "--no-deps", copy)
    assert "example" in alone.output("trilane", "plugins", "list")
    alone.output("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", copy, copy / "tests")
