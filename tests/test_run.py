"""The life of a run: claims, phases, zero run-ahead, closing, stopping and cancelling at every place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest

from trilane import Agent, AgentPhase, hookimpl, tool
from trilane.decisions import CompactedHistory
from trilane.errors import AgentProtocolError, RunCancelledError, SessionBusyError
from trilane.events import PhaseTransitionEvent
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


class Log:
    """Side effects: what a model, tools, hooks and the store did, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def agent(self, **options: Any) -> Agent[None, str]:
        lines = self.lines

        @tool
        async def write(name: str) -> str:
            """Write.

            Args:
                name: What.
            """
            lines.append(f"tool {name}")
            return name

        class Watcher:
            name = "watcher"

            @hookimpl
            def on_compact(self, run: Any) -> Any:
                lines.append("compact")
                return None if run.turn else CompactedHistory(messages=tuple(run.history))

            @hookimpl
            async def before_turn(self, turn: int) -> None:
                lines.append(f"before_turn {turn}")

            @hookimpl
            def after_turn(self, turn: int) -> None:
                lines.append(f"after_turn {turn}")

            @hookimpl
            def decide_tool(self, call: Any) -> None:
                lines.append(f"decide {call.name}")

        class Model(ScriptedModel):
            async def call(self, request: Any, emit: Any) -> Any:
                lines.append(f"model {request.turn}")

                async def watched(delta: Any) -> None:
                    lines.append("delta")
                    await emit(delta)

                return await super().call(request, watched)

        model = Model(
            Step("Two words.", calls=[call("write", name="a"), call("write", name="b")]),
            call("write", name="c"),
            "All done now.",
        )
        return Agent(model, tools=[write], plugins=[Watcher()], **options)


async def test_r08_r23_nothing_is_done_while_an_event_is_held() -> None:
    """While the caller holds event k, no model call, delta, tool, hook or write for what follows has begun."""
    log = Log()
    agent = log.agent()
    held: list[tuple[int, int]] = []
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            await anyio.lowlevel.checkpoint()
            before = len(log.lines)
            stored = (await agent.store.load("s")).version
            for _ in range(25):
                await anyio.lowlevel.checkpoint()
            held.append((len(log.lines) - before, (await agent.store.load("s")).version - stored))
            if event.type == "tool_started":
                assert len([line for line in log.lines if line.startswith("tool")]) in (0, 2)
    assert set(held) == {(0, 0)}
    assert [line for line in log.lines if line.startswith(("model", "tool c"))] == [
        "model 1",
        "model 2",
        "tool c",
        "model 3",
    ]


async def test_r10_r11_closing_at_every_event_leaves_nothing_running_and_does_nothing_more() -> None:
    total = 0
    async with Log().agent().stream("Go") as run:
        async for _ in run:
            total += 1
    assert total > 40
    for leave_after in range(1, total):
        log = Log()
        agent = log.agent()
        async with no_leaks():
            async with agent.stream("Go", session="s") as run:
                seen = 0
                async for _ in run:
                    seen += 1
                    if seen == leave_after:
                        break
                await anyio.lowlevel.checkpoint()
                frozen = list(log.lines)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
        assert log.lines == frozen
        assert run.state.is_terminal
        assert_history(run.result.messages)
        assert (await agent.run("Next", session="s", model=ScriptedModel("Fine."))).output == "Fine."


async def test_r22_a_slow_consumer_stalls_the_model() -> None:
    pulled = 0

    async def endless(request: Any, emit: Any) -> Any:
        nonlocal pulled
        from trilane.messages import Delta
        from trilane.models import ModelResponse

        for _ in range(100_000):
            pulled += 1
            await emit(Delta(text="x"))
        return ModelResponse()

    seen = 0
    async with Agent(FunctionModel(endless)).stream("Go") as run:
        async for event in run:
            seen += event.type == "text_delta"
            assert pulled <= seen + 1
            if seen == 200:
                break
    assert pulled <= 201


