"""The Python client: which addresses it takes, and servers that are not what it expects.

What it does over a connection with a server of its own kind is in the tests of the server.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets
from websockets.typing import Subprotocol

from trilane import Agent
from trilane.testing import ScriptedModel
from trilane_web.client import ClientRun, RequestRefused, connect

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


@pytest.mark.parametrize("address", ["http://127.0.0.1:{}/", "http://127.0.0.1:{}", "ws://127.0.0.1:{}/ws"])
async def test_the_address_that_the_server_prints_will_do(serve: Serve, address: str) -> None:
    async with serve(Agent(ScriptedModel("Hello."))) as server:
        async with connect(address.format(server.port)) as client:
            run = await client.start("hi")
            assert (await run.wait()).type == "run_completed"


async def test_an_address_where_no_server_of_ours_is_ends_at_once(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("Hello."))) as server:
        with pytest.raises(RequestRefused, match=r"HTTP 403; its token, or the address ws://.*/other/ws, is another"):
            async with connect(f"http://127.0.0.1:{server.port}/other/"):
                pass


async def test_another_server_ends_at_once() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RequestRefused, match=r"there is no Trilane server at ws://.*: HTTP 404") as caught:
            async with connect(f"http://127.0.0.1:{port}/"):
                pass
    assert caught.value.code == "not_found"


@pytest.mark.parametrize("address", ["127.0.0.1:8765", "ftp://127.0.0.1/", "http://", ""])
async def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of a server; give one such as http://"):
        async with connect(address):
            pass


WELCOME = {
    "type": "welcome",
    "re": "hello",
    "protocol": 1,
    "server": "trilane-web",
    "principal": "you",
    "agent": "agent",
    "acknowledgement": "strict",
    "heartbeat_seconds": 20,
    "lanes": False,
}


async def _stored() -> list[dict[str, Any]]:
    """The events of a run, as they are sent."""
    async with Agent(ScriptedModel("Hello.")).stream("hi") as run:
        return [json.loads(event.to_json()) async for event in run]


class Odd:
    """A server that speaks WebSocket and says what a test has it say."""

    def __init__(self) -> None:
        self.url = ""
        self.heard: list[dict[str, Any]] = []
        self.news = asyncio.Condition()

    async def until(self, **fields: Any) -> dict[str, Any]:
        """The first message with these fields, once it has come."""
        async with self.news:
            while True:
                for message in self.heard:
                    if all(message.get(name) == value for name, value in fields.items()):
                        return message
                await self.news.wait()


@asynccontextmanager
async def odd_server(answer: Callable[[ServerConnection, dict[str, Any]], Awaitable[None]]) -> AsyncIterator[Odd]:
    """`answer` is called for each message that comes."""
    odd = Odd()

    async def handle(socket: ServerConnection) -> None:
        async for frame in socket:
            message = json.loads(frame)
            async with odd.news:
                odd.heard.append(message)
                odd.news.notify_all()
            await answer(socket, message)

    async with serve_sockets(handle, "127.0.0.1", 0, subprotocols=[Subprotocol("trilane.v1")]) as server:
        odd.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
        yield odd


@pytest.mark.parametrize(
    "garbage", ["no JSON", "[]", "7", '{"no": "type"}', '{"type": "welcome", "protocol": "?"}', b"\xff"]
)
async def test_a_server_that_greets_otherwise_ends_at_once(garbage: str | bytes) -> None:
    async def answer(socket: ServerConnection, message: dict[str, Any]) -> None:
        await socket.send(garbage)

    async with odd_server(answer) as odd, asyncio.timeout(10):
        with pytest.raises(
            RequestRefused, match=r"what ws://127.* it is no Trilane server, or one of another version"
        ) as caught:
            async with connect(odd.url):
                pass
    assert caught.value.code == "wrong_protocol"


@pytest.mark.parametrize(
    "garbage",
    [
        "no JSON",
        "[]",
        '{"type": "events", "run": "r"}',
        '{"type": "events", "run": "r", "events": [{}]}',
        '{"type": "gap", "run": "r"}',
    ],
)
async def test_what_cannot_be_understood_ends_all_that_waits(garbage: str) -> None:
    async def answer(socket: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            await socket.send(json.dumps(WELCOME))
        elif message["type"] == "start":
            await socket.send(json.dumps({"type": "run", "re": message["id"], **RUN}))
        elif message["type"] == "ping":
            await socket.send(garbage)

    async with odd_server(answer) as odd, asyncio.timeout(10), connect(odd.url) as client:
        run = await client.start("hi")
        for attempt in (client.ping(), client.ping(), run.wait()):
            with pytest.raises(RequestRefused, match="cannot be understood") as caught:
                await attempt
            assert caught.value.code == "wrong_protocol"


RUN = {"session": "s", "run": "r", "next": 1, "active": True, "driver": True, "acknowledgement": "strict"}


async def test_what_a_later_server_says_besides_is_passed_over_and_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Minor releases may add events, messages and fields."""
    stored = [value | {"novel": True} for value in await _stored()]
    novel = {**stored[-1], "type": "of_a_later_release", "seq": len(stored)}
    stored[-1]["seq"] += 1
    stored.insert(-1, novel)

    async def answer(socket: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            await socket.send(json.dumps(WELCOME | {"novel": 1}))
        elif message["type"] == "start":
            await socket.send(json.dumps({"type": "run", "re": message["id"], **RUN, "novel": 1}))
            await socket.send(json.dumps({"type": "of_a_later_release"}))
            await socket.send(json.dumps({"type": "events", "run": "r", "events": stored[:1]}))
        elif message["type"] == "ack" and message["seq"] < len(stored):  # strict: one by one
            await socket.send(json.dumps({"type": "events", "run": "r", "events": [stored[message["seq"]]]}))

    async with odd_server(answer) as odd, asyncio.timeout(10), connect(odd.url) as client:
        types = [event.type async for event in await client.start("hi")]
        assert types == [value["type"] for value in stored if value is not novel]
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "of_a_later_release" in warned[0]


async def test_a_server_that_does_not_answer_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with odd_server(lambda socket, message: asyncio.sleep(0)) as odd:
        url = odd.url  # where nobody listens any more, soon
    tries = 0

    async def wait(seconds: float) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            connecting.cancel()
            await asyncio.Event().wait()

    monkeypatch.setattr("trilane_web.client.asyncio.sleep", wait)
    connecting = asyncio.create_task(_connect(url))
    await asyncio.gather(connecting, return_exceptions=True)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert url.replace("http", "ws") in record.getMessage()
    assert "it is tried again" in record.getMessage()


async def _connect(url: str) -> None:
    async with connect(url):
        pass


async def test_a_client_keeps_no_run_that_has_ended(serve: Serve) -> None:
    async with (
        serve(Agent(ScriptedModel(*["Hello."] * 3))) as server,
        connect(f"http://127.0.0.1:{server.port}/") as client,
    ):
        for _ in range(3):
            assert (await (await client.start("hi")).wait()).type == "run_completed"
        assert dict(client._runs) == {}


async def test_a_run_that_is_dropped_is_watched_no_longer() -> None:
    stored = await _stored()

    async def answer(socket: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            await socket.send(json.dumps(WELCOME))
        elif message["type"] == "start":
            await socket.send(json.dumps({"type": "run", "re": message["id"], **RUN}))
            await socket.send(json.dumps({"type": "events", "run": "r", "events": stored[:2]}))

    async def read_one(run: ClientRun) -> None:
        async for _ in run:
            break

    async with odd_server(answer) as odd, asyncio.timeout(10), connect(odd.url) as client:
        await read_one(await client.start("hi"))
        gc.collect()
        assert (await odd.until(type="unwatch"))["run"] == "r"
        assert dict(client._runs) == {}


async def test_a_run_that_a_server_started_anew_does_not_know_says_how_to_go_on() -> None:
    stored = await _stored()
    names = iter(["r1", "r2"])
    connections: list[ServerConnection] = []

    async def answer(socket: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            connections.append(socket)
            await socket.send(json.dumps(WELCOME))
        elif message["type"] == "start":
            name = next(names)
            await socket.send(
                json.dumps({"type": "run", "re": message["id"], **RUN, "run": name, "session": f"of {name}"})
            )
            await socket.send(json.dumps({"type": "events", "run": name, "events": stored[:1]}))
        elif message["type"] == "watch" and message["run"] == "r1":
            gone = {"type": "error", "re": message["id"], "code": "not_found", "message": "no such run"}
            await socket.send(json.dumps(gone))
        elif message["type"] == "watch":
            known = {"type": "run", "re": message["id"], **RUN, "run": "r2"}
            await socket.send(json.dumps(known))
            await socket.send(json.dumps({"type": "events", "run": "r2", "events": stored[1:]}))

    async with odd_server(answer) as odd, asyncio.timeout(10), connect(odd.url, retry_seconds=0.01) as client:
        gone, known = await client.start("hi"), await client.start("hi")
        await anext(gone)
        await anext(known)
        await connections[0].close()
        with pytest.raises(RequestRefused, match="knows the run r1 no more") as caught:
            await anext(gone)
        assert f"resume({gone.session!r}) goes on" in str(caught.value)
        assert caught.value.code == "not_found"
        assert (await known.wait()).type == "run_completed"


async def test_a_run_whose_caller_was_cancelled_is_watched_no_longer() -> None:
    asked = asyncio.Event()
    stored = await _stored()

    async def answer(socket: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            await socket.send(json.dumps(WELCOME))
        elif message["type"] == "start":
            asked.set()
        elif message["type"] == "ping":
            await socket.send(json.dumps({"type": "run", "re": odd.heard[1]["id"], **RUN}))
            await socket.send(json.dumps({"type": "events", "run": "r", "events": stored[:2]}))
            await socket.send(json.dumps({"type": "pong", "re": message["id"]}))

    async with odd_server(answer) as odd, asyncio.timeout(10), connect(odd.url) as client:
        starting = asyncio.create_task(client.start("hi"))
        await asked.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await client.ping()
        assert (await odd.until(type="unwatch"))["run"] == "r"
        assert dict(client._runs) == {}


async def test_whether_it_still_drives_is_known_after_a_reconnect() -> None:
    stored = await _stored()

    async def answer(socket: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            await socket.send(json.dumps(WELCOME))
        elif message["type"] == "start":
            await socket.send(json.dumps({"type": "run", "re": message["id"], **RUN}))
            await socket.send(json.dumps({"type": "events", "run": "r", "events": stored[:1]}))
            await socket.close()
        elif message["type"] == "watch":
            await socket.send(json.dumps({"type": "run", "re": message["id"], **RUN, "driver": False}))
            await socket.send(json.dumps({"type": "events", "run": "r", "events": stored[message["after"] :]}))

    async with odd_server(answer) as odd, asyncio.timeout(10), connect(odd.url) as client:
        run = await client.start("hi")
        assert run.driver
        assert (await run.wait()).type == "run_completed"
        assert not run.driver
