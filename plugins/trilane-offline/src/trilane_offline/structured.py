"""Output that follows a JSON Schema, put together from tool results by name and type. Nothing is guessed.

A field is found if exactly one value among the results fits its name and type; what is not found is left out, or
null, where the schema allows that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .fill import parameters_of
from .results import Done, items_of, number_of, text_of_result
from .schema import Schema, accepts, as_schema, properties, required_names, resolve, types_of
from .words import stem, tokens

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.models import ToolSpec

__all__ = ["NotFound", "build"]


class NotFound(Exception):
    """The results do not have what the schema asks for; the message names it."""


class _Named:
    """A value of a result under the words that name it."""

    __slots__ = ("value", "words")

    def __init__(self, words: frozenset[str], value: JsonValue) -> None:
        self.words = words
        self.value = value


def build(schema: Schema, done: Sequence[Done], tools: Sequence[ToolSpec]) -> JsonValue:
    """A value that follows `schema`.

    Raises:
        NotFound: the results do not determine one.
    """
    failed = [one for one in done if not one.ok]
    if failed:
        raise NotFound(f"{failed[0].call.name} gave no result: {text_of_result(failed[0].result)}")
    if not done:
        raise NotFound("no tool was called")
    root = as_schema(schema)
    value = _Builder(root, done, tools).value(root, "output")
    if not accepts(root, value, root):
        raise NotFound("what the tools returned does not follow the schema")
    return value


class _Builder:
    def __init__(self, root: Schema, done: Sequence[Done], tools: Sequence[ToolSpec]) -> None:
        self._root = root
        self._done = done
        self._roles = {tool.name: {p.name: p.role for p in parameters_of(tool)} for tool in tools}

    def value(self, schema: Schema, name: str) -> JsonValue:
        """The whole output, or the value of one field of it."""
        schema = resolve(schema, self._root)
        whole = [one.result.data for one in self._done if one.result.data is not None]
        if len(self._done) == 1 and len(whole) == 1 and self._is_whole(schema, whole[0]):
            return whole[0]
        kinds = types_of(schema, self._root)
        if "object" in kinds:
            return self._object(_object_schema(schema, self._root), [n for one in self._done for n in self._named(one)])
        if kinds == {"array"}:
            return self._array(schema, name)
        fitting = [value for one in self._done for value in self._readings(one) if accepts(schema, value, self._root)]
        return _only(fitting, name)

    def _is_whole(self, schema: Schema, value: JsonValue) -> bool:
        """Whether a result is the output as it stands, with no field the schema does not name."""
        named = properties(_object_schema(schema, self._root), self._root)
        return accepts(schema, value, self._root) and not (isinstance(value, dict) and set(value) - set(named))

    def _object(self, schema: Schema, values: Sequence[_Named]) -> JsonValue:
        required = required_names(schema)
        found: dict[str, JsonValue] = {}
        for name, inner in properties(schema, self._root).items():
            try:
                found[name] = self._field(name, inner, values)
            except NotFound:
                if name not in required:
                    continue
                if "null" not in types_of(inner, self._root):
                    raise
                found[name] = None
        if not found:
            raise NotFound("no field of the output is among the results")
        return found

    def _field(self, name: str, schema: Schema, values: Sequence[_Named]) -> JsonValue:
        words = frozenset(map(stem, tokens(name)))
        fitting = [v for v in values if accepts(schema, v.value, self._root) and v.value is not None]
        exact = [v.value for v in fitting if v.words == words]
        if exact:
            return _only(exact, name)
        near = [v.value for v in fitting if v.words & words]
        if near:
            return _only(near, name)
        kinds = types_of(schema, self._root)
        if kinds == {"array"}:
            return self._array(schema, name)
        if "object" in kinds:
            return self._object(_object_schema(schema, self._root), values)
        raise NotFound(f"no result is the field {name!r}")

    def _array(self, schema: Schema, name: str) -> JsonValue:
        """One object for each result, or the items of the only list."""
        items = resolve(schema.get("items"), self._root)
        if "object" in types_of(items, self._root):
            rows: list[JsonValue] = []
            for one in self._done:
                try:
                    rows.append(self._object(_object_schema(items, self._root), self._named(one)))
                except NotFound:
                    continue
            if rows:
                return rows
            raise NotFound(f"no results are the list {name!r}")
        lists: list[JsonValue] = []
        for one in self._done:
            found = one.result.data if isinstance(one.result.data, list) else list(items_of(one.result))
            value: JsonValue = list(found)
            if found and not number_of(one.result) and accepts(schema, value, self._root):
                lists.append(value)
        return _only(lists, name)

    def _named(self, one: Done) -> list[_Named]:
        """The values of one result and its arguments, under their names."""
        roles = self._roles.get(one.call.name, {})
        found: list[_Named] = []
        for name, argument in one.call.arguments.items():
            extra = {"path", "fil", "nam"} if roles.get(name) == "file" else set()
            found.append(_Named(frozenset({*map(stem, tokens(name)), *extra}), argument))
        tool = frozenset(map(stem, tokens(one.call.name)))
        data = one.result.data
        if isinstance(data, dict):
            found += [_Named(frozenset(map(stem, tokens(name))), value) for name, value in data.items()]
        found += [_Named(tool, value) for value in self._readings(one)]
        return found

    def _readings(self, one: Done) -> list[JsonValue]:
        """A result as data, as a list of lines, as text."""
        if one.result.data is not None:
            return [one.result.data]
        number = number_of(one.result)
        if number:
            return [float(number) if set(".eE") & set(number) else int(number)]
        lines: list[JsonValue] = list(items_of(one.result))
        return [text_of_result(one.result), lines]


def _object_schema(schema: Schema, root: Schema) -> Schema:
    """The object among the alternatives of a schema."""
    if "properties" in schema:
        return schema
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(keyword)
        for part in parts if isinstance(parts, list) else []:
            found = resolve(part, root)
            if "properties" in found:
                return found
    return schema


def _only(values: Sequence[JsonValue], name: str) -> JsonValue:
    """The one value there is."""
    different: list[JsonValue] = []
    for value in values:
        if value not in different:
            different.append(value)
    if len(different) != 1:
        raise NotFound(f"{'several results' if different else 'no result'} could be the field {name!r}")
    return different[0]
