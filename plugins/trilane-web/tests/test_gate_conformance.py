"""The gated sink is an `EventSink`: with a gate that holds nobody it passes the checks of the core."""

from __future__ import annotations

import pytest

from trilane import Event
from trilane.testing import SINK_CHECKS
from trilane.testing.sinks import Write
from trilane_web.gate import Gate, GatedSink

pytestmark = pytest.mark.anyio


#: Its only publisher is `run.forward`, which gives no `live`, and is cancelled only together with the sink's end.
def make(write: Write, capacity: int, write_seconds: float = 30.0) -> GatedSink:
    async def write_with_text(event: Event, text: str) -> None:
        assert text == event.to_json(), "the text must be that of the event"
        await write(event)

    gate = Gate("detached", window_events=1, window_seconds=1.0, window_bytes=1)
    return GatedSink(
        write_with_text, gate, lambda event: event.to_json(), capacity=capacity, write_seconds=write_seconds
    )


@pytest.mark.parametrize("name", list(SINK_CHECKS))
async def test_conformance(name: str) -> None:
    await SINK_CHECKS[name](make)
