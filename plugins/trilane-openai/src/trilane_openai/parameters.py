"""The body of a Chat Completions request: messages, tools, form of the answer, and knobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trilane.errors import ConfigError
from trilane.messages import clean_text
from trilane.models import ModelRequest

from .conversion import NOTHING_SAID, convert
from .names import ToolNames
from .presets import Preset

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["WireRequest", "wire_request"]

#: What `ModelSettings.extra` may not set: it would change what this adapter relies on.
_OURS = ("messages", "model", "stream")
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class WireRequest:
    """A request as it is sent.

    Attributes:
        body: The JSON body.
        names: Which tool the server means.
        left_out: What could not be expressed.
    """

    __slots__ = ("body", "left_out", "names")

    def __init__(self, body: dict[str, Any], names: ToolNames, left_out: list[str]) -> None:
        self.body = body
        self.names = names
        self.left_out = left_out


def wire_request(request: ModelRequest, model: str, preset: Preset) -> WireRequest:
    """What `request` is on the wire. Equal requests give equal bytes.

    Raises:
        ConfigError: `ModelSettings.extra` sets what it may not.
    """
    names = ToolNames(tool.name for tool in request.tools)
    form, instruction = _answer_form(request.output_schema, preset)
    instructions = f"{request.instructions}\n\n{instruction}".strip() if instruction else request.instructions
    conversation = convert(instructions, request.messages, request.context, preset, names)
    if all(message["role"] == "system" for message in conversation.messages):
        conversation.messages.append({"role": "user", "content": NOTHING_SAID})
    body: dict[str, Any] = {"model": model, "messages": conversation.messages, "stream": True}
    if preset.usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": names.sent(tool.name),
                    "description": tool.description,
                    "parameters": _plain(tool.parameters or _NO_PARAMETERS),
                },
            }
            for tool in request.tools
        ]
    if form is not None:
        body["response_format"] = form
    body.update(_knobs(request, preset, names))
    for key, value in request.settings.extra.items():
        if key in _OURS:
            raise ConfigError(f"openai: ModelSettings.extra may not set {key!r}; leave it out")
        body[key] = value
    return WireRequest(_writable(body), names, conversation.left_out)


def _knobs(request: ModelRequest, preset: Preset, names: ToolNames) -> dict[str, Any]:
    settings = request.settings
    knobs: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        preset.max_tokens: settings.max_output_tokens,
        "stop": list(settings.stop) or None,
        preset.seed: settings.seed,
    }
    if settings.reasoning:
        knobs[preset.effort] = {"effort": settings.reasoning} if preset.effort == "reasoning" else settings.reasoning
    choice = settings.tool_choice
    # A forced choice that stays would make the model call for ever, so it holds for the first turn.
    if choice and request.tools and (request.turn == 1 or choice in ("auto", "none")):
        plain = choice in ("auto", "none", "required")
        knobs["tool_choice"] = choice if plain else {"type": "function", "function": {"name": names.sent(choice)}}
    return {key: value for key, value in knobs.items() if value is not None}


def _answer_form(schema: Mapping[str, JsonValue] | None, preset: Preset) -> tuple[dict[str, Any] | None, str]:
    """How the server is told the form of the answer: a field of the request, and words for the model."""
    if schema is None:
        return None, ""
    is_object = schema.get("type") == "object"
    if preset.schema == "any" or (preset.schema == "object" and is_object):
        described: dict[str, Any] = {"name": "answer", "schema": _plain(schema)}
        if preset.schema == "object" and _is_strict(schema):
            described["strict"] = True
        return {"type": "json_schema", "json_schema": described}, ""
    words = (
        "Answer with JSON that fits this JSON Schema, and nothing else:\n"
        f"{json.dumps(_plain(schema), ensure_ascii=False)}"
    )
    return ({"type": "json_object"} if preset.schema == "json" and is_object else None), words


def _is_strict(schema: object) -> bool:
    """Whether a schema is of the kind that `strict` takes: no object in it has optional or further members."""
    if isinstance(schema, list):
        return all(_is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
            return False
        required = schema.get("required")
        if set(properties) != set(required if isinstance(required, list) else ()):
            return False
        if not all(_is_strict(value) for value in properties.values()):
            return False
    return "default" not in schema and all(
        _is_strict(value) for key, value in schema.items() if key not in ("properties", "required", "enum", "const")
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _writable(body: dict[str, Any]) -> dict[str, Any]:
    """The body, with half surrogate pairs replaced if there are any: they cannot be sent as UTF-8."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        cleaned: dict[str, Any] = _clean(body)
        return cleaned
    return body


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value
