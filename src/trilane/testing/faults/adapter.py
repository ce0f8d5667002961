"""What the harness needs of a framework, so that the same interruptions can be pointed at another one.

A framework is an `Adapter`; what it makes for one case is a `Subject`. Both speak in Trilane's messages, because the
rules of providers are checked on those. Invariants about what a framework does not have are left out: each names the
evidence it needs, and None means there is none.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from trilane.messages import Message

from .scenario import Scenario
from .stage import Stage

__all__ = ["Adapter", "Backend", "Evidence", "Outcome", "Subject"]

Backend: TypeAlias = Literal["asyncio", "trio"]
Outcome: TypeAlias = Literal["returned", "raised", "cancelled", "hung", "escaped"]


@dataclass
class Evidence:
    """What is known after a case. The first block is the harness's, the rest is filled in by `Subject.testify`.

    Attributes:
        outcome: How the caller's task got out of the call.
        error: What it raised.
        seconds: From the fault to the return, in virtual time.
        cancel_lost: The caller was cancelled, and the cancel never reached it.
        left: What was left behind: one description each of a task, thread, file or process.
        complaints: What the event loop and the interpreter complained about.
        helper_error: What closing from another task raised.
        events: What the consumer was handed.
        read_to_end: It read until the stream ended.
        messages: The history of the session, as the next run will see it.
        kept: Every message that is kept anywhere, hidden ones too.
        told: The history that came with the result.
        run_id: The id of the run, as plugins are told it.
        requests: The history of every model request.
        status: How the framework says the run ended.
        phase: In which phase it was when the call returned.
        run_error: What the framework says made it end.
        reported: Errors of plugins and of the store that were contained, and are reported.
        abandoned: Ids of calls that it lists as still running.
        plugins: Names of plugins that must be told to close the run, once each.
        open_questions: How many questions can still be answered.
        stored_questions: Ids of questions that are stored as open, if the run was suspended.
        next_outcome: How the next run on the session ended: "completed", or what went wrong.
        alive: What should have been given back and was not.
        watched: Weak references to what must be gone once the evidence is, by name.
    """

    outcome: Outcome = "returned"
    error: BaseException | None = None
    seconds: float = 0.0
    cancel_lost: bool = False
    left: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    helper_error: BaseException | None = None
    events: list[object] = field(default_factory=list)
    read_to_end: bool = False
    messages: Sequence[Message] | None = None
    kept: Sequence[Message] | None = None
    told: Sequence[Message] | None = None
    run_id: str = ""
    requests: Sequence[Sequence[Message]] = ()
    status: str | None = None
    phase: str | None = None
    run_error: BaseException | None = None
    reported: tuple[BaseException, ...] = ()
    abandoned: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    open_questions: int | None = None
    stored_questions: Sequence[str] | None = None
    next_outcome: str | None = None
    alive: tuple[str, ...] = ()
    watched: dict[str, weakref.ref[object]] = field(default_factory=dict)


class Subject(Protocol):
    """One scenario, ready to be played once by a framework."""

    async def play(self, evidence: Evidence) -> None:
        """Be the caller: run the scenario to its end, tell the stage each event, raise what the framework raises."""
        ...

    async def close(self) -> None:
        """End the run from another task, and wait until it has ended."""
        ...

    def stop(self) -> None:
        """Ask the run to end at the next boundary."""
        ...

    async def suspend(self) -> None:
        """End the run so that another process can go on with it."""
        ...

    async def testify(self, evidence: Evidence) -> None:
        """After the case: fill in what the framework knows, and try the session with another run."""
        ...


class Adapter(Protocol):
    """A framework under test."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def backends(self) -> Sequence[Backend]:
        """Event loops it runs on."""
        ...

    @property
    def features(self) -> Mapping[str, bool]:
        """What it has: a scenario is played only if everything it needs is true here, and so with `FAULT_NEEDS`.

        Of all names that are asked for: `limits` (of time, for tools, models and runs), `close`, `stop` and `suspend`
        (by another task); `hooks`, `store`, `questions`, `steering`, `sink`, `runtime`, `children`, `structured`,
        `threads` and `processes` as the scenarios of Trilane use them.
        """
        ...

    def open(self, scenario: Scenario, stage: Stage) -> Subject:
        """Make agent, model and tools for one case."""
        ...
