"""The raw events of a streamed answer as deltas, and at the end as the parts of a message.

Events and fields that are not known are skipped. Nothing is parsed here but the input of tools that the provider ran:
the arguments of our own tools are kept as the text the model wrote, which may be malformed or cut off.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trilane.messages import (
    AssistantPart,
    CitationPart,
    Delta,
    ReasoningPart,
    ServerToolPart,
    StopReason,
    TextPart,
    ToolCall,
    ToolCallPart,
    Usage,
    clean_text,
)
from trilane.tools import ToolArgumentsError, parse_arguments

from .blocks import MARK, plain
from .conversion import SERVER_CALL, SERVER_RESULT
from .names import ToolNames
from .parameters import AnswerForm

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["Answer"]

_log = logging.getLogger("trilane.anthropic")
_STOP: Mapping[str, StopReason] = {
    "end_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause",
    "refusal": "refusal",
}


class _Block:
    """A content block that is growing."""

    __slots__ = ("citations", "raw", "signature", "texts", "type")

    def __init__(self, type_: str, raw: dict[str, Any]) -> None:
        self.type = type_
        self.raw = raw  # as it was opened
        self.texts: list[str] = []  # text, thinking, or the JSON text of an input
        self.signature = ""
        self.citations: list[dict[str, Any]] = []

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Answer:
    """Takes events and gives deltas.

    Attributes:
        stop: Why the model stopped, in the API's words; empty until it says so.
        is_complete: The last event has come.
        model: The model that answers, as the API names it.
        message_id: The API's id of the message.
    """

    def __init__(self, names: ToolNames, form: AnswerForm) -> None:
        self.stop = ""
        self.is_complete = False
        self.model = ""
        self.message_id = ""
        self._names = names
        self._form = form
        self._blocks: dict[int, _Block] = {}
        self._tokens: dict[str, int] = {}
        self._stop_details: JsonValue = None
        self._stop_sequence = ""
        self._container: JsonValue = None

    def take(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """The deltas of one event."""
        match event.get("type"):
            case "content_block_delta":
                return self._delta(event.get("index", 0), event.get("delta") or {})
            case "content_block_start":
                return self._start(event.get("index", 0), event.get("content_block") or {})
            case "content_block_stop":
                return self._end(event.get("index", 0))
            case "message_start":
                message = event.get("message") or {}
                self.model, self.message_id = str(message.get("model") or ""), str(message.get("id") or "")
                self._count(message.get("usage"))
            case "message_delta":
                self._message_delta(event)
            case "message_stop":
                self.is_complete = True
            case "ping":
                pass
            case other:
                _log.debug("skipped an event of type %r", other)
        return iter(())

    # ---- events ------------------------------------------------------------------------------------------------------

    def _start(self, index: int, raw: dict[str, Any]) -> Iterator[Delta]:
        block = self._blocks[index] = _Block(str(raw.get("type", "")), raw)
        match block.type:
            case "text":
                yield from self._grow(index, block, str(raw.get("text") or ""))
            case "thinking":
                yield from self._grow(index, block, str(raw.get("thinking") or ""))
                yield from self._sign(index, block, str(raw.get("signature") or ""))
            case "redacted_thinking":
                block.signature = str(raw.get("data") or "")
                extra: JsonValue = {"signature": block.signature, MARK: {"redacted": True}}
                yield Delta(kind="reasoning", index=index, extra=extra)
            case "tool_use" if not self._is_answer(block):
                name = self._names.received(str(raw.get("name") or ""))
                yield Delta(kind="arguments", index=index, call_id=str(raw.get("id") or ""), name=name)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is None:
            return
        match delta.get("type"):
            case "text_delta":
                yield from self._grow(index, block, delta.get("text") or "")
            case "thinking_delta":
                yield from self._grow(index, block, delta.get("thinking") or "")
            case "input_json_delta":
                yield from self._grow(index, block, delta.get("partial_json") or "")
            case "signature_delta":
                yield from self._sign(index, block, delta.get("signature") or "")
            case "citations_delta":
                block.citations.append(plain(delta.get("citation") or {}))
            case other:
                _log.debug("skipped a delta of type %r", other)

    def _grow(self, index: int, block: _Block, text: str) -> Iterator[Delta]:
        if not text:
            return
        block.texts.append(text)
        if block.type == "text":
            if not (self._form.is_wrapped and not self._form.tool):
                yield Delta(text=text, index=index)
        elif block.type == "thinking":
            # The mark tells later that the reasoning is this provider's, even if it was interrupted.
            yield Delta(kind="reasoning", text=text, index=index, extra={MARK: {}} if len(block.texts) == 1 else None)
        elif block.type == "tool_use":
            if not self._is_answer(block):
                yield Delta(kind="arguments", text=text, index=index)
            elif not self._form.is_wrapped:
                yield Delta(text=text, index=index)

    def _sign(self, index: int, block: _Block, signature: str) -> Iterator[Delta]:
        if signature:
            block.signature += signature
            yield Delta(kind="reasoning", index=index, extra={"signature": block.signature, MARK: {}})

    def _end(self, index: int) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is None:
            return
        given = block.raw.get("input")
        if block.type == "tool_use" and given and not block.texts:
            # Some compatible servers send the whole input when the block is opened.
            yield from self._grow(index, block, json.dumps(given, ensure_ascii=False))
        if self._form.is_wrapped and (self._is_answer(block) or (block.type == "text" and not self._form.tool)):
            yield Delta(text=self._unwrapped(block), index=index)

    def _message_delta(self, event: Mapping[str, Any]) -> None:
        self._count(event.get("usage"))
        delta = event.get("delta") or {}
        self.stop = delta.get("stop_reason") or self.stop
        self._stop_sequence = delta.get("stop_sequence") or ""
        self._stop_details = plain(delta.get("stop_details"))
        self._container = plain(delta.get("container"))

    def _count(self, usage: Any) -> None:
        """Numbers are sums so far, so a later one replaces an earlier one."""
        if not isinstance(usage, Mapping):
            return
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            if isinstance(usage.get(name), int):
                self._tokens[name] = usage[name]
        details = usage.get("output_tokens_details")
        if isinstance(details, Mapping) and isinstance(details.get("thinking_tokens"), int):
            self._tokens["thinking_tokens"] = details["thinking_tokens"]

    # ---- the message -------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        """What was used so far; input tokens with those read from and written to the cache."""
        got = self._tokens.get
        read, written = got("cache_read_input_tokens", 0), got("cache_creation_input_tokens", 0)
        return Usage(
            input_tokens=got("input_tokens", 0) + read + written,
            output_tokens=got("output_tokens", 0),
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=got("thinking_tokens", 0),
        )

    @property
    def stop_reason(self) -> StopReason:
        """Why the model stopped."""
        reason = _STOP.get(self.stop)
        if reason is None:
            _log.debug("unknown stop reason %r", self.stop)
            reason = "tool_calls" if self._has_calls() else "end"
        return "end" if reason == "tool_calls" and self._form.tool and not self._has_calls() else reason

    def parts(self) -> tuple[AssistantPart, ...]:
        """The parts of the message."""
        parts: list[AssistantPart] = []
        for index in sorted(self._blocks):
            self._add_part(self._blocks[index], parts)
        if self.stop_reason == "refusal" and not any(part.kind == "text" for part in parts):
            why = self._stop_details.get("explanation") if isinstance(self._stop_details, dict) else None
            if isinstance(why, str) and why:
                parts.append(TextPart(text=clean_text(why)))
        return tuple(parts)

    def extra(self) -> dict[str, JsonValue]:
        """What else the API said."""
        found: dict[str, JsonValue] = {
            "stop_reason": self.stop,
            "message_id": self.message_id,
            "stop_sequence": self._stop_sequence,
            "stop_details": self._stop_details,
            "container": self._container,
        }
        return {name: value for name, value in found.items() if value}

    def _add_part(self, block: _Block, parts: list[AssistantPart]) -> None:
        match block.type:
            case "text":
                text = self._unwrapped(block) if self._form.is_wrapped and not self._form.tool else block.text
                if text:
                    parts.append(TextPart(text=clean_text(text)))
                parts += [_citation(raw) for raw in block.citations]
            case "thinking":
                # Not cleaned: the signature is over the text as it came.
                if block.texts or block.signature:
                    parts.append(ReasoningPart(text=block.text, signature=block.signature, extra={MARK: {}}))
            case "redacted_thinking":
                parts.append(ReasoningPart(text="", signature=block.signature, extra={MARK: {"redacted": True}}))
            case "tool_use" if self._is_answer(block):
                parts.append(TextPart(text=clean_text(self._unwrapped(block) if self._form.is_wrapped else block.text)))
            case "tool_use":
                parts.append(ToolCallPart(call=self._call(block)))
            case kind if kind.endswith(SERVER_CALL):
                parts.append(_server_call(block))
            case kind if kind.endswith(SERVER_RESULT):
                _add_server_result(block, parts)
            case other:
                _log.debug("skipped a block of type %r", other)

    def _call(self, block: _Block) -> ToolCall:
        raw = block.text
        call = ToolCall(
            id=str(block.raw.get("id") or ""), name=self._names.received(str(block.raw.get("name") or "")), raw=raw
        )
        try:
            return call.replace(arguments=parse_arguments(raw))
        except ToolArgumentsError:
            return call

    def _is_answer(self, block: _Block) -> bool:
        return bool(self._form.tool) and block.type == "tool_use" and block.raw.get("name") == self._form.tool

    def _has_calls(self) -> bool:
        return any(block.type == "tool_use" and not self._is_answer(block) for block in self._blocks.values())

    def _unwrapped(self, block: _Block) -> str:
        """The member `value`; what the model wrote if there is none."""
        text = block.text
        try:
            return json.dumps(json.loads(text)["value"], ensure_ascii=False)
        except (ValueError, KeyError, TypeError, RecursionError):
            return text


def _citation(raw: dict[str, Any]) -> CitationPart:
    return CitationPart(
        text=clean_text(str(raw.get("cited_text") or "")),
        title=clean_text(str(raw.get("title") or raw.get("document_title") or "")),
        source=clean_text(str(raw.get("url") or raw.get("source") or "")),
        extra={MARK: raw},
    )


def _server_call(block: _Block) -> ServerToolPart:
    given = block.raw.get("input")
    if block.texts:
        try:
            given = json.loads(block.text)
        except (ValueError, RecursionError):
            given = {"INVALID_JSON": block.text}
    raw = plain({**block.raw, "input": given})
    return ServerToolPart(
        id=str(raw.get("id") or ""),
        name=str(raw.get("name") or ""),
        input=raw["input"],
        extra={MARK: {"blocks": [raw]}},
    )


def _add_server_result(block: _Block, parts: list[AssistantPart]) -> None:
    """Right after its call, the result joins it; else it is a part of its own, at its place."""
    raw = plain(block.raw)
    call_id = str(raw.get("tool_use_id") or "")
    last = parts[-1] if parts else None
    if isinstance(last, ServerToolPart) and last.id == call_id and last.output is None and isinstance(last.extra, dict):
        calls: Any = last.extra[MARK]
        parts[-1] = last.replace(output=raw.get("content"), extra={MARK: {"blocks": [*calls["blocks"], raw]}})
        return
    name = block.type.removesuffix(SERVER_RESULT)
    parts.append(ServerToolPart(id=call_id, name=name, output=raw.get("content"), extra={MARK: {"blocks": [raw]}}))
