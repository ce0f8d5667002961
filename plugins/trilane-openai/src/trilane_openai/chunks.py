"""The chunks of a streamed answer as deltas, whatever the server leaves out, repeats or adds.

Sending is in `model.py`; what a chunk is made of, in OpenAI's reference of Chat Completions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from trilane.messages import Delta, StopReason, Usage, new_id

from .conversion import MARK
from .names import ToolNames

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["Answer", "StreamFailed"]

_STOP: Mapping[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "content_filter",
}
_FAILED = ("error", "insufficient_system_resource")


class StreamFailed(Exception):
    """The server says within the stream that it failed.

    Attributes:
        error: Its words: a mapping, or a text.
    """

    def __init__(self, error: object) -> None:
        super().__init__("the server reported an error in the stream")
        self.error = error


class _Call:
    __slots__ = ("call_id", "held", "index", "is_open", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.call_id = ""
        self.name = ""
        self.held = ""  # arguments that came before the name
        self.is_open = False


class Answer:
    """Takes chunks and gives deltas; remembers what else they say.

    Attributes:
        usage: The last that was said: servers repeat it, and what they repeat is the sum so far.
        model: Name of the model that answers.
        response_id: The server's id of the answer.
        finish: The server's word for why it stopped; empty if it has not said.
    """

    __slots__ = (
        "_by_index",
        "_calls",
        "_count",
        "_details",
        "_names",
        "_open",
        "_refused",
        "_stopped_by",
        "finish",
        "model",
        "response_id",
        "usage",
    )

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._count = 0  # parts so far
        self._open: tuple[Literal["text", "reasoning"], int] | None = None
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._details: list[JsonValue] = []
        self._refused = False
        self._stopped_by = ""
        self.usage = Usage()
        self.model = ""
        self.response_id = ""
        self.finish = ""

    @property
    def stop_reason(self) -> StopReason:
        """Why the model stopped, in Trilane's words."""
        if self._refused:
            return "refusal"
        reason = _STOP.get(self.finish, "end")
        if reason == "end":
            # Some servers say "stop" although they call.
            return "tool_calls" if self._calls else "stop_sequence" if self._stopped_by else "end"
        return reason

    def take(self, chunk: object) -> Iterator[Delta]:
        """The deltas of one chunk.

        Raises:
            StreamFailed: the chunk is an error.
        """
        if not isinstance(chunk, Mapping):
            return
        if chunk.get("error"):
            raise StreamFailed(chunk["error"])
        self._note(chunk)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            if not isinstance(choice, Mapping) or choice.get("index", 0) not in (0, None):
                continue
            delta = choice.get("delta")
            if isinstance(delta, Mapping):
                yield from self._delta(delta)
            self._finish(choice)

    def end(self) -> Iterator[Delta]:
        """What is still held when the stream has ended."""
        yield from self._close_reasoning()
        for call in self._calls:
            if not call.is_open:
                yield from self._opened(call)

    # ---- what a chunk says besides its deltas ------------------------------------------------------------------------

    def _note(self, chunk: Mapping[str, Any]) -> None:
        if isinstance(chunk.get("model"), str):
            self.model = chunk["model"] or self.model
        if isinstance(chunk.get("id"), str):
            self.response_id = chunk["id"] or self.response_id
        usage = chunk.get("usage")
        if not usage and isinstance(chunk.get("x_groq"), Mapping):
            usage = chunk["x_groq"].get("usage")
        if isinstance(usage, Mapping) and usage:
            self.usage = _usage(usage)

    def _finish(self, choice: Mapping[str, Any]) -> None:
        finish = choice.get("finish_reason")
        if not finish:
            return
        if finish in _FAILED:
            raise StreamFailed(choice.get("error") or f"the server stopped with {finish!r}")
        self.finish = str(finish)
        # vLLM names the stop text here; a number is the end-of-text token.
        if isinstance(choice.get("stop_reason"), str):
            self._stopped_by = choice["stop_reason"]

    # ---- deltas ------------------------------------------------------------------------------------------------------

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[Delta]:
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self._details += [_json_value(detail) for detail in details]
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            yield from self._say("reasoning", thought)
        content = delta.get("content")
        if isinstance(content, str):
            if content:
                yield from self._say("text", content)
        elif isinstance(content, list):
            yield from self._list(content)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            yield from self._say("text", refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for piece in calls:
                if isinstance(piece, Mapping):
                    yield from self._call(piece)

    def _list(self, content: list[Any]) -> Iterator[Delta]:
        """Content in parts, as Mistral sends it when the model thinks."""
        for part in content:
            if not isinstance(part, Mapping):
                continue
            if part.get("type") == "thinking":
                inner = part.get("thinking")
                pieces = inner if isinstance(inner, list) else [{"text": inner}]
                for piece in pieces:
                    if isinstance(piece, Mapping) and isinstance(piece.get("text"), str) and piece["text"]:
                        yield from self._say("reasoning", piece["text"])
            elif part.get("type") == "text" and isinstance(part.get("text"), str) and part["text"]:
                yield from self._say("text", part["text"])

    def _say(self, kind: Literal["text", "reasoning"], text: str) -> Iterator[Delta]:
        if self._open is not None and self._open[0] == kind:
            yield Delta(kind=kind, text=text, index=self._open[1])
            return
        if kind == "text":
            yield from self._close_reasoning()
        index = self._new_part()
        self._open = (kind, index)
        # The mark tells this provider later that the reasoning is its own.
        yield Delta(kind=kind, text=text, index=index, extra={MARK: {}} if kind == "reasoning" else None)

    def _close_reasoning(self) -> Iterator[Delta]:
        """Hand over what the server wants back with the reasoning, while its part is still the open one."""
        details, self._details = self._details, []
        if not details:
            return
        is_open = self._open is not None and self._open[0] == "reasoning"
        index = self._open[1] if self._open is not None and is_open else self._new_part()
        self._open = ("reasoning", index)
        # With a signature the part is kept even if it has no text: it may hold encrypted reasoning only.
        yield Delta(kind="reasoning", index=index, extra={MARK: {"details": details}, "signature": MARK})

    def _new_part(self) -> int:
        self._count += 1
        return self._count - 1

    def _call(self, piece: Mapping[str, Any]) -> Iterator[Delta]:
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        call_id = piece["id"] if isinstance(piece.get("id"), str) else ""
        name = function["name"] if isinstance(function.get("name"), str) else ""
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call = self._find(piece.get("index"), call_id, name)
        if call is None:
            yield from self._close_reasoning()
            self._open = None
            call = self._start(piece.get("index"))
        call.call_id = call.call_id or call_id
        if call.is_open:
            if text:
                yield Delta(kind="arguments", text=text, index=call.index)
            return
        call.name = call.name or name
        call.held += text
        if call.name:
            yield from self._opened(call)

    def _find(self, index: object, call_id: str, name: str) -> _Call | None:
        """The call that a piece belongs to, None if it starts one."""
        if isinstance(index, int):
            found = self._by_index.get(index)
            # Servers that number every call 0 tell them apart by their ids.
            return None if found is not None and call_id and found.call_id and call_id != found.call_id else found
        if call_id:
            return next((call for call in self._calls if call.call_id == call_id), None)
        last = self._calls[-1] if self._calls else None
        return None if last is not None and name and last.name else last

    def _start(self, index: object) -> _Call:
        call = _Call(self._new_part())
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _opened(self, call: _Call) -> Iterator[Delta]:
        call.is_open = True
        call.call_id = call.call_id or f"call_{new_id()}"
        name = self._names.received(call.name)
        yield Delta(kind="arguments", index=call.index, call_id=call.call_id, name=name)
        if call.held:
            yield Delta(kind="arguments", text=call.held, index=call.index)
            call.held = ""


def _usage(usage: Mapping[str, Any]) -> Usage:
    prompt = usage.get("prompt_tokens_details")
    prompt = prompt if isinstance(prompt, Mapping) else {}
    completion = usage.get("completion_tokens_details")
    completion = completion if isinstance(completion, Mapping) else {}
    cost = usage.get("cost")
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cache_read_tokens=_count(prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))),
        cache_write_tokens=_count(prompt.get("cache_write_tokens")),
        reasoning_tokens=_count(completion.get("reasoning_tokens")),
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _json_value(value: Any) -> JsonValue:
    result: JsonValue = value
    return result
