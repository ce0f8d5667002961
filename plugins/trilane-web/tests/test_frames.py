"""What a client can do below messages: broken frames, frames without end, and requests that never become whole.

Each ends for the client that does it, while others are served, and costs bounded memory.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from trilane import Agent
from trilane.testing import ScriptedModel
from trilane_web import WebLimits, WebSettings

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]

UPGRADE = (
    "GET /ws HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)
TEXT, MORE, BINARY, PING, PONG, FIN = 0x1, 0x0, 0x2, 0x9, 0xA, 0x80


def frame(opcode: int, data: bytes = b"", *, length: int | None = None, masked: bool = True) -> bytes:
    """A frame with a mask of zeros; `length` is what its header says, whatever it carries."""
    size = len(data) if length is None else length
    if size < 126:
        head = bytes([opcode, size | 0x80 * masked])
    elif size < 65536:
        head = bytes([opcode, 126 | 0x80 * masked]) + size.to_bytes(2, "big")
    else:
        head = bytes([opcode, 127 | 0x80 * masked]) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" * masked + data


def closing_code(data: bytes) -> int | None:
    """The code of the first close frame in what the server sent."""
    while len(data) >= 2:
        size, start = data[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start], "big")
        if data[0] == FIN | 0x8:
            return int.from_bytes(data[start : start + 2], "big")
        data = data[start + size :]
    return None


async def ending(reader: asyncio.StreamReader, seen: bytes = b"") -> int | None:
    """Read to the close frame, or to the end; the code of the frame."""
    try:
        async with asyncio.timeout(20):
            while (code := closing_code(seen)) is None and (data := await reader.read(65536)):
                seen += data
    except ConnectionResetError:  # it was closed with frames unread
        return closing_code(seen)
    return code


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket without anything that keeps its rules."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        writer.write(UPGRADE.format(port=port).encode())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(FIN | TEXT, b'{"type":"hello","protocol":1}'))
        yield reader, writer
    finally:
        writer.transport.abort()


def _agent() -> Agent[None, str]:
    return Agent(ScriptedModel(*["hello there"] * 20))


def _empty(opcode: int, count: int) -> bytes:
    return frame(TEXT, b"x") + frame(opcode) * count


BROKEN = {
    "a frame without a mask": (frame(FIN | TEXT, b"{}", masked=False), 1002),
    "reserved bits": (frame(0xF0 | TEXT, b"{}"), 1002),
    "an unknown opcode": (frame(FIN | 0x3, b"{}"), 1002),
    "a continuation of nothing": (frame(FIN | MORE, b"{}"), 1002),
    "a message inside another": (frame(TEXT, b"{") + frame(FIN | TEXT, b"{}"), 1002),
    "a ping in two parts": (frame(PING, b"{}"), 1002),
    "a ping that is too long": (frame(FIN | PING, b"x" * 126), 1002),
    "a close frame of one byte": (frame(FIN | 0x8, b"x"), 1002),
    "text that is not UTF-8": (frame(FIN | TEXT, b"\xff\xfe"), 1007),
    "a header that says 4 EiB": (frame(FIN | TEXT, length=2**62), 1009),
    "fragments beyond the size of a message": (frame(TEXT, b"x" * 900) + frame(MORE, b"x" * 900) * 11, 1009),
    "fragments of nothing without end": (_empty(MORE, 1100), 1008),
    "pings without end": (_empty(FIN | PING, 1100), 1008),
    "pongs without end": (_empty(FIN | PONG, 1100), 1008),
    "a binary message": (frame(FIN | BINARY, b"\0\1"), 1003),
    "random bytes": (bytes(range(255, 0, -1)) * 40, 1002),
}


@pytest.mark.parametrize("name", list(BROKEN))
async def test_f101_broken_frames_end_the_connection_that_sent_them(serve: Serve, name: str) -> None:
    data, code = BROKEN[name]
    settings = WebSettings(limits=WebLimits(message_bytes=10_000))
    async with serve(_agent(), settings=settings) as server, server.wire() as other:
        run = (await other.ask("start", text="hi", acknowledgement="strict"))["run"]
        async with raw(server.port) as (reader, writer):
            writer.write(data)
            assert await ending(reader) == code
            assert (await other.read_run(run))[-1]["type"] == "run_completed"
            await server.until(lambda: len(server.web._connections) == 1)


async def test_f101_whoever_pings_and_reads_nothing_costs_no_memory(serve: Serve) -> None:
    """Pongs are not owed to a client that takes none; frames that are no message are counted."""
    async with serve(_agent()) as server, server.wire() as other, raw(server.port) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await server.until(lambda: len(server.web._connections) == 2)
        await other.ask("ping")
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            with pytest.raises(OSError, match=r".*"):
                for _ in range(5000):  # 6 MB of pings
                    writer.write(frame(FIN | PING, b"x" * 125) * 10)
                    await writer.drain()
                    await asyncio.sleep(0)
                raise AssertionError("the server took all of them")
            await server.until(lambda: len(server.web._connections) == 1)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 2_000_000
        assert (await other.ask("ping"))["type"] == "pong"


async def test_f101_ten_thousand_messages_at_once_from_each_of_five(serve: Serve) -> None:
    """They are read a few at a time, so that another client's run goes on among them."""
    flood = frame(FIN | TEXT, b'{"type":"pong"}') * 10_000
    async with serve(_agent()) as server, server.wire() as other:
        run = (await other.ask("start", text="hi", acknowledgement="strict"))["run"]
        floods = []
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**24)
            writer.write(UPGRADE.format(port=server.port).encode())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(frame(FIN | TEXT, b'{"type":"hello","protocol":1}') + flood)
            floods.append((reader, writer))
        assert (await other.read_run(run))[-1]["type"] == "run_completed"
        for reader, writer in floods:
            assert await ending(reader) in (1008, None)
            writer.transport.abort()
        await server.until(lambda: len(server.web._connections) == 1)


