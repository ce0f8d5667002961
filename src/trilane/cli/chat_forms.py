"""A JSON Schema as a form: which fields it has, what is said about each, and what a typed line means for it.

Asking is in `chat_answers.py`. Whether a whole reply is right is for the run to say; what is checked here is what can
be said at once about one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .text import one_line, visible

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["ABSENT", "Field", "FieldError", "assemble", "fields_of", "text_of_value"]

#: In the place of a value: the field was left out.
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT"})()

_YES = frozenset({"y", "yes", "true", "1"})
_NO = frozenset({"n", "no", "false", "0"})
_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "y or n",
    "null": "nothing",
    "array": "a list",
    "object": "JSON",
}
_DEEPEST = 3


class FieldError(ValueError):
    """What was typed cannot be the value of this field; the text says what can."""


@dataclass(frozen=True, slots=True)
class Field:
    """One thing to ask for.

    Attributes:
        path: Names that lead to it; empty where the whole reply is one value.
        schema: Its part of the schema, references resolved.
        required: True if the reply must have it.
        nullable: True if it may be null.
    """

    path: tuple[str, ...]
    schema: Mapping[str, Any]
    required: bool = True
    nullable: bool = False

    @property
    def name(self) -> str:
        """Its name; dots between names that lead to it."""
        return ".".join(self.path)

    @property
    def choices(self) -> list[JsonValue]:
        """The values there are to choose from, empty if any."""
        if "const" in self.schema:
            return [self.schema["const"]]
        options: object = self.schema.get("enum")
        return list(options) if isinstance(options, list) else []

    @property
    def default(self) -> Any:
        """The value without an answer, `ABSENT` if there is none."""
        return self.schema.get("default", ABSENT)

    def described(self) -> str:
        """What is asked for: its type, limits, choices, default, whether it is needed, and what it is for."""
        about = [self._kind(), *_limits(self.schema)]
        if self.default not in (ABSENT, None, ""):
            about.append(f"default {text_of_value(self.default)}")
        elif self.default is not ABSENT or not self.required or self.nullable:
            about.append("may be empty")
        elif self.path:
            about.append("required")
        text = ", ".join(filter(None, about))
        description = self.schema.get("description")
        return visible(f"{text}: {' '.join(description.split())}" if isinstance(description, str) else text)

    def _kind(self) -> str:
        if self.choices:
            return f"one of {', '.join(map(text_of_value, self.choices))}"
        kind = self.schema.get("type")
        if kind == "array":
            item = self.schema.get("items")
            of = _KINDS.get(item.get("type", ""), "") if isinstance(item, dict) else ""
            return f"a list of {of.removeprefix('a ')}, commas between" if of in _SIMPLE else "a list as JSON"
        if kind == "string" and isinstance(self.schema.get("format"), str):
            return f"text ({self.schema['format']})"
        return _KINDS.get(kind, "text or JSON") if isinstance(kind, str) else "text or JSON"

    def parse(self, line: str) -> JsonValue:
        """The value that `line` means, the default if it is empty; `ABSENT` if the field is left out.

        Raises:
            FieldError: it means none.
        """
        if not line.strip():
            if self.default is not ABSENT:
                default: JsonValue = self.default
                return default
            if self.nullable:
                return None
            if not self.required:
                absent: JsonValue = ABSENT
                return absent
            if self.schema.get("type") != "string" or self.choices or self.path:
                raise FieldError("this is needed")
        value: JsonValue = _choice(line, self.choices) if self.choices else _value(line, self.schema)
        _check_limits(value, self.schema)
        return value


_SIMPLE = frozenset({"text", "a whole number", "a number"})


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a schema, in its order; one without a name if the reply is no object with known properties."""
    return list(_fields(schema, schema, (), True, 0))


def _fields(schema: Any, root: Mapping[str, Any], path: tuple[str, ...], required: bool, depth: int) -> Iterator[Field]:
    resolved, nullable = _resolved(schema, root)
    properties = resolved.get("properties")
    is_object = resolved.get("type") == "object" and isinstance(properties, dict) and bool(properties)
    if not is_object or depth >= _DEEPEST or (path and not required):
        yield Field(path, resolved, required, nullable)
        return
    needed = resolved.get("required", ())
    for name, inner in resolved["properties"].items():
        yield from _fields(inner, root, (*path, name), name in needed, depth + 1)


