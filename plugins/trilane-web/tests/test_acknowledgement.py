"""How far a run may be ahead of its client, over a real WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, Delta, ModelResponse, TextPart, ToolCallPart, tool
from trilane.testing import FunctionModel, ScriptedModel, call
from trilane_web import WebLimits, WebSettings

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


@pytest.fixture(params=["", "websockets-sansio"], ids=["ours", "uvicorn"])
def sockets(request: pytest.FixtureRequest) -> str:
    """What the server offers beyond ASGI changes what it costs, and nothing else."""
    name: str = request.param
    return name


def _endless(produced: list[int], total: int, size: int = 1) -> FunctionModel:
    async def speak(request: Any, emit: Any) -> ModelResponse:
        for number in range(total):
            produced.append(number)
            await emit(Delta(text="x" * size))
        return ModelResponse(parts=(TextPart(text="x" * size * total),), stop_reason="end")

    return FunctionModel(speak)


async def _settled(produced: list[int]) -> int:
    """How far the run gets by itself: until the loop has been quiet for a good while."""
    before = -1
    while before != len(produced):
        before = len(produced)
        for _ in range(300):
            await asyncio.sleep(0)
    return before


async def test_a_strict_run_is_never_ahead(serve: Serve) -> None:
    """Run-ahead is zero: when the client holds an event, nothing after it was produced."""
    produced: list[int] = []
    ahead: list[int] = []
    async with serve(Agent(_endless(produced, 200))) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go", acknowledgement="strict"))["run"]
        shown = acknowledged = 0
        while True:
            events = wire.events.get(run, [])
            for event in events[acknowledged:]:
                shown += event["type"] == "text_delta"
                ahead.append(len(produced) - shown)
                if event["type"] == "run_completed":
                    assert shown == 200
                    # The model takes its next step after a delta was acknowledged; what it "produced" is at most
                    # the delta that is on its way.
                    assert max(ahead) <= 1
                    return
            acknowledged = len(events)
            if events:
                await wire.send("ack", run=run, seq=events[-1]["seq"])
            await wire.next()


async def test_a_strict_run_begins_no_tool_before_its_event_was_acknowledged(serve: Serve) -> None:
    ran = asyncio.Event()

    @tool
    async def act() -> str:
        """Act."""
        ran.set()
        return "done"

    async with serve(Agent(ScriptedModel(call("act"), "ok"), tools=[act])) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go", acknowledgement="strict"))["run"]
        event = await wire.read_to(run, "tool_started")
        for _ in range(5):
            await wire.ask("ping")
        assert not ran.is_set()
        await wire.send("ack", run=run, seq=event["seq"])
        async with asyncio.timeout(10):
            await ran.wait()
        assert (await wire.read_run(run))[-1]["type"] == "run_completed"


async def test_f100_a_stalled_reader_holds_the_producer_at_the_window(serve: Serve) -> None:
    produced: list[int] = []
    settings = WebSettings(window_events=50)
    async with serve(Agent(_endless(produced, 100_000, 1000)), settings=settings) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        await wire.until_event(run, "text_delta")
        while len(wire.events[run]) < 50:
            await wire.next()
        assert await _settled(produced) <= 51
        live = server.web.runs.running()[0]
        assert len(live.journal) <= 51
        await wire.send("ack", run=run, seq=wire.events[run][-1]["seq"])
        await wire.next()
        assert wire.events[run][50]["seq"] == 51, "it goes on at the right event"
        await wire.ask("stop", session=live.session)


async def test_f100_a_client_that_does_not_acknowledge_is_dropped(serve: Serve) -> None:
    produced: list[int] = []
    settings = WebSettings(window_events=5, limits=WebLimits(stall_seconds=0.1))
    async with serve(Agent(_endless(produced, 1000)), settings=settings) as server, server.wire() as wire:
        await wire.ask("start", text="go")
        assert await wire.closed() == 1008
        assert wire.seen[-1]["type"] == "closing"
        assert wire.seen[-1]["again"] is True
        assert len(produced) < 10


async def test_a_detached_run_waits_for_nobody(serve: Serve) -> None:
    produced: list[int] = []
    async with serve(Agent(_endless(produced, 3000))) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go", acknowledgement="detached"))["run"]
        await wire.until_event(run, "run_completed")
        assert len(produced) == 3000
        assert [event["seq"] for event in wire.events[run]] == list(range(1, len(wire.events[run]) + 1))


async def test_f101_bad_acknowledgements_release_nothing(serve: Serve) -> None:
    produced: list[int] = []
    settings = WebSettings(window_events=5, limits=WebLimits(bad_messages=10_000, message_burst=10_000))
    async with serve(Agent(_endless(produced, 1000)), settings=settings) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        while len(wire.events.get(run, ())) < 5:
            await wire.next()
        for number in range(1000):
            await wire.send("ack", run=run, seq=10_000 + number)
        for seq in (-1, "3", 2.5, None, True, 0, 0, 0):
            await wire.send("ack", run=run, seq=seq)
        await wire.ask("ping")
        assert sum(message.get("code") == "bad_acknowledgement" for message in wire.seen) == 1000
        assert sum(message.get("code") == "bad_message" for message in wire.seen) == 5
        assert await _settled(produced) <= 5
        for _ in range(3):
            await wire.send("ack", run=run, seq=2)
        await wire.ask("ping")
        assert len(wire.events[run]) <= 7


async def test_a_watcher_does_not_release_the_run(serve: Serve) -> None:
    produced: list[int] = []
    settings = WebSettings(window_events=5)
    async with serve(Agent(_endless(produced, 1000)), settings=settings) as server:
        async with server.wire(client="first") as first, server.wire(client="second") as second:
            started = await first.ask("start", text="go")
            assert started["driver"] is True
            watching = await second.ask("watch", session=started["session"])
            assert watching["run"] == started["run"]
            assert watching["driver"] is False
            run = started["run"]
            while len(second.events.get(run, ())) < 5:
                await second.next()
            await second.send("ack", run=run, seq=second.events[run][-1]["seq"])
            await second.ask("ping")
            assert await _settled(produced) <= 5
            await first.ask("stop", session=started["session"])
            await second.until_event(run, "run_cancelled")
            assert [event["seq"] for event in second.events[run]] == list(range(1, len(second.events[run]) + 1))


async def test_a_frame_rate_that_a_client_asks_for_loses_nothing(serve: Serve) -> None:
    produced: list[int] = []
    async with serve(Agent(_endless(produced, 500))) as server, server.wire(frame_seconds=0.02) as wire:
        run = (await wire.ask("start", text="go", acknowledgement="detached"))["run"]
        await wire.until_event(run, "run_completed")
        events = wire.events[run]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        frames = sum(message["type"] == "events" for message in wire.seen)
        assert frames < len(events) / 5


async def test_r08_zero_run_ahead_over_a_websocket(serve: Serve) -> None:
    """Measured at every event while the client holds it: no delta made, no tool begun, no model asked beyond it."""
    made: list[str] = []

    @tool
    def act(number: int) -> str:
        """Act."""
        made.append("tool_started")
        return "done"

    async def speak(request: Any, emit: Any) -> ModelResponse:
        made.append("model_started")
        for _ in range(20):
            made.append("text_delta")
            await emit(Delta(text="x"))
        turn = sum(kind == "model_started" for kind in made)
        parts: list[Any] = [TextPart(text="x" * 20)]
        if turn < 4:
            parts.append(ToolCallPart(call=call("act", number=turn)))
        return ModelResponse(parts=tuple(parts), stop_reason="tool_calls" if turn < 4 else "end")

    ahead: list[int] = []
    async with serve(Agent(FunctionModel(speak), tools=[act])) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go", acknowledgement="strict"))["run"]
        shown: list[str] = []
        while "run_completed" not in shown:
            while len(wire.events.get(run, ())) == len(shown):
                await wire.next()
            shown += [event["type"] for event in wire.events[run][len(shown) :]]
            await _settled(made)  # whatever can run ahead does so now
            # What was made, less what was announced or shown. A delta is made before it can be shown, so the one that
            # the events before it (its message, its part) lead to is on its way; nothing else may be.
            kinds = ("model_started", "tool_started", "text_delta")
            surplus = [max(0, made.count(kind) - shown.count(kind)) for kind in kinds]
            first_delta = shown[-1] in ("message_started", "text_started")
            ahead.append(sum(surplus) - first_delta)
            await wire.send("ack", run=run, seq=wire.events[run][-1]["seq"])
        assert made.count("tool_started") == 3
        assert made.count("text_delta") == 80
    assert max(ahead) == 0
