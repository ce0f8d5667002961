"""The sink and the reporter failures (R56 to R81) over a TCP connection whose peer stalls, closes or resets.

What does not depend on a connection is in `tests/channels/test_sink.py` and `tests/test_forward.py`. Here a write is a
write to a socket: each line is padded with more blanks than the kernel holds, so that it is not written before the peer
has read it, and a peer that leaves at a line makes the writing of that very line fail.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import anyio
import pytest

from trilane import Agent, EventSink, tool
from trilane.errors import EventSinkClosed, RunCancelledError
from trilane.testing import ScriptedModel, Step, assert_history, call, no_leaks

pytestmark = pytest.mark.anyio

Leaving = Literal["close", "reset"]
LEAVING: list[Leaving] = ["close", "reset"]
PADDING = 64 * 1024  # far more than the buffers below, whatever the kernel makes of them
BUFFER = 4096
TERMINAL = ("run_completed", "run_failed", "run_cancelled")

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


def the_script() -> tuple[Any, ...]:
    calls = [call("work", call_id="a", name="a"), call("work", call_id="b", name="b")]
    return (Step("Two words.", reasoning="Hm.", calls=calls), "Done.")


def outcomes(result: Any) -> list[tuple[str, str]]:
    found = [one for message in result.messages if message.kind == "tool" for one in message.results]
    return [(one.outcome, one.content) for one in found]


class Connection:
    """The server's end: writes events as padded JSON lines, one at a time, straight to the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.begun: list[str] = []
        self.written: list[str] = []
        self.closed = False

    async def write(self, event: Any) -> None:
        self.begun.append(event.type)
        rest = memoryview(event.to_json().encode() + b"\t" + b" " * PADDING + b"\n")
        while rest:
            if self.closed:
                raise anyio.ClosedResourceError
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
        self.written.append(event.type)

    def close(self) -> None:
        """A write in progress ends with `ClosedResourceError`."""
        if not self.closed:
            self.closed = True
            anyio.notify_closing(self._socket)
            self._socket.close()


