"""Compaction from the command line: by itself in `trilane run` and `chat`, or by `/compact` and `sessions compact`.

The planner of trilane-offline answers; it is no language model, so its summaries are lists.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from rich.console import Console

from trilane.cli.app import run_app
from trilane.cli.rendering import PlainRenderer
from trilane.cli.terminal import TerminalRenderer
from trilane.events import CompactionCompleted, CompactionProgress, CompactionStarted, RunCompleted
from trilane.result import RunResult
from trilane.stores import SessionView
from trilane_sqlite import SqliteStore

if TYPE_CHECKING:
    from conftest import EventMaker

Command = Callable[..., tuple[int, str, str]]
REQUEST = "Count the words of notes.txt and read notes.txt"


@pytest.fixture
def trilane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    for name in list(os.environ):
        if name.startswith(("TRILANE_", "OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRILANE_SESSIONS", str(tmp_path / "sessions.sqlite3"))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("Three lanes that never mix. " * 20, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "files")

    def run(*args: str) -> tuple[int, str, str]:
        status = run_app(args)
        out, err = capfd.readouterr()
        return status, out, err

    return run


def seen(session: str) -> list[str]:
    """What a model sees of a session: the first line of each text, the kind of everything else."""

    async def main() -> SessionView:
        store = SqliteStore(os.environ["TRILANE_SESSIONS"])
        view = SessionView()
        for record in (await store.load(session)).records:
            view.apply(record)
        store.close()
        return view

    view = anyio.run(main)
    return [(getattr(one, "text", "") or one.kind).split("\n")[0] for one in view.log]


def test_a_session_is_compacted_by_itself_from_process_to_process(
    trilane: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILANE_COMPACT_CONTEXT_TOKENS", "2400")
    monkeypatch.setenv("TRILANE_COMPACT_SUMMARY_TOKENS", "200")
    told = []
    for number in range(7):
        status, out, err = trilane("run", "-m", "offline", "--session", "s", f"{REQUEST}, {number}")
        assert status == 0, err
        assert "notes.txt has 100 words" in out
        told.append("shortened for the model" in err)
    assert told.index(True) >= 3
    assert told.count(True) <= 2
    shown = seen("s")
    assert shown[0] == f"{REQUEST}, 0"
    assert shown[1].startswith("[Summary of ")
    whole = trilane("sessions", "show", "s")[1]
    assert [f"notes.txt, {number}" in whole for number in range(7)] == [True] * 7  # what is stored stays whole
    assert "from here on models see" in whole
    assert trilane("sessions", "doctor", "s")[0] == 0


def test_a_session_is_compacted_and_taken_back_by_command(trilane: Command) -> None:
    for number in range(4):
        assert trilane("run", "-m", "offline", "--session", "whale", f"{REQUEST}, {number}")[0] == 0
    before = seen("whale")
    status, out, err = trilane("sessions", "compact", "wha", "-m", "offline")
    assert status == 0, err
    assert "messages (about" in out
    assert "became a summary of about" in out
    assert "listing 13 messages" in err
    after = seen("whale")
    assert len(after) < len(before) / 2
    assert trilane("sessions", "compact", "whale", "-m", "offline") == (
        1,
        "nothing to compact\n",
        "model offline: --model says so\n",
    )
    assert trilane("sessions", "compact", "whale", "--undo")[:2] == (
        0,
        "models see again what they saw before the last compaction\n",
    )
    assert seen("whale") == before
    status, out, err = trilane("sessions", "compact", "whale", "--undo")
    assert (status, out) == (1, "")
    assert "no compaction is left" in err
    markdown = trilane("sessions", "export", "whale", "--markdown")[1]
    assert "> Compacted: from here on models see" in markdown
    assert "> A compaction was taken back: from here on models see 16 messages again." in markdown


def test_a_compaction_by_command_that_cannot_be_says_why(trilane: Command) -> None:
    assert trilane("run", "-m", "offline", "--session", "short", "Hello?")[0] == 0
    assert trilane("run", "-m", "offline", "--session", "short", "Hello again?")[0] == 0
    assert trilane("run", "-m", "offline", "--session", "short", "And again?")[0] == 0
    status, _, err = trilane("sessions", "compact", "short", "-m", "offline", "-p", "no:compact")
    assert status == 2
    assert "leaves out the plugin that compacts" in err
    status, _, err = trilane("sessions", "compact", "nowhere")
    assert status == 2
    assert "there is no session 'nowhere'" in err


def test_a_chat_is_compacted_and_taken_back(trilane: Command, tmp_path: Path) -> None:
    typed = [f"{REQUEST}, {number}" for number in range(4)]
    typed += ["/compact", "/compact", "/compact undo", "/compact undo", "/compact all", REQUEST]
    done = subprocess.run(
        [sys.executable, "-m", "trilane", "chat", "-m", "offline", "--session", "talk"],
        input="\n".join(["/compact", *typed, ""]),
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path / "files",
        env={**os.environ},
        timeout=60,
    )
    assert "there is nothing to compact: nothing was said yet" in done.stderr
    assert "listing 13 messages" in done.stderr
    assert "became a summary of about" in done.stdout
    assert done.stdout.count("nothing to compact") == 1
    assert "the model sees again what it saw before the last compaction" in done.stdout
    assert "no compaction is left to take back" in done.stdout
    assert "/compact all: it takes nothing, or undo" in done.stderr
    assert done.stdout.count("notes.txt has 100 words") == 5
    assert done.returncode == 1  # two lines failed
    assert len(seen("talk")) == 20


def test_a_chat_is_compacted_by_itself(trilane: Command, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trilane", "chat", "-m", "offline", "--session", "talk"],
        input="\n".join(f"{REQUEST}, {number}" for number in range(7)),
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path / "files",
        env={**os.environ, "TRILANE_COMPACT_CONTEXT_TOKENS": "2400", "TRILANE_COMPACT_SUMMARY_TOKENS": "200"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "shortened for the model: " in done.stderr
    assert done.stdout.count("notes.txt has 100 words") == 7
    assert any(line.startswith("[Summary of") for line in seen("talk"))


# ---- how it looks ----------------------------------------------------------------------------------------------------

REASON = "7 messages (about 1,152 tokens) became a summary of about 49"


def shown(make: EventMaker, *, verbose: bool = False, output: str = REASON, changed: bool = True) -> tuple[str, str]:
    """What stays on a terminal, and what a pipe gets beside the answer, of a compaction that was asked for."""
    events = [
        make(CompactionStarted),
        make(CompactionProgress, text="summarising 7 messages"),
        make(CompactionProgress, text="418 characters are written"),
        make(CompactionCompleted, changed=changed, reason=output),
        make(RunCompleted, result=RunResult(status="completed", run_id="r", session_id="s", output=output)),
    ]
    raw = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)
    console = Console(file=raw, width=100, height=20, color_system=None, highlight=False)
    notes = io.StringIO()
    for renderer in (TerminalRenderer(console, verbose=verbose), PlainRenderer(io.StringIO(), notes, verbose=verbose)):
        for event in events:
            renderer.show(event)
        renderer.close()
    return raw.buffer.getvalue().decode(), notes.getvalue()  # type: ignore[attr-defined]


def test_a_compaction_is_told_in_one_line_when_it_begins_and_one_when_it_ends(make: EventMaker) -> None:
    for seen_there in shown(make):
        assert seen_there.split("\n") == ["summarising 7 messages", f"shortened for the model: {REASON}", ""]
    for seen_there in shown(make, verbose=True):
        assert "418 characters are written" in seen_there


def test_a_compaction_that_changed_nothing_says_why_once(make: EventMaker) -> None:
    terminal, _ = shown(make, output="nothing to compact", changed=False)
    assert terminal.split("\n") == ["summarising 7 messages", "nothing to compact", ""]