async def test_r84_when_the_result_is_visible_no_task_of_the_run_lives() -> None:
    from trilane.testing.leaks import snapshot

    for leave in (False, True):
        model = ScriptedModel(call("look"), "A long answer.")

        @tool
        async def look() -> str:
            """Look."""
            return "a ship"

        before = snapshot()["tasks"]
        async with Agent(model, tools=[look]).stream("Go") as run:
            async for event in run:
                if leave and event.type == "text_delta":
                    break
        assert run.result.status == ("cancelled" if leave else "completed")
        assert set(snapshot()["tasks"]) <= set(before)
        assert model.active == 0


# ---- phases


async def test_r39_every_run_has_a_state_of_its_own() -> None:
    agent = Agent(ScriptedModel("One.", "Two."))
    states = []
    for _ in range(2):
        stream = agent.stream("Go")
        assert stream.state.phase is AgentPhase.CREATED
        async with stream as run:
            await record(run)
            states.append(run.state)
    assert states[0] is not states[1]


async def test_r41_r42_loading_context_is_three_barriers() -> None:
    recorders = [Recorder(name=one, only=["on_tool", "on_state", "on_message"]) for one in ("a", "b", "c")]
    order: list[str] = []

    for recorder in recorders:
        recorder.calls = order  # type: ignore[assignment]
    events = EventRecorder()
    async with Agent(ScriptedModel("Hello."), plugins=recorders).stream("Go") as run:
        await events.record(run)
    assert [one.hook for one in order] == ["on_tool"] * 3 + ["on_state"] * 3 + ["on_message"] * 3  # type: ignore[attr-defined]
    assert {one.phase for one in order} == {AgentPhase.LOADING_CONTEXT}  # type: ignore[attr-defined]
    assert events.phases()[:2] == [AgentPhase.LOADING_CONTEXT, AgentPhase.READY]


async def test_r44_after_run_and_on_success_see_completed() -> None:
    recorder = Recorder(only=["after_run", "on_success"])
    await Agent(ScriptedModel("Hello."), plugins=[recorder]).run("Go")
    assert [(one.hook, one.phase, one.detail) for one in recorder.calls] == [
        ("after_run", AgentPhase.COMPLETED, "completed"),
        ("on_success", AgentPhase.COMPLETED, "completed"),
    ]


async def test_r50_every_transition_is_notified_once_after_it_happened() -> None:
    seen: list[tuple[AgentPhase, AgentPhase, AgentPhase]] = []

    class Hearer:
        name = "hearer"

        @hookimpl
        def on_event(self, run: Any, notification: Any) -> None:
            if isinstance(notification, PhaseTransitionEvent):
                seen.append((notification.previous, notification.phase, run.state.phase))

    log = Log()
    agent = log.agent()
    agent.plugins.register(Hearer())
    events = EventRecorder()
    async with agent.stream("Go") as run:
        await events.record(run)
    assert [phase for _, phase, _ in seen] == events.phases()
    assert all(phase is now for _, phase, now in seen)
    assert all(first[1] is second[0] for first, second in pairwise(seen))


PLACES = {
    "loading_context": ("on_state", AgentPhase.LOADING_CONTEXT),
    "ready": ("before_turn", AgentPhase.READY),
    "compacting": ("on_compact", AgentPhase.COMPACTING),
    "generating": ("around_model", AgentPhase.GENERATING),
    "running_tool": ("around_tool", AgentPhase.RUNNING_TOOL),
}


def interrupting(hook: str, act: Callable[[Any], Awaitable[object]]) -> Any:
    """A plugin that does `act` in a hook, once."""

    class Plugin:
        name = "interrupting"

    done: list[bool] = []

    if hook.startswith("around"):

        async def around(run: Any, call_next: Any) -> Any:
            if not done:
                done.append(True)
                await act(run)
            return await call_next()

        setattr(Plugin, hook, staticmethod(hookimpl(around)))
    else:

        async def plain(run: Any) -> None:
            if not done:
                done.append(True)
                await act(run)

        setattr(Plugin, hook, staticmethod(hookimpl(plain)))
    return Plugin()


