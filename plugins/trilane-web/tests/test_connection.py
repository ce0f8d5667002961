"""What a WebSocket takes, and how it behaves towards clients that send anything else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, ModelResponse, TextPart, tool
from trilane.testing import FunctionModel, ScriptedModel, call
from trilane_web import WebLimits, WebSettings
from trilane_web.protocol import Up, protocol_json_schema

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


def _agent() -> Agent[None, str]:
    return Agent(ScriptedModel(*["hello there"] * 50))


async def test_a_run_from_hello_to_its_end(serve: Serve) -> None:
    async with serve(_agent()) as server, server.wire() as wire:
        started = await wire.ask("start", text="hi")
        events = await wire.read_run(started["run"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["result"]["text"] == "hello there"
        assert {event["session_id"] for event in events} == {started["session"]}


async def test_a_tool_that_fails_by_mistake_is_in_the_servers_log_and_not_on_the_wire(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise ConnectionError("cannot reach the database of Ada")

    agent = Agent(ScriptedModel(call("broken"), "done"), tools=[broken])
    async with serve(agent) as server, server.wire() as wire:
        started = await wire.ask("start", text="hi")
        events = await wire.read_run(started["run"])
    (record,) = [record for record in caplog.records if record.name == "trilane"]
    assert record.getMessage().startswith("tool 'broken' failed: ConnectionError (")
    assert started["run"] in record.getMessage()
    assert started["session"] in record.getMessage()
    assert "Tool broken failed: ConnectionError" in json.dumps(events)
    assert "Ada" not in json.dumps(events)


async def test_many_runs_on_one_connection(serve: Serve) -> None:
    async with serve(_agent()) as server, server.wire() as wire:
        runs = [(await wire.ask("start", text=f"hi {number}"))["run"] for number in range(10)]
        for run in runs:
            events = await wire.read_run(run)
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_hello_comes_first_and_once(serve: Serve) -> None:
    async with serve(_agent()) as server:
        async with server.wire(hello=False) as wire:
            await wire.send("start", text="hi")
            assert (await wire.next())["code"] == "bad_message"
            assert await wire.closed() == 1008
        async with server.wire() as wire:
            assert (await wire.ask("hello", protocol=1))["code"] == "bad_message"
            assert (await wire.ask("ping"))["type"] == "pong"
        assert not server.web.runs.running()


async def test_who_says_nothing_is_sent_away(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(hello_seconds=0.05))
    async with serve(_agent(), settings=settings) as server, server.wire(hello=False) as wire:
        assert await wire.closed() == 1008
        assert wire.seen[-1] == {"re": "", "type": "closing", "reason": "no hello came in time", "again": False}


@pytest.mark.parametrize("version", [0, 2, 99])
async def test_another_version_of_the_protocol_is_refused(serve: Serve, version: int) -> None:
    async with serve(_agent()) as server, server.wire(hello=False) as wire:
        answer = await wire.ask("hello", protocol=version)
        assert answer["code"] == "wrong_protocol"
        assert "speaks protocol 1" in answer["message"]
        assert await wire.closed() == 1008


async def test_f101_binary_oversized_and_malformed_messages(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(message_bytes=10_000))
    async with serve(_agent(), settings=settings) as server, server.wire() as other:
        async with server.wire() as wire:
            await wire.socket.send(b"\x00\x01")
            assert await wire.closed() == 1003
        async with server.wire() as wire:
            await wire.socket.send("x" * 20_000)
            assert await wire.closed() == 1009
        async with server.wire() as wire:
            for text in ("", "{", "[]", "3", '"x"', "null", '{"type":"nothing"}', '{"type":"ack"}', "[" * 5000):
                await wire.socket.send(text)
                answer = await wire.next()
                assert (answer["type"], answer["code"]) == ("error", "bad_message"), text
                assert "Traceback" not in answer["message"]
            assert (await wire.ask("ping"))["type"] == "pong"
        async with server.wire() as wire:
            for _ in range(30):
                await wire.send("nothing")
            assert await wire.closed() == 1008
        run = (await other.ask("start", text="hi"))["run"]
        assert (await other.read_run(run))[-1]["type"] == "run_completed"


async def test_f101_many_messages_at_once_end_politely_and_others_are_served(serve: Serve) -> None:
    async with serve(_agent()) as server, server.wire() as other, server.wire() as wire:
        frames = json.dumps({"type": "ping"})

        async def flood() -> None:
            for _ in range(10_000):
                await wire.socket.send(frames)

        flooding = asyncio.create_task(flood())
        run = (await other.ask("start", text="hi"))["run"]
        assert (await other.read_run(run))[-1]["type"] == "run_completed"
        assert await wire.closed() == 1008
        assert "messages a second" in wire.seen[-1]["reason"]
        assert len(wire.seen) <= 1000
        await asyncio.gather(flooding, return_exceptions=True)


async def test_answers_that_are_not_read_are_bounded(serve: Serve) -> None:
    limits = WebLimits(answers=10, message_burst=100_000, bad_messages=100_000, send_seconds=0.2)
    async with serve(_agent(), settings=WebSettings(limits=limits)) as server, server.wire() as wire:
        (connection,) = server.web._connections
        wire.socket.transport.pause_reading()
        with pytest.raises(Exception, match=r".*"):
            for _ in range(200_000):
                await wire.socket.send(json.dumps({"type": "x" * 3000}))
        assert len(connection._answers) <= 10


async def test_f102_stop_acts_while_a_tool_runs(serve: Serve) -> None:
    started = asyncio.Event()

    @tool
    async def wait_long() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with serve(Agent(ScriptedModel(call("wait_long")), tools=[wait_long])) as server, server.wire() as wire:
        answer = await wire.ask("start", text="go", acknowledgement="detached")
        async with asyncio.timeout(10):
            await started.wait()
            assert (await wire.ask("stop", session=answer["session"], reason="enough"))["type"] == "done"
            event = await wire.until_event(answer["run"], "run_cancelled")
        assert event["reason"] == "enough"
        assert (await wire.ask("stop", session=answer["session"]))["code"] == "not_running"


async def test_steering_and_following_up(serve: Serve) -> None:
    model = ScriptedModel("first", "second", "third")
    async with serve(Agent(model)) as server, server.wire() as wire:
        answer = await wire.ask("start", text="go", acknowledgement="strict")
        session, run = answer["session"], answer["run"]
        await wire.read_to(run, "model_started")
        assert (await wire.ask("steer", session=session, text="shorter"))["type"] == "done"
        assert (await wire.ask("follow_up", session=session, text="and then"))["type"] == "done"
        events = await wire.read_run(run)
        said = [event["message"]["parts"][0]["text"] for event in events if event["type"] == "user_message_added"]
        assert said == ["go", "shorter", "and then"]
        assert (await wire.ask("steer", session=session, text="too late"))["code"] == "not_running"


async def test_a_busy_session(serve: Serve) -> None:
    async with serve(_agent()) as server, server.wire() as wire:
        first = await wire.ask("start", text="hi", acknowledgement="strict")
        assert (await wire.ask("start", text="hi", session=first["session"]))["code"] == "busy"
        await wire.read_run(first["run"])
        second = await wire.ask("start", text="hi", session=first["session"])
        assert (await wire.read_run(second["run"]))[-1]["type"] == "run_completed"


async def test_limits_of_runs_and_connections(serve: Serve) -> None:
    limits = WebLimits(runs_per_principal=2, connections=3, watched_runs=5)
    settings = WebSettings(acknowledgement="strict", limits=limits)
    async with serve(_agent(), settings=settings) as server, server.wire() as wire:
        for _ in range(2):
            assert (await wire.ask("start", text="hi"))["type"] == "run"
        refused = await wire.ask("start", text="hi")
        assert (refused["code"], "2 active runs" in refused["message"]) == ("too_many", True)
        async with server.wire(), server.wire():
            with pytest.raises(Exception, match="503"):
                async with server.wire():
                    pass
        async with server.wire() as again:
            assert (await again.ask("ping"))["type"] == "pong"


async def test_a_start_that_is_repeated_with_its_key_starts_one_run(serve: Serve) -> None:
    async with serve(_agent()) as server, server.wire() as wire:
        first = await wire.ask("start", text="hi", key="k1")
        assert (await wire.ask("start", text="hi", key="k1"))["run"] == first["run"]
        assert (await wire.ask("start", text="hi", key="k2"))["run"] != first["run"]


async def test_half_open_connections_are_dropped(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(heartbeat_seconds=0.1))
    async with serve(_agent(), settings=settings) as server, server.wire() as wire:
        assert await wire.closed() == 1001
        assert [message["type"] for message in wire.seen[-2:]] == ["ping", "closing"]
        async with server.wire() as alive:
            for _ in range(3):
                await alive.until("ping")
                await alive.send("pong")
            assert (await alive.ask("ping"))["type"] == "pong"


async def test_idle_and_total_time(serve: Serve) -> None:
    for limits, reason in (
        (WebLimits(idle_seconds=0.1), "nothing was done"),
        (WebLimits(total_seconds=0.1), "lasted long enough"),
    ):
        async with serve(_agent(), settings=WebSettings(limits=limits)) as server, server.wire() as wire:
            assert await wire.closed() == 1001
            assert reason in wire.seen[-1]["reason"]


async def test_the_time_in_which_a_run_is_followed_is_not_idle(serve: Serve) -> None:
    go_on = asyncio.Event()

    async def slow(request: Any, emit: Any) -> ModelResponse:
        await go_on.wait()
        return ModelResponse(parts=(TextPart(text="Done."),), stop_reason="end")

    async with serve(Agent(FunctionModel(slow))) as server, server.wire() as wire:
        answer = await wire.ask("start", text="hi", acknowledgement="detached")
        (connection,) = server.web._connections
        server.web._connections.clear()  # no other clock looks at it
        limit = server.web.runs.settings.limits.idle_seconds
        began = connection._active
        for passed in (limit * 0.9, limit * 1.8, limit * 2.7):  # nothing is heard but that it is there
            connection._heard = began + passed
            connection.look_at_clock(began + passed)
        go_on.set()
        await wire.until_event(answer["run"], "run_completed")
        await server.until(lambda: not server.web.runs.running())
        connection._heard = began + limit * 2.8
        connection.look_at_clock(began + limit * 2.8)
        assert (await wire.ask("ping"))["type"] == "pong"
        connection._active, connection._heard = began, began + limit * 2
        connection.look_at_clock(began + limit * 2)
        assert await wire.closed() == 1001
        assert "nothing was done" in wire.seen[-1]["reason"]


async def test_the_id_of_a_message_that_cannot_be_used_is_no_trouble_either(serve: Serve) -> None:
    async with serve(_agent()) as server, server.wire() as wire:
        await wire.socket.send('{"type": "nonsense", "id": "a\\ud800b"}')
        answer = await wire.until("error")
        assert (answer["re"], answer["code"]) == ("ab", "bad_message")
        assert (await wire.ask("ping"))["type"] == "pong"


@pytest.mark.parametrize("left", ["asked for", "to make room"])
async def test_what_was_sent_before_a_run_was_left_may_be_acknowledged_after_it_is_watched_again(
    serve: Serve, left: str
) -> None:
    settings = WebSettings(limits=WebLimits(watched_runs=1))
    async with serve(_agent(), settings=settings) as server, server.wire() as wire:
        answer = await wire.ask("start", text="hi", acknowledgement="detached")
        last = (await wire.until_event(answer["run"], "run_completed"))["seq"]
        if left == "asked for":
            assert (await wire.ask("unwatch", run=answer["run"]))["type"] == "done"
        else:
            await server.until(lambda: not server.web.runs.running())
            other = await wire.ask("start", text="hi", acknowledgement="detached")
            await wire.until_event(other["run"], "run_completed")
            await server.until(lambda: not server.web.runs.running())
        await wire.send("watch", session=answer["session"], run=answer["run"], after=last - 1, id="again")
        await wire.send("ack", run=answer["run"], seq=last)
        assert (await wire.until("run", re="again"))["next"] == last
        assert (await wire.ask("ping"))["type"] == "pong"
        assert not [message for message in wire.seen if message["type"] == "error"]


async def test_lanes_show_notifications_to_those_who_ask(serve: Serve) -> None:
    async with serve(_agent(), settings=WebSettings(lanes=True)) as server:
        async with server.wire(lanes=True) as wire, server.wire() as other:
            answer = await wire.ask("start", text="hi")
            await other.ask("watch", session=answer["session"], run=answer["run"])
            await wire.read_run(answer["run"])
            await other.until_event(answer["run"], "run_completed")
            names = [message["name"] for message in wire.seen if message["type"] == "notification"]
            assert "PhaseTransitionEvent" in names
            assert "MessageAppendedEvent" in names
            assert not [message for message in other.seen if message["type"] == "notification"]


def test_the_published_schema_has_every_message() -> None:
    schema = protocol_json_schema()
    assert {kind.__name__ for kind in Up.__args__} == set(schema["up"]["$defs"]) - {"JsonValue"}
    assert {"Welcome", "Events", "Gap", "ReceiptGiven", "Failed"} <= set(schema["down"]["$defs"])
    assert "RunCompleted" in schema["event"]["$defs"]
