"""What a scenario is: scripted answers of a model, scripted tools, and how the consumer behaves.

Framework-neutral: an adapter turns `Play` into an agent. The scenarios themselves are in `scenarios.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from trilane.testing.models import ScriptStep

from .stage import Stage

__all__ = ["At", "Mode", "Play", "Scenario", "ScriptedTool", "all_scenarios"]

Mode: TypeAlias = Literal["stream", "run", "runtime", "sink"]


@dataclass(frozen=True, slots=True)
class At:
    """Where a scripted tool is called: its call, and what the framework lets it do. None: it cannot."""

    stage: Stage
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    progress: Callable[[str], Awaitable[None]] | None = None
    ask: Callable[[str, float | None], Awaitable[str]] | None = None
    process: Callable[[Sequence[str]], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True)
class ScriptedTool:
    """A tool of a scenario. `work` is async, or plain and then called in a thread."""

    name: str
    work: Callable[[At], Any]
    parallel: bool = True
    timeout: float | None = None
    in_thread: bool = False
    approval: bool = False


@dataclass
class Play:
    """What an adapter needs to play a scenario.

    Attributes:
        script: What the model answers, call by call.
        tools: Its tools.
        child: A scenario whose agent is a tool of this one, by the tool's name.
        plugins: Trilane plugins, made for this case.
        options: Further arguments of Trilane's `Agent`.
        run_options: Further arguments of the run.
        react: What the consumer does with an event: called with the stream and the event.
        before: Messages the session has already.
        store: "memory" (the framework's default) or "slow": one that waits at every call, and may fail there.
        sink: For the mode `sink`: "ok", "slow", "failing" or "vanishing".
    """

    script: Sequence[ScriptStep]
    tools: Sequence[ScriptedTool] = ()
    child: Mapping[str, Play] = field(default_factory=dict)
    plugins: Sequence[object] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    run_options: Mapping[str, Any] = field(default_factory=dict)
    react: Callable[[Any, Any], Awaitable[None] | None] | None = None
    store: Literal["memory", "slow"] = "memory"
    sink: Literal["ok", "slow", "failing", "vanishing"] = "ok"


@dataclass(frozen=True)
class Scenario:
    """One scripted run.

    Attributes:
        name: Its name on the command line.
        play: Makes its parts for one case.
        mode: How the caller consumes it: `stream` event by event, `run` for the result only, `runtime` without an
            `async with`, `sink` through an `EventSink`.
        needs: What a framework must have to play it.
        status: How it ends if nothing interrupts it.
        real: It uses threads or processes, so that await points are not the same every time and real time passes.
        skip: Faults that make no sense here.
        backends: Event loops it makes sense on.
    """

    name: str
    play: Callable[[Stage], Play]
    mode: Mode = "stream"
    needs: frozenset[str] = frozenset()
    status: str = "completed"
    real: bool = False
    skip: frozenset[str] = frozenset()
    backends: tuple[str, ...] = ("asyncio", "trio")


def all_scenarios() -> Mapping[str, Scenario]:
    """Every scenario by name."""
    from .scenarios import SCENARIOS

    return SCENARIOS
