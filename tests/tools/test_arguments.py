from __future__ import annotations

import enum
import json
import pickle
import uuid
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from trilane.errors import ToolDefinitionError, ToolError
from trilane.messages import ToolCall
from trilane.tools import Tool, ToolArgumentsError, as_tool, error_result, parse_arguments, tool

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def problems(made: Tool, arguments: Mapping[str, object]) -> tuple[str, ...]:
    with pytest.raises(ToolArgumentsError) as caught:
        made.bind(arguments)
    return caught.value.problems


@pytest.mark.parametrize("raw", ["", "  ", "\n\t", "{}", " {} ", "null"])
def test_f025_no_arguments(raw: str) -> None:
    assert parse_arguments(raw) == {}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ('{"q": "Par', "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"a": 1} {"a": 2}', "not valid JSON"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": 1e400}', '"1e400" is larger than a number can be'),
        ('{"a": [-1E+309], "a": 2}', '"-1E[+]309" is larger than a number can be'),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[1]", r"one JSON object .* got \[1\]"),
        ('"text"', 'got "text"'),
        ("7", "got 7"),
    ],
)
def test_f026_text_that_is_no_object_is_refused_with_the_reason(raw: str, reason: str) -> None:
    with pytest.raises(ToolArgumentsError, match=reason) as caught:
        parse_arguments(raw)
    assert isinstance(caught.value, ToolError)
    told = error_result(ToolCall(id="c1", name="find"), caught.value)
    assert (told.call_id, told.outcome) == ("c1", "error")
    assert str(told.content).startswith("Tool find was not run. The arguments are not valid:\n- ")


@given(st.dictionaries(st.text(), JSON))
def test_f026_every_json_object_is_parsed_and_every_cut_of_it_refused(value: dict[str, Any]) -> None:
    raw = json.dumps(value)
    expected = json.loads(raw.replace("\\u0000", "\\ufffd"))
    if "\\ud" not in raw:
        assert parse_arguments(raw) == expected
    with pytest.raises(ToolArgumentsError):
        parse_arguments(raw[:-1])


def test_f052_surrogate_pairs_become_one_character_and_halves_are_replaced() -> None:
    assert parse_arguments('{"t": "\\ud83d' + '\\ude00"}') == {"t": "😀"}
    assert parse_arguments('{"t": "x\\ud83d", "k\\udc00": ["\\u0000"]}') == {"t": "x\ufffd", "k\ufffd": ["\ufffd"]}


@tool
def numbers(n: int = 0, ratio: float = 0.0, flag: bool = False, text: str = "", maybe: int | None = None) -> None: ...


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"n": "42", "ratio": "3.5", "flag": "false"}, {"n": 42, "ratio": 3.5, "flag": False}),
        ({"n": 20.0}, {"n": 20}),
        ({"n": "-7", "ratio": 3}, {"n": -7, "ratio": 3.0}),
        ({"flag": 0}, {"flag": False}),
        ({"flag": "True"}, {"flag": True}),
        ({"n": 123456789012345678901234567890}, {"n": 123456789012345678901234567890}),
        ({"n": "123456789012345678901234567890"}, {"n": 123456789012345678901234567890}),
        ({"text": "42"}, {"text": "42"}),
        ({"maybe": "5"}, {"maybe": 5}),
        ({"maybe": None}, {"maybe": None}),
    ],
)
def test_f028_safe_conversions(sent: dict[str, object], expected: dict[str, object]) -> None:
    bound = as_tool(numbers).bind(sent)
    assert bound == expected
    assert [type(value) for value in bound.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({"n": "4.7"}, 'n: expected an integer, got "4.7"'),
        ({"n": 4.7}, "n: expected an integer, got 4.7"),
        ({"n": "0x1F"}, 'n: expected an integer, got "0x1F"'),
        ({"n": ""}, 'n: expected an integer, got ""'),
        ({"n": None}, "n: expected an integer, got null"),
        ({"n": [1]}, "n: expected an integer, got [1]"),
        ({"flag": "perhaps"}, 'flag: expected true or false, got "perhaps"'),
        ({"flag": 2}, "flag: expected true or false, got 2"),
        ({"ratio": "NaN"}, 'ratio: expected a number, got "NaN"'),
        ({"ratio": "much"}, 'ratio: expected a number, got "much"'),
        ({"text": 42}, "text: expected text, got 42"),
        ({"text": True}, "text: expected text, got true"),
        ({"text": ["a"]}, 'text: expected text, got ["a"]'),
    ],
)
def test_f028_what_would_lose_something_is_an_error(sent: dict[str, object], problem: str) -> None:
    assert problems(as_tool(numbers), sent) == (problem,)


