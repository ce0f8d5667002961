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

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
ran: list[int] = []


@tool(approval=True, effect="idempotent")
def act(number: int) -> str:
    """Act."""
    ran.append(number)
    return f"acted {number}"


async def test_a_question_survives_a_restart(serve: Serve) -> None:
    ran.clear()
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


async def test_r71_run_then_sink_then_connection(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    suspend, close = RunStream.suspend, EventSink.close

    async def noted_suspend(stream: Any) -> None:
        await suspend(stream)
        order.append("run")

    def noted_close(sink: Any) -> None:
        if not sink.closed:
            order.append("sink")
        close(sink)

    monkeypatch.setattr(RunStream, "suspend", noted_suspend)
    monkeypatch.setattr(EventSink, "close", noted_close)
    async with serve(Agent(ScriptedModel(call("act", number=1)), tools=[act])) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        await wire.read_to(run, "reply_requested")
        (connection,) = server.web._connections
        end = connection.end

        def noted_end(*args: Any, **options: Any) -> None:
            order.append("connection")
            end(*args, **options)

        connection.end = noted_end
        await server.web.drain()
    assert order[0] == "run"
    assert order[-1] == "connection"


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
