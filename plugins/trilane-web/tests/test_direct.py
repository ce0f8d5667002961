"""What is sent and taken where it happens, without a task and a queue between: the same, in the same order."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from trilane import Agent, Delta, ModelResponse, TextPart
from trilane.testing import FunctionModel, ScriptedModel
from trilane_web.host import Host
from trilane_web.sockets import AT_ONCE, BoundedWebSocket
from trilane_web.subscription import Subscription

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
DELTAS = 100


async def _speak(request: Any, emit: Any) -> ModelResponse:
    for _ in range(DELTAS):
        await emit(Delta(text="x"))
    return ModelResponse(parts=(TextPart(text="x" * DELTAS),), stop_reason="end")


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.paused = self.closed = False
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def _accepted() -> tuple[BoundedWebSocket, Transport]:
    """A socket whose handshake is over, and whose application waits for nothing and says nothing."""
    done = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        done.set()
        await asyncio.Event().wait()

    config = uvicorn.Config(application, ws_ping_interval=None, log_level="error")
    config.load()
    socket = BoundedWebSocket(config, uvicorn.server.ServerState(), {})
    transport = Transport()
    socket.connection_made(transport)
    socket.data_received(HANDSHAKE)
    await done.wait()
    return socket, transport


def _frames(*texts: str) -> bytes:
    return b"".join(Frame(Opcode.TEXT, text.encode()).serialize(mask=True) for text in texts)


async def _end(socket: BoundedWebSocket) -> None:
    socket.connection_lost(ConnectionResetError())
    for task in tuple(socket.tasks):
        task.cancel()
    await asyncio.gather(*socket.tasks, return_exceptions=True)


async def test_what_is_not_taken_at_once_waits_and_nothing_overtakes_it() -> None:
    socket, _ = await _accepted()
    taken: list[str] = []

    def take(text: str) -> bool:
        if text.startswith("a"):
            taken.append(text)
        return text.startswith("a")

    socket.take_at_once = take
    socket.data_received(_frames("a1", "a2", "b3", "a4", "b5"))
    assert taken == ["a1", "a2"]
    waiting = [(await socket.receive()).get("text") for _ in range(socket.queue.qsize())]
    assert waiting == ["b3", "a4", "b5"]
    socket.data_received(_frames("a6"))
    assert taken == ["a1", "a2", "a6"]
    await _end(socket)


async def test_no_more_than_some_are_taken_before_others_have_their_turn() -> None:
    socket, transport = await _accepted()
    taken: list[str] = []
    socket.take_at_once = lambda text: taken.append(text) is None
    texts = [str(number) for number in range(AT_ONCE * 3)]
    socket.data_received(_frames(*texts))
    assert taken == texts[:AT_ONCE]
    assert socket.queue.qsize() == AT_ONCE * 2
    assert transport.paused
    waiting = [(await socket.receive()).get("text") for _ in range(AT_ONCE * 2)]
    assert waiting == texts[AT_ONCE:]
    assert not transport.paused
    await _end(socket)


async def test_texts_that_are_no_text_or_come_in_parts_take_the_long_way() -> None:
    socket, _ = await _accepted()
    taken: list[str] = []
    socket.take_at_once = lambda text: taken.append(text) is None
    start, rest = Frame(Opcode.TEXT, b"in ", fin=False), Frame(Opcode.CONT, b"parts")
    socket.data_received(start.serialize(mask=True) + rest.serialize(mask=True))
    assert (await socket.receive()).get("text") == "in parts"
    socket.data_received(Frame(Opcode.TEXT, b"\xff").serialize(mask=True))
    assert taken == []
    assert socket.close_sent
    await _end(socket)


async def test_it_says_so_when_it_cannot_send_at_once() -> None:
    socket, transport = await _accepted()
    before = transport.written
    assert socket.send_at_once("one")
    assert transport.written == before + Frame(Opcode.TEXT, b"one").serialize(mask=False)
    socket.pause_writing()
    assert not socket.send_at_once("two")
    socket.resume_writing()
    assert socket.send_at_once("three")
    await _end(socket)
    assert not socket.send_at_once("four")
    assert transport.written.endswith(b"three")


async def test_an_acknowledgement_does_not_overtake_what_was_sent_before_it(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("fine"))) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go", acknowledgement="strict"))["run"]
        await wire.until("events")
        ping, ack = {"type": "ping", "id": "first"}, {"type": "ack", "id": "second", "run": run, "seq": 999}
        wire.socket.transport.write(_frames(json.dumps(ping), json.dumps(ack)))  # in one piece
        answers = [await wire.next() for _ in range(2)]
        assert [(answer["type"], answer["re"]) for answer in answers] == [("pong", "first"), ("error", "second")]
        await wire.ask("stop", session=server.web.runs.running()[0].session)


class Counting:
    """Middleware that sees what passes, and is in no hurry."""

    seen: list[str]

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def received() -> Any:
            message = await receive()
            if message.get("text"):
                type(self).seen.append("up " + json.loads(message["text"])["type"])
            await asyncio.sleep(0)
            return message

        async def sent(message: Any) -> None:
            if message.get("text"):
                type(self).seen.append("down " + json.loads(message["text"])["type"])
            await send(message)

        await self.inner(scope, received, sent)


async def test_middleware_sees_every_message(serve: Serve) -> None:
    Counting.seen = []
    async with serve(Agent(FunctionModel(_speak)), middleware=[Counting]) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go", acknowledgement="strict"))["run"]
        events = await wire.read_run(run)
        assert (await wire.ask("ping"))["type"] == "pong"
    assert len(events) > DELTAS
    assert Counting.seen.count("up ack") >= DELTAS
    assert Counting.seen.count("down events") >= DELTAS


async def test_nothing_is_carried_out_after_the_end_of_a_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unusable acknowledgements end it, also those that are taken at once; what came behind them is not heard."""
    said: list[str] = []
    monkeypatch.setattr(Host, "say", lambda host, principal, session, text, later: said.append(text))
    async with serve(Agent(FunctionModel(_speak))) as server, server.wire() as wire:
        started = await wire.ask("start", text="go", acknowledgement="strict")
        (live,) = server.web.runs.running()
        limits = server.web.runs.settings.limits
        bad = json.dumps({"type": "ack", "run": started["run"], "seq": 999})
        steer = json.dumps({"type": "steer", "session": live.session, "text": "too late"})
        await wire.ask("steer", session=live.session, text="in time")
        for _ in range(limits.bad_messages - 1):
            wire.socket.transport.write(_frames(bad))
            await wire.until("error")
        wire.socket.transport.write(_frames(bad, steer))
        assert await wire.closed() == 1008
        await live.stop_now("enough")
        assert said == ["in time"]