class Point(BaseModel):
    x: int
    y: int = 0


def test_f029_json_text_is_opened_for_containers_only() -> None:
    @tool
    def act(
        items: list[int],
        opts: dict[str, object],
        text: str = "",
        either: list[int] | str = "",
        point: Point | None = None,
        pair: tuple[int, int] = (0, 0),
    ) -> None: ...

    made = as_tool(act)
    bound = made.bind(
        {"items": "[1,2]", "opts": '{"a":1}', "text": "[1,2]", "either": "[1]", "point": '{"x":1}', "pair": "[1, 2]"}
    )
    assert bound == {
        "items": [1, 2],
        "opts": {"a": 1},
        "text": "[1,2]",
        "either": "[1]",
        "point": Point(x=1),
        "pair": (1, 2),
    }
    assert made.bind({"items": [], "opts": {}, "point": "null"})["point"] is None
    assert problems(made, {"items": "[1,", "opts": "7"}) == (
        'items: expected an array, got "[1,"',
        'opts: expected an object, got "7"',
    )


def test_f057_extra_arguments_follow_the_published_schema() -> None:
    @tool
    def update(task_id: str, **fields: Any) -> dict[str, object]:
        return {"task_id": task_id, **fields}

    made = as_tool(update)
    assert made.parameters["additionalProperties"] is True
    assert made.call(made.bind({"task_id": "1", "name": "n"})) == {"task_id": "1", "name": "n"}
    for nested in ("kwargs", "fields"):
        assert problems(made, {"task_id": "1", nested: {"name": "n"}}) == (
            f"{nested} is not known; give its members as arguments of their own",
        )


def test_f057_unknown_arguments_name_the_accepted_ones() -> None:
    assert problems(as_tool(numbers), {"m": 1}) == ("m is not known; accepted are n, ratio, flag, text, maybe",)

    @tool
    def nothing() -> None: ...

    assert problems(as_tool(nothing), {"m": 1}) == ("m is not known; no arguments are accepted",)


def test_f057_extras_are_validated_against_their_annotation() -> None:
    @tool
    def act(**weights: float) -> None: ...

    made = as_tool(act)
    assert made.bind({"a": "1.5", "b": 2}) == {"a": 1.5, "b": 2.0}
    assert problems(made, {"a": "x"}) == ('a: expected a number, got "x"',)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@tool
def typed(  # type: ignore[no-untyped-def]
    both: int | str = 0,
    literal: Literal["a", 1, None] = None,
    color: Color = Color.RED,
    maybe_color: Color | None = None,
    size: Size = Size.SMALL,
    level: Annotated[int, Field(ge=1, le=5, description="how loud")] = 1,
    rows: list[dict[str, int]] = [],  # noqa: B006
    pair: tuple[int, str] = (0, ""),
    day: date = date.min,
    moment: datetime | None = None,
    span: timedelta = timedelta(0),
    key: uuid.UUID | None = None,
    price: Decimal = Decimal(0),
    raw: bytes = b"",
    file: Path = Path(),
    anything: Any = None,
    bare=None,
) -> None: ...


