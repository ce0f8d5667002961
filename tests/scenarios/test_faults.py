"""Faults that other runtimes show, one test each where no other file has it: W1, W2, W4, W6, W7, W9, W10, W13, W22."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import anyio
import pytest

from trilane import Agent, AgentPhase, hookimpl, tool
from trilane.errors import ModelError, PluginError, RunCancelledError
from trilane.events import MessageCompleted, RunCancelled, RunFailed
from trilane.testing import (
    EventRecorder,
    FunctionModel,
    Recorder,
    ScriptedModel,
    Step,
    assert_history,
    call,
    no_leaks,
    record,
)

pytestmark = pytest.mark.anyio

only_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@tool
async def look() -> str:
    """Look."""
    return "a ship"


async def usable(agent: Agent[Any, Any], run: Any) -> None:
    """Whatever happened: one terminal phase, a valid history, a free session."""
    assert run.state.is_terminal
    assert_history(run.result.messages)
    again = await Agent(ScriptedModel("Fine."), store=agent.store).run("And now?", session="s")
    assert again.output == "Fine."
    assert_history(again.messages)


# ---- W1, W2: cancels


@only_asyncio
@pytest.mark.parametrize("cancels", [1, 2, 5])
@pytest.mark.parametrize("slow", ["on_cancel", "close_run", "tool", "model"])
async def test_w01_further_cancels_in_the_clean_up_leave_no_active_phase(slow: str, cancels: int) -> None:
    reached = asyncio.Event()
    cleaning = asyncio.Event()

    async def clean_up_slowly() -> None:
        cleaning.set()
        for _ in range(50):
            await asyncio.sleep(0)

    @tool
    async def hang() -> str:
        """Hang."""
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            if slow == "tool":
                await clean_up_slowly()
        return "never"

    async def model(request: Any, emit: Any) -> str:
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            if slow == "model":
                await clean_up_slowly()
        return "never"

    class Plugin:
        name = "plugin"

    if slow in ("on_cancel", "close_run"):
        setattr(Plugin, slow, staticmethod(hookimpl(clean_up_slowly)))
    used = FunctionModel(model) if slow == "model" else ScriptedModel(call("hang"))
    agent = Agent(used, tools=[hang], plugins=[Plugin()], grace_seconds=1)
    streams: list[Any] = []

    async def caller() -> None:
        async with agent.stream("Go", session="s") as run:
            streams.append(run)
            async for _ in run:
                pass

    async with no_leaks():
        task = asyncio.create_task(caller())
        await reached.wait()
        task.cancel()
        await cleaning.wait()
        for _ in range(cancels - 1):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert streams[0].state.phase is AgentPhase.CANCELLED
    await usable(agent, streams[0])


async def test_w01_a_model_that_raises_generator_exit_is_a_failed_model() -> None:
    async def model(request: Any, emit: Any) -> str:
        raise GeneratorExit

    agent = Agent(FunctionModel(model))
    async with agent.stream("Go", session="s") as run:
        events = await record(run, catch=ModelError)
    events.check()
    assert "GeneratorExit" in str(events.error)
    await usable(agent, run)


@only_asyncio
@pytest.mark.parametrize("where", ["tool", "model", "hook"])
async def test_w02_one_swallowed_cancel_makes_nobody_hang(where: str) -> None:
    reached = asyncio.Event()

    async def swallow() -> None:
        reached.set()
        for _ in range(2):
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                pass

    @tool
    async def stubborn() -> str:
        """Swallow cancels."""
        await swallow()
        return "late"

    async def model(request: Any, emit: Any) -> str:
        await swallow()
        return "late"

    class Plugin:
        name = "plugin"

        @hookimpl
        async def before_run(self) -> None:
            if where == "hook":
                await swallow()

    used = FunctionModel(model) if where == "model" else ScriptedModel(call("stubborn"))
    agent = Agent(used, tools=[stubborn], plugins=[Plugin()])
    async with agent.stream("Go", session="s") as run:
        reader = asyncio.create_task(record(run, catch=RunCancelledError))
        await reached.wait()
        start = anyio.current_time()
        await run.close()
        assert anyio.current_time() - start < 5
        (await reader).check()
    assert run.state.phase is AgentPhase.CANCELLED
    await usable(agent, run)


@only_asyncio
async def test_w02_a_tool_that_swallows_every_cancel_is_given_up_and_listed() -> None:
    reached = asyncio.Event()
    let_go = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Swallow every cancel."""
        reached.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                pass
        return "late"

    agent = Agent(ScriptedModel(call("stubborn")), tools=[stubborn], grace_seconds=0.2)
    async with agent.stream("Go", session="s") as run:
        reader = asyncio.create_task(record(run, catch=RunCancelledError))
        await reached.wait()
        start = anyio.current_time()
        await run.close()
        assert anyio.current_time() - start < 2
        await reader
    (result,) = run.result.messages[2].results  # type: ignore[union-attr]
    assert result.outcome == "still_running"
    assert [one.name for one in run.result.abandoned] == ["stubborn"]
    let_go.set()
    await usable(agent, run)


