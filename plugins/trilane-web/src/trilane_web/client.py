"""A typed client for Python programs: `async with connect(url) as client: run = await client.start("...")`.

It reconnects by itself and goes on after the last event it has, so that a `ClientRun` gives every event once, as a
`RunStream` does in the process: taking the next event acknowledges the one before. Not for other event loops than
asyncio.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue

from trilane import Event, Receipt, TrilaneError, event_from_json, new_id

from . import protocol as p

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["Client", "ClientRun", "ConnectionLost", "RequestRefused", "RunGap", "connect"]

_ANSWERS: dict[str, type[p.DownMessage]] = {
    "run": p.RunAttached,
    "receipt": p.ReceiptGiven,
    "done": p.Confirmed,
    "pong": p.ServerPong,
}
HELD_EVENTS = 4000  # of one run that nobody reads, before the client asks for no more of them
TERMINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})


class RequestRefused(TrilaneError):
    """The server did not do what was asked.

    Attributes:
        code: The protocol's code of the reason.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class ConnectionLost(TrilaneError):
    """The connection was lost and what was asked cannot be asked again safely, or the client was closed."""


class RunGap(TrilaneError):
    """Events are missing that the server does not have any more; iterate on to go on after them.

    Attributes:
        first: Sequence number of the next event.
    """

    def __init__(self, message: str, *, first: int) -> None:
        super().__init__(message)
        self.first = first


class ClientRun:
    """A run on the server, read with `async for`.

    Attributes:
        session: Its session.
        run_id: The run.
        driver: True if this client's reading holds the run back and releases it.
        last: Sequence number of the last event that was received.
    """

    def __init__(self, client: Client, session: str, run_id: str, *, after: int) -> None:
        self.session = session
        self.run_id = run_id
        self.driver = False
        self.last = after
        self._client = client
        self._events: deque[Event | RunGap] = deque()
        self._news = asyncio.Event()
        self._held = 0  # sequence number of the event the caller has
        self._over = False
        self._watched = True
        self._error: Exception | None = None

    def __aiter__(self) -> ClientRun:
        return self

    async def __anext__(self) -> Event:
        if self._held:
            await self._client._acknowledge(self, self._held)
            self._held = 0
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            if not self._watched:
                self._watched = True
                await self._client._watch_again(self)
            self._news.clear()
            await self._news.wait()
        event = self._events.popleft()
        if isinstance(event, RunGap):
            raise event
        self._held = event.seq
        if event.type in TERMINAL:
            self._over = True
        return event

    async def wait(self) -> Event:
        """Read to the end, and return the terminal event.

        Raises:
            ConnectionLost: the events ended without it.
        """
        last: Event | None = None
        async for event in self:
            last = event
        if last is None or last.type not in TERMINAL:
            raise ConnectionLost("the events of the run ended without its last one")
        return last

    def _take(self, events: list[dict[str, Any]]) -> bool:
        """Events have come; False if enough of them wait already."""
        for value in events:
            if value["seq"] <= self.last:
                continue  # sent again around a reconnect
            self.last = value["seq"]
            self._events.append(event_from_json(json.dumps(value)))
        self._news.set()
        return len(self._events) < HELD_EVENTS

    def _gap(self, first: int, reason: str) -> None:
        self.last = first - 1
        self._events.append(
            RunGap(f"run {self.run_id}: events before {first} cannot be had any more ({reason})", first=first)
        )
        self._news.set()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._news.set()


