"""The loopback server: a thread of its own that answers requests from a script and writes down what happens.

For what it answers see `script.py`; for recorded traffic `cassettes.py`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from . import anthropic_messages, openai_chat
from .http import LAST_CHUNK, Head, chunk, in_pieces, parse_head, read_body, status_line
from .moments import Moment
from .requests import check_request
from .script import Cut, Hold, Reply

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["Exchange", "Format", "LogEntry", "Script", "WireError", "WireServer"]

_STREAM = {"content-type": "text/event-stream; charset=utf-8"}

Format: TypeAlias = Literal["openai-chat", "anthropic", ""]
"""A wire format, as `trilane.testing.history` names providers; empty for none."""

Script: TypeAlias = "str | Reply | Callable[[Exchange], str | Reply]"
"""What answers one request: a reply, its text, or a function that makes it from the request."""


class WireError(AssertionError):
    """Client and script do not agree: a request too many, replies that nobody asked for, or a hold without its name."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One thing that happened, in order. `at` is `time.perf_counter`.

    `kind` is `request`, `headers` (status line sent), `held`, `sent` (whole reply), `cut` (by the server), `closed` (by
    the client), or `note` (by the test).
    """

    at: float
    kind: Literal["request", "headers", "held", "sent", "cut", "closed", "note"]
    number: int = 0
    text: str = ""


class Exchange:
    """One request and what became of it.

    Attributes:
        number: From 1.
        method: HTTP method.
        path: Path with its query.
        headers: With lower-case names.
        body: As sent.
        connection: Number of the connection it came on, from 1.
    """

    def __init__(self, number: int, head: Head, body: bytes, connection: _Connection) -> None:
        self.number = number
        self.method, self.path = head.words[0], head.words[1]
        self.headers = head.headers
        self.body = body
        self.connection = connection.number
        self._connection = connection

    @property
    def json(self) -> dict[str, JsonValue]:
        """The body, which must be a JSON object.

        Raises:
            WireError: it is none.
        """
        value = json.loads(self.body)
        if not isinstance(value, dict):
            raise WireError(f"request {self.number}: its body is not a JSON object: {self.body[:200]!r}")
        return value

    @property
    def format(self) -> Format:
        """Which format the path belongs to; empty for none."""
        path = self.path.partition("?")[0].rstrip("/")
        if path.endswith("/chat/completions"):
            return "openai-chat"
        return "anthropic" if path.endswith("/messages") else ""

    def __repr__(self) -> str:
        return f"Exchange({self.number}, {self.method} {self.path})"


class _Connection:
    def __init__(self, number: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.writer = writer
        self.closed = Moment(f"the client closes connection {number}")


class WireServer:
    """Answers requests in the format their path belongs to, each with the next reply of the script.

    A request that the provider would refuse is refused here as well, and is a problem; see `requests.py`.

    Args:
        script: What answers the first request, the second, and so on.
        check: False to answer whatever is asked.

    Attributes:
        exchanges: Every request so far, in order of arrival.
        log: Everything that happened, in order.
        problems: Requests that the script has no reply for, or that are not valid.
    """

    def __init__(self, *script: Script, check: bool = True) -> None:
        self._check = check
        self.exchanges: list[Exchange] = []
        self.log: list[LogEntry] = []
        self.problems: list[str] = []
        self._script: list[Script] = list(script)
        self._lock = threading.RLock()
        self._moments: dict[tuple[str, str | int], Moment] = {}
        self._busy: set[int] = set()
        self._connections: list[_Connection] = []
        self._open = 0
        self._gates: dict[str, asyncio.Event] = {}
        self._released: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._port = 0

    # ---- start and stop ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Listen on a free port of 127.0.0.1; returns when it does."""
        ready = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                asyncio.run(self._serve(ready))
            except BaseException as error:  # handed to the thread that waits for the start
                failures.append(error)
            finally:
                ready.set()

        self._thread = threading.Thread(target=work, name="trilane wire server", daemon=True)
        self._thread.start()
        ready.wait()
        if failures:
            raise failures[0]
        return self

    def stop(self) -> None:
        """Drop every connection and end the thread. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._call(lambda: self._leave.set() if self._leave is not None else None)
            thread.join()

    @property
    def url(self) -> str:
        """Where it listens, without a path: the base URL for the Messages format."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """The base URL for Chat Completions."""
        return f"{self.url}/v1"

    # ---- script ------------------------------------------------------------------------------------------------------

    def add(self, *script: Script) -> None:
        """Append to the script."""
        with self._lock:
            self._script.extend(script)

    def release(self, name: str = "stall") -> None:
        """Let what is held under this name go on, now and whenever it comes there again."""

        def let_go() -> None:
            self._released.add(name)
            if name in self._gates:
                self._gates[name].set()

        self._call(let_go)

    def assert_finished(self) -> None:
        """Check that the script was played to its end, and that nobody asked for more.

        Raises:
            WireError: replies are left, or a request had none.
        """
        if self.problems:
            raise WireError("; ".join(self.problems))
        if self._script:
            raise WireError(f"{len(self._script)} scripted replies were not asked for; {len(self.exchanges)} were")

    # ---- what happened -----------------------------------------------------------------------------------------------

    def note(self, text: str) -> float:
        """Write something of the test's own into the log, and say when it was."""
        return self._write("note", text=text)

    async def received(self, number: int = 1, timeout: float = 5.0) -> Exchange:
        """Wait for request `number`."""
        await self._moment("received", number).wait(timeout)
        return self.exchanges[number - 1]

    async def reached(self, name: str = "stall", timeout: float = 5.0) -> float:
        """Wait until the server holds under this name; say when."""
        return await self._moment("reached", name).wait(timeout)

    async def closed(self, number: int = 1, timeout: float = 5.0) -> float:
        """Wait until the connection of request `number` is closed; say when. The request must have arrived."""
        return await self._connection(number).closed.wait(timeout)

    def closed_sync(self, number: int = 1, timeout: float = 5.0) -> float:
        """As `closed`, in a thread without an event loop."""
        return self._connection(number).closed.wait_sync(timeout)

    def is_closed(self, number: int = 1) -> bool:
        """Whether the connection of request `number` is closed."""
        return self._connection(number).closed.at is not None

    @property
    def busy(self) -> tuple[int, ...]:
        """Numbers of the requests whose reply is neither sent nor given up."""
        with self._lock:
            return tuple(sorted(self._busy))

    @property
    def open_connections(self) -> int:
        """How many connections clients hold open, used or not."""
        return self._open

    def kinds(self) -> list[str]:
        """The log without times and numbers: `note` entries as their text."""
        return [entry.text if entry.kind == "note" else entry.kind for entry in self.log]

    def _connection(self, number: int) -> _Connection:
        if not 0 < number <= len(self.exchanges):
            raise WireError(f"there is no request {number}; {len(self.exchanges)} have arrived, await received() first")
        return self.exchanges[number - 1]._connection

    def _write(self, kind: str, number: int = 0, text: str = "") -> float:
        with self._lock:
            entry = LogEntry(time.perf_counter(), kind, number, text)  # type: ignore[arg-type]
            self.log.append(entry)
            return entry.at

    def _moment(self, kind: str, key: str | int) -> Moment:
        with self._lock:
            return self._moments.setdefault((kind, key), Moment(f"{kind} {key!r}"))

    def _call(self, function: Callable[[], object]) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(function)
            except RuntimeError:
                pass  # the loop has ended

    # ---- the thread --------------------------------------------------------------------------------------------------

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()
        writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            task = asyncio.ensure_future(self._connected(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        ready.set()
        try:
            await self._leave.wait()
        finally:
            server.close()
            # Twice, because a connection may just be on its way in; and a task that is cancelled before it has begun
            # closes nothing.
            for _ in range(2):
                for task in list(tasks):
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for writer in list(writers):
                    writer.transport.abort()
                await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: always reading, so that the client's leaving is seen at once, whatever is being sent."""
        connection = _Connection(len(self._connections) + 1, writer)
        self._connections.append(connection)
        self._open += 1
        answering: asyncio.Task[None] | None = None
        last = 0
        try:
            while True:
                head = parse_head(await reader.readuntil(b"\r\n\r\n"))
                body = await read_body(reader, head)
                if answering is not None:
                    await answering
                exchange = self._arrived(head, body, connection)
                last = exchange.number
                answering = asyncio.ensure_future(self._answer(exchange, writer))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass  # the client is gone, or sends what is no request
        finally:
            with self._lock:
                self._open -= 1
                self._busy.discard(last)
            if connection.closed.at is None:
                self._write("closed", last)
                connection.closed.happen()
            if answering is not None:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
            writer.transport.abort()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    def _arrived(self, head: Head, body: bytes, connection: _Connection) -> Exchange:
        with self._lock:
            exchange = Exchange(len(self.exchanges) + 1, head, body, connection)
            self.exchanges.append(exchange)
            self._busy.add(exchange.number)
            self._write("request", exchange.number)
        self._moment("received", exchange.number).happen()
        return exchange

    async def _answer(self, exchange: Exchange, writer: asyncio.StreamWriter) -> None:
        try:
            await self._respond(exchange, writer)
        except ConnectionError:
            pass  # the reading side says that it is closed
        finally:
            with self._lock:
                self._busy.discard(exchange.number)

    async def _respond(self, exchange: Exchange, writer: asyncio.StreamWriter) -> None:
        """Send what this server answers: here the next reply of the script."""
        reply = self._next(exchange)
        if reply.hold_headers:
            await self._hold(reply.hold_headers, exchange)
        if reply.status != 200 or reply.body is not None:
            await self._send_error(exchange, reply, writer)
            return
        await self._begin(exchange, writer, 200, {**_ids(exchange), **_STREAM, **reply.headers})
        for piece in in_pieces(self._frames(exchange, reply), reply.split):
            if isinstance(piece, Hold):
                await self._hold(piece.name, exchange)
            elif isinstance(piece, Cut):
                self._cut(exchange, writer, piece)
                return
            else:
                await self._send(writer, piece)
        await self._end(exchange, writer)

    def _next(self, exchange: Exchange) -> Reply:
        with self._lock:
            if not exchange.format:
                self.problems.append(f"request {exchange.number} went to {exchange.path}, which is in no known format")
                return Reply.error(404, self.problems[-1])
            wrong = check_request(exchange.json, exchange.format) if self._check else []
            if wrong:
                self.problems.append(f"request {exchange.number} is not valid: {'; '.join(wrong)}")
                return Reply.error(400, self.problems[-1])
            if not self._script:
                self.problems.append(f"no reply is scripted for request {exchange.number}")
                return Reply.error(400, self.problems[-1])
            step = self._script.pop(0)
        try:
            made = step if isinstance(step, str | Reply) else step(exchange)
        except Exception as error:  # a function of the test, whose failure must reach the test
            self.problems.append(f"the script's function for request {exchange.number} raised {error!r}")
            return Reply.error(400, self.problems[-1])
        return Reply.of(made) if isinstance(made, str) else made

    async def _send_error(self, exchange: Exchange, reply: Reply, writer: asyncio.StreamWriter) -> None:
        body = reply.body
        if body is None:
            make = anthropic_messages.error_body if exchange.format == "anthropic" else openai_chat.error_body
            body = make(reply, exchange.number)
        headers = {**_ids(exchange), "content-type": "application/json", **reply.headers}
        await self._begin(exchange, writer, reply.status, headers)
        await self._send(writer, body.encode())
        await self._end(exchange, writer)

    async def _begin(
        self, exchange: Exchange, writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]
    ) -> None:
        writer.write(status_line(status, {**headers, "transfer-encoding": "chunked"}))
        await writer.drain()
        self._write("headers", exchange.number)

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        writer.write(chunk(piece))
        await writer.drain()

    async def _end(self, exchange: Exchange, writer: asyncio.StreamWriter) -> None:
        # Before the last bytes leave: a client that has seen the end finds it in the log.
        self._write("sent", exchange.number)
        with self._lock:
            self._busy.discard(exchange.number)
        writer.write(LAST_CHUNK)
        await writer.drain()

    def _frames(self, exchange: Exchange, reply: Reply) -> Iterator[bytes | Hold | Cut]:
        make = anthropic_messages.frames if exchange.format == "anthropic" else openai_chat.frames
        return make(reply, exchange.number, exchange.json)

    async def _hold(self, name: str, exchange: Exchange) -> None:
        gate = self._gates.setdefault(name, asyncio.Event())
        if name in self._released:
            gate.set()
        self._write("held", exchange.number, name)
        self._moment("reached", name).happen()
        await gate.wait()

    def _cut(self, exchange: Exchange, writer: asyncio.StreamWriter, piece: Cut) -> None:
        self._write("cut", exchange.number)
        exchange._connection.closed.happen()
        if piece.reset:
            writer.transport.abort()
        else:
            writer.close()


def _ids(exchange: Exchange) -> Mapping[str, str]:
    name = "request-id" if exchange.format == "anthropic" else "x-request-id"
    return {name: f"req_{exchange.number}"}
