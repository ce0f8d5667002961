"""The hooks of the other ends, and the one of every end: `on_error`, `on_cancel`, `close_run`."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, ExtensionEvent, RunCancelledError, RunCancelledEvent, hookimpl, tool
from trilane.errors import HookTimeoutError, RunLimitError, RunTimeoutError
from trilane.state import AgentPhase
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


def plugin(hook: str, function: Any, name: str = "under-test", **attributes: Any) -> Any:
    """A plugin that implements one hook."""
    made = type("Plugin", (), {"name": name, hook: staticmethod(hookimpl(function)), **attributes})
    return made()


async def streamed(agent: Agent[Any, Any], *, catch: Any = (), **options: Any) -> tuple[EventRecorder, Any]:
    async with no_leaks():
        async with agent.stream("Go", **options) as run:
            events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    return events, run


async def left_at(agent: Agent[Any, Any], event_type: str) -> Any:
    """Run until an event of that type comes, and leave."""
    async with no_leaks():
        async with agent.stream("Go") as run:
            async for event in run:
                if event.type == event_type:
                    break
    assert_history(run.result.messages)
    return run.result


# ---- on_error --------------------------------------------------------------------------------------------------------


async def test_hook_on_error_gets_the_object_that_the_caller_gets() -> None:
    seen: list[tuple[str, AgentPhase, BaseException, tuple[Any, ...]]] = []

    def noting(name: str) -> Any:
        async def on_error(run: Any, error: BaseException) -> None:
            seen.append((name, run.state.phase, error, run.open_calls))

        return plugin("on_error", on_error, name)

    original = ConnectionError("gone")
    agent = Agent(ScriptedModel(original), plugins=[noting("inner"), noting("outer")])
    _, run = await streamed(agent, catch=ConnectionError)
    assert run.result.error is original
    assert seen == [("inner", AgentPhase.FAILED, original, ()), ("outer", AgentPhase.FAILED, original, ())]


async def test_hook_on_error_is_called_when_a_limit_ends_the_run() -> None:
    seen: list[BaseException] = []

    def on_error(run: Any, error: BaseException) -> None:
        seen.append(error)
        assert run.history[-1].kind == "tool", "every call is answered by now"

    from trilane import Limits

    agent = Agent(
        ScriptedModel(call("look"), "never"),
        tools=[look],
        limits=Limits(turns=1),
        plugins=[plugin("on_error", on_error)],
    )
    await streamed(agent, catch=RunLimitError)
    assert [type(error) for error in seen] == [RunLimitError]


async def test_hook_on_error_that_raises_is_reported_and_the_original_error_is_raised() -> None:
    def on_error(run: Any, error: BaseException) -> None:
        raise KeyError("log")

    original = ConnectionError("gone")
    with pytest.raises(ConnectionError) as caught:
        await Agent(ScriptedModel(original), plugins=[plugin("on_error", on_error)]).run("Go")
    assert caught.value is original


async def test_hook_on_error_is_not_called_for_other_ends() -> None:
    called: list[BaseException] = []

    def on_error(run: Any, error: BaseException) -> None:
        called.append(error)

    agent = Agent(ScriptedModel("Fine.", "One two."), plugins=[plugin("on_error", on_error)])
    await agent.run("Go")
    assert (await left_at(agent, "text_delta")).status == "cancelled"
    assert called == []


# ---- on_cancel -------------------------------------------------------------------------------------------------------


async def test_hook_on_cancel_is_told_why_after_the_notification() -> None:
    seen: list[tuple[str, AgentPhase, str]] = []

    class Both:
        name = "both"

        @hookimpl
        def on_event(self, run: Any, notification: ExtensionEvent) -> None:
            if isinstance(notification, RunCancelledEvent):
                seen.append(("on_event", run.state.phase, notification.reason))

        @hookimpl
        async def on_cancel(self, run: Any, reason: str) -> None:
            seen.append(("on_cancel", run.state.phase, reason))

    agent = Agent(ScriptedModel(call("look"), "never"), tools=[look], plugins=[Both()])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "tool_completed":
                run.stop("enough")
                break
    cancelled = AgentPhase.CANCELLED
    assert seen == [("on_event", cancelled, "enough"), ("on_cancel", cancelled, "enough")]
    assert run.result.status == "cancelled"


async def test_hook_on_cancel_is_called_when_the_callers_own_task_is_cancelled() -> None:
    seen: list[str] = []

    async def on_cancel(run: Any, reason: str) -> None:
        await anyio.lowlevel.checkpoint()  # it may wait: the cancel does not reach it
        seen.append(run.state.phase.value)

    agent = Agent(ScriptedModel("One two three."), plugins=[plugin("on_cancel", on_cancel)])
    with anyio.CancelScope() as scope:
        async with agent.stream("Go") as run:
            async for event in run:
                if event.type == "text_delta":
                    scope.cancel()
    assert scope.cancelled_caught
    assert seen == ["cancelled"]
    assert run.result.status == "cancelled"


async def test_hook_on_cancel_that_raises_is_reported_and_the_run_stays_cancelled() -> None:
    def on_cancel(run: Any, reason: str) -> None:
        raise KeyError("log")

    result = await left_at(Agent(ScriptedModel("One two."), plugins=[plugin("on_cancel", on_cancel)]), "text_delta")
    assert result.status == "cancelled"
    assert [(one.plugin, one.hook) for one in result.hook_failures] == [("under-test", "on_cancel")]


def test_hook_on_cancel_that_hangs_gets_its_part_of_the_grace_time_only(anyio_backend_name: Backend) -> None:
    async def on_cancel(run: Any, reason: str) -> None:
        await anyio.sleep_forever()

    async def main() -> None:
        closed: list[str] = []

        def close_run(run: Any, status: str) -> None:
            closed.append(status)

        plugins = [plugin("close_run", close_run, "closing"), plugin("on_cancel", on_cancel)]
        started = anyio.current_time()
        result = await left_at(Agent(ScriptedModel("One two."), plugins=plugins, grace_seconds=1.5), "text_delta")
        assert anyio.current_time() - started < 1.6
        assert closed == ["cancelled"]
        assert [(one.hook, type(one.error)) for one in result.hook_failures] == [("on_cancel", HookTimeoutError)]

    run_virtual(main, backend=anyio_backend_name)


# ---- close_run -------------------------------------------------------------------------------------------------------


def closing(seen: list[tuple[str, AgentPhase, str]], name: str) -> Any:
    async def close_run(run: Any, status: str) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append((name, run.state.phase, status))

    return plugin("close_run", close_run, name)


async def test_hook_close_run_is_called_once_for_every_end_in_reverse_order() -> None:
    seen: list[tuple[str, AgentPhase, str]] = []
    agent = Agent(
        ScriptedModel("Fine.", ConnectionError("gone"), "One two."),
        plugins=[closing(seen, "inner"), closing(seen, "outer")],
    )
    await agent.run("Go")
    with pytest.raises(ConnectionError):
        await agent.run("Go")
    await left_at(agent, "text_delta")
    ends = [(AgentPhase.COMPLETED, "completed"), (AgentPhase.FAILED, "failed"), (AgentPhase.CANCELLED, "cancelled")]
    assert seen == [(name, *end) for end in ends for name in ("inner", "outer")]


async def test_hook_close_run_comes_after_the_other_hooks_of_the_end() -> None:
    order: list[str] = []

    def noting(hook: str) -> Any:
        def note(run: Any) -> None:
            order.append(hook)

        return hookimpl(note)

    hooks = ("close_run", "on_success", "after_run", "on_error", "on_cancel")
    agent: Agent[Any, Any] = Agent(
        ScriptedModel("Fine.", ConnectionError("gone"), "One two."),
        plugins=[type("Noting", (), {"name": "noting", **{hook: staticmethod(noting(hook)) for hook in hooks}})()],
    )
    await agent.run("Go")
    with pytest.raises(ConnectionError):
        await agent.run("Go")
    await left_at(agent, "text_delta")
    assert order == ["after_run", "on_success", "close_run", "on_error", "close_run", "on_cancel", "close_run"]


async def test_hook_close_run_that_raises_is_reported_and_the_others_are_called() -> None:
    seen: list[tuple[str, AgentPhase, str]] = []

    def close_run(run: Any, status: str) -> None:
        raise KeyError("connection")

    agent = Agent(
        ScriptedModel("Fine."),
        plugins=[closing(seen, "last"), plugin("close_run", close_run), closing(seen, "first")],
    )
    result = await agent.run("Go")
    assert (result.status, result.output) == ("completed", "Fine.")
    assert [name for name, _, _ in seen] == ["last", "first"]
    assert [(one.plugin, one.hook) for one in result.hook_failures] == [("under-test", "close_run")]


def test_hook_close_run_is_told_of_a_run_that_timed_out(anyio_backend_name: Backend) -> None:
    async def main() -> None:
        from trilane import Limits
        from trilane.testing import Step

        seen: list[tuple[str, AgentPhase, str]] = []
        agent = Agent(
            ScriptedModel(Step("never", before=anyio.sleep_forever)),
            limits=Limits(run_seconds=5),
            plugins=[closing(seen, "one")],
        )
        with pytest.raises(RunTimeoutError):
            await agent.run("Go")
        assert seen == [("one", AgentPhase.FAILED, "timed_out")]

    run_virtual(main, backend=anyio_backend_name)


async def test_hook_close_run_sees_a_session_that_the_next_run_may_take_afterwards() -> None:
    refused: list[str] = []
    model = ScriptedModel("Fine.", "Again.")

    async def close_run(run: Any, status: str) -> None:
        if not refused:
            other = Agent(model, store=agent.store)
            try:
                await other.run("Too early", session=run.session_id)
            except Exception as error:
                refused.append(type(error).__name__)

    agent = Agent(model, plugins=[plugin("close_run", close_run)])
    first = await agent.run("Go", session="s")
    assert refused == ["SessionBusyError"]
    assert (await agent.run("Go", session=first.session_id)).output == "Again."


async def test_hook_on_cancel_and_close_run_are_called_when_a_stop_reaches_run() -> None:
    seen: list[tuple[str, AgentPhase, str]] = []

    def before_turn(run: Any) -> None:
        run.stop("closed")

    agent = Agent(ScriptedModel(), plugins=[closing(seen, "one"), plugin("before_turn", before_turn)])
    with pytest.raises(RunCancelledError, match="closed"):
        await agent.run("Go")
    assert seen == [("one", AgentPhase.CANCELLED, "cancelled")]
