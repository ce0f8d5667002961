"""One case: fork, be killed, fork again, resume, judge."""

from __future__ import annotations

import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from trilane.stores import InMemoryStore, SessionStore, record_from_json

from .verdict import problems
from .victim import Switch, effects_of, work

__all__ = ["Case", "Points", "count_points", "kill_once", "open_by_name", "warm_up"]


@dataclass(frozen=True, slots=True)
class Points:
    """How often a whole run writes to its store, and how often its tasks go on after an await."""

    writes: int
    awaits: int

    def cases(self) -> list[str]:
        """Every point at which it can be killed."""
        moments = [f"write:{number}:{moment}" for number in range(1, self.writes + 1) for moment in ("before", "after")]
        return [*moments, *[f"await:{number}" for number in range(1, self.awaits + 1)]]


@dataclass(frozen=True, slots=True)
class Case:
    """One case and what came of it.

    Attributes:
        at: Where the process was killed.
        killed: True if it came that far.
        problems: What did not hold afterwards.
    """

    at: str
    killed: bool
    problems: tuple[str, ...]


def open_by_name(spec: str) -> Callable[[str], SessionStore]:
    """What opens a store for a case.

    Args:
        spec: `NAME` of a store that is a file: each case has one of its own. With a colon, such as `NAME:PLACE` or a
            URL, it is the whole description of one store that all cases share; each has a session of its own.
    """
    from trilane.plugins import PluginManager, resolve_store, store_plugin

    manager = PluginManager([store_plugin(spec) or spec])
    return lambda path: resolve_store(spec if ":" in spec else f"{spec}:{path}", manager)


def warm_up(open_store: Callable[[str], SessionStore], backend: str) -> None:
    """Import and prepare here what every process would otherwise import for itself. Leaves no thread behind."""
    store = InMemoryStore()
    session = "warm"
    with tempfile.TemporaryDirectory(prefix="trilane-kills-") as folder:
        work(store, os.path.join(folder, "journal"), Switch(), backend, session)
        open_store(os.path.join(folder, "store"))
        for line in [record.to_json() for record in anyio.run(store.load, session).records]:
            record_from_json(line)


def count_points(open_store: Callable[[str], SessionStore], backend: str) -> Points:
    """Let it run once to its end, and count."""
    warm_up(open_store, backend)
    with tempfile.TemporaryDirectory(prefix="trilane-kills-") as folder:
        switch = Switch()

        def whole() -> str:
            store, journal = open_store(os.path.join(folder, "store")), os.path.join(folder, "journal")
            work(store, journal, switch, backend, os.path.basename(folder))
            return f"{switch.writes} {switch.awaits}"

        status, text = _forked(whole)
        if status != 0:
            raise AssertionError(f"the run fails without being killed: {text}")
        writes, awaits = text.split()
        return Points(int(writes), int(awaits))


def kill_once(open_store: Callable[[str], SessionStore], at: str, backend: str, *, again: str = "") -> Case:
    """Kill a run at a point and resume it; with `again`, kill the resumed one too, and resume that."""
    with tempfile.TemporaryDirectory(prefix="trilane-kills-") as folder:
        place, journal = os.path.join(folder, "store"), os.path.join(folder, "journal")
        session = os.path.basename(folder)

        def live(point: str) -> Callable[[], str]:
            def run() -> str:
                store = open_store(place)
                result = work(store, journal, Switch(point), backend, session)
                if point:
                    return ""
                records = anyio.run(store.load, session, backend=backend).records
                return "\n".join(problems(result, records, effects_of(journal)))

            return run

        status, text = _forked(live(at))
        killed = status == -signal.SIGKILL
        if status != 0 and not killed:
            return Case(at, killed, (f"it ended by itself: {text}",))
        if again:
            status, text = _forked(live(again))
            if status not in (0, -signal.SIGKILL):
                return Case(f"{at} {again}", killed, (f"resuming ended by itself: {text}",))
        status, text = _forked(live(""))
        if status != 0:
            text = f"resuming failed: {text or status}"
        return Case(f"{at} {again}".strip(), killed, tuple(line for line in text.split("\n") if line))


def _forked(function: Callable[[], str]) -> tuple[int, str]:
    """Call a function in a process of its own: (exit status, or minus the signal that ended it; what it returned)."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(reader)
            text = function()
            status = 0
        except BaseException:
            text = traceback.format_exc()
        try:
            with os.fdopen(writer, "w", encoding="utf-8", errors="replace") as pipe:
                pipe.write(text)
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8", errors="replace") as pipe:
        text = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), text