class Peer:
    """The client's end: reads lines until it does something else."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.seen: list[dict[str, Any]] = []
        self.stalled = anyio.Event()

    async def read(
        self, at: str = "", then: Leaving | Literal["stall"] = "stall", *, skip: int = 0, path: str = "type"
    ) -> None:
        """Read to the end; or do `then` in the midst of the line `at` (of the one after `skip` such lines)."""
        rest = b""
        while True:
            try:
                piece = self._socket.recv(4 * BUFFER)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except ConnectionResetError:
                return
            if not piece:
                return
            *ends, rest = (rest + piece).split(b"\n")
            for end in ends:
                self.seen.append(json.loads(end))
                skip -= _kind(self.seen[-1], path) == at
            # The event comes first in a line: what it is, is acted upon before the blanks are read.
            event, tab, _ = rest.partition(b"\t")
            if tab and skip == 0 and _kind(json.loads(event), path) == at:
                self.leave(then)
                return
            rest = event + tab

    def leave(self, how: Leaving | Literal["stall"]) -> None:
        if how == "stall":
            self.stalled.set()
            return
        if how == "reset":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        self._socket.close()


def _kind(event: dict[str, Any], path: str) -> Any:
    """The type of an event, or of the child's event in it."""
    return event["event"]["type"] if path == "event" and "event" in event else event["type"] if path == "type" else ""


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Connection, Peer]]:
    """Two ends of a TCP connection over the loopback, with small buffers; both are closed at the end."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = socket.socket()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        near.setblocking(False)
        with suppress(BlockingIOError):
            near.connect(listener.getsockname())
        far, _ = listener.accept()
    far.setblocking(False)
    await anyio.wait_writable(near)
    connection, peer = Connection(near), Peer(far)
    try:
        yield connection, peer
    finally:
        connection.close()
        peer.close()


class DirectSink(EventSink[Any]):
    """Writes when it is told: a server without a queue, for which a failed write is a failed report of that event."""

    async def publish(self, item: Any, *, live: Callable[[], bool] | None = None) -> None:
        try:
            await self._write(item)
        except OSError as error:
            self.close()
            raise EventSinkClosed("the connection is gone") from error
        if item.type in TERMINAL:
            self.close()


async def left_at(
    at: str, how: Leaving, *, skip: int = 0, path: str = "type", subject: Agent[None, str] | None = None
) -> tuple[Any, Connection, Peer]:
    """Forward a run to a peer that leaves at an event; then another run on its session."""
    subject = subject or Agent(ScriptedModel(*the_script()), tools=[work])
    async with no_leaks(), connected() as (connection, peer):
        sink = DirectSink(connection.write)
        async with subject.stream("Go", session="s") as run, anyio.create_task_group() as group:
            group.start_soon(sink.run)
            group.start_soon(lambda: peer.read(at, how, skip=skip, path=path))
            result = await run.forward(sink)
    assert result.status == "failed"  # R81
    assert isinstance(result.error, EventSinkClosed)
    assert isinstance(result.error.__cause__, ConnectionError)
    assert len(connection.begun) == len(connection.written) + 1
    assert len(peer.seen) == len(connection.written)
    assert_history(result.messages)
    again = await subject.run("And now?", session="s", model=ScriptedModel("Fine."))
    assert again.output == "Fine."
    assert_history(again.messages)
    return result, connection, peer


# ---- reporter failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("at", ["reasoning_delta", "text_delta", "tool_call_delta"])
async def test_r74_r81_the_peer_leaves_while_the_model_streams(at: str, how: Leaving) -> None:
    result, connection, _ = await left_at(at, how)
    assert (connection.begun[-1], ran) == (at, [])
    assert not any(message.kind == "assistant" and message.calls for message in result.messages)


@pytest.mark.parametrize("how", LEAVING)
async def test_r75_r81_the_peer_leaves_at_the_message_with_calls(how: Leaving) -> None:
    result, connection, _ = await left_at("message_completed", how)
    assert (connection.begun[-1], ran) == ("message_completed", [])
    assert [outcome for outcome, _ in outcomes(result)] == ["not_started", "not_started"]


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("skip", [0, 1])
async def test_r76_r81_the_peer_leaves_at_a_call_and_no_tool_of_the_batch_runs(skip: int, how: Leaving) -> None:
    result, connection, _ = await left_at("tool_started", how, skip=skip)
    assert (connection.begun[-1], ran) == ("tool_started", [])
    assert [outcome for outcome, _ in outcomes(result)] == ["not_started", "not_started"]


@pytest.mark.parametrize("how", LEAVING)
async def test_r77_r78_the_peer_leaves_at_the_first_result_and_the_real_results_are_kept(how: Leaving) -> None:
    result, connection, _ = await left_at("tool_completed", how)
    assert connection.begun[-1] == "tool_completed"
    assert connection.written.count("tool_completed") == 0  # of two failing reports the first ended the run
    assert outcomes(result) == [("ok", "did a"), ("ok", "did b")]


async def test_r79_a_cancel_wins_over_a_connection_that_is_reset() -> None:
    subject = Agent(ScriptedModel(*the_script()), tools=[work])
    async with no_leaks(), connected() as (connection, peer):
        async with subject.stream("Go", session="s") as run, anyio.create_task_group() as group:

            async def write(event: Any) -> None:
                if event.type == "tool_completed":
                    run.stop("the user wants to stop")
                await connection.write(event)

            sink: EventSink[Any] = EventSink(write, capacity=1)
            group.start_soon(sink.run)
            group.start_soon(peer.read, "tool_completed", "reset")
            with pytest.raises(EventSinkClosed):  # the client has not seen how the run ended
                await run.forward(sink)
    assert (run.result.status, str(run.result.error)) == ("cancelled", "the user wants to stop")
    assert outcomes(run.result) == [("ok", "did a"), ("ok", "did b")]
    assert_history(run.result.messages)


@pytest.mark.parametrize(
    ("at", "wanted"), [("message_completed", "not_started"), ("tool_started", "not_started"), ("tool_completed", "ok")]
)
async def test_r80_a_child_run_behaves_the_same_with_its_own_history(at: str, wanted: str) -> None:
    child = Agent(ScriptedModel(*the_script()), tools=[work], name="child")
    parent = Agent(
        ScriptedModel(call("delegate", call_id="p", request="Go"), "Done."),
        tools=[child.as_tool(name="delegate", description="Delegates.")],
    )
    await left_at(at, "reset", path="event", subject=parent)
    assert sorted(ran) == (["a", "b"] if wanted == "ok" else [])
    (session,) = [one for one in child.store.sessions() if one != "s"]  # type: ignore[attr-defined]
    records = (await child.store.load(session)).records
    assert [one.result.outcome for one in records if one.kind == "call_finished"] == [wanted] * 2
    assert records[-1].kind == "run_ended"


# ---- the sink --------------------------------------------------------------------------------------------------------


class Counting(EventSink[Any]):
    """Counts what was handed to it, and what it took."""

    offered = 0
    taken = 0

    async def publish(self, item: Any, *, live: Callable[[], bool] | None = None) -> None:
        self.offered += 1
        await super().publish(item, live=live)
        self.taken += 1


async def quiet() -> None:
    """Let every task run until it waits."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()


