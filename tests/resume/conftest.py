"""Sessions that were cut off, and taking them up again: what the tests of resuming share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, ToolContext, tool
from trilane.events import ToolCompleted
from trilane.stores import SessionPage, SessionRecord
from trilane.testing import EventRecorder, ScriptedModel, assert_history, no_leaks


class PlainStore:
    """A store that has to be awaited and knows nothing beyond the protocol."""

    def __init__(self) -> None:
        self.inner = InMemoryStore()
        self.lease = self.inner.lease
        self.writes: list[tuple[SessionRecord, ...]] = []

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        await anyio.lowlevel.checkpoint()
        return await self.inner.load(session, after=after, limit=limit)

    async def append(self, session: str, records: Sequence[SessionRecord], **options: Any) -> int:
        await anyio.lowlevel.checkpoint()
        version = await self.inner.append(session, records, **options)
        self.writes.append(tuple(records))
        return version


@pytest.fixture(params=[InMemoryStore, PlainStore])
def make_store(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return request.param  # type: ignore[no-any-return]


async def killed(store: Any, make_store: Callable[[], Any], *, keep: int | None = None) -> Any:
    """A store with what a process that was killed now would have left of session `s`; of it, the first `keep`."""
    page = await store.load("s")
    twin = make_store()
    async with twin.lease("s", ttl_seconds=30) as lease:
        await twin.append("s", page.records[:keep], expected_version=0, lease=lease)
    return twin


async def cut_off(
    make_store: Callable[[], Any],
    script: Sequence[Any],
    tools: Sequence[Any],
    *,
    at: str = "",
    until: anyio.Event | None = None,
    plugins: Sequence[Any] = (),
    replies: Sequence[Any] = (),
) -> Any:
    """What is stored when a run is killed: while the event `at` is held, or once `until` was set."""
    store = make_store()
    agent = Agent(ScriptedModel(*script), tools=tools, plugins=plugins, store=store)
    left = list(replies)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == at and not left:
                return await killed(store, make_store)
            if event.type == "reply_requested" and left:
                run.reply(event.question.id, left.pop(0))
            if event.type == "tool_started" and until is not None:
                async with anyio.create_task_group() as group:
                    group.start_soon(read_on, run)
                    await until.wait()
                    twin = await killed(store, make_store)
                    group.cancel_scope.cancel()
                return twin
    raise AssertionError(f"{at} never came")


async def read_on(run: Any) -> None:
    async for _ in run:
        pass


async def resumed(
    store: Any, script: Sequence[Any], tools: Sequence[Any], *replies: Any, plugins: Sequence[Any] = ()
) -> tuple[EventRecorder, Any, ScriptedModel]:
    """Resume session `s` and read it to its end."""
    model = ScriptedModel(*script)
    events, left = EventRecorder(), list(replies)
    async with no_leaks():
        async with Agent(model, tools=tools, plugins=plugins, store=store).resume("s") as run:
            async for event in run:
                events.events.append(event)
                if event.type == "reply_requested":
                    assert run.reply(event.question.id, left.pop(0)).status == "accepted"
    events.check()
    assert_history(run.result.messages)
    model.assert_finished()
    assert left == []
    return events, run, model


async def records(store: Any, kind: type[Any]) -> list[Any]:
    return [one for one in (await store.load("s")).records if isinstance(one, kind)]


def contents(events: EventRecorder) -> list[Any]:
    return [event.result.content for event in events.of(ToolCompleted)]


def endless(began: anyio.Event, seen: list[tuple[str, int]], **options: Any) -> Any:
    """A tool that never comes back the first time, and does the second time."""

    @tool(**options)
    async def work(ctx: ToolContext, what: str = "") -> str:
        """Work."""
        seen.append((ctx.key, ctx.attempt))
        if len(seen) == 1:
            began.set()
            await anyio.sleep_forever()
        return "worked"

    return work


@tool(approval=True)
async def delete(path: str) -> str:
    """Delete."""
    return f"deleted {path}"


async def add(store: Any, *more: SessionRecord) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        await store.append("s", more, expected_version=(await store.load("s")).version, lease=lease)


def asking(began: anyio.Event, **options: Any) -> Any:
    @tool(**options)
    async def interview(ctx: ToolContext) -> str:
        """Ask three things, and never come back the first time."""
        try:
            first = await ctx.ask("First?", timeout=0 if ctx.attempt == 1 else None)
        except TimeoutError:
            first = "nothing"
        second = await ctx.ask("Second?", int)
        if ctx.attempt == 1:
            began.set()
            await anyio.sleep_forever()
        return f"{first}, {second}, {await ctx.ask('Third?')}"

    return interview
