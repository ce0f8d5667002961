from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import ipaddress
import json
import pathlib
import types
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, field_serializer

from trilane.errors import NoAnswererError, ReplyTimeoutError, ToolError, ToolTimeoutError
from trilane.messages import FilePart, ImagePart, TextPart, ToolCall, ToolResult, Usage
from trilane.tools import error_result, render_result, unknown_tool_result
from trilane.tools.results import cut_text

CALL = ToolCall(id="c1", name="find")


def render(value: object, max_chars: int | None = 20000) -> ToolResult:
    found = render_result(value, call_id="c1", max_chars=max_chars)
    assert found.call_id == "c1"
    return found


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


@dataclass
class Point:
    x: int
    when: dt.date
    tags: set[str] = field(default_factory=set)
    shared: ClassVar[int] = 5


@dataclass(slots=True)
class Slotted:
    x: int


class Model(BaseModel):
    name: str
    secret: SecretStr = SecretStr("hunter2")


class Pair(NamedTuple):
    a: int
    b: str


class Named:
    def __str__(self) -> str:
        return "a named thing"


class Shown:
    def __repr__(self) -> str:
        return f"<Shown at {hex(id(self))}>"


class Array:
    def tolist(self) -> list[int]:
        return [1, 2]


KEY = "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize(
    ("value", "text", "data"),
    [
        (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), "2026-01-31T12:00:00+00:00", None),
        (dt.date(2026, 1, 31), "2026-01-31", None),
        (dt.timedelta(days=1, seconds=5), "1 day, 0:00:05", None),
        (decimal.Decimal("1.10"), "1.10", None),
        (uuid.UUID(KEY), KEY, None),
        (pathlib.PurePosixPath("a/b"), "a/b", None),
        (ipaddress.ip_address("10.0.0.1"), "10.0.0.1", None),
        (b"text \xc3\xa9", "text é", None),
        (b"\xff\x00", "base64:/wA=", None),
        (bytearray(b"x"), "x", None),
        ({"b", "a", "c"}, '["a", "b", "c"]', ["a", "b", "c"]),
        (frozenset({3, 20, 100}), "[100, 20, 3]", [100, 20, 3]),
        (Color.RED, "red", None),
        (Level.HIGH, "3", 3),
        (Word.YES, "yes", None),
        (
            Point(1, dt.date(2026, 1, 31), {"z", "a"}),
            '{"x": 1, "when": "2026-01-31", "tags": ["a", "z"]}',
            {"x": 1, "when": "2026-01-31", "tags": ["a", "z"]},
        ),
        (Slotted(1), '{"x": 1}', {"x": 1}),
        (Model(name="é"), '{"name": "é", "secret": "**********"}', {"name": "é", "secret": "**********"}),
        (Pair(1, "x"), '{"a": 1, "b": "x"}', {"a": 1, "b": "x"}),
        (
            {1: 1, None: 2, False: 3, 2.5: 4},
            '{"1": 1, "null": 2, "false": 3, "2.5": 4}',
            {"1": 1, "null": 2, "false": 3, "2.5": 4},
        ),
        ({Color.RED: {Level.HIGH}}, '{"red": [3]}', {"red": [3]}),
        ({(1, "a"): 1}, '{"[1, \\"a\\"]": 1}', {'[1, "a"]': 1}),
        (types.MappingProxyType({"a": 1}), '{"a": 1}', {"a": 1}),
        (collections.deque([1, 2]), "[1, 2]", [1, 2]),
        (range(3), "[0, 1, 2]", [0, 1, 2]),
        ({"a": 1}.values(), "[1]", [1]),
        (Array(), "[1, 2]", [1, 2]),
        (True, "true", True),
        (5, "5", 5),
        (2.5, "2.5", 2.5),
        (float("nan"), "NaN", None),
        ([float("-inf")], '["-Infinity"]', ["-Infinity"]),
        (Named(), "a named thing", None),
        (Shown(), "<Shown>", None),
        (Point, "test_results.Point", None),
        (ValueError("wrong"), "wrong", None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_f048_every_value_becomes_text(value: object, text: str, data: object) -> None:
    found = render(value)
    assert found.outcome == "ok"
    assert str(found.content).endswith(text) if isinstance(value, type) else found.content == text
    assert found.data == data
    assert ToolResult.from_json(found.to_json()) == found


def test_f048_records_are_json() -> None:
    found = render([Usage(input_tokens=3)])
    assert json.loads(str(found.content))[0]["input_tokens"] == 3


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Raising:
    def __str__(self) -> str:
        raise RuntimeError("secret path /etc")


class RaisingModel(BaseModel):
    x: int = 1

    @field_serializer("x")
    def write(self, value: int) -> int:
        raise RuntimeError("no")


def endless() -> list[object]:
    value: list[object] = []
    value.append({"inner": value})
    return value


def deep() -> list[object]:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "(object) cannot be shown: it has no text form; return text"),
        (Raising(), "turning it into text raised RuntimeError."),
        ([1, Raising()], "turning it into text raised RuntimeError."),
        (RaisingModel(), "raised"),
        (endless(), "(list) cannot be shown: it contains itself"),
        (deep(), "nested more than 100 levels"),
        (generator(), "a generator is not a value; return its items"),
        (async_generator(), "a async_generator is not a value"),
        ({1: "a", "1": "b"}, "two of its keys read '1'"),
        (10**5000, "raised ValueError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_f048_what_has_no_text_becomes_an_error_result(value: object, reason: str) -> None:
    found = render(value)
    assert found.outcome == "error"
    assert reason in str(found.content)
    assert "/etc" not in str(found.content)


def test_f048_a_value_that_occurs_twice_is_no_loop() -> None:
    shared = [1]
    assert render([shared, shared]).data == [[1], [1]]


@pytest.mark.parametrize(
    ("value", "content", "data"),
    [("", "", None), (None, "", None), ([], "[]", []), ("  \n", "  \n", None), ({}, "{}", {})],
)
def test_f049_empty_results_keep_their_value(value: object, content: str, data: object) -> None:
    found = render(value)
    assert (found.content, found.data, found.outcome) == (content, data, "ok")


def test_f050_long_text_keeps_head_and_tail_and_says_what_was_cut() -> None:
    text = "H" * 2_500_000 + "T" * 2_500_000
    content = str(render(text).content)
    assert len(content) <= 20000
    head, note, tail = content.split("\n")
    assert set(head) == {"H"}
    assert set(tail) == {"T"}
    assert note == f"[... {5_000_000 - len(head) - len(tail)} of 5000000 characters cut ...]"
    assert render(text, None).content == text


def test_f050_a_cut_result_carries_no_data() -> None:
    value = list(range(1000))
    found = render(value, 200)
    assert len(str(found.content)) <= 200
    assert found.data is None
    assert render(value).data == value


@given(st.text(), st.integers(1, 300))
def test_f050_nothing_is_longer_than_the_limit(text: str, limit: int) -> None:
    found = cut_text(text * 50, limit)
    assert len(found) <= limit or found == text * 50
    assert (len(text) * 50 <= limit) == (found == text * 50) or found == text * 50


def test_f051_lone_surrogates_are_replaced_and_emoji_stay() -> None:
    assert render("ok \ud83d").content == "ok \ufffd"
    assert render("fine 😀").content == "fine 😀"
    assert render(b"\xff".decode("utf-8", "surrogateescape")).content == "\ufffd"
    found = render({"k\udc00": ["\ud83d", "😀"]})
    assert found.data == {"k\ufffd": ["\ufffd", "😀"]}
    found.to_json().encode()


def test_f053_nul_is_replaced_everywhere() -> None:
    assert render("a\x00b").content == "a\ufffdb"
    assert render({"a\x00": {"b": ["\x00"]}}).data == {"a\ufffd": {"b": ["\ufffd"]}}
    assert render(b"a\x00b").content == "a\ufffdb"


def test_f054_line_ends_quotes_and_backslashes_stay() -> None:
    text = 'a\nb\r\nc "quoted" \\ back'
    assert render(text).content == text
    found = render({"t": text})
    assert json.loads(str(found.content)) == {"t": text}
    assert ToolResult.from_json(found.to_json()) == found


def test_media_pass_through() -> None:
    image, document = ImagePart(data="AAAA"), FilePart(name="a.pdf", data="AAAA")
    assert render(image).content == (image,)
    assert render(["see \x00", image, {"a": 1}, TextPart(text="t"), document]).content == (
        "see \ufffd",
        image,
        '{"a": 1}',
        "t",
        document,
    )
    assert render(TextPart(text="only")).content == "only"


def test_a_result_made_by_the_tool_keeps_all_but_the_call() -> None:
    image = ImagePart(data="AAAA")
    given_ = ToolResult(call_id="wrong", content=("a\x00", image), outcome="denied", data={"day": dt.date.min})  # type: ignore[dict-item]
    assert render(given_) == ToolResult(
        call_id="c1", content=("a\ufffd", image), outcome="denied", data={"day": "0001-01-01"}
    )
    assert str(render(ToolResult(call_id="", content="x" * 500), 100).content).endswith("x")
    assert len(str(render(ToolResult(call_id="", content="x" * 500), 100).content)) <= 100


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, categories=None))
    | st.binary()
    | st.dates()
    | st.decimals()
    | st.uuids()
    | st.just(Color.RED)
    | st.builds(object)
    | st.builds(Raising),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text() | st.booleans(), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(values, st.none() | st.integers(1, 200))
