"""The end of a server: runs first, then connections; and what can be taken up after it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from trilane import Agent, EventSink, InMemoryStore, RunStream, tool
from trilane.testing import ScriptedModel, call
from trilane_web import app
from trilane_web.client import connect
from trilane_web.connection import Connection
from trilane_web.live import LiveRun
from trilane_web.serving import listen, make_server

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
ran: list[int] = []


@tool(approval=True, effect="idempotent")
def act(number: int) -> str:
    """Act."""
    ran.append(number)
    return f"acted {number}"


async def test_a_question_survives_a_restart(serve: Serve) -> None:
    store = InMemoryStore()
    async with serve(Agent(ScriptedModel(call("act", number=4)), tools=[act], store=store)) as server:
        async with server.wire(client="tab") as wire:
            started = await wire.ask("start", text="go")
            event = await wire.read_to(started["run"], "reply_requested")
            server.web.runs.draining = False
            await server.web.drain()
            assert await wire.closed() in (1001, 1012)
            closing = [message for message in wire.seen if message["type"] == "closing"]
            assert closing[-1]["again"] is True
            assert wire.events[started["run"]][-1]["result"]["stop_reason"] == "suspended"
    assert ran == []
    async with serve(Agent(ScriptedModel("fine"), tools=[act], store=store)) as server:
        async with server.wire(client="tab") as wire:
            session, question, yes = started["session"], event["question"]["id"], {"approve": True}
            assert (await wire.ask("watch", session=session))["active"] is False
            early = await wire.ask("reply", session=session, question=event["question"]["id"], payload=yes)
            assert early["status"] == "unknown", "nobody waits for it before the session is taken up"
            resumed = await wire.ask("resume", session=session)
            again = await wire.read_to(resumed["run"], "reply_requested")
            assert again["question"]["id"] == question
            receipt = await wire.ask("reply", session=session, question=again["question"]["id"], payload=yes)
            assert receipt["status"] == "accepted"
            assert (await wire.read_run(resumed["run"]))[-1]["type"] == "run_completed"
    assert ran == [4]


async def test_a_server_that_is_ending_starts_nothing(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("x"))) as server:
        server.web.runs.draining = True
        assert (await server.http("POST", "/api/runs", {"text": "x"}))[0] == 503
        with pytest.raises(Exception, match="503"):
            async with server.wire():
                pass


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is taken down: runs and connections as that begins, sinks when they write no more."""
    seen: list[str] = []
    suspend, write, end = RunStream.suspend, EventSink.run, Connection.end

    async def noted_suspend(stream: Any) -> None:
        seen.append("run")
        await suspend(stream)

    async def noted_write(sink: Any) -> None:
        await write(sink)
        assert sink.closed
        seen.append("sink")

    def noted_end(connection: Any, *args: Any, **options: Any) -> None:
        seen.append("connection")
        end(connection, *args, **options)

    monkeypatch.setattr(RunStream, "suspend", noted_suspend)
    monkeypatch.setattr(EventSink, "run", noted_write)
    monkeypatch.setattr(Connection, "end", noted_end)
    return seen


@pytest.mark.parametrize("frame_seconds", [0, 5])
async def test_r71_run_then_sink_then_connection_then_wait(
    serve: Serve, order: list[str], frame_seconds: float
) -> None:
    agent = Agent(ScriptedModel(call("act", number=1)), tools=[act])
    async with serve(agent) as server, server.wire(frame_seconds=frame_seconds) as wire:
        started = await wire.ask("start", text="go", acknowledgement="detached")
        run = started["run"]
        await server.until(lambda: agent.questions(started["session"]))
        (live,) = server.web.runs.running()
        await server.web.drain()
        order.append("waited")
        assert order == ["run", "sink", "connection", "waited"]
        assert live.task.done()
        assert not server.web._connections
        assert await wire.closed() in (1001, 1012)
        assert wire.events[run][-1]["type"] == "run_cancelled", "what was shown before still went out"
        await server.web.drain()
        assert order.count("run") == 1


