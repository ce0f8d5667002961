"""The conformance kit executes steps twice, in every mode, and finds the plugins that do not survive it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from trilane import Allow, ModelResponse, RunContext, TextPart, ToolCall, ToolResult, hookimpl, new_id
from trilane.messages import Delta, UserMessage
from trilane.testing.conformance import check_plugin
from trilane.testing.conformance.check import CHECKS


def only(check: str) -> tuple[str, ...]:
    return tuple(name for name in CHECKS if name != check)


def repeats(plugin: Callable[[], object], **options: Any) -> list[str]:
    return check_plugin(plugin, without=only("repeats"), **options)


def kinds(found: list[str]) -> list[str]:
    """What was repeated, without the place."""
    return [" ".join(word for word in text.partition(" on ")[0].split() if not word.isdigit()) for text in found]


class Meter:
    """Keeps what each call came to, under the call's id: a further attempt replaces the earlier one."""

    name = "meter"

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    @hookimpl
    def after_tool(self, run: RunContext[Any], call: ToolCall, result: ToolResult) -> None:
        self.outcomes[call.id] = result.outcome


def test_a_plugin_whose_data_does_not_depend_on_repeated_steps_conforms() -> None:
    assert repeats(Meter, stored=lambda plugin: plugin.outcomes) == []


def test_data_that_counts_a_step_twice() -> None:
    class Counter:
        name = "counter"

        def __init__(self) -> None:
            self.count = 0

        @hookimpl
        def before_tool(self, run: RunContext[Any], call: ToolCall) -> None:
            self.count += 1

    found = repeats(Counter, stored=lambda plugin: plugin.count, backends=["asyncio"])
    assert kinds(found) == [
        "repeats: what came after write is lost, and done again",
        "repeats: suspended in pause and resumed",
    ]
    assert all("but 5 in a run without repeated steps" in text for text in found)


def test_data_that_counts_a_result_twice() -> None:
    class Totals:
        name = "totals"

        def __init__(self) -> None:
            self.tools: list[str] = []

        @hookimpl
        def after_tool(self, run: RunContext[Any], call: ToolCall) -> None:
            self.tools.append(call.name)

    found = repeats(Totals, stored=lambda plugin: sorted(plugin.tools), backends=["asyncio"])
    assert kinds(found) == ["repeats: what came after write is lost, and done again"]


def test_a_session_that_is_changed_again_each_time_it_is_taken_up() -> None:
    class Polite:
        name = "polite"

        @hookimpl
        def on_state(self, run: RunContext[Any]) -> None:
            run.history.append(UserMessage(id=new_id(), parts=(TextPart(text="Be polite."),)))

    found = repeats(Polite, backends=["trio"])
    assert kinds(found) == ["repeats: restarted after write", "repeats: suspended in pause and resumed"]
    assert all("in a run without repeated steps" in text for text in found)


def test_a_plugin_that_relies_on_what_an_earlier_process_did() -> None:
    class Prepared:
        name = "prepared"

        @hookimpl
        def before_run(self, run: RunContext[Any]) -> None:
            run.stash[self] = 0

        @hookimpl
        def after_turn(self, run: RunContext[Any], turn: int) -> None:
            run.stash[self] += 1

    assert any("restarted after write" in text and "after_turn failed: KeyError" in text for text in repeats(Prepared))
    resumed = check_plugin(Prepared, without=only("modes"))
    assert resumed == [
        f"modes: resumed on {backend}: after_turn failed: KeyError: {text.rpartition('KeyError: ')[2]}"
        for backend, text in zip(("asyncio", "trio"), resumed, strict=True)
    ]


def test_a_plugin_that_does_not_begin_anew_with_a_further_attempt_of_the_model() -> None:
    class Scribe:
        name = "scribe"

        @hookimpl
        def on_delta(self, run: RunContext[Any], delta: Delta, final: bool) -> None:
            if delta.kind == "text":
                run.stash[self] = run.stash.get(self, "") + delta.text

        @hookimpl
        def after_model(self, run: RunContext[Any], response: ModelResponse) -> ModelResponse:
            text = TextPart(text=run.stash.pop(self, ""))
            kept = tuple(part for part in response.parts or () if part.kind != "text")
            return response.replace(parts=(text, *kept))

    found = repeats(Scribe, backends=["asyncio"])
    assert kinds(found) == ["repeats: every model call fails at first"]
    assert "message 6 of the session is assistant" in found[0]