KEY = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("name", "sent", "expected"),
    [
        ("both", "42", "42"),
        ("both", 42, 42),
        ("literal", 1, 1),
        ("literal", None, None),
        ("color", "blue", Color.BLUE),
        ("size", 2, Size.LARGE),
        ("level", 5, 5),
        ("rows", [{"a": 1}], [{"a": 1}]),
        ("pair", [1, "x"], (1, "x")),
        ("day", "2026-01-31", date(2026, 1, 31)),
        ("moment", "2026-01-31T12:00:00", datetime(2026, 1, 31, 12)),
        ("span", "PT1H", timedelta(hours=1)),
        ("key", str(KEY), KEY),
        ("price", "1.10", Decimal("1.10")),
        ("raw", "hi", b"hi"),
        ("file", "a/b", Path("a/b")),
        ("anything", {"x": [1]}, {"x": [1]}),
        ("bare", "as it is", "as it is"),
    ],
)
def test_f065_tools_receive_the_python_type(name: str, sent: object, expected: object) -> None:
    value = as_tool(typed).bind({name: sent})[name]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("name", "sent", "problem"),
    [
        ("both", [], "both: expected an integer or text, got []"),
        ("literal", "z", 'literal: expected one of "a", 1, null, got "z"'),
        ("color", "green", 'color: expected one of "red", "blue", got "green"'),
        ("maybe_color", "green", 'maybe_color: expected one of "red", "blue", null, got "green"'),
        ("size", 3, "size: expected one of 1, 2, got 3"),
        ("level", 9, "level: must be less than or equal to 5, got 9"),
        ("rows", [{"a": "x"}], 'rows[0].a: expected an integer, got "x"'),
        ("pair", [1], "pair[1]: is required"),
        ("day", 20260131, "day: expected a date as text, such as 2026-01-31, got 20260131"),
        ("day", "20260131", 'day: expected a date as text, such as 2026-01-31, got "20260131"'),
        ("moment", 5.5, "moment: expected a date and time as text, such as 2026-01-31T12:00:00Z, got 5.5"),
        ("raw", 5, "raw: expected text, got 5"),
    ],
)
def test_f065_other_values_are_errors_that_name_what_is_accepted(name: str, sent: object, problem: str) -> None:
    assert problems(as_tool(typed), {name: sent}) == (problem,)


def test_f065_a_missing_choice_lists_the_choices() -> None:
    def act(color: Color, n: int) -> None: ...

    assert problems(as_tool(act), {}) == ('color: is required: one of "red", "blue"', "n: is required")


def test_every_problem_is_told_at_once_without_library_words() -> None:
    class Checked(BaseModel):
        even: int

        @field_validator("even")
        @classmethod
        def check(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd numbers do not fit")
            return value

    def act(a: int, point: Point | Color, checked: Checked, **more: int) -> None: ...

    sent = {"point": {"x": "q"}, "checked": {"even": 3}, "extra": "e"}
    with pytest.raises(ToolArgumentsError) as caught:
        as_tool(act).bind(sent)
    text = str(caught.value)
    assert caught.value.problems[0] == "a: is required"
    assert 'point.x: expected an integer, got "q"' in text
    assert "checked.even: odd numbers do not fit, got 3" in text
    assert 'extra: expected an integer, got "e"' in text
    for word in ("pydantic", "http", "Value error", "function-", "[type=", "Arguments", "**more", "Point"):
        assert word not in text


def test_long_lists_of_problems_and_long_values_are_cut() -> None:
    def act(rows: list[int]) -> None: ...

    with pytest.raises(ToolArgumentsError) as caught:
        as_tool(act).bind({"rows": ["x" * 1000] * 15})
    assert len(caught.value.problems) == 15
    assert str(caught.value).endswith("- and 5 more")
    assert len(str(caught.value)) < 1500
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.problems, str(again)) == (caught.value.problems, str(caught.value))


def test_models_that_are_strict_in_python_take_the_text_form_of_json() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        day: date
        color: Color

    def act(item: Strict) -> None: ...

    made = as_tool(act)
    bound = made.bind({"item": {"day": "2026-01-31", "color": "red"}})
    assert bound == {"item": Strict(day=date(2026, 1, 31), color=Color.RED)}
    assert problems(made, {"item": {"day": "2026-01-31", "color": 5}})


def test_a_tool_that_changes_its_arguments_does_not_change_what_the_model_sent() -> None:
    @tool
    def act(anything: Any, opts: dict[str, Any]) -> None:
        anything.append(1)
        opts["inner"].clear()

    sent: dict[str, object] = {"anything": [], "opts": {"inner": [1, 2]}}
    made = as_tool(act)
    made.call(made.bind(sent))
    assert sent == {"anything": [], "opts": {"inner": [1, 2]}}


