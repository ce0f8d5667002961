"""What comes from plugins and models, checked where it comes in.

The constructors of records check nothing, for they are on the path of every event. What is wrong inside of one would be
found late, by a store or by the next model, where nobody knows any more whose it was. What is right is left as it is,
the very same object; what can be taken for what was meant (a list for a tuple, None for what may be left out, a date in
JSON) is made into that; the rest is a `ValueError` that says where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from ._plain import NOT_FINITE, TOO_DEEP, clean_json, is_finite, is_too_deep, plain_json
from ._records import Record, adapter, error_line
from .config import ModelSettings
from .errors import ModelError
from .messages import (
    AssistantMessage,
    Delta,
    StopReason,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
    clean_text,
)
from .models import ModelRequest, ModelResponse, ToolSpec

if TYPE_CHECKING:
    from pydantic import ValidationError

    from .messages import Message

__all__ = [
    "checked",
    "checked_answer",
    "checked_delta",
    "checked_messages",
    "checked_request",
    "emitted_delta",
    "uncallable_model",
    "unstorable",
]

R = TypeVar("R", bound=Record)

_MESSAGES = (AssistantMessage, SystemMessage, ToolMessage, UserMessage)
_STOP_REASONS = frozenset(get_args(StopReason))
_DELTA_KINDS = ("text", "reasoning", "arguments")
_PLAIN = (str, int, bool, float, type(None))
_TEXT_OR_NONE = (str, type(None))
#: Fields that hold JSON of somebody else's, in which None is a value.
_JSON = frozenset({"arguments", "data", "extra", "input", "output", "parameters", "schema"})
#: Fields that name a call. One that has no name is given one, or that of the call it answers.
_IDS = frozenset({"id", "call_id"})
_DEEPEST = 8  # steps of a path that are shown


def checked(record: R, *, clean: bool = True) -> R:
    """The record, if all in it is what it was declared as and can be stored; else one that is.

    Args:
        record: What came in.
        clean: False to leave texts that not every store can keep as they are.

    Raises:
        ValueError: something in it is not what it must be; the text says where.
    """
    from pydantic import ValidationError

    fields = {key: getattr(record, key) for key in record._record_fields}
    if any(isinstance(value, Iterator) for value in fields.values()):  # can be read once
        try:
            fields = {key: tuple(value) if isinstance(value, Iterator) else value for key, value in fields.items()}
        except Exception as error:
            raise ValueError(f"reading it failed with {error_line(error)}") from error
        record = type(record)(**fields)
    problem = unstorable(record)
    if problem:
        raise ValueError(problem)
    # What somebody's subclass adds is not kept anyway, and nothing that pydantic need know.
    cls = next(one for one in type(record).__mro__ if one.__module__.startswith("trilane."))
    kind = adapter(cls)
    made: R
    try:
        made = _looks_inside(cls).validate_python(record)
    except ValidationError as error:
        try:  # what was meant: tuples, dates and models of pydantic in JSON, None for what may be left out
            made = kind.validate_python(_without_none(kind.dump_python(record, mode="json", warnings=False)))
        except Exception:  # also whatever a stranger's serialiser raises
            raise ValueError(_first_problem(error)) from None
    if clean and not _can_be_stored(kind, made):
        made = kind.validate_python(clean_json(kind.dump_python(made)))
    return record if _same(kind.dump_python(made), kind.dump_python(record, warnings=False)) else made


def unstorable(record: Record, path: str = "") -> str:
    """Where in a record is something that no store could read back as it was, and what; empty if nowhere."""
    for key, value in record._items():
        many = value if isinstance(value, (list, tuple)) else (value,)
        if any(isinstance(item, Record) for item in many):
            for number, item in enumerate(many):
                if isinstance(item, Record):
                    found = unstorable(item, f"{path}{key}." if many is not value else f"{path}{key}.{number}.")
                    if found:
                        return found
        elif is_too_deep(value):
            return f"{path}{key}: it is {TOO_DEEP}"
        elif key == "arguments" and not is_finite(value):
            return f"{path}{key}: it has {NOT_FINITE}"
    return ""


def _same(one: Any, other: Any) -> bool:
    """Equal and of the same types throughout."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(item, other[key]) for key, item in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    is_equal: bool = one == other
    return is_equal