async def test_r56_r58_a_peer_that_stalls_stops_the_run_at_the_capacity_and_lets_it_go_on() -> None:
    model = ScriptedModel("one two three four five six")
    async with no_leaks(), connected() as (connection, peer):
        sink = Counting(connection.write, capacity=3)
        async with Agent(model).stream("Go") as run, anyio.create_task_group() as group:
            group.start_soon(sink.run)
            group.start_soon(run.forward, sink)
            await quiet()
            assert (sink.taken, sink.offered) == (1 + 3, 1 + 3 + 1)  # one is being written, one more waits for room
            assert connection.written == []
            assert not run.state.is_terminal
            group.start_soon(peer.read)
            await sink.wait()
            connection.close()  # the peer reads what is on the way, and then the end
    assert run.result.output == "one two three four five six"
    assert [event["seq"] for event in peer.seen] == list(range(1, len(peer.seen) + 1))  # R66
    assert connection.written[-1] == "run_completed"


async def test_r59_a_cancel_reaches_a_run_whose_peer_has_stalled() -> None:
    subject = Agent(ScriptedModel(*the_script()), tools=[work])
    async with no_leaks(), connected() as (connection, _):
        sink: EventSink[Any] = EventSink(connection.write, capacity=1)
        with anyio.CancelScope() as scope:
            async with subject.stream("Go", session="s") as run, anyio.create_task_group() as group:
                group.start_soon(sink.run)
                group.start_soon(run.forward, sink)
                await quiet()
                scope.cancel()
                await anyio.lowlevel.checkpoint()
    assert (run.result.status, ran, sink.closed) == ("cancelled", [], True)
    assert isinstance(run.result.error, RunCancelledError)
    assert_history(run.result.messages)
    assert (await subject.run("Again", session="s", model=ScriptedModel("Fine."))).output == "Fine."


async def test_r60_r61_a_reset_wakes_every_publisher_with_its_error_as_the_cause() -> None:
    refused: list[EventSinkClosed] = []
    async with no_leaks(), connected() as (connection, peer):
        sink: EventSink[Any] = EventSink(connection.write, capacity=1)
        event = await one_event()

        async def publish() -> None:
            with pytest.raises(EventSinkClosed) as caught:
                await sink.publish(event)
            refused.append(caught.value)

        async with anyio.create_task_group() as group:
            group.start_soon(sink.run)
            await sink.publish(event)
            await quiet()
            await sink.publish(event)
            for _ in range(10):
                group.start_soon(publish)
            await quiet()
            assert refused == []
            peer.leave("reset")
            await sink.wait()
        assert len(refused) == 10
        for _ in range(100):
            await publish()  # R61: although there is room
    assert all(isinstance(error.__cause__, ConnectionError) for error in refused)  # R73
    assert sink.dropped == 1  # R67


