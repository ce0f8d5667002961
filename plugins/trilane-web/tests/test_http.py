"""Plain HTTP: sessions, runs, replies, and events as a stream that can be taken up again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, tool
from trilane.stores import ViewReplaced
from trilane.testing import ScriptedModel, call
from trilane_web import WebLimits, WebSettings
from trilane_web.openapi import openapi_document

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
ran: list[int] = []


@tool(approval=True)
def act(number: int) -> str:
    """Act."""
    ran.append(number)
    return f"acted {number}"


async def _events(server: Any, run: str, **headers: str) -> list[dict[str, Any]]:
    async with server.stream(f"/api/runs/{run}/events", headers) as records:
        return [record async for record in records]


async def test_start_stream_and_read(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("hello there"))) as server:
        status, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        assert status == 201
        records = await _events(server, started["run"])
        assert [int(record["id"]) for record in records] == list(range(1, len(records) + 1))
        assert records[-1]["data"]["type"] == "run_completed"
        status, _, session = await server.http("GET", f"/api/sessions/{started['session']}")
        assert status == 200
        assert [message["kind"] for message in session["messages"]] == ["user", "assistant"]
        assert (session["run"], session["resumable"]) == ("", False)
        _, _, listing = await server.http("GET", "/api/sessions")
        assert [(found["id"], found["preview"]) for found in listing["sessions"]] == [(started["session"], "hi")]


async def test_f099_last_event_id(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("hello there"))) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        whole = await _events(server, started["run"])
        later = await _events(server, started["run"], **{"last-event-id": "5"})
        assert later == whole[5:]
        for given, reason in (("99999", "future"), ("garbage", "unreadable"), ("-1", "unreadable")):
            records = await _events(server, started["run"], **{"last-event-id": given})
            assert records[0]["event"] == "gap"
            assert (records[0]["data"]["reason"], records[0]["data"]["first"]) == (reason, 1)
            assert records[1:] == whole


async def test_f099_discarded_events_are_a_gap(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(kept_events=3))
    async with serve(Agent(ScriptedModel("hello there my friend")), settings=settings) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        whole = await _events(server, started["run"])
        records = await _events(server, started["run"], **{"last-event-id": "1"})
        assert records[0]["data"]["reason"] == "discarded"
        assert records[1:] == whole[-3:]


async def test_a_reply_and_every_receipt(serve: Serve) -> None:
    ran.clear()
    async with serve(Agent(ScriptedModel(call("act", number=3), "ok"), tools=[act])) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        async with server.stream(f"/api/runs/{started['run']}/events") as records:
            async for record in records:
                if record["data"]["type"] == "reply_requested":
                    question = record["data"]["question"]["id"]
                    place = f"/api/sessions/{started['session']}/replies/{question}"
                    status, _, receipt = await server.http("POST", place, {"payload": {"approve": "perhaps"}})
                    assert (status, receipt["status"], bool(receipt["reasons"])) == (422, "invalid", True)
                    status, _, receipt = await server.http("POST", place, {"payload": {"approve": True}})
                    assert (status, receipt["status"]) == (200, "accepted")
                    status, _, receipt = await server.http("POST", place, {"payload": {"approve": True}})
                    assert (status, receipt["status"]) == (409, "duplicate")
                    unknown = f"/api/sessions/{started['session']}/replies/x"
                    assert (await server.http("POST", unknown, {"payload": 1}))[0] == 404
        assert ran == [3]


async def test_a_strict_run_moves_with_acknowledgements_by_http(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("hello there"))) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi", "acknowledgement": "strict"})
        place = f"/api/runs/{started['run']}/ack"
        status, _, problem = await server.http("POST", place, {"seq": 1000})
        assert (status, problem["code"]) == (409, "bad_acknowledgement")
        seen = []
        async with server.stream(f"/api/runs/{started['run']}/events") as records:
            async for record in records:
                seen.append(int(record["id"]))
                (live,) = server.web.runs.running() or [None]
                assert live is None or live.journal.last <= seen[-1] + 1
                await server.http("POST", place, {"seq": seen[-1]})
        assert seen == list(range(1, len(seen) + 1))


async def test_stop_say_resume_rename_fork_and_delete(serve: Serve) -> None:
    script = (call("act", number=1), "after", "again")
    async with serve(Agent(ScriptedModel(*script), tools=[act])) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        place = f"/api/sessions/{started['session']}"
        await server.until(lambda: server.web.runs.agent.questions(started["session"]))
        _, _, session = await server.http("GET", place)
        assert session["run"] == started["run"]
        assert [question["kind"] for question in session["questions"]] == ["approval"]
        assert (await server.http("DELETE", place))[0] == 409
        assert (await server.http("POST", f"{place}/resume"))[0] == 409
        assert (await server.http("POST", f"{place}/say", {"text": "also", "later": True}))[0] == 200
        assert (await server.http("POST", f"{place}/stop", {"reason": "enough"}))[0] == 200
        records = await _events(server, started["run"])
        assert records[-1]["data"]["reason"] == "enough"
        assert (await server.http("POST", f"{place}/stop"))[0] == 409
        assert (await server.http("POST", f"{place}/say", {"text": "x"}))[0] == 409
        status, _, resumed = await server.http("POST", f"{place}/resume")
        assert status == 201
        assert (await _events(server, resumed["run"]))[-1]["data"]["type"] == "run_completed"
        assert (await server.http("PATCH", place, {"title": "Mine"}))[0] == 200
        _, _, session = await server.http("GET", place)
        message = next(message["id"] for message in session["messages"] if message["kind"] == "user")
        status, _, forked = await server.http("POST", f"{place}/fork", {"at_message": message})
        assert status == 201
        _, _, copy = await server.http("GET", f"/api/sessions/{forked['session']}")
        assert len(copy["messages"]) == 1
        assert (await server.http("POST", f"{place}/fork", {"at_message": "x"}))[0] == 404
        assert (await server.http("DELETE", place))[0] == 200
        assert (await server.http("GET", place))[0] == 404


async def test_f098_a_failed_run_says_so_and_no_more(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(RuntimeError("password=hunter2 at 10.0.0.7"))
    async with serve(Agent(model)) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        records = await _events(server, started["run"])
        last = records[-1]["data"]
        assert last["type"] == "run_failed"
        assert last["error"] == {"type": "RuntimeError", "message": "the server's log says more"}
        assert "hunter2" not in str(records)
        assert "Traceback" not in str(records)
        assert not [record for record in records if record["data"]["type"] == "run_completed"]
    assert "hunter2" in caplog.text
    async with serve(Agent(ScriptedModel(RuntimeError("shown"))), settings=WebSettings(show_errors=True)) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        assert (await _events(server, started["run"]))[-1]["data"]["error"]["message"] == "shown"


async def test_bodies_that_cannot_be_used(serve: Serve) -> None:
    settings = WebSettings(limits=WebLimits(body_bytes=1000))
    async with serve(Agent(ScriptedModel("x")), settings=settings) as server:
        for raw in (
            b"{",
            b"[]",
            b"3",
            b'{"text": 5}',
            b'{"text": ""}',
            b'{"text": "x", "more": 1}',
            b"[" * 900,
            b"\xff\xfe",
        ):
            status, _, problem = await server.http("POST", "/api/runs", raw=raw)
            assert (status, problem["code"]) == (422, "bad_message"), raw
        assert (await server.http("POST", "/api/runs", raw=b"x" * 2000))[0] == 413
        chunked = {"transfer-encoding": "chunked", "content-type": "application/json"}
        body = b"".join(b"64\r\n" + b"x" * 100 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
        head = "".join(
            f"{name}: {value}\r\n" for name, value in {"host": f"127.0.0.1:{server.port}", **chunked}.items()
        )
        assert await _raw_status(server.port, f"POST /api/runs HTTP/1.1\r\n{head}\r\n".encode() + body) == 413
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert (await server.http("POST", "/api/runs", raw=b'{"text":"x"}', headers=form))[0] == 422
        assert (await server.http("GET", "/api/runs/none/events"))[0] == 404
        status, _, problem = await server.http("GET", "/api/nothing")
        text = "there is no such path; api/openapi.json has those there are"
        assert (status, problem) == (404, {"code": "not_found", "message": text})
        status, headers, problem = await server.http("DELETE", "/api/runs")
        text = "DELETE is not for this path; it takes POST"
        assert (status, problem) == (405, {"code": "bad_message", "message": text})
        assert headers["allow"] == "POST"
        assert not server.web.runs.running()


async def _raw_status(port: int, request: bytes) -> int:
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_the_documents_it_publishes(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("x"))) as server:
        status, _, document = await server.http("GET", "/api/openapi.json")
        assert (status, document["openapi"]) == (200, "3.1.0")
        status, _, schema = await server.http("GET", "/api/protocol.json")
        assert (status, schema["protocol"]) == (200, 1)
        status, _, me = await server.http("GET", "/api/me")
        assert me == {"principal": "local", "agent": "agent", "protocol": 1}
        served = {
            (method.lower(), route.path)
            for route in server.web.api.routes()
            for method in route.methods
            if method != "HEAD" and route.path != "/api/openapi.json"
        }
    described = {(method, path) for path, methods in openapi_document()["paths"].items() for method in methods}
    assert described == served
    text = str(openapi_document())
    names = {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(openapi_document()["components"]["schemas"])


async def test_what_has_completed_is_not_taken_up_again(serve: Serve) -> None:
    agent = Agent(ScriptedModel("hello there"))
    async with serve(agent) as server:
        _, _, started = await server.http("POST", "/api/runs", {"text": "hi"})
        session = started["session"]
        await _events(server, started["run"])
        status, _, refused = await server.http("POST", f"/api/sessions/{session}/resume")
        assert (status, refused["code"]) == (409, "not_resumable")
        version = (await agent.store.load(session)).version
        undone = ViewReplaced(run_id="", messages=(), undoes=True)
        async with agent.store.lease(session, ttl_seconds=30) as lease:
            await agent.store.append(session, [undone], expected_version=version, lease=lease)
        status, _, refused = await server.http("POST", f"/api/sessions/{session}/resume")
        assert (status, refused["code"]) == (409, "not_resumable")
        _, _, stored = await server.http("GET", f"/api/sessions/{session}")
        assert stored["resumable"] is False
