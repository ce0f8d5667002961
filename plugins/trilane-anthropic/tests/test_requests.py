"""What is asked: any conversation becomes a valid request, and what cannot be expressed is named."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilane.config import ModelSettings
from trilane.errors import ConfigError
from trilane.messages import (
    AssistantMessage,
    AudioPart,
    CitationPart,
    FilePart,
    ImagePart,
    Message,
    ReasoningPart,
    ServerToolPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from trilane.models import ModelRequest, ToolSpec
from trilane.testing.conversations import conversations
from trilane.testing.wire import check_request
from trilane_anthropic.conversion import NOTHING_SAID, convert
from trilane_anthropic.names import ToolNames, traits_of
from trilane_anthropic.parameters import WireRequest, wire_request
from trilane_anthropic.settings import AnthropicSettings

SEARCH = ToolSpec(name="search", description="Search.", parameters={"type": "object", "properties": {}})
PLAIN = AnthropicSettings(cache=False)
OWN: Any = {"anthropic": {}}


def user(text: str, number: str = "u1") -> UserMessage:
    return UserMessage(id=number, parts=(TextPart(text=text),))


def assistant(*parts: Any, number: str = "a1", **changes: Any) -> AssistantMessage:
    return AssistantMessage(id=number, parts=parts, **changes)


def called(call_id: str = "c1", name: str = "search", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(call=ToolCall(id=call_id, name=name, arguments=arguments))


def results(*pairs: tuple[str, str], number: str = "t1") -> ToolMessage:
    return ToolMessage(id=number, results=tuple(ToolResult(call_id=key, content=text) for key, text in pairs))


def wired(
    messages: list[Message], options: AnthropicSettings = PLAIN, model: str = "claude-sonnet-5", **changes: Any
) -> WireRequest:
    wire = wire_request(ModelRequest(messages=messages, **changes), model, options)
    assert check_request(json.loads(json.dumps(wire.body)), "anthropic") == []
    return wire


def blocks(wire: WireRequest) -> list[tuple[str, list[str]]]:
    """Role and types of blocks of each message."""
    return [(message["role"], [block["type"] for block in message["content"]]) for message in wire.body["messages"]]


# ---- properties ------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=conversations(),
    model=st.sampled_from(["claude-sonnet-5", "claude-3-5-haiku-latest"]),
    instructions=st.sampled_from(["", " ", "Be brief."]),
    context=st.sampled_from([(), ("Now.",), ("", " ")]),
    reasoning=st.sampled_from([None, "none", "high"]),
    schema=st.sampled_from([None, {"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "integer"}]),
    cache=st.booleans(),
)
def test_any_conversation_becomes_a_valid_request(
    messages: list[Message],
    model: str,
    instructions: str,
    context: tuple[str, ...],
    reasoning: str | None,
    schema: dict[str, Any] | None,
    cache: bool,
) -> None:
    request = ModelRequest(
        instructions=instructions,
        messages=messages,
        tools=(SEARCH,),
        context=context,
        output_schema=schema,
        settings=ModelSettings(reasoning=reasoning),
    )
    options = AnthropicSettings(cache=cache)
    before = copy.deepcopy(messages)
    wire = wire_request(request, model, options)
    sent = json.dumps(wire.body, ensure_ascii=False, allow_nan=False).encode()
    assert check_request(json.loads(sent), "anthropic") == []
    assert sent.count(b'"cache_control"') <= (4 if cache else 0)
    assert json.dumps(wire_request(request, model, options).body, ensure_ascii=False).encode() == sent
    assert messages == before
    _assert_nothing_is_lost(messages, wire)


def _assert_nothing_is_lost(messages: list[Message], wire: WireRequest) -> None:
    """Every text and every call is sent; what is not is named."""
    sent = json.dumps(wire.body, ensure_ascii=False)
    calls = 0
    for message in messages:
        if message.kind == "tool":
            continue
        texts = (
            [message.text] if message.kind == "system" else [part.text for part in message.parts if part.kind == "text"]
        )
        for text in texts:
            if text.strip():
                assert json.dumps(text.rstrip(), ensure_ascii=False)[1:-1] in sent
        if message.kind == "assistant":
            calls += len(message.calls)
            for part in message.parts:
                if part.kind == "reasoning" and part.text.strip() and part.extra is None:
                    assert "reasoning of another provider" in wire.left_out
    assert sum(block["type"] == "tool_use" for turn in wire.body["messages"] for block in turn["content"]) == calls


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations(), cut=st.integers(1, 12))
def test_a_longer_conversation_begins_with_the_request_of_a_shorter_one(messages: list[Message], cut: int) -> None:
    shorter = messages[: min(cut, len(messages))]
    if shorter[-1].kind == "assistant" and shorter[-1].calls:
        shorter = shorter[:-1]
    first = convert(shorter, ToolNames()).turns
    whole = convert(messages, ToolNames()).turns
    texts = [json.dumps(block) for role, content in first[:-1] for block in content]
    assert [json.dumps(block) for role, content in whole for block in content][: len(texts)] == texts


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations(), data=st.data())
def test_conversations_with_holes_become_valid_requests_too(messages: list[Message], data: st.DataObject) -> None:
    kept = [message for message in messages if data.draw(st.integers(0, 3)) > 0]
    wire = wire_request(ModelRequest(messages=kept), "claude-sonnet-5", PLAIN)
    assert check_request(json.loads(json.dumps(wire.body, allow_nan=False)), "anthropic") == []


# ---- order -----------------------------------------------------------------------------------------------------------


def test_neighbours_are_joined_and_results_come_first() -> None:
    wire = wired(
        [user("a"), assistant(called("c1"), called("c2")), results(("c1", "x"), ("c2", "")), user("b", "u2")],
        tools=(SEARCH,),
    )
    assert blocks(wire) == [
        ("user", ["text"]),
        ("assistant", ["tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "text"]),
    ]
    assert wire.body["messages"][2]["content"][1]["content"] == [{"type": "text", "text": "(no output)"}]
    assert wire.left_out == []


def test_calls_come_last_in_their_message() -> None:
    wire = wired([user("a"), assistant(called(), TextPart(text="late")), results(("c1", "x"))])
    assert blocks(wire)[1] == ("assistant", ["text", "tool_use"])


def test_a_result_that_failed_says_so() -> None:
    failed = ToolMessage(id="t", results=(ToolResult(call_id="c1", content="no", outcome="denied"),))
    result = wired([user("a"), assistant(called()), failed]).body["messages"][2]["content"][0]
    assert result["is_error"] is True


def test_calls_without_results_are_answered_for() -> None:
    wire = wired([user("a"), assistant(called()), user("b", "u2")])
    assert blocks(wire)[2] == ("user", ["tool_result", "text"])
    assert wire.left_out == ["calls without a result, which are answered for"]


def test_results_without_their_call_are_told_as_text() -> None:
    wire = wired([user("a"), results(("gone", "the value"))])
    assert blocks(wire) == [("user", ["text", "text", "text"])]
    assert "the value" in json.dumps(wire.body)
    assert wire.left_out == ["results without their call, which are told as text"]


def test_the_user_is_first_and_last() -> None:
    wire = wired([assistant(TextPart(text="Hello"))])
    assert [role for role, _ in blocks(wire)] == ["user", "assistant", "user"]
    assert wire.body["messages"][0]["content"][0]["text"] == NOTHING_SAID
    assert blocks(wired([])) == [("user", ["text"])]


def test_ids_are_used_once_and_are_the_same_each_time() -> None:
    talk: list[Message] = [
        user("a"),
        assistant(called("same id!")),
        results(("same id!", "1")),
        assistant(called("same id!"), number="a2"),
        results(("same id!", "2"), number="t2"),
    ]
    first, second = (wired(talk[:3]).body["messages"], wired(talk).body["messages"])
    assert second[:3] == first
    used = [message["content"][0]["id"] for message in second if message["role"] == "assistant"]
    assert len(set(used)) == 2
    assert second[4]["content"][0]["tool_use_id"] == used[1]


def test_tool_names_come_back() -> None:
    odd = ToolSpec(name="files.read it", parameters={"type": "object"})
    wire = wired([user("a")], tools=(odd, ToolSpec(name="files_read_it", parameters={})))
    sent = [tool["name"] for tool in wire.body["tools"]]
    assert sent[1] == "files_read_it"
    assert sent[0] != sent[1]
    assert [wire.names.received(name) for name in sent] == ["files.read it", "files_read_it"]


def test_system_messages() -> None:
    talk: list[Message] = [SystemMessage(id="s", text="First."), user("a"), SystemMessage(id="s2", text="Then.")]
    wire = wired(talk, instructions="Be brief.")
    assert [block["text"] for block in wire.body["system"]] == ["Be brief.", "First."]
    assert wire.body["messages"][0]["content"][1]["text"] == "[system message] Then."
    assert len(wire.left_out) == 1


# ---- thinking --------------------------------------------------------------------------------------------------------

SIGNED = ReasoningPart(text="Hm", signature="sig", extra=OWN)
REDACTED = ReasoningPart(text="", signature="data", extra={"anthropic": {"redacted": True}})


def test_signed_thinking_goes_back_as_it_came() -> None:
    wire = wired([user("a"), assistant(SIGNED, REDACTED, called()), results(("c1", "x"))])
    assert wire.body["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "data"},
    ]
    assert wire.left_out == []


def test_thinking_that_cannot_go_back_is_reported() -> None:
    unsigned = ReasoningPart(text="half a tho", extra=OWN)
    foreign = ReasoningPart(text="Their thought", signature="x", extra={"openai": {}})
    interrupted = assistant(unsigned, foreign, interrupted=True, stop_reason="cancelled")
    wire = wired([user("a"), interrupted, user("b", "u2")])
    assert blocks(wire) == [("user", ["text", "text"])]
    assert wire.left_out == ["reasoning that was interrupted before it was signed", "reasoning of another provider"]


def test_a_message_does_not_end_with_thinking() -> None:
    wire = wired([user("a"), assistant(TextPart(text="b"), SIGNED), user("c", "u2")])
    assert blocks(wire)[1] == ("assistant", ["text"])
    assert wire.left_out == ["reasoning that led to nothing"]


@pytest.mark.parametrize(
    ("model", "reasoning", "expected", "effort"),
    [
        ("claude-sonnet-5", "high", {"type": "adaptive"}, "high"),
        ("claude-sonnet-5", "none", {"type": "disabled"}, None),
        ("claude-sonnet-5", None, None, None),
        ("claude-sonnet-4-5", "low", {"type": "enabled", "budget_tokens": 2048}, None),
    ],
)
def test_reasoning_is_asked_for_as_the_model_wants_it(
    model: str, reasoning: str | None, expected: dict[str, Any] | None, effort: str | None
) -> None:
    body = wired([user("a")], model=model, settings=ModelSettings(reasoning=reasoning)).body
    assert body.get("thinking") == expected
    assert body.get("output_config", {}).get("effort") == effort


def test_what_excludes_thinking() -> None:
    thinking = ModelSettings(reasoning="high", temperature=0.2)
    wire = wired([user("a")], settings=thinking)
    assert "temperature" not in wire.body
    assert wire.left_out == ["temperature: it cannot be set for a model that thinks"]
    forced = wired([user("a")], tools=(SEARCH,), settings=thinking.replace(tool_choice="required"))
    assert "thinking" not in forced.body
    assert forced.body["temperature"] == 0.2
    unthought = wired(
        [user("a"), assistant(called()), results(("c1", "x"))], model="claude-sonnet-4-5", settings=thinking
    )
    assert "thinking" not in unthought.body
    assert unthought.left_out == ["reasoning: the calls that are open were made without"]
    small = wired(
        [user("a")], model="claude-sonnet-4-5", settings=ModelSettings(reasoning="low", max_output_tokens=900)
    )
    assert "thinking" not in small.body


# ---- media -----------------------------------------------------------------------------------------------------------


def test_images_and_documents() -> None:
    text = base64.b64encode("Größe".encode()).decode()
    parts = (
        ImagePart(data="aGk="),
        ImagePart(url="https://example.org/a.png"),
        FilePart(media_type="application/pdf", data="aGk=", name="a.pdf"),
        FilePart(media_type="text/markdown", data=text, name="b.md"),
        FilePart(media_type="application/pdf", url="https://example.org/a.pdf"),
    )
    wire = wired([UserMessage(id="u", parts=parts)])
    content = wire.body["messages"][0]["content"]
    assert [block["source"]["type"] for block in content] == ["base64", "url", "base64", "text", "url"]
    assert content[2]["title"] == "a.pdf"
    assert content[3]["source"]["data"] == "Größe"
    assert wire.left_out == []


def test_what_it_cannot_take_is_told_and_named() -> None:
    wire = wired([UserMessage(id="u", parts=(AudioPart(data="aGk="), ImagePart(media_type="image/tiff", data="aGk=")))])
    assert "audio of type audio/wav" in wire.body["messages"][0]["content"][0]["text"]
    assert [what.split(":")[0] for what in wire.left_out] == ["audio of type audio/wav", "image of type image/tiff"]


def test_media_in_results() -> None:
    result = ToolResult(call_id="c1", content=("See:", ImagePart(data="aGk=")))
    wire = wired([user("a"), assistant(called()), ToolMessage(id="t", results=(result,))])
    assert [block["type"] for block in wire.body["messages"][2]["content"][0]["content"]] == ["text", "image"]


# ---- tools of the provider, citations --------------------------------------------------------------------------------

USE = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
RAN = ServerToolPart(id="s1", name="web_search", input={}, extra={"anthropic": {"blocks": [USE, FOUND]}})
BEGUN = ServerToolPart(id="s1", name="web_search", input={}, extra={"anthropic": {"blocks": [USE]}})


def test_its_own_tools_and_citations_go_back_as_they_came() -> None:
    raw = {"type": "web_search_result_location", "cited_text": "x", "url": "https://e.org", "encrypted_index": "i"}
    cited = CitationPart(text="x", extra={"anthropic": raw})
    wire = wired([user("a"), assistant(RAN, TextPart(text="So it is."), cited), user("b", "u2")])
    assert wire.body["messages"][1]["content"] == [
        USE,
        FOUND,
        {"type": "text", "text": "So it is.", "citations": [raw]},
    ]
    assert wire.left_out == []


def test_those_of_others_are_told_as_text() -> None:
    ran = ServerToolPart(id="x", name="browse", input={"q": 1}, output="page")
    wire = wired([user("a"), assistant(ran, CitationPart(title="T", source="https://e.org")), user("b", "u2")])
    texts = [block["text"] for block in wire.body["messages"][1]["content"]]
    assert texts == ['[browse ran. Input: {"q": 1} Output: "page"]', "[source: T https://e.org]"]
    assert len(wire.left_out) == 2


def test_a_paused_answer_is_the_end_of_the_request() -> None:
    paused = assistant(BEGUN, stop_reason="pause")
    wire = wired([user("a"), paused], context=("Now.",), instructions="Be brief.")
    assert blocks(wire)[-1] == ("assistant", ["server_tool_use"])
    assert [block["text"] for block in wire.body["system"]] == ["Be brief.", "Now."]


def test_a_tool_of_the_provider_that_was_interrupted_is_left_out() -> None:
    wire = wired([user("a"), assistant(BEGUN, TextPart(text="b"), stop_reason="length"), user("c", "u2")])
    assert blocks(wire)[1] == ("assistant", ["text"])
    assert wire.left_out == ["tools of the server that were interrupted"]


def test_arguments_that_are_no_json_are_shown_as_they_were() -> None:
    cut = ToolCallPart(call=ToolCall(id="c1", name="search", raw='{"q": "Par'))
    wire = wired([user("a"), assistant(cut), results(("c1", "invalid"))])
    assert wire.body["messages"][1]["content"][0]["input"] == {"INVALID_JSON": '{"q": "Par'}


# ---- cache, context, knobs -------------------------------------------------------------------------------------------


def test_cache_points_are_at_the_ends_and_context_comes_after_them() -> None:
    talk: list[Message] = [user("a"), assistant(called()), results(("c1", "x"))]
    wire = wired(
        talk,
        AnthropicSettings(cache_ttl="1h"),
        instructions="Be brief.",
        tools=(SEARCH, SEARCH.replace(name="read")),
        context=("Now.",),
    )
    point = {"type": "ephemeral", "ttl": "1h"}
    assert [tool.get("cache_control") for tool in wire.body["tools"]] == [None, point]
    assert wire.body["system"][0]["cache_control"] == point
    assert wire.body["messages"][0]["content"][-1]["cache_control"] == point
    last = wire.body["messages"][-1]["content"]
    assert [block.get("cache_control") for block in last] == [point, None]
    assert last[1]["text"] == "Now."


def test_f112_the_prefix_does_not_depend_on_what_comes_after() -> None:
    one = wired([user("a")], instructions="Be brief.", tools=(SEARCH,), context=("Now.",)).body
    other = wired(
        [user("a"), assistant(TextPart(text="b")), user("c", "u2")], instructions="Be brief.", tools=(SEARCH,)
    )
    assert (one["tools"], one["system"]) == (other.body["tools"], other.body["system"])
    assert other.body["messages"][0]["content"] == one["messages"][0]["content"][:1]


def test_knobs() -> None:
    wire = wired(
        [user("a")],
        tools=(SEARCH,),
        settings=ModelSettings(
            temperature=0.5, top_p=0.9, max_output_tokens=7, stop=("X", " "), seed=3, tool_choice="search"
        ),
    )
    body = wire.body
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 7)
    assert body["stop_sequences"] == ["X"]
    assert body["tool_choice"] == {"type": "tool", "name": "search"}
    assert wire.left_out == ["the seed: the Messages API has none"]


def test_extra_goes_through_and_adds_tools_of_the_provider() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    extra: Any = {"tools": [search], "service_tier": "auto", "metadata": {"user_id": "u"}}
    body = wired([user("a")], tools=(SEARCH,), settings=ModelSettings(extra=extra)).body
    assert body["tools"][1] == search
    assert body["service_tier"] == "auto"
    with pytest.raises(ConfigError, match="may not set 'messages'"):
        wired([user("a")], settings=ModelSettings(extra={"messages": []}))


@pytest.mark.parametrize(
    ("model", "tokens", "adaptive"),
    [
        ("claude-3-haiku-20240307", 4096, False),
        ("claude-3-5-sonnet-latest", 8192, False),
        ("anthropic/claude-3-7-sonnet", 32000, False),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", 32000, False),
        ("claude-sonnet-4-6", 32000, True),
        ("something-new", 32000, True),
    ],
)
def test_what_is_known_of_models(model: str, tokens: int, adaptive: bool) -> None:
    traits = traits_of(model)
    assert (traits.max_output_tokens, traits.is_adaptive) == (tokens, adaptive)


# ---- answers with a schema -------------------------------------------------------------------------------------------

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "$defs": {
        "Node": {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/Leaf"}}}},
        "Leaf": {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}},
    },
}


def test_native_structured_output() -> None:
    wire = wired([user("a")], output_schema=PERSON)
    form = wire.body["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"]["additionalProperties"] is False
    assert (wire.form.tool, wire.form.is_wrapped) == ("", False)
    assert "tools" not in wire.body


def test_a_schema_that_is_no_object_is_wrapped() -> None:
    schema = {"type": "array", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": PERSON}}
    wire = wired([user("a")], output_schema=schema)
    assert wire.form.is_wrapped
    assert list(wire.body["output_config"]["format"]["schema"]["properties"]) == ["value"]
    assert "P" in wire.body["output_config"]["format"]["schema"]["$defs"]


@pytest.mark.parametrize(
    ("schema", "model", "structured"),
    [
        (PERSON, "claude-3-5-haiku-latest", "auto"),
        (PERSON, "claude-sonnet-5", "tool"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "claude-sonnet-5", "auto"),
        ({"type": ["string", "null"]}, "claude-sonnet-5", "auto"),
        (TREE, "claude-sonnet-5", "auto"),
    ],
)
def test_otherwise_a_tool_must_be_called(schema: dict[str, Any], model: str, structured: Any) -> None:
    options = AnthropicSettings(cache=False, structured=structured)
    wire = wired([user("a")], options, model, output_schema=schema)
    assert wire.form.tool == "answer"
    assert wire.body["tool_choice"] == {"type": "tool", "name": "answer"}
    assert "'answer'" in wire.body["system"][-1]["text"]
    with_tools = wired([user("a")], options, model, output_schema=schema, tools=(SEARCH, SEARCH.replace(name="answer")))
    assert with_tools.form.tool == "answer_"
    assert with_tools.body["tool_choice"] == {"type": "any"}
