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

    def redact(self, value: Any) -> Any:
        """The same without secrets: text, parts of messages, JSON."""
        if isinstance(value, str):
            return self._pattern.sub("[redacted]", value)
        if isinstance(value, TextPart | ReasoningPart):
            return value.replace(text=self.redact(value.text))
        if isinstance(value, dict):
            return {self.redact(key): self.redact(item) for key, item in value.items()}
        return type(value)(self.redact(item) for item in value) if isinstance(value, list | tuple) else value

    @hookimpl
    def on_message(self, run: RunContext[object], message: UserMessage) -> UserMessage:
        return message.replace(parts=self.redact(message.parts))

    @hookimpl(required=True)
    def after_tool(self, run: RunContext[object], result: ToolResult) -> ToolResult:
        """`data` is for programs, and may hold more than `content` says."""
        return result.replace(content=self.redact(result.content), data=self.redact(result.data))

    @hookimpl(required=True)
    def after_model(self, run: RunContext[object], response: ModelResponse) -> ModelResponse:
        return response.replace(parts=self.redact(tuple(response.parts or ())))

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