def test_aliases_are_what_the_model_uses() -> None:
    def act(from_: Annotated[int, Field(alias="from", description="start")]) -> int:
        return from_

    made = as_tool(act)
    assert made.parameters["properties"] == {"from": {"type": "integer", "description": "start"}}
    assert made.call(made.bind({"from": "3"})) == 3


SCHEMA: dict[str, Any] = {
    "properties": {
        "q": {"type": "string"},
        "n": {"type": ["integer", "null"]},
        "mode": {"enum": ["fast", "slow"]},
        "rows": {"$ref": "#/$defs/Rows"},
    },
    "required": ["q"],
    "additionalProperties": False,
    "$defs": {"Rows": {"type": "array", "items": {"type": "integer"}}},
}


def test_given_schemas_are_checked_for_names_types_and_choices() -> None:
    made = Tool.external(name="find", description="Finds.", parameters=SCHEMA)
    assert made.parameters == {"type": "object", **SCHEMA}
    assert made.bind({"q": "x", "n": 2.0, "rows": "[1]"}) == {"q": "x", "n": 2.0, "rows": [1]}
    assert problems(made, {"n": "x", "mode": "warp", "rows": 5, "z": 1}) == (
        "q: is required",
        'n: expected an integer or null, got "x"',
        'mode: expected one of "fast", "slow", got "warp"',
        "rows: expected an array, got 5",
        "z is not known; accepted are q, n, mode, rows",
    )


@pytest.mark.parametrize("schema", [{"type": "array"}, {"properties": []}, {"x": object()}, {"x": float("nan")}])
def test_given_schemas_must_describe_an_object(schema: dict[str, object]) -> None:
    with pytest.raises(ToolDefinitionError, match=r"Tool 'find'.*`parameters`"):
        Tool.external(name="find", parameters=schema)


@given(st.dictionaries(st.sampled_from(["n", "text", "day", "rows", "q", "x"]), JSON))
def test_binding_gives_arguments_or_an_error_for_the_model_and_nothing_else(sent: dict[str, Any]) -> None:
    for made in (as_tool(numbers), as_tool(typed), Tool.external(name="e", parameters=SCHEMA)):
        bound: dict[str, object] | None = None
        try:
            bound = made.bind(sent)
        except ToolArgumentsError as error:
            refused = error.problems
            str(error).encode()
        assert bound.keys() == sent.keys() if bound is not None else refused


def _share_of(value: Any) -> Any:
    return 100 / value


Share = Annotated[float, BeforeValidator(_share_of)]


def test_a_validator_that_fails_is_a_problem_of_its_parameter() -> None:
    @tool
    def share(total: int, part: Share, rest: Share = 1) -> str:
        """Share."""
        return f"{total} {part} {rest}"

    made = as_tool(share)
    assert made.bind({"total": 1, "part": 4}) == {"total": 1, "part": 25.0}
    with pytest.raises(ToolArgumentsError) as caught:
        made.bind({"total": 1, "part": 4, "rest": 0})
    assert caught.value.problems == (
        "rest could not be checked: a validator failed with ZeroDivisionError; try another value",
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)

    class Pair(BaseModel):
        low: int
        high: int

        @model_validator(mode="after")
        def check(self) -> Any:
            raise KeyError("secret")

    @tool
    def between(pair: Pair) -> str:
        """Between."""
        return ""

    found = problems(as_tool(between), {"pair": {"low": 1, "high": 2}})
    assert found == ("pair could not be checked: a validator failed with KeyError; try another value",)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": ["string", 5]}, r"`type` is \['string', 5\], neither the name of a type nor a list of such names"),
        ({"type": {"x": 1}}, r"`type` is \{'x': 1\}"),
        ({"type": 5}, "`type` is 5"),
        ({"anyOf": [{"type": [["string"]]}]}, "`type` is"),
        ({"type": "string", "format": ["date"]}, "unhashable"),
    ],
)
def test_a_schema_whose_types_are_no_names_is_refused_when_the_tool_is_made(schema: Any, problem: str) -> None:
    parameters = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ToolDefinitionError, match=f"the schema of parameter 'a' is not a JSON Schema: .*{problem}"):
        Tool.from_function(lambda **given: given, name="j", description="d", parameters=parameters)