def test_a_plugin_that_decides_otherwise_the_second_time() -> None:
    class Once:
        name = "once"

        @hookimpl
        def decide_tool(self, run: RunContext[Any], call: ToolCall) -> Allow | None:
            seen = run.stash.setdefault(self, set())
            if call.approval is None:
                assert call.id not in seen, "asked twice"
            elif call.name == "echo":
                raise LookupError("an approved call was not expected")
            seen.add(call.id)
            return None

    found = repeats(Once, backends=["asyncio"])
    assert kinds(found) == ["repeats: every call is decided again after a question"]


def test_a_plugin_that_expects_one_answer() -> None:
    class Final:
        name = "final"

        @hookimpl
        def on_answer(self, run: RunContext[Any]) -> None:
            if run.stash.get(self):
                raise RuntimeError("answered already")
            run.stash[self] = True

    found = repeats(Final, backends=["asyncio"])
    assert kinds(found) == ["repeats: the answer is sent back once"]
    assert "RuntimeError: answered already" in found[0]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (datetime.now(UTC), "what it stores cannot be written to JSON: TypeError"),
        (float("nan"), "what it stores cannot be written to JSON: ValueError"),
        ({1: "one"}, "comes back from JSON as something else"),
        ((1, 2), "comes back from JSON as something else"),
    ],
)
def test_what_is_stored_must_survive_json(value: Any, says: str) -> None:
    (found,) = repeats(Meter, stored=lambda _plugin: value, backends=["asyncio"])
    assert says in found


def test_what_is_stored_must_not_depend_on_the_run() -> None:
    count = iter(range(1000))
    (found,) = repeats(Meter, stored=lambda _plugin: next(count), backends=["asyncio"])
    assert "stored() gives 0 and 1 after two runs that were the same" in found


def test_a_session_with_what_cannot_be_stored() -> None:
    class Stamp:
        name = "stamp"

        @hookimpl
        def after_tool(self, run: RunContext[Any], call: ToolCall, result: ToolResult) -> ToolResult:
            return result.replace(data={"at": float("nan")})

    found = repeats(Stamp, backends=["asyncio"])
    assert any("the record call_finished" in text for text in found)


def test_every_fault_strikes_at_every_hook_of_the_plugin() -> None:
    struck: set[tuple[str, str]] = set()
    from trilane.testing.conformance import faults as kit
    from trilane.testing.faults.stage import CALL_FAULTS, FAULTS

    real = kit.play

    def play(case: Any, scenario: Any, adapter: Any) -> Any:
        played = real(case, scenario, adapter)
        if played.stage.fired:
            struck.add((case.fault, played.stage.fired_label))
        return played

    class Watching:
        name = "watching"

        @hookimpl
        def before_turn(self, run: RunContext[Any], turn: int) -> None: ...

        @hookimpl
        def on_reply(self, run: RunContext[Any]) -> None: ...

        @hookimpl
        def on_event(self, run: RunContext[Any]) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kit, "play", play)
        assert check_plugin(Watching, without=only("faults"), backends=["trio"]) == []
    assert {fault for fault, _ in struck} == set(FAULTS)
    for hook in ("hook.before_turn", "hook.on_event"):
        assert {fault for fault, label in struck if label == hook} >= set(CALL_FAULTS), hook
    can_wait = {"hang", "hang_cancel", "hang_close", "swallow"}
    assert {fault for fault, label in struck if label == "hook.on_reply"} >= set(CALL_FAULTS) - can_wait


def test_a_plugin_without_hooks() -> None:
    class Idle:
        name = "idle"

    assert check_plugin(Idle) == [
        "registration: it implements no hook, so it does nothing; mark its functions with @hookimpl"
    ]
