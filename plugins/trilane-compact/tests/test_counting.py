"""The estimate: near enough for every kind of text, and of every part that a model is sent."""

from __future__ import annotations

import pytest

from trilane import (
    AssistantMessage,
    AudioPart,
    CitationPart,
    FilePart,
    ImagePart,
    ReasoningPart,
    ServerToolPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from trilane_compact.counting import MEDIA_TOKENS, tokens_of, tokens_of_all, tokens_of_text
from trilane_compact.gauge import Gauge, Gauges
from trilane_compact.marks import summary_message

PROSE = "The harbour master counts every ship that enters the bay and writes its name into a large book. " * 10
CODE = 'def add(a: int, b: int) -> int:\n    """Add two numbers."""\n    return a + b\n\n' * 10
RUSSIAN = "Начальник порта считает каждый корабль, который входит в бухту, и записывает его имя. " * 10
CHINESE = "港务长清点进入海湾的每艘船，并把船名写进一本大书里。" * 10


@pytest.mark.parametrize(
    ("text", "fewest", "most"),
    [
        (PROSE, len(PROSE) / 5, len(PROSE) / 3),
        (CODE, len(CODE) / 5, len(CODE) / 2.5),
        (RUSSIAN, len(RUSSIAN) / 5, len(RUSSIAN) / 1.2),
        (CHINESE, len(CHINESE) * 0.5, len(CHINESE) * 1.5),
        (PROSE + CHINESE, len(PROSE) / 5 + len(CHINESE) / 2, len(PROSE) / 3 + len(CHINESE) * 1.5),
    ],
)
def test_an_estimate_is_within_what_tokenizers_make_of_a_text(text: str, fewest: float, most: float) -> None:
    assert fewest < tokens_of_text(text) < most


def test_no_text_has_no_tokens_and_any_text_has_some() -> None:
    assert tokens_of_text("") == 0
    assert tokens_of_text("a") == 1
    assert tokens_of_text("é") == 1
    assert tokens_of_text("\ud800") >= 1  # half a surrogate pair, from a damaged record


def said(*parts: object) -> UserMessage:
    return UserMessage(id="u", parts=parts)  # type: ignore[arg-type]


def answered(*parts: object, **values: object) -> AssistantMessage:
    return AssistantMessage(id="a", parts=parts, **values)  # type: ignore[arg-type]


def test_every_part_that_is_sent_counts() -> None:
    empty = tokens_of(answered())
    text = TextPart(text=PROSE)
    for part in (
        text,
        ReasoningPart(text=PROSE, signature="s"),
        ToolCallPart(call=ToolCall(id="c", name="look", arguments={"text": PROSE})),
        ToolCallPart(call=ToolCall(id="c", name="look", raw=PROSE)),
        ServerToolPart(name="search", input={"q": "x"}, output=PROSE),
        CitationPart(text=PROSE, source="https://example.org"),
    ):
        assert tokens_of(answered(part)) - empty >= tokens_of_text(PROSE), part.kind
    assert tokens_of(SystemMessage(id="s", text=PROSE)) > tokens_of_text(PROSE)


def test_media_count_by_what_models_make_of_them() -> None:
    empty = tokens_of(said())
    page = "A" * 400_000
    assert tokens_of(said(ImagePart(data=page))) - empty == MEDIA_TOKENS  # however large the file
    assert tokens_of(said(ImagePart(url="https://example.org/a.png"))) - empty == MEDIA_TOKENS
    assert tokens_of(said(FilePart(url="https://example.org/a.pdf"))) - empty == MEDIA_TOKENS
    assert tokens_of(said(FilePart(data=page, media_type="application/pdf"))) > 5000
    assert tokens_of(said(FilePart(data=page, media_type="text/plain"))) > 90_000
    assert 100 < tokens_of(said(AudioPart(data=page))) < 1000


def test_results_count_without_what_only_programs_see() -> None:
    def result(content: object, data: object = None) -> ToolMessage:
        return ToolMessage(id="t", results=(ToolResult(call_id="c", content=content, data=data),))  # type: ignore[arg-type]

    assert tokens_of(result(PROSE)) == tokens_of(result(PROSE, data={"all": PROSE}))
    assert tokens_of(result((PROSE, ImagePart(data="AAAA")))) >= tokens_of(result(PROSE)) + MEDIA_TOKENS
    two = ToolMessage(id="t", results=(ToolResult(call_id="c", content="x"), ToolResult(call_id="d", content="x")))
    assert tokens_of(two) > tokens_of(result("x"))


# ---- the gauge -------------------------------------------------------------------------------------------------------


def talk(count: int, usage: Usage | None = None) -> list[UserMessage | AssistantMessage]:
    messages: list[UserMessage | AssistantMessage] = []
    for number in range(count):
        messages.append(UserMessage(id=f"u{number}", parts=(TextPart(text=PROSE),)))
        messages.append(AssistantMessage(id=f"a{number}", parts=(TextPart(text=PROSE),), usage=usage or Usage()))
    return messages


def test_each_message_is_counted_once() -> None:
    gauge, history = Gauge(), talk(500)
    for length in range(1, len(history) + 1):
        tokens = gauge.read(history[:length])
    assert tokens == tokens_of_all(history)
    assert gauge.looked_at == len(history)
    assert gauge.read(history) == tokens
    assert gauge.looked_at == len(history)


def test_what_the_provider_counted_is_preferred_and_only_what_came_after_is_estimated() -> None:
    gauge, history = Gauge(), talk(3, Usage(input_tokens=9000, cache_read_tokens=8000, output_tokens=50))
    assert gauge.read(history) == 9050
    more = UserMessage(id="more", parts=(TextPart(text=PROSE),))
    assert gauge.read([*history, more]) == 9050 + tokens_of(more)
    assert gauge.factor == 2.0  # at most: the rest is instructions and tools
    assert Gauge().factor == 1.0


def test_an_answer_without_a_count_is_estimated() -> None:
    gauge, history = Gauge(), [*talk(1, Usage(input_tokens=9000)), *talk(2)[2:]]
    assert gauge.read(history) == 9000 + tokens_of_all(history[2:])


def test_a_history_that_was_replaced_is_counted_anew() -> None:
    gauge, history = Gauge(), talk(5)
    gauge.read(history)
    for other in (history[:3], [*history[:2], *talk(9)[12:]], [], history):
        assert gauge.read(other) == tokens_of_all(other)


def test_counts_from_before_a_compaction_say_nothing_about_the_view_after_it() -> None:
    kept = talk(2, Usage(input_tokens=90_000))
    view = [summary_message("Short.", stands_for=8, view_length=3), *kept[2:]]
    assert Gauge().read(view) == tokens_of_all(view)
    after = [*view, UserMessage(id="x", parts=(TextPart(text="Go"),))]
    after.append(AssistantMessage(id="y", usage=Usage(input_tokens=700, output_tokens=7)))
    assert Gauge().read(after) == 707


def test_only_the_sessions_used_last_are_remembered() -> None:
    gauges = Gauges()
    first = gauges.of("first")
    for number in range(999):
        gauges.of(str(number))
    assert gauges.of("first") is first  # used again
    for number in range(1000):
        gauges.of(f"more {number}")
    assert gauges.of("first") is not first
