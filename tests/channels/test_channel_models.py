"""Random programs against pure-Python models of the queue and of the sink, step by step, on both backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilane.channels import AgentEventQueue, EventSink
from trilane.errors import AgentProtocolError, EventSinkClosed

BOOM = RuntimeError("boom")
PROGRAMS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


async def settle() -> None:
    for _ in range(15):
        await anyio.lowlevel.checkpoint()


class Call:
    """A call in its own task; `outcome` is None while it runs."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.outcome: Any = None

    async def run(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        with self.scope:
            try:
                self.outcome = "ok", await function(*args)
            except RuntimeError as error:
                self.outcome = "failed" if error is BOOM else error, None
            except AgentProtocolError:
                self.outcome = "protocol", None
            except EventSinkClosed:
                self.outcome = "closed", None
        if self.scope.cancelled_caught:
            self.outcome = "cancelled", None


# --- the queue ----------------------------------------------------------------------------------------------------


class QueueModel:
    """What `AgentEventQueue` does, without tasks: every call is a number, its outcome is in `outcomes`."""

    def __init__(self, acknowledging: bool) -> None:
        self.acknowledging = acknowledging
        self.items: list[int] = []
        self.held = False
        self.discarding = False
        self.signal: str | None = None  # how get ends: "failed" or "protocol"
        self.produced = self.acknowledged = self.target = 0
        self.parked: int | None = None
        self.line: list[tuple[int, list[int]]] = []
        self.getter: int | None = None
        self.outcomes: dict[int, Any] = {}

    def put(self, call: int, events: list[int]) -> None:
        if self.signal:
            self.outcomes[call] = "protocol", None
        elif not self.acknowledging:
            self.append(events)
            self.outcomes[call] = "ok", None
        elif self.parked is not None:
            self.line.append((call, events))
        else:
            self.begin(call, events)

    def begin(self, call: int, events: list[int]) -> None:
        self.append(events)
        self.target = self.produced
        if events and self.acknowledged < self.target:
            self.parked = call
        else:
            self.outcomes[call] = "ok", None

    def append(self, events: list[int]) -> None:
        self.produced += len(events)
        if self.discarding:
            self.acknowledged = self.produced
            return
        self.items += events
        if self.items and self.getter is not None:
            call, self.getter = self.getter, None
            self.take(call)

    def put_nowait(self, events: list[int]) -> None:
        if not self.signal:
            self.append(events)

    def take(self, call: int) -> None:
        self.held = self.acknowledging
        self.outcomes[call] = "ok", self.items.pop(0)

    def get(self, call: int) -> None:
        if self.getter is not None or (self.held and not self.signal):
            self.outcomes[call] = "protocol", None
        elif self.items:
            self.take(call)
        elif self.signal:
            self.outcomes[call] = self.signal, None
        else:
            self.getter = call

    def acknowledge(self) -> None:
        if self.held:
            self.held = False
            self.acknowledged += 1
            if self.parked is not None and self.acknowledged >= self.target:
                self.end_put("ok")

    def end_put(self, outcome: str) -> None:
        if self.parked is not None:
            self.outcomes[self.parked] = outcome, None
            self.parked = None
        while self.line and self.parked is None:
            call, events = self.line.pop(0)
            if self.signal:
                self.outcomes[call] = self.signal, None
            else:
                self.begin(call, events)

    def end(self, signal: str) -> None:
        if not self.signal:
            self.signal = signal
            if self.getter is not None:
                self.outcomes[self.getter] = signal, None
                self.getter = None
            self.end_put(signal)

    def discard(self) -> None:
        self.discarding = True
        self.items.clear()
        self.held = False
        self.acknowledged = self.produced
        self.end_put("ok")

    def cancel(self, call: int) -> None:
        if call == self.getter:
            self.getter = None
            self.outcomes[call] = "cancelled", None
        elif call == self.parked:
            self.end_put("cancelled")
        elif call not in self.outcomes:
            self.line = [entry for entry in self.line if entry[0] != call]
            self.outcomes[call] = "cancelled", None


queue_programs = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3)),
        st.tuples(st.just("put"), st.just(1)),
        st.tuples(st.just("put_nowait"), st.integers(1, 2)),
        st.tuples(st.sampled_from(["get", "get", "acknowledge", "acknowledge"]), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["get_acknowledge", "fail", "close", "discard"]), st.just(0)),
    ),
    max_size=40,
)


