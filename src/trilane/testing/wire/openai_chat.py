"""A scripted reply in the streaming format of OpenAI Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .script import Call, Cut, Empty, Fail, Hold, Ping, Raw, Refuse, Reply, Say, Think, Unknown

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.messages import Usage

__all__ = ["error_body", "frames"]

_FINISH = {
    "end": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "stop_sequence": "stop",
    "refusal": "stop",
    "content_filter": "content_filter",
}
_ERRORS: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", ""),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("insufficient_permissions", ""),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def frames(reply: Reply, number: int, request: Mapping[str, JsonValue]) -> Iterator[bytes | Hold | Cut]:
    """The body of the reply to request `number`, event by event."""
    chunk = _Chunk(reply, number)
    yield chunk.delta({"role": "assistant", "content": ""})
    opened: set[int] = set()
    for piece in reply.pieces:
        match piece:
            case Say(text):
                yield chunk.delta({"content": text})
            case Think(text):
                if text:
                    yield chunk.delta({reply.reasoning_field: text})
            case Refuse(text):
                yield chunk.delta({"refusal": text})
            case Call():
                yield chunk.delta({"tool_calls": [_call(piece, piece.number in opened)]})
                opened.add(piece.number)
            case Ping():
                yield b": keep-alive\n\n"
            case Empty():
                yield chunk.frame({"choices": []})
            case Unknown():
                yield b'event: brand_new_event\ndata: {"object": "brand.new", "thing": 1}\n\n'
                yield chunk.delta({"brand_new_field": {"a": 1}})
            case Fail(message, kind):
                yield _frame({"error": {"message": message, "type": kind, "param": None, "code": None}})
                return
            case Raw(data):
                yield data
            case Hold():
                yield piece
            case Cut():
                yield piece
                return
    yield from _end(reply, chunk, request)


def error_body(reply: Reply, number: int) -> str:
    """The body of an error."""
    kind, code = _ERRORS.get(reply.status, ("server_error", ""))
    error = {
        "message": reply.error_message,
        "type": reply.error_type or kind,
        "param": None,
        "code": reply.error_code or code or None,
    }
    return json.dumps({"error": error}, ensure_ascii=False)


class _Chunk:
    def __init__(self, reply: Reply, number: int) -> None:
        self._base: dict[str, JsonValue] = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": reply.model,
        }

    def frame(self, values: Mapping[str, JsonValue]) -> bytes:
        return _frame({**self._base, **values})

    def delta(self, delta: Mapping[str, JsonValue], finish: str | None = None, **more: JsonValue) -> bytes:
        return self.frame({"choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}], **more})


def _end(reply: Reply, chunk: _Chunk, request: Mapping[str, JsonValue]) -> Iterator[bytes]:
    if reply.ends == "open":
        return
    options = request.get("stream_options")
    wanted = isinstance(options, dict) and bool(options.get("include_usage"))
    usage = _usage(reply.usage) if reply.usage is not None and wanted else None
    finish = _FINISH.get(reply.stop_reason, str(reply.stop_reason))
    if usage is not None and reply.usage_at != "last":
        yield chunk.delta({}, finish, usage=usage)
    else:
        yield chunk.delta({}, finish)
    if usage is not None and reply.usage_at != "finish":
        yield chunk.frame({"choices": [], "usage": usage})
    if reply.ends == "done":
        yield b"data: [DONE]\n\n"


def _call(piece: Call, is_opened: bool) -> dict[str, JsonValue]:
    function: dict[str, JsonValue] = {"arguments": piece.arguments}
    sent: dict[str, JsonValue] = {"function": function}
    if piece.indexed:
        sent["index"] = piece.number
    if piece.id:
        sent["id"] = piece.id
    if piece.name:
        function["name"] = piece.name
    if not is_opened:
        sent["type"] = "function"
    return sent


def _usage(usage: Usage) -> dict[str, JsonValue]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _frame(value: Mapping[str, JsonValue]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode("utf-8", "surrogatepass")
