"""What holds a run back, and what lets it go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trilane import Agent, EventSinkClosed
from trilane.testing import ScriptedModel
from trilane_web.gate import Gate, GatedSink

pytestmark = pytest.mark.anyio


def _gate(policy: Any, **changes: Any) -> Gate:
    return Gate(policy, **{"window_events": 4, "window_seconds": 60.0, "window_bytes": 1000, **changes})


async def test_strict_waits_for_this_very_event() -> None:
    gate = _gate("strict")
    gate.note(1, 10)
    assert not gate.may_pass(1)
    waiting = asyncio.create_task(gate.passed(1))
    await asyncio.sleep(0)
    assert gate.waiting_since is not None
    assert gate.acknowledge(1)
    await waiting
    assert gate.waiting_since is None


async def test_windowed_is_bounded_in_events_bytes_and_seconds() -> None:
    gate = _gate("windowed")
    for seq in range(1, 4):
        gate.note(seq, 10)
        assert gate.may_pass(seq)
    gate.note(4, 10)
    assert not gate.may_pass(4)
    gate.acknowledge(2)
    assert gate.may_pass(4)
    gate.note(5, 2000)
    assert not gate.may_pass(5)
    late = _gate("windowed", window_seconds=0.0)
    late.note(1, 1)
    assert not late.may_pass(1)
    late.acknowledge(1)
    assert late.may_pass(1)


async def test_detached_never_waits_unless_it_is_paused() -> None:
    gate = _gate("detached")
    for seq in range(1, 1000):
        gate.note(seq, 100)
        assert gate.may_pass(seq)
    gate.shut()
    assert not gate.may_pass(999)
    gate.reopen()
    assert gate.may_pass(999)


async def test_old_and_repeated_acknowledgements_release_nothing() -> None:
    gate = _gate("strict")
    gate.note(1, 1)
    gate.note(2, 1)
    assert gate.acknowledge(1)
    assert not gate.acknowledge(1)
    assert not gate.acknowledge(0)
    assert not gate.may_pass(2)


async def test_what_is_not_acknowledged_must_be_kept() -> None:
    gate = _gate("windowed")
    gate.note(1, 1)
    gate.note(2, 1)
    gate.acknowledge(1)
    assert gate.needed_from == 2
    gate.open()
    assert gate.needed_from > 1000
    gate.reopen()
    gate.release()
    assert gate.may_pass(99)


async def test_r60_a_sink_that_is_closed_lets_go_whoever_waits_at_the_gate(until: Any) -> None:
    """And with an error: the run must not go on as if its client had seen the event."""
    written: list[int] = []
    gate = _gate("strict")

    async def write(event: Any, text: str) -> None:
        written.append(event.seq)

    sink = GatedSink(write, gate, lambda event: event.to_json())
    writer = asyncio.create_task(sink.run())
    async with Agent(ScriptedModel("hello")).stream("hi") as run:
        event = await anext(run)
        publishing = asyncio.create_task(sink.publish(event))
        await until(lambda: written)
        assert not publishing.done()
        sink.close()
        with pytest.raises(EventSinkClosed):
            await publishing
        with pytest.raises(EventSinkClosed):
            await sink.publish(event)
    await writer
    assert written == [1]


async def test_r73_a_write_error_ends_the_run() -> None:
    gate = _gate("detached")

    async def write(event: Any, text: str) -> None:
        if event.seq == 3:
            raise OSError("the disk is full")

    sink = GatedSink(write, gate, lambda event: event.to_json())
    writer = asyncio.create_task(sink.run())
    async with Agent(ScriptedModel("hello there")).stream("hi") as run:
        result = await run.forward(sink)
    await writer
    assert result.status == "failed"
    assert isinstance(result.error, EventSinkClosed)
    assert isinstance(result.error.__cause__, OSError)


@pytest.mark.parametrize("policy", ["strict", "windowed", "detached"])
@pytest.mark.parametrize("kept", ["at once", "by the writer"])
async def test_r73_a_failure_to_keep_an_event_ends_the_run_under_every_policy(policy: str, kept: str) -> None:
    """Nobody can acknowledge what was not written, so the gate must let the run go into its end."""
    gate = _gate(policy, window_events=1)
    written: list[int] = []

    def keep(event: Any, text: str) -> None:
        if event.seq == 3:
            raise OSError("the disk is full")
        written.append(event.seq)
        gate.acknowledge(event.seq)

    async def write(event: Any, text: str) -> None:
        keep(event, text)

    sink = GatedSink(write, gate, lambda event: event.to_json(), at_once=keep if kept == "at once" else None)
    writer = asyncio.create_task(sink.run())
    async with Agent(ScriptedModel("hello there")).stream("hi") as run:
        async with asyncio.timeout(10):
            result = await run.forward(sink)
    await writer
    assert result.status == "failed"
    assert isinstance(result.error, EventSinkClosed)
    assert isinstance(result.error.__cause__, OSError)
    assert written == [1, 2]


async def test_r62_and_r66_an_event_that_need_not_wait_overtakes_none_and_hears_a_cancel(until: Any) -> None:
    gate = _gate("detached")
    written: list[int] = []
    free = asyncio.Event()

    async def write(event: Any, text: str) -> None:
        await free.wait()
        written.append(event.seq)

    sink = GatedSink(write, gate, lambda event: event.to_json(), at_once=lambda event, _: written.append(event.seq))
    async with Agent(ScriptedModel("hello there")).stream("hi") as run:
        events = [event async for event in run]
    await sink.publish(events[0])
    last = events[-1].replace(seq=2)
    await sink.publish(last)  # the terminal event is the writer's, which has not begun
    await sink.publish(events[2])
    assert written == [1]
    free.set()
    await sink.run()
    assert written == [1, 2], "the writer ends with the terminal event"
    other = GatedSink(write, gate, lambda event: event.to_json(), at_once=lambda event, _: written.append(event.seq))

    async def cancelled() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await other.publish(events[0])

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(cancelled())
    assert written == [1, 2]
