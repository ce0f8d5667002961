"""`trilane chat` without a terminal: lines from standard input, answers on standard output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Chat = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def chat(acting_environment: dict[str, str], tmp_path: Path) -> Chat:
    def start(scene: str, typed: str, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trilane", "chat", *args]
        command += ["-m", f"acting:{scene}"] if scene else []
        environment = {**acting_environment, "TRILANE_SESSIONS": str(tmp_path / "sessions")}
        return subprocess.run(
            command, input=typed, capture_output=True, encoding="utf-8", cwd=tmp_path, env=environment, timeout=60
        )

    return start


def test_each_line_is_a_request_on_one_session(chat: Chat) -> None:
    done = chat("talk", "one\n\ntwo \\\nand more\nlast without an end", "-p", "no:sqlite")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "You said 1 things, the last: one",
        "You said 2 things, the last: two ",
        "and more",
        "You said 3 things, the last: last without an end",
    ]
    assert done.stderr == "model acting:talk: --model says so\n"


def test_a_request_that_fails_does_not_end_the_chat_but_decides_the_status(chat: Chat) -> None:
    done = chat("talk", "fall over\nagain\n", "-p", "no:sqlite")
    assert done.returncode == 1
    assert done.stdout == "You said 2 things, the last: again\n"
    (paragraph,) = [line for line in done.stderr.splitlines() if "fell over" in line]
    assert paragraph.startswith("trilane: ValueError: the model fell over (what was said before it is kept")
    assert "Traceback" not in done.stderr
    assert "Traceback" in chat("talk", "fall over\n", "--debug", "-p", "no:sqlite").stderr


def test_commands_work_in_lines_too(chat: Chat) -> None:
    done = chat("talk", "/model\n/tools\n/quit\nnever said\n", "-p", "no:sqlite")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("model acting:talk: --model says so\nPROVIDER")
    assert "Erase a file." in done.stdout
    assert "never said" not in done.stdout


def test_an_unknown_command_is_a_line_that_failed(chat: Chat) -> None:
    done = chat("talk", "/hepl\n /etc is a folder\n", "-p", "no:sqlite")
    assert done.returncode == 1
    assert "there is no command /hepl; did you mean /help?" in done.stderr
    assert done.stdout == "You said 1 things, the last:  /etc is a folder\n"


@pytest.mark.parametrize(
    ("option", "told"),
    [("--yes", "approved by --yes"), ("--no", "denied by --no"), ("", "nobody can answer, this is not a terminal")],
)
def test_approvals_without_a_terminal(chat: Chat, option: str, told: str) -> None:
    done = chat("erase", "go\n", *([option] if option else []), "-p", "no:sqlite")
    assert (done.returncode, done.stdout) == (0, "Over.\n"), done.stderr
    assert told in done.stderr


def test_continue_takes_the_session_used_last(chat: Chat) -> None:
    assert chat("talk", "one\n", "--session", "older").returncode == 0
    assert chat("talk", "two\n", "--session", "newer").returncode == 0
    done = chat("", "/sessions\n/sessions older\n/sessions nowhere\n", "--continue")
    assert "session newer: 1 message of yours, the last: two" in done.stderr
    rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows[1:3]] == ["*", "older"]
    assert rows[3] == "session older: 1 message of yours, the last: one"
    assert done.stderr.splitlines()[-1].startswith("trilane: there is no session 'nowhere'")


def test_continue_without_a_session_says_what_to_do(chat: Chat) -> None:
    done = chat("talk", "", "--continue")
    assert done.returncode == 2
    assert done.stderr == "trilane: --continue: no session is stored yet\n"
    assert chat("talk", "", "--continue", "--session", "x").returncode == 2


def test_what_has_completed_is_not_resumed(chat: Chat) -> None:
    done = chat("talk", "one\n/resume\n", "-p", "no:sqlite")
    assert done.stdout.count("You said 1 things") == 1
    assert "there is nothing to resume: the last run has completed" in done.stderr


def test_nothing_can_be_resumed_where_nothing_was_said(chat: Chat) -> None:
    done = chat("talk", "/resume\n/stop\n", "-p", "no:sqlite")
    assert "there is nothing to resume: nothing was said yet" in done.stderr
    assert "no run is on" in done.stderr


def test_the_model_is_told_with_the_reason(chat: Chat) -> None:
    done = chat("", "", "-p", "no:sqlite")
    assert done.returncode == 0
    assert done.stderr == "model offline: no model was named and no provider's key is set\n"
