"""Failing, slow and strict plugins: what is contained, what is said about it, and who is switched off."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import anyio
import pytest

from trilane import Agent, hookimpl, tool
from trilane.decisions import CompactedHistory
from trilane.errors import HookTimeoutError, PluginError, RunCancelledError, RunLimitError
from trilane.events import PluginFailed, PluginFailedEvent, ToolCompleted
from trilane.testing import (
    EventRecorder,
    Recorder,
    ScriptedModel,
    assert_history,
    call,
    no_leaks,
    record,
    run_virtual,
)
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio

CONTAINED = [
    "after_model",
    "before_tool",
    "after_tool",
    "after_turn",
    "after_run",
    "on_success",
    "close_run",
]


@tool
async def look() -> str:
    """Look."""
    return "a ship"


def broken(*hooks: str, error: Exception | None = None, strict: bool = False, name: str = "broken") -> Any:
    """A plugin whose implementations of `hooks` raise."""

    class Plugin:
        pass

    def fail() -> None:
        raise error or KeyError("broken")

    made: Any = Plugin()
    made.name, made.strict = name, strict
    for hook in hooks:
        setattr(made, hook, hookimpl(fail))
    return made


async def streamed(agent: Agent[Any, Any], *, catch: Any = (), **options: Any) -> tuple[EventRecorder, Any]:
    async with no_leaks():
        async with agent.stream("Go", **options) as run:
            events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


@pytest.mark.parametrize("hook", CONTAINED)
async def test_w05_to_w08_a_contained_failure_is_reported_four_times_and_undoes_nothing(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(without=["on_compact"])
    heard: list[PluginFailedEvent] = []

    class Hearer:
        name = "hearer"

        @hookimpl
        def on_event(self, notification: Any) -> None:
            if isinstance(notification, PluginFailedEvent):
                heard.append(notification)

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[Hearer(), recorder, broken(hook)])
    events, run = await streamed(agent)
    assert (run.result.output, run.result.status) == ("Done.", "completed")
    (failure, *_) = run.result.hook_failures
    assert (failure.plugin, failure.hook, type(failure.error)) == ("broken", hook, KeyError)
    assert "plugin 'broken' failed in " + hook in caplog.text
    assert f"({__file__}:" in caplog.text
    assert events.of(PluginFailed)[0].hook == hook
    assert heard[0].hook == hook
    assert recorder.names("after_run", "on_success", "close_run") == ["after_run", "on_success", "close_run"]
    assert recorder.names("on_error", "on_cancel") == []
    assert recorder.names(hook)  # the other plugins were called all the same


@pytest.mark.parametrize("hook", ["on_error", "on_cancel", "close_run"])
async def test_w08_a_failing_end_hook_skips_nobody_and_hides_nothing(hook: str) -> None:
    gone = ConnectionError("gone")
    recorder = Recorder(only=["on_error", "on_cancel", "close_run"])
    agent = Agent(ScriptedModel(gone if hook != "on_cancel" else "Hello."), plugins=[recorder, broken(hook)])
    async with agent.stream("Go") as run:
        if hook == "on_cancel":
            run.stop("enough")
        events = await record(run, catch=(ConnectionError, RunCancelledError))
    events.check()
    assert events.error is gone or str(events.error) == "enough"
    assert recorder.names() == ["on_cancel" if hook == "on_cancel" else "on_error", "close_run"]
    assert [one.hook for one in run.result.hook_failures] == [hook]


async def test_w05_a_failing_on_event_stops_nothing() -> None:
    recorder = Recorder(only=["on_event"])
    agent = Agent(ScriptedModel("Hello."), plugins=[recorder, broken("on_event")])
    _, run = await streamed(agent)
    assert run.result.output == "Hello."
    assert recorder.details("on_event").count("PhaseTransitionEvent") == 5
    assert {one.hook for one in run.result.hook_failures} == {"on_event"}


async def test_around_tool_that_fails_before_the_tool_gives_an_error_result() -> None:
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[broken("around_tool")])
    events, _ = await streamed(agent)
    result = events.one(ToolCompleted).result
    assert result.outcome == "error"
    assert "plugin 'broken' failed around it" in str(result.content)


async def test_w03_around_tool_that_fails_after_the_tool_keeps_its_result() -> None:
    class Late:
        name = "late"

        @hookimpl
        async def around_tool(self, call_next: Any) -> Any:
            await call_next()
            raise KeyError("late")

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[Late()])
    events, _ = await streamed(agent)
    assert events.one(ToolCompleted).result.content == "a ship"


async def test_around_tool_runs_the_tool_at_most_once_and_may_replace_the_result() -> None:
    runs: list[int] = []

    @tool
    async def count() -> int:
        """Count."""
        runs.append(1)
        return len(runs)

    class Twice:
        name = "twice"

        @hookimpl
        async def around_tool(self, call_next: Any) -> Any:
            result = await call_next()
            with pytest.raises(PluginError, match="called call_next twice"):
                await call_next()
            return result.replace(content="replaced")

    agent = Agent(ScriptedModel(call("count"), "Done."), tools=[count], plugins=[Twice()])
    events, _ = await streamed(agent)
    assert (events.one(ToolCompleted).result.content, runs) == ("replaced", [1])


async def test_around_tool_may_answer_without_the_tool() -> None:
    from trilane.messages import ToolResult

    class Cache:
        name = "cache"

        @hookimpl
        async def around_tool(self, call: Any, call_next: Any) -> Any:
            return ToolResult(call_id=call.id, content="cached")

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[Cache()])
    events, _ = await streamed(agent)
    assert events.one(ToolCompleted).result.content == "cached"


# ---- strict


async def test_a_strict_plugin_raises_after_the_run_has_ended_in_order() -> None:
    recorder = Recorder(only=["after_run", "on_success", "close_run"])
    model = ScriptedModel("Hello.", "Hello.", "Hello.")
    agent = Agent(model, plugins=[recorder, broken("after_run", strict=True)])
    with pytest.raises(PluginError, match="strict plugin 'broken' failed in after_run") as caught:
        await agent.run("Go", session="s")
    assert recorder.names() == ["after_run", "on_success", "close_run"]
    assert caught.value.result is not None
    assert (caught.value.result.status, caught.value.result.output) == ("completed", "Hello.")
    assert isinstance(caught.value.__cause__, KeyError)
    events, run = await streamed(agent, session="s", catch=PluginError)
    assert events.events[-1].type == "run_completed"
    assert isinstance(events.error, PluginError)
    assert run.result.output == "Hello."


async def test_a_strict_plugin_does_not_hide_the_error_of_a_run() -> None:
    gone = ConnectionError("gone")
    agent = Agent(ScriptedModel(gone), plugins=[broken("on_error", strict=True)])
    with pytest.raises(ConnectionError) as caught:
        await agent.run("Go")
    assert caught.value is gone


# ---- the breaker


async def test_an_observer_that_fails_three_times_in_a_row_is_switched_off_for_the_agent() -> None:
    calls: list[int] = []

    class Flaky:
        name = "flaky"

        @hookimpl
        def after_turn(self, turn: int) -> None:
            calls.append(turn)
            raise KeyError(turn)

    script = [call("look") for _ in range(4)]
    agent = Agent(ScriptedModel(*script, "Done.", "Again."), tools=[look], plugins=[Flaky()])
    _, run = await streamed(agent)
    assert calls == [1, 2, 3]
    assert [one.disabled for one in run.result.hook_failures] == [False, False, True]
    await agent.run("Again")
    assert calls == [1, 2, 3]
    other = Agent(ScriptedModel("Hello."), plugins=[Flaky()])
    await other.run("Go")
    assert calls == [1, 2, 3, 1]


async def test_one_success_in_between_starts_the_count_again() -> None:
    calls: list[int] = []

    class Flaky:
        name = "flaky"

        @hookimpl
        def after_turn(self, turn: int) -> None:
            calls.append(turn)
            if turn != 3:
                raise KeyError(turn)

    agent = Agent(ScriptedModel(*[call("look") for _ in range(5)], "Done."), tools=[look], plugins=[Flaky()])
    await agent.run("Go")
    assert calls == [1, 2, 3, 4, 5, 6]


# ---- the ledger


async def test_the_ledger_counts_calls_errors_time_and_changes() -> None:
    class Plugin:
        name = "plugin"

        @hookimpl
        def before_turn(self) -> None:
            time.sleep(0.002)  # real time: it is what is measured

        @hookimpl
        def on_model_request(self, request: Any) -> Any:
            return request.with_context("x") if request.turn == 1 else None

        @hookimpl
        def after_turn(self) -> None:
            raise KeyError("x")

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[Plugin()])
    result = await agent.run("Go")
    rows = {row.hook: row for row in result.ledger}
    assert (rows["before_turn"].calls, rows["before_turn"].errors, rows["before_turn"].changes) == (2, 0, 0)
    assert (rows["on_model_request"].calls, rows["on_model_request"].changes) == (2, 1)
    assert (rows["after_turn"].calls, rows["after_turn"].errors) == (2, 2)
    assert rows["before_turn"].seconds >= 0.004
    assert result.ledger.seconds("plugin") >= 0.004
    assert "decide_tool" not in rows


# ---- RunLimitError of plugins, faked cancels


@pytest.mark.parametrize("hook", ["before_turn", "on_model_request", "after_model", "on_answer"])
async def test_a_plugin_may_raise_run_limit_error(hook: str) -> None:
    agent = Agent(ScriptedModel("Hello."), plugins=[broken(hook, error=RunLimitError("the budget is spent"))])
    with pytest.raises(RunLimitError, match="the budget is spent") as caught:
        await agent.run("Go")
    assert caught.value.result is not None
    assert caught.value.result.stop_reason == "limit"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("hook", ["before_run", "before_turn", "on_model_request", "after_model", "after_turn"])
async def test_w24_a_hook_cannot_fake_a_cancel(hook: str) -> None:
    class Faker:
        name = "faker"

    async def fake() -> None:
        raise asyncio.CancelledError

    faker = Faker()
    setattr(faker, hook, hookimpl(fake))
    agent = Agent(ScriptedModel("Hello."), plugins=[faker])
    events, run = await streamed(agent, catch=PluginError)
    if hook in ("after_model", "after_turn"):
        assert run.result.status == "completed"
        assert "hooks must not fake a cancel" in str(run.result.hook_failures[0].error)
    else:
        assert run.result.status == "failed"
        assert "plugin 'faker'" in str(events.error)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_w25_keyboard_interrupt_in_a_hook_is_raised_again(error: type[BaseException]) -> None:
    class Ender:
        name = "ender"

        @hookimpl
        def after_turn(self) -> None:
            raise error

    recorder = Recorder(only=["on_error", "close_run"])
    agent = Agent(ScriptedModel("Hello."), plugins=[recorder, Ender()])
    with pytest.raises(error):
        await agent.run("Go", session="s")
    assert recorder.names() == ["on_error", "close_run"]
    assert agent.active("s") is None


# ---- deadlines, in virtual time


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param  # type: ignore[no-any-return]


async def sleepy(seconds: float) -> None:
    await anyio.sleep(seconds)


def slow(hook: str, seconds: float, **marks: Any) -> Any:
    class Plugin:
        name = "slow"

    async def work() -> None:
        await anyio.sleep(seconds)

    made: Any = Plugin()
    setattr(made, hook, hookimpl(**marks)(work))
    return made


class TestDeadlines:
    def test_a_hook_has_thirty_seconds(self, backend: Backend) -> None:
        async def main() -> None:
            agent = Agent(ScriptedModel("Hello."), plugins=[slow("before_run", 31)])
            start = anyio.current_time()
            with pytest.raises(HookTimeoutError, match=r"plugin 'slow': before_run .* did not end within its 30 s"):
                await agent.run("Go")
            assert anyio.current_time() - start == pytest.approx(30, abs=1)
            agent = Agent(ScriptedModel("Hello."), plugins=[slow("before_run", 29)])
            assert (await agent.run("Go")).output == "Hello."

        run_virtual(main, backend=backend)

    def test_hook_timeout_and_a_timeout_of_its_own(self, backend: Backend) -> None:
        async def main() -> None:
            agent = Agent(ScriptedModel("Hello."), plugins=[slow("before_run", 3)], hook_timeout=2)
            with pytest.raises(HookTimeoutError):
                await agent.run("Go")
            agent = Agent(ScriptedModel("Hello."), plugins=[slow("before_run", 3, timeout=4)], hook_timeout=2)
            assert (await agent.run("Go")).output == "Hello."

        run_virtual(main, backend=backend)

    def test_a_slow_observer_is_reported_and_costs_its_limit_only(self, backend: Backend) -> None:
        async def main() -> None:
            agent = Agent(ScriptedModel("Hello."), plugins=[slow("after_turn", 1000)], hook_timeout=5)
            start = anyio.current_time()
            result = await agent.run("Go")
            assert result.output == "Hello."
            assert anyio.current_time() - start == pytest.approx(5, abs=1)
            assert isinstance(result.hook_failures[0].error, HookTimeoutError)

        run_virtual(main, backend=backend)

    def test_a_hook_that_swallows_one_cancel_is_cancelled_again(self) -> None:
        async def main() -> None:
            swallowed: list[int] = []

            class Stubborn:
                name = "stubborn"

                @hookimpl
                async def after_turn(self) -> None:
                    for _ in range(3):
                        try:
                            await asyncio.sleep(1000)
                        except asyncio.CancelledError:
                            swallowed.append(1)

            agent = Agent(ScriptedModel("Hello."), plugins=[Stubborn()], hook_timeout=5)
            start = anyio.current_time()
            result = await agent.run("Go")
            assert result.output == "Hello."
            assert len(swallowed) == 3
            assert anyio.current_time() - start < 7
            assert isinstance(result.hook_failures[0].error, HookTimeoutError)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

        run_virtual(main, backend="asyncio")

    def test_the_clock_stands_still_while_the_caller_handles_an_event(self, backend: Backend) -> None:
        async def main() -> None:
            class Emitter:
                name = "emitter"

                @hookimpl
                async def before_run(self, run: Any) -> None:
                    await run.emit("look")

            agent = Agent(ScriptedModel("Hello."), plugins=[Emitter()], hook_timeout=5)
            async with agent.stream("Go") as run:
                async for event in run:
                    if event.type == "custom_event":
                        await anyio.sleep(1000)
            assert run.result.output == "Hello."
            assert not run.result.hook_failures

        run_virtual(main, backend=backend)

    def test_around_hooks_do_not_pay_for_what_they_wrap(self, backend: Backend) -> None:
        async def main() -> None:
            class Wrapper:
                name = "wrapper"

                @hookimpl
                async def around_model(self, request: Any, call_next: Any) -> Any:
                    return await call_next(request)

                @hookimpl
                async def around_tool(self, call_next: Any) -> Any:
                    return await call_next()

            @tool
            async def slow_tool() -> str:
                """Take long."""
                await anyio.sleep(100)
                return "done"

            agent = Agent(
                ScriptedModel(call("slow_tool"), "Done."), tools=[slow_tool], plugins=[Wrapper()], hook_timeout=5
            )
            async with agent.stream("Go") as run:
                events = await record(run)
            assert not run.result.hook_failures
            assert events.one(ToolCompleted).result.content == "done"

        run_virtual(main, backend=backend)

    def test_close_run_of_everybody_is_called_within_the_grace_time(self, backend: Backend) -> None:
        """A hanging `on_error` and a hanging `close_run` starve nobody behind them."""

        async def main() -> None:
            recorder = Recorder(only=["on_error", "close_run"])
            hanging = [slow("on_error", 1000), slow("close_run", 1000)]
            hanging[1].name = "slower"
            agent = Agent(ScriptedModel(ConnectionError()), plugins=[*hanging, recorder], grace_seconds=3)
            start = anyio.current_time()
            with pytest.raises(ConnectionError):
                await agent.run("Go")
            assert recorder.names() == ["on_error", "close_run"]
            assert anyio.current_time() - start <= 3.2

        run_virtual(main, backend=backend)

    def test_a_compaction_that_hangs_is_given_up(self, backend: Backend) -> None:
        async def main() -> None:
            agent = Agent(ScriptedModel("Hello."), plugins=[slow("on_compact", 1000)], hook_timeout=5)
            result = await agent.run("Go")
            assert result.output == "Hello."
            assert isinstance(result.hook_failures[0].error, HookTimeoutError)

        run_virtual(main, backend=backend)


async def test_an_inline_hook_that_blocks_too_long_is_measured_and_reported_and_its_value_stands() -> None:
    from trilane.messages import TextPart

    class Blocking:
        name = "blocking"

        @hookimpl(timeout=0.01)
        def on_message(self, message: Any) -> Any:
            time.sleep(0.03)  # real time: it is what is measured
            return message.replace(parts=(TextPart(text="Changed."),))

    agent = Agent(ScriptedModel("Hello."), plugins=[Blocking()])
    events, run = await streamed(agent)
    assert run.result.messages[0].text == "Changed."
    failure = events.one(PluginFailed)
    assert isinstance(failure.error, HookTimeoutError)
    assert "blocked the event loop for 0.03" in str(failure.error)
    (row,) = run.result.ledger
    assert row.seconds >= 0.03


async def test_concurrent_notifications_queue() -> None:
    from trilane import ToolContext
    from trilane.events import ExtensionEvent

    class Note(ExtensionEvent):
        text: str

    active: list[str] = []
    heard: list[str] = []

    class Hearer:
        name = "hearer"

        @hookimpl
        async def on_event(self, notification: Any) -> None:
            if isinstance(notification, Note):
                active.append(notification.text)
                assert len(active) == 1
                await anyio.lowlevel.checkpoint()
                heard.append(active.pop())

    @tool
    async def say(ctx: ToolContext, name: str) -> str:
        """Say it to the plugins.

        Args:
            name: What.
        """
        for number in range(5):
            await ctx.publish(Note(text=f"{name} {number}"))
        return name

    calls = [call("say", name=one) for one in "abc"]
    result = await Agent(ScriptedModel(calls, "Done."), tools=[say], plugins=[Hearer()]).run("Go")
    assert result.hook_failures == ()
    assert len(heard) == 15
    for one in "abc":
        assert [text for text in heard if text.startswith(one)] == [f"{one} {number}" for number in range(5)]


async def test_a_hook_with_thread_true_runs_in_a_thread() -> None:
    where: list[bool] = []

    class Blocking:
        name = "blocking"

        @hookimpl(thread=True)
        def before_run(self) -> None:
            where.append(threading.current_thread() is threading.main_thread())

    result = await Agent(ScriptedModel("Hello."), plugins=[Blocking()]).run("Go")
    assert (result.output, where) == ("Hello.", [False])


async def test_an_awaitable_of_a_plain_function_is_awaited() -> None:
    async def later() -> CompactedHistory | None:
        await anyio.lowlevel.checkpoint()
        return None

    class Plugin:
        name = "plugin"
        called = 0

        @hookimpl
        def before_run(self) -> Any:
            self.called += 1
            return later()

    plugin = Plugin()
    assert (await Agent(ScriptedModel("Hello."), plugins=[plugin]).run("Go")).output == "Hello."
    assert plugin.called == 1
