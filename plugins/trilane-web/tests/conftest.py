"""Real servers on a free port of this machine, and small clients that can also misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from trilane import Agent
from trilane_web import WebApp, WebSettings, app
from trilane_web.client import Client, connect
from trilane_web.serving import listen, make_server

Headers = dict[str, str] | None
PATIENCE = 20.0  # for what should take milliseconds, on a machine that does other things too


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: drives the chat page in a real Chromium")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Wire:
    """A WebSocket that speaks the protocol by hand."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.seen: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            message: dict[str, Any] = json.loads(await self.socket.recv())
        self.seen.append(message)
        if message["type"] == "events":
            self.events.setdefault(message["run"], []).extend(message["events"])
        return message

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of that type with those fields."""
        while True:
            message = await self.next()
            if message["type"] == kind and all(message.get(name) == value for name, value in fields.items()):
                return message

    async def until_event(self, run: str, kind: str) -> dict[str, Any]:
        """Read on until the run has shown an event of that type, without acknowledging."""
        while True:
            for event in self.events.get(run, ()):
                if event["type"] == kind:
                    return event
            await self.next()

    async def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Send, and return the answer."""
        self._asked = getattr(self, "_asked", 0) + 1
        name = f"ask-{self._asked}"
        await self.send(kind, id=name, **fields)
        while True:
            message = await self.next()
            if message.get("re") == name:
                return message

    async def read_run(self, run: str) -> list[dict[str, Any]]:
        """Acknowledge and read to the terminal event; every event of the run that came on this wire."""
        await self.read_to(run, "run_completed", "run_failed", "run_cancelled")
        return self.events[run]

    async def read_to(self, run: str, *kinds: str) -> dict[str, Any]:
        """Acknowledge and read until an event of one of these types, which is not acknowledged."""
        done = 0
        while True:
            events = self.events.get(run, [])
            for event in events[done:]:
                if event["type"] in kinds:
                    return event
            if events[done:]:
                await self.send("ack", run=run, seq=events[-1]["seq"])
                done = len(events)
            await self.next()

    async def closed(self) -> int:
        """Read until the server closes; its code."""
        try:
            while True:
                await self.next()
        except ConnectionClosed as error:
            return error.rcvd.code if error.rcvd is not None else 1006


class Server:
    """A server that is being served."""

    def __init__(self, web: WebApp, port: int) -> None:
        self.web = web
        self.port = port

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    @asynccontextmanager
    async def wire(
        self, *, hello: bool = True, port: int = 0, headers: dict[str, str] | None = None, **fields: Any
    ) -> AsyncIterator[Wire]:
        """A connection, greeted unless `hello` is false."""
        async with open_socket(
            f"ws://127.0.0.1:{port or self.port}/ws",
            compression=None,
            ping_interval=None,
            additional_headers=headers or {},
            max_size=None,
            close_timeout=0.5,
        ) as socket:
            wire = Wire(socket)
            if hello:
                await wire.send("hello", protocol=1, **fields)
                await wire.until("welcome")
            yield wire

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)

    def client(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        return connect(self.url, retry_seconds=0.05, **options)

    async def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> tuple[int, dict[str, str], Any]:
        """One request: status, headers, body (parsed if it is JSON)."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
            lines = {"host": f"127.0.0.1:{self.port}", "connection": "close", "content-length": str(len(data))}
            if data:
                lines["content-type"] = "application/json"
            lines.update(headers or {})
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data)
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
                answer = await reader.read()
        finally:
            writer.close()
        top, _, content = answer.partition(b"\r\n\r\n")
        first, *rest = top.decode("latin-1").split("\r\n")
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if "chunked" in found.get("transfer-encoding", ""):
            content = b"".join(_chunks(content))
        value = json.loads(content) if found.get("content-type") == "application/json" and content else content.decode()
        return int(first.split()[1]), found, value

    @asynccontextmanager
    async def stream(
        self, path: str, headers: dict[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Server-sent events: `id`, `event` and `data` of each."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            lines = {"host": f"127.0.0.1:{self.port}", **(headers or {})}
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            status = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in status.split(b"\r\n")[0], status
            yield _records(reader)
        finally:
            writer.close()


async def _records(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    text = ""
    while True:
        async with asyncio.timeout(PATIENCE):
            size = int((await reader.readline()).strip() or b"0", 16)
            if size == 0:
                return
            text += (await reader.readexactly(size + 2))[:-2].decode()
        while "\n\n" in text:
            record, _, text = text.partition("\n\n")
            fields = dict(line.partition(": ")[::2] for line in record.split("\n") if not line.startswith(":"))
            if "data" in fields:
                yield {"id": fields.get("id"), "event": fields.get("event"), "data": json.loads(fields["data"])}


def _chunks(data: bytes) -> Iterator[bytes]:
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        yield data[:length]
        data = data[length + 2 :]


async def until(condition: Callable[[], object]) -> None:
    """Let everything else work until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (what is waited for offers no event)
            await asyncio.sleep(0)


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return until


Serve = Callable[..., AbstractAsyncContextManager[Server]]


@pytest.fixture
def sockets() -> str:
    """Whose WebSockets are served: "" for those of `trilane_web.sockets`, else a name that uvicorn knows."""
    return ""


@pytest.fixture
def serve(sockets: str) -> Serve:
    """`async with serve(agent, settings=..., token=...) as server`: served on a free port, drained at the end.

    `middleware` are added to the application; all else is given to `app`.
    """

    @asynccontextmanager
    async def serving(
        agent: Agent[Any, Any], *, middleware: Sequence[Any] = (), **options: Any
    ) -> AsyncIterator[Server]:
        web = app(agent, **options)
        for one in middleware:
            web.add_middleware(one)
        settings = options.get("settings") or WebSettings()
        listener = listen("127.0.0.1", 0, protected=True, send_seconds=settings.limits.send_seconds)
        port = listener.getsockname()[1]
        server = make_server(web)
        if sockets:
            server.config.ws = sockets  # type: ignore[assignment]
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Server(web, port)
        finally:
            server.should_exit = True
            await task
            await agent.aclose()

    return serving