async def ended(plugin: Any, catch: Any, act: Callable[[Any], Awaitable[object]] | None = None) -> tuple[Any, Recorder]:
    recorder = Recorder(without=["on_compact"])
    log = Log()
    agent = log.agent()
    agent.plugins.register(recorder)
    agent.plugins.register(plugin)
    events = EventRecorder()
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            if act is None:
                await events.record(run, catch=catch)
            else:
                await act(run)
    if act is None:
        events.check()
        assert isinstance(events.error, catch)
    assert_history(run.result.messages)
    result = await agent.run("Next", session="s", model=ScriptedModel("Fine.", "Fine."))
    assert result.status == "completed"
    return run, recorder


@pytest.mark.parametrize("place", PLACES)
async def test_r45_an_exception_in_every_phase(place: str) -> None:
    hook, _ = PLACES[place]
    boom = ConnectionError("gone")

    async def fail(_run: Any) -> None:
        raise boom

    if place in ("compacting", "running_tool"):  # contained there: see the modes
        return
    run, recorder = await ended(interrupting(hook, fail), ConnectionError)
    assert run.result.error is boom
    assert run.state.phase is AgentPhase.FAILED
    first = recorder.names("on_error", "on_cancel", "after_run", "on_success", "close_run")[:2]
    assert first == ["on_error", "close_run"]


@pytest.mark.parametrize("place", PLACES)
async def test_r46_a_cancel_in_every_phase(place: str) -> None:
    hook, phase = PLACES[place]
    reached = anyio.Event()
    phases: list[AgentPhase] = []

    async def hang(run: Any) -> None:
        phases.append(run.state.phase)
        reached.set()
        await anyio.sleep_forever()

    async def close(run: Any) -> None:
        async with anyio.create_task_group() as group:

            async def read() -> None:
                with pytest.raises(RunCancelledError):
                    await record(run)

            group.start_soon(read)
            await reached.wait()
            await run.close()

    run, recorder = await ended(interrupting(hook, hang), (), close)
    assert phases == [phase]
    assert run.state.phase is AgentPhase.CANCELLED
    ends = recorder.names("on_error", "on_cancel", "after_run", "on_success", "close_run")[:2]
    assert ends == ["on_cancel", "close_run"]


@pytest.mark.parametrize("place", PLACES)
async def test_a_stop_in_every_phase_ends_at_the_next_boundary(place: str) -> None:
    hook, _ = PLACES[place]

    async def stop(run: Any) -> None:
        run.stop(f"enough in {place}")

    run, recorder = await ended(interrupting(hook, stop), RunCancelledError)
    assert str(run.result.error) == f"enough in {place}"
    assert run.result.status == "cancelled"
    assert recorder.details("on_cancel")[0] == f"enough in {place}"


async def test_stop_at_every_event() -> None:
    total = 0
    async with Log().agent().stream("Go") as run:
        async for _ in run:
            total += 1
    for stop_at in range(1, total):
        events = EventRecorder()
        late = False
        async with no_leaks():
            async with Log().agent().stream("Go") as run:
                try:
                    async for event in run:
                        events.events.append(event)
                        if len(events) == stop_at:
                            late = run.state.is_terminal  # the end is not waited for
                            run.stop("enough")
                except RunCancelledError as error:
                    events.error = error
        events.check()
        assert_history(run.result.messages)
        assert run.result.status == ("completed" if late else "cancelled")
        assert str(events.error) == ("None" if late else "enough")
        assert late or len(events) <= stop_at + 8


async def test_a_caller_that_is_cancelled_gets_its_own_cancel_and_the_run_ends() -> None:
    log = Log()
    agent = log.agent()
    async with no_leaks():
        with anyio.CancelScope() as scope:
            async with agent.stream("Go", session="s") as run:
                async for event in run:
                    if event.type == "tool_started":
                        scope.cancel()
                        await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught
    assert run.state.phase is AgentPhase.CANCELLED
    assert agent.active("s") is None


async def test_the_callers_own_exception_comes_through_unchanged() -> None:
    own = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with Log().agent().stream("Go") as run:
            async for _ in run:
                raise own
    assert caught.value is own
    assert run.state.phase is AgentPhase.CANCELLED


# ---- closing, suspending, using it wrongly


