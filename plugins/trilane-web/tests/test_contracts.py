"""The contracts of the bounded sink (R56-R73), each through a server that is being served and a real WebSocket.

`GatedSink` alone passes the core's checks of sinks in `test_gate_conformance.py`; here it stands between a run and a
client that may stop reading, come back, or go away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, Delta, EventSinkClosed, ModelResponse, TextPart
from trilane.testing import FunctionModel, ScriptedModel
from trilane_web import WebLimits, WebSettings
from trilane_web.journal import Journal

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


class Talker:
    """An agent that says `total` pieces; `produced` counts them."""

    def __init__(self, total: int = 1000, size: int = 10) -> None:
        self.produced = 0

        async def speak(request: Any, emit: Any) -> ModelResponse:
            for _ in range(total):
                self.produced += 1
                await emit(Delta(text="x" * size))
            return ModelResponse(parts=(TextPart(text="done"),), stop_reason="end")

        self.agent: Agent[Any, Any] = Agent(FunctionModel(speak))


async def _blocked(server: Any) -> Any:
    """The one run, once it waits at its gate."""
    await server.until(lambda: server.web.runs.running())
    (live,) = server.web.runs.running()
    await server.until(lambda: live.gate.waiting_since is not None)
    return live


@pytest.mark.parametrize("window", [20, 64])
async def test_r56_r57_r58_the_window_is_the_bound_and_one_acknowledgement_frees_one_place(
    serve: Serve, window: int
) -> None:
    talker = Talker()
    async with serve(talker.agent, settings=WebSettings(window_events=window)) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        live = await _blocked(server)
        while len(wire.events.get(run, ())) < window:  # R57: none of these was waited for
            await wire.next()
        assert live.journal.last == window
        before = talker.produced
        for number in range(1, 10):
            await wire.send("ack", run=run, seq=number)
            await server.until(lambda number=number: live.journal.last == window + number)
            await server.until(lambda: live.gate.waiting_since is not None)
            assert live.journal.last == window + number  # R58
            assert talker.produced == before + number
        await wire.ask("stop", session=live.session)


async def test_r59_a_run_that_waits_for_its_client_hears_a_stop(serve: Serve) -> None:
    talker = Talker()
    async with serve(talker.agent, settings=WebSettings(window_events=20)) as server, server.wire() as wire:
        started = await wire.ask("start", text="go")
        await _blocked(server)
        produced = talker.produced
        assert (await wire.ask("stop", session=started["session"]))["type"] == "done"
        await wire.until_event(started["run"], "run_cancelled")
        assert talker.produced == produced


async def test_r60_r61_r64_closing_the_sink_lets_the_run_go_into_its_end_and_takes_nothing_more(serve: Serve) -> None:
    async with serve(Talker().agent, settings=WebSettings(window_events=20)) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        live = await _blocked(server)
        live._sink.close()
        live._sink.close()  # R64
        await live.wait()
        assert live.stream.result.status == "failed"
        assert isinstance(live.stream.result.error, EventSinkClosed)
        kept = live.journal.last
        event = await _some_event(Talker(1).agent)
        for _ in range(1000):
            with pytest.raises(EventSinkClosed):
                await live._sink.publish(event)
        assert live.journal.last == kept
        again = await wire.ask("start", text="go", session=live.session, acknowledgement="strict")
        assert (again["type"], again["run"] != run) == ("run", True), "the session is free"
        await wire.ask("stop", session=live.session)


async def _some_event(agent: Agent[Any, Any]) -> Any:
    async with agent.stream("go") as run:
        events = [event async for event in run]
    return events[3]


async def test_r62_whoever_is_cancelled_already_publishes_nothing(serve: Serve) -> None:
    event = await _some_event(Talker(1).agent)
    async with serve(Talker().agent, settings=WebSettings(window_events=20)) as server, server.wire() as wire:
        await wire.ask("start", text="go")
        live = await _blocked(server)
        kept = live.journal.last

        async def publish() -> None:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await live._sink.publish(event)

        for _ in range(200):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(publish())
        assert live.journal.last == kept
        await wire.ask("stop", session=live.session)


async def test_r63_what_is_no_longer_live_is_not_written(serve: Serve) -> None:
    event = await _some_event(Talker(1).agent)
    async with serve(Talker().agent, settings=WebSettings(window_events=20)) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        live = await _blocked(server)
        kept = live.journal.last
        live.gate.open()
        await live._sink.publish(event.replace(seq=5000), live=lambda: False)
        await server.until(lambda: live.journal.last > kept + 100)
        await wire.ask("stop", session=live.session)
        await wire.until_event(run, "run_cancelled")
        assert 5000 not in [one["seq"] for one in wire.events[run]]


async def test_r65_a_sink_that_is_closed_at_any_moment_ends_the_run_in_order(serve: Serve) -> None:
    chance = random.Random(65)
    async with serve(Talker(40).agent) as server, server.wire() as wire:
        statuses = []
        for _ in range(40):
            started = await wire.ask("start", text="go", acknowledgement=chance.choice(["detached", "windowed"]))
            live = server.web.runs.run(wire_principal(server), started["run"])
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            live._sink.close()
            await live.wait()
            result = live.stream.result
            statuses.append(result.status)
            assert result.status == "completed" or isinstance(result.error, EventSinkClosed)
        assert "failed" in statuses
        assert not server.web.runs.running()


def wire_principal(server: Any) -> Any:
    (connection,) = server.web._connections
    return connection.principal


async def test_r66_every_reader_gets_every_event_once_and_in_order(serve: Serve) -> None:
    async with serve(Talker(300).agent) as server:
        async with server.wire(client="a") as first, server.wire(client="b", frame_seconds=0.01) as second:
            started = await first.ask("start", text="go", acknowledgement="detached")
            run = started["run"]
            await second.ask("watch", session=started["session"], run=run)
            for wire in (first, second):
                await wire.until_event(run, "run_completed")
                seqs = [event["seq"] for event in wire.events[run]]
                assert seqs == list(range(1, len(seqs) + 1))


async def test_r67_to_r70_close_waits_for_no_client_and_the_run_is_over_when_its_writer_is(serve: Serve) -> None:
    """The write that is stuck is the connection's; it neither holds up the sink nor is interrupted by it."""
    settings = WebSettings(window_events=10_000, limits=WebLimits(window_bytes=10**9, kept_bytes=10**9))
    async with serve(Talker(300, 100_000).agent, settings=settings) as server, server.wire() as wire:
        wire.socket.transport.pause_reading()
        await wire.send("start", text="go")
        (connection,) = server.web._connections
        await server.until(lambda: server.web.runs.running())
        (live,) = server.web.runs.running()
        await server.until(lambda: connection._sending is not None and live.journal.last > 250)
        stuck = connection._sending
        live._sink.close()
        last = live.journal.last
        await live.wait()
        await live._sink.wait()  # R69
        assert connection._sending == stuck, "the write in progress goes on"  # R68
        assert live.journal.last == last  # R67
        wire.socket.transport.resume_reading()
        assert (await wire.ask("ping"))["type"] == "pong"


