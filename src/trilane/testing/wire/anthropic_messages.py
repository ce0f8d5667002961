"""A scripted reply in the streaming format of the Anthropic Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .script import Call, Cut, Empty, Fail, Hold, Piece, Ping, Raw, Refuse, Reply, Say, Think, Unknown

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.messages import Usage

__all__ = ["error_body", "frames"]

_STOP = {
    "end": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def frames(reply: Reply, number: int, request: Mapping[str, JsonValue]) -> Iterator[bytes | Hold | Cut]:
    """The body of the reply to request `number`, event by event."""
    yield _start(reply, number)
    places = _places(reply.pieces)
    last = {block: at for at, block in enumerate(places) if block is not None}
    opened: set[int] = set()
    for at, (piece, block) in enumerate(zip(reply.pieces, places, strict=True)):
        if block is not None:
            if block not in opened:
                opened.add(block)
                yield _frame("content_block_start", index=block, content_block=_opening(piece))
            yield from _deltas(piece, block)
            if last[block] == at and not (reply.ends == "open" and at == len(places) - 1):
                yield _frame("content_block_stop", index=block)
            continue
        yield from _between(piece)
        if isinstance(piece, Cut | Fail):
            return
    if reply.ends != "open":
        yield _message_delta(reply)
    if reply.ends == "done":
        yield _frame("message_stop")


def error_body(reply: Reply, number: int) -> str:
    """The body of an error."""
    error = {"type": reply.error_type or _ERRORS.get(reply.status, "api_error"), "message": reply.error_message}
    return json.dumps({"type": "error", "error": error, "request_id": f"req_{number}"}, ensure_ascii=False)


def _places(pieces: tuple[Piece, ...]) -> list[int | None]:
    """The content block of each piece, None for what belongs to none."""
    places: list[int | None] = []
    calls: dict[int, int] = {}
    current: tuple[type, int] | None = None  # the block of text or thinking that goes on
    count = 0
    for piece in pieces:
        if isinstance(piece, Call):
            current = None
            if piece.number not in calls:
                calls[piece.number] = count
                count += 1
            places.append(calls[piece.number])
        elif isinstance(piece, Say | Refuse | Think):
            kind = Think if isinstance(piece, Think) else Say
            if current is None or current[0] is not kind:
                current = (kind, count)
                count += 1
            places.append(current[1])
        else:
            places.append(None)
    return places


def _opening(piece: Piece) -> dict[str, JsonValue]:
    if isinstance(piece, Call):
        return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
    if isinstance(piece, Think):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _deltas(piece: Piece, block: int) -> Iterator[bytes]:
    match piece:
        case Say(text) | Refuse(text):
            yield _delta(block, {"type": "text_delta", "text": text})
        case Think(text, signature):
            if text:
                yield _delta(block, {"type": "thinking_delta", "thinking": text})
            if signature:
                yield _delta(block, {"type": "signature_delta", "signature": signature})
        case Call():
            yield _delta(block, {"type": "input_json_delta", "partial_json": piece.arguments})


def _between(piece: Piece) -> Iterator[bytes | Hold | Cut]:
    match piece:
        case Ping():
            yield b": keep-alive\n\n"
            yield _frame("ping")
        case Empty():
            yield _frame("ping")
        case Unknown():
            yield _frame("brand_new_event", thing=1)
        case Fail(message, kind):
            error: dict[str, JsonValue] = {"type": "api_error" if kind == "server_error" else kind, "message": message}
            yield _frame("error", error=error)
        case Raw(data):
            yield data
        case Hold() | Cut():
            yield piece


def _start(reply: Reply, number: int) -> bytes:
    message: dict[str, JsonValue] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_input(reply.usage), "output_tokens": 1 if reply.usage is not None else 0},
    }
    return _frame("message_start", message=message)


def _message_delta(reply: Reply) -> bytes:
    delta: dict[str, JsonValue] = {"stop_reason": _STOP.get(reply.stop_reason, str(reply.stop_reason))}
    delta["stop_sequence"] = "STOP" if reply.stop_reason == "stop_sequence" else None
    return _frame(
        "message_delta",
        delta=delta,
        usage={"output_tokens": reply.usage.output_tokens if reply.usage is not None else 0},
    )


def _input(usage: Usage | None) -> dict[str, JsonValue]:
    if usage is None:
        return {"input_tokens": 0}
    # Here the number of input tokens is without those that were read from or written to the cache.
    return {
        "input_tokens": max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens),
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }


def _delta(block: int, delta: dict[str, JsonValue]) -> bytes:
    return _frame("content_block_delta", index=block, delta=delta)


def _frame(kind: str, **values: JsonValue) -> bytes:
    data = json.dumps({"type": kind, **values}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode("utf-8", "surrogatepass")