@only_asyncio
async def test_w24_a_model_cannot_fake_a_cancel() -> None:
    async def model(request: Any, emit: Any) -> str:
        raise asyncio.CancelledError

    agent = Agent(FunctionModel(model))
    async with agent.stream("Go", session="s") as run:
        events = await record(run, catch=ModelError)
    events.check()
    assert events.one(RunFailed).status == "failed"
    assert "nobody had asked for" in str(events.error)
    await usable(agent, run)


# ---- W4, W6, W7, W9, W10, W13: ends


async def test_w04_a_failed_run_answers_every_call_itself_and_truly() -> None:
    class Plugin:
        name = "plugin"

        @hookimpl
        def decide_tool(self, call: Any) -> None:
            return None

        @hookimpl
        def after_model(self, run: Any, response: Any) -> None:
            if run.turn == 2:
                from trilane.errors import RunLimitError

                raise RunLimitError("spent")

    model = ScriptedModel(call("look", call_id="a"), [call("look", call_id="b"), call("look", call_id="c")])
    agent = Agent(model, tools=[look], plugins=[Plugin()])
    async with agent.stream("Go", session="s") as run:
        await record(run, catch=Exception)
    results = [one for message in run.result.messages if message.kind == "tool" for one in message.results]
    assert [(one.call_id, one.outcome) for one in results] == [("a", "ok"), ("b", "not_started"), ("c", "not_started")]
    # What is stored is what the run said, not a repair at the next load.
    stored = [one.result for one in (await agent.store.load("s")).records if one.kind == "call_finished"]
    assert stored == results
    await usable(agent, run)


@pytest.mark.parametrize("hook", ["after_run", "on_success", "close_run", "on_event"])
async def test_w06_w07_an_error_while_completion_is_announced_leaves_everybody_in_agreement(hook: str) -> None:
    def fail(run: Any) -> None:
        if run.state.phase is AgentPhase.COMPLETED:
            raise KeyError("late")

    class Broken:
        name = "broken"

    broken = Broken()
    setattr(broken, hook, hookimpl(fail))
    recorder = Recorder(only=["after_run", "on_success", "on_error", "on_cancel", "close_run"])
    agent = Agent(ScriptedModel("Hello."), plugins=[recorder, broken])
    async with agent.stream("Go", session="s") as run:
        events = await record(run)
    events.check()
    assert events.events[-1].type == "run_completed"
    assert (run.result.status, run.state.phase, run.result.output) == ("completed", AgentPhase.COMPLETED, "Hello.")
    assert recorder.names() == ["after_run", "on_success", "close_run"]
    assert run.result.hook_failures
    await usable(agent, run)


@only_asyncio
@pytest.mark.parametrize("hook", ["after_run", "on_success", "close_run"])
async def test_w07_a_cancel_after_completion_propagates_and_changes_no_status(hook: str) -> None:
    reached = asyncio.Event()

    class Slow:
        name = "slow"

    async def wait() -> None:
        reached.set()
        await anyio.sleep_forever()

    slow = Slow()
    setattr(slow, hook, hookimpl(wait))
    recorder = Recorder(only=["on_error", "on_cancel", "close_run"])
    agent = Agent(ScriptedModel("Hello."), plugins=[recorder, slow], grace_seconds=0.3)
    streams: list[Any] = []

    async def caller() -> None:
        async with agent.stream("Go", session="s") as run:
            streams.append(run)
            async for _ in run:
                pass

    task = asyncio.create_task(caller())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert streams[0].result.status == "completed"
    assert streams[0].result.output == "Hello."
    assert recorder.names() == ["close_run"]
    await usable(agent, streams[0])


async def test_w09_what_a_before_hook_began_is_released_on_every_end() -> None:
    held: list[str] = []

    class Holder:
        name = "holder"

        @hookimpl
        def before_run(self, run: Any) -> None:
            run.stash[self] = "handle"
            held.append("handle")

        @hookimpl
        def close_run(self, run: Any) -> None:
            held.remove(run.stash[self])

    for script, act in (("Hello.", None), (ConnectionError(), None), ("Hello.", "stop"), ("Hello.", "leave")):
        agent = Agent(ScriptedModel(script), plugins=[Holder()])
        async with agent.stream("Go") as run:
            try:
                async for event in run:
                    if event.type == "text_delta" and act == "stop":
                        run.stop("enough")
                    if event.type == "text_delta" and act == "leave":
                        break
            except Exception:
                pass
        assert held == []


async def test_w10_failed_and_cancelled_runs_close_what_is_open_and_end_with_their_event() -> None:
    for end in ("fail", "stop"):
        events = EventRecorder()
        step = Step("Some text", reasoning="Some thought", error=ConnectionError() if end == "fail" else None)
        agent = Agent(ScriptedModel(step))
        async with agent.stream("Go", session="s") as run:
            try:
                async for event in run:
                    events.events.append(event)
                    if event.type == "reasoning_delta" and end == "stop":
                        run.stop("enough")
            except (ConnectionError, RunCancelledError):
                pass
        events.check()
        assert len(events.of(RunFailed)) == (end == "fail")
        assert len(events.of(RunCancelled)) == (end == "stop")
        await usable(agent, run)


