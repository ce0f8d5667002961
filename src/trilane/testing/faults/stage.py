"""What one case has in common with the scenario it interrupts: where the fault strikes, and what happened meanwhile.

Scenarios and adapters tell the stage what begins and ends; the stage counts points and, at the chosen one, does harm.
Which harm there is stands in `FAULTS`. How await points are found is in `meter.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from .outside import Outside

__all__ = [
    "CALL_FAULTS",
    "EVENT_FAULTS",
    "FAULTS",
    "FAULT_NEEDS",
    "STEP_FAULTS",
    "Injected",
    "PointKind",
    "Stage",
    "ToolTrace",
    "Work",
    "kind_of",
]

PointKind: TypeAlias = Literal["call", "step", "event"]
"""Points of three kinds: an awaited call of scripted code, a suspension of any task, an event the consumer holds."""

CALL_FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "raise": "the call raises an exception",
        "fake_cancel": "the call raises a CancelledError that nobody asked for",
        "interrupt": "the call raises KeyboardInterrupt",
        "generator_exit": "the call raises GeneratorExit",
        "hang": "the call never returns by itself",
        "hang_cancel": "the call never returns, and half a second later the caller is cancelled",
        "hang_close": "the call never returns, and half a second later another task closes the run",
        "swallow": "the same as hang_cancel, and the call swallows the first three cancels",
    }
)
STEP_FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "cancel_once": "the caller's task is cancelled",
        "cancel_twice": "the caller's task is cancelled, and again some await points later",
        "close_elsewhere": "another task closes the run",
        "stop": "another task asks the run to stop",
        "suspend": "another task suspends the run",
    }
)
EVENT_FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "close": "the consumer leaves while it holds the event",
        "drop": "the consumer drops the stream while it holds the event",
        "consumer_raise": "the consumer's own code raises while it holds the event",
        "hold": "the consumer holds the event for ten minutes",
    }
)

#: Every fault, and what it does.
FAULTS: Mapping[str, str] = MappingProxyType({**CALL_FAULTS, **STEP_FAULTS, **EVENT_FAULTS})

#: What a framework must have for a fault to make sense: one without time limits waits for ever, as it was told.
FAULT_NEEDS: Mapping[str, str] = MappingProxyType(
    {"hang": "limits", "close_elsewhere": "close", "hang_close": "close", "stop": "stop", "suspend": "suspend"}
)

HANG_SECONDS = 0.5
SWALLOWED = 3
HOLD_SECONDS = 600.0


class Injected(Exception):
    """The exception that the harness raises."""


@dataclass(slots=True)
class Work:
    """Something that began: a model call, a tool, a hook, a write."""

    label: str
    holding: object  # the event the consumer held at that moment, or None
    left: bool  # the consumer had left by then
    time: float
    key: str = ""  # of a tool: its call's id


@dataclass(slots=True)
class ToolTrace:
    """What one tool call did, as its function saw it."""

    name: str
    began: bool = True
    value: str | None = None  # what the function returned
    error: BaseException | None = None  # what the function raised
    after_end: bool = False  # it returned when the call of the run was over


@dataclass
class Stage:
    """One case while it is played.

    Attributes:
        fault: Which harm is done; "" for none, to count points.
        point: At which point of the fault's kind, from 1.
        gap: For `cancel_twice`, how many await points lie between the two.
        counts: How many points of each kind there were.
        labels: What each call point was.
        fired: True once the harm was done.
        fired_at: When, in the event loop's time.
        injected: The exception that was raised, if any.
        work: Everything that began, in order.
        tools: What each tool call did, by its id.
        closed: How often each plugin was told to close each run, by its name and the run's id.
        ended: With which status each run was closed, by the run's id.
        replied: Ids of questions to which the consumer replied.
        heard: Exceptions that a hook was told of, or a receipt of a reply.
        stored: Kind and key of each record that the store has.
        early: What was told, and to whom, before the store had it.
        outside: What is at work outside of the event loop, for scenarios that have that.
    """

    fault: str = ""
    point: int = 0
    gap: int = 1
    now: Callable[[], float] = lambda: 0.0
    sleep: Callable[[float], Awaitable[None]] | None = None
    checkpoint: Callable[[], Awaitable[None]] | None = None
    cancelled_types: tuple[type[BaseException], ...] = ()
    #: What step faults do; set by whoever drives the case.
    actions: dict[str, Callable[[], None]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    labels: list[str] = field(default_factory=list)
    armed: bool = False
    fired: bool = False
    fired_at: float = 0.0
    fired_label: str = ""
    second: int = 0
    injected: BaseException | None = None
    swallowed: int = 0
    holding: object = None
    left: bool = False
    over: bool = False
    work: list[Work] = field(default_factory=list)
    tools: dict[str, ToolTrace] = field(default_factory=dict)
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended: list[tuple[str, str]] = field(default_factory=list)
    replied: list[str] = field(default_factory=list)
    heard: list[BaseException] = field(default_factory=list)
    stored: set[tuple[str, str]] = field(default_factory=set)
    early: list[str] = field(default_factory=list)
    outside: Outside | None = None

    # ---- from scripted code --------------------------------------------------------------------------------------

    def begin(self, label: str, key: str = "") -> None:
        """Something begins."""
        if self.over:
            return
        self.work.append(Work(label, self.holding, self.left, self.now(), key))

    async def call(self, label: str) -> None:
        """An awaited call of scripted code: a point where it may raise or hang."""
        if self._strikes("call", label):
            await self._harm()
        if self.checkpoint is not None:
            await self.checkpoint()

    def call_sync(self, label: str) -> None:
        """A call of scripted code that cannot wait: it may raise."""
        if self._strikes("call", label):
            if self.fault in ("hang", "hang_cancel", "hang_close", "swallow"):
                self.fired_label = ""  # nothing can hang here
                return
            self._raise()

    def tool_began(self, call_id: str, name: str) -> None:
        """The function of a tool was entered."""
        self.begin(f"tool.{name}", call_id)
        self.tools[call_id] = ToolTrace(name)

    def tool_returns(self, call_id: str, value: str) -> str:
        """The function of a tool returns `value` in this very step."""
        trace = self.tools[call_id]
        trace.value = value
        trace.after_end = self.over
        return value

    def tell(self, whom: str, records: Iterable[tuple[str, str]]) -> None:
        """The consumer or a plugin is told of records, by their kind and key.

        What a run that is suspended makes of its open calls and questions is for the caller only: it is not stored.
        """
        if self.fired and self.fault == "suspend":
            return
        for kind, key in records:
            if (kind, key) not in self.stored and not self.over:
                self.early.append(f"{whom} was told of the {kind} {key} before it was stored")

    # ---- from the consumer ---------------------------------------------------------------------------------------

    def see(self, event: object) -> bool:
        """The consumer was handed an event; True if the fault strikes while it holds it."""
        self.holding = event
        return self._strikes("event", getattr(event, "type", type(event).__name__))

    def move_on(self) -> None:
        """The consumer asks for the next event, or for the end."""
        self.holding = None

    def leave(self) -> None:
        """The consumer is gone."""
        self.holding = None
        self.left = True

    # ---- from the meter ------------------------------------------------------------------------------------------

    def step(self) -> None:
        """A task was suspended."""
        if not self.armed:
            return
        if self._strikes("step", "await point"):
            self.second = self.counts["step"] + self.gap if self.fault == "cancel_twice" else 0
            self.actions[self.fault]()
        elif self.second and self.counts["step"] == self.second:
            self.actions["cancel_again"]()

    # ---- the harm ------------------------------------------------------------------------------------------------

    def _strikes(self, kind: PointKind, label: str) -> bool:
        if not self.armed:
            return False
        self.counts[kind] += 1
        if kind == "call":
            self.labels.append(label)
        if self.fired or self.counts[kind] != self.point or kind_of(self.fault) != kind:
            return False
        self.fired = True
        self.fired_label = label
        self.fired_at = self.now()
        return True

    def _raise(self) -> None:
        import asyncio

        kinds: dict[str, type[BaseException]] = {
            "fake_cancel": asyncio.CancelledError,
            "interrupt": KeyboardInterrupt,
            "generator_exit": GeneratorExit,
        }
        self.injected = kinds.get(self.fault, Injected)(f"injected at {self.fired_label}")
        raise self.injected

    async def _harm(self) -> None:
        if not self.fault.startswith("hang") and self.fault != "swallow":
            self._raise()
        if self.fault in ("hang_cancel", "hang_close", "swallow"):
            self.actions["later"]()
        assert self.sleep is not None
        while True:
            try:
                await self.sleep(1e6)
            except self.cancelled_types:
                if self.fault != "swallow" or self.swallowed >= SWALLOWED:
                    raise
                self.swallowed += 1


def kind_of(fault: str) -> PointKind:
    """The kind of points a fault strikes at."""
    if fault in CALL_FAULTS:
        return "call"
    return "step" if fault in STEP_FAULTS else "event"
