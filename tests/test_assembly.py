"""A message while it is streamed: which part of it each event belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from trilane import Agent, Delta, hookimpl, tool
from trilane.testing import EventRecorder, ScriptedModel, Step, record

pytestmark = pytest.mark.anyio


@tool
async def look(text: str = "") -> str:
    """Look."""
    return "a ship"


def opened(call_id: str, index: int) -> Delta:
    return Delta(kind="arguments", index=index, call_id=call_id, name="look")


async def played(deltas: Sequence[Delta], plugins: Sequence[Any] = ()) -> tuple[EventRecorder, Any]:
    model = ScriptedModel(Step(deltas=deltas, returns=False), "Done.")
    async with Agent(model, tools=[look], plugins=plugins).stream("Go") as run:
        events = await record(run)
    events.check()
    return events, run


def parts(events: EventRecorder) -> list[tuple[str, int]]:
    """Type and index of everything the first message was shown with, up to its end."""
    end = [event.type for event in events.events].index("message_completed")
    return [(event.type, event.index) for event in events.events[:end] if hasattr(event, "index")]


async def test_an_index_that_comes_again_after_a_call_is_another_part() -> None:
    events, run = await played(
        [
            Delta(text="One.", index=0),
            opened("a", 1),
            Delta(kind="arguments", text="{}", index=1),
            Delta(text="Two.", index=0),
            Delta(text=" Three.", index=0),
        ]
    )
    assert parts(events) == [
        ("text_started", 0),
        ("text_delta", 0),
        ("text_completed", 0),
        ("tool_call_delta", 1),
        ("tool_call_delta", 1),
        ("text_started", 2),
        ("text_delta", 2),
        ("text_delta", 2),
        ("text_completed", 2),
    ]
    assert [part.kind for part in run.result.messages[1].parts] == ["text", "tool_call", "text"]


async def test_calls_that_share_an_index_are_parts_of_their_own() -> None:
    events, run = await played(
        [
            opened("a", 0),
            Delta(kind="arguments", text="{}", index=0),
            opened("b", 0),
            Delta(kind="arguments", text="{}", index=0),
        ]
    )
    assert [index for _, index in parts(events)] == [0, 0, 1, 1]
    assert [call.id for call in run.result.messages[1].calls] == ["a", "b"]


async def test_calls_that_are_streamed_by_turns_keep_their_parts() -> None:
    events, run = await played(
        [
            Delta(kind="reasoning", text="Hm.", index=3),
            opened("a", 4),
            opened("b", 5),
            Delta(kind="arguments", text='{"text": ', index=4),
            Delta(kind="arguments", text='{"text": ', index=5),
            Delta(kind="arguments", text='"x"}', index=4),
            Delta(kind="arguments", text='"y"}', index=5),
        ]
    )
    assert [index for kind, index in parts(events) if kind == "tool_call_delta"] == [1, 2, 1, 2, 1, 2]
    assert [call.arguments["text"] for call in run.result.messages[1].calls] == ["x", "y"]


async def test_parts_are_counted_as_they_are_shown_when_a_hook_changes_them() -> None:
    class Doubling:
        name = "doubling"

        @hookimpl
        def on_delta(self, delta: Delta, final: bool) -> Sequence[Delta] | None:
            return None if final or delta.kind != "text" else [delta, delta.replace(kind="reasoning")]

    events, _ = await played([Delta(text="One.", index=0), opened("a", 1), Delta(text="Two.", index=0)], [Doubling()])
    starts = [(kind, index) for kind, index in parts(events) if kind.endswith("_started") or kind == "tool_call_delta"]
    assert starts == [
        ("text_started", 0),
        ("reasoning_started", 1),
        ("tool_call_delta", 2),
        ("text_started", 3),
        ("reasoning_started", 4),
    ]
