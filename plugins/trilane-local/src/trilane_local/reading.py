"""The engine's pieces as deltas. With tools the text is JSON, from which calls and the answer are taken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trilane.messages import Delta, StopReason, Usage, new_id

__all__ = ["Answer", "EngineError"]

_ANSWER_BEGINS = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class EngineError(Exception):
    """The engine answers with an error.

    Attributes:
        error: As it gives it.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", error)))
        self.error = error


class Answer:
    """Takes pieces and gives deltas.

    Attributes:
        usage: What was used.
    """

    def __init__(self, *, has_tools: bool) -> None:
        self.usage = Usage()
        self._has_tools = has_tools
        self._finish = ""
        self._text = ""
        self._string: _JsonString | None = None
        self._called = False

    def take(self, piece: Mapping[str, Any]) -> Iterator[Delta]:
        """The deltas of one piece.

        Raises:
            EngineError: the piece is an error.
        """
        if "error" in piece:
            error = piece["error"]
            raise EngineError(error if isinstance(error, Mapping) else {"message": str(error)})
        usage = piece.get("usage")
        if isinstance(usage, Mapping):
            details = usage.get("prompt_tokens_details") or {}
            self.usage = Usage(
                input_tokens=int(usage.get("prompt_tokens") or 0),
                output_tokens=int(usage.get("completion_tokens") or 0),
                cache_read_tokens=int(details.get("cached_tokens") or 0),
            )
        for choice in piece.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta") or {}
            if delta.get("reasoning_content"):
                yield Delta(kind="reasoning", text=delta["reasoning_content"])
            if delta.get("content"):
                yield from self._said(delta["content"])

    def finish(self) -> Iterator[Delta]:
        """The rest, when the last piece has come."""
        if not self._has_tools or self._string is not None:
            return
        try:
            found = json.loads(self._text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("tool"), str):
            yield from self._call(found["tool"], json.dumps(found.get("arguments") or {}, ensure_ascii=False))
        elif isinstance(found, dict) and "answer" in found:
            yield Delta(text=json.dumps(found["answer"], ensure_ascii=False), index=1)
        elif cut := re.match(r'\s*\{\s*"tool"\s*:\s*"([^"]*)"\s*,\s*"arguments"\s*:\s*', self._text):
            yield from self._call(cut[1], self._text[cut.end() :])
        elif self._text:
            yield Delta(text=self._text, index=1)

    @property
    def stop_reason(self) -> StopReason:
        """Why the model stopped."""
        if self._finish == "length":
            return "length"
        return "tool_calls" if self._called else "end"

    def _said(self, text: str) -> Iterator[Delta]:
        if not self._has_tools:
            yield Delta(text=text, index=1)
            return
        self._text += text
        if self._string is None:
            begun = _ANSWER_BEGINS.match(self._text)
            if begun is None:
                return
            self._string = _JsonString()
            text = self._text[begun.end() :]
        if shown := self._string.take(text):
            yield Delta(text=shown, index=1)

    def _call(self, name: str, arguments: str) -> Iterator[Delta]:
        self._called = True
        yield Delta(kind="arguments", index=2, call_id=f"call_{new_id()}", name=name)
        yield Delta(kind="arguments", index=2, text=arguments)


class _JsonString:
    """Reads the inside of a JSON string as it grows."""

    def __init__(self) -> None:
        self._held = ""  # an escape that is not complete
        self._is_over = False

    def take(self, text: str) -> str:
        """What more is known of the string."""
        text, self._held = self._held + text, ""
        out: list[str] = []
        at = 0
        while at < len(text) and not self._is_over:
            letter = text[at]
            if letter == '"':
                self._is_over = True
            elif letter != "\\":
                out.append(letter)
                at += 1
            else:
                length = 6 if text[at + 1 : at + 2] == "u" else 2
                if at + length > len(text):
                    self._held = text[at:]
                    break
                escape = text[at + 1]
                out.append(chr(int(text[at + 2 : at + 6], 16)) if escape == "u" else _ESCAPES.get(escape, escape))
                at += length
        return "".join(out)