def test_f048_f051_any_value_renders_the_same_twice_and_can_be_stored(value: Any, limit: int | None) -> None:
    found = render(value, limit)
    assert render(value, limit) == found
    assert ToolResult.from_json(found.to_json().encode()) == found
    if limit is not None and found.outcome == "ok":
        assert len(str(found.content)) <= limit


def told(error: BaseException) -> tuple[str, str]:
    found = error_result(CALL, error)
    assert found.call_id == "c1"
    assert isinstance(found.content, str)
    return found.content, found.outcome


def test_tool_errors_reach_the_model_as_they_are() -> None:
    assert told(ToolError("use a town\nnot a country")) == ("use a town\nnot a country", "error")
    assert told(ToolTimeoutError("took 3 s")) == ("took 3 s", "timed_out")
    assert told(NoAnswererError("nobody can answer")) == ("nobody can answer", "error")
    assert told(ReplyTimeoutError("nobody answered in 3 s")) == ("nobody answered in 3 s", "error")
    assert told(ToolError("bad \ud83d"))[0] == "bad \ufffd"


def test_other_exceptions_are_only_named() -> None:
    assert told(ValueError("password in /etc")) == ("Tool find failed: ValueError", "error")
    assert told(ToolError("")) == ("Tool find failed: ToolError", "error")

    class Odd(ToolError):
        def __str__(self) -> str:
            raise RuntimeError

    assert told(Odd()) == ("Tool find failed: Odd", "error")


