"""Dividing a history: every window over drawn histories leaves what every provider takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilane import (
    Agent,
    AssistantMessage,
    ImagePart,
    Message,
    ModelRequest,
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
from trilane.testing import FunctionModel, assert_history, check_history, run_virtual
from trilane.testing.conversations import conversations
from trilane_compact import compact, pinned
from trilane_compact.counting import tokens_of_all
from trilane_compact.marks import is_pinned, is_summary, summary_message
from trilane_compact.planning import Plan, make_plan
from trilane_compact.summarising import CompactionError
from trilane_compact.writing import digest, parts_of

IMAGE = ImagePart(data="AAAA")
#: Every window, not a sample: minutes.
EVERY = bool(os.environ.get("TRILANE_ALL_FAULTS"))


@st.composite
def histories(draw: st.DrawFn, max_turns: int = 8) -> list[Message]:
    """Histories as runs leave them, each valid for every provider, and ending where a model is asked."""
    words = st.sampled_from(["Go.", "Look at the ships. " * 9, "多少艘船？", "x" * 300])
    messages: list[Message] = []

    def number() -> str:
        return f"m{len(messages)}"

    def user() -> None:
        origin: Any = draw(st.sampled_from(["request", "request", "steering", "follow_up", "feedback"]))
        parts: list[Any] = [TextPart(text=draw(words)), *([IMAGE] if draw(st.booleans()) else [])]
        one = UserMessage(id=number(), parts=tuple(parts), origin=origin)
        if draw(st.integers(0, 5)) == 0:
            one = pinned("Never touch the live data.").replace(id=number())
        if draw(st.integers(0, 9)) == 0:
            one = summary_message("What was before.", stands_for=7, view_length=3).replace(id=number())
        messages.append(one)

    def assistant() -> bool:
        """Returns whether it called tools."""
        parts: list[Any] = []
        if draw(st.booleans()):
            parts.append(ReasoningPart(text=draw(words), signature=draw(st.sampled_from(["", "c2lnbmVk"]))))
        if draw(st.booleans()):
            parts.append(ServerToolPart(id="srv", name="web_search", input={"q": "ships"}, output="two"))
        if draw(st.booleans()) or not parts:
            parts.append(TextPart(text=draw(words)))
        # Questions are calls whose result somebody typed.
        names = draw(st.lists(st.sampled_from(["look", "ask_colour", "paint"]), max_size=4))
        calls = [ToolCall(id=f"{number()}-{place}", name=name, arguments={"n": 1}) for place, name in enumerate(names)]
        parts += [ToolCallPart(call=call) for call in calls]
        if parts[-1].kind == "reasoning":
            parts.append(TextPart(text="So."))
        stop: Any = "tool_calls" if calls else draw(st.sampled_from(["end", "end", "pause", "length"]))
        messages.append(AssistantMessage(id=number(), parts=tuple(parts), stop_reason=stop))
        if calls:
            content = st.sampled_from(["seen", ("seen", IMAGE), "y" * 500])
            outcome: Any = st.sampled_from(["ok", "error", "denied", "interrupted"])
            results = [ToolResult(call_id=one.id, content=draw(content), outcome=draw(outcome)) for one in calls]
            messages.append(ToolMessage(id=number(), results=tuple(results)))
        return bool(calls)

    if draw(st.booleans()):
        messages.append(SystemMessage(id=number(), text="Be brief."))
    user()
    for _ in range(draw(st.integers(0, max_turns))):
        called = assistant()
        if draw(st.integers(0, 6)) == 0:
            messages.append(SystemMessage(id=number(), text="Be brief."))
        if not called or draw(st.integers(0, 3)) == 0:
            for _ in range(draw(st.integers(1, 2))):
                user()
    return messages


def view_of(plan: Plan) -> list[Message]:
    summary = summary_message("It is summed up.", stands_for=len(plan.replaced), view_length=0)
    return [*plan.kept, summary, *plan.tail]


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


def check(messages: list[Message], plan: Plan) -> None:
    """What holds for every plan."""
    assert_history(view_of(plan), as_request=True)
    whole = {message.id: message for message in messages}
    stays = [*plan.kept, *plan.tail]
    assert all(whole[message.id] is message for message in stays)  # with all its parts, as the provider signed them
    assert sorted(ids([*stays, *plan.replaced])) == sorted(whole)
    for part in (plan.kept, plan.replaced, plan.tail):
        assert ids([one for one in messages if one in part]) == ids(part)  # in their order
    requests = [one for one in messages if one.kind == "user" and one.origin in ("request", "follow_up")]
    requests = [one for one in requests if not is_summary(one)]
    for one in requests[:1] + requests[-1:]:
        assert one in stays
    assert all(one in stays for one in messages if is_pinned(one))
    assert not requests or any(one in plan.tail for one in requests)  # the summary is never what is asked last
    # What the model has not answered yet stays as it is.
    last = max((place for place, one in enumerate(messages) if one.kind == "assistant"), default=-1)
    assert all(one in stays for one in messages[last:])


@given(histories())
@settings(max_examples=30, deadline=None)
def test_f016_every_window_of_every_history_is_valid_for_all_providers(messages: list[Message]) -> None:
    assert check_history(messages, as_request=True) == []
    whole = tokens_of_all(messages)
    # Two plans are different only where one more block fits: every such window, and those in between.
    windows = {0, 1, 2, *range(2, whole + 2, max(1, whole // 60))}
    windows |= {tokens_of_all(messages[place:]) + step for place in range(len(messages)) for step in (-1, 0, 1)}
    seen = {}
    for window in sorted(windows):
        plan = make_plan(messages, keep_tokens=window)
        check(messages, plan)
        seen[len(plan.tail)] = plan
    assert make_plan(messages, keep_tokens=whole).tail == tuple(messages)
    assert list(seen) == sorted(seen)  # more room never keeps less


class Summing(FunctionModel):
    """Sums up what it is asked to, and answers everything else."""

    def __init__(self) -> None:
        super().__init__(self._answer)

    def _answer(self, request: ModelRequest, emit: Any) -> str:
        self.shown = request.messages
        return "It is summed up." if request.instructions.startswith("You shorten") else "Yes."


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(histories(max_turns=5))
@settings(max_examples=3, deadline=None, derandomize=True)
def test_f016_runs_on_every_window_send_what_every_provider_takes(backend: Any, messages: list[Message]) -> None:
    """The same through whole runs: contexts of 2 tokens and up, the first request summed up or not."""

    async def main() -> None:
        history = messages if messages[-1].kind == "assistant" else [*messages, answer("last")]
        whole = tokens_of_all(history) * 2
        for window in {2, *range(3, whole, 1 if EVERY else max(1, whole // 25))}:
            model = Summing()
            agent = Agent(model, plugins=[compact(context_tokens=window)])
            result = await agent.run("And now?", history=history)
            assert result.output == "Yes."
            for request in model.requests:
                assert_history(request.messages, as_request=True)
            assert all(isinstance(one.error, CompactionError) for one in result.hook_failures)
            assert await agent.compact(result.session_id) in (True, False)
            await agent.run("And now?", session=result.session_id)
            assert_history(model.shown, as_request=True)

    run_virtual(main, backend=backend)


@given(conversations(), st.integers(0, 400))
@settings(max_examples=30, deadline=None)
def test_whatever_is_wrong_with_a_history_calls_and_results_stay_together(messages: list[Message], window: int) -> None:
    plan = make_plan(messages, keep_tokens=window)
    before, after = check_history(messages), check_history(view_of(plan))
    for told in ("are not answered", "results need a message with calls", "is not answered", "which was not called"):
        assert sum(told in one for one in after) <= sum(told in one for one in before)
    assert sorted(ids([*plan.kept, *plan.replaced, *plan.tail])) == sorted(ids(messages))
    for size in (1, 50, 5000):  # and all of it can be put into words
        assert len(parts_of(plan.replaced, size)) <= max(len(plan.replaced), 1)
        assert len(digest(plan.replaced, size)) <= len(digest(plan.replaced, 10**6)) + 40


def said(name: str, text: str = "Go.", origin: Any = "request") -> UserMessage:
    return UserMessage(id=name, parts=(TextPart(text=text),), origin=origin)


def answer(name: str, *calls: str, stop: Any = "end") -> AssistantMessage:
    parts = [TextPart(text="So."), *[ToolCallPart(call=ToolCall(id=one, name="look")) for one in calls]]
    return AssistantMessage(id=name, parts=tuple(parts), stop_reason="tool_calls" if calls else stop)


def results(name: str, *calls: str) -> ToolMessage:
    return ToolMessage(id=name, results=tuple([ToolResult(call_id=one, content="seen") for one in calls]))


def planned(messages: Sequence[Message], keep_tokens: float = 0, **options: Any) -> tuple[str, str, str]:
    plan = make_plan(messages, keep_tokens=keep_tokens, **options)
    return " ".join(ids(plan.kept)), " ".join(ids(plan.replaced)), " ".join(ids(plan.tail))


def test_the_first_request_stays_and_the_last_turn() -> None:
    history = [said("u1"), answer("a1"), said("u2"), answer("a2"), said("u3")]
    assert planned(history) == ("u1", "a1", "u2 a2 u3")
    assert planned(history, 10_000) == ("", "", "u1 a1 u2 a2 u3")


def test_in_a_long_run_the_current_request_stays_with_what_was_said_about_it() -> None:
    turns = [message for n in range(3) for message in (answer(f"a{n}", f"c{n}", f"d{n}"), results(f"t{n}", f"c{n}"))]
    history = [said("u1"), answer("x"), said("u2"), *turns[:2], said("s", origin="steering"), *turns[2:]]
    assert planned(history) == ("u1", "x a0 t0 a1 t1", "u2 s a2 t2")
    assert planned(history[:1] + history[3:]) == ("", "a0 t0 a1 t1", "u1 s a2 t2")


def test_an_answer_that_was_paused_stays_with_its_continuation() -> None:
    history = [said("u1"), answer("p1", stop="pause"), answer("p2", stop="pause"), answer("p3"), said("u2")]
    assert planned(history) == ("", "", "u1 p1 p2 p3 u2")
    more = [*history, answer("a2"), said("u3")]
    assert planned(more) == ("u1", "p1 p2 p3", "u2 a2 u3")


def test_pinned_messages_stay_in_their_order_with_what_belongs_to_them() -> None:
    first = [said("u1"), answer("a1", "c1"), results("t1", "c1"), SystemMessage(id="host", text="Be brief.")]
    history = [*first, pinned("Never.").replace(id="pin"), answer("a2"), said("u2"), answer("a3"), said("u3")]
    assert planned(history) == ("u1 host pin", "a1 t1 a2", "u2 a3 u3")
    kept = planned(history, keep=lambda message: message.id == "t1")
    assert kept == ("u1 a1 t1 host pin", "a2", "u2 a3 u3")


def test_an_earlier_summary_is_summed_up_with_what_came_after_it_but_never_alone() -> None:
    summary = summary_message("Before.", stands_for=3, view_length=3).replace(id="sum")
    history: list[Message] = [said("u1"), summary, answer("a1"), said("u2")]
    assert planned(history) == ("u1", "sum", "a1 u2")
    assert not make_plan(history, keep_tokens=0).has_work
    more = [*history, answer("a2"), said("u3")]
    assert planned(more) == ("u1", "sum a1", "u2 a2 u3")
    assert make_plan(more, keep_tokens=0).has_work


@pytest.mark.parametrize("messages", [[], [said("u1")], [said("u1"), said("u2")]])
def test_where_nothing_was_answered_nothing_is_replaced(messages: list[Message]) -> None:
    plan = make_plan(messages, keep_tokens=0)
    assert (plan.replaced, plan.has_work) == ((), False)


# ---- words -----------------------------------------------------------------------------------------------------------


def test_a_record_says_who_said_and_did_what() -> None:
    asked = AssistantMessage(
        id="a",
        parts=(TextPart(text="I look."), ToolCallPart(call=ToolCall(id="c", name="look", arguments={"at": "海"}))),
    )
    done = ToolMessage(id="t", results=(ToolResult(call_id="c", content=("seen", IMAGE), outcome="error"),))
    (record,) = parts_of([said("u", "How many ships?"), asked, done, SystemMessage(id="s", text="Be brief.")], 1000)
    assert record.split("\n") == [
        "User: How many ships?",
        "",
        "Assistant: I look.",
        'Assistant calls look({"at": "海"})',
        "",
        "look failed: seen",
        "[image]",
        "",
        "Host: Be brief.",
    ]


def test_a_long_record_comes_in_parts_and_long_results_are_cut() -> None:
    long = ToolMessage(id="t", results=(ToolResult(call_id="c", content="z" * 50_000),))
    (record,) = parts_of([answer("a", "c"), long], 10_000)
    assert len(record) < 2500
    assert "[…48000 characters…]" in record
    history = [said(f"u{n}", "word " * 200) for n in range(10)]
    parts = parts_of(history, 700)
    assert len(parts) == 5
    assert [part.count("User:") for part in parts] == [2] * 5
    assert len(parts_of(history, 1)) == 10


def test_a_digest_keeps_both_ends_and_says_what_is_missing() -> None:
    history: list[Message] = [said(f"u{n}", f"Request {n}.") for n in range(100)]
    assert digest(history, 10_000).split("\n") == [f"User: Request {n}." for n in range(100)]
    lines = digest(history, 60).split("\n")
    assert (lines[0], lines[-1]) == ("User: Request 0.", "User: Request 99.")
    (left_out,) = [line for line in lines if "lines left out" in line]
    assert left_out == f"(… {101 - len(lines)} lines left out …)"
    again = [summary_message("\n".join(lines), stands_for=100, view_length=2), *history[:1]]
    assert digest(again, 10_000).split("\n") == [*lines, "User: Request 0."]
