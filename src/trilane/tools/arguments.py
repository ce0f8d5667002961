"""Arguments as text from a model: parsing them, and saying what is wrong with them in words for the model.

Validation against a signature is in `schema.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trilane._plain import DEEPEST, TOO_DEEP, clean_json, is_too_deep
from trilane.errors import ToolError
from trilane.messages import clean_text

if TYPE_CHECKING:
    from pydantic import JsonValue, ValidationError

__all__ = ["ToolArgumentsError", "expectation", "parse_arguments", "shown"]

_MOST_PROBLEMS = 10
_LONGEST_VALUE = 60
_PHRASES = {
    "missing": "is required",
    "extra_forbidden": "is not known",
    **dict.fromkeys(("string_type", "bytes_type"), "expected text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected an integer"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "expected a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    "none_required": "expected null",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "expected an array"),
    **dict.fromkeys(("dict_type", "model_type", "dataclass_type", "model_attributes_type"), "expected an object"),
}


class ToolArgumentsError(ToolError):
    """The arguments of a call cannot be used; the tool was not run. The text is for the model.

    Attributes:
        problems: One line for each problem, with the name of the parameter.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = [f"- {problem}" for problem in self.problems[:_MOST_PROBLEMS]]
        if len(self.problems) > _MOST_PROBLEMS:
            lines.append(f"- and {len(self.problems) - _MOST_PROBLEMS} more")
        super().__init__("The arguments are not valid:\n" + "\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,)


def parse_arguments(raw: str) -> dict[str, JsonValue]:
    """The arguments of a call from the JSON text a model wrote.

    Nothing, white space and `null` are no arguments. Lone surrogates and NUL become U+FFFD, see `clean_text`.

    Raises:
        ToolArgumentsError: the text is not JSON (cut off, for example), not an object, or nested too deeply to be
            stored.
    """
    if not raw or raw == "{}" or raw.isspace():
        return {}
    import json

    try:
        value = json.loads(raw, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ToolArgumentsError([f"they are not valid JSON ({reason}); send one complete JSON object"]) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolArgumentsError([f"they must be one JSON object with a member for each parameter, got {shown(value)}"])
    if raw.count("[") + raw.count("{") > DEEPEST and is_too_deep(value):
        raise ToolArgumentsError([f"they are {TOO_DEEP}; send a flatter JSON object"])
    arguments: dict[str, JsonValue] = clean_json(value) if "\\u" in raw or not raw.isascii() else value
    return arguments


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    """A number; one so large that it would be infinite is none that could be stored, and read back as it was."""
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{shown(text)} is larger than a number can be")
    return number


def shown(value: object) -> str:
    """A value as short JSON, for a message."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    text = clean_text(text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def expectation(
    error: ValidationError, arguments: object, choices: Mapping[str, Sequence[object]], hidden: str = ""
) -> dict[str, str]:
    """The problems of a pydantic error in words for a model, by path: no class names, addresses or branch labels.

    Args:
        error: What validation said.
        arguments: What was validated.
        choices: The values a parameter takes, where there is a list of them.
        hidden: First step of a path that the model does not know of.
    """
    groups: dict[str, tuple[list[str], Any]] = {}
    for item in error.errors(include_url=False):
        steps = item["loc"][1:] if hidden and item["loc"][:1] == (hidden,) else item["loc"]
        path = _real_path(item["loc"], arguments, missing=item["type"] == "missing")
        path = path[len(item["loc"]) - len(steps) :]
        phrases, _ = groups.setdefault(_join(path), ([], item))
        phrase = _phrase(item)
        if phrase not in phrases:
            phrases.append(phrase)
    for name, (phrases, item) in groups.items():
        if name in choices:
            listed = f"one of {', '.join(map(shown, choices[name]))}"
            phrases[:] = [f"is required: {listed}" if item["type"] == "missing" else f"expected {listed}"]
    return {name: _problem(name, phrases, item) for name, (phrases, item) in groups.items()}


def _problem(path: str, phrases: list[str], item: Any) -> str:
    expected = [phrase[len("expected ") :] for phrase in phrases if phrase.startswith("expected ")]
    others = [phrase for phrase in phrases if not phrase.startswith("expected ")]
    text = "; ".join(([f"expected {' or '.join(expected)}"] if expected else []) + others)
    got = "" if item["type"] in ("missing", "extra_forbidden") else f", got {shown(item['input'])}"
    return f"{path}: {text}{got}" if path else text + got


def _phrase(item: Any) -> str:
    kind, message = item["type"], str(item["msg"])
    if kind in _PHRASES:
        return _PHRASES[kind]
    if kind in ("literal_error", "enum"):
        return f"expected one of {item['ctx']['expected']}"
    if kind in ("value_error", "assertion_error"):
        return message.partition(", ")[2] or message
    if kind.startswith(("greater_than", "less_than", "multiple_of")):
        return "must be " + message.removeprefix("Input should be ")
    for start in ("Input should be ", "Value should be ", "String should be ", "String should "):
        if message.startswith(start):
            verb = "text that should " if start == "String should " else ""
            return "expected " + verb + message[len(start) :].partition(", unable to parse")[0]
    return message[:1].lower() + message[1:]


def _real_path(steps: Sequence[int | str], value: Any, *, missing: bool) -> list[int | str]:
    """The steps that lead through the arguments; the others are labels of union branches."""
    path: list[int | str] = []
    for at, step in enumerate(steps):
        inside = step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))
        if inside:
            value = value[step]
        elif not (missing and at == len(steps) - 1):
            continue
        path.append(step)
    return path


def _join(path: Sequence[int | str]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