def _can_be_stored(kind: Any, record: Record) -> bool:
    """False if a text in it is none that every store can keep."""
    try:
        return b"\\u0000" not in kind.dump_json(record)
    except ValueError:  # half a surrogate pair
        return False


@cache
def _looks_inside(cls: type[Record]) -> Any:
    """A validator that looks into instances too, which that of `adapter` takes as they are."""
    from pydantic_core import SchemaValidator

    return SchemaValidator(_inside(adapter(cls).core_schema))


def _inside(schema: Any) -> Any:
    if isinstance(schema, (list, tuple)):
        return type(schema)([_inside(item) for item in schema])
    if not isinstance(schema, dict):
        return schema
    made = {key: item if key == "metadata" else _inside(item) for key, item in schema.items()}
    if made.get("type") == "dataclass":
        made["revalidate_instances"] = "always"
    return made


def _without_none(value: Any) -> Any:
    """A dumped record, with what is None left out: it gets its default."""
    if isinstance(value, dict):
        made = {}
        for key, item in value.items():
            if item is not None:
                made[key] = item if key in _JSON else _without_none(item)
            elif key in _IDS:
                made[key] = ""
        return made
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def _first_problem(error: ValidationError) -> str:
    """Where and what; of the kinds that a value might have been the one that it fits best."""
    problem = max(error.errors(include_url=False, include_input=False), key=lambda one: len(one["loc"]))
    path = [str(step) for step in problem["loc"]]
    shown = path if len(path) <= _DEEPEST else [*path[:_DEEPEST], "..."]
    return f"{'.'.join(shown)}: {problem['msg']}"


def checked_messages(messages: Iterable[Any], known: Set[int] = frozenset()) -> tuple[Message, ...]:
    """Messages for a history; those whose `id()` is among the `known` ones are the run's own.

    Raises:
        TypeError: one is no message.
        ValueError: something in one is not what it must be; the text says where.
    """
    made: list[Message] = []
    for number, message in enumerate(messages):
        if not isinstance(message, _MESSAGES):
            raise TypeError(f"{number}: {type(message).__name__}, not a message")
        try:
            made.append(message if id(message) in known else checked(message))
        except ValueError as error:
            raise ValueError(f"{number}.{error}") from None
    return tuple(made)


def checked_request(request: ModelRequest, before: ModelRequest) -> ModelRequest:
    """The request, with what was changed of it checked. What was not may be long, and was looked at before.

    Raises:
        TypeError: an attribute is of another type; the text says which.
        ValueError: something in one is not what it must be; the text says where.
    """
    changes: dict[str, Any] = {name: () for name in ("tools", "context") if getattr(request, name) is None}
    if request.instructions is None:
        changes["instructions"] = ""
    if changes:
        request = request.replace(**changes)
    _check_types(request)
    try:
        name = "instructions"
        if request.instructions is not before.instructions:
            changes[name] = clean_text(request.instructions)
        name = "settings"
        if request.settings is not before.settings:
            changes[name] = _settings(request.settings, before.settings)
        name = "output_schema"
        if request.output_schema is not before.output_schema:
            changes[name] = plain_json(request.output_schema)
        name = "tools"
        if request.tools is not before.tools:
            known = {id(tool) for tool in before.tools}
            tools = [tool if id(tool) in known else _tool(number, tool) for number, tool in enumerate(request.tools)]
            changes[name] = tuple(tools)
        name = "messages"
        if request._log is not before._log:
            messages = checked_messages(request.messages, {id(message) for message in before.messages})
            if any(one is not other for one, other in zip(messages, request.messages, strict=True)):
                changes[name] = messages
        name = "context"
        if request.context is not before.context:
            changes[name] = tuple([_text(number, text) for number, text in enumerate(request.context)])
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}.{error}") from None
    return request.replace(**changes) if changes else request


def _settings(settings: ModelSettings, before: ModelSettings) -> ModelSettings:
    """Only what was changed of them, and without `extra`, which is between the application and the provider."""
    changed = {}
    for name in settings._record_fields:
        value = getattr(settings, name)
        if name != "extra" and value is not getattr(before, name):
            changed[name] = value
    made = checked(ModelSettings(**changed))
    return settings.replace(**{name: getattr(made, name) for name in changed})


