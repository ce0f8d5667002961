"""`trilane chat` on a pseudo-terminal: what stands there after asking, steering, answering, stopping and resuming."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from conftest import Terminal

Open: TypeAlias = "Callable[..., Terminal]"


@pytest.fixture
def chat(open_terminal: Callable[..., Terminal], acting_environment: dict[str, str], tmp_path: Path) -> Open:
    def start(scene: str, *args: str, stored: bool = False, **more: str) -> Terminal:
        argv = [sys.executable, "-m", "trilane", "chat", "-m", f"acting:{scene}", *args]
        argv += [] if stored else ["-p", "no:sqlite"]
        environment = {**acting_environment, "TRILANE_HISTORY": str(tmp_path / "history")}
        environment |= {"TRILANE_SESSIONS": str(tmp_path / "sessions"), "TRILANE_SQLITE_SYNCHRONOUS": "normal"}
        screen = open_terminal(argv, {**environment, **more}, tmp_path)
        screen.wait_for("/help shows what can be typed; Ctrl-D leaves")
        return screen

    return start


def _in_order(screen: Terminal, *rows: str) -> None:
    """The rows stand there, each below the one before."""
    at = 0
    shown = screen.rows
    for row in rows:
        assert row in shown[at:], f"{row!r} is not below the others in:\n" + "\n".join(shown)
        at = shown.index(row, at) + 1


def test_asking_twice_keeps_the_session(chat: Open) -> None:
    screen = chat("talk")
    screen.type("one\r")
    screen.wait_for_row("You said 1 things, the last: one")
    screen.type("two\r")
    screen.wait_for_row("You said 2 things, the last: two")
    screen.type("\x04")
    assert screen.finish() == 0
    _in_order(screen, "model acting:talk: --model says so", "> one", "You said 1 things, the last: one", "> two")
    assert "go on with" not in screen.text, "nothing was stored"
    assert screen.raw.rindex("\x1b[?2004l") > screen.raw.rindex("\x1b[?2004h"), "the terminal must be given back"
    assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l"), "the cursor must be shown again"


def test_markdown_and_tools_are_drawn_above_the_prompt(chat: Open) -> None:
    screen = chat("two")
    screen.type("look\r")
    screen.wait_for_row("There are 12 words.")
    screen.wait_for_row(">")
    _in_order(screen, "> look", "I will look.", '✓ count(path="a.md")', "  12 words in a.md", "There are 12 words.")
    assert screen.rows[-3:] == ["There are 12 words.", "", ">"]


def test_several_lines_are_one_request(chat: Open) -> None:
    screen = chat("talk")
    screen.type("a\\\r\x1b[200~b\r\nc\x1b[201~\x1b\rd\r")
    screen.wait_for("You said 1 things")
    _in_order(screen, "> a", "  b", "  c", "  d")


def test_history_is_kept_from_chat_to_chat(chat: Open) -> None:
    first = chat("talk")
    first.type("remember me\r")
    first.wait_for_row("You said 1 things, the last: remember me")
    first.type("/quit\r")
    assert first.finish() == 0
    second = chat("talk")
    second.type("\x1b[A\x1b[A\r")
    second.wait_for_row("You said 1 things, the last: remember me")


def test_an_unknown_command_names_the_nearest(chat: Open) -> None:
    screen = chat("talk")
    screen.type("/tols\r")
    screen.wait_for("there is no command /tols; did you mean /tools?")
    screen.type("/he\t\r")
    screen.wait_for("/stop            stop the run at its next boundary")


def test_tools_plugins_and_models_are_listed(chat: Open) -> None:
    screen = chat("talk")
    screen.type("/tools\r")
    screen.wait_for("Erase a file.")
    assert any(re.match(r"erase +unsafe, asks +acting +Erase a file\.", row) for row in screen.rows)
    screen.type("/plugins\r")
    screen.wait_for("acme-acting")
    screen.type("/model\r")
    screen.wait_for("Deterministic planner")
    screen.type("/model offline\r")
    screen.wait_for_row("model offline, from the next request on")
    screen.type("/model nothing:x\r")
    screen.wait_for("no plugin supplies the provider 'nothing'")
    screen.type("hello\r")
    screen.wait_for("I am not an AI.")


def test_a_question_is_a_form(chat: Open) -> None:
    screen = chat("order")
    screen.type("go\r")
    screen.wait_for("  size> ")
    screen.type("twelve\r12\r3\r")
    screen.wait_for("  colour> ")
    screen.type("\r")
    screen.wait_for("  wrapped> ")
    screen.type("y\r")
    screen.wait_for("  note> ")
    screen.type("\r")
    screen.wait_for_row("Over.")
    _in_order(
        screen,
        "? What shall I order? (order)",
        "  size: a whole number, at least 1, at most 9, required: How many",
        "  size> twelve",
        "  that cannot be used: 'twelve' is not a whole number",
        "  size> 12",
        "  that cannot be used: this must be at least 1, at most 9",
        "  size> 3",
        "  colour: one of red, green, default green",
        "  wrapped: y or n, default n",
        "  note: text, may be empty",
        '  ordered {"size":3,"colour":"green","wrapped":true,"note":null}',
        "Over.",
    )


def test_the_arguments_of_a_call_can_be_edited_before_it_is_approved(chat: Open) -> None:
    screen = chat("erase")
    screen.type("go\r")
    screen.wait_for("allow it? [y]es, [N]o, [e]dit: ")
    screen.type("e\r")
    screen.wait_for("  path> a.md")
    screen.type("\x7f\x7ftxt\r")
    screen.wait_for_row('  erase(path="a.txt")')
    screen.type("y\r")
    screen.wait_for_row("  a.txt is erased")
    screen.wait_for_row("Over.")


def test_steering_and_follow_ups_stand_where_they_are_heard(chat: Open, tmp_path: Path) -> None:
    screen = chat("steer")
    screen.type("begin\r")
    screen.wait_for_row("| it waits")
    screen.type("rather this\r> and then that\rdraft")
    screen.wait_for("waiting to be heard: > and then that")
    screen.wait_for("> draft")
    (tmp_path / "go").touch()
    screen.wait_for_row("Then: and then that")
    _in_order(
        screen,
        "> begin",
        "  it went on",
        "> rather this",
        "I heard: rather this",
        "> and then that",
        "Then: and then that",
        "> draft",
    )
    assert not any("waiting to be heard" in row for row in screen.rows)


def test_stray_output_stays_above_the_prompt(chat: Open) -> None:
    screen = chat("noisy")
    screen.type("go\r")
    screen.wait_for_row("Over.")
    screen.type("half a line")
    screen.wait_for_row("> half a line")
    _in_order(screen, "> go", "| stray text", "| stray text of a child process", "Over.", "> half a line")
    assert screen.rows[-1] == "> half a line"


def test_odd_text_is_shown_not_sent(chat: Open) -> None:
    screen = chat("odd")
    screen.type("go\r")
    screen.wait_for("esc ␛[31m half")
    screen.wait_for("odd � answer �.")
    assert "\x1b[31m half" not in screen.raw


def test_ctrl_c_stops_the_run_and_the_chat_goes_on(chat: Open) -> None:
    screen = chat("nap")
    screen.type("go\r")
    screen.wait_for("nap()")
    screen.wait_for("the nap begins")
    screen.type("not heard\r")
    screen.wait_for("waiting to be heard: not heard")
    screen.type("\x03")
    screen.wait_for_row("/resume takes it up again")
    _in_order(
        screen,
        "stopping at the next boundary; press Ctrl-C again to stop at once",
        "Interrupted by Ctrl-C.",
        '  done      count(path="a.md")',
        "  not done  nap(): interrupted, it may have had an effect",
    )
    screen.wait_for_row("the next run hears: not heard")
    screen.type("/model offline\rhello\r")
    screen.wait_for("I am not an AI.")


def test_ctrl_c_twice_does_not_wait_for_a_deaf_tool(chat: Open) -> None:
    screen = chat("deaf")
    screen.type("go\r")
    screen.wait_for("deaf()")
    screen.type("\x03")
    screen.wait_for("press Ctrl-C again")
    screen.type("\x03")
    screen.wait_for("still running when it was given up")
    screen.wait_for_row("/resume takes it up again")


def test_ctrl_c_twice_ends_a_program_whose_loop_is_stuck(chat: Open, tmp_path: Path) -> None:
    screen = chat("stuck")
    os.mkfifo(tmp_path / "stuck")
    screen.type("go\r")
    (tmp_path / "stuck").read_text()  # until the tool has opened it
    screen.type("\x03")
    screen.wait_for("press Ctrl-C again to stop at once")
    screen.type("\x03")
    assert screen.finish() == 130
    assert screen.raw.rindex("\x1b[?2004l") > screen.raw.rindex("\x1b[?2004h")


def test_stop_while_a_run_is_on(chat: Open) -> None:
    screen = chat("hanging")
    screen.type("go\r")
    screen.wait_for("It begins")
    screen.type("/tools\r")
    screen.wait_for("/tools has to wait until the run has ended")
    screen.type("/stop\r")
    screen.wait_for("stopping at the next boundary")
    screen.type("\x03")
    screen.wait_for("cut off after 9 characters")


def test_ctrl_c_clears_the_line_and_leaves_at_an_empty_one(chat: Open) -> None:
    screen = chat("talk")
    screen.type("never mind\x03")
    screen.type("\x03")
    assert screen.finish() == 130
    assert "You said" not in screen.text


def test_ctrl_c_is_not_slept_through(chat: Open) -> None:
    screen = chat("nap", TERM="dumb", ACTING_SIGNALS="to a thread")
    screen.wait_for("\n> ")
    screen.type("go\n")
    screen.wait_for("the nap begins")
    screen.type("\x03")
    screen.wait_for("/resume takes it up again\n> ")
    screen.type("\x03")
    assert screen.finish() == 130
    assert screen.text.endswith("trilane: interrupted\n")


def test_termination_is_not_slept_through(chat: Open) -> None:
    screen = chat("talk", ACTING_SIGNALS="to a thread")
    screen.wait_for_row("> /help shows what can be typed")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.finish() == 143


def test_an_error_of_one_request_does_not_end_the_chat(chat: Open) -> None:
    screen = chat("talk")
    screen.type("fall over\r")
    screen.wait_for("ValueError: the model fell over")
    assert "Traceback" not in screen.text
    screen.type("again\r")
    screen.wait_for_row("You said 2 things, the last: again")


def test_terminating_the_program_gives_the_terminal_back(chat: Open) -> None:
    screen = chat("talk")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.finish() == 143
    assert screen.raw.rindex("\x1b[?2004l") > screen.raw.rindex("\x1b[?2004h")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_terminating_a_chat_puts_its_run_aside(chat: Open, number: int, status: int) -> None:
    screen = chat("nap", "--session", "s", stored=True)
    screen.type("go\r")
    screen.wait_for("the nap begins")
    os.kill(screen.pid, number)
    assert screen.finish() == status
    assert "Put aside: " in screen.text
    assert "Ctrl-C again" not in screen.text
    again = chat("plain", "--session", "s", stored=True)
    again.wait_for("its last run was put aside; /resume takes it up")
    again.type("/resume\r")
    again.wait_for_row("In two paragraphs.")


def test_closing_the_terminal_puts_its_run_aside(chat: Open) -> None:
    screen = chat("nap", "--session", "s", stored=True)
    screen.type("go\r")
    screen.wait_for("the nap begins")
    assert screen.hang_up() == 129
    again = chat("plain", "--session", "s", stored=True)
    again.wait_for("its last run was put aside; /resume takes it up")


def test_a_killed_chat_is_resumed_with_its_question(chat: Open) -> None:
    first = chat("erase", "--session", "mine", stored=True)
    first.type("go\r")
    first.wait_for("allow it?")
    os.kill(first.pid, signal.SIGKILL)
    assert first.finish() == -signal.SIGKILL
    second = chat("talk", "--continue", stored=True)
    assert "its last run was cut off; /resume takes it up" in second.text
    second.type("/resume\r")
    second.wait_for("allow it?")
    second.type("y\r")
    second.wait_for_row("  a.md is erased")
    second.wait_for("You said 1 things, the last: go")
    second.type("\x04")
    assert second.finish() == 0
    assert second.rows[-2:] == ["go on with: trilane chat --session mine", ""]


def test_a_dumb_terminal_has_questions_in_lines(chat: Open) -> None:
    screen = chat("erase", TERM="dumb")
    screen.wait_for("\n> ")
    screen.type("go\n")
    screen.wait_for("allow it? [y]es, [N]o, [e]dit: ")
    screen.type("e\n")
    screen.wait_for("  path [a.md]> ")
    screen.type("b.md\n")
    screen.wait_for('  erase(path="b.md")')
    screen.type("y\n")
    screen.wait_for("Over.\n> ")
    screen.type("\x04")
    assert screen.finish() == 0
    assert "<- erase: b.md is erased" in screen.text
    assert "\x1b" not in screen.raw


def test_a_dumb_terminal_can_be_steered(chat: Open, tmp_path: Path) -> None:
    screen = chat("steer", TERM="dumb")
    screen.wait_for("\n> ")
    screen.type("go\n")
    screen.wait_for("it waits\n")
    screen.type("rather this\n>then that\n/stopp\n")
    screen.wait_for("did you mean /stop?")
    (tmp_path / "go").touch()
    screen.wait_for("Then: then that\n> ")
    assert screen.text.count("I heard: rather this") == 1
    assert screen.text.count("Then: then that") == 1
    screen.type("\x03")
    assert screen.finish() == 130
