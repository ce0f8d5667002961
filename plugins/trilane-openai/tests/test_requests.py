"""What is sent: any conversation becomes a request that the server takes."""

from __future__ import annotations

import base64
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
from trilane_openai.parameters import wire_request
from trilane_openai.presets import COMPATIBLE, PRESETS, Preset

OPENAI = PRESETS["openai"]
SEARCH = ToolSpec(name="search", description="Search.", parameters={"type": "object", "properties": {}})


def user(*texts: str, id: str = "u1") -> UserMessage:
    return UserMessage(id=id, parts=tuple(TextPart(text=text) for text in texts))


def body_of(*messages: Message, preset: Preset = OPENAI, **changes: Any) -> dict[str, Any]:
    body = wire_request(ModelRequest(messages=messages or (user("Hi"),)).replace(**changes), "m", preset).body
    assert check_request(json.loads(json.dumps(body)), "openai-chat") == []
    return body


def left_out_of(*messages: Message, preset: Preset = OPENAI) -> list[str]:
    return wire_request(ModelRequest(messages=messages), "m", preset).left_out


def exchange(call: ToolCall, content: Any, id: str = "a1") -> tuple[Message, ...]:
    return (
        AssistantMessage(id=id, parts=(ToolCallPart(call=call),)),
        ToolMessage(id=f"{id}t", results=(ToolResult(call_id=call.id, content=content),)),
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=conversations(),
    preset=st.sampled_from([*PRESETS.values(), COMPATIBLE]),
    instructions=st.sampled_from(["", " ", "Be brief."]),
    context=st.sampled_from([(), ("Now.",), ("", " ")]),
)
def test_any_conversation_becomes_a_valid_request(
    messages: list[Message], preset: Preset, instructions: str, context: tuple[str, ...]
) -> None:
    request = ModelRequest(instructions=instructions, messages=messages, tools=(SEARCH,), context=context)
    wire = wire_request(request, "m", preset)
    sent = json.dumps(wire.body, ensure_ascii=False, allow_nan=False).encode()
    assert check_request(json.loads(sent), "openai-chat") == []
    again = wire_request(request, "m", preset)
    assert json.dumps(again.body, ensure_ascii=False).encode() == sent
    _assert_nothing_is_lost(messages, wire.body, wire.left_out)


def _assert_nothing_is_lost(messages: list[Message], body: dict[str, Any], left_out: list[str]) -> None:
    """Every text is sent, and every call; what is not sent is named."""
    sent = json.dumps(body, ensure_ascii=False)
    calls = 0
    for message in messages:
        texts = [message.text] if message.kind == "system" else []
        if message.kind in ("user", "assistant"):
            texts = [part.text for part in message.parts if part.kind == "text"]
        for text in texts:
            if text.strip():
                assert json.dumps(text, ensure_ascii=False)[1:-1] in sent
        if message.kind == "assistant":
            calls += len(message.calls)
            if any(part.kind == "reasoning" and part.signature and part.extra is None for part in message.parts):
                assert "reasoning of another provider" in left_out
    assert sum(len(message.get("tool_calls", ())) for message in body["messages"]) == calls


def test_the_plain_case() -> None:
    body = body_of(user("Hi"), instructions="Be brief.")
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_neighbours_of_one_role_are_joined() -> None:
    body = body_of(user("One"), user("Two", id="u2"))
    assert body["messages"] == [{"role": "user", "content": "One\n\nTwo"}]


