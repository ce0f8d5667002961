"""Handing an event over within the producer's call: what asyncio's event loop would do next, without turns of it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, ToolContext, hookimpl, tool
from trilane.channels import AgentEventQueue, EventSink, QueueClosed
from trilane.events import MessageAppendedEvent
from trilane.models import ModelResponse
from trilane.stores import SessionRecord
from trilane.testing import ScriptedModel, call, no_leaks

pytestmark = pytest.mark.anyio


def acknowledged() -> AgentEventQueue[Any]:
    queue: AgentEventQueue[Any] = AgentEventQueue()
    queue.enable_acknowledgements()
    return queue


async def iterate(queue: AgentEventQueue[Any]) -> AsyncIterator[Any]:
    async for item in queue:
        yield item


async def test_other_tasks_have_their_turns_while_events_are_handed_over() -> None:
    queue, turns, stopped = acknowledged(), 0, False

    async def bystander() -> None:
        nonlocal turns
        while not stopped:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def produce() -> None:
        for number in range(1000):
            await queue.put(number)
        queue.close_now(complete=True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bystander)
        tasks.start_soon(produce)
        seen = [item async for item in iterate(queue)]
        stopped = True
    assert seen == list(range(1000))
    assert turns >= 200  # it is always ready, so at most four events pass between two of its turns


async def test_timers_go_on_while_events_are_handed_over() -> None:
    queue = acknowledged()

    async def produce() -> None:
        while True:
            await queue.put("again")

    count = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        with anyio.move_on_after(0.02) as scope:  # real time: a clock that only runs when all wait would never run
            async for _ in iterate(queue):
                count += 1
        tasks.cancel_scope.cancel()
    assert scope.cancelled_caught
    assert count > 1


async def test_each_side_stays_in_its_own_task_and_context() -> None:
    queue = acknowledged()
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="")
    places: list[tuple[str, str, int]] = []

    def note(side: str) -> None:
        places.append((side, whose.get(), anyio.get_current_task().id))

    async def produce() -> None:
        whose.set("producer")
        for number in range(5):
            await queue.put(number)
            note("producer")
        queue.close_now(complete=True)

    async def consume() -> None:
        whose.set("consumer")
        async for _ in iterate(queue):
            note("consumer")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        tasks.start_soon(produce)
    assert [side for side, _, _ in places].count("consumer") == 5
    assert all(side == name for side, name, _ in places)
    assert len({(side, task) for side, _, task in places}) == 2


async def test_a_consumer_that_cancels_its_own_scope_gets_no_further_event() -> None:
    queue, seen = acknowledged(), list[int]()

    async def produce() -> None:
        for number in range(10):
            await queue.put(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        with anyio.CancelScope() as scope:
            async for item in iterate(queue):
                seen.append(item)
                if item == 3:
                    scope.cancel()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert seen == [0, 1, 2, 3]


async def test_a_consumer_that_has_not_waited_yet_and_cancels_its_own_scope_acknowledges_nothing() -> None:
    queue, done = acknowledged(), list[int]()

    async def produce() -> None:
        for number in range(10):
            await queue.put(number)
            done.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            async for _ in iterate(queue):
                scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert done == []
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_both_sides_may_have_been_given_the_same_context() -> None:
    queue, seen = acknowledged(), list[int]()
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()

    async def consume() -> None:
        async for item in queue:
            seen.append(item)

    async def produce() -> None:
        for number in range(5):
            await queue.put(number)
        queue.close_now(complete=True)

    consumer = loop.create_task(consume(), context=context)
    await asyncio.sleep(0)
    await loop.create_task(produce(), context=context)
    await consumer
    assert seen == list(range(5))


async def test_an_error_of_the_consumer_has_nothing_of_the_producer_in_it() -> None:
    queue = acknowledged()

    async def produce() -> None:
        try:
            raise KeyError("the producer's")
        except KeyError:
            await queue.put("event")

    async def consume() -> None:
        await anext(queue)
        raise ValueError("the consumer's")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        with pytest.raises(ValueError, match="the consumer's") as caught:
            await consume()
        assert caught.value.__context__ is None
        tasks.cancel_scope.cancel()


def test_an_interrupt_in_the_consumer_ends_the_event_loop_and_not_the_producer() -> None:
    ends: list[str] = []
    readers: list[asyncio.Task[None]] = []

    async def main() -> None:
        queue = acknowledged()

        async def produce() -> None:
            try:
                await queue.put("event")
                ends.append("acknowledged")
            except BaseException as error:
                ends.append(type(error).__name__)
                raise

        async def consume() -> None:
            await anext(queue)
            raise KeyboardInterrupt

        readers.append(asyncio.create_task(consume()))
        await asyncio.sleep(0)
        await asyncio.wait([*readers, asyncio.create_task(produce())])

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert isinstance(readers[0].exception(), KeyboardInterrupt)
    assert ends == ["CancelledError"]  # by asyncio.run, which cancels what is left


async def test_events_that_are_forwarded_let_the_writer_run_after_each() -> None:
    behind = 0

    async def write(_event: Any) -> None:
        return

    sink: EventSink[Any] = EventSink(write)
    published = sink.publish
    waiting: list[Any] = []

    async def publish(item: Any) -> None:
        nonlocal behind
        behind = max(behind, len(sink._items))
        waiting.append(item)
        await published(item)

    sink.publish = publish  # type: ignore[method-assign,assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sink.run)
        async with Agent(ScriptedModel("one two three four five")).stream("Go") as run:
            await run.forward(sink)
    assert len(waiting) > 12
    assert behind <= 6  # the events of one group


async def test_a_tool_that_starts_at_once_is_in_a_task_and_a_context_of_its_own() -> None:
    mine: contextvars.ContextVar[int] = contextvars.ContextVar("mine", default=0)
    seen: list[tuple[int, int]] = []

    @tool
    async def count() -> str:
        """Count."""
        mine.set(mine.get() + 1)
        seen.append((mine.get(), anyio.get_current_task().id))
        return "counted"

    calls = [call("count", call_id=f"c{number}") for number in range(3)]
    async with no_leaks():
        result = await Agent(ScriptedModel(calls, [call("count")], "Done."), tools=[count]).run("Go")
    assert result.output == "Done."
    assert [value for value, _ in seen] == [1, 1, 1, 1]
    assert len({task for _, task in seen[:3]}) == 3


class SlowStore:
    """A store of which one write can be held up."""

    def __init__(self, kind: str) -> None:
        self.inner = InMemoryStore()
        self.lease, self.load = self.inner.lease, self.inner.load
        self.kind = kind
        self.writing, self.go_on = anyio.Event(), anyio.Event()
        self.stored: list[str] = []

    async def append(self, session: str, records: list[SessionRecord], **options: Any) -> int:
        if any(record.kind == self.kind for record in records):
            self.writing.set()
            await self.go_on.wait()
        version = await self.inner.append(session, records, **options)
        self.stored.extend(record.kind for record in records)
        return version


async def test_nobody_is_shown_a_question_that_another_task_is_still_storing() -> None:
    store = SlowStore("question")
    told = 0

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str(await ctx.ask("Which?"))

    @tool
    async def report(ctx: ToolContext) -> str:
        """Report."""
        nonlocal told
        await store.writing.wait()
        told += 1
        await ctx.progress("on the way")
        return "reported"

    @tool
    async def quick() -> str:
        """Be quick."""
        await store.writing.wait()
        return "quick"

    script = ScriptedModel([call("ask"), call("report"), call("quick")], "Done.")
    early: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def release() -> None:
            await store.writing.wait()
            await anyio.wait_all_tasks_blocked()
            early.extend(seen)
            store.go_on.set()

        seen: list[str] = []
        tasks.start_soon(release)
        async with Agent(script, tools=[ask, report, quick], store=store).stream("Go", session="s") as run:  # type: ignore[arg-type]
            async for event in run:
                seen.append(event.type)
                if event.type == "reply_requested":
                    assert "question" in store.stored
                    run.reply(event.question.id, "this")
    assert told == 1
    assert "reply_requested" in seen
    assert "reply_requested" not in early


async def test_a_serial_tool_starts_when_the_result_before_it_was_seen() -> None:
    held = ""
    began_at: dict[str, str] = {}

    @tool(parallel=False)
    async def first() -> str:
        """First."""
        began_at["first"] = held
        return "one"

    @tool(parallel=False)
    async def second() -> str:
        """Second."""
        began_at["second"] = held
        return "two"

    agent = Agent(ScriptedModel([call("first"), call("second")], "Done."), tools=[first, second])
    async with agent.stream("Go") as run:
        async for event in run:
            held = event.type
    assert began_at == {"first": "tool_started", "second": "tool_completed"}


async def test_a_closed_queue_still_raises_for_the_producer_whose_event_was_read() -> None:
    queue = acknowledged()
    outcome: list[type[BaseException]] = []

    async def produce() -> None:
        try:
            await queue.put("event")
        except QueueClosed as error:
            outcome.append(type(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        assert await queue.get() == "event"
        queue.close_now()
    assert outcome == [QueueClosed]


class Told:
    """A plugin that notes what each notification of a record, and each event before a hook, found in the store."""

    name = "told"

    def __init__(self, store: SlowStore) -> None:
        self.store = store
        self.heard: list[tuple[str, int]] = []

    @hookimpl
    async def on_event(self, run: Any, notification: Any) -> None:
        self.heard.append((type(notification).__name__, self.store.stored.count("message")))

    @hookimpl
    async def on_message(self, run: Any, message: Any) -> None: ...

    @hookimpl
    async def decide_tool(self, run: Any, call: Any) -> None: ...

    @hookimpl
    async def after_model(self, run: Any, response: Any) -> ModelResponse:
        return ModelResponse(parts=response.parts, stop_reason=response.stop_reason, model="another")


async def test_a_reply_is_stored_before_anybody_is_told_of_it() -> None:
    store = SlowStore("question_closed")
    store.go_on.set()
    asked_first: list[str] = []

    @tool(approval=True)
    async def erase() -> str:
        """Erase."""
        return "erased"

    agent = Agent(
        ScriptedModel([call("erase", call_id="a"), call("erase", call_id="b")], "Done."),
        tools=[erase],
        plugins=[Told(store)],
        store=store,  # type: ignore[arg-type]
    )
    with anyio.fail_after(10):
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    assert run.reply(event.question.id, {"approve": True}).status == "accepted"
                elif event.type == "reply_received":
                    asked_first.append(event.question_id)
                    assert store.stored.count("question_closed") >= len(asked_first)
    assert len(asked_first) == 2


async def test_what_is_said_is_stored_before_anybody_is_told_of_it() -> None:
    store = SlowStore("message")
    store.go_on.set()
    plugin, shown = Told(store), 0
    agent = Agent(ScriptedModel("One.", "Two.", "Three.", "Four."), plugins=[plugin], store=store)  # type: ignore[arg-type]
    with anyio.fail_after(10):
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "text_started" and shown == 1:
                    for text in ("And this.", "And that.", "And more."):
                        run.steer(text)
                if event.type in ("user_message_added", "message_completed"):
                    shown += 1
                    assert store.stored.count("message") >= shown
    messages = [count for name, count in plugin.heard if name == "MessageAppendedEvent"]
    assert len(messages) == shown == 8
    assert all(count >= number for number, count in enumerate(messages, 1)), messages


async def test_plugins_hear_of_an_answer_as_it_is_kept() -> None:
    heard: list[str] = []

    class Hears(Told):
        @hookimpl
        async def on_event(self, run: Any, notification: Any) -> None:
            if isinstance(notification, MessageAppendedEvent) and notification.message.kind == "assistant":
                heard.append(notification.message.model)

    await Agent(ScriptedModel("One."), plugins=[Hears(SlowStore(""))]).run("Go")
    assert heard == ["another"]
