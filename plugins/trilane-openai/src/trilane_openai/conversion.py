"""A conversation of Trilane as messages of a Chat Completions request.

Whatever the core can have in a history becomes a valid request; what the format cannot express is left out and named.
Parameters other than messages are in `parameters.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trilane.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    Message,
    ReasoningPart,
    ServerToolPart,
    TextPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)

from .names import CallIds, ToolNames
from .presets import Preset

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["MARK", "NOTHING_SAID", "NO_OUTPUT", "Conversation", "convert"]

#: Marks in `extra` what this provider made, so that it can tell its own reasoning from that of others.
MARK = "openai"
NO_OUTPUT = "(no output)"
NOTHING_SAID = "(no text)"
_LONGEST_NOTE = 2000
_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


class Conversation:
    """The messages of a request, and what could not be expressed in them.

    Attributes:
        messages: As Chat Completions wants them.
        left_out: One short sentence for each kind of thing that was left out or rewritten, in order of appearance.
    """

    __slots__ = ("_ids", "_names", "_preset", "_system", "left_out", "messages")

    def __init__(self, preset: Preset, names: ToolNames) -> None:
        self._preset = preset
        self._names = names
        self._ids = CallIds(preset.ids)
        self._system: list[str] = []
        self.messages: list[dict[str, Any]] = []
        self.left_out: list[str] = []

    # ---- the parts of a request --------------------------------------------------------------------------------------

    def add_system(self, text: str) -> None:
        """Words of the host. Where the server takes them only at the beginning, they are gathered there."""
        if not text.strip():
            return
        if self._preset.system == "first" and self.messages:
            self._system.append(text)
        else:
            self._append("system", text)

    def add_user(self, message: UserMessage) -> None:
        """What the caller said: text as text, media where the server takes them, else a note in their place."""
        content: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                if part.text.strip():
                    content.append(_text(part.text))
            else:
                content.append(self._media(part))
        self._append("user", _content(content))

    def add_assistant(self, message: AssistantMessage, results: ToolMessage | None) -> None:
        """What the model said, with those of its calls that `results` answer."""
        answered = {result.call_id: result for result in results.results} if results is not None else {}
        text = "".join(self._said(part) for part in message.parts)
        calls: list[dict[str, Any]] = []
        answers: list[tuple[str, ToolResult]] = []
        for call in message.calls:
            if call.id not in answered:
                self._leave_out("tool calls without a result")
                continue
            wire_id = self._ids.sent(call.id, message.id)
            calls.append(
                {
                    "id": wire_id,
                    "type": "function",
                    "function": {"name": self._names.sent(call.name), "arguments": _json(call.arguments)},
                }
            )
            answers.append((wire_id, answered.pop(call.id)))
        if answered:
            self._leave_out("tool results without a call")
        sent: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            sent["tool_calls"] = calls
        self._add_reasoning(message, sent)
        if calls:
            self.messages.append(sent)
            self._add_results(answers)
        elif text.strip():
            self._append("assistant", text, sent)

    def add_context(self, texts: Sequence[str]) -> None:
        """Texts of this request only: last, so that everything before them can be cached."""
        for text in texts:
            if text.strip():
                self._append("user" if self._preset.system == "first" else "system", text)

    def finish(self) -> None:
        """Put the system messages that had to move to the front there."""
        if not self._system:
            return
        texts = self._system
        if self.messages and self.messages[0]["role"] == "system":
            texts = [self.messages.pop(0)["content"], *texts]
        self.messages.insert(0, {"role": "system", "content": "\n\n".join(texts)})

    # ---- pieces ------------------------------------------------------------------------------------------------------

    def _append(self, role: str, content: Any, message: dict[str, Any] | None = None) -> None:
        """Add a message, or join it to the one before it if that is of the same role."""
        if not content:
            return
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != role or "tool_calls" in last:
            self.messages.append(message or {"role": role, "content": content})
        elif isinstance(last["content"], str) and isinstance(content, str):
            last["content"] = f"{last['content']}\n\n{content}"
        else:
            last["content"] = [*_as_list(last["content"]), *_as_list(content)]

    def _add_results(self, answers: Sequence[tuple[str, ToolResult]]) -> None:
        media: list[dict[str, Any]] = []
        for wire_id, result in answers:
            pieces = (result.content,) if isinstance(result.content, str) else result.content
            texts: list[str] = []
            for piece in pieces:
                if isinstance(piece, str):
                    texts.append(piece)
                    continue
                # Results are text in this format, so media follow in a message of their own.
                part = self._media(piece)
                if part["type"] == "text":
                    texts.append(part["text"])
                else:
                    media += [_text(f"The {piece.kind} that tool call {wire_id} returned:"), part]
                    texts.append(f"[{piece.kind}: see the next message]")
            text = "\n".join(text for text in texts if text.strip())
            self.messages.append({"role": "tool", "tool_call_id": wire_id, "content": text or NO_OUTPUT})
        if media:
            self._append("user", media)

    def _said(self, part: Any) -> str:
        """What a part of an assistant message is as text. Calls and reasoning are sent otherwise."""
        if isinstance(part, TextPart):
            return part.text
        if isinstance(part, ServerToolPart):
            self._leave_out(f"the form of tools that a provider ran ({part.name}); they are sent as text")
            note = f"\n[{part.name} was run by the provider. Input: {_json(part.input)} Output: {_json(part.output)}"
            return note[:_LONGEST_NOTE] + "]\n"
        if part.kind == "citation":
            self._leave_out("the form of citations; they are sent as text")
            words = ", ".join(word for word in (part.title, part.source) if word)
            return f" [source: {words}]" if words else ""
        if isinstance(part, ImagePart | AudioPart | FilePart):
            self._leave_out(f"{part.kind} parts of the model's own messages")
            return f"\n[{part.kind} left out]\n"
        return ""

    def _add_reasoning(self, message: AssistantMessage, sent: dict[str, Any]) -> None:
        parts = [part for part in message.parts if isinstance(part, ReasoningPart)]
        own = [part for part in parts if isinstance(part.extra, Mapping) and MARK in part.extra]
        if any(part not in own and (part.signature or part.extra is not None) for part in parts):
            self._leave_out("reasoning of another provider")
        field = self._preset.reasoning
        if field == "reasoning_content" and "tool_calls" in sent:
            # Such a server refuses messages with calls that lack the field, even if there was no reasoning.
            sent[field] = "".join(part.text for part in own)
        elif field == "reasoning_details":
            details = [detail for part in own for detail in _details(part)]
            if details:
                sent[field] = details

    def _media(self, part: MediaPart) -> dict[str, Any]:
        """A medium in this format, or a note in its place."""
        if part.kind in self._preset.media:
            made = _FORMS[part.kind](part)
            if made is not None:
                return made
        text = _readable(part)
        if text is not None:
            return _text(text)
        self._leave_out(f"{part.kind} of type {part.media_type}{' given by URL' if part.url else ''}")
        return _text(f"[{part.kind} left out: this model does not take it]")

    def _leave_out(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)


def convert(
    instructions: str, messages: Sequence[Message], context: Sequence[str], preset: Preset, names: ToolNames
) -> Conversation:
    """The messages of a request."""
    conversation = Conversation(preset, names)
    conversation.add_system(instructions)
    for position, message in enumerate(messages):
        if message.kind == "system":
            conversation.add_system(message.text)
        elif message.kind == "user":
            conversation.add_user(message)
        elif message.kind == "assistant":
            following = messages[position + 1] if position + 1 < len(messages) else None
            conversation.add_assistant(message, following if isinstance(following, ToolMessage) else None)
        elif position == 0 or messages[position - 1].kind != "assistant":
            conversation._leave_out("tool results without a call")
    conversation.add_context(context)
    conversation.finish()
    return conversation


# ---- the form of parts -----------------------------------------------------------------------------------------------


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text alone as a string, which every server takes."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _as_list(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_text(content)] if isinstance(content, str) else content


def _data_url(part: MediaPart) -> str:
    return f"data:{part.media_type};base64,{part.data}"


def _image(part: MediaPart) -> dict[str, Any] | None:
    if not (part.data or part.url):
        return None
    image: dict[str, Any] = {"url": _data_url(part) if part.data else part.url}
    if isinstance(part.extra, Mapping) and isinstance(part.extra.get("detail"), str):
        image["detail"] = part.extra["detail"]
    return {"type": "image_url", "image_url": image}


def _audio(part: MediaPart) -> dict[str, Any] | None:
    form = _AUDIO_FORMATS.get(part.media_type)
    if form is None or not part.data:
        return None
    return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}


def _file(part: MediaPart) -> dict[str, Any] | None:
    if part.media_type != "application/pdf" or not part.data:
        return None
    name = part.name if isinstance(part, FilePart) else ""
    return {"type": "file", "file": {"filename": name or "document.pdf", "file_data": _data_url(part)}}


_FORMS = {"image": _image, "audio": _audio, "file": _file}


def _readable(part: MediaPart) -> str | None:
    """A document that is text, as text."""
    if not isinstance(part, FilePart) or not part.data:
        return None
    if not (part.media_type.startswith("text/") or part.media_type in ("application/json", "application/xml")):
        return None
    import base64

    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except ValueError:
        return None
    return f"[file {part.name or 'without a name'}]\n{text}\n[end of file]"


def _details(part: ReasoningPart) -> list[JsonValue]:
    mark = part.extra.get(MARK) if isinstance(part.extra, Mapping) else None
    details = mark.get("details") if isinstance(mark, Mapping) else None
    return details if isinstance(details, list) else []


def _json(value: Any) -> str:
    """JSON that every parser takes: what is no JSON number becomes null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value
