"""`agent.runtime()`: bare `async for`, streams that are dropped or not read, many at once, leaving."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from trilane import Agent, AgentPhase, ToolContext, tool
from trilane.errors import AgentProtocolError, SessionBusyError
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask."""
    return await ctx.ask("Well?")


async def until(condition: Any) -> None:
    for _ in range(10_000):
        if condition():
            return
        await anyio.lowlevel.checkpoint()
    raise AssertionError("it did not happen")


async def test_r33_a_web_handler_reads_with_a_bare_async_for() -> None:
    agent = Agent(ScriptedModel("Hello there."))

    async def handler(rt: Any) -> AsyncIterator[str]:
        async for event in rt.stream("Go", session="s"):
            if event.type == "text_delta":
                yield event.text

    async with no_leaks():
        async with agent.runtime() as rt:
            assert [text async for text in handler(rt)] == ["Hello ", "there."]
            assert agent.active("s") is None


async def test_streams_of_a_runtime_also_work_as_context_managers() -> None:
    agent = Agent(ScriptedModel("Hello.", "Again."))
    async with no_leaks():
        async with agent.runtime() as rt:
            async with rt.stream("Go", session="s") as run:
                events = await record(run)
            events.check()
            assert run.result.output == "Hello."
            async with rt.stream("Go", session="s") as run:
                await run.__anext__()
            assert run.state.phase is AgentPhase.CANCELLED


async def test_a_dropped_stream_is_stopped_and_its_session_is_free() -> None:
    agent = Agent(ScriptedModel("A long answer.", "Fine."))
    async with no_leaks():
        async with agent.runtime() as rt:
            run = rt.stream("Go", session="s")
            async for event in run:
                if event.type == "text_delta":
                    break
            state = run.state
            with pytest.raises(SessionBusyError):
                await agent.run("Go", session="s")
            del run, event
            gc.collect()
            await until(lambda: state.is_terminal)
            assert state.phase is AgentPhase.CANCELLED
            await until(lambda: agent.active("s") is None)
            result = await agent.run("Again", session="s")
            assert result.output == "Fine."
            assert_history(result.messages)


async def test_a_bare_break_in_a_generator_that_is_dropped() -> None:
    """W23: nothing keeps the session claimed."""
    agent = Agent(ScriptedModel("A long answer.", "Fine."))

    async def handler(rt: Any) -> AsyncIterator[str]:
        async for event in rt.stream("Go", session="s"):
            yield event.type

    async with agent.runtime() as rt:
        generator = handler(rt)
        async for kind in generator:
            if kind == "text_delta":
                break
        await generator.aclose()  # type: ignore[attr-defined]
        del generator
        gc.collect()

        async def free() -> bool:
            try:
                await agent.run("Again", session="s")
            except SessionBusyError:
                return False
            return True

        for _ in range(1000):
            if await free():
                break
            await anyio.lowlevel.checkpoint()
        else:
            raise AssertionError("the session is still claimed")


async def test_leaving_the_runtime_stops_all_its_runs() -> None:
    agent = Agent(ScriptedModel(*["A long answer."] * 5))
    async with no_leaks():
        async with agent.runtime() as rt:
            runs = [rt.stream("Go") for _ in range(5)]
            for run in runs:
                await run.__anext__()
        assert [run.state.phase for run in runs] == [AgentPhase.CANCELLED] * 5
        assert {str(run.result.error) for run in runs} == {"its runtime was left"}


async def test_many_runs_at_once_do_not_see_each_other() -> None:
    agent = Agent(ScriptedModel(*["Hello."] * 20))
    found: list[EventRecorder] = []
    async with no_leaks():
        async with agent.runtime() as rt, anyio.create_task_group() as group:

            async def read() -> None:
                found.append(await record(rt.stream("Go")))

            for _ in range(20):
                group.start_soon(read)
    assert len({events.events[0].run_id for events in found}) == 20
    for events in found:
        events.check()


async def test_a_runtime_must_be_entered() -> None:
    rt: Any = Agent(ScriptedModel("Hello.")).runtime()
    with pytest.raises(AgentProtocolError, match="async with"):
        rt.stream("Go")


async def test_an_error_of_the_run_comes_out_of_the_async_for() -> None:
    gone = ConnectionError("gone")
    agent = Agent(ScriptedModel(gone))
    async with agent.runtime() as rt:
        with pytest.raises(ConnectionError) as caught:
            async for _ in rt.stream("Go"):
                pass
    assert caught.value is gone


class TestAbandoned:
    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return request.param  # type: ignore[no-any-return]

    def test_a_stream_that_is_kept_but_not_read_is_stopped(self, backend: Backend) -> None:
        async def main() -> None:
            agent = Agent(ScriptedModel("A long answer."))
            async with agent.runtime(abandoned_seconds=60) as rt:
                run = rt.stream("Go", session="s")
                await run.__anext__()
                await anyio.sleep(50)
                await run.__anext__()
                await anyio.sleep(50)
                assert run.state.phase is not AgentPhase.CANCELLED
                await anyio.sleep(30)
                assert run.state.phase is AgentPhase.CANCELLED
                assert "not read for 60 s" in str(run.result.error)
                assert agent.active("s") is None

        run_virtual(main, backend=backend)

    def test_one_that_begins_just_before_others_are_looked_at_has_the_whole_time(self, backend: Backend) -> None:
        async def main() -> None:
            agent = Agent(ScriptedModel("Hello.", "Hello."))
            async with agent.runtime(abandoned_seconds=60) as rt, rt.stream("Go"):
                await anyio.sleep(14.9)
                async with rt.stream("Go") as run:
                    await anyio.sleep(59.9)
                    assert not run.state.is_terminal
                    await anyio.sleep(16)
                    assert run.result.status == "cancelled"

        run_virtual(main, backend=backend)

    def test_one_with_an_open_question_is_left_alone(self, backend: Backend) -> None:
        async def main() -> None:
            agent = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask])
            async with agent.runtime(abandoned_seconds=60) as rt:
                run = rt.stream("Go", session="s")
                async for event in run:
                    if event.type == "reply_requested":
                        question = event.question.id
                        break
                await anyio.sleep(1000)
                assert not run.state.is_terminal
                assert agent.reply("s", question, "Yes.").status == "accepted"
                await record(run)
                assert run.result.output == "Done."

        run_virtual(main, backend=backend)

    def test_a_slow_model_is_not_an_abandoned_stream(self, backend: Backend) -> None:
        async def main() -> None:
            from trilane.testing import Step

            async def wait() -> None:
                await anyio.sleep(500)

            agent = Agent(ScriptedModel(Step("Hello.", before=wait)))
            async with agent.runtime(abandoned_seconds=60) as rt:
                events = await record(rt.stream("Go"))
            assert events.texts() == ["Hello."]

        run_virtual(main, backend=backend)