class Client:
    """A connection to a server, renewed when it is lost. Made by `connect`."""

    def __init__(self, url: str, *, token: str, client: str, lanes: bool, retry_seconds: float) -> None:
        self._url = url
        self._token = token
        self._name = client or new_id()
        self._lanes = lanes
        self._retry_seconds = retry_seconds
        self._socket: ClientConnection | None = None
        self._ready = asyncio.Event()
        self._asked: dict[str, tuple[p.UpMessage, asyncio.Future[p.DownMessage]]] = {}
        self._runs: dict[str, ClientRun] = {}
        self._task: asyncio.Task[None] | None = None
        self._refusal: Exception | None = None
        self._frames = 0
        self.welcome: p.Welcome | None = None

    # ---- asking ------------------------------------------------------------------------------------------------------

    async def start(
        self,
        text: str,
        *,
        session: str | None = None,
        acknowledgement: p.AckPolicy | None = None,
        on_disconnect: p.DisconnectPolicy | None = None,
    ) -> ClientRun:
        """Start a run and read it.

        Raises:
            RequestRefused: it was not started.
        """
        return await self._attached(
            p.Start(
                id=new_id(),
                text=text,
                session=session,
                acknowledgement=acknowledgement,
                on_disconnect=on_disconnect,
                key=new_id(),
            )
        )

    async def resume(
        self,
        session: str,
        *,
        acknowledgement: p.AckPolicy | None = None,
        on_disconnect: p.DisconnectPolicy | None = None,
    ) -> ClientRun:
        """Take up a session whose run did not complete.

        Raises:
            RequestRefused: there is nothing to take up.
        """
        return await self._attached(
            p.Resume(
                id=new_id(), session=session, acknowledgement=acknowledgement, on_disconnect=on_disconnect, key=new_id()
            )
        )

    async def watch(self, session: str, run: str = "", *, after: int = 0) -> ClientRun | None:
        """Read a run that goes on, or ended a short while ago; None if the session has no active one.

        Raises:
            RequestRefused: there is no such session or run.
        """
        answer = await self._ask(p.Watch(id=new_id(), session=session, run=run, after=after))
        return self._adopt(answer, after) if isinstance(answer, p.RunAttached) and answer.run else None

    async def reply(self, session: str, question: str, payload: JsonValue) -> Receipt:
        """Answer a question.

        Raises:
            RequestRefused: there is no such session.
        """
        answer = await self._ask(p.ReplyGiven(id=new_id(), session=session, question=question, payload=payload))
        assert isinstance(answer, p.ReceiptGiven)
        return Receipt(status=answer.status, reasons=tuple(answer.reasons))

    async def steer(self, session: str, text: str) -> None:
        """Say something to the session's run, heard at its next boundary.

        Raises:
            RequestRefused: there is no active run.
            ConnectionLost: it is not known whether it was said.
        """
        await self._ask(p.Steer(id=new_id(), session=session, text=text))

    async def follow_up(self, session: str, text: str) -> None:
        """Say something to be heard after the answer.

        Raises:
            RequestRefused: there is no active run.
            ConnectionLost: it is not known whether it was said.
        """
        await self._ask(p.FollowUp(id=new_id(), session=session, text=text))

    async def stop(self, session: str, *, boundary: bool = False, reason: str = "stopped by the client") -> None:
        """Stop the session's run, at once or at its next boundary.

        Raises:
            RequestRefused: there is no active run.
        """
        when = "boundary" if boundary else "now"
        await self._ask(p.Stop.model_validate({"id": new_id(), "session": session, "when": when, "reason": reason}))

    async def ping(self) -> None:
        """Return when the server has answered."""
        await self._ask(p.Ping(id=new_id()))

    async def _attached(self, message: p.Start | p.Resume) -> ClientRun:
        answer = await self._ask(message)
        assert isinstance(answer, p.RunAttached)
        return self._adopt(answer, 0)

    def _adopt(self, answer: p.RunAttached, after: int) -> ClientRun:
        run = self._runs.get(answer.run)
        if run is None:
            run = self._runs[answer.run] = ClientRun(self, answer.session, answer.run, after=after)
        run.driver = answer.driver
        return run

    async def _ask(self, message: p.UpMessage) -> p.DownMessage:
        if self._refusal is not None:
            raise self._refusal
        future: asyncio.Future[p.DownMessage] = asyncio.get_running_loop().create_future()
        self._asked[message.id] = (message, future)
        try:
            await self._ready.wait()
            await self._send(message)
            return await future
        finally:
            self._asked.pop(message.id, None)

    async def _send(self, message: p.UpMessage) -> None:
        from websockets.exceptions import ConnectionClosed

        if self._socket is None:
            return  # it is sent when there is a connection again
        try:
            await self._socket.send(message.model_dump_json())
        except ConnectionClosed:
            pass  # what reads finds that too, and connects again

    async def _acknowledge(self, run: ClientRun, seq: int) -> None:
        await self._send(p.Acknowledge(run=run.run_id, seq=seq))

    async def _watch_again(self, run: ClientRun) -> None:
        await self._send(p.Watch(session=run.session, run=run.run_id, after=run.last))

    # ---- the connection ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        from websockets.asyncio.client import connect as open_socket
        from websockets.exceptions import InvalidStatus, WebSocketException
        from websockets.typing import Subprotocol

        pause = 0.05
        while True:
            try:
                async with open_socket(
                    self._url,
                    subprotocols=[Subprotocol(p.SUBPROTOCOL)],
                    max_size=None,
                    compression=None,
                    ping_interval=None,
                ) as socket:
                    await self._greet(socket)
                    pause = 0.05
                    await self._read(socket)
            except RequestRefused as error:
                return self._give_up(error)
            except InvalidStatus as error:
                status = error.response.status_code
                if status in (401, 403):
                    text = f"the server refused: HTTP {status}; its token, or the address {self._url}, is another one"
                    return self._give_up(RequestRefused(text, code="not_authenticated"))
                if 300 <= status < 500 and self.welcome is None:
                    text = f"there is no Trilane server at {self._url}: HTTP {status}; give the address it prints"
                    return self._give_up(RequestRefused(text, code="not_found"))
            except (OSError, WebSocketException, TimeoutError):
                pass  # below it is tried again
            self._lost()
            pause = min(self._retry_seconds, pause * 2)
            await asyncio.sleep(pause)

    async def _greet(self, socket: ClientConnection) -> None:
        hello = p.Hello(id="hello", protocol=p.PROTOCOL, client=self._name, token=self._token, lanes=self._lanes)
        await socket.send(hello.model_dump_json())
        async with asyncio.timeout(10):
            value = json.loads(await socket.recv())
        if value["type"] != "welcome":
            raise RequestRefused(str(value.get("message", "no welcome came")), code=str(value.get("code", "failed")))
        self.welcome = p.Welcome.model_validate(value)
        self._socket = socket
        # What waits for an answer first: a `watch` among it may be of a run that goes on further along.
        for message, _ in list(self._asked.values()):
            await self._send(message)
        for run in self._runs.values():
            if run._watched and not run._over:
                await self._watch_again(run)
        self._ready.set()

    async def _read(self, socket: ClientConnection) -> None:
        async for frame in socket:
            value = json.loads(frame)
            kind = value["type"]
            if kind == "events":
                self._frames += 1
                run = self._runs.get(value["run"])
                if run is None:
                    run = self._early(value)
                if not run._take(value["events"]) and run._watched:
                    run._watched = False
                    await self._send(p.Unwatch(run=run.run_id))
            elif kind == "gap":
                if value["run"] in self._runs:
                    self._runs[value["run"]]._gap(value["first"], value["reason"])
            elif kind == "ping":
                await self._send(p.Pong())
            elif kind == "run" and not value["re"]:
                if value["run"] in self._runs:
                    self._runs[value["run"]].driver = value["driver"]
            else:
                self._answered(value)

    def _early(self, value: dict[str, Any]) -> ClientRun:
        """Events of a run whose `start` was answered a moment ago, before its caller could take note."""
        first = value["events"][0]
        run = self._runs[value["run"]] = ClientRun(self, first["session_id"], value["run"], after=first["seq"] - 1)
        return run

    def _answered(self, value: dict[str, Any]) -> None:
        _, future = self._asked.get(value["re"], (None, None))
        if value["type"] == "error" and future is None:
            for run in self._runs.values():
                if value["code"] == "not_found" and not run._over:
                    run._fail(RequestRefused(value["message"], code="not_found"))
        if future is None or future.done():
            return
        if value["type"] == "error":
            future.set_exception(RequestRefused(value["message"], code=value["code"]))
            return
        answer = _ANSWERS.get(value["type"])
        if answer is not None:
            future.set_result(answer.model_validate(value))

    def _lost(self) -> None:
        self._socket = None
        self._ready.clear()
        for message, future in list(self._asked.values()):
            if isinstance(message, p.Steer | p.FollowUp) and not future.done():
                future.set_exception(ConnectionLost("the connection was lost; it is not known whether this was heard"))

    def _give_up(self, error: Exception) -> None:
        self._refusal = error
        self._ready.set()
        for _, future in list(self._asked.values()):
            if not future.done():
                future.set_exception(error)
        for run in self._runs.values():
            run._fail(error)

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._give_up(ConnectionLost("the client was closed"))


