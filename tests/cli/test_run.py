"""`trilane run` in a process of its own, with a plugin installed that plays scenes; no terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trilane.events import Event, event_from_json

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(acting_environment: dict[str, str], tmp_path: Path) -> Run:
    def start(scene: str, *args: str, request: str = "go", **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trilane", "run", request, *args]
        if scene:
            command += ["-m", f"acting:{scene}"]
        options = {"cwd": tmp_path, "env": acting_environment, "timeout": 60, "encoding": "utf-8", **options}
        return subprocess.run(command, capture_output=True, check=False, **options)  # type: ignore[call-overload, no-any-return]

    return start


def _events(done: subprocess.CompletedProcess[str]) -> list[Event]:
    return [event_from_json(line) for line in done.stdout.splitlines()]


def test_the_answer_is_on_stdout_and_the_rest_on_stderr(run: Run) -> None:
    done = run("two")
    assert (done.returncode, done.stdout) == (0, "There are **12** words.\n"), done.stderr
    assert done.stderr.splitlines() == [
        "model acting:two: --model says so",
        "I will look.",
        '-> count(path="a.md")',
        "-> fail()",
        "<- count: 12 words in a.md",
        "<- fail error: there is no such thing",
    ]


def test_json_has_pairs_phases_in_order_and_one_terminal_event_last(run: Run) -> None:
    done = run("two", "--json", "-p", "no:compact")  # which gives each turn another phase
    assert done.returncode == 0, done.stderr
    events = _events(done)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    started = [event.call.id for event in events if event.type == "tool_started"]
    completed = [event.call.id for event in events if event.type == "tool_completed"]
    assert started == completed
    assert len(started) == 2
    terminal = [event.type for event in events if event.type in ("run_completed", "run_failed", "run_cancelled")]
    assert terminal == ["run_completed"]
    assert events[-1].type == "run_completed"
    phases = [event.phase for event in events if event.type == "phase_changed"]
    assert phases == [
        *("loading_context", "ready", "generating", "ready", "running_tool", "ready"),
        *("generating", "ready", "completed"),
    ]
    assert "".join(event.text for event in events if event.type == "text_delta").endswith("There are **12** words.")


def test_what_plugins_print_is_not_among_the_events(run: Run) -> None:
    done = run("noisy", "--json")
    assert done.returncode == 0, done.stderr
    assert _events(done)[-1].type == "run_completed"
    assert done.stderr.count("stray text") == 2
    assert run("noisy").stdout == "Over.\n"


def test_a_plugin_that_fails_is_named_once_and_the_run_goes_on(run: Run) -> None:
    done = run("noisy")
    assert done.returncode == 0
    warnings = [line for line in done.stderr.splitlines() if "an observer that fails" in line]
    assert warnings == [
        "warning: plugin acting failed in before_tool (RuntimeError: an observer that fails); the run goes on"
    ]


def test_a_tool_that_fails_by_mistake_is_named_once_with_the_way_to_its_traceback(run: Run) -> None:
    done = run("stumble")
    assert (done.returncode, done.stdout) == (0, "Over.\n")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert line.startswith("warning: tool 'stumble' failed: KeyError (")
    assert line.endswith(". Run it again with --debug for the traceback.")
    assert "Traceback" not in done.stderr
    debug = run("stumble", "--debug")
    assert debug.stderr.count("Traceback") == 1
    assert 'return {}["nothing"]' in debug.stderr
    assert "--debug" not in debug.stderr


def test_stats_blame_the_right_plugin(run: Run) -> None:
    done = run("noisy", "--stats")
    rows = [line.split() for line in done.stderr.splitlines()]
    (row,) = [row for row in rows if row[:2] == ["acting", "before_tool"]]
    assert (row[2], row[-1]) == ("1", "1")
    assert "completed: 2 turns" in done.stderr
    assert "acting failed in before_tool: RuntimeError: an observer that fails" in done.stderr


def test_verbose_shows_the_phases(run: Run) -> None:
    done = run("plain", "-v")
    assert "phase created -> loading_context" in done.stderr.splitlines()
    assert "phase ready -> completed" in done.stderr.splitlines()


def test_a_failed_run_is_one_paragraph_and_status_1(run: Run) -> None:
    done = run("broken")
    assert done.returncode == 1
    assert done.stdout == "Half an ans\n"
    last = done.stderr.splitlines()[-1]
    assert last == "trilane: ValueError: the model fell over. Run it again with --debug for the traceback."
    assert "Traceback" not in done.stderr
    debug = run("broken", "--debug")
    assert "Traceback" in debug.stderr
    assert "ValueError: the model fell over" in debug.stderr


def test_a_failed_run_is_a_terminal_event_in_json(run: Run) -> None:
    done = run("broken", "--json")
    assert done.returncode == 1
    last = _events(done)[-1]
    assert last.type == "run_failed"
    assert "the model fell over" in done.stderr


def test_max_turns_ends_the_run(run: Run) -> None:
    done = run("turns", "--max-turns", "2", "--json")
    assert done.returncode == 1
    assert [event.turn for event in _events(done) if event.type == "turn_started"] == [1, 2]
    last = done.stderr.splitlines()[-1]
    assert last.endswith("Here --max-turns sets Limits.turns; trilane sessions resume goes on.")


@pytest.mark.parametrize(
    ("option", "result"),
    [("--yes", "<- erase: a.md is erased"), ("--no", "<- erase denied: "), (None, "<- erase denied: ")],
)
def test_approvals_without_a_terminal(run: Run, option: str | None, result: str) -> None:
    done = run("erase", *([option] if option else []), stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Over.\n"
    assert result in done.stderr
    assert ("run it again with --yes or --no" in done.stderr) is (option is None)


def test_a_question_without_a_terminal_is_an_error_for_the_tool_and_does_not_hang(run: Run) -> None:
    done = run("pick", "--yes", stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Over.\n"
    assert "nobody can answer, this is not a terminal: Which colour?" in done.stderr
    assert "<- pick error" in done.stderr


def test_the_request_comes_from_stdin(run: Run) -> None:
    assert run("show", request="-", input="from a pipe").stdout == "got 11 characters\n"
    assert run("show", request="-", input="x" * 1_000_000).stdout == "got 1000000 characters\n"
    empty = run("show", request="-", input=" \n")
    assert empty.returncode == 2
    assert "the request is empty" in empty.stderr


def test_odd_text_goes_in_and_out(run: Run, acting_environment: dict[str, str], tmp_path: Path) -> None:
    done = run("odd")
    assert (done.returncode, done.stdout) == (0, "odd � answer �.\n")
    assert "\x1b" not in done.stderr
    events = run("odd", "--json")
    assert events.returncode == 0, events.stderr
    assert _events(events)[-1].type == "run_completed"
    command = [sys.executable, "-m", "trilane", "run", b"bytes \xff", "-m", "acting:show"]
    raw = subprocess.run(
        command,  # type: ignore[arg-type]
        env=acting_environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert raw.stdout == b"got 7 characters\n"
    piped = run("show", request="-", input=b"bytes \xff\x00", encoding=None)
    assert piped.stdout == b"got 8 characters\n"


def test_a_narrow_encoding_does_not_end_the_run(run: Run, acting_environment: dict[str, str]) -> None:
    done = run("odd", env={**acting_environment, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "odd ? answer ?.\n")


@pytest.mark.parametrize("option", ["--json", "-v"])
def test_a_closed_pipe_is_a_quiet_end(acting_environment: dict[str, str], tmp_path: Path, option: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "trilane", "run", "go", "-m", "acting:long", option]
    done = subprocess.run(
        command,
        env=acting_environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_a_blocked_plugin_takes_no_part(run: Run) -> None:
    done = run("plain", "-p", "no:acting")
    assert done.returncode == 2
    assert "blocked" in done.stderr.splitlines()[-1]


def test_root_is_what_file_tools_see(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "note.md").write_text("one two three\n")
    done = run("", "--root", "in", request="How many words are in note.md?")
    assert done.returncode == 0, done.stderr
    assert "3" in done.stdout
    assert "<- count_words" in done.stderr


def test_yes_and_no_exclude_each_other(run: Run) -> None:
    done = run("ask", "--no", "--yes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes and --no exclude each other" in done.stderr


@pytest.fixture
def start(acting_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a run that is to be interrupted."""
    started: list[subprocess.Popen[str]] = []
    # Whoever started the tests may have told them to outlive a terminal (`nohup`), which is inherited.
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def make(scene: str, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "trilane", "run", "go", "-m", f"acting:{scene}", *args],
            env=acting_environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield make
    signal.signal(signal.SIGHUP, hangup)
    for process in started:
        process.kill()
        process.communicate()


