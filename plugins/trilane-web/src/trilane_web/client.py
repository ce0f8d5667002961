"""A typed client for Python programs: `async with connect(url) as client: run = await client.start("...")`.

It reconnects by itself and goes on after the last event it has, so that a `ClientRun` gives every event once, as a
`RunStream` does in the process: taking the next event acknowledges the one before. Not for other event loops than
asyncio.
"""

from __future__ import annotations

import asyncio
import json
import logging
import weakref
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue, ValidationError

from trilane import Event, Receipt, TrilaneError, event_from_json, new_id

from . import protocol as p

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["Client", "ClientRun", "ConnectionLost", "RequestRefused", "RunGap", "connect"]

_logger = logging.getLogger("trilane.web")

A = TypeVar("A", p.RunAttached, p.ReceiptGiven, p.Confirmed, p.ServerPong)

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

    Once nobody has it any more, the server is told that it is not watched: what it does then, its `on_disconnect` says.

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
        self._events: deque[Event | RunGap | int] = deque()  # a number is that of an event of a later release
        self._news = asyncio.Event()
        self._held = 0  # sequence number of the event the caller has
        self._over = False
        self._watched = True
        self._error: Exception | None = None
        self._drop = weakref.finalize(self, client._dropped, run_id)
        self._drop.atexit = False

    def __aiter__(self) -> ClientRun:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._held:
                await self._client._acknowledge(self, self._held)
                self._held = 0
            event = await self._next()
            if not isinstance(event, int):
                break
            self._held = event  # nothing to show, but the run may wait for it
        if isinstance(event, RunGap):
            raise event
        self._held = event.seq
        if event.type in TERMINAL:
            self._over = True
            self._drop.detach()
            self._client._forget(self)
        return event

    async def _next(self) -> Event | RunGap | int:
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
        return self._events.popleft()

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
            try:
                self._events.append(event_from_json(json.dumps(value)))
            except ValidationError as error:
                if error.errors()[0]["type"] != "union_tag_invalid":
                    raise
                self._client._pass_over(value["type"])
                self._events.append(int(value["seq"]))
            self.last = value["seq"]
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
    """A connection to a server, renewed when it is lost. Made by `connect`.

    Attributes:
        welcome: What the server said of itself when it was reached last: its agent, the principal this client is.
    """

    def __init__(self, url: str, *, token: str, client: str, lanes: bool, retry_seconds: float) -> None:
        self._url = url
        self._token = token
        self._name = client or new_id()
        self._lanes = lanes
        self._retry_seconds = retry_seconds
        self._socket: ClientConnection | None = None
        self._ready = asyncio.Event()
        self._asked: dict[str, tuple[p.UpMessage, asyncio.Future[p.DownMessage]]] = {}
        # Those that somebody has; and those of which events came before whoever asked for them was told of them.
        self._runs: weakref.WeakValueDictionary[str, ClientRun] = weakref.WeakValueDictionary()
        self._early: dict[str, ClientRun] = {}
        self._attaching = 0
        self._passed_over: set[str] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._out_of_reach = False
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
        start = p.Start(
            id=new_id(),
            text=text,
            session=session,
            acknowledgement=acknowledgement,
            on_disconnect=on_disconnect,
            key=new_id(),
        )
        return self._existing(await self._attach(start, 0))

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
        resume = p.Resume(
            id=new_id(), session=session, acknowledgement=acknowledgement, on_disconnect=on_disconnect, key=new_id()
        )
        return self._existing(await self._attach(resume, 0))

    async def watch(self, session: str, run: str = "", *, after: int = 0) -> ClientRun | None:
        """Read a run that goes on, or ended a short while ago; None if the session has no active one.

        Raises:
            RequestRefused: there is no such session or run.
        """
        return await self._attach(p.Watch(id=new_id(), session=session, run=run, after=after), after)

    async def reply(self, session: str, question: str, payload: JsonValue) -> Receipt:
        """Answer a question.

        Raises:
            RequestRefused: there is no such session.
        """
        reply = p.ReplyGiven(id=new_id(), session=session, question=question, payload=payload)
        answer = await self._ask(reply, p.ReceiptGiven)
        return Receipt(status=answer.status, reasons=tuple(answer.reasons))

    async def steer(self, session: str, text: str) -> None:
        """Say something to the session's run, heard at its next boundary.

        Raises:
            RequestRefused: there is no active run.
            ConnectionLost: it is not known whether it was said.
        """
        await self._ask(p.Steer(id=new_id(), session=session, text=text), p.Confirmed)

    async def follow_up(self, session: str, text: str) -> None:
        """Say something to be heard after the answer.

        Raises:
            RequestRefused: there is no active run.
            ConnectionLost: it is not known whether it was said.
        """
        await self._ask(p.FollowUp(id=new_id(), session=session, text=text), p.Confirmed)

    async def stop(self, session: str, *, boundary: bool = False, reason: str = "stopped by the client") -> None:
        """Stop the session's run, at once or at its next boundary.

        Raises:
            RequestRefused: there is no active run.
        """
        when = "boundary" if boundary else "now"
        stop = p.Stop.model_validate({"id": new_id(), "session": session, "when": when, "reason": reason})
        await self._ask(stop, p.Confirmed)

    async def ping(self) -> None:
        """Return when the server has answered."""
        await self._ask(p.Ping(id=new_id()), p.ServerPong)

    async def _attach(self, message: p.Start | p.Resume | p.Watch, after: int) -> ClientRun | None:
        self._attaching += 1
        try:
            answer = await self._ask(message, p.RunAttached)
            if not answer.run:
                return None
            run = self._runs.get(answer.run) or self._made(answer.session, answer.run, after)
            run.driver = answer.driver
            return run
        finally:
            self._attaching -= 1
            if not self._attaching:
                self._early.clear()

    def _existing(self, run: ClientRun | None) -> ClientRun:
        if run is None:
            raise _not_understood(self._url, "it started no run")
        return run

    def _made(self, session: str, run_id: str, after: int) -> ClientRun:
        run = self._runs[run_id] = ClientRun(self, session, run_id, after=after)
        return run

    async def _ask(self, message: p.UpMessage, kind: type[A]) -> A:
        if self._refusal is not None:
            raise self._refusal
        future: asyncio.Future[p.DownMessage] = asyncio.get_running_loop().create_future()
        self._asked[message.id] = (message, future)
        try:
            await self._ready.wait()
            await self._send(message)
            answer = await future
            if not isinstance(answer, kind):
                raise _not_understood(self._url, f"a {type(message).__name__} is answered by a {type(answer).__name__}")
            return answer
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
        # Its answer has the id of the run, for nobody waits for it.
        await self._send(p.Watch(id=run.run_id, session=run.session, run=run.run_id, after=run.last))

    # ---- runs that nobody reads --------------------------------------------------------------------------------------

    def _forget(self, run: ClientRun) -> None:
        """Its last event was handed out."""
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]

    def _dropped(self, run_id: str) -> None:
        """Nobody has a run any more. Called where the last reference went away, in whatever thread that was."""
        with suppress(RuntimeError):  # the loop has ended, and the connection with it
            self._loop.call_soon_threadsafe(self._leave, run_id)

    def _leave(self, run_id: str) -> None:
        asked = (message for message, _ in self._asked.values() if isinstance(message, p.Watch))
        if run_id in self._runs or self._socket is None or any(message.run in ("", run_id) for message in asked):
            return  # somebody has it again, or soon will
        task = self._loop.create_task(self._send(p.Unwatch(run=run_id)))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _pass_over(self, kind: str) -> None:
        """An event of a later release. Said once for each type."""
        if kind not in self._passed_over:
            self._passed_over.add(kind)
            _logger.warning("events of type %r are not known here and passed over; install a later trilane", kind)

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
                self._say_once(error)
            except (OSError, WebSocketException, TimeoutError) as error:
                self._say_once(error)
            except Exception as error:  # also one of ours: whoever waits must not wait for ever
                return self._give_up(_not_understood(self._url, error))
            self._lost()
            pause = min(self._retry_seconds, pause * 2)
            await asyncio.sleep(pause)

    async def _greet(self, socket: ClientConnection) -> None:
        hello = p.Hello(id="hello", protocol=p.PROTOCOL, client=self._name, token=self._token, lanes=self._lanes)
        await socket.send(hello.model_dump_json())
        async with asyncio.timeout(10):
            value = json.loads(await socket.recv())
        if value["type"] == "error":
            raise RequestRefused(str(value["message"]), code=str(value["code"]))
        self.welcome = p.Welcome.model_validate(value)
        self._socket = socket
        self._out_of_reach = False
        # What waits for an answer first: a `watch` among it may be of a run that goes on further along.
        for message, _ in list(self._asked.values()):
            await self._send(message)
        for run in list(self._runs.values()):
            if run._watched:
                await self._watch_again(run)
        self._ready.set()

    async def _read(self, socket: ClientConnection) -> None:
        async for frame in socket:
            await self._take(json.loads(frame))

    async def _take(self, value: dict[str, Any]) -> None:  # apart from `_read`, which would keep a run it waits behind
        kind = value["type"]
        if kind == "events":
            self._frames += 1
            run = self._runs.get(value["run"])
            if run is None and self._attaching:  # its caller was answered a moment ago, and could not take note yet
                first = value["events"][0]
                run = self._early[value["run"]] = self._made(first["session_id"], value["run"], first["seq"] - 1)
            if run is not None and not run._take(value["events"]) and run._watched:
                run._watched = False
                await self._send(p.Unwatch(run=run.run_id))
        elif kind == "gap":
            run = self._runs.get(value["run"])
            if run is not None:
                run._gap(value["first"], value["reason"])
        elif kind == "ping":
            await self._send(p.Pong())
        elif kind == "run" and value["re"] in ("", value["run"]):  # unasked, or by `_watch_again`
            run = self._runs.get(value["run"])
            if run is not None:
                run.driver = value["driver"]
        elif "re" in value:
            self._answered(value)

    def _answered(self, value: dict[str, Any]) -> None:
        _, future = self._asked.get(value["re"], (None, None))
        if value["type"] == "error" and future is None and value["code"] == "not_found":
            run = self._runs.get(value["re"])
            if run is not None:
                text = (
                    f"the server knows the run {run.run_id} no more: it ended a while ago, or the server was started "
                    f"anew; resume({run.session!r}) goes on, or says that nothing is left to do"
                )
                run._fail(RequestRefused(text, code="not_found"))
        if future is None or future.done():
            if value["type"] == "run" and value["run"]:  # whoever asked for it was cancelled
                self._leave(value["run"])
            return
        if value["type"] == "error":
            future.set_exception(RequestRefused(value["message"], code=value["code"]))
            return
        answer = _ANSWERS.get(value["type"])
        if answer is not None:
            future.set_result(answer.model_validate(value))

    def _say_once(self, error: Exception) -> None:
        if not self._out_of_reach:
            _logger.warning("no connection to %s: %s; it is tried again", self._url, str(error) or type(error).__name__)
        self._out_of_reach = True

    def _lost(self) -> None:
        self._socket = None
        self._ready.clear()
        for message, future in list(self._asked.values()):
            if isinstance(message, p.Steer | p.FollowUp) and not future.done():
                future.set_exception(ConnectionLost("the connection was lost; it is not known whether this was heard"))

    def _give_up(self, error: Exception) -> None:
        self._refusal = error
        self._socket = None
        self._ready.set()
        for _, future in list(self._asked.values()):
            if not future.done():
                future.set_exception(error)
        for run in list(self._runs.values()):
            run._fail(error)

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, *self._leaving, return_exceptions=True)
        self._give_up(ConnectionLost("the client was closed"))


def _not_understood(url: str, reason: object) -> RequestRefused:
    why = f"{type(reason).__name__}: {reason}" if isinstance(reason, Exception) else str(reason)
    text = f"what {url} says cannot be understood: it is no Trilane server, or one of another version ({why[:200]})"
    error = RequestRefused(text, code="wrong_protocol")
    error.__cause__ = reason if isinstance(reason, Exception) else None
    return error


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
