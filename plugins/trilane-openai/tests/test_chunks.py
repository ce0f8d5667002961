"""What comes back: chunks as servers really send them, and bytes cut anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trilane.messages import Delta, Usage
from trilane.testing.calls import meaning
from trilane_openai.chunks import Answer, StreamFailed
from trilane_openai.names import ToolNames
from trilane_openai.sse import EventDecoder


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def piece(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    values = {"index": index, "id": id, "function": function}
    return {"tool_calls": [{key: value for key, value in values.items() if value is not None}]}


def taken(*chunks: Any, answer: Answer | None = None) -> list[Delta]:
    answer = answer or Answer(ToolNames())
    deltas = [delta for one in chunks for delta in answer.take(one)]
    return [*deltas, *answer.end()]


def calls(*deltas: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and arguments of each call."""
    found: dict[int, list[str]] = {}
    for delta in taken(*(chunk(one) for one in deltas)):
        assert delta.kind == "arguments"
        found.setdefault(delta.index, [delta.name, ""])[1] += delta.text
    return [(name, arguments) for name, arguments in found.values()]


def test_f031_a_call_in_pieces() -> None:
    both = {"tool_calls": [piece(0, "c", "f")["tool_calls"][0], piece(0, args='{"a"')["tool_calls"][0]]}
    assert calls(both, piece(0, args=":1}")) == [("f", '{"a":1}')]


def test_f032_no_index_anywhere() -> None:
    assert calls(piece(id="c", name="f"), piece(args="{}")) == [("f", "{}")]
    two = calls(piece(id="c", name="f", args="{"), piece(args="}"), piece(id="d", name="g"), piece(args="[]"))
    assert two == [("f", "{}"), ("g", "[]")]
    mixed = calls(piece(0, "c", "f", "{"), piece(args="}"), piece(id="d", name="g", args="1"), piece(0, args=" "))
    assert mixed == [("f", "{} "), ("g", "1")]


def test_every_call_has_index_0_but_its_own_id() -> None:
    assert calls(piece(0, "c", "f", "{}"), piece(0, "d", "g", "[]")) == [("f", "{}"), ("g", "[]")]


def test_whole_calls_without_index_and_id() -> None:
    assert calls(piece(name="f", args="{}"), piece(name="f", args="[]")) == [("f", "{}"), ("f", "[]")]


def test_arguments_as_an_object_and_a_name_that_comes_late() -> None:
    assert calls(piece(0, "c", "f", {"a": 1})) == [("f", '{"a": 1}')]
    assert calls(piece(0, "c", args="{"), piece(0, name="f", args="}")) == [("f", "{}")]
    assert calls(piece(0, "c", args="{}")) == [("", "{}")]


def test_a_name_and_an_id_that_are_repeated() -> None:
    assert calls(piece(0, "c", "f", "{"), piece(0, "c", "f", "}")) == [("f", "{}")]


def test_a_call_without_an_id_gets_one() -> None:
    opened = taken(chunk(piece(0, name="f")))[0]
    assert opened.call_id.startswith("call_")


def test_names_are_those_of_the_tools() -> None:
    answer = Answer(ToolNames(["a.b"]))
    assert taken(chunk(piece(0, "c", "a_b")), answer=answer)[0].name == "a.b"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name(field: str) -> None:
    deltas = taken(chunk({field: "Hm", "content": None}), chunk({field: "", "content": "Yes"}))
    assert meaning(deltas) == [("reasoning", 0, "Hm"), ("text", 1, "Yes")]


def test_content_in_parts_with_thinking() -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "new"}, 3]
    deltas = taken(chunk({"content": thinking}), chunk({"content": [{"type": "text", "text": "Yes"}]}))
    assert meaning(deltas) == [("reasoning", 0, "Hm"), ("text", 1, "Yes")]


