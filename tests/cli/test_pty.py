"""`trilane run` on a pseudo-terminal: what a person sees, questions at the prompt, Ctrl-C once and twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from conftest import Terminal

Open: TypeAlias = "Callable[..., Terminal]"


@pytest.fixture
def terminal(open_terminal: Callable[..., Terminal], acting_environment: dict[str, str], tmp_path: Path) -> Open:
    def start(scene: str, *args: str, **environment: str) -> Terminal:
        argv = [sys.executable, "-m", "trilane", "run", "go", "-m", f"acting:{scene}", *args]
        return open_terminal(argv, {**acting_environment, **environment}, tmp_path)

    return start


def test_a_run_on_a_terminal(terminal: Open) -> None:
    screen = terminal("two")
    assert screen.finish() == 0
    lines = [line.rstrip() for line in screen.text.splitlines()]
    for expected in (
        "model acting:two: --model says so",
        "I will look.",
        '✓ count(path="a.md")',
        "  12 words in a.md",
        "✗ fail()  error",
        "  there is no such thing",
        "There are 12 words.",
    ):
        assert expected in lines, screen.text
    assert "\x1b[?25h" in screen.raw, "the cursor must be shown again"
    assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l")


def test_a_dumb_terminal_gets_plain_text(terminal: Open) -> None:
    screen = terminal("two", TERM="dumb")
    assert screen.finish() == 0
    assert "\x1b" not in screen.raw
    assert "There are **12** words.\n" in screen.text
    assert screen.text.count("There are") == 1


def test_json_on_a_terminal_is_only_json(terminal: Open) -> None:
    screen = terminal("plain", "--json")
    assert screen.finish() == 0
    assert "\x1b" not in screen.raw
    lines = [line for line in screen.text.splitlines() if line.startswith("{")]
    assert '"run_completed"' in lines[-1]


@pytest.mark.parametrize(
    ("typed", "result"), [("y\n", "a.md is erased"), ("n\n", "denied"), ("what\ny\n", "a.md is erased")]
)
def test_an_approval_is_asked_at_the_prompt(terminal: Open, typed: str, result: str) -> None:
    screen = terminal("erase")
    screen.wait_for("allow it? [y/N]")
    assert 'erase(path="a.md")' in screen.text
    screen.type(typed)
    assert screen.finish() == 0
    assert result in screen.text
    assert "Over." in screen.text


def test_a_question_of_a_tool_is_asked_at_the_prompt(terminal: Open) -> None:
    screen = terminal("pick")
    screen.wait_for("one of: red, green")
    screen.wait_for("> ")
    screen.type("blue\n")
    screen.wait_for("that cannot be used")
    screen.type("green\n")
    assert screen.finish() == 0
    assert "picked green" in screen.text


def test_yes_needs_no_prompt_on_a_terminal(terminal: Open) -> None:
    screen = terminal("erase", "--yes")
    assert screen.finish() == 0
    assert "approved by --yes: erase" in screen.text
    assert "[y/N]" not in screen.text


def test_ctrl_c_at_the_prompt_stops_the_run(terminal: Open) -> None:
    screen = terminal("erase")
    screen.wait_for("allow it? [y/N]")
    screen.type("\x03")
    assert screen.finish() == 130
    assert "Interrupted by Ctrl-C." in screen.text
    assert "not done  erase" in screen.text


def test_closing_the_prompt_stops_the_run(terminal: Open) -> None:
    screen = terminal("pick")
    screen.wait_for("> ")
    screen.type("\x04")
    assert screen.finish() == 1
    assert "the terminal was closed" in screen.text


def test_ctrl_c_once_waits_for_the_next_boundary(terminal: Open) -> None:
    screen = terminal("soon")
    screen.wait_for("it begins soon")
    screen.type("\x03")
    assert screen.finish() == 130
    assert "stopping at the next boundary" in screen.text
    assert "done in time" in screen.text
    assert "  done      soon()" in screen.text
    assert "never" not in screen.text


@pytest.mark.parametrize("scene", ["nap", "hanging", "block"])
def test_ctrl_c_once_does_not_wait_for_long(terminal: Open, scene: str) -> None:
    screen = terminal(scene)
    screen.wait_for("It begins" if scene == "hanging" else f"{scene}()")
    began = monotonic()
    screen.type("\x03")
    assert screen.finish() == 130
    assert monotonic() - began < 15
    assert "Interrupted by Ctrl-C." in screen.text
    assert "  not done  " in screen.text
    assert "Traceback" not in screen.text
    assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l")


@pytest.mark.parametrize("scene", ["nap", "deaf", "block", "stuck"])
def test_ctrl_c_twice_stops_at_once(terminal: Open, scene: str) -> None:
    screen = terminal(scene)
    screen.wait_for("the loop is stuck" if scene == "stuck" else f"{scene}()")
    screen.type("\x03")
    screen.wait_for("press Ctrl-C again")
    screen.type("\x03")
    assert screen.finish(15) == 130
    assert "nterrupted by Ctrl-C" in screen.text or "stopped at once" in screen.text
    assert "Traceback" not in screen.text