def test_groups_are_told_only_if_every_part_is_for_the_model() -> None:
    group = ExceptionGroup("g", [ToolError("first"), ExceptionGroup("h", [ToolError("second")])])
    assert told(group) == ("first\nsecond", "error")
    mixed = ExceptionGroup("g", [ToolError("first"), ValueError("x"), ExceptionGroup("h", [ValueError("y")])])
    assert told(mixed) == ("Tool find failed: ToolError, ValueError", "error")


def test_long_error_texts_are_cut() -> None:
    found = error_result(CALL, ToolError("e" * 1000), max_chars=100)
    assert 90 < len(str(found.content)) <= 100
    assert error_result(CALL, ToolError("e" * 30000), max_chars=None).content == "e" * 30000


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("browser_fill", ["browser_fill_form", "add"], "Did you mean browser_fill_form?"),
        ("fill", ["browser_fill_form", "add"], "Did you mean browser_fill_form?"),
        ("zzz", ["add", "find"], "Available: add, find."),
        ("zzz", [f"t{n}" for n in range(30)], "t19, ..."),
        ("zzz", [], "There are no tools."),
        ("", ["add"], "Available: add."),
    ],
)
def test_f030_unknown_tools_get_close_names(name: str, known: list[str], text: str) -> None:
    found = unknown_tool_result(ToolCall(id="c1", name=name), known)
    assert (found.call_id, found.outcome) == ("c1", "error")
    assert f"There is no tool named {name!r}." in str(found.content)
    assert text in str(found.content)
