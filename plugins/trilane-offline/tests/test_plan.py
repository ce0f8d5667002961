"""From words to calls."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trilane.models import ToolSpec
from trilane_offline.clauses import LOOKED_AT
from trilane_offline.plan import make_plan

Tools = tuple[ToolSpec, ...]


def planned(tools: Tools, *texts: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls to begin with."""
    return [(call.tool, dict(call.arguments)) for call in make_plan(texts, tools).first_calls]


def eaches(tools: Tools, *texts: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    """The second steps: tool, parameter, source tool, its arguments."""
    steps = make_plan(texts, tools).steps
    return [(e.tool, e.parameter, e.source.tool, dict(e.source.arguments)) for step in steps for e in step.each]


ONE_CALL = [
    ("How many words are in README.md?", "count_words", {"path": "README.md"}),
    ("words in README.md", "count_words", {"path": "README.md"}),
    ("use count_words on README.md", "count_words", {"path": "README.md"}),
    ('count_words(path="README.md")', "count_words", {"path": "README.md"}),
    ("which Markdown files are there?", "list_files", {"pattern": "*.md"}),
    ("list python files in plugins", "list_files", {"pattern": "*.py", "path": "plugins"}),
    ("list .cfg files", "list_files", {"pattern": "*.cfg"}),
    ("list src/**/*.py", "list_files", {"pattern": "src/**/*.py"}),
    ("How many files are in src?", "list_files", {"path": "src"}),
    ("what's in the docs folder?", "list_files", {"path": "docs"}),
    ("find README.md", "list_files", {"pattern": "README.md"}),
    ("list all files, including ignored", "list_files", {"include_ignored": True}),
    ("list files", "list_files", {}),
    ("search for 'hookimpl' in src", "search_text", {"query": "hookimpl", "path": "src"}),
    ("find NOTE in src", "search_text", {"query": "NOTE", "path": "src"}),
    ("where is hookimpl defined?", "search_text", {"query": "hookimpl"}),
    ("Which files mention 'pluggy'?", "search_text", {"query": "pluggy"}),
    ("search for 'foo' in Python files", "search_text", {"query": "foo", "pattern": "*.py"}),
    ("look for os.path in src", "search_text", {"query": "os.path", "path": "src"}),
    ("search for the regular expression 'a.*b' in README.md", "search_text",
     {"query": "a.*b", "path": "README.md", "regex": True}),
    ("what does README.md say about lanes?", "search_text",
     {"query": "lane", "path": "README.md", "ignore_case": True}),
    ("show me the first 5 lines of pyproject.toml", "read_file", {"path": "pyproject.toml", "limit": 5}),
    ("show lines 5 to 10 of README.md", "read_file", {"path": "README.md", "offset": 5, "limit": 6}),
    ("show line 3 of README.md", "read_file", {"path": "README.md", "offset": 3, "limit": 1}),
    ("what is in README.md?", "read_file", {"path": "README.md"}),
    ("Read 'my notes.txt'", "read_file", {"path": "my notes.txt"}),
    ("how big is LICENSE?", "file_info", {"path": "LICENSE"}),
    ("how many lines does README.md have?", "file_info", {"path": "README.md"}),
    ("When was README.md last modified?", "file_info", {"path": "README.md"}),
    ("is there a README.md?", "file_info", {"path": "README.md"}),
    ("add 2 and 3", "add", {"a": 2, "b": 3}),
    ("what is 2 + 3?", "add", {"a": 2, "b": 3}),
    ("add a=2 b=3", "add", {"a": 2, "b": 3}),
    ("multiply 2.5 by 4", "multiply", {"a": 2.5, "b": 4}),
    ("compute 3 * (4 + 5)", "evaluate", {"expression": "3 * (4 + 5)"}),
    ("weather in Paris", "get_weather", {"city": "Paris"}),
    ("what's the weather like in New York in fahrenheit?", "get_weather", {"city": "New York", "unit": "fahrenheit"}),
    ("email bob@example.org with subject 'Hi there'", "send_mail", {"to": "bob@example.org", "subject": "Hi there"}),
    ("please delete notes.txt", "delete_file", {"path": "notes.txt"}),
    ("can you delete notes.txt?", "delete_file", {"path": "notes.txt"}),
    ("I want you to delete notes.txt", "delete_file", {"path": "notes.txt"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tool", "arguments"), ONE_CALL, ids=[text for text, _, _ in ONE_CALL])
def test_one_call(file_tools: Tools, other_tools: Tools, text: str, tool: str, arguments: dict[str, Any]) -> None:
    assert planned((*file_tools, *other_tools), text) == [(tool, arguments)]


SEVERAL = [
    (
        "How many words are in README.md, and which Markdown files are there?",
        [("count_words", {"path": "README.md"}), ("list_files", {"pattern": "*.md"})],
    ),
    (
        "count words in README.md and LICENSE",
        [("count_words", {"path": "README.md"}), ("count_words", {"path": "LICENSE"})],
    ),
    (
        "open pyproject.toml; then how many words are in LICENSE",
        [("read_file", {"path": "pyproject.toml"}), ("count_words", {"path": "LICENSE"})],
    ),
    (
        "read README.md and count its words",
        [("read_file", {"path": "README.md"}), ("count_words", {"path": "README.md"})],
    ),
    (
        "count the words and tell me the size of README.md",
        [("count_words", {"path": "README.md"}), ("file_info", {"path": "README.md"})],
    ),
    ("list Markdown and Python files", [("list_files", {"pattern": "*.md"}), ("list_files", {"pattern": "*.py"})]),
    (
        "search for hookimpl and decide_tool in src",
        [
            ("search_text", {"query": "hookimpl", "path": "src"}),
            ("search_text", {"query": "decide_tool", "path": "src"}),
        ],
    ),
    ("multiply 2 by 4 and add 1 and 2", [("multiply", {"a": 2, "b": 4}), ("add", {"a": 1, "b": 2})]),
]


@pytest.mark.parametrize(("text", "calls"), SEVERAL, ids=[text for text, _ in SEVERAL])
def test_several_calls(
    file_tools: Tools, other_tools: Tools, text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    assert planned((*file_tools, *other_tools), text) == calls


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("How many words are in each Markdown file?", {"pattern": "*.md"}),
        ("how many words are in the Markdown files in docs", {"pattern": "*.md", "path": "docs"}),
        ("count the words of every file in docs", {"path": "docs"}),
        ("List the Markdown files and count the words in each", {"pattern": "*.md"}),
        ("Which Markdown file in docs has the most words?", {"pattern": "*.md", "path": "docs"}),
    ],
)
def test_a_set_of_files_takes_two_steps(file_tools: Tools, text: str, source: dict[str, Any]) -> None:
    assert eaches(file_tools, text) == [("count_words", "path", "list_files", source)]


FIRST = "How many words are in README.md, and which Markdown files are there?"


@pytest.mark.parametrize(
    ("texts", "calls"),
    [
        ((FIRST, "and in LICENSE?"), [("count_words", {"path": "LICENSE"})]),
        ((FIRST, "and in LICENSE?", "what about NOTICE?"), [("count_words", {"path": "NOTICE"})]),
        ((FIRST, "and Python files?"), [("list_files", {"pattern": "*.py"})]),
        (("search for 'tryfirst' in src", "and 'trylast'?"), [("search_text", {"query": "trylast", "path": "src"})]),
        (("How many words are in README.md?", "how big is it?"), [("file_info", {"path": "README.md"})]),
    ],
)
def test_follow_ups_take_what_they_leave_unsaid_from_before(
    file_tools: Tools, texts: tuple[str, ...], calls: list[tuple[str, dict[str, Any]]]
) -> None:
    assert planned(file_tools, *texts) == calls


def test_follow_up_on_a_listing_counts_in_each(file_tools: Tools) -> None:
    found = eaches(file_tools, "list python files in src", "count the words in each of them")
    assert found == [("count_words", "path", "list_files", {"pattern": "*.py", "path": "src"})]


@pytest.mark.parametrize(
    "text",
    [
        "how do I delete README.md?",
        "do not delete README.md",
        "don't read a.md and delete b.md",
        "if it rains, delete notes.txt",
        "when you are done, delete notes.txt",
        "I will delete notes.txt",
        "search for delete_file in src",
        "what is in notes.txt?",
        "should you delete notes.txt?",
        "what happens if I delete notes.txt?",
    ],
)
def test_what_changes_something_needs_a_plain_order(file_tools: Tools, other_tools: Tools, text: str) -> None:
    assert "delete_file" not in [tool for tool, _ in planned((*file_tools, *other_tools), text)]


def test_refused_order_is_explained(other_tools: Tools) -> None:
    (miss,) = make_plan(["how do I delete README.md?"], other_tools).misses
    assert miss.reason == "delete_file changes something, so it needs a plain order that begins with its verb"


@pytest.mark.parametrize("text", ["What is the capital of France?", "hello", "bake a cake", "", "   ", "?!"])
def test_nothing_fits(file_tools: Tools, other_tools: Tools, text: str) -> None:
    assert planned((*file_tools, *other_tools), text) == []


def test_missing_argument_is_named(file_tools: Tools) -> None:
    (miss,) = make_plan(["count words"], file_tools).misses
    assert miss.reason == "count_words fits, but the request does not say its `path`"


def test_too_many_numbers_are_not_dropped_in_silence(other_tools: Tools) -> None:
    (miss,) = make_plan(["add 2, 3 and 4"], other_tools).misses
    assert miss.reason == "add fits, but it takes 2 numbers and the request has 3"


def test_what_no_argument_took_is_said(file_tools: Tools) -> None:
    plan = make_plan(["which files are larger than 5 MB"], file_tools)
    assert plan.notes == ["I could not take this into account: 5 (in “which files are larger than 5 MB”)."]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Which file is the largest?", "largest"),
        ("Show the smallest file", "smallest"),
        ("List the biggest files", "biggest"),
    ],
)
def test_an_extreme_that_nothing_is_counted_for_is_said(file_tools: Tools, text: str, word: str) -> None:
    plan = make_plan([text], file_tools)
    assert [call.tool for call in plan.first_calls] == ["list_files"]
    assert plan.notes == [
        f"I did not look for the {word} (in “{text.rstrip('?')}”): I compare only what I count, "
        "as in “Which Markdown file has the most words?”."
    ]
    assert make_plan(["Which Markdown file has the most words?"], file_tools).notes == []


def test_a_list_parameter_takes_all_numbers() -> None:
    numbers = {"type": "array", "items": {"type": "number"}}
    tool = ToolSpec(
        name="sum_up",
        description="Sum numbers.",
        parameters={"properties": {"numbers": numbers}, "required": ["numbers"]},
    )
    assert planned((tool,), "sum 1, 2 and 3.5") == [("sum_up", {"numbers": [1, 2, 3.5]})]


def test_a_reference_in_a_schema_is_followed() -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"$ref": "#/$defs/Colour"}},
        "required": ["colour"],
        "$defs": {"Colour": {"type": "string", "enum": ["red", "dark blue"]}},
    }
    tool = ToolSpec(name="show_colour", description="Show a colour.", parameters=schema)
    assert planned((tool,), "show the colour dark blue") == [("show_colour", {"colour": "dark blue"})]
    assert planned((tool,), "show the colour green") == []


