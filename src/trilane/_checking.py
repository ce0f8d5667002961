"""What comes from plugins and models, checked where it comes in.

The constructors of records check nothing, for they are on the path of every event. What is wrong inside of one would be
found late, by a store or by the next model, where nobody knows any more whose it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args

from ._plain import clean_json
from ._records import Record, adapter
from .config import ModelSettings
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
)
from .models import ModelRequest, ModelResponse, ToolSpec

if TYPE_CHECKING:
    from pydantic import ValidationError

    from .messages import Message

__all__ = ["check_request", "checked", "checked_answer", "checked_delta", "checked_message"]

R = TypeVar("R", bound=Record)

_MESSAGES = (AssistantMessage, SystemMessage, ToolMessage, UserMessage)
_STOP_REASONS = frozenset(get_args(StopReason))
_DELTA_KINDS = ("text", "reasoning", "arguments")
_PLAIN = (str, int, bool, float, type(None))


def checked(record: R, *, clean: bool = True) -> R:
    """The record as its fields are declared (a list for a tuple becomes one), with texts that every store can keep.

    Args:
        record: What came in.
        clean: False to leave texts as they are.

    Raises:
        ValueError: something in it is not what it must be; the text says where.
    """
    from pydantic import ValidationError
    from pydantic_core import PydanticSerializationError

    kind = adapter(type(record))
    made: R
    try:
        made = kind.validate_python(record)
    except ValidationError as error:
        try:  # tuples, models of pydantic, dates: no JSON, but what can be written as such
            made = kind.validate_python(kind.dump_python(record, mode="json", warnings=False))
        except Exception:  # whatever a stranger's serialiser raises
            raise ValueError(_first_problem(error)) from None
    if not clean:
        return made
    try:
        is_clean = b"\\u0000" not in kind.dump_json(made)
    except PydanticSerializationError:  # half a surrogate pair
        is_clean = False
    if not is_clean:
        made = kind.validate_python(clean_json(kind.dump_python(made)))
    return made


def checked_message(message: Any) -> Message:
    """A message for a history, `checked`.

    Raises:
        TypeError: it is none.
        ValueError: something in it is not what it must be; the text says where.
    """
    if not isinstance(message, _MESSAGES):
        raise TypeError(f"a history holds messages, not {type(message).__name__}")
    return checked(message)


def _first_problem(error: ValidationError) -> str:
    """Where and what; of the kinds that a value might have been the one that it fits best."""
    problem = max(error.errors(include_url=False, include_input=False), key=lambda one: len(one["loc"]))
    return f"{'.'.join(str(step) for step in problem['loc'])}: {problem['msg']}"


def check_request(request: ModelRequest, before: ModelRequest) -> None:
    """Look at what was changed of a request. What was not may be long, and was looked at before.

    Raises:
        ValueError: something in it is not what it must be; the text says where.
    """
    if not isinstance(request.instructions, str):
        raise ValueError(f"instructions: a str, not {type(request.instructions).__name__}")
    if request.settings is not before.settings:
        if not isinstance(request.settings, ModelSettings):
            raise ValueError(f"settings: a ModelSettings, not {type(request.settings).__name__}")
        checked(request.settings)
    for name, items, kinds in (
        ("tools", () if request.tools is before.tools else request.tools, ToolSpec),
        ("messages", () if request._log is before._log else request.messages, _MESSAGES),
        ("context", request.context, str),
    ):
        for number, item in enumerate(items):
            if not isinstance(item, kinds):
                raise ValueError(f"{name}.{number}: {type(item).__name__} does not belong there")


def checked_answer(response: ModelResponse) -> ModelResponse:
    """What a model answered, `checked`. Every turn passes here, and for nearly all of them a look is enough.

    Raises:
        ValueError: something in it is not what it must be; the text says where.
    """
    usage = response.usage
    if (
        response.stop_reason in _STOP_REASONS
        and response.extra is None
        and type(response.model) is str
        and type(usage) is Usage
        and type(usage.input_tokens) is type(usage.output_tokens) is type(usage.reasoning_tokens) is int
        and type(usage.cache_read_tokens) is type(usage.cache_write_tokens) is int
        and (usage.cost is None or type(usage.cost) is float)
        and (response.parts is None or _are_simple(response.parts))
    ):
        return response
    return checked(response, clean=False)  # texts are cleaned with those that were streamed


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
            if not (type(call.id) is type(call.name) is type(call.raw) is str and type(call.arguments) is dict):
                return False
            for name, value in call.arguments.items():
                if type(name) is not str or type(value) not in _PLAIN:
                    return False
            if call.approval is not None:
                return False
        else:
            return False
    return True


def checked_delta(delta: Delta) -> Delta:
    """A delta of a model, `checked`, with its text as it is: half a surrogate pair may be completed by the next.

    Raises:
        TypeError: something in it is not what it must be; the text says where.
    """
    if (
        delta.extra is None
        and type(delta.text) is type(delta.call_id) is type(delta.name) is str
        and type(delta.index) is int
        and delta.kind in _DELTA_KINDS
    ):
        return delta
    try:
        return checked(delta, clean=False)
    except ValueError as error:
        raise TypeError(f"emit() takes a Delta that can be used, and of this one {error}") from None
