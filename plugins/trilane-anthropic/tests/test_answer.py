"""What comes back: events of the API as deltas and parts."""

from __future__ import annotations

from typing import Any

from trilane.messages import (
    AssistantPart,
    CitationPart,
    Delta,
    ReasoningPart,
    ServerToolPart,
    TextPart,
    ToolCall,
    ToolCallPart,
    Usage,
)
from trilane_anthropic.answer import Answer
from trilane_anthropic.names import ToolNames
from trilane_anthropic.parameters import AnswerForm


def start(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(reason: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **fields}, "usage": {"output_tokens": 9}}


def play(*events: dict[str, Any], form: AnswerForm | None = None) -> tuple[Answer, list[Delta]]:
    answer = Answer(ToolNames(["search"]), form or AnswerForm())
    return answer, [one for event in events for one in answer.take(event)]


def parts_of(*events: dict[str, Any], form: AnswerForm | None = None) -> tuple[AssistantPart, ...]:
    return play(*events, form=form)[0].parts()


def test_thinking_is_signed_and_redacted_thinking_is_kept() -> None:
    answer, deltas = play(
        start(0, "thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Hm"),
        delta(0, "signature_delta", signature="si"),
        delta(0, "signature_delta", signature="g"),
        stop(0),
        start(1, "redacted_thinking", data="secret"),
        stop(1),
    )
    assert answer.parts() == (
        ReasoningPart(text="Hm", signature="sig", extra={"anthropic": {}}),
        ReasoningPart(text="", signature="secret", extra={"anthropic": {"redacted": True}}),
    )
    # The core keeps the deltas of an interrupted answer: they must say the same.
    assert deltas[2].extra == {"signature": "sig", "anthropic": {}}
    assert deltas[3].extra == {"signature": "secret", "anthropic": {"redacted": True}}


def test_tools_of_the_provider_are_shown_with_their_result() -> None:
    found = [{"type": "web_search_result", "url": "https://e.org", "title": "T", "encrypted_content": "x"}]
    events = (
        start(0, "server_tool_use", id="s1", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query": '),
        delta(0, "input_json_delta", partial_json='"ships"}'),
        stop(0),
        start(1, "web_search_tool_result", tool_use_id="s1", content=found),
        stop(1),
        start(2, "text", text=""),
        delta(2, "text_delta", text="Two."),
        delta(2, "citations_delta", citation={"type": "web_search_result_location", "cited_text": "c", "url": "u"}),
        stop(2),
    )
    ran, text, cited = parts_of(*events)
    assert isinstance(ran, ServerToolPart)
    assert (ran.id, ran.name, ran.input, ran.output) == ("s1", "web_search", {"query": "ships"}, found)
    extra: Any = ran.extra
    assert [block["type"] for block in extra["anthropic"]["blocks"]] == ["server_tool_use", "web_search_tool_result"]
    assert extra["anthropic"]["blocks"][0]["input"] == {"query": "ships"}
    assert text == TextPart(text="Two.")
    assert isinstance(cited, CitationPart)
    assert (cited.text, cited.source) == ("c", "u")
    assert play(*events)[1] == [Delta(text="Two.", index=2)]


def test_a_result_away_from_its_call_keeps_its_place() -> None:
    made = parts_of(
        start(0, "mcp_tool_use", id="s1", name="look", server_name="x", input={"a": 1}),
        start(1, "text", text="Meanwhile."),
        start(2, "mcp_tool_result", tool_use_id="s1", content=[], is_error=False),
    )
    assert [part.kind for part in made] == ["server_tool", "text", "server_tool"]


def test_malformed_arguments_are_kept_raw() -> None:
    (part,) = parts_of(
        start(0, "tool_use", id="c1", name="search", input={}), delta(0, "input_json_delta", partial_json='{"q": "Par')
    )
    assert part == ToolCallPart(call=ToolCall(id="c1", name="search", raw='{"q": "Par'))


def test_input_that_comes_at_once_counts() -> None:
    answer, deltas = play(start(0, "tool_use", id="c1", name="search", input={"q": 1}), stop(0))
    (part,) = answer.parts()
    assert isinstance(part, ToolCallPart)
    assert part.call.arguments == {"q": 1}
    assert deltas[1].text == '{"q": 1}'


def test_usage_sums_are_replaced_and_cached_tokens_are_input() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 10, "output_tokens": 1}
    answer, _ = play(
        {"type": "message_start", "message": {"id": "m", "model": "claude", "usage": usage}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
        },
    )
    assert answer.usage == Usage(
        input_tokens=45, output_tokens=9, cache_read_tokens=30, cache_write_tokens=10, reasoning_tokens=4
    )


def test_stop_reasons() -> None:
    for said, meant in {
        "end_turn": "end",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "stop_sequence": "stop_sequence",
        "pause_turn": "pause",
        "refusal": "refusal",
        "brand_new": "end",
    }.items():
        assert play(end(said))[0].stop_reason == meant


def test_a_refusal_without_words_has_its_explanation() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    answer, _ = play(end("refusal", stop_details=details))
    assert answer.parts() == (TextPart(text="Not this."),)
    assert answer.extra()["stop_details"] == details


def test_f038_unknown_events_blocks_and_deltas_are_skipped() -> None:
    made = parts_of(
        {"type": "brand_new"},
        {},
        start(0, "hologram", data=1),
        delta(0, "hologram_delta", data=2),
        delta(7, "text_delta", text="nowhere"),
        stop(7),
        start(1, "text", text="", mood="good"),
        delta(1, "mood_delta", mood="better"),
        delta(1, "text_delta", text="a"),
    )
    assert made == (TextPart(text="a"),)


def test_the_answer_tool_becomes_the_text() -> None:
    form = AnswerForm(tool="answer")
    events = (
        start(0, "tool_use", id="c1", name="answer", input={}),
        delta(0, "input_json_delta", partial_json='{"age":'),
        delta(0, "input_json_delta", partial_json=" 3}"),
        stop(0),
        end("tool_use"),
    )
    answer, deltas = play(*events, form=form)
    assert answer.parts() == (TextPart(text='{"age": 3}'),)
    assert [(one.kind, one.text) for one in deltas] == [("text", '{"age":'), ("text", " 3}")]
    assert answer.stop_reason == "end"
    with_call = play(start(1, "tool_use", id="c2", name="search", input={}), *events, form=form)[0]
    assert with_call.stop_reason == "tool_calls"


def test_a_wrapped_answer_is_unwrapped() -> None:
    for form, opened, grown in (
        (AnswerForm(is_wrapped=True), start(0, "text", text=""), "text_delta"),
        (AnswerForm("answer", True), start(0, "tool_use", id="c", name="answer", input={}), "input_json_delta"),
    ):
        key = "text" if grown == "text_delta" else "partial_json"
        answer, deltas = play(
            opened, delta(0, grown, **{key: '{"value": '}), delta(0, grown, **{key: "[1]}"}), stop(0), form=form
        )
        assert answer.parts() == (TextPart(text="[1]"),)
        assert [one.text for one in deltas] == ["[1]"]