async def test_w23_close_while_another_task_reads() -> None:
    agent = Log().agent()
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            await run.__anext__()
            async with anyio.create_task_group() as group:
                outcome: list[object] = []

                async def read() -> None:
                    try:
                        async for _ in run:
                            await anyio.lowlevel.checkpoint()
                    except RunCancelledError as error:
                        outcome.append(error)

                group.start_soon(read)
                await anyio.lowlevel.checkpoint()
                await run.close()
            assert str(outcome[0]) == "closed by the caller"
            assert agent.active("s") is None
            await run.close()


async def test_close_inside_a_run_is_refused_and_stop_is_named() -> None:
    refused: list[str] = []

    @tool
    async def close_me() -> str:
        """Close the run."""
        stream = agent.active("s")
        assert stream is not None
        try:
            await stream.close()
        except AgentProtocolError as error:
            refused.append(str(error))
        return "still here"

    agent = Agent(ScriptedModel(call("close_me"), "Done."), tools=[close_me])
    assert (await agent.run("Go", session="s")).output == "Done."
    assert "run.stop(reason)" in refused[0]


async def test_suspend_settles_nothing_that_is_stored() -> None:
    agent = Log().agent()
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "tool_started":
                break
        await run.suspend()
    assert (run.result.status, run.result.stop_reason) == ("cancelled", "suspended")
    records = (await agent.store.load("s")).records
    kinds = [one.kind for one in records if one.kind != "view_replaced"]
    assert kinds == ["message", "message", *["call_started"] * 2, *["call_withdrawn"] * 2, "run_ended"]
    assert records[-1].status == "suspended"  # type: ignore[union-attr]
    assert agent.active("s") is None


async def test_r52_a_busy_session_is_refused_at_once_and_free_after_every_end() -> None:
    agent = Agent(ScriptedModel("One.", "Two.", ConnectionError(), "Three."))
    async with agent.stream("Go", session="s") as run:
        with pytest.raises(SessionBusyError, match=r"agent\.active"):
            async with agent.stream("Go", session="s"):
                pass
        with pytest.raises(SessionBusyError):
            await agent.run("Go", session="s")
        assert agent.active("s") is run
        await record(run)
        assert (await agent.run("Again", session="s")).output == "Two."
    with pytest.raises(ConnectionError):
        await agent.run("Go", session="s")
    assert (await agent.run("Again", session="s")).output == "Three."


async def test_a_stream_is_used_once_and_only_when_entered() -> None:
    stream = Agent(ScriptedModel("Hello.")).stream("Go")
    with pytest.raises(AgentProtocolError, match="has not started"):
        _ = stream.run_id
    with pytest.raises(AgentProtocolError, match="has not started"):
        await stream.__anext__()
    async with stream as run:
        with pytest.raises(AgentProtocolError, match="has not ended"):
            _ = run.result
        await record(run)
    with pytest.raises(AgentProtocolError, match="entered already"):
        await stream.__aenter__()


async def test_r15_the_error_is_raised_with_the_producers_frames() -> None:
    import traceback

    def explode() -> None:
        raise ConnectionError("gone")

    async def model(_request: Any, _emit: Any) -> str:
        explode()
        return ""

    async with Agent(FunctionModel(model)).stream("Go") as run:
        with pytest.raises(ConnectionError) as caught:
            await record(run)
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert "explode" in frames
        with pytest.raises(ConnectionError) as again:
            await run.__anext__()
        assert again.value is caught.value


async def test_a_stream_inside_an_async_generator_is_refused() -> None:
    agent = Agent(ScriptedModel("Hello.", "Hello."))

    async def generate() -> AsyncIterator[str]:
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                yield event.type

    with pytest.raises(AgentProtocolError, match=r"rt\.stream"):
        async for _ in generate():
            pass
    assert agent.active("s") is None

    @asynccontextmanager
    async def manage() -> AsyncIterator[Any]:
        async with agent.stream("Go", session="s") as run:
            yield run

    async with manage() as run:
        await record(run)
    assert run.result.output == "Hello."


async def test_text_and_wait() -> None:
    agent = Agent(ScriptedModel("One two three.", "Hello."))
    async with agent.stream("Go") as run:
        assert "".join([text async for text in run.text()]) == "One two three."
    async with agent.stream("Go") as run:
        result = await run.wait()
    assert (result.output, run.result is result) == ("Hello.", True)