def _check_types(request: ModelRequest) -> None:
    for name, kind in (
        ("instructions", str),
        ("settings", ModelSettings),
        ("tools", (tuple, list)),
        ("context", (tuple, list)),
        ("turn", int),
        ("output_schema", (Mapping, type(None))),
    ):
        value = getattr(request, name)
        if not isinstance(value, kind):
            wanted = kind if isinstance(kind, type) else kind[0]
            raise TypeError(f"{name}: {type(value).__name__}, not {wanted.__name__}")


def _tool(number: int, tool: Any) -> ToolSpec:
    if not isinstance(tool, ToolSpec):
        raise TypeError(f"{number}: {type(tool).__name__}, not ToolSpec")
    return checked(tool)


def _text(number: int, text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{number}: {type(text).__name__}, not str")
    return clean_text(text)


def uncallable_model(error: BaseException, model: str) -> ModelError | None:
    """What to say of a model whose `call` cannot be called, or gives nothing to await; None if the error is its own."""
    trace = error.__traceback__
    if not isinstance(error, TypeError) or trace is None or trace.tb_next is not None:
        return None
    text = (
        f"model {model}: its call() must be `async def call(self, request, emit)` and return a ModelResponse: {error}"
    )
    return ModelError(text, model=model)


def checked_answer(response: object, model: str) -> ModelResponse:
    """What a model answered, `checked`. Every turn passes here, and for nearly all of them a look is enough.

    Raises:
        ModelError: it is no answer, or something in it is not what it must be; the text says where.
    """
    if not isinstance(response, ModelResponse):
        raise ModelError(f"model {model}: call() returned {type(response).__name__}, not a ModelResponse", model=model)
    usage = response.usage
    if (
        type(response.stop_reason) is str
        and response.stop_reason in _STOP_REASONS
        and response.extra is None
        and type(response.model) in _TEXT_OR_NONE
        and type(usage) is Usage
        and type(usage.input_tokens) is type(usage.output_tokens) is type(usage.reasoning_tokens) is int
        and type(usage.cache_read_tokens) is type(usage.cache_write_tokens) is int
        and (usage.cost is None or type(usage.cost) is float)
        and (response.parts is None or _are_simple(response.parts))
    ):
        return response
    try:
        return checked(response)
    except ValueError as error:
        text = f"model {model}: call() returned a ModelResponse that cannot be used: {error}"
        raise ModelError(text, model=model) from None


def _are_simple(parts: Any) -> bool:
    """True for texts and calls in which nothing can be wrong."""
    if type(parts) is not tuple:
        return False
    for part in parts:
        if type(part) is TextPart:
            if type(part.text) is not str or part.extra is not None:
                return False
        elif type(part) is ToolCallPart and type(part.call) is ToolCall and part.extra is None:
            call = part.call
            # A call without an id is given one.
            if not (type(call.id) in _TEXT_OR_NONE and type(call.name) is type(call.raw) is str):
                return False
            if call.approval is not None or type(call.arguments) is not dict:
                return False
            for name, value in call.arguments.items():
                if type(name) is not str or type(value) not in _PLAIN:
                    return False
                if type(value) is float and value - value != 0:  # infinite, or NaN
                    return False
        else:
            return False
    return True


def emitted_delta(delta: Delta) -> Delta:
    """What a model gave to `emit`, as `checked_delta`.

    Raises:
        TypeError: it is no delta, or something in it is not what it must be; the text says where.
    """
    if not isinstance(delta, Delta):
        raise TypeError(f"emit() takes a Delta, not {type(delta).__name__}")
    try:
        return checked_delta(delta)
    except ValueError as error:
        raise TypeError(f"emit() takes a Delta that can be used, and of this one {error}") from None


def checked_delta(delta: Delta) -> Delta:
    """A delta of a model or a plugin, `checked`, with its text as it is: the next may complete half a surrogate pair.

    Raises:
        ValueError: something in it is not what it must be; the text says where.
    """
    if (
        delta.extra is None
        and type(delta.text) is str
        and type(delta.call_id) in _TEXT_OR_NONE
        and type(delta.name) in _TEXT_OR_NONE
        and (delta.index is None or type(delta.index) is int)
        and type(delta.kind) is str
        and delta.kind in _DELTA_KINDS
    ):
        return delta
    made = checked(delta, clean=False)
    extra = clean_json(made.extra)
    return made if extra == made.extra else made.replace(extra=extra)
