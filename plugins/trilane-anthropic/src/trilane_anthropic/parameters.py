"""The body of a Messages request: conversation, tools, cache points, thinking, form of the answer, and knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trilane.errors import ConfigError
from trilane.models import ModelRequest

from . import blocks
from .blocks import Block
from .conversion import Conversation, convert
from .names import ModelTraits, ToolNames, traits_of

if TYPE_CHECKING:
    from .settings import AnthropicSettings

__all__ = ["AnswerForm", "WireRequest", "wire_request"]

#: What `ModelSettings.extra` may not set: it would change what this adapter relies on.
_OURS = ("messages", "model", "stream", "system")
#: Tokens to think with, for models that want a number.
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_768}
_LEAST_BUDGET = 1_024
_ANSWER_TOOL = "answer"
_WRAPPED = "value"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How the answer of a request with an output schema arrives.

    Attributes:
        tool: The tool whose arguments are the answer; empty if the answer is text.
        is_wrapped: The answer is the member `value` of an object, because its schema is not that of an object.
    """

    tool: str = ""
    is_wrapped: bool = False


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as it is sent.

    Attributes:
        body: The JSON body.
        names: Which tool the model means.
        form: How the answer arrives.
        left_out: What could not be expressed.
    """

    body: dict[str, Any]
    names: ToolNames
    form: AnswerForm
    left_out: list[str]


def wire_request(request: ModelRequest, model: str, settings: AnthropicSettings) -> WireRequest:
    """What `request` is on the wire. Equal requests give equal bytes.

    An output schema is asked for in one of two ways, see the setting `structured`: as `output_config.format`, the API's
    structured output; or, for models without it, as an instruction and the tool `answer`, which must be called (beside
    the request's own tools, any of them must), and whose arguments are the answer.

    Raises:
        ConfigError: `ModelSettings.extra` sets what it may not.
    """
    return _Builder(request, model, settings).build()


class _Builder:
    """One request in the making."""

    def __init__(self, request: ModelRequest, model: str, settings: AnthropicSettings) -> None:
        self._request = request
        self._model = model
        self._settings = settings
        self._traits: ModelTraits = traits_of(model)
        self._names = ToolNames(tool.name for tool in request.tools)
        self._form = AnswerForm()
        self._choice: dict[str, Any] | None = None
        self._talk: Conversation = convert(request.messages, self._names)

    def build(self) -> WireRequest:
        request, talk = self._request, self._talk
        body: dict[str, Any] = {"model": self._model, "max_tokens": self._max_tokens(), "stream": True}
        tools = self._tools()
        instruction = self._answer_form(body, tools)
        system = self._system(instruction)
        self._tool_choice()
        self._thinking(body)
        if tools:
            body["tools"] = tools
            if self._choice is not None:
                body["tool_choice"] = self._choice
        if system:
            body["system"] = system
        self._cache(tools, system)
        self._add_context(system, body)
        body["messages"] = talk.messages()
        if request.settings.stop:
            body["stop_sequences"] = [stop for stop in request.settings.stop if stop.strip()]
        if request.settings.seed is not None:
            talk.report("the seed: the Messages API has none")
        self._extra(body)
        return WireRequest(body, self._names, self._form, talk.left_out)

    # ---- the prefix --------------------------------------------------------------------------------------------------

    def _max_tokens(self) -> int:
        return (
            self._request.settings.max_output_tokens
            or self._settings.max_output_tokens
            or self._traits.max_output_tokens
        )

    def _tools(self) -> list[Block]:
        return [
            {
                "name": self._names.sent(tool.name),
                "description": blocks.plain(tool.description),
                "input_schema": {"type": "object", **blocks.plain(tool.parameters)},
            }
            for tool in self._request.tools
        ]

    def _system(self, instruction: str) -> list[Block]:
        texts = (self._request.instructions, *self._talk.system, instruction)
        return [block for text in texts for block in blocks.text(text)]

    def _answer_form(self, body: dict[str, Any], tools: list[Block]) -> str:
        """Ask for the schema; returns an instruction, empty if none is needed."""
        if self._request.output_schema is None:
            return ""
        schema: dict[str, Any] = blocks.plain(self._request.output_schema)
        is_wrapped = schema.get("type") != "object"
        if is_wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED], **definitions}
        native = self._settings.structured == "native" or (
            self._settings.structured == "auto" and self._traits.has_structured_output
        )
        if native:
            fitting = _for_the_api(schema)
            if fitting is not None:
                body["output_config"] = {"format": {"type": "json_schema", "schema": fitting}}
                self._form = AnswerForm("", is_wrapped)
                return ""
        name = self._names.fresh(_ANSWER_TOOL)
        self._form = AnswerForm(name, is_wrapped)
        tools.append({"name": name, "description": "Gives the final answer to the user.", "input_schema": schema})
        return f"Give your final answer by calling the tool {name!r}, and in no other way."

    # ---- choices that exclude each other -----------------------------------------------------------------------------

    def _tool_choice(self) -> None:
        choice = self._request.settings.tool_choice
        if self._form.tool:
            only = not self._request.tools
            self._choice = {"type": "tool", "name": self._form.tool} if only else {"type": "any"}
            return
        # A forced choice that stays would make the model call for ever, so it holds for the first turn.
        if not choice or not self._request.tools or (self._request.turn > 1 and choice not in ("auto", "none")):
            return
        kinds = {"auto": "auto", "none": "none", "required": "any"}
        self._choice = (
            {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": self._names.sent(choice)}
        )

    def _thinking(self, body: dict[str, Any]) -> None:
        settings = self._request.settings
        effort = settings.reasoning
        is_on = False
        if effort == "none":
            body["thinking"] = {"type": "disabled"}
        elif effort:
            is_on = self._think(body, effort)
        for name in ("temperature", "top_p"):
            value = getattr(settings, name)
            if value is None:
                continue
            if is_on:
                self._talk.report(f"{name}: it cannot be set for a model that thinks")
            else:
                body[name] = value

    def _think(self, body: dict[str, Any], effort: str) -> bool:
        """Ask the model to think, if nothing else in the request excludes it."""
        is_adaptive = self._settings.thinking == "adaptive" or (
            self._settings.thinking == "auto" and self._traits.is_adaptive
        )
        if self._choice is not None and self._choice["type"] in ("any", "tool"):
            if not self._form.tool:
                self._talk.report("reasoning: it excludes a forced choice of tools")
                return False
            self._choice = {"type": "auto"}  # the instruction alone asks for the answer
        if is_adaptive:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {
                **body.get("output_config", {}),
                "effort": "low" if effort == "minimal" else effort,
            }
            return True
        if not _begins_with_thinking(self._talk):
            self._talk.report("reasoning: the calls that are open were made without")
            return False
        budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), body["max_tokens"] - 1)
        if budget < _LEAST_BUDGET:
            self._talk.report("reasoning: max_output_tokens leaves no room for it")
            return False
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        return True

    # ---- cache points and what comes after them ----------------------------------------------------------------------

    def _cache(self, tools: list[Block], system: list[Block]) -> None:
        """Mark the ends of what the next request will begin with: tools, instructions, history."""
        if not self._settings.cache:
            return
        ends = [tools[-1:], system[-1:], *_ends_of_users(self._talk)]
        for block in (found for end in ends for found in end):
            block["cache_control"] = {"type": "ephemeral"}
            if self._settings.cache_ttl != "5m":
                block["cache_control"]["ttl"] = self._settings.cache_ttl

    def _add_context(self, system: list[Block], body: dict[str, Any]) -> None:
        added = [block for text in self._request.context for block in blocks.text(text)]
        if not added:
            return
        if self._talk.turns[-1][0] == "user":
            self._talk.turns[-1][1].extend(added)
        else:  # the model is to go on with its own message: nothing may come after it
            system.extend(added)
            body["system"] = system

    def _extra(self, body: dict[str, Any]) -> None:
        for key, value in self._request.settings.extra.items():
            if key in _OURS:
                raise ConfigError(f"anthropic: ModelSettings.extra may not set {key!r}; leave it out")
            added = blocks.plain(value)
            if key == "tools" and isinstance(added, list):
                body["tools"] = [*body.get("tools", []), *added]  # tools that the provider runs
            elif isinstance(added, dict) and isinstance(body.get(key), dict):
                body[key] = {**body[key], **added}
            else:
                body[key] = added


def _for_the_api(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema in the part of JSON Schema that structured output takes; None if it cannot be said in it."""
    from anthropic import transform_schema

    if _is_open(schema) or _is_recursive(schema):
        return None
    try:
        fitting: dict[str, Any] = transform_schema(schema)
    except Exception:  # the SDK has several ways to refuse one
        return None
    return fitting


def _is_open(schema: object) -> bool:
    """Whether an object in the schema may have members that it does not name: the API allows none."""
    if isinstance(schema, list):
        return any(_is_open(item) for item in schema)
    if not isinstance(schema, Mapping):
        return False
    if schema.get("type") == "object" and not (
        schema.get("properties") and schema.get("additionalProperties", False) is False
    ):
        return True
    return any(_is_open(value) for key, value in schema.items() if key not in ("enum", "const", "default", "examples"))


def _is_recursive(schema: dict[str, Any]) -> bool:
    """Whether a definition refers to itself, by whatever way: the API allows none that does."""
    definitions = schema.get("$defs") or {}
    refers = {f"#/$defs/{name}": _references(value) for name, value in definitions.items()}
    for start in refers:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in refers.get(waiting.pop(), ()):
                if target == start:
                    return True
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
    return "#" in _references(schema)


def _references(schema: object) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_references, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(_references, schema.values()))


def _begins_with_thinking(talk: Conversation) -> bool:
    """Whether the message whose calls are answered last begins with thinking, as the API wants it with a budget."""
    if len(talk.turns) < 2 or not any(block["type"] == "tool_result" for block in talk.turns[-1][1]):
        return talk.turns[-1][0] == "user"
    return talk.turns[-2][1][0]["type"] in ("thinking", "redacted_thinking")


def _ends_of_users(talk: Conversation) -> list[list[Block]]:
    """The last blocks of the last two messages that are not the model's.

    The one before the last is where the previous request ended: with a long batch of calls between the two, the
    provider would not look back far enough to find it.
    """
    return [content[-1:] for role, content in talk.turns if role == "user"][-2:]
