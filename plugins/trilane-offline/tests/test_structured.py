"""Output that follows a schema, from results only."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

FILE = {
    "type": "object",
    "required": ["path", "words"],
    "properties": {"path": {"type": "string"}, "words": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("request_text", "schema", "value"),
    [
        ("count words in LICENSE", {"type": "integer"}, 170),
        (
            "How many words are in README.md, and which Markdown files are there?",
            {
                "type": "object",
                "required": ["words", "files"],
                "properties": {"words": {"type": "integer"}, "files": {"type": "array", "items": {"type": "string"}}},
            },
            {"words": 412, "files": ["README.md", "docs/guide.md"]},
        ),
        (
            "how many words are in each Markdown file?",
            {"type": "array", "items": {"$ref": "#/$defs/File"}, "$defs": {"File": FILE}},
            [{"path": "README.md", "words": 412}, {"path": "docs/guide.md", "words": 1500}],
        ),
        (
            "weather in Paris",
            {"type": "object", "required": ["temperature"], "properties": {"temperature": {"type": "number"}}},
            {"temperature": 21.5},
        ),
        (
            "count words in LICENSE",
            {
                "type": "object",
                "required": ["words", "mood"],
                "properties": {"words": {"type": "integer"}, "mood": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            },
            {"words": 170, "mood": None},
        ),
    ],
)
async def test_output_is_found_by_name_and_type(talk: Any, request_text: str, schema: Any, value: Any) -> None:
    assert json.loads(await talk.say(request_text, schema=schema)) == value
    assert talk.responses[-1].stop_reason == "end"


@pytest.mark.parametrize(
    ("request_text", "schema", "reason"),
    [
        (
            "count words in LICENSE",
            {"type": "object", "required": ["mood"], "properties": {"mood": {"type": "integer", "minimum": 1000}}},
            "no result is the field 'mood'",
        ),
        ("count words in LICENSE and README.md", {"type": "integer"}, "several results could be the field 'output'"),
        ("count words in nope.txt", {"type": "integer"}, "count_words gave no result: There is no 'nope.txt'."),
        ("tell me a joke", {"type": "string"}, "no tool was called"),
    ],
)
async def test_what_is_not_there_is_refused(talk: Any, request_text: str, schema: Any, reason: str) -> None:
    text = await talk.say(request_text, schema=schema)
    assert talk.responses[-1].stop_reason == "refusal"
    assert text.startswith(f"I am not an AI and cannot fill in the output that is asked for: {reason}.")
