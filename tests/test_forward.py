"""`run.forward(sink)`: what a failing consumer does to the run, and to calls and history (R74 to R81)."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from trilane import Agent, EventSink, tool
from trilane.errors import EventSinkClosed, RunCancelledError
from trilane.testing import ScriptedModel, Step, assert_history, call, no_leaks

pytestmark = pytest.mark.anyio

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
async def work(name: str) -> str:
    """Work.

    Args:
        name: What.
    """
    ran.append(name)
    return f"did {name}"


def agent(*script: Any) -> Agent[None, str]:
    return Agent(ScriptedModel(*script), tools=[work])


class Connection:
    """Writes until an event of type `fails_at` comes (the `skip`th of them), then it is gone."""

    def __init__(self, fails_at: str = "", skip: int = 0) -> None:
        self.written: list[Any] = []
        self.fails_at = fails_at
        self.skip = skip

    async def write(self, event: Any) -> None:
        if event.type == self.fails_at:
            if self.skip == 0:
                raise BrokenPipeError(f"gone at {event.type}")
            self.skip -= 1
        self.written.append(event)


class DirectSink(EventSink[Any]):
    """Writes when it is told, so that a failed write is a failed report of that very event."""

    async def publish(self, item: Any, *, live: Any = None) -> None:
        try:
            await self._write(item)
        except BrokenPipeError as error:
            self.close()
            raise EventSinkClosed("the connection is gone") from error
        if item.type in ("run_completed", "run_failed", "run_cancelled"):
            self.close()


async def forwarded(connection: Connection, *script: Any) -> Any:
    subject = agent(*script)
    sink = DirectSink(connection.write)
    async with no_leaks():
        async with subject.stream("Go", session="s") as run:
            async with anyio.create_task_group() as group:
                group.start_soon(sink.run)
                result = await run.forward(sink)
    assert_history(result.messages)
    again = await subject.run("And now?", session="s", model=ScriptedModel("Fine."))
    assert_history(again.messages)
    return result


def the_script() -> tuple[Any, ...]:
    calls = [call("work", call_id="a", name="a"), call("work", call_id="b", name="b")]
    return (Step("Two words.", reasoning="Hm.", calls=calls), "Done.")


def outcomes(result: Any) -> list[tuple[str, str]]:
    found = [one for message in result.messages if message.kind == "tool" for one in message.results]
    return [(one.outcome, one.content) for one in found]


async def test_forward_publishes_everything_and_returns_after_the_last_was_written() -> None:
    connection = Connection()
    result = await forwarded(connection, *the_script())
    assert result.output == "Done."
    assert connection.written[0].type == "run_started"
    assert connection.written[-1].type == "run_completed"
    assert [event.seq for event in connection.written] == list(range(1, len(connection.written) + 1))


@pytest.mark.parametrize("at", ["reasoning_delta", "text_delta", "message_started", "tool_call_delta"])
async def test_r74_r81_a_report_that_fails_while_the_model_streams(at: str) -> None:
    result = await forwarded(Connection(at), *the_script())
    assert result.status == "failed"
    assert isinstance(result.error, EventSinkClosed)
    assert isinstance(result.error.__cause__, BrokenPipeError)
    assert ran == []
    assert not any(message.kind == "assistant" and message.calls for message in result.messages)


async def test_r75_a_report_of_the_message_fails_after_it_is_in_the_history() -> None:
    result = await forwarded(Connection("message_completed"), *the_script())
    assert (result.status, ran) == ("failed", [])
    assert [outcome for outcome, _ in outcomes(result)] == ["not_started", "not_started"]


@pytest.mark.parametrize("skip", [0, 1])
async def test_r76_a_report_of_a_call_fails_and_no_tool_of_the_batch_runs(skip: int) -> None:
    result = await forwarded(Connection("tool_started", skip), *the_script())
    assert (result.status, ran) == ("failed", [])
    assert [outcome for outcome, _ in outcomes(result)] == ["not_started", "not_started"]


async def test_r77_a_report_of_a_result_fails_and_the_real_result_is_kept() -> None:
    result = await forwarded(Connection("tool_completed"), *the_script())
    assert result.status == "failed"
    assert outcomes(result) == [("ok", "did a"), ("ok", "did b")]


async def test_r78_the_first_report_error_is_kept() -> None:
    class Failing(Connection):
        async def write(self, event: Any) -> None:
            if event.type == "tool_completed":
                raise BrokenPipeError(event.call.id)

    result = await forwarded(Failing(), *the_script())
    assert str(result.error.__cause__) == "a"


async def test_r79_a_cancel_wins_over_a_report_error() -> None:
    subject = agent(*the_script())
    failing = Connection("tool_completed")
    async with subject.stream("Go", session="s") as run:

        async def write(event: Any) -> None:
            if event.type == "tool_completed":
                run.stop("the user wants to stop")
            await failing.write(event)

        sink: EventSink[Any] = EventSink(write, capacity=1)
        async with anyio.create_task_group() as group:
            group.start_soon(sink.run)
            with pytest.raises(EventSinkClosed):  # the client has not seen how the run ended
                await run.forward(sink)
    result = run.result
    assert result.status == "cancelled"
    assert str(result.error) == "the user wants to stop"
    assert outcomes(result) == [("ok", "did a"), ("ok", "did b")]


async def test_a_sink_closed_by_its_owner_ends_the_run() -> None:
    connection = Connection()
    subject = agent(*the_script())
    async with no_leaks():
        async with subject.stream("Go", session="s") as run:

            async def write(event: Any) -> None:
                await connection.write(event)
                if event.type == "text_delta":
                    sink.close()

            sink: EventSink[Any] = EventSink(write, capacity=1)
            async with anyio.create_task_group() as group:
                group.start_soon(sink.run)
                result = await run.forward(sink)
    assert result.status == "failed"
    assert isinstance(result.error, EventSinkClosed)
    assert result.error.__cause__ is None


async def test_a_terminal_event_that_cannot_be_written_is_said_and_changes_no_status() -> None:
    subject = agent("Done.")
    connection = Connection("run_completed")
    sink: EventSink[Any] = EventSink(connection.write)
    async with subject.stream("Go") as run:
        async with anyio.create_task_group() as group:
            group.start_soon(sink.run)
            with pytest.raises(EventSinkClosed, match="last event") as caught:
                await run.forward(sink)
    assert isinstance(caught.value.__cause__, BrokenPipeError)
    assert run.result.status == "completed"


async def test_failed_and_cancelled_runs_are_forwarded_to_their_end() -> None:
    connection = Connection()
    result = await forwarded(connection, Step("Half", error=ConnectionError("gone")))
    assert result.status == "failed"
    assert connection.written[-1].type == "run_failed"

    connection = Connection()
    subject = agent(*the_script())
    sink: EventSink[Any] = EventSink(connection.write)
    async with subject.stream("Go") as run:
        run.stop("enough")
        async with anyio.create_task_group() as group:
            group.start_soon(sink.run)
            result = await run.forward(sink)
    assert result.status == "cancelled"
    assert connection.written[-1].type == "run_cancelled"


async def test_a_stuck_client_stalls_the_run_at_the_capacity_of_the_sink() -> None:
    gate = anyio.Event()
    held: list[Any] = []

    async def write(event: Any) -> None:
        held.append(event)
        await gate.wait()

    subject = agent("one two three four five six seven eight nine ten")
    sink: EventSink[Any] = EventSink(write, capacity=2)
    async with subject.stream("Go") as run:
        async with anyio.create_task_group() as group:
            group.start_soon(sink.run)
            results: list[Any] = []

            async def forward() -> None:
                results.append(await run.forward(sink))

            group.start_soon(forward)
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
            assert len(held) == 1
            assert not run.state.is_terminal
            gate.set()
    assert results[0].output.endswith("ten")


async def test_r80_child_runs_behave_the_same_with_their_local_history() -> None:
    child = Agent(ScriptedModel(*the_script()), tools=[work], name="child")
    parent = Agent(
        ScriptedModel(call("delegate", call_id="p", request="Go"), "Done."),
        tools=[child.as_tool(name="delegate", description="Delegates.")],
    )

    class Failing(Connection):
        async def write(self, event: Any) -> None:
            if event.type == "child_event" and event.event.type == "tool_completed":
                raise BrokenPipeError("gone")

    sink: EventSink[Any] = EventSink(Failing().write, capacity=1)
    async with no_leaks():
        async with parent.stream("Go", session="s") as run:
            async with anyio.create_task_group() as group:
                group.start_soon(sink.run)
                result = await run.forward(sink)
    assert result.status == "failed"
    assert isinstance(result.error, EventSinkClosed)
    assert_history(result.messages)
    assert sorted(ran) == ["a", "b"]  # which of two tools begins first is the event loop's to say
    (session,) = [one for one in child.store.sessions() if one != "s"]  # type: ignore[attr-defined]
    records = (await child.store.load(session)).records
    finished = [one.result.content for one in records if one.kind == "call_finished"]
    assert sorted(finished) == ["did a", "did b"]
    assert records[-1].kind == "run_ended"


async def test_forward_of_a_cancelled_caller() -> None:
    subject = agent(*the_script())
    sink: EventSink[Any] = EventSink(Connection().write)
    with anyio.CancelScope() as scope:
        async with subject.stream("Go") as run:
            async with anyio.create_task_group() as group:
                group.start_soon(sink.run)
                scope.cancel()
                await run.forward(sink)
    assert run.result.status == "cancelled"
    assert isinstance(run.result.error, RunCancelledError)


async def _turns(agent: Agent[None, str], *, busy: bool) -> tuple[int, int]:
    """Turns of the event loop that a forwarded run takes, and events; `busy`: another task always wants to run."""
    loop: Any = asyncio.get_running_loop()
    turn, turns, others = loop._run_once, 0, 0

    def counted() -> None:
        nonlocal turns
        turns += 1
        turn()

    async def work_on() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    connection = Connection()
    other = asyncio.create_task(work_on()) if busy else None
    async with agent.stream("go") as run:
        loop._run_once = counted
        await run.forward(DirectSink(connection.write, capacity=1))
        del loop._run_once
    if other is not None:
        other.cancel()
        assert others >= turns - 2  # it had its share
    return turns, len(connection.written)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("patience", "busy", "least", "most"), [(60, False, 0, 0.3), (60, True, 0.5, 3), (0, False, 0.5, 3)]
)
async def test_events_are_forwarded_within_the_step_that_made_them_unless_others_are_ready_or_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, patience: float, busy: bool, least: float, most: float
) -> None:
    monkeypatch.setattr("trilane.channels.event_queue._PATIENCE", patience)
    turns, events = await _turns(agent(Step("x " * 200)), busy=busy)
    assert events > 200
    assert least < turns / events < most
