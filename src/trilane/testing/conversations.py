"""Conversations as the core can produce them, drawn by hypothesis: for property tests of provider adapters.

Checks of conversations are in `history.py`, of requests on the wire in `wire/requests.py`. hypothesis is imported when
`conversations` is called.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from trilane.messages import (
    AssistantMessage,
    AudioPart,
    CitationPart,
    FilePart,
    ImagePart,
    Message,
    ReasoningPart,
    ServerToolPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = ["conversations"]

_OUTCOMES = ("ok", "error", "denied", "not_started", "interrupted", "timed_out", "still_running", "superseded")
_ORIGINS = ("request", "steering", "follow_up", "feedback")
_NAMES = ("search", "read_file", "weird name!", "functions.search", "", "x" * 80, "ünïcode")
_IDS = ("call_1", "call_1", "toolu_01ABC", "abc123XYZ", "id with spaces", "i" * 70, "é:0|1")
_DATA = base64.b64encode(b"bytes").decode()


def conversations(*, max_turns: int = 5) -> SearchStrategy[list[Message]]:
    """Conversations that end where a model is asked: with the user, or with tool results.

    Texts may be blank, ids and names may be none that a provider takes, an id may come back in a later message, results
    may be empty or hold media, and parts may be another provider's.

    Args:
        max_turns: Most turns.
    """
    from hypothesis import strategies as st

    texts = st.one_of(st.text(max_size=12), st.sampled_from(["", " ", "\n", "\u2028", "Hello, 世界 🌍", "(no output)"]))
    texts = texts.map(lambda text: text.replace("\x00", ""))
    medium: SearchStrategy[Any] = st.one_of(
        st.sampled_from([ImagePart(data=_DATA), ImagePart(url="https://example.org/a.png"), AudioPart(data=_DATA)]),
        st.sampled_from(
            [
                AudioPart(url="https://example.org/a.wav"),
                FilePart(media_type="application/pdf", name="a.pdf", data=_DATA),
                FilePart(media_type="text/plain", name="", data=_DATA),
                FilePart(url="https://example.org/a.pdf"),
            ]
        ),
    )
    json_values: SearchStrategy[Any] = st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=True) | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
        max_leaves=4,
    )
    said: SearchStrategy[Any] = st.one_of(
        texts.map(lambda text: TextPart(text=text)),
        st.builds(
            lambda text, signature, extra: ReasoningPart(text=text, signature=signature, extra=extra),
            texts,
            st.sampled_from(["", "c2lnbmVk"]),
            st.sampled_from([None, {"openai": {}}, {"anthropic": {"redacted": "data"}}, "odd"]),
        ),
        st.builds(lambda value: ServerToolPart(id="srv_1", name="web_search", input=value, output=value), json_values),
        st.builds(lambda text: CitationPart(text=text, title=text, source="https://example.org"), texts),
        medium,
    )

    @st.composite
    def build(draw: DrawFn) -> list[Message]:
        messages: list[Message] = []

        def number() -> str:
            return f"m{len(messages)}"

        def user() -> None:
            parts = draw(st.lists(texts.map(lambda text: TextPart(text=text)) | medium, min_size=1, max_size=3))
            message = UserMessage(id=number(), parts=tuple(parts))
            messages.append(message.replace(origin=draw(st.sampled_from(_ORIGINS))))

        def assistant() -> None:
            parts = list(draw(st.lists(said, max_size=3)))
            interrupted = draw(st.booleans())
            if interrupted:  # what was cut off keeps text and reasoning only
                kept = tuple(part for part in parts if part.kind in ("text", "reasoning"))
                messages.append(AssistantMessage(id=number(), parts=kept, stop_reason="cancelled", interrupted=True))
                return
            ids = draw(st.lists(st.sampled_from(_IDS), max_size=3, unique=True))
            calls = [_call(draw(st.sampled_from(_NAMES)), call_id, draw(json_values)) for call_id in ids]
            place = draw(st.integers(0, len(parts)))
            parts[place:place] = [ToolCallPart(call=one) for one in calls]
            messages.append(AssistantMessage(id=number(), parts=tuple(parts)))
            if calls:
                results = tuple(
                    ToolResult(
                        call_id=one.id,
                        content=draw(texts | st.lists(texts | medium, max_size=3).map(tuple)),
                        outcome=draw(st.sampled_from(_OUTCOMES)),
                    )
                    for one in calls
                )
                messages.append(ToolMessage(id=number(), results=results))

        if draw(st.booleans()):
            messages.append(SystemMessage(id=number(), text=draw(texts)))
        user()
        for _ in range(draw(st.integers(0, max_turns))):
            assistant()
            if draw(st.integers(0, 4)) == 0:
                messages.append(SystemMessage(id=number(), text=draw(texts)))
            if messages[-1].kind != "tool" or draw(st.booleans()):
                user()
        return messages

    return build()


def _call(name: str, call_id: str, value: Any) -> ToolCall:
    """A call as the core keeps it: what could not be parsed has no arguments, and tells in `raw`."""
    if isinstance(value, dict):
        return ToolCall(id=call_id, name=name, arguments=value)
    return ToolCall(id=call_id, name=name, raw='{"city": "Par')
