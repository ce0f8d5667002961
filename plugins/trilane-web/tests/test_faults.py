"""Networks and clients that fail in the middle: others are served, memory is bounded, the run does as it is told."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from trilane import Agent, Delta, ModelResponse, TextPart
from trilane.testing import FunctionModel, ScriptedModel
from trilane_web import WebLimits, WebSettings

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


class Proxy:
    """Between a client and the server; can hold, cut or reset what goes through it."""

    def __init__(self) -> None:
        self.port = 0
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._writers: list[asyncio.StreamWriter] = []

    def hold(self) -> None:
        """Pass nothing on any more, in either direction, and say nothing about it: half open."""
        self.flowing.clear()

    def reset(self) -> None:
        """End every connection with a reset."""
        for writer in self._writers:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await proxy.flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        proxy._writers += [writer, back]
        await asyncio.gather(pump(reader, back), pump(there, writer))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.flowing.set()
        for writer in proxy._writers:
            writer.transport.abort()
        listener.close()


def _talker(total: int, size: int = 100) -> Agent[None, str]:
    async def speak(request: Any, emit: Any) -> ModelResponse:
        for _ in range(total):
            await emit(Delta(text="x" * size))
        return ModelResponse(parts=(TextPart(text="x"),), stop_reason="end")

    return Agent(FunctionModel(speak))


@pytest.mark.parametrize("fault", ["reset", "half open"])
async def test_f096_a_broken_connection_is_noticed_and_the_run_taken_up(serve: Serve, fault: str) -> None:
    settings = WebSettings(limits=WebLimits(heartbeat_seconds=0.2))
    async with serve(_talker(300), settings=settings) as server, proxied(server.port) as proxy:
        async with server.wire(port=proxy.port, client="tab") as wire:
            started = await wire.ask("start", text="go", acknowledgement="strict")
            run = started["run"]
            while len(wire.events.get(run, ())) < 20:
                if wire.events.get(run):
                    await wire.send("ack", run=run, seq=wire.events[run][-1]["seq"])
                await wire.next()
            seen = list(wire.events[run])
            proxy.reset() if fault == "reset" else proxy.hold()
            live = server.web.runs.running()[0]
            await server.until(lambda: live.driver is None)
        async with server.wire(client="tab") as again:
            await again.ask("watch", session=started["session"], run=run, after=seen[-1]["seq"])
            seen += await again.read_run(run)
        assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
        assert seen[-1]["type"] == "run_completed"


async def test_a_client_that_reads_nothing_is_cut_off_and_costs_bounded_memory(serve: Serve) -> None:
    limits = WebLimits(send_seconds=0.3, kept_bytes=500_000)
    async with serve(_talker(400, 100_000), settings=WebSettings(limits=limits)) as server:
        async with server.wire(client="stalled") as wire, server.wire() as other:
            wire.socket.transport.pause_reading()
            await wire.send("start", text="go", acknowledgement="detached")
            await server.until(lambda: server.web.runs.running())
            live = server.web.runs.running()[0]
            run = (await other.ask("start", text="go", acknowledgement="detached", session="second"))["run"]
            while not other.events.get(run) or other.events[run][-1]["type"] != "run_completed":
                assert live.journal.size <= 600_000
                await other.next()
            await server.until(lambda: live.driver is None)
            await server.until(lambda: len(server.web._connections) == 1)


async def test_a_slow_request_does_not_hold_up_others(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel(*["hello"] * 5))) as server:
        dribbling = []
        for _ in range(50):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST /api/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")
            dribbling.append((reader, writer))
        async with asyncio.timeout(10):
            status, _, _ = await server.http("POST", "/api/runs", {"text": "hi"})
        assert status == 201
        for _, writer in dribbling:
            writer.close()


async def test_f097_a_server_that_is_gone_is_not_a_completed_run(serve: Serve) -> None:
    from trilane_web.client import ConnectionLost

    async with serve(_talker(1000)) as server:
        async with server.client() as client:
            run = await client.start("go")
            event = await anext(run)
            while event.type != "text_delta":
                event = await anext(run)
            await client._close()
            with pytest.raises(ConnectionLost):
                while True:
                    await anext(run)
        (live,) = server.web.runs.running()
        assert live.session == run.session


async def test_a_watcher_that_is_slow_gets_a_gap_and_holds_up_nobody(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(kept_bytes=500_000))
    async with serve(_talker(400, 100_000), settings=settings) as server:
        async with server.wire(client="fast") as fast, server.wire(client="slow") as slow:
            started = await fast.ask("start", text="go")
            await slow.ask("watch", session=started["session"])
            slow.socket.transport.pause_reading()
            await fast.read_run(started["run"])
            slow.socket.transport.resume_reading()
            await slow.until_event(started["run"], "run_completed")
            assert [message["reason"] for message in slow.seen if message["type"] == "gap"]
            seqs = [event["seq"] for event in slow.events[started["run"]]]
            assert seqs == sorted(set(seqs))