@pytest.mark.parametrize("end", ["fail", "stop", "leave"])
async def test_w13_partial_text_is_kept_on_every_end(end: str) -> None:
    error = ConnectionError("gone") if end == "fail" else None
    agent = Agent(ScriptedModel(Step("One two three four", error=error)))
    seen = 0
    async with agent.stream("Go", session="s") as run:
        try:
            async for event in run:
                seen += event.type == "text_delta"
                if seen == 2 and end == "leave":
                    break
                if seen == 2 and end == "stop":
                    run.stop("enough")
        except (ConnectionError, RunCancelledError):
            pass
    message = run.result.message
    assert message is not None
    assert message.interrupted
    assert message.text == ("One two three four" if end == "fail" else "One two ")
    model = ScriptedModel("Fine.")
    await agent.run("Go on", session="s", model=model)
    assert model.requests[0].messages[1] == message
    assert_history(model.requests[0].messages, as_request=True)


async def test_w22_the_running_event_loop_is_the_one_that_was_asked_for(anyio_backend_name: str) -> None:
    loops: list[str] = []

    @tool
    async def which() -> str:
        """Tell the event loop."""
        trio = sys.modules.get("trio")
        loops.append("trio" if trio is not None and trio.lowlevel.in_trio_run() else "asyncio")
        return loops[0]

    await Agent(ScriptedModel(call("which"), "Done."), tools=[which]).run("Go")
    assert loops == [anyio_backend_name]


# ---- R52: the session is free, wherever the clean-up is disturbed


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
@pytest.mark.parametrize("hook", ["on_event", "on_error", "on_cancel", "after_run", "on_success", "close_run"])
async def test_r52_the_session_is_free_whatever_a_hook_of_the_end_does(hook: str, end: str) -> None:
    class Odd(BaseException):
        pass

    def fail(run: Any) -> None:
        if run.state.is_terminal:
            raise Odd

    class Broken:
        name = "broken"

    broken = Broken()
    setattr(broken, hook, hookimpl(fail))
    agent = Agent(ScriptedModel(ConnectionError() if end == "fail" else "Hello."), plugins=[broken])
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            try:
                async for event in run:
                    if end == "cancel" and event.type == "text_delta":
                        break
            except ConnectionError:
                pass
    expected = {"complete": "completed", "fail": "failed", "cancel": "cancelled"}
    assert run.result.status == expected[end]
    await usable(agent, run)


async def test_r48_r49_a_terminal_phase_has_no_way_out() -> None:
    from trilane.errors import PhaseError

    agent = Agent(ScriptedModel("Hello."))
    async with agent.stream("Go") as run:
        events = await record(run)
    for target in AgentPhase:
        with pytest.raises(PhaseError):
            run.state.go(target)
        assert run.state.phase is AgentPhase.COMPLETED
    assert [event.phase for event in events if event.type == "phase_changed"].count(AgentPhase.COMPLETED) == 1


async def test_r55_compaction_generation_and_tools_have_pairs_that_are_closed_on_every_exit() -> None:
    class Compactor:
        name = "compactor"

        @hookimpl
        async def on_compact(self, run: Any) -> None:
            if run.turn == 1:
                await anyio.sleep_forever()

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[Compactor()])
    events = EventRecorder()
    async with agent.stream("Go", session="s") as run:
        async with anyio.create_task_group() as group:

            async def close() -> None:
                while run.state.phase is not AgentPhase.COMPACTING or events.types().count("compaction_started") < 2:
                    await anyio.lowlevel.checkpoint()
                await run.close()

            group.start_soon(close)
            await events.record(run, catch=RunCancelledError)
    events.check()
    types = events.types()
    assert types.count("compaction_started") == types.count("compaction_completed") == 2
    assert types.count("tool_started") == types.count("tool_completed") == 1
    assert len(events.of(MessageCompleted)) == types.count("message_started")
    assert_history(run.result.messages)


async def test_an_exception_group_never_reaches_the_caller() -> None:
    async def model(request: Any, emit: Any) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
        return "never"

    async def fail() -> None:
        raise ConnectionError("gone")

    agent = Agent(FunctionModel(model))
    with pytest.raises(ConnectionError, match="gone"):
        await agent.run("Go", session="s")


async def test_a_strict_plugin_error_is_no_failure_of_the_run() -> None:
    class Strict:
        name = "strict"
        strict = True

        @hookimpl
        def close_run(self) -> None:
            raise KeyError("late")

    agent = Agent(ScriptedModel("Hello."), plugins=[Strict()])
    async with agent.stream("Go", session="s") as run:
        events = await record(run, catch=PluginError)
    assert (events.events[-1].type, run.result.status) == ("run_completed", "completed")
    assert isinstance(events.error, PluginError)
    assert events.error.result is run.result
