"""A store that has to be waited for, while many tools of a run ask, tell and report at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from trilane import Agent, Ask, InMemoryStore, Tool, ToolContext, hookimpl, tool
from trilane.errors import StoreError
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


def test_what_several_tools_report_was_seen_when_they_go_on(backend: Backend) -> None:
    seen: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask, so that the store is at work."""
        return await ctx.ask("Sure?")

    @tool
    async def report(ctx: ToolContext, text: str) -> str:
        """Report.

        Args:
            text: What to report.
        """
        await anyio.sleep(0.1)
        await ctx.progress(text)
        assert text in seen
        return "seen"

    async def main() -> None:
        calls = [call("ask"), call("report", text="one"), call("report", text="two")]
        agent = Agent(ScriptedModel(calls, "Done."), tools=[ask, report], store=WaitingStore())
        async with agent.stream("Go") as run:
            async for event in run:
                await anyio.sleep(1)
                if event.type == "tool_progress":
                    seen.append(event.text)
                if event.type == "reply_requested":
                    run.reply(event.question.id, "yes")
        assert contents(run.result) == ["yes", "seen", "seen"]

    run_virtual(main, backend=backend)


def test_an_approved_call_starts_when_that_was_seen_though_another_tool_showed_it(backend: Backend) -> None:
    shown: list[str] = []

    class Slow:
        name = "slow"

        @hookimpl
        async def on_event(self, notification: ExtensionEvent) -> None:
            if shown:
                await anyio.sleep(1)

    @tool
    async def report(ctx: ToolContext) -> str:
        """Report."""
        for _ in range(20):
            await anyio.sleep(0.3)
            await ctx.progress("on")
        return "reported"

    @tool(approval=True)
    async def careful() -> str:
        """Do something dangerous."""
        assert "seen" in shown
        return "done"

    async def main() -> None:
        agent = Agent(
            ScriptedModel([call("report"), call("careful")], "Done."), tools=[report, careful], plugins=[Slow()]
        )
        async with agent.stream("Go") as run:
            async for event in run:
                if event.type == "reply_requested":
                    shown.append("asked")
                    run.reply(event.question.id, {"approve": True})
                if event.type == "tool_started" and event.call.name == "careful":
                    await anyio.sleep(5)
                    shown.append("seen")
        assert contents(run.result) == ["reported", "done"]

    run_virtual(main, backend=backend)


class Random:
    """A run whose tools, plugin, store and reader do by chance what they may do, and what went wrong in it."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = WaitingStore(self.chance)
        self.seen: set[str] = set()
        self.wrong: list[str] = []
        self.count = 0

    def check(self, told: Any) -> None:
        self.wrong += [f"{type(told).__name__} was told, {key} is not stored" for key in self.store.unknown(told)]

    @hookimpl
    async def on_event(self, notification: ExtensionEvent) -> None:
        self.check(notification)
        if self.chance.random() < 0.3:
            await anyio.sleep(self.chance.choice([0, 0.5, 1]))

    @hookimpl
    async def decide_tool(self, call: Any) -> Any:
        return Ask(prompt="May I?") if call.name == "approved" else None

    async def act(self, ctx: ToolContext) -> str:
        for _ in range(self.chance.randint(0, 3)):
            self.count += 1
            text = f"report {self.count}"
            match self.chance.choice(["sleep", "report", "custom", "ask", "publish"]):
                case "sleep":
                    await anyio.sleep(self.chance.choice([0, 0.3, 1, 2]))
                case "ask":
                    await ctx.ask("Sure?")
                case "publish":
                    await ctx.publish(Note())
                case "report":
                    await ctx.progress(text)
                    if text not in self.seen:
                        self.wrong.append(f"{text} was not seen")
                case _:
                    await ctx.emit("custom", text)
                    if text not in self.seen:
                        self.wrong.append(f"{text} was not seen")
        return "done"

    def tools(self) -> list[Any]:
        def make(name: str, **options: Any) -> Any:
            @tool(name=name, **options)
            async def act(ctx: ToolContext) -> str:
                """Act."""
                return await self.act(ctx)

            return act

        made = [make("work"), make("serial", parallel=False), make("limited", timeout=2), make("approved")]
        child = Agent(ScriptedModel(*[[call("work")] * 2, "Done."] * 8), tools=made[:1], name="child", store=self.store)
        return [*made, child.as_tool(name="child", description="Delegate.")]

    async def run(self) -> None:
        names = ["work", "work", "serial", "limited", "approved"]
        turns = [
            [
                call("child", request="Go") if self.chance.random() < 0.15 else call(self.chance.choice(names))
                for _ in range(self.chance.randint(1, 5))
            ]
            for _ in range(self.chance.randint(1, 3))
        ]
        agent = Agent(
            ScriptedModel(*turns, "Done."),
            tools=self.tools(),
            plugins=[self],
            store=self.store,
            tool_concurrency=self.chance.choice([1, 2, 8]),
        )
        seqs: list[int] = []
        async with agent.stream("Go") as run:
            async for event in run:
                self.check(event)
                inner = event.event if event.type == "child_event" else event
                if inner.type == "reply_requested":
                    run.reply(inner.question.id, "yes" if inner.question.kind == "question" else {"approve": True})
                if self.chance.random() < 0.2:
                    await anyio.sleep(self.chance.choice([0, 0.5, 2]))
                if inner.type == "tool_progress":
                    self.seen.add(inner.text)
                if inner.type == "custom_event":
                    self.seen.add(str(inner.data))
                seqs.append(event.seq)
        if run.result.status != "completed" or run.result.hook_failures:
            self.wrong.append(f"{run.result.status}: {run.result.error!r}, {run.result.hook_failures}")
        self.wrong += [
            text
            for text in contents(run.result)
            if text.lower().strip(".") != "done" and "did not end within" not in text
        ]
        if seqs != list(range(1, len(seqs) + 1)):
            self.wrong.append(f"events are not in order: {seqs}")


@pytest.mark.parametrize("seed", SEEDS)
def test_random_runs_lose_nothing_and_tell_nothing_too_early(backend: Backend, seed: int) -> None:
    found = Random(seed)
    run_virtual(found.run, backend=backend)
    assert not found.wrong


class BreaksLate(WaitingStore):
    """Fails once, when it has written a result already."""

    failed = False

    async def append(self, session: str, records: Sequence[SessionRecord], **options: Any) -> int:
        version = await super().append(session, records, **options)
        if not self.failed and any(record.kind == "call_finished" for record in records):
            self.failed = True
            raise ConnectionError("the connection broke during the answer")
        return version


def test_a_store_that_fails_after_it_has_written_keeps_what_others_finished_meanwhile(backend: Backend) -> None:
    @tool
    async def work(seconds: float) -> str:
        """Work.

        Args:
            seconds: How long.
        """
        await anyio.sleep(seconds)
        return f"{seconds:g}"

    async def main() -> None:
        store = BreaksLate()
        model = ScriptedModel([call("work", seconds=1), call("work", seconds=1.5)])
        agent = Agent(model, tools=[work], store=store, grace_seconds=20)
        with pytest.raises(StoreError, match="the connection broke during the answer"):
            await agent.run("Go", session="s")
        page = await store.load("s")
        finished = [record.result.content for record in page.records if record.kind == "call_finished"]
        assert finished == ["1", "1.5"]
        assert [record.kind for record in page.records].count("message") == 2  # nothing twice
        assert page.records[-1].kind == "run_ended"
        assert (await agent.run("And now?", session="s", model=ScriptedModel("Well."))).output == "Well."

    run_virtual(main, backend=backend)
