"""Stems and related words; the part of JSON Schema that is known."""

from __future__ import annotations

from typing import Any

import pytest

from trilane_offline.schema import accepts, types_of
from trilane_offline.words import related, starts_request, stem, tokens


@pytest.mark.parametrize(
    "words",
    [
        ["count", "counts", "counting", "counted"],
        ["file", "files"],
        ["size", "sizes", "sizing"],
        ["directory", "directories"],
        ["search", "searches", "searching"],
        ["modify", "modified", "modification"],
        ["multiply", "multiplied", "multiplication"],
        ["stop", "stopped", "stopping"],
        ["list", "lists", "listing"],
    ],
)
def test_forms_of_a_word_have_one_stem(words: list[str]) -> None:
    assert len({stem(word) for word in words}) == 1


@pytest.mark.parametrize("word", ["class", "string", "status", "is", "was", "a"])
def test_endings_that_belong_to_the_word_stay(word: str) -> None:
    assert stem(word) == word


def test_identifiers_fall_apart() -> None:
    assert tokens("countWords in read_file, don’t") == ["count", "words", "in", "read", "file", "don't"]


def test_related_words_are_mutual() -> None:
    assert "list" in related(stem("show"))
    assert "show" in related(stem("list"))
    assert related("zebra") == frozenset()


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("how many", True),
        ("then please list", True),
        ("its size", True),
        ("LICENSE", False),
        ("src", False),
        ("", False),
    ],
)
def test_beginnings_of_requests(text: str, starts: bool) -> None:
    assert starts_request(text) is starts


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, -3], [1.5, True, "1", None]),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 2}, [0, 1.5], [-1, 2]),
        ({"type": ["string", "null"]}, ["x", None], [1]),
        ({"enum": ["a", 1]}, ["a", 1], ["b", True]),
        ({"const": 3}, [3], [4]),
        ({"type": "string", "minLength": 2, "pattern": "^a"}, ["ab"], ["a", "ba"]),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, [[], ["x"]], [["x", "y"], [1]]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["x", 1], [1.5, []]),
        ({"type": "object", "required": ["a"], "additionalProperties": False, "properties": {"a": {}}},
         [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        ({"$ref": "#/$defs/T", "$defs": {"T": {"type": "boolean"}}}, [True], [1]),
        (False, [], [1, None]),
        (True, [1, None], []),
    ],
)  # fmt: skip
def test_accepts(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(accepts(schema, value) for value in good)
    assert not any(accepts(schema, value) for value in bad)


def test_references_in_a_circle_come_to_an_end() -> None:
    root: Any = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    assert types_of(root, root) == frozenset()
    tree: Any = {"anyOf": [{"$ref": "#"}], "type": "string"}
    assert not accepts(tree, "x")
