"""Field cases about streams that are left early and about the async runtime: F001 to F013."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, hookimpl, tool
from trilane.errors import RunCancelledError
from trilane.messages import Delta
from trilane.models import ModelResponse
from trilane.stores import SessionRecord
from trilane.testing import EventRecorder, FunctionModel, ScriptedModel, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio


class Endless:
    """A provider whose answer has no end; it counts what was taken and notices its close."""

    name = "endless"

    def __init__(self) -> None:
        self.taken = 0
        self.closed = 0

    async def call(self, request: Any, emit: Any) -> ModelResponse:
        try:
            while True:
                await emit(Delta(text="word "))
                self.taken += 1
        finally:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            self.closed += 1


async def test_f001_leaving_after_one_delta_closes_the_provider_before_the_context_is_left() -> None:
    model = Endless()
    async with no_leaks():
        async with Agent(model).stream("Go") as run:
            async for event in run:
                if event.type == "text_delta":
                    break
        assert model.closed == 1
        assert model.taken <= 1
        assert run.result.status == "cancelled"
        assert run.result.text == "word "


async def test_f002_what_would_follow_the_last_event_seen_never_runs() -> None:
    ran: list[str] = []

    @tool
    async def first() -> str:
        """First."""
        return "one"

    @tool
    async def second() -> str:
        """Second."""
        ran.append("second")
        return "two"

    model = ScriptedModel(call("first"), call("second"), "Done.")
    async with no_leaks():
        async with Agent(model, tools=[first, second]).stream("Go") as run:
            async for event in run:
                if event.type == "tool_completed":
                    break
            await run.close()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
    assert ran == []
    assert len(model.requests) == 1
    assert run.result.status == "cancelled"
    assert_history(run.result.messages)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_f003_a_cancelled_consumer_leaves_no_task_and_no_report_of_the_loop() -> None:
    reports: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    model = Endless()
    seen = asyncio.Event()

    async def consume() -> None:
        async with Agent(model).stream("Go") as run:
            async for event in run:
                if event.type == "text_delta":
                    seen.set()
                    await asyncio.Event().wait()

    before = asyncio.all_tasks()
    task = asyncio.create_task(consume())
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert model.closed == 1
    await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert reports == []


class SlowStore:
    """A store whose writes take a while; the one at the end of a run can fail."""

    def __init__(self, fails: bool = False) -> None:
        self.inner = InMemoryStore()
        self.lease, self.load = self.inner.lease, self.inner.load
        self._fails = fails

    async def append(self, session: str, records: Sequence[SessionRecord], **options: Any) -> int:
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        if self._fails and any(record.kind == "run_ended" for record in records):
            raise OSError("disk full")
        return await self.inner.append(session, records, **options)


async def test_f004_everything_is_stored_when_the_terminal_event_is_seen() -> None:
    store = SlowStore()
    agent = Agent(ScriptedModel("Hello."), store=store)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "run_completed":
                page = await store.load("s")
                kept = [record.message for record in page.records if record.kind == "message"]
                assert tuple(kept) == event.result.messages
                assert page.records[-1].kind == "run_ended"


async def test_f004_a_last_write_that_fails_is_said_and_takes_no_answer_away() -> None:
    async with Agent(ScriptedModel("Hello."), store=SlowStore(fails=True)).stream("Go", session="s") as run:
        assert (await run.wait()).output == "Hello."
    assert "disk full" in str(run.result.store_error)


async def test_f005_closing_after_any_number_of_events_raises_nothing_and_starts_nothing() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "a ship"

    async with Agent(ScriptedModel(call("look"), "Done."), tools=[look]).stream("Go") as whole:
        number = len([event async for event in whole])
    assert number > 10
    for held in range(number):
        model = ScriptedModel(call("look"), "Done.")
        seen = EventRecorder()
        async with no_leaks(), Agent(model, tools=[look]).stream("Go") as run:
            for _ in range(held):
                seen.events.append(await run.__anext__())
            await run.close()
            await run.close()
            requests, status = len(model.requests), run.result.status
            # What had happened may still be read, to the one event that tells the end.
            seen.events += (await record(run, catch=RunCancelledError)).events
        seen.check()
        assert (len(model.requests), run.result.status, model.active) == (requests, status, 0)
        assert_history(run.result.messages)


async def test_f010_a_child_that_is_left_leaves_the_context_of_its_caller_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")
    ends: list[str] = []

    class Tracing:
        name = "tracing"

        @hookimpl
        async def before_run(self) -> None:
            span.set("inner")

        @hookimpl
        async def close_run(self) -> None:
            ends.append(span.get())

    inner = Agent(Endless(), plugins=[Tracing()])

    @tool
    async def delegate() -> str:
        """Delegate."""
        async with inner.stream("Go") as run:
            async for event in run:
                if event.type == "text_delta":
                    break
        return f"outside: {span.get()}"

    span.set("outer")
    with caplog.at_level(logging.WARNING):
        async with no_leaks():
            result = await Agent(ScriptedModel(call("delegate"), "Done."), tools=[delegate]).run("Go")
    assert [one.content for message in result.messages if message.kind == "tool" for one in message.results] == [
        "outside: outer"
    ]
    assert span.get() == "outer"
    assert len(ends) == 1
    assert caplog.records == []


_PROGRAM = """
import signal, sys
import {backend}
import anyio, threading
from trilane import Agent, tool
from trilane.testing import ScriptedModel, call, check_history

kind = sys.argv[1]
signal.signal(signal.SIGUSR1, lambda *_: None)

@tool
async def wait_async() -> str:
    "Wait."
    print("ready", flush=True)
    await anyio.sleep(60)
    return "never"

@tool
def wait_sync() -> str:
    "Wait."
    print("ready", flush=True)
    threading.Event().wait(60)
    return "never"

agent = Agent(ScriptedModel(call("wait_" + kind), "Fine."), tools=[wait_async, wait_sync])

async def main():
    await agent.run("Go", session="s")

async def look():
    return (await agent.run("Go on", session="s")).messages

try:
    anyio.run(main, backend="{backend}")
except KeyboardInterrupt:
    messages = anyio.run(look)
    print([message.kind for message in messages], check_history(messages), flush=True)
    raise
"""


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_f013_an_interrupt_from_the_keyboard_ends_the_process_with_a_valid_history(
    kind: str, anyio_backend: str
) -> None:
    program = _PROGRAM.format(backend=anyio_backend)
    process = subprocess.Popen(
        [sys.executable, "-c", program, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            # Python's own `asyncio.run` sleeps through a signal that comes just before it waits; any other wakes it.
            process.send_signal(signal.SIGUSR1)
        output, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert output == "['user', 'assistant', 'tool', 'user', 'assistant'] []\n", errors
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback (most recent call last)") <= 3


async def test_f006_a_provider_that_is_cancelled_at_any_moment_is_left_by_everybody() -> None:
    """What the adapters' suites look at on the wire, here for the core: no call is left in progress."""
    for wanted in ("model_started", "message_started", "text_delta", "message_completed"):
        model = ScriptedModel("Two words.")
        async with no_leaks(), Agent(model).stream("Go") as run:
            async for event in run:
                if event.type == wanted:
                    break
        assert model.active == 0


async def test_f006_a_call_that_was_cancelled_before_its_first_byte() -> None:
    began = anyio.Event()
    left: list[bool] = []

    async def silent(request: Any, emit: Any) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.append(True)
        return "never"

    async with no_leaks(), anyio.create_task_group() as tasks:
        tasks.start_soon(Agent(FunctionModel(silent)).run, "Go")
        await began.wait()
        tasks.cancel_scope.cancel()
    assert left == [True]
