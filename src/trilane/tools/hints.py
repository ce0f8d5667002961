"""What a JSON Schema says about single arguments, and tools whose schema somebody else wrote.

`Hint` prepares values for either kind of schema; it is no validator of JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trilane.errors import ToolDefinitionError

from .arguments import ToolArgumentsError, shown

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["Hint", "SchemaArguments", "copied"]

_TEMPORAL = {
    "date": "a date as text, such as 2026-01-31",
    "date-time": "a date and time as text, such as 2026-01-31T12:00:00Z",
    "time": "a time as text, such as 12:30:00",
    "duration": "a duration as text, such as P1DT2H",
}
_TYPE_NAMES = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


class SchemaArguments:
    """Arguments described by a given JSON Schema. Validation is shallow: names, and the types of members.

    Whoever wrote the schema also runs the tool and checks the rest.

    Raises:
        ToolDefinitionError: it is not the JSON Schema of an object.
    """

    __slots__ = ("_hints", "_label", "parameters")

    def __init__(self, schema: Mapping[str, object], label: str) -> None:
        import json

        self._label = label
        try:
            copy = json.loads(json.dumps(dict(schema), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolDefinitionError(f"{label}: `parameters` is not a JSON Schema: {error}") from error
        if copy.setdefault("type", "object") != "object" or not isinstance(copy.setdefault("properties", {}), dict):
            raise ToolDefinitionError(f"{label}: `parameters` must be the JSON Schema of an object.")
        self.parameters: dict[str, JsonValue] = copy
        self._hints = {}
        for name, item in copy["properties"].items():
            try:
                self._hints[name] = Hint(item, copy)
            except (TypeError, RecursionError) as error:
                raise ToolDefinitionError(
                    f"{label}: the schema of parameter {name!r} is not a JSON Schema: {error}"
                ) from error

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The arguments, with JSON text opened where an array or an object is wanted.

        Raises:
            ToolArgumentsError: one is missing, unknown or of another type.
        """
        wanted = self.parameters.get("required")
        required = wanted if isinstance(wanted, list) else []
        problems = {str(name): f"{name}: is required" for name in required if name not in arguments}
        closed = self.parameters.get("additionalProperties") is False
        bound: dict[str, object] = {}
        for name, value in arguments.items():
            hint = self._hints.get(name)
            if hint is None and closed:
                known = f"accepted are {', '.join(self._hints)}" if self._hints else "no arguments are accepted"
                problems[name] = f"{name} is not known; {known}"
                continue
            bound[name] = copied(value)
            if hint is not None:
                bound[name] = hint.prepare(name, bound[name], problems)
                hint.check(name, bound[name], problems)
        if problems:
            raise ToolArgumentsError(list(problems.values()))
        return bound


class Hint:
    """What the schema of one parameter accepts, as far as it matters before validation."""

    __slots__ = ("choices", "opens", "temporal", "types")

    def __init__(self, item: object, root: Mapping[str, Any]) -> None:
        types, formats, choices = _accepted(item, root, 0)
        self.types = types
        self.choices = choices
        self.opens = bool(types & {"array", "object"}) and not types & {"string", "any"}
        self.temporal = ""
        if types <= {"string", "null"} and formats and formats <= _TEMPORAL.keys():
            self.temporal = " or ".join(_TEMPORAL[name] for name in sorted(formats))

    def prepare(self, name: str, value: object, problems: dict[str, str]) -> object:
        """`value`, opened if it is JSON text for a container. A number is no date: it would become one in 1970."""
        if self.opens and isinstance(value, str):
            import json

            try:
                opened = json.loads(value)
            except (ValueError, RecursionError):
                return value
            return opened if isinstance(opened, (list, dict)) or opened is None else value
        number = isinstance(value, (int, float)) or (isinstance(value, str) and _is_number(value))
        if self.temporal and number:
            problems[name] = f"{name}: expected {self.temporal}, got {shown(value)}"
        return value

    def check(self, name: str, value: object, problems: dict[str, str]) -> None:
        """Compare the type of `value`, and the value with the choices there are."""
        if self.choices is not None and value not in self.choices:
            problems[name] = f"{name}: expected one of {', '.join(map(shown, self.choices))}, got {shown(value)}"
        elif "any" not in self.types and not self.types & _types_of(value):
            expected = " or ".join(_TYPE_NAMES[kind] for kind in sorted(self.types) if kind in _TYPE_NAMES)
            problems[name] = f"{name}: expected {expected}, got {shown(value)}"


def _accepted(item: object, root: Mapping[str, Any], depth: int) -> tuple[set[str], set[str], list[Any] | None]:
    """Types, string formats and choices that a schema accepts; the type "any" where it does not say."""
    if not isinstance(item, dict) or depth > 20:
        return {"any"}, set(), None
    if "$ref" in item:
        target: Any = root
        for step in str(item["$ref"]).split("/")[1:]:
            target = target.get(step) if isinstance(target, dict) else None
        return _accepted(target, root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(item.get(key), list):
            branches = [_accepted(branch, root, depth + 1) for branch in item[key]]
            types: set[str] = set().union(*(branch[0] for branch in branches))
            formats: set[str] = set().union(*(branch[1] for branch in branches))
            lists = [[None] if branch[0] == {"null"} else branch[2] for branch in branches]
            merged = [choice for options in lists for choice in options or ()]
            return types, formats, None if None in lists else merged
    choices = item["enum"] if isinstance(item.get("enum"), list) else [item["const"]] if "const" in item else None
    kind = item.get("type")
    if kind is None:
        types = set().union(*map(_types_of, choices)) if choices else {"any"}
    else:
        kinds = [kind] if isinstance(kind, str) else kind
        if not isinstance(kinds, list) or not all(isinstance(one, str) for one in kinds):
            raise TypeError(f"`type` is {kind!r}, neither the name of a type nor a list of such names")
        types = set(kinds)
    # A string without a format stands for itself, so that "any text" is not taken for a date.
    return types, {item.get("format", "text")} if "string" in types else set(), choices


def _types_of(value: object) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, (int, float)):
        return {"number", "integer"} if isinstance(value, int) or value.is_integer() else {"number"}
    return {"string"} if isinstance(value, str) else {"array"} if isinstance(value, (list, tuple)) else {"object"}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def copied(value: Any) -> Any:
    """A copy, so that a tool that changes its arguments does not change the history."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value
