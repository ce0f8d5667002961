"""What was done and what was not, from the events of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane.cli.tally import Tally
from trilane.events import ChildEvent, MessageCompleted, ModelStarted, TextDelta, ToolCompleted, ToolStarted
from trilane.messages import ToolResult

if TYPE_CHECKING:
    from conftest import EventMaker


def _add(tally: Tally, *events: object) -> None:
    for event in events:
        tally.add(event)  # type: ignore[arg-type]


def test_nothing_was_done() -> None:
    assert Tally().lines() == ["  done      nothing: no model was called, no tool was run"]


def test_each_call_is_told_truthfully(make: EventMaker) -> None:
    done, failed, running, waiting = (make.call(f"tool{n}", f"c{n}", n=n) for n in range(4))
    tally = Tally()
    _add(
        tally,
        make(ModelStarted, model="m"),
        make(MessageCompleted, message=make.message("", done, failed, running, waiting), stop_reason="tool_calls"),
        *make.tool(done, "fine"),
        *make.tool(failed, "no such file", "error"),
        make(ToolStarted, call=running),
    )
    assert tally.lines() == [
        "  done      tool0(n=0)",
        "  done      tool1(n=1): it reported an error",
        "  not done  tool2(n=2): was running, its effect is unknown",
        "  not done  tool3(n=3): not started",
    ]
    result = ToolResult(call_id=running.id, content="interrupted", outcome="interrupted")
    tally.add(make(ToolCompleted, call=running, result=result))
    assert tally.lines()[2] == "  not done  tool2(n=2): interrupted, it may have had an effect"


def test_an_answer_that_was_cut_off_is_not_done(make: EventMaker) -> None:
    tally = Tally()
    _add(tally, make(ModelStarted, model="m"))
    assert tally.lines() == ["  not done  the model's answer of turn 0: not begun"]
    _add(tally, make(TextDelta, message_id="m", index=0, text="12345"))
    assert tally.lines() == ["  not done  the model's answer of turn 0: cut off after 5 characters"]
    message = make.message("12345", interrupted=True)
    _add(tally, make(MessageCompleted, message=message, stop_reason="cancelled", interrupted=True))
    assert tally.lines() == ["  not done  the model's answer of turn 0: cut off after 5 characters"]


def test_a_child_runs_calls_are_told_with_their_path(make: EventMaker) -> None:
    tally = Tally()
    for event in make.tool(make.call("inner"), "fine"):
        tally.add(make(ChildEvent, path=("outer",), event=event))
    assert tally.lines() == ["  done      outer > inner()"]