async def test_r73_r81_a_write_to_a_stalled_peer_that_takes_too_long_fails_the_run() -> None:
    subject = Agent(ScriptedModel(*the_script()), tools=[work])
    async with no_leaks(), connected() as (connection, _):
        sink: EventSink[Any] = EventSink(connection.write, capacity=1, write_seconds=0.05)
        async with subject.stream("Go", session="s") as run, anyio.create_task_group() as group:
            group.start_soon(sink.run)
            result = await run.forward(sink)
    assert (result.status, ran, connection.written) == ("failed", [], [])
    assert isinstance(result.error, EventSinkClosed)
    assert isinstance(result.error.__cause__, TimeoutError)
    assert_history(result.messages)


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("at", ["text_delta", "message_completed", "tool_started", "tool_completed"])
async def test_r81_with_a_queue_between_a_peer_that_leaves_fails_the_run_in_order(at: str, how: Leaving) -> None:
    """The queue lets the run be ahead of the peer by its capacity and two more, and by nothing else."""
    subject = Agent(ScriptedModel(*the_script()), tools=[work])
    async with no_leaks(), connected() as (connection, peer):
        sink = Counting(connection.write, capacity=1)
        async with subject.stream("Go", session="s") as run, anyio.create_task_group() as group:
            group.start_soon(sink.run)
            group.start_soon(peer.read, at, how)
            result = await run.forward(sink)
    assert result.status == "failed"
    assert isinstance(result.error, EventSinkClosed)
    assert isinstance(result.error.__cause__, ConnectionError)
    assert sink.offered <= len(connection.begun) + 2
    assert ran == [] or at in ("tool_started", "tool_completed")
    assert_history(result.messages)
    kept = [content for outcome, content in outcomes(result) if outcome == "ok"]
    assert kept == [f"did {name}" for name in sorted(ran)]
    assert (await subject.run("Again", session="s", model=ScriptedModel("Fine."))).output == "Fine."


# ---- shutting down ---------------------------------------------------------------------------------------------------


async def one_event() -> Any:
    async with Agent(ScriptedModel("Hello.")).stream("Go") as run:
        return await anext(run)


@asynccontextmanager
async def stuck() -> AsyncIterator[tuple[Any, Counting, Connection, list[Any]]]:
    """A run whose client has stopped to read at the first tool call, with a write in progress; and how it was left."""
    subject = Agent(ScriptedModel(*the_script()), tools=[work])
    left: list[Any] = []
    async with no_leaks(), connected() as (connection, peer):
        sink = Counting(connection.write, capacity=1)
        async with subject.stream("Go", session="s") as run, anyio.create_task_group() as group:

            async def forward() -> None:
                try:
                    left.append(await run.forward(sink))
                except EventSinkClosed as error:
                    left.append(error)

            group.start_soon(sink.run)
            group.start_soon(forward)
            group.start_soon(peer.read, "text_delta", "stall")
            await peer.stalled.wait()
            await quiet()
            assert connection.begun[-1] == "text_delta"
            yield run, sink, connection, left
    assert_history(run.result.messages)
    assert (await subject.run("Again", session="s", model=ScriptedModel("Fine."))).output == "Fine."


async def test_r64_r68_r69_r70_close_leaves_a_stuck_write_alone_and_wait_waits_for_it() -> None:
    waited: list[bool] = []
    async with stuck() as (run, sink, connection, _):
        sink.close()
        sink.close()

        async def wait() -> None:
            await sink.wait()
            waited.append(True)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await quiet()
            assert (waited, sink.error, connection.begun[-1]) == ([], None, "text_delta")
            connection.close()
        assert waited == [True]
    assert run.result.status == "failed"
    assert ran == []


