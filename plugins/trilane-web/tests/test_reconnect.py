"""Clients that go away and come back: nothing is lost, nothing comes twice, and a gap is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, Delta, ModelResponse, TextPart, tool
from trilane.testing import FunctionModel, ScriptedModel, call
from trilane_web import WebLimits, WebSettings

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


class Speaker:
    """A model that says a word whenever it is let."""

    def __init__(self, words: int) -> None:
        self.said = 0
        self.words = words
        self.allowed = asyncio.Semaphore(0)

    async def speak(self, request: Any, emit: Any) -> ModelResponse:
        for number in range(self.words):
            await self.allowed.acquire()
            self.said += 1
            await emit(Delta(text=f"{number} "))
        text = "".join(f"{number} " for number in range(self.words))
        return ModelResponse(parts=(TextPart(text=text),), stop_reason="end")

    def allow(self, count: int) -> None:
        for _ in range(count):
            self.allowed.release()

    def agent(self) -> Agent[None, str]:
        return Agent(FunctionModel(self.speak))


async def _left(server: Any) -> Any:
    """The active run, once the server has seen that its client is gone."""
    (live,) = server.web.runs.running()
    await server.until(lambda: live.driver is None)
    return live


async def _deltas(wire: Any, run: str, count: int) -> None:
    while sum(event["type"] == "text_delta" for event in wire.events.get(run, ())) < count:
        if wire.events.get(run):
            await wire.send("ack", run=run, seq=wire.events[run][-1]["seq"])
        await wire.next()


@pytest.mark.parametrize("policy", ["strict", "windowed", "detached"])
async def test_f099_reconnect_goes_on_after_the_last_event(serve: Serve, policy: str) -> None:
    speaker = Speaker(12)
    async with serve(speaker.agent()) as server:
        async with server.wire(client="tab") as wire:
            answer = await wire.ask("start", text="go", acknowledgement=policy)
            session, run = answer["session"], answer["run"]
            speaker.allow(4)
            await _deltas(wire, run, 4)
            seen = list(wire.events[run])
        await _left(server)
        async with server.wire(client="tab") as wire:  # and goes again before anything new has come
            assert (await wire.ask("watch", session=session, run=run, after=seen[-1]["seq"]))["driver"] is True
        await _left(server)
        speaker.allow(8)
        async with server.wire(client="tab") as wire:
            answer = await wire.ask("watch", session=session, run=run, after=seen[-1]["seq"])
            assert answer["next"] == seen[-1]["seq"] + 1
            seen += await wire.read_run(run)
        assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
        text = "".join(event["text"] for event in seen if event["type"] == "text_delta")
        assert text == "".join(f"{number} " for number in range(12))
        assert seen[-1]["type"] == "run_completed"


@pytest.mark.parametrize(
    ("after", "reason"), [(9999, "future"), ("x", "unreadable"), (-3, "unreadable"), (None, "unreadable")]
)
async def test_f099_what_cannot_be_had_is_said(serve: Serve, after: Any, reason: str) -> None:
    async with serve(Agent(ScriptedModel("hello"))) as server, server.wire() as wire:
        answer = await wire.ask("start", text="go")
        await wire.read_run(answer["run"])
        async with server.wire() as again:
            await again.ask("watch", session=answer["session"], run=answer["run"], after=after)
            gap = await again.until("gap")
            assert (gap["first"], gap["reason"]) == (1, reason)
            await again.until_event(answer["run"], "run_completed")
            assert again.events[answer["run"]] == wire.events[answer["run"]]


async def test_f099_events_that_were_discarded_are_a_gap(serve: Serve) -> None:
    speaker = Speaker(100)
    speaker.allow(100)
    settings = WebSettings(limits=WebLimits(kept_events=10))
    async with serve(speaker.agent(), settings=settings) as server, server.wire() as wire:
        answer = await wire.ask("start", text="go", acknowledgement="detached")
        run = answer["run"]
        await wire.until_event(run, "run_completed")
        last = wire.events[run][-1]["seq"]
        async with server.wire() as again:
            await again.ask("watch", session=answer["session"], run=run, after=3)
            gap = await again.until("gap")
            assert (gap["after"], gap["first"], gap["reason"]) == (3, last - 9, "discarded")
            await again.until_event(run, "run_completed")
            assert [event["seq"] for event in again.events[run]] == list(range(last - 9, last + 1))


async def test_a_run_whose_client_is_away_is_paused(serve: Serve) -> None:
    ran: list[int] = []

    @tool
    async def act(number: int) -> str:
        """Act."""
        ran.append(number)
        return "done"

    model = ScriptedModel(*(call("act", number=number) for number in range(20)), "ok")
    async with serve(Agent(model, tools=[act])) as server:
        async with server.wire(client="tab") as wire:
            answer = await wire.ask("start", text="go", acknowledgement="strict")
            run = answer["run"]
            event = await wire.read_to(run, "tool_completed")
        await _left(server)
        before = len(ran)
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(ran) == before == 1
        async with server.wire(client="tab") as wire:
            await wire.ask("watch", session=answer["session"], run=run, after=event["seq"])
            assert (await wire.read_run(run))[-1]["type"] == "run_completed"
        assert ran == list(range(20))


async def test_f095_by_policy_it_goes_on(serve: Serve) -> None:
    speaker = Speaker(50)
    async with serve(speaker.agent()) as server:
        async with server.wire(client="tab") as wire:
            answer = await wire.ask("start", text="go", acknowledgement="strict", on_disconnect="continue")
        live = await _left(server)
        speaker.allow(50)
        async with asyncio.timeout(10):
            await live.wait()
        assert speaker.said == 50
        status, _, session = await server.http("GET", f"/api/sessions/{answer['session']}")
        assert (status, session["status"]) == (200, "completed")
        async with server.wire(client="tab") as wire:
            await wire.ask("watch", session=answer["session"], run=answer["run"], after=0)
            await wire.until_event(answer["run"], "run_completed")
            again = await wire.ask("start", text="more", session=answer["session"])
            assert again["type"] == "run"
            await wire.ask("stop", session=answer["session"])


async def test_f095_by_policy_it_is_cancelled_at_its_next_boundary(serve: Serve) -> None:
    speaker = Speaker(50)
    settings = WebSettings(reconnect_seconds=0.05)
    async with serve(speaker.agent(), settings=settings) as server:
        async with server.wire(client="tab") as wire:
            answer = await wire.ask("start", text="go", on_disconnect="cancel")
            speaker.allow(3)
            await _deltas(wire, answer["run"], 3)
        live = await _left(server)
        async with asyncio.timeout(10):
            await server.until(lambda: live.gate._released)
            speaker.allow(47)
            await live.wait()
        assert speaker.said <= 4
        _, _, session = await server.http("GET", f"/api/sessions/{answer['session']}")
        assert (session["status"], session["resumable"]) == ("cancelled", True)


async def test_a_run_that_is_paused_too_long_is_suspended_and_can_be_taken_up(serve: Serve) -> None:
    speaker = Speaker(5)
    settings = WebSettings(limits=WebLimits(pause_seconds=0.05))
    async with serve(speaker.agent(), settings=settings) as server:
        async with server.wire(client="tab") as wire:
            answer = await wire.ask("start", text="go")
            speaker.allow(2)
            await _deltas(wire, answer["run"], 2)
        live = await _left(server)
        async with asyncio.timeout(10):
            await live.wait()
        _, _, session = await server.http("GET", f"/api/sessions/{answer['session']}")
        assert session["resumable"] is True
        speaker.allow(20)
        async with server.wire(client="tab") as wire:
            resumed = await wire.ask("resume", session=answer["session"])
            assert (await wire.read_run(resumed["run"]))[-1]["type"] == "run_completed"


async def test_a_watching_tab_takes_over_when_the_driver_stays_away(serve: Serve) -> None:
    speaker = Speaker(30)
    settings = WebSettings(reconnect_seconds=0.05, window_events=8)
    async with serve(speaker.agent(), settings=settings) as server, server.wire(client="second") as second:
        async with server.wire(client="first") as first:
            answer = await first.ask("start", text="go")
            assert (await second.ask("watch", session=answer["session"]))["driver"] is False
        await _left(server)
        speaker.allow(30)
        assert (await second.read_run(answer["run"]))[-1]["type"] == "run_completed"
        assert speaker.said == 30


async def test_the_same_client_takes_its_run_back_from_its_dead_connection(serve: Serve) -> None:
    """The old connection may look alive for a while, when a network went away without a word."""
    speaker = Speaker(10)
    async with serve(speaker.agent()) as server, server.wire(client="tab") as dead, server.wire(client="tab") as alive:
        answer = await dead.ask("start", text="go", acknowledgement="strict")
        assert (await alive.ask("watch", session=answer["session"], after=0))["driver"] is True
        speaker.allow(10)
        events = await alive.read_run(answer["run"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_the_python_client_reconnects_by_itself(serve: Serve) -> None:
    speaker = Speaker(20)
    async with serve(speaker.agent()) as server, server.client(client="tab") as client:
        run = await client.start("go", acknowledgement="strict")
        seen = []
        speaker.allow(20)
        async for event in run:
            seen.append(event)
            if event.seq in (5, 9, 15):
                for connection in tuple(server.web._connections):
                    connection.end(1001, "the network failed", again=True)
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
        assert seen[-1].type == "run_completed"
        assert speaker.said == 20


async def test_who_watches_again_may_acknowledge_what_it_was_sent_before(serve: Serve) -> None:
    """An acknowledgement that crosses with a second `watch` counts: else a strict run would wait for ever."""
    async with serve(Agent(ScriptedModel("Hello."))) as server, server.wire() as wire:
        started = await wire.ask("start", text="go", acknowledgement="strict")
        run = started["run"]
        event = await wire.read_to(run, "model_started")
        await wire.send("watch", session=started["session"], run=run, after=event["seq"] - 1)
        await wire.send("ack", run=run, seq=event["seq"])
        await wire.until_event(run, "message_started")
        assert not [message for message in wire.seen if message["type"] == "error"]
        await wire.ask("watch", session=started["session"], run=run, after=0)
        await wire.send("ack", run=run, seq=10_000, id="too far")
        assert (await wire.until("error"))["code"] == "bad_acknowledgement"
