"""What a wire server answers, as data that belongs to no provider's format: pieces of a reply, and faults between them.

How a reply looks on the wire is in `openai_chat.py` and `anthropic_messages.py`; who sends it is in `server.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from trilane.messages import StopReason, Usage

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = [
    "STALL",
    "Call",
    "Cut",
    "Empty",
    "Ends",
    "Fail",
    "Hold",
    "Piece",
    "Ping",
    "Raw",
    "Refuse",
    "Reply",
    "Say",
    "Split",
    "Think",
    "Unknown",
    "call",
    "interleaved",
]


@dataclass(frozen=True, slots=True)
class Say:
    """A piece of text. Neighbouring ones belong to one part. A plain `str` in a reply means this."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of reasoning. `signature` is sent where the format has one, after the text."""

    text: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A piece of a refusal: its own field in Chat Completions, plain text in the Messages format."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A piece of a tool call.

    Attributes:
        number: Which call of the reply it belongs to, from 0.
        id: The call's id; with the piece that opens it.
        name: The tool; with the piece that opens it.
        arguments: Some of the JSON text of its arguments, any text at all.
        indexed: Whether Chat Completions says the number; the Messages format always does.
    """

    number: int = 0
    id: str = ""
    name: str = ""
    arguments: str = ""
    indexed: bool = True


@dataclass(frozen=True, slots=True)
class Ping:
    """A sign of life without meaning: a comment, and in the Messages format also a `ping` event."""


@dataclass(frozen=True, slots=True)
class Empty:
    """A chunk without choices, as some servers send first; a `ping` event in the Messages format."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something a later version of the format may send: an event of an unknown type, and an unknown field."""


@dataclass(frozen=True, slots=True)
class Fail:
    """An error in the middle of the stream, in the format's own words for it."""

    message: str = "The server had an error while processing your request"
    type: str = "server_error"


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes as they are."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Hold:
    """Send nothing until the test calls `server.release(name)` or the client leaves."""

    name: str = "stall"


@dataclass(frozen=True, slots=True)
class Cut:
    """Drop the connection here; with `reset` as a crash does it, else as an orderly end that comes too early."""

    reset: bool = False


Piece: TypeAlias = Say | Think | Refuse | Call | Ping | Empty | Unknown | Fail | Raw | Hold | Cut

STALL = Hold()
"""Say no more and keep the connection open. `await server.reached("stall")` tells when."""

Ends: TypeAlias = Literal["done", "finished", "open"]
"""How a reply ends: in full; with its stop reason but without the format's last event; without either."""

Split: TypeAlias = Literal["frames"] | int | tuple[int, ...]
"""How the body is cut into pieces: one for each event; so many bytes each; or at these byte positions."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer to one request. Give the pieces with `Reply.of(...)`, or an error with `Reply.error(...)`.

    Attributes:
        pieces: What is sent, in order.
        stop: Why the model stops; guessed from the pieces if None.
        usage: What the call used, None to send none.
        usage_at: Chat Completions only: after the last choice, with it, or both.
        model: Name the reply gives.
        ends: How the stream ends.
        split: How the body is cut into pieces on the wire.
        reasoning_field: Chat Completions only: what the server calls reasoning.
        hold_headers: Name of a hold before the status line.
        status: HTTP status.
        headers: Further headers.
        body: The body of an error as it is; None for the format's own.
        error_message: Text of an error.
        error_type: Type of an error; chosen by the status if empty.
        error_code: Chat Completions only: code of an error; chosen by the status if empty.
    """

    pieces: tuple[Piece, ...] = ()
    stop: StopReason | None = None
    usage: Usage | None = field(default_factory=lambda: Usage(input_tokens=11, output_tokens=7))
    usage_at: Literal["last", "finish", "both"] = "last"
    model: str = "wire-model"
    ends: Ends = "done"
    split: Split = "frames"
    reasoning_field: str = "reasoning_content"
    hold_headers: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    error_message: str = ""
    error_type: str = ""
    error_code: str = ""

    @classmethod
    def of(
        cls,
        *pieces: str | Piece | Iterable[Piece],
        stop: StopReason | None = None,
        usage: Usage | None = Usage(input_tokens=11, output_tokens=7),  # noqa: B008  (a frozen record)
        usage_at: Literal["last", "finish", "both"] = "last",
        model: str = "wire-model",
        ends: Ends = "done",
        split: Split = "frames",
        reasoning_field: str = "reasoning_content",
        hold_headers: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """A streamed answer. A `str` is text; lists, as `call(...)` gives them, are taken apart."""
        flat: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, str):
                flat.append(Say(piece))
            elif isinstance(piece, Iterable):
                flat.extend(piece)
            else:
                flat.append(piece)
        return cls(
            pieces=tuple(flat),
            stop=stop,
            usage=usage,
            usage_at=usage_at,
            model=model,
            ends=ends,
            split=split,
            reasoning_field=reasoning_field,
            hold_headers=hold_headers,
            headers=headers or {},
        )

    @classmethod
    def error(
        cls,
        status: int,
        message: str = "",
        *,
        type: str = "",
        code: str = "",
        retry_after: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
        hold_headers: str = "",
    ) -> Reply:
        """An error instead of a stream.

        Args:
            status: HTTP status.
            message: Its text.
            type: Its type in the format's words; chosen by the status if empty.
            code: Its code, in Chat Completions; chosen by the status if empty.
            retry_after: The `Retry-After` header, any text.
            headers: Further headers.
            body: The whole body, instead of what the format says.
            hold_headers: Name of a hold before the status line.
        """
        sent = dict(headers or {})
        if retry_after is not None:
            sent["retry-after"] = retry_after
        return cls(
            status=status,
            headers=sent,
            body=body,
            error_message=message or f"scripted error {status}",
            error_type=type,
            error_code=code,
            hold_headers=hold_headers,
        )

    @property
    def stop_reason(self) -> StopReason:
        """`stop`, or what the pieces suggest."""
        if self.stop is not None:
            return self.stop
        if any(isinstance(piece, Refuse) for piece in self.pieces):
            return "refusal"
        return "tool_calls" if any(isinstance(piece, Call) for piece in self.pieces) else "end"


def call(
    name: str,
    arguments: Mapping[str, JsonValue] | str = "",
    *,
    number: int = 0,
    id: str | None = None,
    size: int = 6,
    indexed: bool = True,
) -> list[Call]:
    """A whole tool call: the piece that opens it, then its arguments, `size` characters each.

    Args:
        name: The tool.
        arguments: What they are, or the text itself, which need not be JSON.
        number: Which call of the reply it is.
        id: The call's id; `call_NUMBER` if None.
        size: Characters of each piece.
        indexed: Whether Chat Completions says the number.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    opened = Call(number, f"call_{number}" if id is None else id, name, "", indexed)
    rest = [Call(number, arguments=text[at : at + size], indexed=indexed) for at in range(0, len(text), size)]
    return [opened, *rest]


def interleaved(*calls: Sequence[Call]) -> list[Call]:
    """Several calls at once: the first piece of each, then the second of each, and so on."""
    longest = max((len(pieces) for pieces in calls), default=0)
    return [pieces[at] for at in range(longest) for pieces in calls if at < len(pieces)]
