"""The part of JSON Schema that tools and outputs use: types, required names, enumerations, bounds, local references.

Keywords it does not know are ignored. Never raises, whatever the schema looks like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["Schema", "accepts", "as_schema", "properties", "required_names", "resolve", "types_of"]

Schema = Mapping[str, "JsonValue"]

_DEEPEST = 24
_LONGEST_FOR_PATTERN = 1000
_NOTHING: Schema = {}


def as_schema(value: object) -> Schema:
    """`value` if it is a mapping, else the schema that allows everything."""
    return cast("Schema", value) if isinstance(value, Mapping) else _NOTHING


def resolve(schema: object, root: Schema) -> Schema:
    """`schema` with a local `$ref` followed; what cannot be found allows everything."""
    found = as_schema(schema)
    for _ in range(_DEEPEST):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        target: object = root
        for part in reference.removeprefix("#").strip("/").split("/"):
            if part:
                target = as_schema(target).get(part)
        found = as_schema(target)
    return _NOTHING


def properties(schema: Schema, root: Schema) -> dict[str, Schema]:
    """The named properties of an object schema, resolved, in their order."""
    inner = as_schema(schema.get("properties"))
    return {name: resolve(part, root) for name, part in inner.items() if isinstance(name, str)}


def required_names(schema: Schema) -> tuple[str, ...]:
    """The names an object must have."""
    names = schema.get("required")
    return tuple([name for name in names if isinstance(name, str)]) if isinstance(names, list | tuple) else ()


def types_of(schema: Schema, root: Schema, depth: int = 0) -> frozenset[str]:
    """The JSON types a value may have; empty if the schema does not say."""
    if depth > _DEEPEST:
        return frozenset()
    schema = resolve(schema, root)
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset([name for name in kind if isinstance(name, str)])
    values = schema.get("enum")
    if isinstance(values, list):
        return frozenset(map(_type_name, values))
    if "const" in schema:
        return frozenset({_type_name(schema["const"])})
    found: set[str] = set()
    for part in _parts(schema, "anyOf") + _parts(schema, "oneOf") + _parts(schema, "allOf"):
        found |= types_of(as_schema(part), root, depth + 1)
    return frozenset(found)


def accepts(schema: object, value: JsonValue, root: Schema | None = None, depth: int = 0) -> bool:
    """Whether `value` follows `schema`, as far as the keywords known here tell."""
    if isinstance(schema, bool):
        return schema
    root = as_schema(schema) if root is None else root
    found = resolve(schema, root)
    if depth > _DEEPEST:
        return False
    return (
        _fits_type(found.get("type"), value)
        and _fits_choice(found, value)
        and _fits_parts(found, value, root, depth)
        and _fits_bounds(found, value)
        and _fits_content(found, value, root, depth)
    )


def _parts(schema: Schema, keyword: str) -> list[JsonValue]:
    parts = schema.get(keyword)
    return parts if isinstance(parts, list) else []


def _type_name(value: JsonValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _fits_type(kind: object, value: JsonValue) -> bool:
    if isinstance(kind, list):
        return not kind or any(_fits_type(name, value) for name in kind if isinstance(name, str))
    if not isinstance(kind, str):
        return True
    name = _type_name(value)
    if kind == "number":
        return name in ("integer", "number")
    return name == kind


def _same(left: JsonValue, right: JsonValue) -> bool:
    return _type_name(left) == _type_name(right) and left == right


def _fits_choice(schema: Schema, value: JsonValue) -> bool:
    values = schema.get("enum")
    if isinstance(values, list) and not any(_same(value, allowed) for allowed in values):
        return False
    return "const" not in schema or _same(value, schema["const"])


def _fits_parts(schema: Schema, value: JsonValue, root: Schema, depth: int) -> bool:
    for keyword in ("anyOf", "oneOf"):
        parts = _parts(schema, keyword)
        if parts and not any(accepts(part, value, root, depth + 1) for part in parts):
            return False
    return all(accepts(part, value, root, depth + 1) for part in _parts(schema, "allOf"))


def _bound(schema: Schema, keyword: str) -> float | None:
    number = schema.get(keyword)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None


def _fits_bounds(schema: Schema, value: JsonValue) -> bool:
    if isinstance(value, bool) or value is None or isinstance(value, dict):
        return True
    if isinstance(value, int | float):
        size: float = value
        low, high = _bound(schema, "minimum"), _bound(schema, "maximum")
        above, below = _bound(schema, "exclusiveMinimum"), _bound(schema, "exclusiveMaximum")
        if (above is not None and size <= above) or (below is not None and size >= below):
            return False
    else:
        size = len(value)
        word = "Length" if isinstance(value, str) else "Items"
        low, high = _bound(schema, f"min{word}"), _bound(schema, f"max{word}")
    if (low is not None and size < low) or (high is not None and size > high):
        return False
    return _fits_pattern(schema.get("pattern"), value)


def _fits_pattern(pattern: object, value: JsonValue) -> bool:
    if not isinstance(pattern, str) or not isinstance(value, str):
        return True
    if len(value) > _LONGEST_FOR_PATTERN:
        return False
    try:
        return re.search(pattern, value) is not None
    except (re.error, RecursionError, OverflowError):
        return True  # not a pattern of Python: the tool itself will say


def _fits_content(schema: Schema, value: JsonValue, root: Schema, depth: int) -> bool:
    if isinstance(value, list):
        items = schema.get("items")
        return items is None or all(accepts(items, item, root, depth + 1) for item in value)
    if not isinstance(value, dict):
        return True
    if any(name not in value for name in required_names(schema)):
        return False
    known = properties(schema, root)
    others = schema.get("additionalProperties", True)
    return all(accepts(known.get(name, others), item, root, depth + 1) for name, item in value.items())
