"""A run as text that people can read and compare: one line for each thing that the caller saw.

```python
record = record_run(agent, "Hello")
assert record == '''
    request: Hello
    -> look(place="sea")
    <- look: a ship
    text: A ship.
    completed: A ship.
'''
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import ndiff
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from .clock import Backend, run_virtual
from .recorder import EventRecorder

if TYPE_CHECKING:
    from trilane.agent import Agent
    from trilane.events import Event
    from trilane.messages import ToolResult
    from trilane.result import RunResult

__all__ = ["RunRecord", "record_run", "transcript"]


class RunRecord:
    """What became of a run. Equal to a text if its lines are those of the text, whose indent does not matter.

    Attributes:
        events: The events.
        result: The result.
        error: What the stream raised, None for a run that completed.
        lines: The events as text.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, events: EventRecorder, result: RunResult[Any], error: BaseException | None) -> None:
        self.events = events
        self.result = result
        self.error = error
        self.lines = transcript(events)

    def difference(self, expected: str) -> list[str]:
        """With `-` what is expected and missing, with `+` what is there and not expected, and a line around each."""
        lines = [line for line in ndiff(_lines(expected), self.lines) if not line.startswith("?")]
        changed = {place for place, line in enumerate(lines) if line[0] in "-+"}
        shown = {near for place in changed for near in (place - 1, place, place + 1)}
        return [line for place, line in enumerate(lines) if place in shown]

    def __eq__(self, other: object) -> bool:
        return self.lines == _lines(other) if isinstance(other, str) else self is other

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"<RunRecord of {len(self.events)} events: {self.result.status}>"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in dedent(text).strip("\n").splitlines() if line.strip()]


def record_run(
    agent: Agent[Any, Any], request: str, *, backend: Backend = "asyncio", check: bool = True, **options: Any
) -> RunRecord:
    """Run a request in virtual time and write down what the caller sees.

    Args:
        agent: The agent.
        request: The request.
        backend: The event loop.
        check: True to check the invariants of the stream as well.
        options: Options of the run.

    Raises:
        AssertionError: the stream breaks an invariant.
    """

    async def main() -> RunRecord:
        async with agent.stream(request, **options) as run:
            events = await EventRecorder().record(run, catch=Exception)
        return RunRecord(events, run.result, events.error)

    record = run_virtual(main, backend=backend)
    if check:
        record.events.check()
    return record


def transcript(events: Iterable[Event]) -> list[str]:
    """One line for each thing that happened; deltas are put together, phases and turns left out."""
    lines: list[str] = []
    texts: dict[tuple[str, int], str] = {}
    names: dict[str, str] = {}
    for item in events:
        prefix, event = "", item
        if event.type == "child_event":
            prefix, event = f"{' > '.join(event.path)} | ", event.event
        if event.type in ("text_delta", "reasoning_delta"):
            key = (event.message_id, event.index)
            texts[key] = texts.get(key, "") + event.text
        elif event.type in ("text_completed", "reasoning_completed"):
            what = "text" if event.type == "text_completed" else "reasoning"
            lines.append(f"{prefix}{what}: {_flat(texts.pop((event.message_id, event.index), ''))}")
        else:
            lines.extend(prefix + line for line in _event(event, names))
    return lines


def _event(event: Event, names: dict[str, str]) -> Iterator[str]:
    if event.type == "run_started":
        yield f"request: {_flat(event.request.text)}"
    elif event.type == "user_message_added" and event.origin != "request":
        yield f"{event.origin}: {_flat(event.message.text)}"
    elif event.type == "tool_started":
        names[event.call.id] = event.call.name
        yield f"-> {event.call.name}({_arguments(event.call.arguments)})"
    elif event.type == "tool_progress":
        yield f".. {names.get(event.call_id, event.call_id)}: {_flat(event.text)}"
    elif event.type == "tool_completed":
        outcome = "" if event.result.outcome == "ok" else f" {event.result.outcome}"
        yield f"<- {event.call.name}{outcome}: {_flat(_content(event.result))}"
    elif event.type == "reply_requested":
        yield f"question: {_flat(event.question.prompt)}"
    elif event.type == "reply_received":
        yield f"reply: {event.receipt.status}"
    elif event.type == "message_completed" and (event.superseded or event.interrupted):
        yield "the message is void" if event.superseded else "the message is cut off"
    elif event.type == "custom_event":
        yield f"{event.plugin}: {event.name} {json.dumps(event.data, ensure_ascii=False)}"
    elif event.type == "plugin_failed":
        yield f"plugin {event.plugin} failed in {event.hook}: {type(event.error).__name__}: {event.error}"
    elif event.type == "compaction_completed" and event.changed:
        yield f"compacted: {event.reason}"
    elif event.type == "run_completed":
        yield f"completed: {_flat(event.result.text)}"
    elif event.type == "run_failed":
        yield f"{event.status}: {type(event.error).__name__}: {_flat(str(event.error))}"
    elif event.type == "run_cancelled":
        yield f"cancelled: {_flat(event.reason)}"


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())


def _content(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return " ".join(part if isinstance(part, str) else f"[{part.kind}]" for part in result.content)


def _flat(text: str) -> str:
    return " ".join(text.split())
