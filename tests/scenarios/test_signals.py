"""SIGINT (stop) and SIGTERM (suspend) to a process whose run is held in each phase, over a SQLite store.

The process is `signalled_process.py`; it says when it is held, and only then is the signal sent. What it left is looked
at from here, another process, as the next owner of the session would.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane.stores import SessionView
from trilane.testing import assert_history, check_history
from trilane_sqlite import SqliteStore

from .signalled_process import ANSWER, PLACES, REQUEST, SESSION, make_agent

SCRIPT = Path(__file__).parent / "signalled_process.py"
WALL_SECONDS = 10  # 2 seconds, five times over: these machines are busy

CASES = [(place, "asyncio") for place in PLACES]
CASES += [(place, "trio") for place in ("compacting", "running_tool", "reply", "asked")]

#: The phase in which a run is that is held there.
PHASES = {place: place for place in PLACES} | dict.fromkeys(("thread", "reply", "asked"), "running_tool")


class Server:
    """Starts and signals processes; a process that does not end in time is killed, and its status tells so."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _ask(self, *words: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def signalled(self, folder: Path, place: str, backend: str, number: int) -> tuple[int, list[str]]:
        """Let a run be held, send the signal, and return the exit status and what was said."""
        output = folder / "output"
        os.mkfifo(output)
        pid = self._ask(folder / "store.db", place, backend, output)
        with output.open(encoding="utf-8") as lines:
            said = [lines.readline()]
            os.kill(pid, number)
            bound = threading.Timer(WALL_SECONDS, os.kill, (pid, signal.SIGKILL))
            bound.start()
            try:
                said += lines.readlines()  # to the end: nothing of the process holds its output any more
                status = self._ask(pid)
            finally:
                bound.cancel()
                bound.join()
        return status, [line.rstrip("\n") for line in said]

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def looked_at(backend: str, path: Path, look: Callable[[SqliteStore], Any]) -> Any:
    """Open the store as another process does, and close it again."""

    async def main() -> Any:
        store = SqliteStore(path, synchronous="normal")
        try:
            return await look(store)
        finally:
            store.close()

    return anyio.run(main, backend=backend)


async def stored(store: SqliteStore) -> tuple[list[Any], SessionView]:
    """The records, and what a model would see of them."""
    records = list((await store.load(SESSION)).records)
    view = SessionView()
    for record in records:
        view.apply(record)
    return records, view


def open_questions(records: list[Any]) -> list[str]:
    closed = {record.question_id for record in records if record.kind == "question_closed"}
    asked = [record.question for record in records if record.kind == "question"]
    return [question.id for question in asked if question.id not in closed]


def outcomes(messages: Any) -> list[list[str]]:
    return [[result.outcome for result in message.results] for message in messages if message.kind == "tool"]


async def goes_on_after_a_stop(store: SqliteStore, place: str) -> None:
    records, view = await stored(store)
    assert view.unanswered is None  # settled by the process that was stopped, not at the next load
    assert check_history(view.log) == []
    assert [record.status for record in records if record.kind == "run_ended"] == ["cancelled"]
    assert open_questions(records) == []
    expected = {"running_tool": ["ok", "interrupted"], "thread": ["ok", "still_running"]}
    answered = outcomes(view.log)
    if place in ("reply", "asked"):
        assert answered == [["ok", "not_started", "interrupted"]]
    else:
        assert answered == ([expected[place]] if place in expected else [])
    result = await make_agent(store, "").run("And now?", session=SESSION)
    assert result.output in ("Fine.", ANSWER)
    assert_history(result.messages)


