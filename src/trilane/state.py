"""The phase machine as data: the nine phases, the transitions between them, and the hooks called in each.

The table here is the only source: `AgentState` obeys it, the diagram in the documentation is drawn from it, and the
tests walk it. What a phase *does* is in `_phases.py`; how long a run lives is in `_run.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from .errors import PhaseError

__all__ = ["HOOKS_BY_PHASE", "TRANSITIONS", "AgentPhase", "AgentState"]


class AgentPhase(StrEnum):
    """Where a run stands. Exactly one phase holds at any moment."""

    CREATED = "created"
    LOADING_CONTEXT = "loading_context"
    READY = "ready"
    COMPACTING = "compacting"
    GENERATING = "generating"
    RUNNING_TOOL = "running_tool"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    # Plain attributes, set below: a property on an Enum costs a descriptor call on each event.
    accepts_new_request: bool
    is_terminal: bool


_TERMINAL = frozenset({AgentPhase.COMPLETED, AgentPhase.FAILED, AgentPhase.CANCELLED})
for _phase in AgentPhase:
    _phase.is_terminal = _phase in _TERMINAL
    _phase.accepts_new_request = _phase.is_terminal or _phase is AgentPhase.CREATED

_STOPPED = frozenset({AgentPhase.FAILED, AgentPhase.CANCELLED})

#: From each phase, the phases a run may go to. Terminal phases have no way out.
TRANSITIONS: Mapping[AgentPhase, frozenset[AgentPhase]] = MappingProxyType(
    {
        AgentPhase.CREATED: frozenset({AgentPhase.LOADING_CONTEXT}),
        AgentPhase.LOADING_CONTEXT: frozenset({AgentPhase.READY}) | _STOPPED,
        AgentPhase.READY: frozenset(
            {AgentPhase.COMPACTING, AgentPhase.GENERATING, AgentPhase.RUNNING_TOOL, AgentPhase.COMPLETED}
        )
        | _STOPPED,
        AgentPhase.COMPACTING: frozenset({AgentPhase.READY}) | _STOPPED,
        AgentPhase.GENERATING: frozenset({AgentPhase.READY}) | _STOPPED,
        AgentPhase.RUNNING_TOOL: frozenset({AgentPhase.READY}) | _STOPPED,
        AgentPhase.COMPLETED: frozenset(),
        AgentPhase.FAILED: frozenset(),
        AgentPhase.CANCELLED: frozenset(),
    }
)

#: The hooks called in each phase, in the order in which they are first called.
HOOKS_BY_PHASE: Mapping[AgentPhase, tuple[str, ...]] = MappingProxyType(
    {
        AgentPhase.CREATED: (),
        AgentPhase.LOADING_CONTEXT: ("on_tool", "on_state", "on_message"),
        AgentPhase.READY: (
            "before_run",
            "before_turn",
            "on_model_request",
            "after_model",
            "decide_tool",
            "after_turn",
            "on_answer",
        ),
        AgentPhase.COMPACTING: ("on_compact",),
        AgentPhase.GENERATING: ("around_model", "on_delta", "on_model_error"),
        AgentPhase.RUNNING_TOOL: ("before_tool", "around_tool", "after_tool", "decide_tool"),
        AgentPhase.COMPLETED: ("after_run", "on_success", "close_run"),
        AgentPhase.FAILED: ("on_error", "close_run"),
        AgentPhase.CANCELLED: ("on_cancel", "close_run"),
    }
)


class AgentState:
    """The phase of one run. Each run has a fresh one that starts at CREATED."""

    __slots__ = ("_phase",)

    def __init__(self) -> None:
        self._phase = AgentPhase.CREATED

    @property
    def phase(self) -> AgentPhase:
        """The current phase."""
        return self._phase

    @property
    def accepts_new_request(self) -> bool:
        """True before the run starts and after it has ended; see `AgentPhase.accepts_new_request`."""
        return self._phase.accepts_new_request

    @property
    def is_terminal(self) -> bool:
        """True once the run has completed, failed or been cancelled."""
        return self._phase.is_terminal

    def can_go(self, target: AgentPhase) -> bool:
        """True if the table allows going from the current phase to `target`."""
        return target in TRANSITIONS[self._phase]

    def go(self, target: AgentPhase) -> AgentPhase:
        """Change to `target` and return the phase that was left.

        Raises:
            PhaseError: the table does not allow it. The phase is unchanged.
        """
        previous = self._phase
        if target not in TRANSITIONS[previous]:
            allowed = ", ".join(sorted(phase.name for phase in TRANSITIONS[previous])) or "none: it is terminal"
            raise PhaseError(f"a run cannot go from {previous.name} to {target.name}; it may go to: {allowed}")
        self._phase = target
        return previous

    def __repr__(self) -> str:
        return f"AgentState({self._phase.name})"

    def read_only(self) -> AgentState:
        """The same state for whoever may only look: it follows every change, and `go` is refused."""
        return _ReadOnlyState(self)


class _ReadOnlyState(AgentState):
    """What plugins, tools and callers get: the phase of a run is changed by the run itself."""

    __slots__ = ("_source",)

    def __init__(self, source: AgentState) -> None:
        super().__init__()
        self._source = source

    @property
    def phase(self) -> AgentPhase:
        return self._source.phase

    @property
    def accepts_new_request(self) -> bool:
        return self._source.accepts_new_request

    @property
    def is_terminal(self) -> bool:
        return self._source.is_terminal

    def can_go(self, target: AgentPhase) -> bool:
        return self._source.can_go(target)

    def go(self, target: AgentPhase) -> AgentPhase:
        raise PhaseError(
            f"the phase of a run is changed by the run itself, here from {self.phase.name}; "
            "run.stop(reason) ends it at the next boundary"
        )

    def read_only(self) -> AgentState:
        return self

    def __repr__(self) -> str:
        return f"AgentState({self.phase.name})"