async def test_slow_loris_requests_are_given_up_and_nobody_else_notices(serve: Serve) -> None:
    """Headers, a handshake, a hello, a message and a body that dribble."""
    settings = WebSettings(limits=WebLimits(hello_seconds=0.4, body_seconds=0.4, heartbeat_seconds=0.4))
    handshake = UPGRADE.format(port=0).encode()
    body = (
        b"POST /api/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
    )
    starts = {
        "nothing": b"",
        "a request line": b"GET /",
        "headers": b"GET / HTTP/1.1\r\nhost: 127",
        "half a handshake": handshake[:-10],
        "no hello": handshake.replace(b":0", b""),
        "half a hello": handshake.replace(b":0", b"") + frame(FIN | TEXT, b'{"type"', length=30),
        "half a body": body,
    }
    async with serve(_agent(), settings=settings) as server, server.wire() as other:
        run = (await other.ask("start", text="hi", acknowledgement="strict"))["run"]
        peers = {}
        for name, start in starts.items():
            for number in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(start)
                peers[name, number] = reader, writer
        events = await other.read_run(run)
        assert events[-1]["type"] == "run_completed"
        for (name, _), (reader, writer) in peers.items():
            if name == "half a body":
                assert b" 408 " in await reader.readuntil(b"\r\n\r\n")
            else:
                if "hello" in name:
                    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
                assert await ending(reader) == (1008 if "hello" in name else None), name
            writer.transport.abort()
        status, _, _ = await server.http("POST", "/api/runs", {"text": "hi"})
        assert status == 201


async def test_slow_loris_a_second_request_on_a_kept_connection_may_not_dribble_either(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(hello_seconds=0.3))
    async with serve(_agent(), settings=settings) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET /api/me HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}")
        writer.write(b"GET /api")
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionResetError):
                await reader.read()
                raise ConnectionResetError
        writer.transport.abort()


async def test_sockets_beyond_all_limits_are_closed_at_once(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(connections=5))
    async with serve(_agent(), settings=settings) as server:
        sockets = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(120)]
        closed = 0
        for reader, _ in sockets[106:]:
            try:
                async with asyncio.timeout(20):
                    closed += await reader.read() == b""
            except ConnectionResetError:
                closed += 1
        assert closed == 14
        for _, writer in sockets:
            writer.transport.abort()
