"""Fills the arguments of one tool from what a clause mentions, guided by names, descriptions and types of parameters.

Whether the tool is the right one is decided in `plan.py`.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .entities import Entity, is_file
from .schema import Schema, accepts, as_schema, properties, required_names, resolve, types_of
from .words import stem, tokens, word_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import JsonValue

    from trilane.models import ToolSpec

__all__ = ["MOST_CALLS", "Filled", "Parameter", "Role", "fill", "parameters_of"]

Role = Literal[
    "glob", "file", "folder", "text", "expression", "url", "email", "date", "count", "start", "number", "flag", "other"
]  # fmt: skip

MOST_CALLS = 16
"""Calls one clause may lead to; the rest is left out and named in the answer."""

_ROLE_NAMES: tuple[tuple[Role, frozenset[str]], ...] = (
    ("expression", word_set("expression expr formula calculation equation")),
    ("url", word_set("url uri link href")),
    ("email", word_set("email recipient to")),
    ("date", word_set("date day")),
    ("glob", word_set("pattern glob include mask wildcard")),
    ("folder", word_set("folder directory dir root under within cwd base")),
    ("file", word_set("path file filename filepath document")),
    (
        "text",
        word_set("text query q search needle term keyword keywords phrase string substring regex word topic question"),
    ),
)  # fmt: skip
_COUNT_NAMES = word_set("limit max top head lines count n num number amount results most")
_START_NAMES = word_set("offset start from first line begin skip")
_MOST_PARAMETERS = 64
_SCALAR = r"\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|`[^`\n]{0,500}`|[^\s,;)\"'`]{1,200}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool: its name, schema, JSON types, and the role its words suggest."""

    name: str
    schema: Schema
    types: frozenset[str]
    required: bool
    role: Role
    words: frozenset[str]

    @property
    def is_list(self) -> bool:
        """Whether it takes several values at once."""
        return "array" in self.types and "string" not in self.types


