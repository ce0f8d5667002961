"""Slow and hostile schedules, in virtual time: everything pauses, and the caller leaves or cancels wherever it can.

After each of them the run must be over, the session free, and the next run on it must work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import anyio

from trilane import Agent
from trilane._records import error_line
from trilane.errors import RunError
from trilane.testing.clock import Backend
from trilane.testing.history import check_history
from trilane.testing.leaks import LeakError, no_leaks

from .evidence import Evidence, complaints
from .modes import REQUEST
from .subject import Subject

__all__ = ["check_schedules"]

PAUSE_SECONDS = 2.0
LATE_SECONDS = 5.0  # more than the grace time of a run
SESSION = "schedules"


def check_schedules(subject: Subject, backends: tuple[Backend, ...]) -> Iterator[str]:
    """Play every schedule; at most one complaint for each kind and backend, the first."""
    for backend in backends:
        slow = Evidence(label=f"everything slow on {backend}")
        seconds = subject.run_virtual(_slowly, subject, slow, backend=backend)
        yield from (f"{slow.label}: {text}" for text in complaints(slow, subject.name))
        step = 1 if backend == backends[0] else 2  # to save time
        yield from _first(
            f"left after event {{}} on {backend}", range(0, len(slow.events), step), backend, _leave, subject
        )
        moments = range(1, int(seconds / PAUSE_SECONDS) + 1)
        yield from _first(f"cancelled in pause {{}} on {backend}", moments, backend, _cancel, subject)


def _first(
    label: str,
    places: range,
    backend: Backend,
    play: Callable[[Subject, int], Awaitable[list[str]]],
    subject: Subject,
) -> Iterator[str]:
    for place in places:
        try:
            found = subject.run_virtual(play, subject, place, backend=backend)
        except LeakError as error:
            found = [str(error)]
        if found:
            yield f"{label.format(place)}: {'; '.join(found)}"
            return


async def _pause() -> None:
    await anyio.sleep(PAUSE_SECONDS)


async def _slowly(subject: Subject, evidence: Evidence) -> float:
    """A slow model and a slow reader; returns how long it took, in virtual seconds."""
    agent = subject.agent(pause=_pause)
    start = anyio.current_time()
    async with agent.stream(REQUEST, **subject.options) as run:
        try:
            async for event in run:
                evidence.events.append(event)
        except Exception as error:
            evidence.error = error
    evidence.result = run.result
    return anyio.current_time() - start


async def _leave(subject: Subject, place: int) -> list[str]:
    agent = subject.agent()
    async with no_leaks():
        async with agent.stream(REQUEST, session=SESSION, **subject.options) as run:
            for _ in range(place + 1):
                await run.__anext__()
        found = [] if run.state.is_terminal else [f"the run stands in {run.state.phase.name}"]
        return found + await _next_run(subject, agent)


async def _cancel(subject: Subject, place: int) -> list[str]:
    agent = subject.agent(pause=_pause)
    moment = (place - 0.5) * PAUSE_SECONDS
    async with no_leaks():
        start = anyio.current_time()
        with anyio.move_on_after(moment) as scope:
            try:
                await agent.run(REQUEST, session=SESSION, **subject.options)
            except RunError:
                pass
        late = anyio.current_time() - start - moment
        found = [] if scope.cancelled_caught else await _unheard(subject, moment)
        if scope.cancelled_caught and late > LATE_SECONDS:
            found.append(f"the run ended {late:.0f} s after the cancel")
        return found + await _next_run(subject, agent)


async def _unheard(subject: Subject, moment: float) -> list[str]:
    """The run ended before the cancel; that is fine if it does so by itself."""
    start = anyio.current_time()
    try:
        await subject.agent(pause=_pause).run(REQUEST, **subject.options)
    except Exception:  # how it ends is none of this check's business
        pass
    took = anyio.current_time() - start
    return [] if took <= moment + 1 else ["the run swallowed the cancel of its caller"]


async def _next_run(subject: Subject, agent: Agent[object, str]) -> list[str]:
    if agent.active(SESSION) is not None:
        return ["the session is not free"]
    try:
        result = await agent.run(REQUEST, session=SESSION, **subject.options)
    except RunError as error:
        return [] if error.result is None else check_history(error.result.messages)
    except Exception as error:
        return [f"the next run on the session failed with {error_line(error)}"]
    return check_history(result.messages)
