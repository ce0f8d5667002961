"""The plain and the JSON renderer: what goes where, and that odd text does no harm."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from trilane.cli.rendering import JsonRenderer, PlainRenderer
from trilane.events import (
    ChildEvent,
    CustomEvent,
    MessageCompleted,
    ModelStarted,
    PhaseChanged,
    PluginFailed,
    RunCancelled,
    RunFailed,
    TextDelta,
    ToolProgress,
    ToolStarted,
    UserMessageAdded,
    event_from_json,
)
from trilane.messages import TextPart, UserMessage
from trilane.state import AgentPhase

if TYPE_CHECKING:
    from conftest import EventMaker

    from trilane.cli.rendering import Renderer
    from trilane.events import Event


class Plain:
    """A plain renderer and what it wrote."""

    def __init__(self, **options: bool) -> None:
        self.out, self.notes = io.StringIO(), io.StringIO()
        self.renderer = PlainRenderer(self.out, self.notes, **options)

    def show(self, *events: Event) -> tuple[str, str]:
        for event in events:
            self.renderer.show(event)
        self.renderer.close()
        return self.out.getvalue(), self.notes.getvalue()


def _message(make: EventMaker, text: str, *calls: object, **values: object) -> list[Event]:
    halves = [make(TextDelta, message_id="m1", index=0, text=half) for half in (text[:3], text[3:])]
    message = make.message(text, *calls)  # type: ignore[arg-type]
    return [*halves, make(MessageCompleted, message=message, stop_reason="end", **values)]


def test_a_pipe_gets_the_answer_and_nothing_else(make: EventMaker) -> None:
    call = make.call(path="a.md")
    out, notes = Plain().show(
        make(PhaseChanged, previous=AgentPhase.CREATED, phase=AgentPhase.LOADING_CONTEXT),
        *_message(make, "I will look.", call),
        *make.tool(call, "12 words"),
        *_message(make, "There are 12."),
        make.completed("There are 12."),
    )
    assert out == "There are 12.\n"
    assert notes.splitlines() == [
        "I will look.",
        '-> count_words(path="a.md")',
        "<- count_words: 12 words",
    ]


def test_what_was_taken_back_is_not_in_the_answer(make: EventMaker) -> None:
    out, notes = Plain().show(
        *_message(make, "wrong answer", superseded=True),
        *_message(make, "right answer"),
        make.completed("right answer"),
    )
    assert out == "right answer\n"
    assert "taken back: wrong answer" in notes


def test_an_output_that_a_plugin_replaced_is_what_is_printed(make: EventMaker) -> None:
    out, _ = Plain().show(*_message(make, "the secret is 1"), make.completed("the secret is 1", output="(redacted)"))
    assert out == "(redacted)\n"
    out, _ = Plain().show(make.completed("{}", output={"words": 3}))
    assert json.loads(out) == {"words": 3}


def test_a_simple_terminal_gets_text_as_it_streams_and_once(make: EventMaker) -> None:
    plain = Plain(live=True)
    plain.renderer.show(make(TextDelta, message_id="m1", index=0, text="The"))
    assert plain.out.getvalue() == "The"
    plain.show(make(TextDelta, message_id="m1", index=0, text=" end"), make.completed("The end"))
    assert plain.out.getvalue() == "The end\n"


def test_a_simple_terminal_shows_a_replaced_answer_too(make: EventMaker) -> None:
    out, notes = Plain(live=True).show(*_message(make, "wrong", superseded=True), make.completed("right"))
    assert out.splitlines() == ["wrong", "right"]
    assert "taken back" in notes


@pytest.mark.parametrize("live", [False, True])
def test_a_run_without_an_answer_keeps_what_had_arrived(make: EventMaker, live: bool) -> None:
    result = make.result("half an ans", status="cancelled", stop_reason="cancelled")
    out, notes = Plain(live=live).show(
        *_message(make, "half an ans", interrupted=True), make(RunCancelled, reason="stopped", result=result)
    )
    assert out == "half an ans\n"
    assert "not a finished answer (11 characters)" in notes


def test_a_failed_run_without_text_writes_nothing_to_stdout(make: EventMaker) -> None:
    error = ValueError("no")
    result = make.result("", status="failed", stop_reason="error", error=error)
    out, notes = Plain().show(make(RunFailed, error=error, status="failed", result=result))
    assert (out, notes) == ("", "")


def test_details_are_for_those_who_ask(make: EventMaker) -> None:
    steering = UserMessage(id="u", parts=(TextPart(text="be brief"),), origin="steering")
    events: list[Event] = [
        make(PhaseChanged, previous=AgentPhase.CREATED, phase=AgentPhase.LOADING_CONTEXT),
        make(ModelStarted, model="m"),
        make(UserMessageAdded, message=steering, origin="steering"),
        make(ToolProgress, call_id="c1", text="half", fraction=0.5),
        make(CustomEvent, plugin="audit", name="saved", data={"n": 1}),
    ]
    assert Plain().show(*events) == ("", "")
    _, notes = Plain(verbose=True).show(*events)
    assert notes.splitlines() == [
        "phase created -> loading_context",
        "steering: be brief",
        ".. 50% half",
        "audit: saved {'n': 1}",
    ]


def test_a_plugin_that_failed_is_named_to_everybody(make: EventMaker) -> None:
    _, notes = Plain().show(make(PluginFailed, plugin="audit", hook="before_tool", error=OSError("disk full")))
    assert notes == "warning: plugin audit failed in before_tool (OSError: disk full); the run goes on\n"


@pytest.mark.parametrize(
    ("hook", "phase", "says"),
    [
        ("after_turn", AgentPhase.READY, "the run goes on"),
        ("on_event", AgentPhase.RUNNING_TOOL, "the run goes on"),
        ("decide_tool", AgentPhase.READY, "the call is denied"),
        ("on_model_error", AgentPhase.GENERATING, "the model's error counts"),
        ("on_reply", AgentPhase.RUNNING_TOOL, "the reply is not taken"),
        ("on_compact", AgentPhase.COMPACTING, "the history stays as it is"),
        ("on_success", AgentPhase.COMPLETED, "the answer stands"),
        ("close_run", AgentPhase.COMPLETED, "the answer stands"),
        ("on_error", AgentPhase.FAILED, "the run had failed before"),
        ("close_run", AgentPhase.FAILED, "the run had failed before"),
        ("on_cancel", AgentPhase.CANCELLED, "the run was cancelled before"),
        ("on_event", AgentPhase.CANCELLED, "the run was cancelled before"),
    ],
)
def test_a_plugin_that_failed_is_told_with_what_stands(
    make: EventMaker, hook: str, phase: AgentPhase, says: str
) -> None:
    event = make(PluginFailed, plugin="audit", hook=hook, error=OSError("disk full"), phase=phase)
    _, notes = Plain().show(event)
    assert notes == f"warning: plugin audit failed in {hook} (OSError: disk full); {says}\n"


def test_outcomes_and_second_attempts_are_told(make: EventMaker) -> None:
    call = make.call("rm", "c9", path="x")
    _, notes = Plain().show(make(ModelStarted, model="m", attempt=2), *make.tool(call, "not today", "denied"))
    assert "attempt 2" in notes
    assert "<- rm denied: not today" in notes


def test_a_child_runs_tools_are_shown_with_their_path_and_its_text_is_not(make: EventMaker) -> None:
    inner: list[Event] = [
        make(TextDelta, message_id="m", index=0, text="inner"),
        *make.tool(make.call("inner"), "fine"),
    ]
    out, notes = Plain(live=True).show(*[make(ChildEvent, path=("outer",), event=event) for event in inner])
    assert out == ""
    assert notes.splitlines() == ["-> outer > inner()", "<- outer > inner: fine"]


ODD = "nul \x00 esc \x1b[31m half \ud83d end"


def test_odd_text_reaches_a_pipe_readable(make: EventMaker) -> None:
    out, notes = Plain().show(*make.tool(make.call(odd=ODD), ODD), make.completed(ODD))
    assert out == "nul � esc \x1b[31m half � end\n"
    assert "\x1b" not in notes
    assert notes.encode()


def test_odd_text_cannot_control_a_terminal(make: EventMaker) -> None:
    out, _ = Plain(live=True).show(*_message(make, ODD), make.completed(ODD))
    assert "\x1b" not in out
    assert out.encode()


def test_json_is_one_event_a_line_and_reads_back(make: EventMaker) -> None:
    out = io.StringIO()
    events: list[Event] = [
        make(TextDelta, message_id="m1", index=0, text="line\nbreak\u2028é"),
        *make.tool(make.call(path="a"), "12"),
        make.completed("done"),
    ]
    renderer: Renderer = JsonRenderer(out)
    for event in events:
        renderer.show(event)
    lines = out.getvalue().split("\n")
    assert lines.pop() == ""
    assert [event_from_json(line).type for line in lines] == [event.type for event in events]
    assert event_from_json(lines[0]) == events[0]


def test_json_with_half_a_surrogate_pair_is_still_json(make: EventMaker) -> None:
    out = io.StringIO()
    call = make.call(odd=ODD, deep=[{"k\ud83d": ODD}])
    JsonRenderer(out).show(make(ToolStarted, call=call))
    line = out.getvalue()
    assert line.encode()
    read = event_from_json(line)
    assert read.call.arguments["odd"] == "nul � esc \x1b[31m half � end"  # type: ignore[union-attr]


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_notes_that_nobody_reads_stop_nothing_but_an_answer_does(make: EventMaker) -> None:
    out = io.StringIO()
    deaf = PlainRenderer(out, ClosedPipe())
    for event in make.tool(make.call(), "12"):
        deaf.show(event)
    deaf.show(make.completed("answer"))
    assert out.getvalue() == "answer\n"
    with pytest.raises(BrokenPipeError):
        PlainRenderer(ClosedPipe(), io.StringIO()).show(make.completed("answer"))
    with pytest.raises(BrokenPipeError):
        JsonRenderer(ClosedPipe()).show(make.completed("answer"))