async def is_taken_up_after_a_suspension(store: SqliteStore, place: str, backend: str) -> None:
    records, view = await stored(store)
    assert [record.status for record in records if record.kind == "run_ended"] == ["suspended"]
    finished = [record.result for record in records if record.kind == "call_finished"]
    assert [result.call_id for result in finished] == (["look"] if PHASES[place] == "running_tool" else [])
    asked = open_questions(records)
    questions = 2 if place in ("reply", "asked") else 0
    assert len(asked) == questions
    view.close()
    assert check_history(view.log) == []
    again: list[str] = []
    async with make_agent(store, "").resume(SESSION) as run:
        async for event in run:
            if event.type == "reply_requested":
                again.append(event.question.id)
                payload: Any = {"approve": True} if event.question.kind == "approval" else "red"
                assert run.reply(event.question.id, payload).status == "accepted"
    assert len(again) == questions
    assert set(again) >= set(asked)
    assert (run.result.status, run.result.output) == ("completed", ANSWER)
    assert outcomes(run.result.messages) == [["ok", "ok", "ok"] if asked else ["ok", "ok"]]
    assert run.result.messages[0].text == REQUEST  # type: ignore[union-attr]
    assert_history(run.result.messages)


@pytest.mark.parametrize(("place", "backend"), CASES)
def test_sigint_stops_in_order(place: str, backend: str, server: Server, tmp_path: Path) -> None:
    status, said = server.signalled(tmp_path, place, backend, signal.SIGINT)
    assert said == [f"held {PHASES[place]}", "ended cancelled cancelled"]
    assert status == 130
    looked_at(backend, tmp_path / "store.db", lambda store: goes_on_after_a_stop(store, place))


@pytest.mark.parametrize(("place", "backend"), CASES)
def test_sigterm_suspends_and_another_process_resumes(place: str, backend: str, server: Server, tmp_path: Path) -> None:
    status, said = server.signalled(tmp_path, place, backend, signal.SIGTERM)
    assert said == [f"held {PHASES[place]}", "ended cancelled suspended"]
    assert status == 143
    looked_at(backend, tmp_path / "store.db", lambda store: is_taken_up_after_a_suspension(store, place, backend))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_answer_stands_whatever_signal_comes_after_it(
    number: signal.Signals, server: Server, tmp_path: Path
) -> None:
    status, said = server.signalled(tmp_path, "completed", "asyncio", number)
    assert said == ["held completed", "ended completed end"]
    assert status == 128 + number

    async def look(store: SqliteStore) -> None:
        records, view = await stored(store)
        assert [record.status for record in records if record.kind == "run_ended"] == ["completed"]
        assert check_history(view.log) == []
        assert view.log[-1].text == ANSWER  # type: ignore[union-attr]
        assert (await make_agent(store, "").run("And now?", session=SESSION)).output in ("Fine.", ANSWER)

    looked_at("asyncio", tmp_path / "store.db", look)


# ---- through `trilane run` -------------------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which the script is installed as the plugin `held`."""
    info = tmp_path / "held-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: held\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trilane]\nheld = signalled_process:plugin\n")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("TRILANE_", "OPENAI_", "ANTHR"))}
    python_path = os.pathsep.join([str(tmp_path), str(SCRIPT.parent)])
    return keep | {"PYTHONPATH": python_path, "TRILANE_SESSIONS": str(tmp_path / "sessions.db")}


def test_sigint_ends_trilane_run_with_130_in_each_phase(environment: dict[str, str], tmp_path: Path) -> None:
    places = ("loading_context", "ready", "compacting", "generating", "running_tool")
    argv = [sys.executable, "-m", "trilane", "run", REQUEST, "-m", "held:script", "--json", "--session"]
    processes = {
        place: subprocess.Popen(
            [*argv, place],
            env=environment | {"HELD_AT": place},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for place in places
    }
    try:
        for place, process in processes.items():
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if line == f"held {place}\n":
                    break
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=WALL_SECONDS)
            assert process.returncode == 130, "".join(said) + rest
            assert '"run_cancelled"' in rest
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()

    async def look(store: SqliteStore) -> None:
        for place in places:
            result = await make_agent(store, "").run("And now?", session=place)
            assert result.output == "Fine."
            assert_history(result.messages)

    looked_at("asyncio", tmp_path / "sessions.db", look)
