"""The rules of providers, on good and on bad conversations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trilane.messages import (
    AssistantMessage,
    AssistantPart,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from trilane.testing import assert_history, check_history
from trilane.testing.history import PROVIDERS, Provider


def user(id: str, text: str = "hello") -> UserMessage:
    return UserMessage(id=id, parts=(TextPart(text=text),))


def says(id: str, *parts: AssistantPart | str, interrupted: bool = False) -> AssistantMessage:
    full = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    return AssistantMessage(id=id, parts=full, interrupted=interrupted)


def asks(*ids: str, name: str = "search") -> list[AssistantPart]:
    return [ToolCallPart(call=ToolCall(id=id, name=name)) for id in ids]


def results(id: str, *ids: str, text: str = "found") -> ToolMessage:
    return ToolMessage(id=id, results=tuple(ToolResult(call_id=call_id, content=text) for call_id in ids))


SIGNED = ReasoningPart(text="hm", signature="s")

GOOD: dict[str, list[Message]] = {
    "nothing": [],
    "one answer": [user("u"), says("a", "hi")],
    "system first": [SystemMessage(id="s", text="be kind"), user("u"), says("a", "hi")],
    "parallel calls": [user("u"), says("a", "Looking.", *asks("c1", "c2")), results("t", "c1", "c2"), says("b", "two")],
    "calls again with the same ids": [
        user("u"),
        says("a", *asks("c1")),
        results("t", "c1"),
        says("b", *asks("c1")),
        results("v", "c1"),
    ],
    "steering after results": [user("u"), says("a", *asks("c1")), results("t", "c1"), user("v", "faster")],
    "two of the user": [user("u"), user("v"), says("a", "hi")],
    "a cut answer": [user("u"), says("a", "par", interrupted=True), user("v")],
    "cut while thinking": [user("u"), says("a", SIGNED, interrupted=True), user("v")],
    "thinking, then calls": [user("u"), says("a", SIGNED, "Looking.", *asks("c1")), results("t", "c1")],
    "unsigned thinking alone": [user("u"), says("a", ReasoningPart(text="hm")), user("v")],
    "an image": [UserMessage(id="u", parts=(ImagePart(url="https://example.org/a.png"),))],
    "an empty result": [user("u"), says("a", *asks("c1")), results("t", "c1", text="")],
}


@pytest.mark.parametrize("provider", ["all", *PROVIDERS])
@pytest.mark.parametrize("name", GOOD)
def test_good_conversations_pass(name: str, provider: Provider) -> None:
    assert check_history(GOOD[name], provider) == []
    assert_history(GOOD[name], provider)


COMMON: dict[str, tuple[list[Message], str]] = {
    "no answer at the end": (
        [user("u"), says("a", *asks("c1"))],
        "message 1 (assistant): calls 'c1' are not answered; nothing follows instead of their results",
    ),
    "a user in between": (
        [user("u"), says("a", *asks("c1")), user("v"), results("t", "c1")],
        "message 1 (assistant): calls 'c1' are not answered; a user message follows instead of their results",
    ),
    "a system message in between": (
        [user("u"), says("a", *asks("c1")), SystemMessage(id="s", text="x"), results("t", "c1")],
        "message 1 (assistant): calls 'c1' are not answered; a system message follows instead of their results",
    ),
    "one of two missing": (
        [user("u"), says("a", *asks("c1", "c2")), results("t", "c1")],
        "message 1 (assistant): call 'c2' is not answered",
    ),
    "answered twice": (
        [user("u"), says("a", *asks("c1")), results("t", "c1", "c1")],
        "message 1 (assistant): call 'c1' is answered 2 times",
    ),
    "a result too many": (
        [user("u"), says("a", *asks("c1")), results("t", "c1", "c9")],
        "message 1 (assistant): a result for 'c9', which was not called",
    ),
    "another order": (
        [user("u"), says("a", *asks("c1", "c2")), results("t", "c2", "c1")],
        "message 1 (assistant): the results are in the order ['c2', 'c1'], the calls in the order ['c1', 'c2']",
    ),
    "results in two messages": (
        [user("u"), says("a", *asks("c1", "c2")), results("t", "c1"), results("v", "c2")],
        "message 3 (tool): results need a message with calls directly before them, there is one of kind tool",
    ),
    "results of nothing": (
        [results("t", "c1")],
        "message 0 (tool): results need a message with calls directly before them, there is nothing",
    ),
    "results after text": (
        [user("u"), says("a", "hi"), results("t", "c1")],
        "message 2 (tool): results need a message with calls directly before them, there is one of kind assistant",
    ),
    "no results in it": (
        [user("u"), says("a", *asks("c1")), results("t")],
        "message 2 (tool): has no results",
    ),
    "doubled ids": (
        [user("u"), says("a", *asks("c1", "c1")), results("t", "c1", "c1")],
        "message 1 (assistant): two calls have the id 'c1'",
    ),
    "an empty id": (
        [user("u"), says("a", *asks("")), results("t", "")],
        "message 1 (assistant): the call of 'search' has no id",
    ),
    "an empty tool name": (
        [user("u"), says("a", *asks("c1", name="")), results("t", "c1")],
        "message 1 (assistant): call 'c1' has no tool name",
    ),
    "arguments that are not JSON": (
        [
            user("u"),
            says("a", ToolCallPart(call=ToolCall(id="c1", name="t", arguments={"x": float("nan")}))),
            results("t", "c1"),
        ],
        "message 1 (assistant): the arguments of call 'c1' are not a JSON object: Out of range float",
    ),
    "an empty answer": ([user("u"), says("a"), user("v")], "message 1 (assistant): is empty: it has no part"),
    "a blank answer": (
        [user("u"), says("a", " \n"), user("v")],
        "message 1 (assistant): is empty: no part, or only blank text",
    ),
    "an empty request": ([user("u", "")], "message 0 (request of the user): is empty: no part, or only blank text"),
    "a blank system message": ([SystemMessage(id="s", text=" "), user("u")], "message 0 (system): has no text"),
    "the same message id": (
        [user("u"), says("u", "hi")],
        "message 1 (assistant): its id 'u' is that of message 0, too",
    ),
    "no message id": ([user("")], "message 0 (request of the user): has no id"),
    "half a pair": (
        [user("u"), says("a", "x\ud83d")],
        "message 1 (assistant): has a NUL or half a surrogate pair in its text",
    ),
    "a NUL in a result": (
        [user("u"), says("a", *asks("c1")), results("t", "c1", text="a\0b")],
        "message 2 (tool): has a NUL or half a surrogate pair in its text",
    ),
}


@pytest.mark.parametrize("provider", ["all", *PROVIDERS])
@pytest.mark.parametrize("name", COMMON)
def test_bad_conversations_are_bad_for_everybody(name: str, provider: Provider) -> None:
    messages, expected = COMMON[name]
    assert any(problem.startswith(expected) for problem in check_history(messages, provider))


SOME: dict[str, tuple[list[Message], set[str], str]] = {
    "starts with an answer": ([says("a", "hi"), user("u")], {"anthropic", "gemini"}, "must start with the user"),
    "starts with an answer after a system message": (
        [SystemMessage(id="s", text="x"), says("a", "hi"), user("u")],
        {"anthropic", "gemini"},
        "message 1 (assistant): the conversation must start with the user",
    ),
    "text after a call": (
        [user("u"), says("a", *asks("c1"), "Looking."), results("t", "c1")],
        {"anthropic"},
        "calls must come last in their message, text follows one",
    ),
    "thinking after text": (
        [user("u"), says("a", "Looking.", SIGNED, *asks("c1")), results("t", "c1")],
        {"anthropic"},
        "with calls, reasoning must come first in its message, text does",
    ),
    "thinking that led to nothing": (
        [user("u"), says("a", "hi", SIGNED), user("v")],
        {"openai-responses"},
        "signed reasoning must be followed by what it led to",
    ),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", SOME)
def test_some_conversations_are_bad_for_some(name: str, provider: Provider) -> None:
    messages, whose, expected = SOME[name]
    problems = check_history(messages, provider)
    assert len(problems) == (1 if provider in whose else 0)
    assert all(expected in problem and provider in problem for problem in problems)
    assert any(expected in problem for problem in check_history(messages))


def test_a_request_ends_with_the_user_or_results() -> None:
    done = GOOD["one answer"]
    assert check_history(done, as_request=True) == [
        "message 1 (assistant): a request must end with the user or tool results (anthropic, gemini)"
    ]
    assert check_history(done, "openai-chat", as_request=True) == []
    assert check_history([*done, user("v")], as_request=True) == []
    assert check_history(GOOD["steering after results"][:3], as_request=True) == []
    assert check_history([user("u"), says("a", "hi").replace(stop_reason="pause")], as_request=True) == []
    assert check_history([SystemMessage(id="s", text="x")], as_request=True) == ["there is no message to answer"]


def test_a_failed_check_shows_the_messages() -> None:
    messages: Sequence[Message] = [user("u"), says("a", *asks("c1"))]
    with pytest.raises(
        AssertionError, match=r"(?s)the history is not valid:\nmessage 1 .*\n  message 0 .*UserMessage\("
    ):
        assert_history(messages)


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(ValueError, match="unknown provider 'openai'; known are all, openai-chat"):
        check_history([], "openai")  # type: ignore[arg-type]


# ---- any conversation ------------------------------------------------------------------------------------------------


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """A conversation as runs make them: per turn a user message, then answers with calls and their results."""
    messages: list[Message] = []

    def fresh(prefix: str) -> str:
        return f"{prefix}{len(messages)}"

    for _ in range(draw(st.integers(1, 4))):
        messages.append(user(fresh("u")))
        for count in draw(st.lists(st.integers(1, 3), max_size=3)):
            ids = [f"c{number}" for number in range(count)]
            before: list[AssistantPart | str] = draw(st.sampled_from([[], ["Looking."], [SIGNED], [SIGNED, "Hm."]]))
            messages.append(says(fresh("a"), *before, *asks(*ids)))
            messages.append(results(fresh("t"), *ids))
        messages.append(says(fresh("a"), "done", interrupted=draw(st.booleans())))
    return messages


@given(conversations())
def test_whatever_runs_make_passes(messages: list[Message]) -> None:
    assert check_history(messages) == []


@given(conversations(), st.data())
def test_r90_taking_results_away_is_always_found(messages: list[Message], data: st.DataObject) -> None:
    places = [index for index, message in enumerate(messages) if message.kind == "tool"]
    assume(places)
    index = data.draw(st.sampled_from(places))
    message = messages[index]
    assert isinstance(message, ToolMessage)
    lost = data.draw(st.integers(0, len(message.results) - 1))
    kept = message.results[:lost] + message.results[lost + 1 :]
    without_one = [*messages[:index], message.replace(results=kept), *messages[index + 1 :]]
    without_all = messages[:index] + messages[index + 1 :]
    moved = [*without_all, message]
    for provider in PROVIDERS:
        assert check_history(without_one, provider)
        assert check_history(without_all, provider)
        assert check_history(moved, provider)


@given(conversations(), st.data())
def test_f016_cutting_between_a_call_and_its_result_is_always_found(
    messages: list[Message], data: st.DataObject
) -> None:
    start = data.draw(st.integers(1, len(messages) - 1))
    problems = check_history(messages[start:])
    assert (problems == []) is (messages[start].kind == "user")
