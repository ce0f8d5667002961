"""Whatever comes up a connection or in a request: never a failure of the server, never another session's data.

A sample is sent by every run of the tests, always the same. The whole, and another one each time:

    TRILANE_FUZZ_MESSAGES=10000 uv run pytest plugins/trilane-web/tests/test_fuzz.py
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from trilane import Agent, ModelResponse, ToolCallPart, tool
from trilane.testing import FunctionModel, call
from trilane_web import WebLimits, WebSettings
from trilane_web.protocol import BadMessage, parse_up

Serve = Callable[..., Any]

SECRET = "the secret of ann"
KINDS = (
    "hello",
    "start",
    "resume",
    "watch",
    "unwatch",
    "ack",
    "reply",
    "steer",
    "follow_up",
    "stop",
    "ping",
    "pong",
    "x",
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
#: Stand for what belongs to another user, and are put in when the test knows it.
places = st.sampled_from(["SESSION", "RUN", "QUESTION", "own", "", "a.b"])
fields = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "id": st.text(max_size=5) | values,
        "session": places | values,
        "run": places | values,
        "question": places | values,
        "seq": st.integers(-5, 5000) | values,
        "after": st.integers(-5, 5000) | values,
        "text": st.text(max_size=20) | values,
        "payload": values,
        "protocol": st.integers(0, 3) | values,
        "acknowledgement": st.sampled_from(["strict", "windowed", "detached"]) | values,
        "when": st.sampled_from(["now", "boundary"]) | values,
        "key": st.text(max_size=3),
        "lanes": st.booleans(),
    },
)
EACH = 50  # messages of one example, and a fifth as many requests
MESSAGES = int(os.environ.get("TRILANE_FUZZ_MESSAGES", "0"))
PATHS = [
    "/api/me",
    "/api/sessions",
    "/api/sessions/SESSION",
    "/api/sessions/SESSION/fork",
    "/api/sessions/SESSION/resume",
    "/api/sessions/SESSION/say",
    "/api/sessions/SESSION/stop",
    "/api/sessions/SESSION/replies/QUESTION",
    "/api/sessions/own/replies/QUESTION",
    "/api/sessions/own/fork",
    "/api/runs",
    "/api/runs/RUN/ack",
    "/api/openapi.json",
    "/ws",
    "/nothing",
]
messages = st.lists(
    fields.map(json.dumps) | values.map(json.dumps) | st.text(max_size=40), min_size=EACH, max_size=EACH
)
requests = st.lists(
    st.tuples(
        st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT"]),
        st.sampled_from(PATHS),
        fields.map(json.dumps) | values.map(json.dumps) | st.text(max_size=40),
    ),
    min_size=EACH // 5,
    max_size=EACH // 5,
)


@given(st.text() | fields.map(json.dumps))
def test_parsing_raises_nothing_else(text: str) -> None:
    try:
        parse_up(text)
    except BadMessage as error:
        reason = str(error)
    else:
        reason = "none"
    assert reason


@tool(approval=True)
def act() -> str:
    """Act."""
    return SECRET


def _model(request: Any, emit: Any) -> Any:
    said = request.messages[-1]
    if SECRET not in getattr(said, "text", ""):
        return "hello"
    return ModelResponse(parts=(ToolCallPart(call=call("act")),), stop_reason="tool_calls")


def _who(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


@settings(
    max_examples=max(1, (MESSAGES or 500) // EACH),
    derandomize=not MESSAGES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink what takes a server each time takes too long
    suppress_health_check=list(HealthCheck),
)
@given(sequence=messages, asked=requests)
def test_what_another_user_sends(
    serve: Serve, caplog: pytest.LogCaptureFixture, sequence: list[str], asked: list[tuple[str, str, str]]
) -> None:
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        asyncio.run(_attack(serve, sequence, asked))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def _attack(serve: Serve, sequence: list[str], asked: list[tuple[str, str, str]]) -> None:
    limits = WebLimits(bad_messages=1000, message_burst=100_000)
    agent = Agent(FunctionModel(_model), tools=[act])
    async with serve(agent, authenticate=_who, settings=WebSettings(limits=limits)) as server:
        async with server.wire(headers={"x-user": "ann"}) as ann, server.wire(headers={"x-user": "bob"}) as bob:
            started = await ann.ask("start", text=SECRET)
            event = await ann.read_to(started["run"], "reply_requested")
            names = {"SESSION": started["session"], "RUN": started["run"], "QUESTION": event["question"]["id"]}
            await ann.ask("ping")  # so that what ann has acknowledged has arrived
            before = server.web.runs.active(started["session"]).gate.acknowledged

            def filled(text: str) -> str:
                for name, value in names.items():
                    text = text.replace(name, value)
                return text

            for text in sequence:
                await bob.socket.send(filled(text))
            for method, path, body in asked:
                headers = {"x-user": "bob", "content-type": "application/json"}
                raw = filled(body).encode("utf-8", "surrogatepass")
                status, _, answer = await server.http(method, filled(path), headers=headers, raw=raw)
                assert status < 500, (method, path, body)
                assert SECRET not in json.dumps(answer)
            assert (await bob.ask("ping"))["type"] == "pong"
            told = json.dumps(bob.seen)
            assert SECRET not in told
            assert names["RUN"] not in bob.events
            assert '"code": "failed"' not in told
            live = server.web.runs.active(started["session"])
            assert live is not None
            assert live.gate.acknowledged == before
            assert len(agent.questions(started["session"])) == 1
