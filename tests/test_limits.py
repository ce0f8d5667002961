"""Every one of `Limits`, on running agents: which error, which status, and what is kept."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, Limits, ToolContext, hookimpl, tool
from trilane.errors import ConfigError, EmptyReplyError, RunCancelledError, RunLimitError, RunTimeoutError, StoreError
from trilane.messages import Usage
from trilane.state import AgentPhase
from trilane.stores import InMemoryStore
from trilane.testing import ScriptedModel, Step, assert_history, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


async def limited(limits: Limits, *script: Any, catch: type[BaseException] = RunLimitError) -> Any:
    """A run that ends at a limit; what it had reached is kept, and the session goes on."""
    agent = Agent(ScriptedModel(*script), tools=[look])
    async with no_leaks():
        async with agent.stream("Go", session="s", limits=limits) as run:
            events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    error = events.error
    assert isinstance(error, catch)
    assert error.result is run.result  # type: ignore[attr-defined]
    assert events.events[-1].type == "run_failed"
    assert run.state.phase.value == "failed"
    assert run.result.stop_reason == "limit"
    again = await agent.run("And now?", session="s", model=ScriptedModel("Fine."))
    assert_history(again.messages)
    return run.result


@pytest.mark.parametrize(
    ("end", "status", "phase", "last"),
    [
        ("answer", "completed", AgentPhase.COMPLETED, "run_completed"),
        ("raise", "failed", AgentPhase.FAILED, "run_failed"),
        ("limit", "timed_out", AgentPhase.FAILED, "run_failed"),
        ("stop", "cancelled", AgentPhase.CANCELLED, "run_cancelled"),
    ],
)
async def test_r85_each_status_is_reached_and_excludes_the_others(
    end: str, status: str, phase: AgentPhase, last: str
) -> None:
    step = {"raise": ConnectionError("gone"), "limit": Step("Never.", before=anyio.sleep_forever)}.get(end, "Done.")
    limits = Limits(run_seconds=0.01) if end == "limit" else Limits()
    raised = {"raise": ConnectionError, "limit": RunTimeoutError, "stop": RunCancelledError}.get(end)
    async with Agent(ScriptedModel(step), limits=limits).stream("Go") as run:
        if end == "stop":
            run.stop("enough")
        seen = [event.type for event in (await record(run, catch=raised) if raised else await record(run)).events]
    assert (run.result.status, run.state.phase) == (status, phase)
    assert [one for one in seen if one in ("run_completed", "run_failed", "run_cancelled")] == [last]
    assert seen[-1] == last


async def test_r85_turns() -> None:
    result = await limited(Limits(turns=2), call("look"), call("look"), "Never.")
    assert (result.status, result.turns) == ("failed", 2)
    assert "limit of 2 turns" in str(result.error)
    assert [message.kind for message in result.messages] == ["user", "assistant", "tool", "assistant", "tool"]


async def test_an_answer_in_the_last_turn_is_an_answer() -> None:
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], limits=Limits(turns=2))
    assert (await agent.run("Go")).output == "Done."


@pytest.mark.parametrize(
    ("limits", "usage"),
    [
        (Limits(input_tokens=100), Usage(input_tokens=60)),
        (Limits(output_tokens=100), Usage(output_tokens=60)),
        (Limits(cost=1.0), Usage(cost=0.6)),
    ],
)
async def test_tokens_and_cost_are_looked_at_before_each_turn(limits: Limits, usage: Usage) -> None:
    result = await limited(limits, *[Step(calls=[call("look")], usage=usage)] * 3)
    assert result.turns == 2
    assert "raise Limits." in str(result.error)


async def test_an_answer_is_never_thrown_away_for_a_limit_it_went_over() -> None:
    model = ScriptedModel(Step("A long answer.", usage=Usage(output_tokens=10_000)))
    result = await Agent(model, limits=Limits(output_tokens=100)).run("Go")
    assert (result.output, result.usage.output_tokens) == ("A long answer.", 10_000)


async def test_limits_of_a_run_replace_those_of_the_agent() -> None:
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], limits=Limits(turns=1))
    assert (await agent.run("Go", limits=Limits())).output == "Done."


async def test_empty_replies_are_asked_again_with_a_note_that_is_in_no_history() -> None:
    model = ScriptedModel("", Step(""), "At last.")
    async with Agent(model).stream("Go") as run:
        events = await record(run)
    events.check()
    assert run.result.output == "At last."
    assert [message.kind for message in run.result.messages] == ["user", "assistant"]
    assert model.requests[0].context == ()
    assert "empty" in model.requests[1].context[0]
    assert [len(request.messages) for request in model.requests] == [1, 1, 1]


@pytest.mark.parametrize("blank", [" ", "\n\n", "\u00a0\t"])
async def test_a_reply_of_blanks_is_an_empty_one(blank: str) -> None:
    model = ScriptedModel(blank, "At last.")
    async with Agent(model).stream("Go") as run:
        events = await record(run)
    events.check()
    assert run.result.output == "At last."
    assert [message.text for message in run.result.messages] == ["Go", "At last."]
    assert [len(request.messages) for request in model.requests] == [1, 1]
    with pytest.raises(EmptyReplyError):
        await Agent(ScriptedModel(blank)).run("Go", limits=Limits(empty_replies=0))


async def test_empty_replies_have_an_end() -> None:
    agent = Agent(ScriptedModel("", "", ""))
    with pytest.raises(EmptyReplyError, match="answered with nothing 3 times") as caught:
        await agent.run("Go")
    assert caught.value.result is not None
    assert_history(caught.value.result.messages)
    with pytest.raises(EmptyReplyError):
        await agent.run("Go", model=ScriptedModel(""), limits=Limits(empty_replies=0))


@pytest.mark.parametrize("value", [-1, "five", float("nan")])
async def test_nonsense_is_refused_when_limits_are_made(value: Any) -> None:
    with pytest.raises(ConfigError, match="turns"):
        Limits(turns=value)


class TestTime:
    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return request.param  # type: ignore[no-any-return]

    def test_r85_run_seconds(self, backend: Backend) -> None:
        @tool
        async def slow() -> str:
            """Sleep."""
            await anyio.sleep(40)
            return "slept"

        async def main() -> None:
            agent = Agent(ScriptedModel(call("slow"), call("slow"), call("slow")), tools=[slow])
            start = anyio.current_time()
            async with agent.stream("Go", limits=Limits(run_seconds=100)) as run:
                events = await record(run, catch=RunTimeoutError)
            assert anyio.current_time() - start == pytest.approx(100, abs=3)
            events.check()
            assert_history(run.result.messages)
            assert (run.result.status, run.state.phase.value) == ("timed_out", "failed")
            assert "within its 100 s" in str(events.error)
            last = run.result.messages[-1]
            assert last.kind == "tool"
            assert last.results[0].outcome == "timed_out"

        run_virtual(main, backend=backend)

    def test_the_clock_of_a_run_stands_still_while_its_caller_looks(self, backend: Backend) -> None:
        @tool
        async def slow(ctx: ToolContext) -> str:
            """Sleep."""
            await anyio.sleep(10)
            await ctx.progress("half")
            await anyio.sleep(10)
            return "slept"

        async def main() -> None:
            agent = Agent(ScriptedModel(call("slow"), "Done."), tools=[slow])
            async with agent.stream("Go", limits=Limits(run_seconds=30)) as run:
                async for _ in run:
                    await anyio.sleep(100)
            assert run.result.output == "Done."

        run_virtual(main, backend=backend)

    def test_model_seconds(self, backend: Backend) -> None:
        async def main() -> None:
            async def wait() -> None:
                await anyio.sleep(100)

            agent = Agent(ScriptedModel(Step("one two three", between=wait)), limits=Limits(model_seconds=150))
            async with agent.stream("Go") as run:
                events = await record(run, catch=RunTimeoutError)
            events.check()
            assert run.result.status == "timed_out"
            assert run.result.message is not None
            assert (run.result.text, run.result.message.interrupted) == ("one two ", True)

        run_virtual(main, backend=backend)

    def test_the_clock_of_a_model_stands_still_while_the_caller_looks(self, backend: Backend) -> None:
        async def main() -> None:
            async def wait() -> None:
                await anyio.sleep(10)

            agent = Agent(ScriptedModel(Step("one two three", between=wait)), limits=Limits(model_seconds=30))
            async with agent.stream("Go") as run:
                async for event in run:
                    if event.type == "text_delta":
                        await anyio.sleep(1000)
            assert run.result.output == "one two three"

        run_virtual(main, backend=backend)

    def test_each_attempt_of_a_model_has_its_own_time(self, backend: Backend) -> None:
        from trilane import RetryModel

        class Retrier:
            name = "retrier"

            @hookimpl
            def on_model_error(self, error: Exception) -> Any:
                return RetryModel(after_seconds=50) if isinstance(error, ConnectionError) else None

        async def main() -> None:
            async def wait() -> None:
                await anyio.sleep(90)

            steps = [Step(error=ConnectionError(), before=wait), Step("Hello.", before=wait)]
            agent = Agent(ScriptedModel(*steps), plugins=[Retrier()], limits=Limits(model_seconds=100))
            start = anyio.current_time()
            result = await agent.run("Go")
            assert result.output == "Hello."
            assert anyio.current_time() - start == pytest.approx(230, abs=2)

        run_virtual(main, backend=backend)

    @pytest.mark.parametrize("hangs", [True, False])
    def test_store_seconds(self, backend: Backend, hangs: bool) -> None:
        class Store:
            """Takes records until it is told not to."""

            def __init__(self) -> None:
                self.inner = InMemoryStore()
                self.broken = False
                self.lease = self.inner.lease
                self.load = self.inner.load

            async def append(self, session: str, records: Any, **options: Any) -> int:
                if self.broken and hangs:
                    await anyio.sleep(1000)
                if self.broken:
                    raise OSError("disk full")
                return await self.inner.append(session, records, **options)

        async def main() -> None:
            store = Store()

            @tool
            async def break_it() -> str:
                """Break the store."""
                store.broken = True
                return "true result"

            agent = Agent(ScriptedModel(call("break_it"), "Never."), tools=[break_it], store=store)  # type: ignore[arg-type]
            start = anyio.current_time()
            async with agent.stream("Go", session="s", limits=Limits(store_seconds=20)) as run:
                events = await record(run, catch=StoreError)
            events.check()
            assert_history(run.result.messages)
            assert isinstance(events.error, StoreError)
            assert (run.result.status, run.state.phase.value) == ("failed", "failed")
            assert "true result" in run.result.messages[-1].to_json()
            assert run.result.store_error is not None
            assert anyio.current_time() - start <= (25 if hangs else 2)
            store.broken = False
            again = await agent.run("And now?", session="s", model=ScriptedModel("Fine."))
            assert again.output == "Fine."
            assert_history(again.messages)
            assert "interrupted, result did not reach the store" in again.messages[2].to_json()

        run_virtual(main, backend=backend)
