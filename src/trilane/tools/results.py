"""What a tool returned or raised, as the text a model is told.

Every value becomes the same text each time, or an error result; nothing raises here. How a result is cut and what
empty ones look like to a provider: `render_result` and the adapters of providers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, get_args

from trilane._plain import DEEPEST, TOO_DEEP
from trilane._records import maker
from trilane.errors import ReplyError, ToolError, ToolTimeoutError
from trilane.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    Outcome,
    TextPart,
    ToolCall,
    ToolResult,
    clean_text,
)

from .arguments import ToolArgumentsError

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = [
    "UnreadableError",
    "cut_text",
    "error_result",
    "is_for_model",
    "render_result",
    "rendered",
    "unknown_tool_result",
    "unreadable_result",
]

_MEDIA = (ImagePart, AudioPart, FilePart)
_OUTCOMES = get_args(Outcome)
_encode: Callable[[object], str] | None = None


class UnreadableError(Exception):
    """A value that has no text form; the message says why, for the model."""


def render_result(value: object, *, call_id: str, max_chars: int | None = 20000) -> ToolResult:
    """The result for what a tool returned.

    Text stays as it is; other values become JSON text, and `data` holds the value as JSON (None where the text is the
    value itself). Media pass through, a `ToolResult` gets the call's id. None and "" are empty text.

    Args:
        value: What the tool returned.
        call_id: The call it answers.
        max_chars: Longer texts keep their head and tail, with a note of how much was cut; `data` is then None, so that
            events and stores hold what the model sees and no more. None: no limit.
    """
    try:
        return rendered(value, call_id, max_chars)
    except Exception as error:
        return unreadable_result(value, error, call_id)


def unreadable_result(value: object, error: Exception, call_id: str) -> ToolResult:
    """The result for what a tool returned if `rendered` raised `error`."""
    # Errors of __str__, properties and serialisers of users are named only, as in `error_result`.
    named = f"turning it into text raised {type(error).__name__}"
    reason = str(error) if isinstance(error, UnreadableError) else named
    text = f"The tool ran, but its result ({type(value).__name__}) cannot be shown: {reason}."
    return ToolResult(call_id=call_id, content=clean_text(text), outcome="error")


def error_result(call: ToolCall, exception: BaseException, *, max_chars: int | None = 20000) -> ToolResult:
    """The result for what a tool, or the preparation of its call, raised.

    The text of a `ToolError` is for the model and stays as it is. Any other exception is only named: its message may
    hold paths, queries or secrets.
    """
    told = _texts_for_model(exception)
    if isinstance(exception, ToolArgumentsError):
        text = f"Tool {call.name} was not run. {told[0]}"
    elif told:
        text = "\n".join(told)
    else:
        text = f"Tool {call.name} failed: {_class_names(exception)}"
    outcome = "timed_out" if isinstance(exception, ToolTimeoutError) else "error"
    return ToolResult(call_id=call.id, content=cut_text(clean_text(text), max_chars), outcome=outcome)  # type: ignore[arg-type]


def is_for_model(exception: BaseException) -> bool:
    """True if a tool raised it on purpose, to tell the model: whatever else it raises only its developer can mend."""
    if isinstance(exception, BaseExceptionGroup):
        return all(is_for_model(item) for item in exception.exceptions)
    return isinstance(exception, (ToolError, ReplyError))


def unknown_tool_result(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """The result for a call of a tool that does not exist: names the nearest ones, or all if they are few."""
    import difflib

    known = list(names)
    near = difflib.get_close_matches(call.name, known, n=3, cutoff=0.5)
    near = near or [name for name in known if call.name and (call.name in name or name in call.name)][:3]
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif not known:
        hint = "There are no tools."
    else:
        hint = f"Available: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}."
    text = clean_text(f"There is no tool named {call.name!r}. {hint}")
    return ToolResult(call_id=call.id, content=text, outcome="error")


def cut_text(text: str, max_chars: int | None) -> str:
    """`text`, or its head and tail around a note of how many characters were cut, within `max_chars`."""
    if max_chars is None or len(text) <= max_chars:
        return text
    note = "\n[... {} of {} characters cut ...]\n"
    room = max_chars - len(note.format(len(text), len(text)))
    if room <= 0:
        return text[:max_chars]
    head = room * 3 // 4
    tail = room - head
    return text[:head] + note.format(len(text) - room, len(text)) + (text[-tail:] if tail else "")


def rendered(value: object, call_id: str, max_chars: int | None) -> ToolResult:
    """As `render_result`, for callers that tell a developer what went wrong.

    Raises:
        UnreadableError: the value has no text form.
        Exception: whatever the value's own code raised.
    """
    if type(value) is str:
        made: ToolResult = maker(ToolResult)(call_id, cut_text(clean_text(value), max_chars))
        return made
    if value is None:
        return ToolResult(call_id=call_id, content="")
    if isinstance(value, ToolResult):
        if value.outcome not in _OUTCOMES:
            raise UnreadableError(f"its outcome is {value.outcome!r:.80}, which is none of {', '.join(_OUTCOMES)}")
        content = value.content
        cleaned = cut_text(clean_text(content), max_chars) if isinstance(content, str) else _parts(content, max_chars)
        data = None if value.data is None else _Converter().json(value.data)
        return value.replace(call_id=call_id, content=cleaned, data=data)
    if isinstance(value, _MEDIA):
        return ToolResult(call_id=call_id, content=_parts((value,), max_chars))
    if isinstance(value, TextPart):
        return ToolResult(call_id=call_id, content=cut_text(clean_text(value.text), max_chars))
    if isinstance(value, (list, tuple)) and any(isinstance(item, _MEDIA) for item in value):
        return ToolResult(call_id=call_id, content=_parts(value, max_chars))
    data = _Converter().json(value)
    text = data if isinstance(data, str) else _dumps(data)
    cut = cut_text(text, max_chars)
    keep = cut is text and not isinstance(data, str)
    return ToolResult(call_id=call_id, content=cut, data=data if keep else None)


def _parts(values: Sequence[object], max_chars: int | None) -> tuple[str | MediaPart, ...]:
    """Text and media in order; `max_chars` holds for each text."""
    parts: list[str | MediaPart] = []
    for item in values:
        if isinstance(item, _MEDIA):
            parts.append(item if item.extra is None else item.replace(extra=_Converter().json(item.extra)))
        else:
            result = rendered(item, "", max_chars).content
            parts += [result] if isinstance(result, str) else result
    return tuple(parts)


class _Converter:
    """Turns any Python value into a JSON value, the same way each time.

    Sets are sorted, memory addresses never appear, and what has no text form of its own is refused.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: set[int] = set()

    def json(self, value: object) -> JsonValue:
        kind = type(value)
        if kind is str:
            return clean_text(value)  # type: ignore[arg-type]
        if value is None or kind is bool or kind is int:
            return value  # type: ignore[return-value]
        if isinstance(value, (str, int, float, bytes, bytearray)) or _is_enum(value):
            return self._scalar(value)
        if id(value) in self._open:
            raise UnreadableError("it contains itself")
        if len(self._open) >= DEEPEST:
            raise UnreadableError(f"it is {TOO_DEEP}")
        self._open.add(id(value))
        try:
            return self._compound(value)
        finally:
            self._open.discard(id(value))

    def _scalar(self, value: Any) -> JsonValue:
        if _is_enum(value):
            return self.json(value.value)
        if isinstance(value, str):
            return clean_text(str.__str__(value))
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            number = float(value)
            # JSON has no word for these
            return number if number - number == 0 else "NaN" if number != number else f"{'-' * (number < 0)}Infinity"
        try:
            return clean_text(bytes(value).decode())
        except UnicodeDecodeError:
            import base64

            return "base64:" + base64.b64encode(value).decode()

    def _compound(self, value: Any) -> JsonValue:
        kind = type(value)
        if kind is dict:
            return self._mapping(value)
        if kind is list or kind is tuple:
            return [self.json(item) for item in value]
        if isinstance(value, type):
            return f"{value.__module__}.{value.__qualname__}"
        if hasattr(kind, "model_dump"):
            return self.json(value.model_dump(mode="json"))
        if hasattr(kind, "__dataclass_fields__"):
            import dataclasses

            names = [field.name for field in dataclasses.fields(value)]
            return {name: self.json(getattr(value, name)) for name in names}
        if hasattr(kind, "_asdict"):
            return self._mapping(value._asdict())
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, Set):
            return sorted((self.json(item) for item in value), key=_dumps)
        if hasattr(kind, "__next__") or hasattr(kind, "__anext__") or hasattr(kind, "__await__"):
            raise UnreadableError(f"a {kind.__name__} is not a value; return its items")
        if hasattr(kind, "tolist"):  # arrays and their scalars
            return self.json(value.tolist())
        if isinstance(value, Sequence) or (isinstance(value, Collection) and _inherits(kind, "__str__")):
            return [self.json(item) for item in value]
        return self._text(value)

    def _mapping(self, value: Mapping[Any, object]) -> JsonValue:
        result: dict[str, JsonValue] = {}
        for key, item in value.items():
            name = self.json(key)
            text = name if isinstance(name, str) else _dumps(name)
            if text in result:
                raise UnreadableError(f"two of its keys read {text[:60]!r}")
            result[text] = self.json(item)
        return result

    def _text(self, value: Any) -> str:
        kind = type(value)
        if hasattr(kind, "isoformat"):
            return str(value.isoformat())
        if _inherits(kind, "__str__") and _inherits(kind, "__repr__"):
            raise UnreadableError("it has no text form; return text, JSON-like data, a dataclass or a pydantic model")
        import re

        return clean_text(re.sub(r" at 0x[0-9A-Fa-f]+", "", str(value)))


def _inherits(kind: type, method: str) -> bool:
    """True if a class has `object`'s own method: its text would be a memory address."""
    return getattr(kind, method) is getattr(object, method)


def _is_enum(value: object) -> bool:
    return hasattr(type(value), "__members__") and hasattr(value, "value")


def _dumps(value: JsonValue) -> str:
    global _encode
    if _encode is None:
        import json

        _encode = json.JSONEncoder(ensure_ascii=False).encode
    return _encode(value)


def _texts_for_model(exception: BaseException) -> list[str]:
    """What the exception tells the model; empty if it, or part of a group, was not written for it."""
    if isinstance(exception, BaseExceptionGroup):
        parts = [_texts_for_model(item) for item in exception.exceptions]
        return [text for part in parts for text in part] if all(parts) else []
    if not isinstance(exception, (ToolError, ReplyError)):
        return []
    try:
        text = str(exception)
    except Exception:
        return []
    return [text] if text.strip() else []


def _class_names(exception: BaseException) -> str:
    if isinstance(exception, BaseExceptionGroup):
        return ", ".join(dict.fromkeys(_class_names(item) for item in exception.exceptions))
    return type(exception).__name__
