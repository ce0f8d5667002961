"""What the model is asked, and how its JSON is read back. No engine is needed here."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilane.config import ModelSettings
from trilane.messages import (
    AssistantMessage,
    Delta,
    ImagePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from trilane.models import ModelRequest, ToolSpec
from trilane.testing.conversations import conversations
from trilane_local.prompting import prompt_of
from trilane_local.reading import Answer, EngineError

ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/N"}},
        "required": ["a", "b"],
        "$defs": {"N": {"type": "integer"}},
    },
)
NOW = ToolSpec(name="now", description="Say the time.", parameters={"type": "object", "properties": {}})


def user(text: str) -> UserMessage:
    return UserMessage(id="u", parts=(TextPart(text=text),))


# ---- asking ----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations(), with_tools=st.booleans(), context=st.sampled_from([(), ("Now.",), (" ",)]))
def test_any_conversation_becomes_a_valid_request(
    messages: list[Message], with_tools: bool, context: tuple[str, ...]
) -> None:
    request = ModelRequest(
        instructions="Be brief.", messages=messages, tools=(ADD,) if with_tools else (), context=context
    )
    prompt = prompt_of(request)
    json.dumps(prompt.messages).encode()
    roles = [message["role"] for message in prompt.messages]
    assert roles[0] == "system"
    assert roles[-1] == "user"
    assert all(one != other for one, other in pairwise(roles))
    assert all(message["content"].strip() for message in prompt.messages)
    sent = "\n".join(message["content"] for message in prompt.messages)
    for message in messages:
        if message.kind in ("user", "assistant"):
            for part in message.parts:
                if part.kind == "text" and part.text.strip():
                    assert part.text in sent
                if part.kind not in ("text", "tool_call", "citation"):
                    assert prompt.left_out


def test_tools_are_told_in_words_and_held_to_by_a_schema() -> None:
    prompt = prompt_of(ModelRequest(messages=[user("Add.")], tools=(ADD, NOW)))
    assert prompt.has_tools
    assert "- add: Add two numbers. Arguments: " in prompt.messages[0]["content"]
    schema = prompt.schema
    assert schema is not None
    assert [sorted(choice["properties"]) for choice in schema["anyOf"]] == [
        ["arguments", "tool"],
        ["arguments", "tool"],
        ["answer"],
    ]
    # Definitions stand at the top, where the grammar looks for them.
    assert schema["$defs"] == {"tool0_N": {"type": "integer"}}
    assert schema["anyOf"][0]["properties"]["arguments"]["properties"]["b"] == {"$ref": "#/$defs/tool0_N"}


def test_choices_of_tools() -> None:
    def choices(choice: str | None, turn: int = 1) -> list[str]:
        prompt = prompt_of(
            ModelRequest(
                messages=[user("Add.")], tools=(ADD, NOW), settings=ModelSettings(tool_choice=choice), turn=turn
            )
        )
        schema: Any = prompt.schema
        if schema is None:
            return []
        found = [one["properties"] for one in schema.get("anyOf", [schema])]
        return [one["tool"]["const"] if "tool" in one else "answer" for one in found]

    assert choices(None) == ["add", "now", "answer"]
    assert choices("none") == []
    assert choices("required") == ["add", "now"]
    assert choices("now") == ["now"]
    assert choices("required", turn=2) == ["add", "now", "answer"]


def test_calls_and_results_are_told() -> None:
    call = ToolCallPart(call=ToolCall(id="c", name="add", arguments={"a": 1, "b": 2}))
    result = ToolMessage(id="t", results=(ToolResult(call_id="c", content="3"),))
    prompt = prompt_of(ModelRequest(messages=[user("Add."), AssistantMessage(id="a", parts=(call,)), result]))
    assert prompt.messages[1] == {"role": "assistant", "content": '{"tool": "add", "arguments": {"a": 1, "b": 2}}'}
    assert prompt.messages[2] == {"role": "user", "content": "Result of add: 3"}


def test_what_it_cannot_see_is_named() -> None:
    said = AssistantMessage(id="a", parts=(ReasoningPart(text="Hm"), TextPart(text="b")))
    prompt = prompt_of(ModelRequest(messages=[UserMessage(id="u", parts=(ImagePart(data="aGk="),)), said, user("c")]))
    assert prompt.left_out == ["image: the model reads text only", "reasoning in a message of the model"]
    assert "image/png" in prompt.messages[0]["content"]


def test_a_schema_is_said_and_enforced() -> None:
    schema: Any = {"type": "object", "properties": {"age": {"type": "integer"}}}
    prompt = prompt_of(ModelRequest(messages=[user("a")], output_schema=schema))
    assert prompt.schema == schema
    assert json.dumps(schema) in prompt.messages[0]["content"]
    with_tools = prompt_of(ModelRequest(messages=[user("a")], output_schema=schema, tools=(NOW,)))
    assert with_tools.schema is not None
    assert with_tools.schema["anyOf"][1]["properties"]["answer"] == schema


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(*texts: str, finish: str = "stop", has_tools: bool = True) -> tuple[Answer, list[Delta]]:
    answer = Answer(has_tools=has_tools)
    deltas: list[Delta] = []
    for text in texts:
        deltas += answer.take({"choices": [{"delta": {"content": text}, "finish_reason": None}]})
    deltas += answer.take({"choices": [{"delta": {}, "finish_reason": finish}]})
    return answer, [*deltas, *answer.finish()]


@settings(deadline=None)
@given(text=st.text(), size=st.integers(1, 7), ascii=st.booleans())
def test_an_answer_is_shown_as_it_grows(text: str, size: int, ascii: bool) -> None:
    raw = json.dumps({"answer": text}, ensure_ascii=ascii)
    answer, deltas = read(*[raw[at : at + size] for at in range(0, len(raw), size)])
    assert all(delta.kind == "text" for delta in deltas)
    shown = "".join(delta.text for delta in deltas)
    assert shown.encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")
    assert answer.stop_reason == "end"


def test_a_call_is_read_at_its_end() -> None:
    answer, deltas = read('{"tool": "add", "argu', 'ments": {"a": 1, "b": 2}}')
    assert [(delta.kind, delta.name, delta.text) for delta in deltas] == [
        ("arguments", "add", ""),
        ("arguments", "", '{"a": 1, "b": 2}'),
    ]
    assert deltas[0].call_id.startswith("call_")
    assert answer.stop_reason == "tool_calls"


def test_a_call_that_was_cut_off_keeps_what_there_is() -> None:
    answer, deltas = read('{"tool": "add", "arguments": {"a": 1', finish="length")
    assert deltas[1].text == '{"a": 1'
    assert answer.stop_reason == "length"


def test_arguments_that_are_nested_too_deeply_are_for_the_run_to_refuse() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    answer, deltas = read('{"tool": "add", "arguments": {"a": ' + deep + "}}")
    assert deltas[0].name == "add"
    assert deep in deltas[1].text
    assert answer.stop_reason == "tool_calls"


def test_an_answer_that_is_no_text_is_its_json() -> None:
    _, deltas = read('{"answer": {"age": 3}}')
    assert [delta.text for delta in deltas] == ['{"age": 3}']


def test_without_tools_text_is_text() -> None:
    _, deltas = read('{"answer"', ": 1}", has_tools=False)
    assert [delta.text for delta in deltas] == ['{"answer"', ": 1}"]


def test_usage_and_errors() -> None:
    answer = Answer(has_tools=False)
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    assert list(answer.take({"choices": [], "usage": usage})) == []
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cache_read_tokens) == (5, 3, 4)
    with pytest.raises(EngineError) as caught:
        list(answer.take({"error": {"message": "no", "type": "x"}}))
    assert caught.value.error["type"] == "x"
