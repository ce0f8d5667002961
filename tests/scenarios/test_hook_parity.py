"""The same hooks in the same order, however a run is started; the reference shows the table that is made from this."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trilane.hookspecs import HOOKS

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCENARIOS = ("completed", "failed", "cancelled")
WAYS_IN = ("forward", "WebSocket", "HTTP", "nested agent", "command line")
MODES = ("run", "run_sync", "stream", "runtime", *WAYS_IN, "resumed")


@pytest.fixture(scope="module")
def parity() -> Iterator[ModuleType]:
    sys.path.insert(0, str(DOCS))
    try:
        import _parity

        yield _parity
    finally:
        sys.path.remove(str(DOCS))


def test_every_way_to_run_is_there(parity: ModuleType) -> None:
    assert tuple(parity.MODES) == MODES
    assert tuple(parity.SCENARIOS) == SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("run", "resumed")])
def test_the_same_hooks_are_called_in_the_same_order(parity: ModuleType, scenario: str, mode: str) -> None:
    assert parity.play(scenario, mode) == parity.play(scenario, "run")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_resumed_run_goes_on_where_the_stored_one_was_left(parity: ModuleType, scenario: str) -> None:
    whole, resumed = parity.play(scenario, "run"), parity.play(scenario, "resumed")
    beginning = [
        "loading_context on_event PhaseTransitionEvent",
        "loading_context on_tool",
        "loading_context on_state",
        "ready on_event PhaseTransitionEvent",
    ]
    left = whole.index("ready decide_tool pay")
    assert resumed == beginning + whole[left:]


def test_the_scenarios_call_every_hook_of_runs(parity: ModuleType) -> None:
    called = parity.called_in("run")
    assert called == {name for name, hook in HOOKS.items() if hook.phases}
    assert parity.called_in("resumed") == called - {"on_message", "before_run"}


def test_the_page_shows_what_was_found(parity: ModuleType) -> None:
    page = (DOCS / "reference" / "hooks.md").read_text(encoding="utf-8")
    table = page.partition("<!-- generated: hook-parity -->")[2].partition("<!-- end -->")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    assert tuple(head[1:]) == MODES
    shown = {
        mode: {row[0].strip("`") for row in rows if len(row) > at and row[at]} for at, mode in enumerate(head) if at
    }
    assert shown["run"] == parity.called_in("run")
    assert shown["resumed"] == parity.called_in("resumed")
