"""A store that has to be waited for, while many tools of a run ask, tell and report at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, Tool, ToolContext, hookimpl, tool
from trilane.events import ExtensionEvent
from trilane.stores import Lease, SessionPage, SessionRecord
from trilane.testing import ScriptedModel, call, run_virtual
from trilane.testing.clock import Backend
from trilane.testing.faults.promises import keep, told_of

SEEDS = range(24)


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    return found


class WaitingStore:
    """A store that takes a second for each write, or what a random number says."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.inner = InMemoryStore()
        self.chance = chance
        self.stored: set[tuple[str, str]] = set()

    def lease(self, session: str, *, ttl_seconds: float) -> AbstractAsyncContextManager[Lease]:
        return self.inner.lease(session, ttl_seconds=ttl_seconds)

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        return await self.inner.load(session, after=after, limit=limit)

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        await anyio.sleep(1 if self.chance is None else self.chance.choice([0, 0.1, 1, 2, 3]))
        version = await self.inner.append(session, records, expected_version=expected_version, lease=lease)
        keep(self, records)  # type: ignore[arg-type]
        return version

    def unknown(self, told: Any) -> list[tuple[str, str]]:
        return [key for key in told_of(told) if key not in self.stored]


class Note(ExtensionEvent):
    pass


async def read(agent: Agent[Any, Any], **options: Any) -> Any:
    """Read a run to its end, replying to what it asks; return the result."""
    async with agent.stream("Go", **options) as run:
        async for event in run:
            if event.type == "reply_requested":
                run.reply(event.question.id, "yes" if event.question.kind == "question" else {"approve": True})
    return run.result


def contents(result: Any) -> list[str]:
    return [one.content for message in result.messages if message.kind == "tool" for one in message.results]


def test_whoever_waits_for_a_write_goes_on_though_those_before_had_nothing_left_to_write(backend: Backend) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return await ctx.ask("Sure?")

    async def main() -> None:
        agent = Agent(ScriptedModel([call("ask")] * 6, "Done."), tools=[ask], store=WaitingStore())
        assert contents(await read(agent)) == ["yes"] * 6

    run_virtual(main, backend=backend)


@pytest.mark.parametrize("late", [1.5, 2.5])
def test_whoever_waits_for_a_write_goes_on_though_one_before_was_cancelled(backend: Backend, late: float) -> None:
    @tool
    async def ask(ctx: ToolContext, after: float) -> str:
        """Ask.

        Args:
            after: So many seconds later.
        """
        await anyio.sleep(after)
        return await ctx.ask("Sure?")

    @tool(timeout=late)
    async def limited(ctx: ToolContext, after: float) -> str:
        """Ask, too late.

        Args:
            after: So many seconds later.
        """
        await anyio.sleep(after)
        return await ctx.ask("Sure?")

    async def main() -> None:
        calls = [call("ask", after=1), call("limited", after=1.1), call("ask", after=1.2), call("ask", after=1.3)]
        agent = Agent(ScriptedModel(calls, "Done."), tools=[ask, limited], store=WaitingStore())
        answers = contents(await read(agent))
        assert [answers[0], *answers[2:]] == ["yes"] * 3

    run_virtual(main, backend=backend)


def test_whoever_waits_to_publish_goes_on_though_one_before_was_cancelled(backend: Backend) -> None:
    told: list[str] = []

    class Slow:
        name = "slow"

        @hookimpl
        async def on_event(self, notification: ExtensionEvent) -> None:
            if isinstance(notification, Note):
                await anyio.sleep(1)
                told.append("note")

    @tool
    async def publish(ctx: ToolContext, after: float) -> str:
        """Publish.

        Args:
            after: So many seconds later.
        """
        await anyio.sleep(after)
        await ctx.publish(Note())
        return "published"

    @tool(timeout=0.5)
    async def limited(ctx: ToolContext, after: float) -> str:
        """Publish, too late.

        Args:
            after: So many seconds later.
        """
        await anyio.sleep(after)
        await ctx.publish(Note())
        return "published"

    async def main() -> None:
        calls = [call("publish", after=0), call("limited", after=0.1), call("publish", after=0.2)]
        agent = Agent(ScriptedModel(calls, "Done."), tools=[publish, limited], plugins=[Slow()])
        answers = contents(await agent.run("Go"))
        assert [answers[0], answers[2]] == ["published"] * 2
        assert told == ["note"] * 2

    run_virtual(main, backend=backend)


def test_a_question_is_stored_before_it_is_shown_by_a_tool_that_reports_at_once(backend: Backend) -> None:
    client = Tool.external(name="client", description="What the client does.", parameters={"type": "object"})

    @tool
    async def report(ctx: ToolContext) -> str:
        """Report."""
        await ctx.progress("at once")
        return "reported"

    async def main() -> None:
        store = WaitingStore()
        agent = Agent(ScriptedModel([call("client"), call("report")], "Done."), tools=[client, report], store=store)
        async with agent.stream("Go") as run:
            async for event in run:
                assert not store.unknown(event)
                if event.type == "reply_requested":
                    run.reply(event.question.id, "yes")

    run_virtual(main, backend=backend)
