"""The terminal renderer, drawn into a string: what stays on the screen, and what is only there for a while."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from trilane.cli.terminal import TerminalRenderer
from trilane.events import (
    ChildEvent,
    MessageCompleted,
    ModelStarted,
    PhaseChanged,
    ReasoningDelta,
    RunCancelled,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from trilane.state import AgentPhase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import EventMaker

    from trilane.events import Event


class Screen:
    """A renderer on a console that is not a terminal: rich then draws no live region, only what stays."""

    def __init__(self, *, verbose: bool = False, encoding: str = "utf-8") -> None:
        raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", newline="\n", write_through=True)
        self.console = Console(file=raw, width=72, height=20, color_system=None, highlight=False)
        self.renderer = TerminalRenderer(self.console, verbose=verbose)
        self._raw = raw

    def show(self, *events: Event) -> list[str]:
        for event in events:
            self.renderer.show(event)
        return self.lines()

    def lines(self) -> list[str]:
        data = self._raw.buffer.getvalue()  # type: ignore[attr-defined]
        return [line.rstrip() for line in data.decode(self._raw.encoding).splitlines()]

    def region(self) -> list[str]:
        drawn = self.renderer.region(self.console, self.console.options)
        return ["".join(part.text for part in line).rstrip() for line in drawn]


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.renderer.close()


def _text(make: EventMaker, text: str) -> Event:
    return make(TextDelta, message_id="m1", index=0, text=text)


def test_finished_blocks_stay_and_the_rest_is_in_the_region(make: EventMaker, screen: Screen) -> None:
    assert screen.show(_text(make, "# Title\n\nSome **bold** text\n\n- it"), _text(make, "em\n")) == [
        "Title",
        "",
        "Some bold text",
    ]
    assert screen.region() == ["", " • item"]
    screen.show(make.completed("ignored"))
    assert screen.lines()[-2:] == ["", " • item"]
    assert screen.region() == []


def test_blocks_are_one_blank_line_apart(make: EventMaker, screen: Screen) -> None:
    text = "One.\n\n## Two\n\n- a\n- b\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\nEnd.\n"
    lines = screen.show(_text(make, text), make(MessageCompleted, message=make.message(text), stop_reason="end"))
    assert lines == ["One.", "", "Two", "", " • a", " • b", "", " x  y", " ────", " 1  2", "", "End."]


def test_a_tool_call_is_in_the_region_until_it_has_its_result(make: EventMaker, screen: Screen) -> None:
    call = make.call(path="README.md")
    screen.show(make(ToolStarted, call=call), make(ToolProgress, call_id="c1", text="half way", fraction=0.5))
    assert screen.lines() == []
    (line,) = screen.region()
    assert line.endswith(' count_words(path="README.md")  50% half way')
    assert screen.show(*make.tool(call, "one\ntwo\nthree\nfour\nfive\nsix")[1:]) == [
        '✓ count_words(path="README.md")',
        "  one",
        "  two",
        "  three",
        "  four",
        "  … 2 more lines",
    ]
    assert screen.region() == []


def test_errors_and_denials_are_marked(make: EventMaker, screen: Screen) -> None:
    lines = screen.show(
        *make.tool(make.call("read", "c1"), "no such file", "error"), *make.tool(make.call("rm", "c2"), "no", "denied")
    )
    assert lines == ["✗ read()  error", "  no such file", "– rm()  denied", "  no"]


def test_marks_are_ascii_where_the_terminal_is(make: EventMaker) -> None:
    screen = Screen(encoding="ascii")
    lines = screen.show(*make.tool(make.call(), "fine"), make(ModelStarted, model="m"))
    assert lines[0] == "ok count_words()"
    assert screen.region()[0].isascii()
    screen.renderer.close()


def test_the_region_says_what_is_waited_for(make: EventMaker, screen: Screen) -> None:
    screen.show(make(ModelStarted, model="offline"))
    assert screen.region()[0].endswith("asking offline")
    screen.show(make(ReasoningDelta, message_id="m", index=0, text="I should count"))
    assert screen.region()[0] == "I should count"
    screen.show(_text(make, "Now"))
    assert screen.region() == ["Now"]


def test_answer_and_tools_are_apart(make: EventMaker, screen: Screen) -> None:
    call = make.call()
    message = make.message("I will look.", call)
    lines = screen.show(
        _text(make, "I will look."),
        make(MessageCompleted, message=message, stop_reason="tool_calls"),
        *make.tool(call, "12"),
        _text(make, "It is 12."),
        make(MessageCompleted, message=make.message("It is 12."), stop_reason="end"),
        make.completed("It is 12."),
    )
    assert lines == ["I will look.", "", "✓ count_words()", "  12", "", "It is 12."]


def test_an_answer_that_a_plugin_replaced_is_shown_again(make: EventMaker, screen: Screen) -> None:
    lines = screen.show(_text(make, "secret"), make.completed("secret", output="**redacted**"))
    assert lines == ["secret", "", "warning: a plugin replaced the answer; it is now:", "", "redacted"]


def test_an_unfinished_answer_is_kept_and_marked(make: EventMaker, screen: Screen) -> None:
    result = make.result("half an", status="cancelled", stop_reason="cancelled")
    message = make.message("half an", interrupted=True)
    lines = screen.show(
        _text(make, "half an"),
        make(MessageCompleted, message=message, stop_reason="cancelled", interrupted=True),
        make(RunCancelled, reason="stopped", result=result),
    )
    assert lines[0] == "half an"
    assert "warning: the message above was cut off" in lines
    assert lines[-1] == "the text above is not a finished answer (7 characters)"


def test_nothing_in_a_text_controls_the_terminal_or_is_markup(make: EventMaker, screen: Screen) -> None:
    evil = "\x1b]0;title\x07[bold red]no markup[/] \ud83d"
    lines = screen.show(*make.tool(make.call(a=evil), evil), _text(make, evil), make.completed(evil))
    assert not any("\x1b" in line or "\x07" in line for line in lines)
    assert sum("[bold red]no markup[/]" in line for line in lines) == 2


def test_a_line_beside_the_answer_does_not_come_before_its_end(make: EventMaker) -> None:
    screen = Screen(verbose=True)
    change = make(PhaseChanged, previous=AgentPhase.GENERATING, phase=AgentPhase.READY)
    assert screen.show(_text(make, "The end."), change) == ["The end.", "", "phase generating -> ready"]


def test_phases_are_for_those_who_ask(make: EventMaker) -> None:
    event = make(PhaseChanged, previous=AgentPhase.CREATED, phase=AgentPhase.LOADING_CONTEXT)
    assert Screen().show(event) == []
    assert Screen(verbose=True).show(event) == ["phase created -> loading_context"]


def test_a_child_runs_tool_is_shown_with_its_path(make: EventMaker, screen: Screen) -> None:
    inner = make.tool(make.call("inner"), "fine")
    lines = screen.show(*[make(ChildEvent, path=("outer",), event=event) for event in inner])
    assert lines == ["✓ outer > inner()", "  fine"]


def test_a_huge_block_fits_the_screen_while_it_grows(make: EventMaker, screen: Screen) -> None:
    screen.show(_text(make, "```python\n" + "x = 1\n" * 5000))
    region = screen.region()
    assert len(region) <= 18
    assert region[-1].strip() in ("x = 1", "")
    assert screen.lines() == []


def test_while_a_question_is_asked_nothing_is_redrawn(make: EventMaker, screen: Screen) -> None:
    screen.renderer.pause()
    screen.show(make(ToolStarted, call=make.call()))
    assert screen.renderer._live is None
    screen.renderer.resume()
    assert screen.renderer._live is not None


def test_closing_twice_is_harmless_and_loses_nothing(make: EventMaker, screen: Screen) -> None:
    screen.show(_text(make, "tail"))
    screen.renderer.close()
    screen.renderer.close()
    assert screen.lines() == ["tail"]
