"""Questions that go to a client, and replies that come back: each to exactly its question, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from trilane import (
    Agent,
    Ask,
    InMemoryStore,
    RunContext,
    RuntimeQueues,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    hookimpl,
    tool,
)
from trilane.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]
ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    ran.append(amount)
    return f"paid {amount}"


@tool
async def ask_age(ctx: ToolContext[Any]) -> str:
    """Ask."""
    return f"age {await ctx.ask('How old?', int)}"


def _agent(*script: Any) -> Agent[None, str]:
    return Agent(ScriptedModel(*script), tools=[pay, ask_age])


async def _question(wire: Any, **options: Any) -> tuple[str, str, str]:
    """Start a run and read to its question: session, run, question."""
    answer = await wire.ask("start", text="go", **options)
    event = await wire.read_to(answer["run"], "reply_requested")
    await wire.send("ack", run=answer["run"], seq=event["seq"])
    return answer["session"], answer["run"], event["question"]["id"]


def _user(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


async def test_an_approval_with_edited_arguments(serve: Serve) -> None:
    async with serve(_agent(call("pay", amount=1000), "ok")) as server, server.wire() as wire:
        session, run, question = await _question(wire)
        payload = {"approve": True, "arguments": {"amount": 7}}
        receipt = await wire.ask("reply", session=session, question=question, payload=payload)
        assert receipt["status"] == "accepted"
        events = await wire.read_run(run)
        assert ran == [7]
        (received,) = [event for event in events if event["type"] == "reply_received"]
        assert received["receipt"]["status"] == "accepted"


async def test_a_denial(serve: Serve) -> None:
    async with serve(_agent(call("pay", amount=1000), "as you wish")) as server, server.wire() as wire:
        session, run, question = await _question(wire)
        await wire.ask("reply", session=session, question=question, payload={"approve": False, "reason": "too much"})
        events = await wire.read_run(run)
        assert ran == []
        (completed,) = [event for event in events if event["type"] == "tool_completed"]
        assert completed["result"]["outcome"] == "denied"
        assert "too much" in completed["result"]["content"]


async def test_invalid_then_accepted_then_duplicate_then_unknown(serve: Serve) -> None:
    async with serve(_agent(call("ask_age"), "ok")) as server, server.wire() as wire:
        session, run, question = await _question(wire)
        invalid = await wire.ask("reply", session=session, question=question, payload="old")
        assert invalid["status"] == "invalid"
        assert invalid["reasons"]
        assert (await wire.ask("reply", session=session, question=question, payload=41))["status"] == "accepted"
        assert (await wire.ask("reply", session=session, question=question, payload=42))["status"] == "duplicate"
        assert (await wire.ask("reply", session=session, question="nothing", payload=1))["status"] == "unknown"
        events = await wire.read_run(run)
        (completed,) = [event for event in events if event["type"] == "tool_completed"]
        assert completed["result"]["content"] == "age 41"
        assert (await wire.ask("reply", session=session, question=question, payload=1))["status"] == "duplicate"


async def test_a_late_reply_is_expired(serve: Serve) -> None:
    async with serve(_agent(call("ask_age"), "ok")) as server, server.wire() as wire:
        session, run, question = await _question(wire)
        await wire.ask("stop", session=session)
        assert (await wire.read_run(run))[-1]["type"] == "run_cancelled"
        assert (await wire.ask("reply", session=session, question=question, payload=1))["status"] == "expired"


async def test_a_reply_to_the_wrong_session(serve: Serve) -> None:
    async with serve(_agent(call("pay", amount=1), call("pay", amount=2), "ok", "ok")) as server, server.wire() as wire:
        first, _, question = await _question(wire)
        second, _, _ = await _question(wire)
        yes = {"approve": True}
        assert (await wire.ask("reply", session=second, question=question, payload=yes))["status"] == "wrong_session"
        assert ran == []
        assert (await wire.ask("reply", session=first, question=question, payload=yes))["status"] == "accepted"


async def test_two_tabs_answer_at_once_and_one_is_accepted(serve: Serve) -> None:
    for _ in range(10):
        ran.clear()
        async with serve(_agent(call("pay", amount=5), "ok")) as server:
            async with server.wire(client="one") as one, server.wire(client="two") as two:
                session, run, question = await _question(one)
                await two.ask("watch", session=session, run=run)
                await two.until_event(run, "reply_requested")
                statuses = [
                    answer["status"]
                    for answer in await asyncio.gather(
                        *(
                            tab.ask("reply", session=session, question=question, payload={"approve": True})
                            for tab in (one, two)
                        )
                    )
                ]
                assert sorted(statuses) == ["accepted", "duplicate"]
                await one.read_run(run)
                await two.until_event(run, "reply_received")
                assert ran == [5]


async def test_another_user_can_do_nothing_with_a_session(serve: Serve) -> None:
    """Whatever is asked, the answer is that there is no such thing."""
    script = (call("pay", amount=5), "ok")
    async with serve(_agent(*script), authenticate=_user) as server:
        async with server.wire(headers={"x-user": "ann"}) as ann, server.wire(headers={"x-user": "bob"}) as bob:
            session, run, question = await _question(ann)
            own = (await bob.ask("watch", session="x" + session))["code"]
            assert own == "not_found"
            for kind, fields in (
                ("reply", {"question": question, "payload": {"approve": True}}),
                ("steer", {"text": "give it to bob"}),
                ("follow_up", {"text": "give it to bob"}),
                ("stop", {}),
                ("watch", {}),
                ("watch", {"run": run}),
                ("resume", {}),
                ("start", {"text": "go on"}),
            ):
                answer = await bob.ask(kind, session=session, **fields)
                assert answer["code"] == "not_found", kind
                assert "ann" not in answer["message"]
            await bob.send("ack", run=run, seq=3)
            await bob.ask("ping")
            assert run not in bob.events
            assert ran == []
            for method, path, body in (
                ("GET", f"/api/sessions/{session}", None),
                ("DELETE", f"/api/sessions/{session}", None),
                ("PATCH", f"/api/sessions/{session}", {"title": "mine"}),
                ("POST", f"/api/sessions/{session}/fork", {}),
                ("POST", f"/api/sessions/{session}/stop", {}),
                ("POST", f"/api/sessions/{session}/resume", {}),
                ("POST", f"/api/sessions/{session}/say", {"text": "x"}),
                ("POST", f"/api/sessions/{session}/replies/{question}", {"payload": {"approve": True}}),
                ("GET", f"/api/runs/{run}/events", None),
                ("POST", f"/api/runs/{run}/ack", {"seq": 1}),
            ):
                status, _, value = await server.http(method, path, body, headers={"x-user": "bob"})
                assert (status, value["code"]) == (404, "not_found"), path
            status, _, listing = await server.http("GET", "/api/sessions", headers={"x-user": "bob"})
            assert (status, listing["sessions"]) == (200, [])
            await ann.ask("reply", session=session, question=question, payload={"approve": True})
            assert (await ann.read_run(run))[-1]["type"] == "run_completed"
            _, _, listing = await server.http("GET", "/api/sessions", headers={"x-user": "ann"})
            assert [found["id"] for found in listing["sessions"]] == [session]


async def test_a_tool_without_a_handler_is_answered_by_the_client(serve: Serve) -> None:
    outside = Tool.external(name="locate", description="Where the user is.", parameters={"type": "object"})
    async with serve(Agent(ScriptedModel(call("locate"), "ok"), tools=[outside])) as server, server.wire() as wire:
        session, run, question = await _question(wire)
        assert (await wire.ask("reply", session=session, question=question, payload="Rome"))["status"] == "accepted"
        events = await wire.read_run(run)
        (completed,) = [event for event in events if event["type"] == "tool_completed"]
        assert completed["result"]["content"] == "Rome"


async def test_or_by_an_event_agent_on_the_servers_queues(serve: Serve) -> None:
    """The calls go out on `events` and the results come in on `input`; the client sees the same events."""
    outside = Tool.external(name="locate", description="Where the user is.", parameters={"type": "object"})
    made: list[RuntimeQueues] = []

    def queues() -> RuntimeQueues:
        made.append(RuntimeQueues())
        return made[-1]

    async def event_agent(lanes: RuntimeQueues) -> None:
        while True:
            event = await lanes.events.get()
            await lanes.input.put(ToolResult(call_id=event.call.id, content="Oslo"))

    agent = Agent(ScriptedModel(call("locate"), "ok"), tools=[outside])
    async with serve(agent, event_agent=event_agent, queues=queues) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        events = await wire.read_run(run)
        (completed,) = [event for event in events if event["type"] == "tool_completed"]
        assert completed["result"]["content"] == "Oslo"
        assert made[0].empty


class Careful:
    """Asks before any tool that pays, in words of its own."""

    name = "careful"

    @hookimpl
    def decide_tool(self, run: RunContext[Any], call: ToolCall) -> Ask | None:
        return Ask(prompt=f"Pay {call.arguments['amount']}?") if call.name == "transfer" else None


@tool
def transfer(amount: int) -> str:
    """Transfer."""
    ran.append(amount)
    return f"transferred {amount}"


async def test_a_question_of_a_plugin_reaches_the_client_and_its_reply_that_call_alone(serve: Serve) -> None:
    """Two calls at once, answered in the other order; what was edited is decided again, with the approval."""
    script = ([call("transfer", amount=1), call("transfer", amount=2)], "ok")
    agent = Agent(ScriptedModel(*script), tools=[transfer], plugins=[Careful()])
    async with serve(agent) as server, server.wire() as wire:
        started = await wire.ask("start", text="go")
        run, session = started["run"], started["session"]
        await wire.read_to(run, "reply_requested")
        while len(questions := [one["question"] for one in wire.events[run] if one["type"] == "reply_requested"]) < 2:
            await wire.next()
        assert [(one["prompt"], one["asked_by"], one["kind"]) for one in questions] == [
            ("Pay 1?", "careful", "approval"),
            ("Pay 2?", "careful", "approval"),
        ]
        second = {"approve": True, "arguments": {"amount": 20}}
        assert (await wire.ask("reply", session=session, question=questions[1]["id"], payload=second))[
            "status"
        ] == "accepted"
        first = {"approve": False, "reason": "no"}
        assert (await wire.ask("reply", session=session, question=questions[0]["id"], payload=first))[
            "status"
        ] == "accepted"
        events = await wire.read_run(run)
        results = {
            event["call"]["arguments"]["amount"]: event["result"]
            for event in events
            if event["type"] == "tool_completed"
        }
        assert {amount: result["outcome"] for amount, result in results.items()} == {1: "denied", 20: "ok"}
        assert ran == [20]
        received = {
            event["question_id"]: event["receipt"]["status"] for event in events if event["type"] == "reply_received"
        }
        assert received == {question["id"]: "accepted" for question in questions}


async def test_after_a_restart_every_reply_is_what_it_was_before(serve: Serve) -> None:
    """Two users, one store: early, somebody else's, wrong session, invalid, accepted, duplicate, late."""
    store, yes = InMemoryStore(), {"approve": True}
    async with serve(
        Agent(ScriptedModel(call("pay", amount=5)), tools=[pay], store=store), authenticate=_user
    ) as server:
        async with server.wire(headers={"x-user": "ann"}) as ann:
            session, _, question = await _question(ann)
            await server.web.drain()
    script = (call("pay", amount=6), "ok", call("ask_age"))
    agent = Agent(ScriptedModel(*script), tools=[pay, ask_age], store=store)
    async with serve(agent, authenticate=_user) as server:
        async with server.wire(headers={"x-user": "ann"}) as ann, server.wire(headers={"x-user": "bob"}) as bob:

            async def reply(wire: Any, where: str, which: str, payload: Any) -> str:
                answer = await wire.ask("reply", session=where, question=which, payload=payload)
                return str(answer.get("status") or answer["code"])

            assert await reply(ann, session, question, yes) == "unknown", "nobody waits for it yet"
            assert await reply(bob, session, question, yes) == "not_found"
            assert (await bob.ask("resume", session=session))["code"] == "not_found"
            other, _, _ = await _question(bob)
            resumed = await ann.ask("resume", session=session)
            again = await ann.read_to(resumed["run"], "reply_requested")
            assert again["question"]["id"] == question
            assert await reply(bob, session, question, yes) == "not_found"
            assert await reply(bob, other, question, yes) == "wrong_session"
            assert await reply(ann, session, question, {"approve": "perhaps"}) == "invalid"
            assert ran == []
            assert await reply(ann, session, question, yes) == "accepted"
            assert await reply(ann, session, question, yes) == "duplicate"
            events = await ann.read_run(resumed["run"])
            assert events[-1]["type"] == "run_completed"
            assert ran == [5]
            late, run, asked = await _question(ann)
            await ann.ask("stop", session=late)
            await ann.read_run(run)
            assert await reply(ann, late, asked, 41) == "expired"
            assert await reply(ann, session, question, yes) == "duplicate"
