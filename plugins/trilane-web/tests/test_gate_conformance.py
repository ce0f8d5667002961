"""The gated sink is an `EventSink`: with a gate that holds nobody it passes the checks of the core, but for three."""

from __future__ import annotations

import pytest

from trilane import Event
from trilane.testing import SINK_CHECKS
from trilane.testing.sinks import Write
from trilane_web.gate import Gate, GatedSink

pytestmark = pytest.mark.anyio

#: Its only publisher is `run.forward`, which gives no `live`, and is cancelled only together with the sink's end.
DIFFERS = {
    "a_blocked_publish_hears_its_cancellation": "the text of a cancelled publish stays, and goes out with the next one",
    "a_caller_that_is_cancelled_already_queues_nothing": "the same",
    "what_is_no_longer_live_is_skipped": "`live` is not passed on",
}


def make(write: Write, capacity: int, write_seconds: float = 30.0) -> GatedSink:
    async def write_with_text(event: Event, text: str) -> None:
        assert text == event.to_json(), "the text must be that of the event"
        await write(event)

    gate = Gate("detached", window_events=1, window_seconds=1.0, window_bytes=1)
    return GatedSink(
        write_with_text, gate, lambda event: event.to_json(), capacity=capacity, write_seconds=write_seconds
    )


@pytest.mark.parametrize("name", [name for name in SINK_CHECKS if name not in DIFFERS])
async def test_conformance(name: str) -> None:
    await SINK_CHECKS[name](make)


@pytest.mark.parametrize("name", DIFFERS)
async def test_what_differs_is_still_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that passes again is taken off the list."""
    monkeypatch.setattr("trilane.testing.sinks._PATIENCE", 0.1)
    with pytest.raises(AssertionError, match=r"must be written|is written"):
        await SINK_CHECKS[name](make)