async def run_queue_program(program: list[tuple[str, int]], acknowledging: bool) -> None:
    queue: AgentEventQueue[int] = AgentEventQueue()
    if acknowledging:
        queue.enable_acknowledgements()
    model = QueueModel(acknowledging)
    calls: list[Call] = []
    numbers = iter(range(10**6))

    async with anyio.create_task_group() as tasks:

        def begin(function: Callable[..., Awaitable[Any]], *args: Any) -> int:
            calls.append(Call())
            tasks.start_soon(calls[-1].run, function, *args)
            return len(calls) - 1

        for name, argument in program:
            events = [next(numbers) for _ in range(argument)]
            if name == "put":
                model.put(begin(queue.put, *events), events)
            elif name == "put_nowait":
                queue.put_nowait(*events)
                model.put_nowait(events)
            elif name in ("get", "get_acknowledge"):
                model.get(begin(queue.get))
            elif name == "cancel":
                running = [number for number, call in enumerate(calls) if call.outcome is None]
                if running:
                    chosen = running[argument % len(running)]
                    calls[chosen].scope.cancel()
                    model.cancel(chosen)
            elif name == "fail":
                await queue.fail(BOOM)
                model.end("failed")
            elif name == "close":
                await queue.close()
                model.end("protocol")
            elif name == "discard":
                queue.discard()
                model.discard()
            await settle()
            if name in ("acknowledge", "get_acknowledge"):
                queue.acknowledge()
                model.acknowledge()
                await settle()
            assert {number: call.outcome for number, call in enumerate(calls) if call.outcome} == model.outcomes
            assert queue.empty == (not model.items)
            assert queue.closed == (model.signal is not None)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("acknowledging", [True, False])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_r01_to_r24_queue_behaves_as_its_model(backend: str, acknowledging: bool) -> None:
    @PROGRAMS
    @given(program=queue_programs)
    def check(program: list[tuple[str, int]]) -> None:
        anyio.run(run_queue_program, program, acknowledging, backend=backend)

    check()


async def run_queue_race(bursts: list[list[int]], pauses: list[int]) -> None:
    """Puts, cancels and a consumer with no order between them: whatever happens, events stay in order and whole."""
    queue: AgentEventQueue[tuple[int, int]] = AgentEventQueue()
    queue.enable_acknowledgements()
    calls: list[Call] = []
    seen: list[tuple[int, int]] = []

    async def consume() -> None:
        for position in range(10**6):
            event = await queue.get()
            for _ in range(pauses[position % len(pauses)]):
                await anyio.lowlevel.checkpoint()
            seen.append(event)
            queue.acknowledge()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        for burst in bursts:
            for action in burst:
                if action < 4:
                    calls.append(Call())
                    group = [(len(calls) - 1, part) for part in range(action + 1)]
                    tasks.start_soon(calls[-1].run, queue.put, *group)
                elif calls:
                    calls[action % len(calls)].scope.cancel()
            await anyio.lowlevel.checkpoint()
        for _ in range(200 + 20 * len(calls)):
            await anyio.lowlevel.checkpoint()
        assert all(call.outcome is not None for call in calls), "a put hangs"
        for number, call in enumerate(calls):
            parts = [part for name, part in seen if name == number]
            assert parts == list(range(len(parts))), "events of one put are lost, doubled or out of order"
            assert call.outcome[0] == "cancelled" or parts
        assert len(seen) == len(set(seen))
        with anyio.fail_after(5):  # and the turn is free
            await queue.put((-1, 0))
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_r02_queue_survives_cancels_at_any_moment(backend: str) -> None:
    @PROGRAMS
    @given(
        bursts=st.lists(st.lists(st.integers(0, 12), max_size=6), max_size=10),
        pauses=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    )
    def check(bursts: list[list[int]], pauses: list[int]) -> None:
        anyio.run(run_queue_race, bursts, pauses, backend=backend)

    check()


# --- the sink -----------------------------------------------------------------------------------------------------


