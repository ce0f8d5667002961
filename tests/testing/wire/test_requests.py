"""The rules for requests find what providers refuse, and nothing else."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from trilane.testing.wire import check_request

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Hi"}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}

USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
USED = {"role": "assistant", "content": [USE]}
ANSWERED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]}


def chat(*messages: Any, **more: Any) -> list[str]:
    return check_request({"model": "m", "messages": list(messages), **more}, "openai-chat")


def claude(*messages: Any, **more: Any) -> list[str]:
    return check_request({"model": "m", "max_tokens": 9, "messages": list(messages), **more}, "anthropic")


def block(kind: str, **values: Any) -> dict[str, Any]:
    return {"type": kind, **values}


def test_what_is_valid() -> None:
    media = {"role": "user", "content": [block("image_url", image_url={"url": "data:image/png;base64,aGk="})]}
    assert chat({"role": "system", "content": "Rules"}, USER, ASKED, RESULT, media, tools=[TOOL]) == []
    thinking = {"role": "assistant", "content": [block("thinking", thinking="", signature="s"), USE]}
    assert (
        claude(USER, thinking, ANSWERED, system="Rules", tools=[{"name": "f", "input_schema": {"type": "object"}}])
        == []
    )


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "at least one"),
        ([{"role": "system", "content": "x"}], "nothing but system"),
        ([{"role": "user", "content": " "}], "blank"),
        ([{"role": "user", "content": []}], "content must be"),
        ([{"role": "user", "content": [block("text", text="")]}], "blank"),
        ([{"role": "user", "content": [block("video")]}], "unknown part"),
        ([{"role": "user", "content": [block("image_url", image_url={"url": "x"})]}], "needs a URL"),
        ([{"role": "robot", "content": "x"}], "unknown role"),
        ([USER, {"role": "assistant", "content": ""}], "blank"),
        ([USER, {"role": "assistant", "content": "x", "tool_calls": []}], "must not be empty"),
        ([USER, ASKED], "not answered"),
        ([USER, ASKED, USER], "not answered"),
        ([USER, RESULT], "did not call"),
        ([USER, ASKED, RESULT, RESULT], "did not call"),
        ([USER, ASKED, {**RESULT, "content": ""}], "blank"),
        ([USER, {**ASKED, "tool_calls": [{**CALL, "id": "x" * 41}]}], "1 to 40"),
        ([USER, {**ASKED, "tool_calls": [CALL, CALL]}], "used twice"),
        ([USER, {**ASKED, "tool_calls": [{**CALL, "type": "x"}]}], "of type"),
        ([USER, {**ASKED, "tool_calls": [{**CALL, "function": {"name": "a b", "arguments": "{}"}}]}], "not allowed"),
        ([USER, {**ASKED, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}], "not a JSON object"),
    ],
)
def test_chat_completions(messages: list[Any], says: str) -> None:
    assert any(says in problem for problem in chat(*messages)), chat(*messages)


def test_tools_of_chat_completions() -> None:
    assert chat(USER, tools=[]) == ["tools: must not be empty"]
    assert "used twice" in chat(USER, tools=[TOOL, TOOL])[0]
    assert "schema of an object" in chat(USER, tools=[{"type": "function", "function": {"name": "f"}}])[0]
    assert chat(USER, tool_choice="auto") == ["tool_choice: only with tools"]
    named = {"type": "function", "function": {"name": "g"}}
    assert chat(USER, tools=[TOOL], tool_choice=named) == ["tool_choice: there is no tool 'g'"]


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "at least one"),
        ([{"role": "assistant", "content": "x"}, USER], "must be of the user"),
        ([{"role": "system", "content": "x"}, USER], "unknown role"),
        ([{"role": "user", "content": []}], "no content"),
        ([{"role": "user", "content": ""}], "blank"),
        ([USER, USED, USER], "answers []"),
        ([USER, ANSWERED], "answers ['t1']"),
        ([USER, USED, {"role": "user", "content": [block("text", text="x"), *ANSWERED["content"]]}], "come before"),
        ([USER, USED, ANSWERED, USED, ANSWERED], "used before"),
        ([USER, {"role": "assistant", "content": [USE, block("text", text="x")]}, ANSWERED], "come last"),
        ([USER, {"role": "assistant", "content": [block("thinking", thinking="x")]}, USER], "no signature"),
        ([USER, {"role": "assistant", "content": [block("image")]}, USER], "not allowed here"),
        ([USER, {"role": "assistant", "content": [{**USE, "id": "a b"}]}, ANSWERED], "not allowed"),
        ([USER, {"role": "assistant", "content": [{**USE, "input": "{}"}]}, ANSWERED], "must be an object"),
    ],
)
def test_messages(messages: list[Any], says: str) -> None:
    assert any(says in problem for problem in claude(*messages)), claude(*messages)


@pytest.mark.parametrize("format", ["openai-chat", "anthropic"])
def test_what_is_missing(format: Literal["openai-chat", "anthropic"]) -> None:
    assert check_request({}, format)
    assert "max_tokens" in check_request({"messages": [USER]}, "anthropic")[0]
    assert claude(USER, system=" ") == ["system: a text is blank"]
