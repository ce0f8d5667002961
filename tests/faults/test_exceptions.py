"""What the invariants of the matrix do not ask for, and why it cannot be asked for."""

from __future__ import annotations

import pytest

from trilane.testing.faults import Case, Played, Stage, all_scenarios, play, violations
from trilane.testing.faults.trilane_adapter import LIMITS, TrilaneAdapter

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def played_at(scenario: str, fault: str, label: str, backend: str, which: int = 0) -> Played:
    """The fault at one of the call points with that label."""
    chosen, adapter = all_scenarios()[scenario], TrilaneAdapter()
    stage: Stage = play(Case(scenario, "", 0, backend), chosen, adapter).stage  # type: ignore[arg-type]
    points = [point for point, one in enumerate(stage.labels, 1) if one == label]
    played = play(Case(scenario, fault, points[which], backend), chosen, adapter)  # type: ignore[arg-type]
    assert played.stage.fired_label == label
    return played


@both
def test_before_the_session_is_claimed_there_is_no_run_that_somebody_else_could_close(backend: str) -> None:
    """`returns_in_time` gives `hang_close` the time of the store here; a cancel of the caller needs no such time."""
    played = played_at("store", "hang_close", "store.lease", backend)
    assert violations(played) == []
    assert (played.evidence.phase, played.evidence.status) == (None, None)
    assert LIMITS.store_seconds is not None
    assert played.evidence.seconds == pytest.approx(LIMITS.store_seconds, abs=0.1)
    cancelled = played_at("store", "hang_cancel", "store.lease", backend)
    assert violations(cancelled) == []
    assert cancelled.evidence.seconds < 2.2


@both
def test_a_write_that_hangs_is_not_made_again_and_the_next_run_is_told(backend: str) -> None:
    """`results_kept` takes "did not reach the store" from the store then, but never from the result of the run."""
    told = []
    for which in range(20):
        try:
            played = played_at("store", "hang_cancel", "store.append", backend, which)
        except IndexError:
            break
        assert violations(played) == []
        for messages in (played.evidence.told, played.evidence.messages):
            results = [one for message in messages or () if message.kind == "tool" for one in message.results]
            told.append([str(result.content) for result in results])
    assert ["interrupted, result did not reach the store"] in told[1::2]
    assert ["interrupted, result did not reach the store"] not in told[0::2]


@both
def test_an_attempt_that_is_tried_again_is_void_although_its_reader_has_left(backend: str) -> None:
    """`partial_text_kept` asks for no text of an attempt whose end a hook was told of."""
    played = played_at("model_retry", "hang_cancel", "model.start", backend, 1)
    assert violations(played) == []
    assert [str(error) for error in played.stage.heard] == ["the provider is gone"]
    shown = "".join(event.text for event in played.evidence.events if getattr(event, "type", "") == "text_delta")  # type: ignore[attr-defined]
    assert shown == "Half an"
    assert all("Half an" not in message.to_json() for message in played.evidence.messages or ())


def test_only_a_task_that_swallows_every_cancel_is_left_behind_and_its_call_is_listed() -> None:
    """`nothing_left` allows as many tasks of calls as are listed as abandoned; on trio nothing can be left behind."""
    scenario, adapter = all_scenarios()["tool_deaf_always"], TrilaneAdapter()
    steps = play(Case("tool_deaf_always", "", 0, "asyncio"), scenario, adapter).stage.counts["step"]
    left: list[str] = []
    for point in range(1, steps, 3):
        played = play(Case("tool_deaf_always", "cancel_once", point, "asyncio"), scenario, adapter)
        assert violations(played) == []
        assert len(played.evidence.left) <= len(played.evidence.abandoned)
        left += played.evidence.left
    assert left, "no cancel met the tool at work"
    assert all("execute()" in text for text in left)