@asynccontextmanager
async def connect(
    url: str, *, token: str = "", client: str = "", lanes: bool = False, retry_seconds: float = 2.0
) -> AsyncIterator[Client]:
    """A client of the server at `url`, for example `http://127.0.0.1:8765/` or `ws://127.0.0.1:8765/ws`.

    Args:
        url: Address of the server's page, as `trilane serve` prints it, or of its WebSocket.
        token: What the server wants to be shown.
        client: A name that stays the same over restarts of this program, to drive its runs again; fresh without it.
        lanes: Ask for notifications.
        retry_seconds: Longest pause between two attempts to connect again.

    Raises:
        RequestRefused: the server does not take this client, or there is no Trilane server at the address.
        ValueError: `url` is no such address.
    """
    made = Client(_websocket_of(url), token=token, client=client, lanes=lanes, retry_seconds=retry_seconds)
    made._task = asyncio.create_task(made._work())
    try:
        await made._ready.wait()
        if made._refusal is not None:
            raise made._refusal
        yield made
    finally:
        await made._close()


def _websocket_of(url: str) -> str:
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.netloc:
        raise ValueError(f"{url!r} is no address of a server; give one such as http://127.0.0.1:8765/")
    path = parts.path
    if scheme != parts.scheme or path in ("", "/"):  # the page's: the WebSocket is beside it
        path = path.rstrip("/").removesuffix("/ws") + "/ws"
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))
