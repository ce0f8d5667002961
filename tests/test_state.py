"""The phase machine as data: nine phases, the table of transitions, and what it refuses."""

from __future__ import annotations

import pytest

from trilane import AgentPhase, AgentState
from trilane.errors import PhaseError
from trilane.hookspecs import HOOKS
from trilane.state import HOOKS_BY_PHASE, TRANSITIONS

P = AgentPhase

ALLOWED = {
    (P.CREATED, P.LOADING_CONTEXT),
    (P.LOADING_CONTEXT, P.READY),
    (P.READY, P.COMPACTING),
    (P.COMPACTING, P.READY),
    (P.READY, P.GENERATING),
    (P.GENERATING, P.READY),
    (P.READY, P.RUNNING_TOOL),
    (P.RUNNING_TOOL, P.READY),
    (P.READY, P.COMPLETED),
    *((active, end) for active in (P.LOADING_CONTEXT, P.READY, P.COMPACTING) for end in (P.FAILED, P.CANCELLED)),
    *((active, end) for active in (P.GENERATING, P.RUNNING_TOOL) for end in (P.FAILED, P.CANCELLED)),
}


def state_in(phase: AgentPhase) -> AgentState:
    """A state that was brought to `phase` by allowed steps only."""
    paths = {P.CREATED: [], P.LOADING_CONTEXT: [P.LOADING_CONTEXT], P.READY: [P.LOADING_CONTEXT, P.READY]}
    state = AgentState()
    for step in paths.get(phase, [P.LOADING_CONTEXT, P.READY, phase]):
        state.go(step)
    assert state.phase is phase
    return state


def test_r40_there_are_exactly_nine_phases() -> None:
    assert [phase.value for phase in AgentPhase] == [
        *("created", "loading_context", "ready", "compacting", "generating", "running_tool"),
        *("completed", "failed", "cancelled"),
    ]
    assert set(TRANSITIONS) == set(HOOKS_BY_PHASE) == set(AgentPhase)


@pytest.mark.parametrize("previous", AgentPhase)
@pytest.mark.parametrize("target", AgentPhase)
def test_r43_r48_r49_of_all_81_pairs_only_the_listed_ones_are_accepted(
    previous: AgentPhase, target: AgentPhase
) -> None:
    state = state_in(previous)
    assert state.can_go(target) == ((previous, target) in ALLOWED)
    if state.can_go(target):
        assert state.go(target) is previous
        assert state.phase is target
        return
    with pytest.raises(PhaseError, match=f"from {previous.name} to {target.name}"):
        state.go(target)
    assert state.phase is previous


def test_r49_a_refusal_says_where_one_may_go() -> None:
    with pytest.raises(PhaseError, match="it may go to: CANCELLED, FAILED, READY"):
        state_in(P.GENERATING).go(P.COMPLETED)
    with pytest.raises(PhaseError, match="none: it is terminal"):
        state_in(P.FAILED).go(P.READY)


def test_r51_only_created_and_the_terminal_phases_accept_a_new_request() -> None:
    accepting = {P.CREATED, P.COMPLETED, P.FAILED, P.CANCELLED}
    for phase in AgentPhase:
        assert phase.accepts_new_request is (phase in accepting)
        assert state_in(phase).accepts_new_request is (phase in accepting)
        assert phase.is_terminal is state_in(phase).is_terminal is (phase in accepting - {P.CREATED})


def test_r39_a_state_starts_at_created_and_shares_nothing() -> None:
    first, second = AgentState(), AgentState()
    first.go(P.LOADING_CONTEXT)
    assert (first.phase, second.phase) == (P.LOADING_CONTEXT, P.CREATED)
    assert repr(first) == "AgentState(LOADING_CONTEXT)"


def test_the_tables_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[P.FAILED] = frozenset({P.READY})  # type: ignore[index]
    with pytest.raises(TypeError):
        HOOKS_BY_PHASE[P.FAILED] = ()  # type: ignore[index]
    with pytest.raises(AttributeError):
        AgentState().phase = P.READY  # type: ignore[misc]


def test_every_hook_of_runs_has_its_phase_and_every_named_hook_exists() -> None:
    named = {hook for hooks in HOOKS_BY_PHASE.values() for hook in hooks}
    assert named <= set(HOOKS)
    anywhere = {name for name, info in HOOKS.items() if info.mode != "register"} - named
    assert anywhere == {"on_event", "on_reply"}


def test_whoever_may_only_look_sees_every_change_and_can_make_none() -> None:
    state = AgentState()
    view = state.read_only()
    state.go(AgentPhase.LOADING_CONTEXT)
    assert view.phase is AgentPhase.LOADING_CONTEXT
    assert view.can_go(AgentPhase.READY)
    assert not view.accepts_new_request
    assert not view.is_terminal
    with pytest.raises(PhaseError, match="changed by the run itself"):
        view.go(AgentPhase.READY)
    assert state.phase is AgentPhase.LOADING_CONTEXT
    assert view.read_only() is view
    assert repr(view) == "AgentState(LOADING_CONTEXT)"
