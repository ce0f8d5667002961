"""A model for the example that needs no key and no network: it knows two kinds of requests, and writes word by word."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from trilane import Delta, ModelRequest, ModelResponse, TextPart, ToolCall, ToolCallPart, ToolMessage, UserMessage

__all__ = ["DeskModel"]

_TOWN = re.compile(r"\b(?:from|to|in|for) ([A-Z]\w+)")
_NUMBER = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4}


class DeskModel:
    """Calls `book_seat` if asked to book, else `find_trains` and `weather` at once; then says what came back.

    Args:
        pace_seconds: The pause before each word.
    """

    name = "desk"

    def __init__(self, *, pace_seconds: float = 0.0) -> None:
        self._pace_seconds = pace_seconds

    async def call(self, request: ModelRequest, emit: Callable[[Delta], Awaitable[None]]) -> ModelResponse:
        """Answer the last message."""
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            calls = self._calls(last.text, number=len(request.messages))
            said = await self._say("Let me see. ", emit)
            return ModelResponse(parts=(said, *(ToolCallPart(call=call) for call in calls)), stop_reason="tool_calls")
        return ModelResponse(parts=(await self._say(self._report(last), emit),), stop_reason="end")

    def _calls(self, text: str, *, number: int) -> list[ToolCall]:
        towns = _TOWN.findall(text)
        if "book" in text.lower():
            train = re.search(r"\b([A-Z]\d+)\b", text)
            seats = next((_NUMBER[word] for word in re.findall(r"\w+", text.lower()) if word in _NUMBER), 1)
            wanted = {"train": train[1] if train else "R12", "seats": seats}
            return [ToolCall(id=f"call-{number}-1", name="book_seat", arguments=wanted)]
        start, destination = (["Ulm", *towns] if len(towns) < 2 else towns)[-2:] if towns else ("Ulm", "Bregenz")
        return [
            ToolCall(id=f"call-{number}-1", name="find_trains", arguments={"start": start, "destination": destination}),
            ToolCall(id=f"call-{number}-2", name="weather", arguments={"place": destination}),
        ]

    def _report(self, last: object) -> str:
        results = last.results if isinstance(last, ToolMessage) else ()
        lines = [f"- {line}" for result in results for line in str(result.content).splitlines()]
        return "Here is what I was told:\n\n" + "\n".join(lines) + "\n\nAnything else?"

    async def _say(self, text: str, emit: Callable[[Delta], Awaitable[None]]) -> TextPart:
        for word in re.findall(r"\S+\s*", text):
            if self._pace_seconds:
                await asyncio.sleep(self._pace_seconds)
            await emit(Delta(text=word))
        return TextPart(text=text)
