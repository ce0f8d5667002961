"""What is known of one run in which the plugin took part, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trilane._records import error_line
from trilane.errors import RunError
from trilane.events import CustomEvent, Event, event_from_json
from trilane.models import ModelRequest
from trilane.result import RunResult
from trilane.testing.events import check_events
from trilane.testing.history import check_history

__all__ = ["Evidence", "complaints", "round_trips"]


@dataclass(kw_only=True)
class Evidence:
    """A run.

    Attributes:
        label: How it was run, for messages.
        result: What it returned; None if it did not get that far.
        error: What it raised.
        events: What the caller saw, if it was streamed.
        requests: What the model was asked.
    """

    label: str
    result: RunResult[Any] | None = None
    error: BaseException | None = None
    events: list[Event] = field(default_factory=list)
    requests: Sequence[ModelRequest] = ()

    def calls(self, plugin: str) -> dict[str, tuple[int, int]]:
        """How often each of the plugin's hooks was called, and how often it failed."""
        rows = () if self.result is None else self.result.ledger
        return {row.hook: (row.calls, row.errors) for row in rows if row.plugin == plugin}


def complaints(evidence: Evidence, plugin: str) -> Iterator[str]:
    """What is wrong with a run that was left to end by itself."""
    if evidence.error is not None and not isinstance(evidence.error, RunError):
        yield f"the run failed with {error_line(evidence.error)}"
    result = evidence.result
    if result is None:
        if evidence.error is None or isinstance(evidence.error, RunError):
            yield "the run had no result"
        return
    failed = {failure.hook: failure.error for failure in result.hook_failures if failure.plugin == plugin}
    for hook, error in failed.items():
        yield f"{hook} failed: {error_line(error)}"
    if evidence.events:
        yield from check_events(evidence.events)
    yield from check_history(result.messages)


def round_trips(evidence: Evidence) -> Iterator[str]:
    """What of a run does not come back from JSON as it went in."""
    for event in evidence.events:
        try:
            text = event.to_json()
            back = event_from_json(text)
            same = back.to_json() == text
            if isinstance(event, CustomEvent) and isinstance(back, CustomEvent):
                same = same and back.data == event.data
        except Exception as error:
            yield f"{type(event).__name__} cannot be written to JSON and read: {error_line(error)}"
        else:
            if not same:
                yield f"{type(event).__name__} comes back from JSON as something else: {text[:200]}"
    for request in evidence.requests:
        try:
            if ModelRequest.from_json(request.to_json()) != request:
                yield f"the request of turn {request.turn} comes back from JSON as something else"
        except Exception as error:
            yield f"the request of turn {request.turn} cannot be written to JSON and read: {error_line(error)}"
    if evidence.result is not None:
        try:
            text = evidence.result.to_json()
            if RunResult.from_json(text).to_json() != text:
                yield "the result comes back from JSON as something else"
        except Exception as error:
            yield f"the result cannot be written to JSON and read: {error_line(error)}"