@dataclass(slots=True)
class Filled:
    """What `fill` made of a clause.

    Attributes:
        calls: The arguments of each call, valid for the tool's schema; empty if it cannot be called.
        missing: Required parameters for which the clause has nothing.
        used: What of the clause went into arguments.
        problem: Why there are no calls although nothing is missing.
        left_out: Calls beyond `MOST_CALLS`.
    """

    calls: list[dict[str, JsonValue]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    used: set[Entity] = field(default_factory=set)
    problem: str = ""
    left_out: int = 0


def parameters_of(tool: ToolSpec) -> tuple[Parameter, ...]:
    """The parameters of a tool, required ones first, otherwise in their order."""
    root = as_schema(tool.parameters)
    required = required_names(root)
    found = dict(itertools.islice(properties(root, root).items(), _MOST_PARAMETERS))
    for name in required:
        found.setdefault(name, {})
    listed = [_parameter(name, schema, root, name in required) for name, schema in found.items()]
    return tuple(sorted(listed, key=lambda parameter: not parameter.required))


def _parameter(name: str, schema: Schema, root: Schema, required: bool) -> Parameter:
    types = types_of(schema, root)
    description = schema.get("description")
    text = description[:400] if isinstance(description, str) else ""
    words = frozenset(map(stem, tokens(text)))
    return Parameter(name, schema, types, required, _role(name, text.lower(), schema, root, types), words)


def _role(name: str, description: str, schema: Schema, root: Schema, types: frozenset[str]) -> Role:
    names = frozenset(tokens(name))
    if "array" in types:
        items = resolve(schema.get("items"), root)
        types = types_of(items, root) or frozenset({"string"})
        names = names | frozenset(map(_singular, names))
    if "boolean" in types:
        return "flag"
    if types and not types & {"string", "object"}:
        if names & _START_NAMES and not names & {"max"}:
            return "start"
        return "count" if names & _COUNT_NAMES else "number"
    if types and "string" not in types:
        return "other"
    return _role_by_description(_role_by_name(names, schema.get("format")), description)


def _role_by_name(names: frozenset[str], form: object) -> Role:
    if form == "uri":
        return "url"
    if form == "email" or form == "date":
        return "email" if form == "email" else "date"
    for role, known in _ROLE_NAMES:
        if names & known:
            return role
    return "other"


def _role_by_description(role: Role, description: str) -> Role:
    if role == "glob" and "glob" not in description and ("regular expression" in description or "regex" in description):
        return "text"
    if role == "file" and "file" not in description and ("folder" in description or "directory" in description):
        return "folder"
    return role


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") else word


def fill(tool: ToolSpec, text: str, entities: Sequence[Entity]) -> Filled:
    """Arguments for calls of `tool` from the clause `text` and what it mentions."""
    filled = Filled()
    root = as_schema(tool.parameters)
    listed = parameters_of(tool)
    explicit = _explicit(listed, text, root)
    choices: dict[str, list[JsonValue]] = {name: [value] for name, value in explicit.items()}
    if explicit:  # what stands in name=value is used up, whatever it looked like
        spoken = {str(value) for value in explicit.values()}
        filled.used.update(entity for entity in entities if _plain(entity) in spoken)
    open_parameters = [parameter for parameter in listed if parameter.name not in explicit]
    _fill_numbers(open_parameters, entities, filled, choices)
    for parameter in open_parameters:
        if parameter.name not in choices:
            values = _values(parameter, tool, text, entities, filled)
            if values:
                choices[parameter.name] = values
    for parameter in open_parameters:
        if parameter.required and parameter.name not in choices:
            value = _only_value(parameter)
            if value is None:
                filled.missing.append(parameter.name)
            else:
                choices[parameter.name] = [value]
    if not filled.missing and not filled.problem:
        _combine(choices, root, listed, filled)
    return filled


def _plain(entity: Entity) -> str:
    return str(entity.numbers[0]) if entity.kind == "number" else entity.text


def _combine(choices: dict[str, list[JsonValue]], root: Schema, listed: Sequence[Parameter], filled: Filled) -> None:
    """All combinations of the chosen values that the schema accepts."""
    required = {parameter.name for parameter in listed if parameter.required}
    schemas = {parameter.name: parameter.schema for parameter in listed}
    for name in list(choices):
        good = [value for value in choices[name] if accepts(schemas.get(name, {}), value, root)]
        if good:
            choices[name] = good
        elif name in required:
            filled.problem = f"{name}={json.dumps(choices[name][0], ensure_ascii=False)} is not a value it accepts"
            return
        else:
            del choices[name]
    total = 1
    for values in choices.values():
        total *= len(values)
    filled.left_out = max(0, total - MOST_CALLS)
    for combination in itertools.islice(itertools.product(*choices.values()), MOST_CALLS):
        arguments = dict(zip(choices, combination, strict=True))
        if accepts(root, arguments, root):
            filled.calls.append(arguments)
    if not filled.calls:
        filled.problem = "the arguments found do not fit its parameters"


def _explicit(listed: Sequence[Parameter], text: str, root: Schema) -> dict[str, JsonValue]:
    """Arguments written as `name=value` or `name: value`."""
    found: dict[str, JsonValue] = {}
    for parameter in listed:
        name = re.escape(parameter.name)
        match = re.search(rf"(?<![\w.]){name}\s{{0,3}}(?:=|:\s)\s{{0,3}}({_SCALAR})", text)
        if match is None:
            continue
        raw = match[1]
        quoted = len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'`"
        value = raw[1:-1] if quoted else raw.rstrip(".?!")
        for candidate in _readings(value, parameter, quoted=quoted):
            if accepts(parameter.schema, candidate, root):
                found[parameter.name] = candidate
                break
    return found


def _readings(value: str, parameter: Parameter, *, quoted: bool) -> list[JsonValue]:
    text: JsonValue = value
    if quoted:
        return [text]
    try:
        read: JsonValue = json.loads(value.lower() if value in ("True", "False", "None") else value)
    except (ValueError, RecursionError):
        return [text, [text]]
    if isinstance(read, float) and (read != read or read in (float("inf"), float("-inf"))):
        return [text]
    return [text, read, [text]] if "string" in parameter.types else [read, text, [read], [text]]


def _only_value(parameter: Parameter) -> JsonValue:
    """The value of a required parameter that leaves no choice, else None."""
    if isinstance(parameter.schema.get("const"), str | int | float):
        return parameter.schema["const"]
    values = parameter.schema.get("enum")
    return values[0] if isinstance(values, list) and len(values) == 1 else None


# Numbers


def _fill_numbers(
    listed: Sequence[Parameter], entities: Sequence[Entity], filled: Filled, choices: dict[str, list[JsonValue]]
) -> None:
    numeric = [p for p in listed if p.types and p.types <= {"integer", "number", "null"}]
    lists = [p for p in listed if p.is_list and p.role in ("number", "count", "start")]
    _fill_span(numeric, entities, filled, choices)
    _fill_by_unit(numeric, entities, filled, choices)
    left = [entity for entity in entities if entity.numbers and entity.kind != "span" and entity not in filled.used]
    numbers = [number for entity in left for number in entity.numbers]
    required = [p for p in numeric if p.required and p.name not in choices]
    if required and numbers:
        optional = [p for p in numeric if not p.required and p.name not in choices and p.role == "number"]
        if len(numbers) > len(required) + len(optional):
            filled.problem = f"it takes {len(required) + len(optional)} numbers and the request has {len(numbers)}"
            return
        for parameter, number in zip(required + optional, numbers, strict=False):
            choices[parameter.name] = [_as_wanted(number, parameter)]
        filled.used.update(left)
    elif lists and numbers and lists[0].name not in choices:
        choices[lists[0].name] = [list(numbers)]
        filled.used.update(left)


def _as_wanted(number: int | float, parameter: Parameter) -> JsonValue:
    whole = isinstance(number, float) and number.is_integer() and "number" not in parameter.types
    return int(number) if whole else number


def _fill_span(
    numeric: Sequence[Parameter], entities: Sequence[Entity], filled: Filled, choices: dict[str, list[JsonValue]]
) -> None:
    """ "lines 5 to 10": a start, and how many (or an end)."""
    span = next((entity for entity in entities if entity.kind == "span"), None)
    start = next((p for p in numeric if p.role == "start" and _of_lines(p)), None)
    if span is None or start is None:
        return
    end = next((p for p in numeric if {"end", "last", "until", "stop", "to"} & set(tokens(p.name))), None)
    count = next((p for p in numeric if p.role == "count" and _of_lines(p)), None)
    choices[start.name] = [span.numbers[0]]
    filled.used.add(span)
    if len(span.numbers) > 1 and end is not None:
        choices[end.name] = [span.numbers[1]]
    elif len(span.numbers) > 1 and count is not None:
        choices[count.name] = [max(1, int(span.numbers[1]) - int(span.numbers[0]) + 1)]


def _of_lines(parameter: Parameter) -> bool:
    return "lin" in parameter.words or "lin" in map(stem, tokens(parameter.name))


def _fill_by_unit(
    numeric: Sequence[Parameter], entities: Sequence[Entity], filled: Filled, choices: dict[str, list[JsonValue]]
) -> None:
    """ "the first 5 lines", "3 results": a number with its noun, for the parameter that counts these."""
    for entity in entities:
        if entity.kind != "number" or entity.lead == "last" or not (entity.unit or entity.lead in ("first", "top")):
            continue
        fitting = [
            p for p in numeric
            if p.name not in choices and (p.role == "count" or not p.required)
            and (entity.unit in p.words or entity.unit in map(stem, tokens(p.name)))
            and p.role != "start"
        ]  # fmt: skip
        fitting.sort(key=lambda p: p.role != "count")
        if not fitting and entity.lead in ("first", "top"):
            fitting = [p for p in numeric if p.name not in choices and p.role == "count" and not _of_lines(p)]
        if fitting:
            choices[fitting[0].name] = [_as_wanted(entity.numbers[0], fitting[0])]
            filled.used.add(entity)


# Everything else


def _values(
    parameter: Parameter, tool: ToolSpec, text: str, entities: Sequence[Entity], filled: Filled
) -> list[JsonValue]:
    """What the clause has for one parameter: several values for several calls, a list in a list for a list."""
    if parameter.role == "flag":
        return _flag(parameter, text, entities)
    if parameter.role in ("count", "start", "number"):
        return []
    chosen = _choice(parameter, text) or _named(parameter, text)
    if chosen:
        return list(chosen)
    texts, used = _texts(parameter, tool, text, [entity for entity in entities if entity not in filled.used])
    filled.used.update(used)
    values: list[JsonValue] = list(dict.fromkeys(texts))
    return [values] if parameter.is_list and values else values


def _flag(parameter: Parameter, text: str, entities: Sequence[Entity]) -> list[JsonValue]:
    lowered = text[:4000].lower()
    names = tokens(parameter.name)
    if (
        "case" in names
        and {"ignore", "insensitive"} & set(names)
        and any(entity.lead == "about" for entity in entities)
    ):
        return [True]  # "what does it say about lanes": a topic, not a spelling
    wanted, said = [stem(name) for name in names], [stem(word) for word in tokens(lowered)]
    if "regex" in names:
        said = [*said, "regex"] if "regular expression" in lowered else said
    for start in range(len(said) - len(wanted) + 1):
        if said[start : start + len(wanted)] == wanted and wanted:
            return [start == 0 or said[start - 1] not in ("not", "no", "without", "non")]
    return []


def _choice(parameter: Parameter, text: str) -> list[JsonValue]:
    """A value of an enumeration that the clause names."""
    values = parameter.schema.get("enum")
    if not isinstance(values, list):
        return []
    lowered = text.lower()
    for value in values[:64]:
        if (
            isinstance(value, str)
            and len(value) > 1
            and re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", lowered)
        ):
            return [value]
    return []


def _named(parameter: Parameter, text: str) -> list[JsonValue]:
    """The word after the parameter's name: "city Paris"."""
    if parameter.role not in ("other", "date") or len(parameter.name) < 3:
        return []
    name = r"[\s_-]".join(map(re.escape, tokens(parameter.name)))
    match = re.search(rf"\b{name}\s+(?:is\s+|of\s+|named\s+)?({_SCALAR})", text, re.I) if name else None
    if match is None:
        return []
    word = match[1].strip("\"'`").rstrip(".?!,")
    common = word.lower() in ("in", "of", "for", "is", "and", "the", "to", "at", "a", "with", "from", "by")
    return [] if common or not word else [word]


def _texts(
    parameter: Parameter, tool: ToolSpec, text: str, entities: Sequence[Entity]
) -> tuple[list[str], list[Entity]]:
    by_kind: dict[str, list[Entity]] = {}
    for entity in entities:
        by_kind.setdefault(entity.kind, []).append(entity)
    role = parameter.role
    if role in ("url", "email", "date", "expression"):
        used = by_kind.get(role, [])
        return [entity.text for entity in used], used
    if role == "glob":
        return _globs(parameter, tool, text, by_kind)
    if role in ("file", "folder"):
        return _paths(parameter, by_kind)
    return _free_text(parameter, by_kind)


def _globs(
    parameter: Parameter, tool: ToolSpec, text: str, by_kind: dict[str, list[Entity]]
) -> tuple[list[str], list[Entity]]:
    deep = _deep(parameter, tool)
    used = [*by_kind.get("glob", []), *by_kind.get("type", [])]
    found = [value for entity in used for value in (entity.values or (entity.text,))]
    others = parameters_of(tool)
    if any(p.role in ("file", "folder") for p in others):
        if not found and not by_kind.get("quoted") and not any(p.role == "text" for p in others):
            # A name to look for. It stays unused, so that a tool that reads the file itself fits better.
            found, used = [entity.text for entity in by_kind.get("path", []) if is_file(entity)], []
        return [deep + glob if _is_bare(glob) else glob for glob in found], used
    places = by_kind.get("path", [])
    folders = [entity for entity in places if not is_file(entity)]
    files = [entity for entity in places if is_file(entity)]
    if found and folders:
        joined = [f"{folder.text.rstrip('/')}/{deep}{glob}" for folder in folders for glob in found]
        return joined, used + folders
    if found:
        return [deep + glob if _is_bare(glob) else glob for glob in found], used
    if folders and parameter.required:
        return [f"{folder.text.rstrip('/')}/{deep}*" for folder in folders], folders
    if files:
        return [entity.text for entity in files], files
    if parameter.required and re.search(r"\b(?:files?|everything|all)\b", text, re.I):
        return [f"{deep}*"], []
    return [], []


def _is_bare(glob: str) -> bool:
    """Whether a glob names no folder, so that its depth is open."""
    return "/" not in glob


def _deep(parameter: Parameter, tool: ToolSpec) -> str:
    """The prefix that makes a bare pattern match in every folder, where the tool needs one."""
    description = parameter.schema.get("description")
    about = f"{description if isinstance(description, str) else ''} {tool.description[:2000]}".lower()
    if "any depth" in about or "recursive" in about:
        return ""
    default = parameter.schema.get("default")
    return "**/" if "**" in about or (isinstance(default, str) and "**" in default) else ""


def _paths(parameter: Parameter, by_kind: dict[str, list[Entity]]) -> tuple[list[str], list[Entity]]:
    used = [entity for entity in by_kind.get("path", []) if parameter.role == "file" or not is_file(entity)]
    if parameter.required and not used and parameter.role == "file" and parameter.words & {"fil", "document"}:
        used = [entity for entity in by_kind.get("quoted", []) if "/" not in entity.text and len(entity.text) < 100]
    return [entity.text for entity in used], used


def _free_text(parameter: Parameter, by_kind: dict[str, list[Entity]]) -> tuple[list[str], list[Entity]]:
    if not parameter.required and parameter.role == "other":
        return [], []
    quoted = by_kind.get("quoted", [])
    if quoted:
        return [entity.text for entity in quoted], quoted
    kinds = ("topic", "name") if parameter.role == "text" else ("name", "topic", "email", "url", "date")
    if parameter.role != "text":
        kinds = (*kinds, "path")
    for kind in kinds:
        guesses = [guess for guess in by_kind.get(kind, []) if kind != "path" or guess.weak]
        if guesses and (parameter.required or kind == "topic"):
            return [_as_topic(guess) for guess in guesses], guesses
    return [], []


def _as_topic(entity: Entity) -> str:
    """The text to look for; what something is *about* also in the singular."""
    text = entity.text
    if entity.lead == "about" and " " not in text and len(text) > 4 and text.endswith("s") and text[-2] not in "sui":
        return text[:-1]
    return text
