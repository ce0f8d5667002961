"""The example of two agents: its WebSocket says the same as without the split; what its queues carry."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket

from trilane_web import WebSettings
from trilane_web.serving import listen, make_server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 30.0  # for what should take milliseconds
TERMINAL = ("run_completed", "run_failed", "run_cancelled")

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # what the server runs on


@pytest.fixture
def example() -> Iterator[Any]:
    """The example's package."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        import chat_and_event_agent.application
        import chat_and_event_agent.desk

        yield chat_and_event_agent
    finally:
        sys.path.remove(str(EXAMPLES))


@asynccontextmanager
async def served(web: Any) -> AsyncIterator[int]:
    listener = listen("127.0.0.1", 0, protected=False)
    server = make_server(web)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


class Downlink:
    """Everything that came down on one WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def next(self) -> None:
        async with asyncio.timeout(PATIENCE):
            message = json.loads(await self.socket.recv())
        if message["type"] == "events":
            self.events += message["events"]  # how many came in one message is a matter of time
        else:
            self.answers.append(message)

    async def until_event(self, *kinds: str) -> dict[str, Any]:
        """Acknowledge and read until an event of one of these types, which is not acknowledged."""
        seen = len(self.events)
        while True:
            while seen == len(self.events):
                await self.next()
            for event in self.events[seen:]:
                seen += 1
                if event["type"] in kinds:
                    return event
                await self.send("ack", run=event["run_id"], seq=event["seq"])

    async def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        name = f"ask-{len(self.answers)}"
        await self.send(kind, id=name, **fields)
        while not any(answer["re"] == name for answer in self.answers):
            await self.next()
        return next(answer for answer in self.answers if answer["re"] == name)


async def conversation(port: int) -> Downlink:
    """The same things said and done every time: two reading calls at once, edited, refused and failing bookings."""
    async with open_socket(f"ws://127.0.0.1:{port}/ws", compression=None, max_size=None) as socket:
        down = Downlink(socket)
        await down.send("hello", protocol=1, client="tab")
        answer = await down.ask("start", text="Which trains go to Bregenz?", acknowledgement="strict")
        session = answer["session"]
        last = await down.until_event(*TERMINAL)
        await down.send("ack", run=last["run_id"], seq=last["seq"])
        for text, payload in (
            ("Please book two seats in R14", {"approve": True, "arguments": {"train": "N1", "seats": 3}}),
            ("Please book a seat in R99", {"approve": True}),
            ("Please book four seats in N1", {"approve": False, "reason": "too many"}),
        ):
            await down.ask("start", text=text, session=session, acknowledgement="strict")
            event = await down.until_event("reply_requested")
            question = event["question"]
            await down.ask("reply", session=session, question=question["id"], payload=payload)
            await down.ask("reply", session=session, question=question["id"], payload=payload)
            await down.ask("reply", session=session, question=question["call"]["id"], payload="forged")
            await down.send("ack", run=event["run_id"], seq=event["seq"])
            last = await down.until_event(*TERMINAL)
            await down.ask("reply", session=session, question=question["call"]["id"], payload="forged")
            await down.send("ack", run=last["run_id"], seq=last["seq"])
        return down


def normalised(messages: list[dict[str, Any]]) -> list[Any]:
    """Made ids named by their first appearance, times left out."""
    names: dict[str, str] = {}

    def rename(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: rename(inner, name) for name, inner in value.items() if name not in ("seconds", "heartbeat")}
        if isinstance(value, list):
            return [rename(inner, key) for inner in value]
        is_id = key in ("id", "run", "session", "question") or key.endswith("_id")
        if is_id and isinstance(value, str) and value and not value.startswith("call-"):
            return names.setdefault(value, f"id-{len(names)}")
        return value

    return [rename(message) for message in messages]


async def test_r32_the_websocket_says_the_same_as_without_the_split(example: Any) -> None:
    """The golden test: recorded with one agent that does everything, and with two."""
    recorded: dict[bool, Downlink] = {}
    for split in (False, True):
        web = example.application.make_site(example.desk.DeskModel(), split=split)
        async with served(web) as port:
            recorded[split] = await conversation(port)
    together, apart = recorded[False], recorded[True]
    assert normalised(apart.events) == normalised(together.events)
    assert normalised(apart.answers) == normalised(together.answers)
    results = [event["result"] for event in apart.events if event["type"] == "tool_completed"]
    assert [result["outcome"] for result in results] == ["ok", "ok", "ok", "error", "denied"]
    assert results[2]["content"] == "3 seats booked in N1"
    assert [a["status"] for a in apart.answers if a["type"] == "receipt"] == [
        *("accepted", "duplicate", "unknown", "unknown") * 3
    ]
    for run in {event["run_id"] for event in apart.events}:
        numbers = [event["seq"] for event in apart.events if event["run_id"] == run]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_r30_r36_the_queues_carry_the_calls_out_and_the_results_in(example: Any) -> None:
    web = example.application.make_site(example.desk.DeskModel())
    async with served(web) as port:
        await conversation(port)
        steps = await _get(port, "/queues/steps?after=0")
    assert [step["n"] for step in steps] == list(range(1, len(steps) + 1))
    for run in (1, 2, 3, 4):
        for lane in ("input", "events", "output"):
            of = [step for step in steps if (step["run"], step["lane"]) == (run, lane)]
            puts = [step["text"] for step in of if step["step"] == "put"]
            assert bool(puts) == ((run, lane) != (4, "events")), "a denied call does not go out"
            assert puts == [step["text"] for step in of if step["step"] == "take"], "the same, in the same order"
            assert [step["waiting"] for step in of[-1:]] in ([], [0])
    inner = [step for step in steps if step["lane"] != "output"]
    first = [(step["lane"], step["step"], step["kind"]) for step in inner if step["run"] == 1]
    assert first[:2] == [("input", "put", "message"), ("input", "take", "message")]
    each = [(lane, step, kind) for lane, kind in (("events", "call"), ("input", "result")) for step in ("put", "take")]
    assert sorted(first[2:]) == sorted(each * 2)
    calls = [step["text"] for step in steps if step["lane"] == "events" and step["step"] == "put"]
    assert calls[:2] == ["find_trains(start=Ulm, destination=Bregenz)", "weather(place=Bregenz)"]
    for run in (1, 2, 3):
        out = next(step["n"] for step in steps if step["run"] == run and step["kind"] == "call")
        back = next(step["n"] for step in steps if step["run"] == run and step["kind"] == "result")
        told = next(step["n"] for step in steps if step["run"] == run and step["text"] == "tool_started")
        assert told < out < back


async def test_a_stop_reaches_the_event_agent_and_frees_the_session(example: Any) -> None:
    web = example.application.make_site(
        example.desk.DeskModel(), pause=asyncio.Event().wait, settings=WebSettings(acknowledgement="strict")
    )
    async with served(web) as port:
        async with open_socket(f"ws://127.0.0.1:{port}/ws", compression=None) as socket:
            down = Downlink(socket)
            await down.send("hello", protocol=1)
            answer = await down.ask("start", text="Which trains go to Bregenz?")
            for _ in range(2):
                event = await down.until_event("tool_started")
                await down.send("ack", run=event["run_id"], seq=event["seq"])
            while not any(
                (step["step"], step["kind"]) == ("take", "call") for step in await _get(port, "/queues/steps?after=0")
            ):
                pass
            await down.ask("stop", session=answer["session"])
            last = await down.until_event("run_cancelled")
            assert last["reason"] == "stopped by the user"
            await down.ask("start", text="Which trains go to Lindau?", session=answer["session"])
            await down.until_event("run_started")
    outcomes = [event["result"]["outcome"] for event in down.events if event["type"] == "tool_completed"]
    assert outcomes == ["interrupted", "interrupted"]


async def test_the_page_is_behind_the_checks_of_the_server(example: Any) -> None:
    web = example.application.make_site(example.desk.DeskModel())
    async with served(web) as port:
        page = await _raw(port, "/queues/")
        assert b"content-security-policy: default-src 'none'; script-src 'self'" in page
        assert b'src="page/queues.js"' in page
        assert b"200 OK" in await _raw(port, "/queues/page/queues.js")
        assert b"403" in (await _raw(port, "/queues/steps", host="evil.example")).split(b"\r\n")[0]
        assert await _get(port, "/queues/steps?after=nonsense") == []


async def _raw(port: int, path: str, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


async def _get(port: int, path: str) -> Any:
    return json.loads((await _raw(port, path)).partition(b"\r\n\r\n")[2])
