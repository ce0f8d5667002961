"""Text for people: safe, short, true about what was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane.cli.text import call_text, columns, count, error_paragraph, one_line, result_lines, visible
from trilane.errors import ConfigError
from trilane.messages import ImagePart, ToolResult

if TYPE_CHECKING:
    from conftest import EventMaker


def test_control_characters_are_shown_instead_of_sent() -> None:
    assert visible("a\x1b[31mb\x00\x07\x7f\x9b2J\tc\r\nd") == "a␛[31mb�␇␡�2J\tc\nd"


def test_half_a_surrogate_pair_becomes_printable() -> None:
    assert visible("ok \ud83d").encode() == "ok �".encode()
    assert visible("\ud83d\ude00") == "😀"


def test_one_line_marks_a_cut() -> None:
    assert one_line("a\n b\tc", 10) == "a b c"
    assert one_line("x" * 11, 10) == "x" * 9 + "…"
    assert one_line("\n" * 1000 + "late", 10).endswith("…")


def test_a_megabyte_of_arguments_is_cut(make: EventMaker) -> None:
    text = call_text(make.call("save", text="x" * 1_000_000, name="n"), 60)
    assert text.startswith('save(text="xxx')
    assert len(text) == 60
    assert text.endswith("…")


def test_a_call_is_written_as_one_would_write_it(make: EventMaker) -> None:
    call = make.call("search", pattern='a"b', limit=3, deep=True, none=None)
    assert call_text(call) == r'search(pattern="a\"b", limit=3, deep=true, none=null)'
    assert call_text(call, 20, ("outer",)).startswith("outer > search(")


def test_a_result_says_how_much_was_left_out() -> None:
    result = ToolResult(call_id="c", content="one\ntwo\nthree\nfour\nfive\n")
    assert result_lines(result, lines=2, width=80) == ["one", "two", "… 3 more lines"]
    assert result_lines(result, lines=5, width=4) == ["one", "two", "thr…", "four", "five"]
    assert result_lines(ToolResult(call_id="c", content="\n"), lines=2, width=80) == ["(no output)"]
    media = ToolResult(call_id="c", content=("a plot", ImagePart(data="AAAA")))
    assert result_lines(media, lines=2, width=80) == ["a plot", "[image: image/png]"]


def test_an_error_is_one_paragraph_with_its_notes() -> None:
    error = ValueError("first\n  second")
    error.add_note("while reading x.toml")
    assert error_paragraph(error) == "ValueError: first second while reading x.toml"
    error = ValueError("no more turns")
    error.add_note("Here --max-turns sets it.")
    error.add_note("Go on.")
    assert error_paragraph(error) == "ValueError: no more turns. Here --max-turns sets it. Go on."
    assert error_paragraph(ConfigError("say what to do")) == "say what to do"
    assert error_paragraph(KeyError()) == "KeyError: no message was given"


def test_counts_and_columns() -> None:
    assert (count(1, "turn"), count(1200, "turn")) == ("1 turn", "1,200 turns")
    assert columns([["a", "1"], ["bcd", "100"]], right=(1,)) == ["a      1", "bcd  100"]
    assert columns([]) == []
