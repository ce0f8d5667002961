"""The conversation as data: messages, their parts, tool calls, tool results, and streamed deltas.

Everything here is frozen and can be written as JSON. What a model is asked is in `models.py`; what the caller sees is
in `events.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from ._records import Record, adapter, maker

__all__ = [
    "Approval",
    "AssistantMessage",
    "AssistantPart",
    "AudioPart",
    "CitationPart",
    "Delta",
    "Effect",
    "FilePart",
    "ImagePart",
    "MediaPart",
    "Message",
    "Outcome",
    "ReasoningPart",
    "Request",
    "ServerToolPart",
    "StopReason",
    "SystemMessage",
    "TextPart",
    "ToolCall",
    "ToolCallPart",
    "ToolMessage",
    "ToolResult",
    "Usage",
    "UserMessage",
    "UserPart",
    "clean_text",
    "message_from_json",
    "new_id",
    "text_of",
]

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    # Filled in by `_records.adapter`: importing pydantic for a name would double the time of `import trilane`.
    JsonValue = "JsonValue"

Effect: TypeAlias = Literal["read", "idempotent", "unsafe"]
"""What running a tool twice does: nothing, the same as once (by its key), or harm."""

Outcome: TypeAlias = Literal[
    "ok", "error", "denied", "not_started", "interrupted", "timed_out", "still_running", "superseded"
]
"""How a tool call ended."""

StopReason: TypeAlias = Literal[
    "end",  # the model said all it wanted
    "tool_calls",  # it asked for tools
    "length",  # its output limit cut it off
    "stop_sequence",  # a stop text was met
    "refusal",  # it declined
    "content_filter",  # the provider withheld the answer
    "pause",  # the provider paused a long turn; sending it back continues
    "cancelled",  # the run was stopped
    "suspended",  # the run was suspended; `resume` continues it
    "limit",  # a limit of the run was reached
    "error",  # something failed
]
"""Why a model or a run stopped: one vocabulary for all providers."""


def new_id() -> str:
    """A fresh identifier of 24 hexadecimal digits, unique in practice."""
    try:
        return _ids.pop()  # one step, so that no two threads get the same
    except IndexError:
        drawn = os.urandom(12 * 64).hex()  # one system call for 64 ids
        made = [drawn[start : start + 24] for start in range(0, len(drawn), 24)]
        _ids.extend(made[1:])
        return made[0]


_ids: list[str] = []
if hasattr(os, "register_at_fork"):
    # A child process must not hand out what its parent has in store.
    os.register_at_fork(after_in_child=_ids.clear)


def clean_text(text: str) -> str:
    """`text` as it may enter history: lone surrogates and NUL become U+FFFD, everything else is untouched.

    Half a surrogate pair cannot be written as UTF-8 and NUL cannot be stored by PostgreSQL; one rule for all stores
    keeps every session readable everywhere.
    """
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Pairs that arrived as two halves are joined, what then is still a half is replaced.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Usage(Record):
    """Tokens and money. `input_tokens` includes cached ones; `cost` is in US dollars, None if unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        total: Usage = maker(Usage)(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            cost,
        )
        return total


class Approval(Record):
    """The reply to an approval question: yes or no, perhaps with other arguments, perhaps with a reason."""

    approve: bool
    arguments: dict[str, JsonValue] | None = None
    reason: str = ""


class ToolCall(Record):
    """What the model asked for.

    Attributes:
        id: Unique within its message.
        name: The tool.
        arguments: Parsed arguments; empty when `raw` could not be parsed.
        raw: The arguments as the model wrote them, for diagnosis only.
        approval: The approval attached to exactly these arguments, if somebody gave one.
    """

    id: str
    name: str
    arguments: Mapping[str, JsonValue] = {}
    raw: str = ""
    approval: Approval | None = None


class TextPart(Record):
    """Text."""

    kind: Literal["text"] = "text"
    text: str
    extra: JsonValue = None


class ReasoningPart(Record):
    """What the model thought. `signature` lets the provider that made it recognise it in a later turn."""

    kind: Literal["reasoning"] = "reasoning"
    text: str
    signature: str = ""
    extra: JsonValue = None


class ToolCallPart(Record):
    """A tool call, at its place in the message."""

    kind: Literal["tool_call"] = "tool_call"
    call: ToolCall
    extra: JsonValue = None


class ServerToolPart(Record):
    """A tool that the provider ran on its side: name, input and output as the provider gave them."""

    kind: Literal["server_tool"] = "server_tool"
    id: str = ""
    name: str
    input: JsonValue = None
    output: JsonValue = None
    extra: JsonValue = None