def test_details_of_reasoning_are_kept_with_it() -> None:
    one, other = {"type": "reasoning.text", "text": "Hm"}, {"type": "reasoning.encrypted", "data": "x"}
    deltas = taken(
        chunk({"reasoning": "Hm", "reasoning_details": [one]}),
        chunk({"reasoning_details": [other]}),
        chunk(piece(0, "c", "f", "{}")),
    )
    assert deltas[1].extra == {"openai": {"details": [one, other]}, "signature": "openai"}
    assert (deltas[1].index, deltas[2].index) == (0, 1)


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("model_length", "length"),
        ("brand_new", "end"),
    ],
)
def test_stop_reasons(finish: str, expected: str) -> None:
    answer = Answer(ToolNames())
    taken(chunk({"content": "x"}, finish), answer=answer)
    assert answer.stop_reason == expected


def test_stop_reasons_that_need_more_than_the_word() -> None:
    answer = Answer(ToolNames())
    taken(chunk(piece(0, "c", "f", "{}"), "stop"), answer=answer)
    assert answer.stop_reason == "tool_calls"
    answer = Answer(ToolNames())
    taken({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop", "stop_reason": "END"}]}, answer=answer)
    assert answer.stop_reason == "stop_sequence"
    answer = Answer(ToolNames())
    taken(chunk({"refusal": "No."}, "stop"), answer=answer)
    assert answer.stop_reason == "refusal"


def test_usage_in_every_form() -> None:
    answer = Answer(ToolNames())
    taken(
        chunk({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 1}),
        {"choices": [], "usage": None},
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
                "cost": 0.25,
            },
        },
        answer=answer,
    )
    assert answer.usage == Usage(
        input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3, cost=0.25
    )
    answer = Answer(ToolNames())
    taken({"x_groq": {"usage": {"prompt_tokens": 7, "prompt_cache_hit_tokens": 6}}}, answer=answer)
    assert answer.usage == Usage(input_tokens=7, cache_read_tokens=6)


@pytest.mark.parametrize(
    "odd", [None, 3, [], {"choices": None}, {"choices": [None, {"index": 1, "delta": {"content": "other"}}]}, {"a": 1}]
)
def test_f038_what_is_not_understood_is_skipped(odd: Any) -> None:
    assert taken(odd) == []


def test_errors_in_the_stream() -> None:
    with pytest.raises(StreamFailed):
        taken({"error": {"message": "no"}})
    with pytest.raises(StreamFailed):
        taken(chunk({}, "error"))


# ---- bytes -----------------------------------------------------------------------------------------------------------

STREAM = (
    ': hello\r\n\r\ndata: {"a": "🌍世\u2028\u2029\u0085é"}\n\nevent: x\rdata:1\rdata: 2\r\rdata: [DONE]\r\n\r\n'
).encode()
EVENTS = ['{"a": "🌍世\u2028\u2029\u0085é"}', "1\n2", "[DONE]"]


def decoded(*pieces: bytes) -> list[str]:
    decoder = EventDecoder()
    events = [event for one in pieces for event in decoder.feed(one)]
    return [event.decode() for event in [*events, *decoder.finish()]]


def test_f033_only_cr_and_lf_end_a_line() -> None:
    assert decoded(STREAM) == EVENTS


def test_f034_bytes_cut_at_every_place() -> None:
    for at in range(len(STREAM) + 1):
        assert decoded(STREAM[:at], STREAM[at:]) == EVENTS, at
    assert decoded(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == EVENTS


def test_what_is_left_at_the_end() -> None:
    assert decoded(b"data: 1") == ["1"]
    assert decoded(b"data: 1\n") == ["1"]
    assert decoded(b": only a comment") == []


def test_an_event_is_given_as_soon_as_it_is_complete() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: 1\n") == []
    assert decoder.feed(b"\n") == [b"1"]
    assert json.loads(decoder.feed(b'data: {"a": 1}\r\n\r\n')[0]) == {"a": 1}
