"""Values as plain JSON that every store can keep, and every reader can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .messages import clean_text

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["DEEPEST", "NOT_FINITE", "TOO_DEEP", "clean_json", "is_finite", "is_json", "is_too_deep", "plain_json"]

#: Levels of lists and objects in one value. A reader of JSON takes 200, and a record adds some of its own.
DEEPEST = 100

TOO_DEEP = f"nested more than {DEEPEST} levels deep"

NOT_FINITE = "a number that JSON cannot express, such as NaN"

_CONTAINERS = (dict, list, tuple)


def is_too_deep(value: Any) -> bool:
    """True if no store could read the value back: its lists and objects are nested more than `DEEPEST` levels deep."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(DEEPEST):
        inner: dict[int, Any] = {}  # by identity: what occurs in many places is looked at once for each level
        for one in level:
            for item in one.values() if isinstance(one, dict) else one:
                if isinstance(item, _CONTAINERS):
                    inner[id(item)] = item
        if not inner:
            return False
        level = list(inner.values())
    return True


def is_finite(value: Any) -> bool:
    """False if a number in it is infinite or NaN, which JSON has no words for: what is stored would be null."""
    if isinstance(value, float):
        return value - value == 0
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return all(map(is_finite, value)) if isinstance(value, (list, tuple)) else True


def clean_json(value: Any) -> Any:
    """A JSON value with `clean_text` applied to every text and key."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): clean_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([clean_json(item) for item in value])
    return value


def is_json(value: Any) -> bool:
    """True if it consists of nothing but what a JSON parser makes."""
    if type(value) is dict:
        return all(type(key) is str and is_json(item) for key, item in value.items())
    if type(value) is list:
        return all(map(is_json, value))
    return value is None or type(value) in (str, int, float, bool)


def plain_json(value: Any) -> JsonValue:
    """A value as JSON, made of what pydantic can write as JSON.

    Raises:
        TypeError: there is something in it that JSON cannot express, or it is nested too deeply.
    """
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return clean_text(value)
    from pydantic_core import to_jsonable_python

    if is_too_deep(value):
        raise TypeError(f"must not be {TOO_DEEP}")
    try:
        plain: JsonValue = clean_json(to_jsonable_python(value))
    except Exception as error:  # also whatever a property or a serialiser of somebody raises
        raise TypeError(f"must be something that JSON can express: {error}") from None
    if is_too_deep(plain):  # a model or a dataclass was in it
        raise TypeError(f"must not be {TOO_DEEP}")
    return plain