class SinkModel:
    """What `EventSink` does; `room` is how many writes the connection still takes before it is stuck."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: list[Any] = []
        self.line: list[tuple[int, Any]] = []
        self.started = self.ended = self.closed = self.broken = False
        self.writing: Any = None
        self.room = 0
        self.dropped = 0
        self.written: list[Any] = []
        self.outcomes: dict[int, Any] = {}

    def publish(self, call: int, item: Any) -> None:
        if self.closed:
            self.outcomes[call] = "closed", None
        elif not self.line and len(self.items) < self.capacity:
            self.items.append(item)
            self.outcomes[call] = "ok", None
        else:
            self.line.append((call, item))

    def cancel(self, call: int) -> None:
        if call not in self.outcomes:
            self.line = [entry for entry in self.line if entry[0] != call]
            self.outcomes[call] = "cancelled", None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.dropped += len(self.items)
            self.items.clear()
            for call, _ in self.line:
                self.outcomes[call] = "closed", None
            self.line.clear()

    def advance(self) -> None:
        self.write_on()
        while self.line and len(self.items) < self.capacity:
            call, item = self.line.pop(0)
            self.items.append(item)
            self.outcomes[call] = "ok", None
            self.write_on()

    def write_on(self) -> None:
        """The writer, until it waits for an item or for the connection."""
        while self.started and not self.ended:
            if self.writing is None:
                if self.closed:
                    self.ended = True
                    return
                if not self.items:
                    return
                item = self.items.pop(0)
                if not item.live and not item.type:
                    continue
                self.writing = item
            if self.broken:
                self.ended = True
                self.close()
                return
            if not self.room:
                return
            self.room -= 1
            self.written.append(self.writing)
            if self.writing.type:
                self.ended = True
                self.close()
            self.writing = None


sink_programs = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3)),
        st.tuples(st.just("publish"), st.just(1)),
        st.tuples(st.sampled_from(["publish_terminal", "close", "break"]), st.just(0)),
        st.tuples(st.just("release"), st.integers(1, 3)),
        st.tuples(st.just("die"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("run"), st.just(0)),
    ),
    max_size=40,
)


async def run_sink_program(program: list[tuple[str, int]], capacity: int) -> None:
    model = SinkModel(capacity)
    written: list[Any] = []
    room = 0
    broken = False
    changed = anyio.Event()

    async def write(item: Any) -> None:
        nonlocal room
        while not (room or broken):
            await changed.wait()
        if broken:
            raise BOOM
        room -= 1
        written.append(item)

    sink: EventSink[Any] = EventSink(write, capacity=capacity)
    calls: list[Call] = []
    items: list[Any] = []

    async with anyio.create_task_group() as tasks:

        def publish(item: Any) -> None:
            items.append(item)
            calls.append(Call())
            tasks.start_soon(calls[-1].run, lambda: sink.publish(item, live=lambda: bool(item.live)))
            model.publish(len(calls) - 1, item)

        for name, argument in program:
            if name == "publish":
                publish(SimpleNamespace(type="", live=argument > 0))
            elif name == "publish_terminal":
                # Only where it need not wait: trio picks who runs first, a woken publisher or the ending writer.
                if not model.line and len(model.items) < capacity:
                    publish(SimpleNamespace(type="run_completed", live=False))
            elif name == "close":
                sink.close()
                model.close()
            elif name == "die" and items:
                items[argument % len(items)].live = False
            elif name in ("release", "break"):
                room += argument
                model.room = room
                broken = model.broken = broken or name == "break"
                changed.set()
                changed = anyio.Event()
            elif name == "cancel":
                running = [number for number, call in enumerate(calls) if call.outcome is None]
                if running:
                    chosen = running[argument % len(running)]
                    calls[chosen].scope.cancel()
                    model.cancel(chosen)
            elif name == "run" and not model.started:
                tasks.start_soon(sink.run)
                model.started = True
            model.advance()
            await settle()
            assert {number: call.outcome for number, call in enumerate(calls) if call.outcome} == model.outcomes
            assert written == model.written
            assert (sink.closed, sink.dropped) == (model.closed, model.dropped)
            assert len(sink._items) == len(model.items)
            if model.ended:
                with anyio.fail_after(5):
                    await sink.wait()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_r56_to_r73_sink_behaves_as_its_model(backend: str) -> None:
    @PROGRAMS
    @given(program=sink_programs, capacity=st.integers(1, 3))
    def check(program: list[tuple[str, int]], capacity: int) -> None:
        anyio.run(run_sink_program, program, capacity, backend=backend)

    check()
