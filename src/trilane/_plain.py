"""Values as plain JSON that every store can keep, and every reader can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .messages import clean_text

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["clean_json", "is_json", "plain_json"]


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
        TypeError: there is something in it that JSON cannot express.
    """
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return clean_text(value)
    from pydantic_core import to_jsonable_python

    try:
        plain: JsonValue = clean_json(to_jsonable_python(value))
    except Exception as error:  # also whatever a property or a serialiser of somebody raises
        raise TypeError(f"must be something that JSON can express: {error}") from None
    return plain