@pytest.mark.parametrize("also", [False, True], ids=["suspend", "suspend and stop"])
async def test_r71_also_when_one_of_them_raises(
    serve: Serve, order: list[str], monkeypatch: pytest.MonkeyPatch, also: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that cannot be suspended is stopped or cancelled, and keeps neither the other runs nor the connections."""
    noted, stop = RunStream.suspend, LiveRun.stop_now

    async def failing(stream: Any) -> None:
        if stream.session_id == broken["session"]:
            raise RuntimeError("the store is gone")
        await noted(stream)

    async def failing_stop(live: Any, reason: str) -> None:
        if also:
            raise RuntimeError("and so is this")
        await stop(live, reason)

    monkeypatch.setattr(RunStream, "suspend", failing)
    monkeypatch.setattr(LiveRun, "stop_now", failing_stop)
    script = (call("act", number=1), call("act", number=2))
    async with serve(Agent(ScriptedModel(*script), tools=[act])) as server, server.wire() as wire:
        broken = await wire.ask("start", text="go")
        await wire.read_to(broken["run"], "reply_requested")
        other = await wire.ask("start", text="go")
        await wire.read_to(other["run"], "reply_requested")
        lives = list(server.web.runs.running())
        async with asyncio.timeout(20):
            await server.web.drain()
        assert order[-1] == "connection"
        assert order.count("sink") == 2
        assert all(live.task.done() for live in lives)
        assert not server.web._connections
        await wire.closed()
        assert wire.events[other["run"]][-1]["result"]["stop_reason"] == "suspended"
        assert server.web.runs.agent.active(broken["session"]) is None
    assert "could not be put aside in order" in caplog.text
    assert ran == []


async def test_r72_to_wait_before_the_connections_are_closed_hangs(serve: Serve) -> None:
    """The negative case: a client that is content where it is does not go away because its server waits for that."""
    async with serve(Agent(ScriptedModel("Hello."))) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        await wire.read_run(run)
        await server.web.runs.drain()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                while server.web._connections:  # noqa: ASYNC110  (as a server would that waits first)
                    await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await server.web.drain()
        assert not server.web._connections


async def test_r72_connections_that_are_closed_before_the_runs_are_told_nothing_of_their_end(serve: Serve) -> None:
    """The negative case: the last events of the run go where nobody is."""
    told: dict[bool, bool] = {}
    for swapped in (False, True):
        async with serve(Agent(ScriptedModel(call("act", number=1)), tools=[act])) as server, server.wire() as wire:
            run = (await wire.ask("start", text="go", on_disconnect="continue"))["run"]
            await wire.read_to(run, "reply_requested")
            (live,) = server.web.runs.running()
            if swapped:
                for connection in tuple(server.web._connections):
                    connection.end(1001, "too early", again=True)
                await wire.closed()
            await server.web.drain()
            if not swapped:
                await wire.closed()
            assert live.journal.complete
            told[swapped] = wire.events[run][-1]["seq"] == live.journal.last
    assert told == {False: True, True: False}


async def test_it_can_be_mounted_in_another_application(serve: Serve) -> None:
    from trilane_web.serving import listen, make_server

    web = app(Agent(ScriptedModel("hello")))
    outer = Starlette(routes=[Mount("/agent", web)], lifespan=web.lifespan)
    server = make_server(web)
    server.config.app = outer
    with listen("127.0.0.1", 0, protected=False) as listener:
        port = listener.getsockname()[1]
        task = asyncio.create_task(server.serve(sockets=[listener]))
        async with connect(f"ws://127.0.0.1:{port}/agent/ws") as client:
            run = await client.start("hi")
            assert [event.type async for event in run][-1] == "run_completed"
        server.should_exit = True
        await task
    assert web.runs.draining


_PROGRAM = """
from trilane import Agent, tool
from trilane.testing import ScriptedModel, call

@tool(approval=True)
def act() -> str:
    "Act."
    return "done"

agent = Agent(ScriptedModel(call("act"), "ok"), tools=[act], name="helper")
"""


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TRILANE_")}


async def test_trilane_serve_ends_in_order_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "trilane", "serve", "program:agent", "--port", "0", "--token", "new"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stderr=asyncio.subprocess.PIPE, env=_environment()
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            line = (await process.stderr.readline()).decode()
            assert line.startswith("serving 'helper' at http://127.0.0.1:")
            where, _, token = line.split(" at ")[1].strip().partition("#token=")
            url = where.replace("http", "ws") + "ws"
            async with connect(url, token=token) as client:
                run = await client.start("go")
                seen = []
                async for event in run:
                    seen.append(event)
                    if event.type == "reply_requested":
                        process.send_signal(signal.SIGTERM)
                assert seen[-1].type == "run_cancelled"
                assert seen[-1].result.stop_reason == "suspended"
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process._transport.close()
    assert process.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "give --token, or bind to 127.0.0.1"),
        (["nothing_here:agent"], "there is no module 'nothing_here'"),
        (["program"], "write MODULE:NAME"),
        (["program:nothing"], "has no 'nothing'"),
        (["program:act"], "not an Agent"),
        (["--acknowledgement", "loose"], "choose one of strict, windowed, detached"),
    ],
)
def test_what_trilane_serve_refuses(tmp_path: Path, options: list[str], words: str) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM + "\nact = 3\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "trilane", "serve", "--port", "0", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
        timeout=60,
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_question_survives_kill_9(tmp_path: Path) -> None:
    pytest.importorskip("trilane_sqlite", reason="needs a store that survives: pip install trilane-sqlite")
    program = _PROGRAM.replace("agent = Agent(", "from trilane_sqlite import SqliteStore\nagent = Agent(").replace(
        "tools=[act],", "tools=[act], store=SqliteStore('sessions.sqlite3'),"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    (tmp_path / "after.py").write_text(program.replace('call("act"), "ok"', '"finished"'), encoding="utf-8")
    async with _served(tmp_path, "program:agent") as (process, url), connect(url) as client:
        run = await client.start("go")
        async for event in run:
            if event.type == "reply_requested":
                break
        process.kill()
        await process.wait()
    async with _served(tmp_path, "after:agent") as (_, url), connect(url) as client:
        again = await client.resume(run.session)
        kinds = []
        async for later in again:
            kinds.append(later.type)
            if later.type == "reply_requested":
                assert later.question.id == event.question.id
                receipt = await client.reply(run.session, later.question.id, {"approve": True})
                assert receipt.status == "accepted"
        assert kinds[-1] == "run_completed"
        assert kinds.count("tool_completed") == 1


@asynccontextmanager
async def _served(folder: Path, target: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    command = [sys.executable, "-m", "trilane", "serve", target, "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stderr=asyncio.subprocess.PIPE, env=_environment()
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            line = (await process.stderr.readline()).decode()
        yield process, line.split(" at ")[1].strip().replace("http", "ws") + "ws"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process._transport.close()


async def test_a_server_that_is_hurried_leaves_nothing_to_be_cancelled(
    until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    web = app(Agent(ScriptedModel("Hello.")))
    server = make_server(web)
    before = asyncio.all_tasks()
    serving = asyncio.create_task(server.serve(sockets=[listen("127.0.0.1", 0, protected=True)]))
    await until(lambda: server.started)
    server.should_exit = server.force_exit = True  # what a second Ctrl-C does
    await serving
    await until(lambda: asyncio.all_tasks() == before)  # else the end of the program cancels them, which is logged
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