class CitationPart(Record):
    """Where a statement comes from."""

    kind: Literal["citation"] = "citation"
    text: str = ""
    title: str = ""
    source: str = ""
    extra: JsonValue = None


class ImagePart(Record):
    """An image: base64 `data`, or a `url`."""

    kind: Literal["image"] = "image"
    media_type: str = "image/png"
    data: str = ""
    url: str = ""
    extra: JsonValue = None


class AudioPart(Record):
    """Sound: base64 `data`, or a `url`."""

    kind: Literal["audio"] = "audio"
    media_type: str = "audio/wav"
    data: str = ""
    url: str = ""
    extra: JsonValue = None


class FilePart(Record):
    """A document: base64 `data`, or a `url`, with its file name."""

    kind: Literal["file"] = "file"
    media_type: str = "application/octet-stream"
    name: str = ""
    data: str = ""
    url: str = ""
    extra: JsonValue = None


MediaPart: TypeAlias = ImagePart | AudioPart | FilePart
UserPart: TypeAlias = TextPart | ImagePart | AudioPart | FilePart
"""What a message of the user is made of."""
AssistantPart: TypeAlias = (
    TextPart | ReasoningPart | ToolCallPart | ServerToolPart | CitationPart | ImagePart | AudioPart | FilePart
)


class ToolResult(Record):
    """What the model is told about one call.

    Attributes:
        call_id: The call it answers.
        content: Text, or text and media. Never empty when sent to a model: adapters write "(no output)".
        outcome: How the call ended.
        data: The value the tool returned, as JSON, for programs; the model does not see it, events and stores hold it.
    """

    call_id: str
    content: str | tuple[str | ImagePart | AudioPart | FilePart, ...]
    outcome: Outcome = "ok"
    data: JsonValue = None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed.

        Where it says something else, `data` is None unless it is given as well: the old one would still hold what a
        plugin took out of `content`.

        Raises:
            TypeError: a name that is not a field.
        """
        if "content" in changes and "data" not in changes and changes["content"] != self.content:
            changes["data"] = None
        return super().replace(**changes)


class SystemMessage(Record):
    """Words of the host, inside the history. An agent's `instructions` are not in the history."""

    kind: Literal["system"] = "system"
    id: str
    text: str


class UserMessage(Record):
    """What the caller said. `origin` tells a request from steering and follow-ups."""

    kind: Literal["user"] = "user"
    id: str
    parts: tuple[TextPart | ImagePart | AudioPart | FilePart, ...]
    origin: Literal["request", "steering", "follow_up", "feedback"] = "request"

    @property
    def text(self) -> str:
        """All text of the message."""
        return text_of(self.parts)


class AssistantMessage(Record):
    """What the model said. `interrupted` marks one that was cut off; what had arrived is kept."""

    kind: Literal["assistant"] = "assistant"
    id: str
    parts: tuple[
        TextPart | ReasoningPart | ToolCallPart | ServerToolPart | CitationPart | ImagePart | AudioPart | FilePart, ...
    ] = ()
    stop_reason: StopReason = "end"
    usage: Usage = Usage()
    model: str = ""
    interrupted: bool = False
    extra: JsonValue = None

    @property
    def text(self) -> str:
        """All text of the message, without reasoning."""
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order in which the model made them."""
        return tuple([part.call for part in self.parts if part.kind == "tool_call"])


class ToolMessage(Record):
    """The results of all calls of the assistant message before it, in call order."""

    kind: Literal["tool"] = "tool"
    id: str
    results: tuple[ToolResult, ...]


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
Request: TypeAlias = str | Sequence[str | ImagePart | AudioPart | FilePart] | UserMessage


class Delta(Record):
    """A streamed increment, as a model emits it.

    Attributes:
        kind: What the text belongs to. For `arguments` it is a piece of the JSON text of a call's arguments.
        text: The increment. An `arguments` delta with empty text opens a call.
        index: Which part of the message it belongs to; a new index opens a new part.
        call_id: For `arguments`: the call's id, on its first delta at least.
        name: For `arguments`: the tool, on its first delta at least.
        extra: Whatever the provider needs back with the part, such as a signature.
    """

    kind: Literal["text", "reasoning", "arguments"] = "text"
    text: str = ""
    index: int = 0
    call_id: str = ""
    name: str = ""
    extra: JsonValue = None


def text_of(parts: Sequence[object]) -> str:
    """The text of all `TextPart`s, joined."""
    return "".join([part.text for part in parts if isinstance(part, TextPart)])


def message_from_json(data: str | bytes) -> Message:
    """The message that `to_json` of any message class wrote.

    Raises:
        pydantic.ValidationError: `data` is not a message.
    """
    message: Message = adapter(Message).validate_json(data)
    return message
