"""Queues that say what goes through them, and the record of it that the page draws.

It only looks: the run takes the same path as with queues that nobody watches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, TypeVar

from trilane import Event, LaneQueue, Reply, RuntimeQueues, ToolCallEvent, ToolResult, UserMessage
from trilane.channels import AgentEventQueue

__all__ = ["Watch"]

T = TypeVar("T")

KEPT = 2000  # steps; who comes later misses what was before
WAIT_SECONDS = 1.0


class Watch:
    """What went through the queues of all runs, in one order.

    Attributes:
        runs: How many runs there were.
    """

    def __init__(self) -> None:
        self.runs = 0
        self._steps: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._count = 0
        self._news = asyncio.Event()

    def queues(self) -> RuntimeQueues:
        """The queues of another run."""
        self.runs += 1
        note = _Note(self, self.runs)
        return RuntimeQueues(
            input=_Lane("input", (UserMessage, ToolResult, Reply), note),
            output=_Output(note),
            events=_Lane("events", (ToolCallEvent,), note),
        )

    def note(self, run: int, lane: str, step: str, item: object, waiting: int) -> None:
        """Something was put on a lane, or taken off."""
        self._count += 1
        kind, text = _described(item)
        self._steps.append(
            {"n": self._count, "run": run, "lane": lane, "step": step, "kind": kind, "text": text, "waiting": waiting}
        )
        self._news.set()

    async def after(self, number: int) -> list[dict[str, Any]]:
        """The steps after that one: at once if there are any, else after a moment."""
        if number >= self._count:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), WAIT_SECONDS)
            except TimeoutError:
                return []
        return [step for step in self._steps if step["n"] > number]


class _Note:
    """Where the queues of one run write down their steps."""

    def __init__(self, watch: Watch, run: int) -> None:
        self._watch = watch
        self._run = run

    def __call__(self, lane: str, step: str, item: object, waiting: int) -> None:
        self._watch.note(self._run, lane, step, item, waiting)


class _Lane(LaneQueue[T]):
    def __init__(self, name: str, accepts: tuple[type, ...], note: _Note) -> None:
        super().__init__(name, accepts=accepts)
        self._note = note

    def put_nowait(self, item: T) -> None:
        if not self.closed:
            self._note(self.name, "put", item, len(self) + 1)  # first: the run may take it while it is being put
        super().put_nowait(item)

    async def get(self) -> T:
        item = await super().get()
        self._note(self.name, "take", item, len(self))
        return item

    def remove(self, item: T) -> bool:
        found = super().remove(item)
        if found:
            self._note(self.name, "take", item, len(self))
        return found

    def drain(self) -> tuple[T, ...]:
        items = super().drain()
        for item in items:
            self._note(self.name, "take", item, 0)
        return items


class _Output(AgentEventQueue[Event]):
    __slots__ = ("_note", "_waiting")

    def __init__(self, note: _Note) -> None:
        super().__init__()
        self._note = note
        self._waiting = 0

    async def put(self, *events: Event) -> None:
        self._see(events)
        await super().put(*events)

    def put_nowait(self, *events: Event) -> None:
        self._see(events)
        super().put_nowait(*events)

    async def __anext__(self) -> Event:
        event = await super().__anext__()
        self._waiting -= 1
        self._note("output", "take", event, self._waiting)
        return event

    def _see(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self._waiting += 1
            self._note("output", "put", event, self._waiting)


def _described(item: object) -> tuple[str, str]:
    """What it is, and what it says, for a person."""
    if isinstance(item, UserMessage):
        return "message", item.text[:200]
    if isinstance(item, ToolCallEvent):
        arguments = ", ".join(f"{name}={value}" for name, value in item.call.arguments.items())
        return "call", f"{item.call.name}({arguments})"[:200]
    if isinstance(item, ToolResult):
        return "result", str(item.content)[:200]
    if isinstance(item, Reply):
        return "reply", str(item.payload)[:200]
    return "event", str(getattr(item, "type", type(item).__name__))
