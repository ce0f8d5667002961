"""Questions of a run: what is asked at the prompt, what a typed line means, and what happens with nobody there."""

from __future__ import annotations

import asyncio
import os
import pty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from trilane._questions import schema_of
from trilane.cli.answers import Answers, NobodyAnswers, TerminalLines
from trilane.events import Question, Receipt
from trilane.messages import Approval

if TYPE_CHECKING:
    from conftest import EventMaker


class Typed:
    """Lines that somebody types, and what they were shown."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.shown = ""

    async def read(self) -> str:
        if not self._lines:
            raise NobodyAnswers("the terminal was closed")
        return self._lines.pop(0)

    def show(self, text: str) -> None:
        self.shown += text


class Desk:
    """Takes replies as a run does, and checks them against the schema."""

    def __init__(self, schema: Any) -> None:
        self._validate = schema_of(schema)[1]
        self.accepted: list[Any] = []

    def reply(self, payload: Any) -> Receipt:
        from trilane._questions import ReplyRejected

        try:
            self.accepted.append(self._validate(payload))
        except ReplyRejected as rejected:
            return Receipt(status="invalid", reasons=rejected.reasons)
        return Receipt(status="accepted")


def _question(schema: Any, **values: Any) -> Question:
    values = {"kind": "question", "prompt": "Which one?", "asked_by": "choose", **values}
    return Question(id="q1", schema=schema_of(schema)[0], **values)


def _ask(schema: Any, *lines: str, **values: Any) -> tuple[list[Any], str]:
    typed, desk = Typed(*lines), Desk(schema)
    answers = Answers(lines=typed, show=typed.show)  # type: ignore[arg-type]
    asyncio.run(answers.answer(_question(schema, **values), desk.reply))
    return desk.accepted, typed.shown


@pytest.mark.parametrize(("line", "approve"), [("y", True), ("YES", True), ("n", False), ("no", False), ("", False)])
def test_an_approval_is_yes_only_if_somebody_says_so(make: EventMaker, line: str, approve: bool) -> None:
    call = make.call("rm", "c1", path="a")
    (got,), shown = _ask(Approval, line, kind="approval", prompt="May it delete?", call=call, asked_by="guard")
    assert (got.approve, got.arguments) == (approve, None)
    assert shown.splitlines()[:2] == ["? May it delete? (guard)", '  rm(path="a")']


def test_what_is_neither_yes_nor_no_is_asked_again(make: EventMaker) -> None:
    (got,), shown = _ask(Approval, "maybe", "ok", "y", kind="approval", call=make.call())
    assert got.approve is True
    assert shown.count("answer y or n") == 2


@pytest.mark.parametrize(
    ("schema", "lines", "value"),
    [
        (str, ["12"], "12"),
        (str, [""], ""),
        (int, ["many", "12"], 12),
        (float, ["1.5"], 1.5),
        (bool, ["maybe", "y"], True),
        (bool, ["n"], False),
        (list[int], ["1", "[1, 2]"], [1, 2]),
        (list[int], ["[" * 100_000 + "]" * 100_000, "[1, 2]"], [1, 2]),
        ({"enum": ["red", 7]}, ["blue", "7"], 7),
        (str | None, ["some words"], "some words"),
    ],
)
def test_a_typed_line_becomes_what_was_asked_for(schema: Any, lines: list[str], value: object) -> None:
    (got,), shown = _ask(schema, *lines)
    assert got == value
    assert shown.count("that cannot be used") == len(lines) - 1


def test_options_are_listed() -> None:
    assert "one of: red, green" in _ask({"enum": ["red", "green"]}, "red")[1]


def test_a_plugin_may_ask_for_something_else_than_approval(make: EventMaker) -> None:
    (got,), shown = _ask(int, "x", "3", kind="approval", call=make.call())
    assert got == 3
    assert "[y/N]" not in shown


def test_odd_text_in_a_prompt_is_shown_not_sent() -> None:
    assert "\x1b" not in _ask(str, "a", prompt="\x1b[2J?")[1]


def test_a_closed_terminal_answers_nothing() -> None:
    with pytest.raises(NobodyAnswers, match="closed"):
        _ask(str)


def test_a_late_answer_is_told() -> None:
    typed = Typed("a")
    answers = Answers(lines=typed, show=typed.show)  # type: ignore[arg-type]
    note = asyncio.run(answers.answer(_question(str), lambda _: Receipt(status="expired")))
    assert "too late" in note


@pytest.mark.parametrize("approve", [True, False])
def test_yes_and_no_answer_without_asking(make: EventMaker, approve: bool) -> None:
    typed, desk = Typed(), Desk(Approval)
    question = _question(Approval, kind="approval", call=make.call("rm"))
    answers = Answers(approve=approve, lines=typed, show=typed.show)  # type: ignore[arg-type]
    note = asyncio.run(answers.answer(question, desk.reply))
    assert [got.approve for got in desk.accepted] == [approve]
    assert note == f"{'approved by --yes' if approve else 'denied by --no'}: rm()"
    assert typed.shown == ""
    alone = Answers(approve=approve)
    assert not alone.attended
    assert asyncio.run(alone.unattended(question))["approve"] is approve  # type: ignore[index, call-overload]


def test_with_nobody_there_an_approval_is_denied_and_the_way_out_is_named(make: EventMaker) -> None:
    question = _question(Approval, kind="approval", call=make.call("rm"), prompt="May it?")
    payload = asyncio.run(Answers().unattended(question))
    assert payload["approve"] is False  # type: ignore[index, call-overload]
    assert "--yes or --no" in payload["reason"]  # type: ignore[index, call-overload, operator]
    assert "--yes or --no: May it?" in Answers().remark(question)
    with pytest.raises(NobodyAnswers, match="not a terminal"):
        asyncio.run(Answers(approve=True).unattended(_question(str)))


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    master, slave = pty.openpty()
    yield master, slave
    os.close(master)
    os.close(slave)


def test_lines_come_from_a_terminal_one_by_one(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    os.write(master, "first é\nsecond\n".encode())

    async def read() -> list[str]:
        lines = TerminalLines(slave)
        return [await lines.read(), await lines.read()]

    assert asyncio.run(read()) == ["first é", "second"]


def test_waiting_for_a_line_can_be_cancelled(terminal: tuple[int, int]) -> None:
    master, slave = terminal

    async def read() -> str:
        lines = TerminalLines(slave)
        waiting = asyncio.ensure_future(lines.read())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        os.write(master, b"after\n")
        return await lines.read()

    assert asyncio.run(read()) == "after"


def test_ctrl_d_closes_the_terminal(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    os.write(master, b"\x04")
    with pytest.raises(NobodyAnswers):
        asyncio.run(TerminalLines(slave).read())
