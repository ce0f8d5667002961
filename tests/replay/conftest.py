"""Recorded sessions and replays of them: what the tests of replaying share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from trilane import Agent, InMemoryStore, hookimpl, tool
from trilane.decisions import Replace, Rewrite
from trilane.errors import ToolError
from trilane.messages import TextPart
from trilane.models import ModelRequest, ModelResponse
from trilane.replay import Difference, Replay
from trilane.testing import ScriptedModel, call


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(effect="read")
def look(place: str) -> str:
    """Look somewhere."""
    ran.append(place)
    return f"a ship at {place}"


@tool
def break_it() -> str:
    """Break."""
    ran.append("broken")
    raise ToolError("it is broken")


class Unreachable:
    """A model that must not be called."""

    name = "unreachable"

    async def call(self, request: ModelRequest, emit: Any) -> ModelResponse:
        raise AssertionError("a replay asked a model")


async def recorded(
    script: Sequence[Any], *, tools: Sequence[Any] = (look, break_it), plugins: Sequence[Any] = (), **options: Any
) -> InMemoryStore:
    """A store with a session `s` of one replayable run."""
    store = InMemoryStore()
    agent = Agent(ScriptedModel(*script), tools=tools, plugins=plugins, store=store, replayable=True)
    try:
        await agent.run("Where is the ship?", session="s", **options)
    except Exception:
        assert (await store.load("s")).records[-1].kind == "run_ended"
    ran.clear()
    return store


async def replay(
    store: Any, *, tools: Sequence[Any] = (look, break_it), plugins: Sequence[Any] = (), **options: Any
) -> Replay:
    before = await store.load("s")
    found = await Agent(Unreachable(), tools=tools, plugins=plugins, store=store).replay("s", **options)
    assert await store.load("s") == before, "a replay only reads"
    assert ran == []
    return found


def named(name: str, **hooks: Any) -> Any:
    """A plugin of that name with these hooks."""
    return type(name, (), {"name": name, **{hook: hookimpl(function) for hook, function in hooks.items()}})()


def first(found: Replay) -> Difference:
    assert found.difference is not None
    return found.difference


SCRIPT = (call("look", call_id="c1", place="sea"), "A ship.")


def all_hooks() -> Any:
    """A plugin that changes something wherever it can."""

    async def around_tool(self: Any, run: Any, call: Any, call_next: Any) -> Any:
        result = await call_next()
        return result.replace(content=f"around({result.content})")

    async def around_model(self: Any, run: Any, request: Any, call_next: Any) -> Any:
        response = await call_next(request.with_context("be brief"))
        return response if response.parts is None else response.replace(extra={"seen": True})

    return named(
        "busy",
        on_message=lambda self, run, message: message.replace(
            parts=(*message.parts, TextPart(text=f"({len(message.parts)})"))
        ),
        on_model_request=lambda self, run, request: request.replace(instructions=f"turn {request.turn}"),
        around_model=around_model,
        on_delta=lambda self, run, delta, final: delta.replace(text=delta.text.upper()),
        after_model=lambda self, run, response: response.replace(model="mine"),
        decide_tool=lambda self, run, call: Rewrite(arguments={**call.arguments, "place": "lake"}),
        around_tool=around_tool,
        after_tool=lambda self, run, call, result: result.replace(content=f"after({result.content})"),
        on_answer=lambda self, run, message, output: Replace(output=f"{output}!") if "!" not in output else None,
        before_run=lambda self, run: None,
        before_turn=lambda self, run, turn: None,
        before_tool=lambda self, run, call: None,
        after_turn=lambda self, run, turn, message: None,
        after_run=lambda self, run, result: None,
        on_success=lambda self, run, result: None,
        on_event=lambda self, run, notification: None,
        close_run=lambda self, run, status: None,
    )
