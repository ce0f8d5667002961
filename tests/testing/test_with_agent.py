"""The kit and real runs: what runs do passes the checks, on both backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from trilane import Agent, tool
from trilane.config import Limits
from trilane.errors import RunCancelledError, RunTimeoutError
from trilane.events import RunCompleted, RunFailed, ToolCompleted
from trilane.hookspecs import HOOKS
from trilane.models import Emit, ModelRequest
from trilane.testing import (
    FunctionModel,
    Recorder,
    ScriptedModel,
    ScriptError,
    Step,
    assert_events,
    assert_history,
    call,
    no_leaks,
    record,
    run_virtual,
)
from trilane.testing.clock import Backend
from trilane.testing.models import ScriptStep

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tool
async def search(text: str) -> str:
    """Search the harbour.

    Args:
        text: What for.
    """
    return f"two {text}"


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("broken")


@tool
async def hang() -> str:
    """Never return."""
    await anyio.sleep_forever()
    return "never"


def script() -> list[ScriptStep]:
    """Reasoning, text, parallel calls of all kinds of outcome, and an answer."""
    calls = [call("search", text="ships"), call("broken"), call("unknown"), call("search", txt="wrong")]
    return [Step("Looking.", reasoning="I must search.", calls=calls), call("search", text="boats"), "Two of each."]


def agent(*steps: ScriptStep, recorder: Recorder | None = None) -> tuple[Agent[None, str], ScriptedModel]:
    model = ScriptedModel(*steps)
    plugins = [] if recorder is None else [recorder]
    return Agent(model, tools=[search, broken, hang], plugins=plugins), model


async def test_a_complete_run_passes_every_check() -> None:
    recorder = Recorder()
    subject, model = agent(*script(), recorder=recorder)
    async with no_leaks():
        async with subject.stream("How many?") as run:
            events = await record(run)
    events.check()
    assert_history(run.result.messages)
    for request in model.requests:
        assert_history(request.messages, as_request=True)
    model.assert_finished()
    assert events.texts() == ["Looking.", "Two of each."]
    assert events.one(RunCompleted).result.output == "Two of each."
    outcomes = [event.result.outcome for event in events.of(ToolCompleted)]
    assert outcomes == ["ok", "error", "error", "error", "ok"]
    assert model.active == 0


async def test_hooks_are_written_down_in_the_phase_they_belong_to() -> None:
    recorder = Recorder(without=["on_compact"])
    subject, _ = agent(*script(), recorder=recorder)
    result = await subject.run("How many?")
    assert result.status == "completed"
    for made in recorder.calls:
        allowed = HOOKS[made.hook].phases
        assert made.phase in allowed if allowed else made.phase is None, made
    assert set(HOOKS) - set(recorder.names()) == {"on_model_error", "on_error", "on_cancel", "on_reply", "on_compact"}
    ends = recorder.names("after_run", "on_success", "on_error", "on_cancel", "close_run")
    assert ends == ["after_run", "on_success", "close_run"]


async def test_a_recorder_changes_no_event() -> None:
    plain, _ = agent(*script())
    watched, _ = agent(*script(), recorder=Recorder(without=["on_compact"]))
    types = []
    for subject in (plain, watched):
        async with subject.stream("How many?") as run:
            types.append((await record(run)).types(without=()))
    assert types[0] == types[1]


async def test_a_script_that_is_too_short_fails_the_run_with_its_error() -> None:
    subject, model = agent(call("search", text="ships"))
    with pytest.raises(
        ScriptError, match=r"unexpected model call 2, the script has 1 steps .* results of call_"
    ) as caught:
        await subject.run("How many?")
    with pytest.raises(ScriptError):
        model.assert_finished()
    assert len(model.requests) == 2
    async with subject.stream("Again") as run:
        events = await record(run, catch=ScriptError)
    events.check()
    assert isinstance(events.one(RunFailed).error, ScriptError)
    assert events.error is not caught.value


@pytest.mark.parametrize("deltas", [0, 2])
async def test_a_model_that_fails_leaves_a_valid_history_and_stream(deltas: int) -> None:
    boom = ConnectionError("gone")
    text = "one two three" if deltas else ""
    subject, model = agent(call("search", text="ships"), Step(text, error=boom), "Back again.")
    async with no_leaks():
        async with subject.stream("How many?", session="s") as run:
            events = await record(run, catch=ConnectionError)
        assert events.error is boom
        events.check()
        assert_history(run.result.messages)
        again = await subject.run("And now?", session="s")
    assert again.output == "Back again."
    assert_history(again.messages)
    assert_history(model.requests[-1].messages, as_request=True)
    model.assert_finished()


async def test_r10_leaving_at_every_event_passes_every_check() -> None:
    subject, _ = agent(*script())
    async with subject.stream("How many?") as run:
        total = len(await record(run))
    for leave_after in range(1, total):
        subject, model = agent(*script())
        seen = []
        async with no_leaks():
            async with subject.stream("How many?", session="s") as run:
                async for event in run:
                    seen.append(event)
                    if len(seen) == leave_after:
                        break
        assert_events(seen, complete=False)
        assert_history(run.result.messages)
        assert run.state.accepts_new_request
        assert model.active == 0
        later = ScriptedModel("Fine.")
        result = await subject.run("And now?", session="s", model=later)
        assert result.output == "Fine."
        assert_history(result.messages)
        assert_history(later.requests[0].messages, as_request=True)


async def test_function_models_run_agents() -> None:
    async def echo(request: ModelRequest, emit: Emit) -> str:
        last = request.messages[-1]
        assert last.kind == "user"
        return last.text.upper()

    model = FunctionModel(echo)
    async with Agent(model).stream("hello") as run:
        events = await record(run)
    events.check()
    assert events.texts() == ["HELLO"]
    assert len(model.requests) == 1


class TestInVirtualTime:
    """Deadlines of runs, without waiting for them."""

    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return request.param  # type: ignore[no-any-return]

    def test_a_run_that_hangs_meets_its_limit(self, backend: Backend) -> None:
        async def main() -> float:
            subject, _ = agent([call("hang"), call("search", text="ships")])
            start = anyio.current_time()
            async with no_leaks():
                async with subject.stream("Wait", limits=Limits(run_seconds=3600)) as run:
                    events = await record(run, catch=RunTimeoutError)
            events.check()
            assert_history(run.result.messages)
            assert run.result.status == "timed_out"
            return anyio.current_time() - start

        assert 3600 <= run_virtual(main, backend=backend) < 3610

    def test_a_slow_model_meets_its_limit(self, backend: Backend) -> None:
        async def main() -> None:
            async def slow() -> None:
                await anyio.sleep(100)

            subject, model = agent(Step("a b c", between=slow))
            with pytest.raises(RunTimeoutError, match="did not answer within 150 s"):
                await subject.run("Wait", limits=Limits(model_seconds=150))
            assert (model.emitted, model.active) == (2, 0)

        run_virtual(main, backend=backend)

    def test_a_stop_comes_through_in_virtual_time(self, backend: Backend) -> None:
        async def main() -> float:
            subject, _ = agent(call("hang"))
            start = anyio.current_time()
            async with subject.stream("Wait") as run:
                async with anyio.create_task_group() as group:
                    group.start_soon(stop_later, run.close)
                    events = await record(run, catch=RunCancelledError)
            assert run.result.status == "cancelled"
            events.check()
            return anyio.current_time() - start

        async def stop_later(close: Callable[[], Awaitable[None]]) -> None:
            await anyio.sleep(500)
            await close()

        assert 500 <= run_virtual(main, backend=backend) < 510