@pytest.mark.parametrize("failing", ["nothing", "run", "connection"])
async def test_r71_stop_the_run_close_the_sink_close_the_connection_wait(failing: str) -> None:
    steps: list[str] = []

    async def shut_down(run: Any, sink: Any, connection: Connection) -> None:
        try:
            await run.close()
            steps.append("run")
            if failing == "run":
                raise OSError("stopping failed")
        finally:
            sink.close()
            steps.append("sink")
            try:
                connection.close()
                steps.append("connection")
                if failing == "connection":
                    raise OSError("closing failed")
            finally:
                await sink.wait()
                steps.append("waited")

    async with stuck() as (run, sink, connection, left):
        with suppress(OSError) if failing != "nothing" else anyio.fail_after(30):
            await shut_down(run, sink, connection)
        await quiet()
        assert len(left) == 1
    assert steps == ["run", "sink", "connection", "waited"]
    assert (run.result.status, ran) == ("cancelled", [])
    # Nothing was written after the sink was closed, and the write that was stuck is the last that began.
    assert connection.begun[-1] == "text_delta"


async def test_r72_to_wait_before_the_connection_is_closed_hangs() -> None:
    async with stuck() as (run, sink, connection, _):
        await run.close()
        sink.close()
        with anyio.move_on_after(0.05) as scope:
            await sink.wait()
            connection.close()
        assert scope.cancelled_caught  # the two in the wrong order: it never came to close the connection
        assert not connection.closed
        connection.close()
        await sink.wait()
    assert run.result.status == "cancelled"


async def test_r72_to_close_the_connection_before_the_sink_sends_events_to_a_dead_one() -> None:
    async with stuck() as (run, sink, connection, left):
        taken = sink.taken
        connection.close()
        await quiet()
        assert sink.closed
        assert isinstance(sink.error, anyio.ClosedResourceError)
        assert sink.taken >= taken
        assert len(left) == 1
        await run.close()
        await sink.wait()
    # Nobody stopped the run: it failed with an error of the connection, where the right order says "cancelled".
    assert run.result.status == "failed"
    assert isinstance(run.result.error.__cause__, anyio.ClosedResourceError)


# ---- streams of anyio ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", LEAVING)
async def test_r81_over_a_stream_of_anyio(how: Leaving) -> None:
    """A stream may notice that its peer has gone at a later line; the run ends as it does at the first."""
    subject = Agent(ScriptedModel(*the_script()), tools=[work])
    served: list[Any] = []

    async def serve(stream: Any) -> None:
        async def write(event: Any) -> None:
            await stream.send(event.to_json().encode() + b"\t" + b" " * PADDING + b"\n")

        sink: EventSink[Any] = EventSink(write, capacity=1)
        async with stream, subject.stream("Go", session="s") as run, anyio.create_task_group() as group:
            group.start_soon(sink.run)
            served.append(await run.forward(sink))

    async with no_leaks():
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            far = socket.create_connection(("127.0.0.1", _port(listener)))
            far.setblocking(False)
            peer = Peer(far)
            async with anyio.create_task_group() as group:
                group.start_soon(_serve_one, listener, serve)
                await peer.read("reasoning_delta", how)
    (result,) = served
    assert (result.status, ran) == ("failed", [])
    assert isinstance(result.error, EventSinkClosed)
    assert isinstance(result.error.__cause__, anyio.BrokenResourceError)
    assert_history(result.messages)


def _port(listener: Any) -> int:
    port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
    return port


async def _serve_one(listener: Any, serve: Callable[[Any], Awaitable[None]]) -> None:
    with anyio.CancelScope() as scope:

        async def one(stream: Any) -> None:
            await serve(stream)
            scope.cancel()

        await listener.serve(one)
