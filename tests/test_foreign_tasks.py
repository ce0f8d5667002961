"""Tasks and threads that are none of the run's: workers that a plugin, a model or a tool has of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest

from trilane import Agent, Delta, ExtensionEvent, Limits, ModelResponse, Question, ToolContext, hookimpl, tool
from trilane.models import ModelRequest
from trilane.testing import ScriptedModel, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


class Worker:
    """Does what it is given in a task that began before every run, or inside another one."""

    def __init__(self) -> None:
        self.send, self._work = anyio.create_memory_object_stream[Any](10)

    async def work(self) -> None:
        async with self._work:
            async for function, args, done, outcome in self._work:
                try:
                    outcome.append(await function(*args))
                except Exception as error:
                    outcome.append(error)
                done.set()

    async def does(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Have it awaited there."""
        done, outcome = anyio.Event(), list[Any]()
        await self.send.send((function, args, done, outcome))
        await done.wait()
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]


class Reader:
    """A model with one connection for all its calls, and a task that reads from it."""

    name = "reader"

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def call(self, request: ModelRequest, emit: Any) -> ModelResponse:
        for text in ("One ", "ship, ", "wörld.") * 3:
            await self._worker.does(emit, Delta(text=text))
        return ModelResponse()


@pytest.mark.parametrize("started", ["before", "inside another run"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_deltas_of_a_models_own_task_are_shown_in_the_time_of_the_run(backend: Backend, started: str) -> None:
    async def main() -> None:
        worker = Worker()
        async with anyio.create_task_group() as group:

            class Starter:
                name = "starter"

                @hookimpl
                async def before_run(self) -> None:
                    group.start_soon(worker.work)

            if started == "before":
                group.start_soon(worker.work)
            else:
                await Agent(ScriptedModel("Done."), plugins=[Starter()]).run("Go")
            agent = Agent(Reader(worker))
            assert (await agent.run("Go")).output == "One ship, wörld." * 3
            async with agent.stream("Go", limits=Limits(model_seconds=5)) as run:
                async for event in run:
                    if event.type == "text_delta":
                        await anyio.sleep(100)  # a caller that takes its time is no slow model
            assert run.result.output == "One ship, wörld." * 3
            worker.send.close()

    run_virtual(main, backend=backend)


async def test_a_plugins_own_task_may_emit_publish_and_call_models() -> None:
    worker = Worker()
    heard: list[object] = []

    class Note(ExtensionEvent):
        text: str

    class Plugin:
        name = "plugin"

        @hookimpl
        async def before_run(self, run: Any) -> None:
            await worker.does(run.emit, "noted", 1)
            await worker.does(run.publish, Note(text="Hear"))
            answer = await worker.does(run.call_model, ModelRequest())
            assert answer.parts[0].text == "Aside."

        @hookimpl
        async def on_event(self, notification: Any) -> None:
            if isinstance(notification, Note):
                heard.append(notification.text)

    async with no_leaks(), anyio.create_task_group() as group:
        group.start_soon(worker.work)
        async with Agent(ScriptedModel("Aside.", "Done."), plugins=[Plugin()]).stream("Go") as run:
            events = await record(run)
        worker.send.close()
    assert events.types().count("custom_event") == 1
    assert (run.result.output, run.result.hook_failures, heard) == ("Done.", (), ["Hear"])


async def answer(question: Question) -> str:
    return question.prompt.upper()


async def test_threads_that_a_tool_has_of_its_own_may_show_and_ask() -> None:
    @tool
    def fetch(ctx: ToolContext) -> str:
        """Fetch."""

        def one(number: int) -> str:
            ctx.blocking.progress(f"page {number}")
            ctx.blocking.emit("page", number)
            return ctx.blocking.ask(f"page {number}?")

        with ThreadPoolExecutor(2) as pool:
            return "; ".join(pool.map(one, range(2)))

    agent = Agent(ScriptedModel(call("fetch"), "Done."), tools=[fetch], answer=answer)
    async with agent.stream("Go") as run:
        events = await record(run)
    events.check()
    assert run.result.messages[2].results[0].content == "PAGE 0?; PAGE 1?"  # type: ignore[union-attr]
    assert sorted(event.text for event in events.events if event.type == "tool_progress") == ["page 0", "page 1"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_time_of_a_tool_stands_still_while_its_own_task_waits_for_a_reply(backend: Backend) -> None:
    async def main() -> None:
        worker = Worker()

        @tool(timeout=10)
        async def ask(ctx: ToolContext) -> str:
            """Ask."""
            return str(await worker.does(ctx.ask, "Which?"))

        async def slowly(question: Question) -> str:
            await anyio.sleep(1000)
            return "This one."

        async with anyio.create_task_group() as group:
            group.start_soon(worker.work)
            result = await Agent(ScriptedModel(call("ask"), "Done."), tools=[ask], answer=slowly).run("Go")
            worker.send.close()
        assert result.messages[2].results[0].content == "This one."  # type: ignore[union-attr]

    run_virtual(main, backend=backend)