async def test_watching_again_leaves_nothing_behind(serve: Serve) -> None:
    """What was watched with before goes away by itself, and not only when the collector comes."""
    async with serve(Agent(FunctionModel(_speak))) as server, server.wire() as wire:
        started = await wire.ask("start", text="go", acknowledgement="strict")
        gc.collect()
        gc.disable()
        try:
            before = sum(isinstance(one, Subscription) for one in gc.get_objects())
            for after in range(5):
                await wire.ask("watch", session=started["session"], run=started["run"], after=after)
            assert sum(isinstance(one, Subscription) for one in gc.get_objects()) == before
        finally:
            gc.enable()
        await wire.ask("stop", session=started["session"])


async def test_a_viewer_that_cannot_be_sent_to_is_no_matter_of_the_run(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two watch. At one of them sending at once always fails, in a way nobody has thought of."""
    fine = BoundedWebSocket.send_at_once
    broken: list[BoundedWebSocket] = []

    def send_at_once(socket: BoundedWebSocket, text: str) -> bool:
        if socket in broken:
            raise RuntimeError("it is broken")
        return fine(socket, text)

    monkeypatch.setattr(BoundedWebSocket, "send_at_once", send_at_once)
    async with serve(Agent(FunctionModel(_speak))) as server, server.wire(client="a") as driver:
        started = await driver.ask("start", text="go", acknowledgement="strict")
        async with server.wire(client="b") as other:
            (connection,) = [one for one in server.web._connections if one.client == "b"]
            broken.append(connection._direct)
            await other.ask("watch", session=started["session"], run=started["run"])
            driven, seen = await asyncio.gather(driver.read_run(started["run"]), other.read_run(started["run"]))
    assert driven[-1]["type"] == "run_completed"
    assert [event["seq"] for event in driven] == list(range(1, len(driven) + 1))
    assert seen == driven


def _acknowledge_everything(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/ws", compression=None, ping_interval=None) as socket:
        socket.send(json.dumps({"type": "hello", "protocol": 1}))
        socket.send(json.dumps({"type": "start", "text": "go", "acknowledgement": "strict"}))
        for raw in socket:
            message = json.loads(raw)
            if message["type"] == "events":
                last = message["events"][-1]
                socket.send(json.dumps({"type": "ack", "run": message["run"], "seq": last["seq"]}))
                if last["type"] == "run_completed":
                    return


async def test_a_delta_and_its_acknowledgement_take_few_turns_of_the_event_loop(serve: Serve) -> None:
    """The socket is read, the run is released, the run goes on, its event is sent: it was six turns and became four."""
    loop: Any = asyncio.get_running_loop()
    turns = 0
    turn = loop._run_once

    def counted() -> None:
        nonlocal turns
        turns += 1
        turn()

    async with serve(Agent(FunctionModel(_speak))) as server:
        loop._run_once = counted
        await asyncio.to_thread(_acknowledge_everything, server.port)
        del loop._run_once
    assert turns < DELTAS * 5
