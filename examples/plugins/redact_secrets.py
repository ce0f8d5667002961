"""Redact secrets: in what the user says, in tool results, in answers, and in the deltas the caller is shown."""

from __future__ import annotations

import re
from typing import Any

from trilane import Delta, ModelResponse, RunContext, TextPart, ToolResult, UserMessage, hookimpl
from trilane.messages import ReasoningPart

__all__ = ["RedactSecrets"]

#: Tokens of well-known forms, and whatever follows `password=`. None of them contains a space.
SECRETS = r"\b(?:sk|ghp|xoxb|AKIA)[-_]?[A-Za-z0-9_-]{12,}|(?<=password=)\S+"


class RedactSecrets:
    """Puts `[redacted]` in the place of secrets. `required=True`: if it fails, the value is withheld."""

    name = "redact-secrets"

    def __init__(self, pattern: str = SECRETS) -> None:
        self._pattern = re.compile(pattern)

    def redact(self, text: str) -> str:
        return self._pattern.sub("[redacted]", text)

    @hookimpl
    def on_message(self, run: RunContext[object], message: UserMessage) -> UserMessage:
        return message.replace(parts=tuple(self._part(part) for part in message.parts))

    @hookimpl(required=True)
    def after_tool(self, run: RunContext[object], result: ToolResult) -> ToolResult:
        content = result.content
        parts = self.redact(content) if isinstance(content, str) else tuple(self._part(part) for part in content)
        return result if parts == content else result.replace(content=parts, data=None)

    @hookimpl(required=True)
    def after_model(self, run: RunContext[object], response: ModelResponse) -> ModelResponse:
        return response.replace(parts=tuple(self._part(part) for part in response.parts or ()))

    @hookimpl(required=True)
    def on_delta(self, run: RunContext[object], delta: Delta, final: bool) -> list[Delta]:
        """A secret may come in pieces: a word is held back until it is complete."""
        if delta.kind == "arguments":
            return [delta.replace(text="")]  # shown whole with the call, when it is decided
        key = (self.name, delta.kind, delta.index)
        text = run.stash.pop(key, "") + delta.text
        cut = len(text) if final else max(text.rfind(" "), text.rfind("\n")) + 1
        run.stash[key] = text[cut:]
        return [delta.replace(text=self.redact(text[:cut]))] if cut else []

    def _part(self, part: Any) -> Any:
        if isinstance(part, str):
            return self.redact(part)
        return part.replace(text=self.redact(part.text)) if isinstance(part, TextPart | ReasoningPart) else part
