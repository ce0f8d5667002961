"""What a small model is asked: a conversation in plain roles, and a schema for the answer where there is one.

Chat templates of small models know no tools, so tools are described in words, and the model answers with one JSON
object, to which a grammar holds it: `{"tool": NAME, "arguments": {...}}` or `{"answer": TEXT}`. `reading.py` reads it
back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trilane.messages import AssistantMessage, Message, ToolMessage, UserMessage, clean_text
from trilane.models import ModelRequest, ToolSpec

__all__ = ["Prompt", "prompt_of"]

_CONTINUE = "(continue)"


@dataclass(slots=True)
class Prompt:
    """A request for the engine.

    Attributes:
        messages: In OpenAI's chat format, texts only.
        schema: JSON Schema of the answer, None for free text.
        has_tools: The answer is a call or a text, as JSON.
        left_out: What could not be expressed, one short sentence for each kind of thing.
    """

    messages: list[dict[str, str]] = field(default_factory=list)
    schema: dict[str, Any] | None = None
    has_tools: bool = False
    left_out: list[str] = field(default_factory=list)

    def add(self, role: str, text: str) -> None:
        """Add to the conversation; neighbours of one role are joined, as most chat templates want."""
        text = clean_text(text)
        if not text.strip():
            return
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += f"\n\n{text}"
        else:
            self.messages.append({"role": role, "content": text})

    def report(self, what: str) -> None:
        """Something could not be expressed."""
        if what not in self.left_out:
            self.left_out.append(what)


def prompt_of(request: ModelRequest) -> Prompt:
    """What `request` is for the engine."""
    prompt = Prompt()
    tools = _offered(request)
    prompt.add("system", request.instructions)
    if tools:
        prompt.has_tools = True
        prompt.schema = _call_schema(request, tools)
        prompt.add("system", _describe(tools, may_answer="answer" in json.dumps(prompt.schema.get("anyOf", []))))
    elif request.output_schema is not None:
        prompt.schema = _plain(request.output_schema)
    if request.output_schema is not None:
        prompt.add("system", f"Your answer is JSON that fits this JSON Schema: {_json(request.output_schema)}")
    names: dict[str, str] = {}
    for message in request.messages:
        _add(prompt, message, names)
    for text in request.context:
        prompt.add("user", text)
    if not prompt.messages or prompt.messages[-1]["role"] != "user":
        prompt.add("user", _CONTINUE)
    return prompt


# ---- tools -----------------------------------------------------------------------------------------------------------


def _offered(request: ModelRequest) -> list[ToolSpec]:
    choice = request.settings.tool_choice
    if choice == "none":
        return []
    if request.turn == 1 and choice not in (None, "auto", "required"):
        return [tool for tool in request.tools if tool.name == choice] or list(request.tools)
    return list(request.tools)


def _is_forced(request: ModelRequest) -> bool:
    return request.turn == 1 and request.settings.tool_choice not in (None, "auto", "none")


def _describe(tools: Sequence[ToolSpec], *, may_answer: bool) -> str:
    lines = ["You can use these tools:"]
    lines += [f"- {tool.name}: {tool.description} Arguments: {_json(tool.parameters)}" for tool in tools]
    lines.append('To use a tool, answer {"tool": NAME, "arguments": {...}}. You are then told its result.')
    if may_answer:
        lines.append('When you know what to say to the user, answer {"answer": TEXT}.')
    return "\n".join(lines)


def _call_schema(request: ModelRequest, tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """One object: a call of one of the tools, or the answer."""
    definitions: dict[str, Any] = {}
    choices: list[dict[str, Any]] = []
    for number, tool in enumerate(tools):
        parameters = _moved(_plain(tool.parameters) or {}, f"tool{number}_", definitions)
        if parameters.get("type") != "object":
            parameters = {"type": "object", "properties": {}}
        choices.append(_object(tool={"const": tool.name}, arguments=parameters))
    if not _is_forced(request):
        answer: dict[str, Any] = {"type": "string"}
        if request.output_schema is not None:
            answer = _moved(_plain(request.output_schema), "answer_", definitions)
        choices.append(_object(answer=answer))
    schema: dict[str, Any] = choices[0] if len(choices) == 1 else {"anyOf": choices}
    return {**schema, "$defs": definitions} if definitions else schema


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _moved(schema: dict[str, Any], prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema for use inside another one: its definitions go to the top, under names of their own."""
    own = schema.pop("$defs", None)
    if not isinstance(own, dict):
        return schema

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: f"#/$defs/{prefix}{item.removeprefix('#/$defs/')}"
                if key == "$ref" and isinstance(item, str) and item.startswith("#/$defs/")
                else renamed(item)
                for key, item in value.items()
            }
        return [renamed(item) for item in value] if isinstance(value, list) else value

    definitions.update({f"{prefix}{name}": renamed(item) for name, item in own.items()})
    moved: dict[str, Any] = renamed(schema)
    return moved


# ---- the conversation ------------------------------------------------------------------------------------------------


def _add(prompt: Prompt, message: Message, names: dict[str, str]) -> None:
    if message.kind == "system":
        in_front = all(one["role"] == "system" for one in prompt.messages)
        prompt.add("system" if in_front else "user", message.text)
    elif message.kind == "user":
        _add_user(prompt, message)
    elif message.kind == "assistant":
        _add_assistant(prompt, message, names)
    else:
        _add_results(prompt, message, names)


def _add_user(prompt: Prompt, message: UserMessage) -> None:
    for part in message.parts:
        if part.kind == "text":
            prompt.add("user", part.text)
        else:
            prompt.report(f"{part.kind}: the model reads text only")
            prompt.add("user", f"[{part.kind} of type {part.media_type}, which you cannot see]")


def _add_assistant(prompt: Prompt, message: AssistantMessage, names: dict[str, str]) -> None:
    for part in message.parts:
        if part.kind == "text":
            prompt.add("assistant", part.text)
        elif part.kind == "tool_call":
            names[part.call.id] = part.call.name
            arguments = part.call.arguments or part.call.raw or {}
            prompt.add("assistant", _json({"tool": part.call.name, "arguments": arguments}))
        elif part.kind == "server_tool":
            prompt.report("tools that a provider ran, which are told as text")
            prompt.add("assistant", f"[{part.name}: {_json(part.input)} gave {_json(part.output)}]")
        elif part.kind == "citation":
            words = " ".join(word for word in (part.title, part.source, part.text) if word.strip())
            prompt.add("assistant", f"[source: {words}]" if words else "")
        else:
            prompt.report(f"{part.kind} in a message of the model")


def _add_results(prompt: Prompt, message: ToolMessage, names: Mapping[str, str]) -> None:
    for result in message.results:
        pieces = (result.content,) if isinstance(result.content, str) else result.content
        texts = [piece for piece in pieces if isinstance(piece, str)]
        if len(texts) < len(pieces):
            prompt.report("media in results: the model reads text only")
            texts.append("[something you cannot see]")
        said = "\n".join(text for text in texts if text.strip()) or "(no output)"
        name = names.get(result.call_id, "a tool")
        how = "Result" if result.outcome == "ok" else "Error"
        prompt.add("user", f"{how} of {name}: {said}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, default=str)