def _interrupt_when(process: subprocess.Popen[str], line: str, number: int = signal.SIGINT) -> tuple[str, str]:
    assert process.stderr is not None
    seen = []
    for got in process.stderr:
        seen.append(got)
        if line in got:
            break
    process.send_signal(number)
    out, rest = process.communicate(timeout=30)
    return out, "".join(seen) + rest


def test_an_interrupted_run_says_what_was_done_and_what_not(start: Start) -> None:
    process = start("nap")
    _, notes = _interrupt_when(process, "the nap begins")
    assert process.returncode == 130
    summary = notes[notes.index("Interrupted by Ctrl-C.") :].splitlines()
    assert '  done      count(path="a.md")' in summary
    assert any(line.startswith("  not done  nap(): interrupted") for line in summary)
    assert "Traceback" not in notes


def test_an_interrupted_run_ends_at_the_boundary_with_a_terminal_event_in_json(start: Start) -> None:
    process = start("soon", "--json")
    out, notes = _interrupt_when(process, "it begins soon")
    assert process.returncode == 130
    events = [event_from_json(line) for line in out.splitlines()]
    assert events[-1].type == "run_cancelled"
    assert [event.result.content for event in events if event.type == "tool_completed"] == ["done in time"]
    assert "  done      soon()" in notes


def test_termination_ends_in_order_too(start: Start) -> None:
    process = start("nap")
    _, notes = _interrupt_when(process, "the nap begins", signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Put aside: terminated by a signal." in notes
    assert "Ctrl-C" not in notes
    again = notes[notes.index("go on with: ") :].split("go on with: trilane ")[1].split()
    assert again[:2] == ["sessions", "resume"]


def test_a_run_whose_terminal_is_closed_is_put_aside_too(start: Start) -> None:
    process = start("nap")
    _, notes = _interrupt_when(process, "the nap begins", signal.SIGHUP)
    assert process.returncode == 128 + signal.SIGHUP
    assert "Put aside: the terminal was closed." in notes


def test_a_run_that_is_to_outlive_its_terminal_does(acting_environment: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["nohup", sys.executable, "-m", "trilane", "run", "go", "-m", "acting:soon"],
        env=acting_environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, notes = _interrupt_when(process, "it begins soon", signal.SIGHUP)
        assert "<- soon: done in time" in notes
        assert "-> count" in notes, "it went on"
        assert process.returncode == 1  # the script of the scene is at its end
    finally:
        process.kill()
        process.communicate()


def test_json_can_be_read_without_trilane(run: Run) -> None:
    done = run("plain", "--json")
    assert {json.loads(line)["type"] for line in done.stdout.splitlines()} >= {"run_started", "run_completed"}