def test_patterns_reach_all_depths_where_the_tool_needs_it() -> None:
    pattern = {"type": "string", "description": "Glob such as src/**/*.py."}
    tool = ToolSpec(
        name="glob_files",
        description="List files.",
        parameters={"properties": {"pattern": pattern}, "required": ["pattern"]},
    )
    assert planned((tool,), "list Markdown files in docs/how-to") == [
        ("glob_files", {"pattern": "docs/how-to/**/*.md"})
    ]
    assert planned((tool,), "list all files") == [("glob_files", {"pattern": "**/*"})]


def test_calls_beyond_the_bound_are_counted(file_tools: Tools) -> None:
    plan = make_plan([f"count words in {' and '.join(f'a{n}.md' for n in range(20))}"], file_tools)
    assert len(plan.first_calls) == 16
    assert plan.notes[0] == "4 more calls of count_words were left out."


@pytest.mark.parametrize(
    "piece", ["x ", "a", "(", "1+", "'", "where is ", "in a and b ", "*.md and ", "line 5 ", "a.b/"]
)
def test_a_megabyte_is_no_trouble_and_is_said(file_tools: Tools, other_tools: Tools, piece: str) -> None:
    text = "how many words are in README.md? " + piece * (1_000_000 // len(piece))
    start = time.perf_counter()
    plan = make_plan([text], (*file_tools, *other_tools))
    assert time.perf_counter() - start < 2.0  # takes some 0.1 s; a quadratic step would take minutes
    assert plan.first_calls[0].tool == "count_words"
    assert plan.notes[-1] == f"I looked only at the first {LOOKED_AT} of the {len(text)} characters of the request."