def _resolved(schema: Any, root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """`schema` with its reference followed and `null` taken out of its alternatives, and whether null was there."""
    found: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
    nullable = False
    for _ in range(16):  # references may go in circles
        reference = found.pop("$ref", None)
        if isinstance(reference, str):
            found = {**_referenced(reference, root), **found}
        alternatives = found.get("anyOf") or found.get("oneOf")
        if isinstance(alternatives, list):
            others = [one for one in alternatives if not (isinstance(one, dict) and one.get("type") == "null")]
            nullable = nullable or len(others) < len(alternatives)
            if len(others) == 1 and isinstance(others[0], dict):
                outer = {key: value for key, value in found.items() if key not in ("anyOf", "oneOf")}
                found = {**others[0], **outer}
                continue
        if "$ref" not in found:
            break
    kinds = found.get("type")
    if isinstance(kinds, list):
        nullable = nullable or "null" in kinds
        kinds = [kind for kind in kinds if kind != "null"]
        found["type"] = kinds[0] if len(kinds) == 1 else None
    return found, nullable


def _referenced(reference: str, root: Mapping[str, Any]) -> dict[str, Any]:
    place: Any = root
    for step in reference.removeprefix("#/").split("/"):
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    return dict(place) if isinstance(place, Mapping) else {}


def assemble(fields: Sequence[Field], values: Mapping[tuple[str, ...], Any]) -> JsonValue:
    """The reply made of the values of its fields."""
    if len(fields) == 1 and not fields[0].path:
        value: JsonValue = values[()]
        return value
    reply: dict[str, Any] = {}
    for field in fields:
        value = values.get(field.path, ABSENT)
        place = reply
        for step in field.path[:-1]:
            place = place.setdefault(step, {})
        if value is not ABSENT:
            place[field.path[-1]] = value
    return reply


def text_of_value(value: object) -> str:
    """A value as it could be typed."""
    if value is ABSENT or value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "y" if value else "n"
    return json.dumps(value, ensure_ascii=False)


def _choice(line: str, choices: Sequence[JsonValue]) -> JsonValue:
    wanted = line.strip().casefold()
    texts = [text_of_value(choice).casefold() for choice in choices]
    if wanted in texts:
        return choices[texts.index(wanted)]
    near = [index for index, text in enumerate(texts) if text.startswith(wanted)]
    if len(near) == 1:
        return choices[near[0]]
    raise FieldError(f"{one_line(line, 60)!r} is none of {', '.join(map(text_of_value, choices))}")


def _value(line: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    text = line.strip()
    if kind == "string":
        return line
    if kind == "boolean":
        if text.lower() not in _YES | _NO:
            raise FieldError("answer y or n")
        return text.lower() in _YES
    if kind in ("integer", "number"):
        return _number(text, kind)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        item = schema.get("items")
        if kind == "array" and isinstance(item, dict) and _KINDS.get(item.get("type", "")) in _SIMPLE:
            return [_value(part.strip(), item) for part in text.split(",") if part.strip()]
        if kind in ("array", "object"):
            raise FieldError("this must be JSON, such as " + ("[1, 2]" if kind == "array" else '{"a": 1}')) from None
        return line  # a type of its own, or several: whoever asked knows what it makes of the text
    if kind == "array" and not isinstance(value, list):
        return [value]
    return value


def _number(text: str, kind: str) -> int | float:
    try:
        return int(text) if kind == "integer" else json.loads(text, parse_constant=_refuse)
    except ValueError:
        raise FieldError(f"{one_line(text, 60)!r} is not {_KINDS[kind]}") from None


def _refuse(name: str) -> float:
    raise ValueError(name)


def _limits(schema: Mapping[str, Any]) -> list[str]:
    texts = {
        "minimum": "at least {}",
        "exclusiveMinimum": "more than {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "less than {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "minItems": "at least {} items",
        "maxItems": "at most {} items",
        "pattern": "matching {}",
    }
    return [text.format(schema[key]) for key, text in texts.items() if key in schema]


def _check_limits(value: Any, schema: Mapping[str, Any]) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        size, kinds = value, ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    elif isinstance(value, str):
        size, kinds = len(value), ("minLength", "", "maxLength", "")
    elif isinstance(value, list):
        size, kinds = len(value), ("minItems", "", "maxItems", "")
    else:
        return
    at_least, more_than, at_most, less_than = (schema.get(kind) for kind in kinds)
    wrong = (
        (isinstance(at_least, (int, float)) and size < at_least)
        or (isinstance(more_than, (int, float)) and size <= more_than)
        or (isinstance(at_most, (int, float)) and size > at_most)
        or (isinstance(less_than, (int, float)) and size >= less_than)
    )
    if wrong:
        limits = ", ".join(_limits({key: schema[key] for key in kinds if key in schema}))
        raise FieldError(f"this must be {limits}")