async def test_r72_a_connection_that_is_closed_first_leaves_a_run_without_a_reader(serve: Serve) -> None:
    """What the order of R71 is for: until the sink is closed the run goes on, or waits, for nobody."""
    async with serve(Talker(3000).agent, settings=WebSettings(window_events=20)) as server:
        async with server.wire() as wire:
            detached = (await wire.ask("start", text="go", session="d", acknowledgement="detached"))["run"]
            paused = (await wire.ask("start", text="go", session="p"))["run"]
            principal = wire_principal(server)
        lives = [server.web.runs.run(principal, run) for run in (detached, paused)]
        await server.until(lambda: not server.web._connections and lives[0].ended)
        assert lives[0].journal.complete
        assert lives[0].journal.last > 3000
        assert not lives[1].ended
        assert lives[1].journal.last == 20
        await asyncio.wait_for(server.web.drain(), 20)
        assert lives[1].ended


async def test_r73_an_event_that_cannot_be_kept_ends_its_run_and_no_other(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append
    broken: list[Journal] = []

    def failing(journal: Journal, seq: int, text: str, *, needed_from: int) -> None:
        if seq == 8 and (not broken or broken[0] is journal):
            broken[:] = [journal]
            raise OSError("no memory left")
        append(journal, seq, text, needed_from=needed_from)

    monkeypatch.setattr(Journal, "append", failing)
    async with serve(Agent(ScriptedModel(*["hello"] * 5))) as server, server.wire() as wire:
        started = await wire.ask("start", text="go", session="s", acknowledgement="strict")
        live = server.web.runs.run(wire_principal(server), started["run"])
        acknowledging = asyncio.create_task(wire.read_run(started["run"]))
        await live.wait()
        result = live.stream.result
        assert result.status == "failed"
        assert isinstance(result.error, EventSinkClosed)
        assert isinstance(result.error.__cause__, OSError)
        acknowledging.cancel()
        await asyncio.gather(acknowledging, return_exceptions=True)
    async with serve(Agent(ScriptedModel(*["hello"] * 5))) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go", session="s"))["run"]
        assert (await wire.read_run(run))[-1]["type"] == "run_completed"
