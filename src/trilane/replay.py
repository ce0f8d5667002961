"""What a replay found: `agent.replay(session)` runs stored runs again, offline, and returns a `Replay`.

How a run is run again is in `_replaying.py`, how two are compared in `_comparing.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from ._records import Record

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = ["ASPECTS", "Aspect", "Difference", "Replay", "ReplayedRun"]

Aspect: TypeAlias = Literal["hooks", "requests", "arguments", "results", "messages", "events", "endings"]
"""What of a run is compared."""

ASPECTS: tuple[Aspect, ...] = get_args(Aspect)
"""All of it."""


class Difference(Record):
    """The first thing that is not as it was.

    Attributes:
        aspect: What kind of thing it is.
        where: Where in the run, in words: the turn, and the tool.
        was: What was stored, as JSON; of objects only what differs. None if nothing was there.
        now: What it is today, likewise.
        plugins: Names of the plugins that had a hand in it, then or now; empty if none is known.
    """

    aspect: Aspect
    where: str
    was: JsonValue = None
    now: JsonValue = None
    plugins: tuple[str, ...] = ()


class ReplayedRun(Record):
    """What the replay of one run found.

    Attributes:
        run_id: Id of the stored run.
        status: How the stored run ended; empty if it was cut off.
        compared: The aspects that could be compared: all of them for a run that was `replayable`.
        count: How many things were compared.
        difference: The first difference; None if there is none.
    """

    run_id: str
    status: str = ""
    compared: tuple[Aspect, ...] = ASPECTS
    count: int = 0
    difference: Difference | None = None


class Replay(Record):
    """What the replay of a session found.

    Attributes:
        session: Id of the session.
        runs: Its runs, in order, up to the first that differs.
    """

    session: str
    runs: tuple[ReplayedRun, ...]

    @property
    def difference(self) -> Difference | None:
        """The first difference; None if all is as it was."""
        return next((run.difference for run in self.runs if run.difference is not None), None)
