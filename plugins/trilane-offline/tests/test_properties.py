"""What holds for every text, every tool and every result."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trilane.messages import (
    AssistantMessage,
    Delta,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from trilane.models import ModelRequest, ToolSpec
from trilane_offline.answer import compose, pieces
from trilane_offline.model import OfflineModel
from trilane_offline.plan import Plan, make_plan
from trilane_offline.results import Done
from trilane_offline.schema import accepts


def _words(text: str) -> list[str]:
    return text.split()


WORDS = _words(
    "how many words are in README.md and which Markdown files there 'a b' \"x\" *.py src/ list count read search for "
    "about each file it 5 2.5 1+2 first lines ; , ? . then delete not if add path=x what's LICENSE http://h.example/x"
)
texts = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    _words("path pattern query text limit offset a b city folder expression url regex unit mode files")
)
leaves = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"]).map(
        lambda kind: {"type": kind}
    ),
    st.sampled_from([["a", "b"], ["files"], [1, 2], []]).map(lambda values: {"enum": values}),
    st.just({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    st.just({"type": "integer", "minimum": 3}),
    st.just({"type": "array", "items": {"type": "string"}}),
    json_values,
)
schemas = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, leaves, max_size=4)},
        optional={"required": st.lists(names, max_size=3), "additionalProperties": st.booleans()},
    ),
    st.dictionaries(st.sampled_from(["type", "properties", "required", "$ref", "anyOf"]), json_values, max_size=3),
)
tools = st.lists(
    st.builds(
        ToolSpec,
        name=st.sampled_from(
            ["list_files", "count_words", "readFile", "search", "add", "delete_file", "get", "run", "x"]
        )
        | st.text(max_size=12),
        description=st.sampled_from(["", "List files.", "Count words of a file.", "Delete a file."])
        | st.text(max_size=40),
        parameters=schemas,
    ),
    max_size=5,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(texts, min_size=1, max_size=3), tools)
def test_only_tools_at_hand_are_called_with_arguments_they_accept(said: list[str], at_hand: list[ToolSpec]) -> None:
    plan = make_plan(said, at_hand)
    for call in plan.first_calls:
        assert any(tool.name == call.tool and accepts(tool.parameters, dict(call.arguments)) for tool in at_hand)
    assert make_plan(said, at_hand) == plan


results = st.builds(
    lambda content, data, outcome: ToolResult(call_id="1", content=content, data=data, outcome=outcome),
    st.text(max_size=60)
    | st.integers().map(str)
    | st.lists(st.sampled_from(["a.md", "b/c.md", "[x 1]"])).map("\n".join),
    json_values,
    st.sampled_from(["ok", "ok", "error", "denied", "timed_out"]),
)


@settings(max_examples=200, deadline=None)
@given(texts, tools, st.lists(results, max_size=3), st.none() | schemas, st.booleans())
def test_never_raises_whatever_is_said_and_returned(
    said: str, at_hand: list[ToolSpec], returned: list[ToolResult], schema: Any, steered: bool
) -> None:
    messages: list[Any] = [UserMessage(id="u", parts=(TextPart(text=said),))]
    calls = make_plan([said], at_hand).first_calls[: len(returned)]
    if calls:
        asked = [ToolCall(id=str(n), name=call.tool, arguments=call.arguments) for n, call in enumerate(calls)]
        messages.append(AssistantMessage(id="a", parts=tuple([ToolCallPart(call=call) for call in asked])))
        answers = [result.replace(call_id=call.id) for call, result in zip(asked, returned, strict=False)]
        messages.append(ToolMessage(id="t", results=tuple(answers)))
    if steered:
        messages.append(UserMessage(id="s", parts=(TextPart(text=f"and {said}"),), origin="steering"))
    request = ModelRequest(messages=messages, tools=tuple(at_hand), output_schema=schema)
    spoken: list[str] = []

    async def emit(delta: Delta) -> None:
        spoken.append(delta.text)

    response = asyncio.run(OfflineModel(installed=tuple).call(request, emit))
    assert response.stop_reason in ("end", "tool_calls", "refusal")
    assert (response.stop_reason == "tool_calls") == bool(response.parts)
    assert bool(spoken) == (response.stop_reason != "tool_calls")
    allowed = {tool.name for tool in at_hand}
    assert all(part.kind == "tool_call" and part.call.name in allowed for part in response.parts or ())


NUMBERS = re.compile(r"\d+")


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["alpha.md", "beta.md", "gamma.md"]), st.integers(0, 10**6), min_size=1),
    st.sampled_from(["how many words are in each Markdown file?", "which Markdown file has the most words?"]),
)
def test_numbers_in_an_answer_come_from_the_results(counts: dict[str, int], said: str) -> None:
    path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    pattern = {"type": "object", "properties": {"pattern": {"type": "string", "description": "Glob."}}}
    at_hand = (
        ToolSpec(name="list_files", description="List files.", parameters=pattern),
        ToolSpec(name="count_words", description="Count words of a file.", parameters=path),
    )
    plan = make_plan([said], at_hand)
    listing = plan.first_calls[0]
    done = [_done("list_files", dict(listing.arguments), "\n".join(counts))]
    done += [_done("count_words", {"path": name}, str(number)) for name, number in counts.items()]
    text = compose(plan, done, at_hand)
    known = {Decimal(number) for number in counts.values()} | {Decimal(sum(counts.values()))}
    assert {Decimal(number) for number in NUMBERS.findall(text)} <= known
    assert all(name in text for name in counts)
    if "most" in said and len(counts) > 1:
        best = max(counts.values())
        assert text.startswith("The most: ")
        assert all(name in text.split("\n", 1)[0] for name, number in counts.items() if number == best)


def _done(tool: str, arguments: dict[str, Any], content: str) -> Done:
    call = ToolCall(id=content, name=tool, arguments=arguments)
    return Done(call, ToolResult(call_id=content, content=content))


@given(st.text(min_size=1, max_size=30), st.sampled_from(["error", "denied", "interrupted"]))
def test_a_failure_is_never_told_as_a_result(reason: str, outcome: Any) -> None:
    call = ToolCall(id="1", name="count_words", arguments={"path": "a.md"})
    result = ToolResult(call_id="1", content=reason, outcome=outcome)
    text = compose(Plan(), [Done(call, result)], [])
    assert text.startswith('count_words(path="a.md") ')
    assert " has " not in text.replace(reason, "")


@given(st.text(max_size=3000))
def test_pieces_make_up_the_text(text: str) -> None:
    found = list(pieces(text))
    assert "".join(found) == text
    assert all(found)
    assert len(found) <= 202