def test_an_interrupted_message_keeps_its_text() -> None:
    cut = AssistantMessage(id="a", parts=(TextPart(text="Half an ans"),), stop_reason="cancelled", interrupted=True)
    nothing = AssistantMessage(id="b", parts=(ReasoningPart(text="Hm"),), stop_reason="cancelled", interrupted=True)
    body = body_of(user("Hi"), cut, user("Go on", id="u2"), nothing, user("Well?", id="u3"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == "Half an ans"


@pytest.mark.parametrize("content", ["", "  ", (), ("", " ")])
def test_an_empty_result_says_so(content: Any) -> None:
    body = body_of(user("Hi"), *exchange(ToolCall(id="c", name="search"), content))
    assert body["messages"][-1] == {"role": "tool", "tool_call_id": "c", "content": "(no output)"}


def test_malformed_arguments_are_sent_as_an_empty_object() -> None:
    body = body_of(user("Hi"), *exchange(ToolCall(id="c", name="search", raw='{"q": "shi'), "bad arguments"))
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_media_in_results_follow_in_a_message_of_their_own() -> None:
    content = ("A chart:", ImagePart(data="aGk="))
    body = body_of(user("Hi"), *exchange(ToolCall(id="c", name="search"), content))
    tool, media = body["messages"][-2:]
    assert tool["content"] == "A chart:\n[image: see the next message]"
    assert media["role"] == "user"
    assert media["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def test_media_that_a_server_does_not_take_leave_a_note() -> None:
    message = UserMessage(id="u", parts=(TextPart(text="Look"), ImagePart(data="aGk=")))
    assert left_out_of(message) == []
    assert left_out_of(message, preset=PRESETS["deepseek"]) == ["image of type image/png"]
    body = body_of(message, preset=PRESETS["deepseek"])
    assert body["messages"] == [{"role": "user", "content": "Look\n\n[image left out: this model does not take it]"}]


def test_media_in_the_forms_of_the_format() -> None:
    text = base64.b64encode(b"a,b").decode()
    parts = (
        ImagePart(url="https://example.org/a.png", extra={"detail": "low"}),
        AudioPart(data="aGk=", media_type="audio/mpeg"),
        FilePart(data="aGk=", media_type="application/pdf", name="a.pdf"),
        FilePart(data=text, media_type="text/csv", name="a.csv"),
        AudioPart(url="https://example.org/a.wav"),
    )
    content = body_of(UserMessage(id="u", parts=parts))["messages"][0]["content"]
    assert content[0]["image_url"] == {"url": "https://example.org/a.png", "detail": "low"}
    assert content[1]["input_audio"] == {"data": "aGk=", "format": "mp3"}
    assert content[2]["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}
    assert content[3]["text"] == "[file a.csv]\na,b\n[end of file]"
    assert content[4]["text"].startswith("[audio left out")


def test_server_tools_and_citations_are_sent_as_text() -> None:
    parts = (
        ServerToolPart(name="web_search", input={"q": "ships"}, output=["two"]),
        TextPart(text="Two ships"),
        CitationPart(title="Ships", source="https://example.org"),
    )
    message = AssistantMessage(id="a", parts=parts)
    text = body_of(user("Hi"), message, user("More", id="u2"))["messages"][1]["content"]
    assert '"q": "ships"' in text
    assert text.endswith("Two ships [source: Ships, https://example.org]")
    assert len(left_out_of(user("Hi"), message)) == 2


def test_reasoning_of_others_is_left_out_and_named() -> None:
    foreign = ReasoningPart(text="Deep", signature="c2ln", extra={"anthropic": {}})
    own = ReasoningPart(text="Mine", extra={"openai": {}})
    foreign_message = AssistantMessage(id="a", parts=(foreign, TextPart(text="Yes")))
    assert left_out_of(user("Hi"), foreign_message) == ["reasoning of another provider"]
    assert left_out_of(user("Hi"), AssistantMessage(id="a", parts=(own, TextPart(text="Yes")))) == []
    assert "Deep" not in json.dumps(body_of(user("Hi"), foreign_message, user("So?", id="u2")))


def test_a_server_gets_its_reasoning_back_in_its_own_form() -> None:
    call, results = exchange(ToolCall(id="c", name="search"), "found")
    assert isinstance(call, AssistantMessage)
    with_thought = call.replace(parts=(ReasoningPart(text="Think", extra={"openai": {}}), *call.parts))
    body = body_of(user("Hi"), with_thought, results, preset=PRESETS["deepseek"])
    assert body["messages"][1]["reasoning_content"] == "Think"
    body = body_of(user("Hi"), call, results, preset=PRESETS["deepseek"])
    assert body["messages"][1]["reasoning_content"] == ""
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    signed = ReasoningPart(text="", signature="openai", extra={"openai": {"details": details}})
    body = body_of(user("Hi"), call.replace(parts=(signed, *call.parts)), results, preset=PRESETS["openrouter"])
    assert body["messages"][1]["reasoning_details"] == details


def test_context_comes_after_everything_that_can_be_cached() -> None:
    plain = body_of(user("Hi"), instructions="Rules.")
    added = body_of(user("Hi"), instructions="Rules.", context=("It is noon.",))
    assert added["messages"][:-1] == plain["messages"]
    assert added["messages"][-1] == {"role": "system", "content": "It is noon."}
    local = body_of(user("Hi"), instructions="Rules.", context=("It is noon.",), preset=PRESETS["ollama"])
    assert local["messages"][-1] == {"role": "user", "content": "Hi\n\nIt is noon."}


def test_system_messages_move_to_the_front_where_they_must() -> None:
    late = SystemMessage(id="s", text="New rule.")
    body = body_of(user("Hi"), late, instructions="Rules.", preset=PRESETS["llamacpp"])
    assert body["messages"][0] == {"role": "system", "content": "Rules.\n\nNew rule."}
    assert [m["role"] for m in body_of(user("Hi"), late, user("So?", id="u2"))["messages"]] == [
        "user",
        "system",
        "user",
    ]


def test_a_conversation_of_blanks_still_asks_something() -> None:
    assert body_of(user(" "))["messages"] == [{"role": "user", "content": "(no text)"}]


def test_ids_and_names_that_a_server_would_not_take() -> None:
    call = ToolCall(id="weird id " + "x" * 50, name="functions.search")
    body = body_of(user("Hi"), *exchange(call, "1"), *exchange(call, "2", id="a2"), preset=PRESETS["mistral"])
    ids = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    assert len(set(ids)) == 2
    assert all(len(id) == 9 and id.isalnum() for id in ids)
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "functions_search"


def test_tools_with_names_that_clash_are_told_apart() -> None:
    tools = tuple(ToolSpec(name=name) for name in ("a.b", "a_b", "a b"))
    wire = wire_request(ModelRequest(messages=(user("Hi"),), tools=tools), "m", OPENAI)
    names = [tool["function"]["name"] for tool in wire.body["tools"]]
    assert names[1] == "a_b"
    assert len(set(names)) == 3
    assert [wire.names.received(name) for name in names] == ["a.b", "a_b", "a b"]
    assert check_request(wire.body, "openai-chat") == []


def test_knobs() -> None:
    knobs = ModelSettings(
        temperature=0.0, top_p=0.5, max_output_tokens=9, stop=("END",), seed=1, reasoning="low", extra={"user": "x"}
    )
    body = body_of(settings=knobs)
    assert (body["temperature"], body["top_p"], body["max_completion_tokens"], body["stop"]) == (0.0, 0.5, 9, ["END"])
    assert (body["seed"], body["reasoning_effort"], body["user"]) == (1, "low", "x")
    mistral = body_of(settings=knobs, preset=PRESETS["mistral"])
    assert (mistral["random_seed"], mistral["max_tokens"]) == (1, 9)
    assert "stream_options" not in mistral
    assert body_of(settings=knobs, preset=PRESETS["openrouter"])["reasoning"] == {"effort": "low"}


@pytest.mark.parametrize("key", ["messages", "model", "stream"])
def test_extra_may_not_set_what_the_adapter_relies_on(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        body_of(settings=ModelSettings(extra={key: 1}))


def test_f113_a_named_tool_is_forced_in_the_first_turn_only() -> None:
    forced = ModelSettings(tool_choice="search")
    first = body_of(tools=(SEARCH,), settings=forced)
    assert first["tool_choice"] == {"type": "function", "function": {"name": "search"}}
    assert "tool_choice" not in body_of(tools=(SEARCH,), settings=forced, turn=2)
    assert "tool_choice" not in body_of(settings=forced)
    assert body_of(tools=(SEARCH,), settings=ModelSettings(tool_choice="none"), turn=2)["tool_choice"] == "none"


def test_the_form_of_the_answer() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    strict = {**loose, "required": ["a"], "additionalProperties": False}
    listed = {"type": "array", "items": {"type": "string"}}
    form = body_of(output_schema=loose)["response_format"]
    assert form == {"type": "json_schema", "json_schema": {"name": "answer", "schema": loose}}
    assert body_of(output_schema=strict)["response_format"]["json_schema"]["strict"] is True
    as_words = body_of(output_schema=listed)
    assert "response_format" not in as_words
    assert '"array"' in as_words["messages"][0]["content"]
    assert body_of(output_schema=listed, preset=PRESETS["vllm"])["response_format"]["json_schema"]["schema"] == listed
    deepseek = body_of(output_schema=loose, preset=PRESETS["deepseek"])
    assert deepseek["response_format"] == {"type": "json_object"}
    assert "JSON" in deepseek["messages"][0]["content"]


def test_half_a_surrogate_pair_does_not_break_the_request() -> None:
    wire = wire_request(ModelRequest(messages=(user("Hi"),), instructions="a\ud83d"), "m", OPENAI)
    assert json.dumps(wire.body, ensure_ascii=False).encode()
    assert wire.body["messages"][0]["content"] == "a\ufffd"
