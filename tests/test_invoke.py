"""One tool call: where its function runs, time limits, generators, context variables, late results."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from trilane import Agent, Tool, ToolContext, hookimpl, tool
from trilane.errors import RunCancelledError, ToolError
from trilane.events import LateResultEvent, ToolCompleted, ToolProgress
from trilane.state import AgentPhase
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def invoked(*functions: Any, calls: Any = None, plugins: Any = (), **options: Any) -> EventRecorder:
    """Call each tool once, in one batch, without arguments."""
    made = calls or [call(function.__name__) for function in functions]
    subject = Agent(ScriptedModel(made, "Done."), tools=list(functions), plugins=plugins, **options)
    async with subject.stream("Go") as run:
        events = await record(run)
    events.check()
    assert_history(run.result.messages)
    return events


def contents(events: EventRecorder) -> list[Any]:
    return [event.result.content for event in events.of(ToolCompleted)]


async def test_sync_tools_run_in_threads_unless_they_ask_for_the_loop() -> None:
    @tool
    def in_thread() -> bool:
        """Tell."""
        return threading.current_thread() is threading.main_thread()

    @tool(run_on="loop")
    def on_loop() -> bool:
        """Tell."""
        return threading.current_thread() is threading.main_thread()

    @tool
    async def in_task() -> bool:
        """Tell."""
        return threading.current_thread() is threading.main_thread()

    assert contents(await invoked(in_thread, on_loop, in_task)) == ["false", "true", "true"]


async def test_f012_sync_tools_run_side_by_side_and_leave_the_loop_free() -> None:
    barrier = threading.Barrier(2)

    @tool
    def one() -> str:
        """Meet the other."""
        barrier.wait(10)
        return "met"

    @tool
    def other() -> str:
        """Meet the one."""
        barrier.wait(10)
        return "met"

    assert contents(await invoked(one, other)) == ["met", "met"]


async def test_f011_context_variables_reach_tools_and_hooks_and_do_not_leak_back() -> None:
    seen: dict[str, str] = {}

    @tool
    def threaded() -> str:
        """Look."""
        value = variable.get()
        variable.set("changed in the thread")
        return value

    @tool
    async def task() -> str:
        """Look."""
        value = variable.get()
        variable.set("changed in the task")
        return value

    class Plugin:
        name = "plugin"

        @hookimpl
        def before_run(self) -> None:
            seen["hook"] = variable.get()

        @hookimpl
        async def after_turn(self) -> None:
            seen["later hook"] = variable.get()

    variable.set("outer")
    events = await invoked(threaded, task, calls=[call("threaded"), call("task"), call("threaded")], plugins=[Plugin()])
    assert contents(events) == ["outer"] * 3
    assert seen == {"hook": "outer", "later hook": "outer"}
    assert variable.get() == "outer"


async def test_generators_show_what_they_yield_and_return_their_result() -> None:
    @tool
    async def asynchronous() -> AsyncIterator[str]:
        """Yield."""
        yield "one"
        yield "two"

    @tool
    def threaded() -> Iterator[str]:
        """Yield, in a thread."""
        yield "one"
        yield "two"
        return "three"

    @tool(run_on="loop")
    def on_loop() -> Iterator[Any]:
        """Yield, in the loop."""
        yield {"step": 1}
        yield "last"

    for function, result in ((asynchronous, "two"), (threaded, "three"), (on_loop, "last")):
        events = await invoked(function)
        assert contents(events) == [result]
        assert len(events.of(ToolProgress)) == 2
    assert events.of(ToolProgress)[0].data == {"step": 1}


async def test_a_generator_is_closed_when_its_run_is_stopped() -> None:
    closed: list[str] = []

    @tool
    async def endless() -> AsyncIterator[str]:
        """Yield for ever."""
        try:
            while True:
                yield "again"
        finally:
            closed.append("closed")

    async with no_leaks():
        async with Agent(ScriptedModel(call("endless")), tools=[endless]).stream("Go") as run:
            async for event in run:
                if event.type == "tool_progress":
                    break
    assert closed == ["closed"]


async def test_run_and_call_are_in_the_context() -> None:
    class Deps:
        def __init__(self) -> None:
            self.value = 5

    seen: dict[str, Any] = {}

    @tool
    async def look(ctx: ToolContext[Deps]) -> int:
        """Look."""
        seen.update(turn=ctx.turn, agent=ctx.agent_name, key=ctx.key, attempt=ctx.attempt, call=ctx.call.name)
        seen.update(open=[one.name for one in ctx.open_calls], metadata=dict(ctx.metadata), phase=ctx.state.phase.value)
        return ctx.deps.value

    subject = Agent(ScriptedModel(call("look"), "Done."), name="looker", tools=[look], deps_type=Deps)
    result = await subject.run("Go", deps=Deps(), metadata={"user": "me"}, session="s")
    assert result.messages[2].to_json().count('"content":"5"') == 1
    assert seen.pop("key").startswith("s:")
    assert seen == {
        "turn": 1,
        "agent": "looker",
        "attempt": 1,
        "call": "look",
        "open": ["look"],
        "metadata": {"user": "me"},
        "phase": "running_tool",
    }


async def test_w34_misuse_of_a_context_is_refused_where_it_happens_and_ends_no_run() -> None:
    refusals: list[str] = []

    @tool
    async def misuse(ctx: ToolContext) -> str:
        """Do what one must not."""
        attempts: list[Any] = [
            lambda: ctx.emit("name", object()),  # type: ignore[arg-type]
            lambda: ctx.emit(5),  # type: ignore[arg-type]
            lambda: ctx.progress(5),  # type: ignore[arg-type]
            lambda: ctx.progress(data={"deep": object()}),  # type: ignore[dict-item]
            lambda: ctx.progress(fraction=7),
            lambda: ctx.publish("text"),  # type: ignore[arg-type]
            lambda: ctx.publish(LateResultEvent, to="nobody"),  # type: ignore[arg-type]
            lambda: ctx.close(),
            lambda: ctx.history.clear(),
            lambda: ctx.state.go(AgentPhase.CREATED),
        ]
        for attempt in attempts:
            try:
                value = attempt()
                if value is not None:
                    await value
            except Exception as error:
                refusals.append(type(error).__name__)
        return "still here"

    events = await invoked(misuse)
    assert contents(events) == ["still here"]
    assert refusals == [
        *("TypeError", "TypeError", "TypeError", "TypeError", "ValueError", "TypeError", "TypeError"),
        *("AgentProtocolError", "AgentProtocolError", "PhaseError"),
    ]
    assert all(event.to_json() for event in events)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_w24_a_tool_cannot_fake_a_cancel() -> None:
    @tool
    async def fake() -> str:
        """Raise what asyncio raises."""
        raise asyncio.CancelledError

    @tool
    def fake_in_thread() -> str:
        """Raise what asyncio raises."""
        raise asyncio.CancelledError

    events = await invoked(fake, fake_in_thread)
    assert [event.result.outcome for event in events.of(ToolCompleted)] == ["error", "error"]
    assert events.events[-1].type == "run_completed"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (asyncio.CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
        (BaseException("why"), "BaseException"),
        (BaseExceptionGroup("two", [GeneratorExit(), ValueError("why")]), "GeneratorExit, ValueError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("kind", ["async", "thread", "loop", "generator", "async_generator"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_is_no_ordinary_exception_is_named_as_what_it_is(error: BaseException, name: str, kind: str) -> None:
    async def in_task() -> None:
        raise error

    def called() -> None:
        raise error

    def stepped() -> Iterator[int]:
        yield 1
        raise error

    async def awaited() -> AsyncIterator[int]:
        yield 1
        raise error

    functions: dict[str, Any] = {"async": in_task, "generator": stepped, "async_generator": awaited}
    options: dict[str, Any] = {"run_on": "loop"} if kind == "loop" else {}
    function = functions.get(kind, called)
    made = Tool.from_function(function, name="odd", description="Odd.", **options)
    events = await invoked(made, calls=call("odd"))
    assert contents(events) == [f"Tool odd failed: {name}"]
    strict = Tool.from_function(function, name="odd", description="Odd.", on_error="raise", **options)
    with pytest.raises(ToolError, match="which nobody had asked for") as caught:
        await Agent(ScriptedModel(call("odd")), tools=[strict]).run("Go")
    assert type(caught.value) is ToolError
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_w25_keyboard_interrupt_and_system_exit_of_a_tool_are_raised_as_they_are(
    error: type[BaseException], threaded: bool
) -> None:
    @tool
    async def end() -> str:
        """End the program."""
        raise error

    @tool(name="end")
    def end_in_thread() -> str:
        """End the program."""
        raise error

    subject = Agent(ScriptedModel(call("end"), "Again."), tools=[end_in_thread if threaded else end])
    with pytest.raises(error):
        await subject.run("Go", session="s")
    result = await subject.run("And now?", session="s")
    assert result.output == "Again."
    assert_history(result.messages)


async def test_a_base_exception_of_a_tool_is_an_error_of_the_tool() -> None:
    class Odd(BaseException):
        pass

    @tool
    async def odd() -> str:
        """Raise something odd."""
        raise Odd

    @tool
    async def closing() -> str:
        """Raise GeneratorExit."""
        raise GeneratorExit

    events = await invoked(odd, closing)
    assert [event.result.outcome for event in events.of(ToolCompleted)] == ["error", "error"]


class TestTime:
    """Time limits, in virtual time."""

    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return request.param  # type: ignore[no-any-return]

    def test_r87_a_tool_that_takes_too_long_is_an_error_result_and_the_run_goes_on(self, backend: Backend) -> None:
        cancelled: list[bool] = []

        @tool(timeout=60)
        async def slow() -> str:
            """Sleep."""
            try:
                await anyio.sleep(1000)
            except BaseException:
                cancelled.append(True)
                raise
            return "never"

        async def main() -> None:
            start = anyio.current_time()
            events = await invoked(slow)
            assert anyio.current_time() - start == pytest.approx(60, abs=1)
            (result,) = [event.result for event in events.of(ToolCompleted)]
            assert "did not end within 60 s" in str(result.content)
            assert result.outcome == "timed_out"
            assert events.events[-1].type == "run_completed"

        run_virtual(main, backend=backend)
        assert cancelled == [True]

    def test_a_tool_that_ends_just_as_its_time_is_up_keeps_its_result(self, backend: Backend) -> None:
        @tool(timeout=60)
        async def stubborn() -> str:
            """Swallow the cancel and return."""
            try:
                await anyio.sleep(1000)
            except BaseException:
                pass
            return "done all the same"

        async def main() -> None:
            if backend == "trio":
                return
            assert contents(await invoked(stubborn)) == ["done all the same"]

        run_virtual(main, backend=backend)

    def test_a_thread_that_takes_too_long_is_given_up_and_its_late_result_notified(self, backend: Backend) -> None:
        let_go = threading.Event()
        late: list[LateResultEvent] = []
        threads: list[threading.Thread] = []

        @tool(timeout=60)
        def slow() -> str:
            """Hang."""
            threads.append(threading.current_thread())
            let_go.wait(30)
            return "late"

        @tool
        def wait_for_it() -> str:
            """Wait until the other has ended."""
            let_go.set()
            threads[0].join()
            return "ended"

        class Hearer:
            name = "hearer"

            @hookimpl
            def on_event(self, notification: Any) -> None:
                if isinstance(notification, LateResultEvent):
                    late.append(notification)

        async def main() -> None:
            model = ScriptedModel(call("slow"), call("wait_for_it"), "Done.")
            async with Agent(model, tools=[slow, wait_for_it], plugins=[Hearer()]).stream("Go") as run:
                events = await record(run)
            events.check()
            assert "it may still finish, effect unknown" in str(contents(events)[0])
            assert events.events[-1].type == "run_completed"

        run_virtual(main, backend=backend)
        assert [(one.call.name, one.result.content) for one in late] == [("slow", "late")]

    def test_timeouts_count_per_attempt(self, backend: Backend) -> None:
        attempts: list[int] = []

        @tool(timeout=10, attempts=3, effect="read")
        async def slow(ctx: ToolContext) -> str:
            """Be slow twice."""
            attempts.append(ctx.attempt)
            await anyio.sleep(100 if ctx.attempt < 3 else 5)
            return "at last"

        async def main() -> None:
            assert contents(await invoked(slow)) == ["at last"]

        run_virtual(main, backend=backend)
        assert attempts == [1, 2, 3]


async def test_w03_a_threaded_tool_that_goes_on_after_a_cancel_is_said_to_go_on() -> None:
    let_go = threading.Event()
    begun = threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        begun.set()
        let_go.wait(30)
        return "late"

    subject = Agent(ScriptedModel(call("hang"), "Again."), tools=[hang], grace_seconds=0.1)
    try:
        async with subject.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "tool_started":
                    break
            with pytest.raises(RunCancelledError):
                async with anyio.create_task_group() as group:

                    async def conduct() -> None:
                        while not begun.is_set():
                            await anyio.lowlevel.checkpoint()
                        await run.close()

                    group.start_soon(conduct)
                    try:
                        await record(run)
                    except RunCancelledError as error:
                        caught: BaseException = error
                raise caught
    finally:
        let_go.set()
    result = run.result.messages[2]
    assert result.kind == "tool"
    assert (result.results[0].outcome, run.result.abandoned[0].name) == ("still_running", "hang")
    assert "still running, effect unknown" in str(result.results[0].content)
    again = await subject.run("And now?", session="s")
    assert_history(again.messages)


async def test_w03_a_threaded_tool_that_ends_within_the_grace_time_keeps_its_true_result() -> None:
    begun = threading.Event()
    let_go = threading.Event()

    @tool
    def hang() -> str:
        """End soon."""
        begun.set()
        let_go.wait(30)
        time.sleep(0.05)  # real time: a thread that is busy when the run is closed, and ends soon after
        return "true result"

    subject = Agent(ScriptedModel(call("hang")), tools=[hang], grace_seconds=5)
    async with subject.stream("Go") as run:
        async for event in run:
            if event.type == "tool_started":
                break
        async with anyio.create_task_group() as group:

            async def conduct() -> None:
                while not begun.is_set():
                    await anyio.lowlevel.checkpoint()
                let_go.set()
                await run.close()

            group.start_soon(conduct)
            with pytest.raises(RunCancelledError):
                await record(run)
    result = run.result.messages[2]
    assert result.kind == "tool"
    assert (result.results[0].outcome, result.results[0].content) == ("ok", "true result")
    assert run.result.abandoned == ()
