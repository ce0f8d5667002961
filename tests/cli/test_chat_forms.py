"""Forms: what a schema asks for, what a typed line means, and what is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel, Field

from trilane._questions import ReplyRejected, schema_of
from trilane.cli.answers import NobodyAnswers
from trilane.cli.chat_answers import ChatAnswers
from trilane.cli.chat_forms import FieldError, fields_of
from trilane.events import Question, Receipt
from trilane.messages import Approval

if TYPE_CHECKING:
    from conftest import EventMaker


class Place(BaseModel):
    city: str
    zip_code: str = Field(min_length=5, max_length=5)


class Trip(BaseModel):
    place: Place
    days: int = Field(default=3, ge=1, le=30, description="How long\nit takes")
    by: Literal["train", "tram", "boat"]
    quiet: bool = True
    budget: float | None = None
    tags: list[str] = []
    extra: dict[str, int] = {}
    start: date | None = None


class FakeDesk:
    """Somebody who types lines."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.shown: list[str] = []
        self.offered: list[str] = []

    async def ask(self, prompt: str, text: str = "", *, choices: Sequence[str] = ()) -> str:
        if not self._lines:
            raise NobodyAnswers("the prompt was closed")
        self.offered.append(text)
        return self._lines.pop(0)

    def show(self, text: str) -> None:
        self.shown += text.splitlines()


def _answer(schema: Any, *lines: str, reject: Sequence[str] = (), **values: Any) -> tuple[Any, FakeDesk]:
    json_schema, validate = schema_of(schema)
    values = {"kind": "question", "prompt": "Well?", "asked_by": "plan", **values}
    desk, accepted, rejections = FakeDesk(*lines), [], list(reject)

    def reply(payload: Any) -> Receipt:
        if rejections:
            return Receipt(status="invalid", reasons=(rejections.pop(0),))
        try:
            accepted.append(validate(payload))
        except ReplyRejected as rejected:
            return Receipt(status="invalid", reasons=rejected.reasons)
        return Receipt(status="accepted")

    question = Question(id="q", schema=json_schema, **values)
    assert asyncio.run(ChatAnswers(desk).answer(question, reply)) == ""
    return accepted[-1], desk


def test_every_property_is_described() -> None:
    fields = fields_of(schema_of(Trip)[0])
    assert [(field.name, field.described()) for field in fields] == [
        ("place.city", "text, required"),
        ("place.zip_code", "text, at least 5 characters, at most 5 characters, required"),
        ("days", "a whole number, at least 1, at most 30, default 3: How long it takes"),
        ("by", "one of train, tram, boat, required"),
        ("quiet", "y or n, default y"),
        ("budget", "a number, may be empty"),
        ("tags", "a list of text, commas between, default []"),
        ("extra", "JSON, default {}"),
        ("start", "text (date), may be empty"),
    ]


def test_a_form_is_filled_in_property_by_property() -> None:
    trip, desk = _answer(Trip, "Ghent", "123", "9000 ", "", "tr", "trai", "no", "", "a, b", '{"x": 1}', "2026-05-01")
    assert trip == Trip(
        place=Place(city="Ghent", zip_code="9000 "),
        by="train",
        quiet=False,
        tags=["a", "b"],
        extra={"x": 1},
        start=date(2026, 5, 1),
    )
    wrong = [line for line in desk.shown if "cannot be used" in line]
    assert wrong == [
        "  that cannot be used: this must be at least 5 characters, at most 5 characters",
        "  that cannot be used: 'tr' is none of train, tram, boat",
    ]


def test_only_what_was_wrong_is_asked_again_with_what_was_typed() -> None:
    class Pair(BaseModel):
        left: date
        right: str

    pair, desk = _answer(Pair, "soon", "r", "2026-05-01")
    assert pair == Pair(left=date(2026, 5, 1), right="r")
    assert desk.offered == ["", "", "soon"]
    assert any(line.startswith("  that cannot be used: left: ") for line in desk.shown)


def test_a_rejection_of_the_whole_asks_for_all_again() -> None:
    class Pair(BaseModel):
        left: int
        right: int

    pair, desk = _answer(Pair, "1", "2", "3", "4", reject=["they must be more"])
    assert (pair.left, pair.right) == (3, 4)
    assert desk.offered == ["", "", "1", "2"]


@pytest.mark.parametrize(
    ("schema", "lines", "value"),
    [
        (str, [""], ""),
        (int, ["many", "12"], 12),
        (float, ["NaN", "1.5"], 1.5),
        (bool, ["maybe", "y"], True),
        (list[int], ["x", "1, 2"], [1, 2]),
        (list[int], ["[1, 2]"], [1, 2]),
        ({"enum": ["red", 7]}, ["blue", "7"], 7),
        (int | None, [""], None),
        (str | int, ["some words"], "some words"),
        ({"type": "integer", "default": 4}, [""], 4),
        ({"const": "yes"}, ["no", "yes"], "yes"),
    ],
)
def test_a_single_value(schema: Any, lines: list[str], value: object) -> None:
    got, desk = _answer(schema, *lines)
    assert got == value
    assert len([line for line in desk.shown if "cannot be used" in line]) == len(lines) - 1


def test_references_in_a_circle_end() -> None:
    (field,) = fields_of({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})
    assert field.described() == "text or JSON"
    (field,) = fields_of({"type": ["string", "null"]})
    assert field.nullable


def test_required_means_required() -> None:
    (field,) = fields_of({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
    with pytest.raises(FieldError, match="needed"):
        field.parse(" ")


def test_an_approval_with_edited_arguments(make: EventMaker) -> None:
    call = make.call("mail", "c1", to="bo", copies=1)
    lines = ["edit", "ann", "two", "2", "what", "y"]
    approval, desk = _answer(Approval, *lines, kind="approval", prompt="May it?", call=call, asked_by="guard")
    assert approval == Approval(approve=True, arguments={"to": "ann", "copies": 2})
    assert desk.offered == ["", "bo", "1", "1", "", ""]
    assert desk.shown[:2] == ["? May it? (guard)", '  mail(to="bo", copies=1)']
    assert '  mail(to="ann", copies=2)' in desk.shown
    assert "  answer y, n (a reason may follow) or e" in desk.shown


@pytest.mark.parametrize(
    ("line", "approval"),
    [
        ("yes", Approval(approve=True)),
        ("", Approval(approve=False, reason="denied at the prompt")),
        ("n it is mine", Approval(approve=False, reason="it is mine")),
    ],
)
def test_an_approval_is_yes_only_if_somebody_says_so(make: EventMaker, line: str, approval: Approval) -> None:
    assert _answer(Approval, line, kind="approval", call=make.call(path="a"))[0] == approval


def test_odd_text_in_a_question_is_shown_not_sent() -> None:
    schema = {"type": "object", "properties": {"\x1b[2J": {"type": "string", "description": "\x1b]0;x\x07"}}}
    _, desk = _answer(schema, "a", prompt="\x1b[2J?")
    assert "\x1b" not in "".join(desk.shown)


def test_a_closed_prompt_answers_nothing() -> None:
    with pytest.raises(NobodyAnswers):
        _answer(int, "many")
