"""One call of a model in a test: what is asked, what is emitted, how it fails.

For tests of provider adapters, see `providers.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from trilane.config import ModelSettings
from trilane.errors import ModelError
from trilane.messages import Delta, TextPart, UserMessage
from trilane.models import Model, ModelRequest, ToolSpec

from .wire import WireServer

__all__ = ["Consumer", "Emitted", "ask", "close_model", "error_of", "meaning"]

Emitted: TypeAlias = list[tuple[object, ...]]
"""What a call emitted, without what differs between providers; see `meaning`."""

_SEARCH = ToolSpec(name="search", description="Search.", parameters={"type": "object", "properties": {}})
_READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})


class Consumer:
    """Takes deltas; can do something when number `at` arrives (from 1). Lets the server go on that holds "shown"."""

    def __init__(self, at: int = 0, then: Callable[[], Awaitable[None] | None] | None = None) -> None:
        self.deltas: list[Delta] = []
        self.server: WireServer | None = None
        self._at = at
        self._then = then

    async def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)
        if self.server is not None and delta.text:
            self.server.release("shown")
        if len(self.deltas) == self._at and self._then is not None:
            waiting = self._then()
            if waiting is not None:
                await waiting


def ask(text: str = "Hello", **changes: Any) -> ModelRequest:
    """A request of one user message, with two tools."""
    messages = (UserMessage(id="m1", parts=(TextPart(text=text),)),)
    settings = ModelSettings(max_output_tokens=100)
    return ModelRequest(messages=messages, tools=(_SEARCH, _READ), settings=settings).replace(**changes)


def meaning(deltas: Sequence[Delta]) -> Emitted:
    """Deltas as they are compared: parts numbered in order of appearance, calls opened once, nothing empty."""
    parts: dict[tuple[str, int], int] = {}
    seen: Emitted = []
    for delta in deltas:
        key = (delta.kind, delta.index)
        is_new = key not in parts
        if delta.kind == "arguments":
            number = parts.setdefault(key, len(parts))
            if is_new:
                seen.append(("call", number, delta.call_id, delta.name))
            if delta.text:
                seen.append(("arguments", number, delta.text))
        elif delta.text:
            seen.append((delta.kind, parts.setdefault(key, len(parts)), delta.text))
    return seen


async def error_of(model: Model, consumer: Consumer) -> ModelError:
    """How a call fails. The model is closed."""
    try:
        response = await model.call(ask(), consumer)
    except ModelError as error:
        return error
    finally:
        await close_model(model)
    raise AssertionError(f"the call did not fail: {response!r}")


async def close_model(model: Model) -> None:
    """Close what a model keeps open between calls, if it keeps anything."""
    close = getattr(model, "aclose", None)
    if close is not None:
        await close()
