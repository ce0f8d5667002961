"""Every way to run: the plugin must work in all of them, and must be called equally often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio

from trilane import Agent, Event, EventSink
from trilane.errors import RunError
from trilane.stores import InMemoryStore
from trilane.testing.clock import Backend
from trilane.testing.leaks import LeakError, no_leaks

from .evidence import Evidence, complaints, round_trips
from .subject import ParentConversation, Subject

__all__ = ["MODES", "check_blocking", "check_modes"]

REQUEST = "Please look into it."
BLOCKING_SECONDS = 0.05


async def _by_run(subject: Subject, evidence: Evidence) -> None:
    """`await agent.run(...)`."""
    agent = subject.agent()
    await _keep(evidence, agent.run(REQUEST, **subject.options))
    evidence.requests = agent.model.requests  # type: ignore[union-attr]


async def _by_stream(subject: Subject, evidence: Evidence) -> None:
    """`async with agent.stream(...)`."""
    agent = subject.agent()
    async with agent.stream(REQUEST, **subject.options) as run:
        try:
            async for event in run:
                evidence.events.append(event)
        except Exception as error:
            evidence.error = error
    evidence.result = run.result


async def _by_runtime(subject: Subject, evidence: Evidence) -> None:
    """`rt.stream(...)` of a runtime."""
    agent = subject.agent()
    async with agent.runtime() as runtime:
        run = runtime.stream(REQUEST, **subject.options)
        try:
            async for event in run:
                evidence.events.append(event)
        except Exception as error:
            evidence.error = error
        evidence.result = run.result


async def _by_forward(subject: Subject, evidence: Evidence) -> None:
    """`run.forward(sink)`, as a server does it."""

    async def write(event: Event) -> None:
        evidence.events.append(event)

    agent = subject.agent()
    sink: EventSink[Event] = EventSink(write)
    async with agent.stream(REQUEST, **subject.options) as run, anyio.create_task_group() as group:
        group.start_soon(sink.run)
        await _keep(evidence, run.forward(sink))
        sink.close()


async def _by_resume(subject: Subject, evidence: Evidence) -> None:
    """Suspended at its first question, and resumed by an agent with another plugin; the evidence is of the latter."""
    store = InMemoryStore()
    agent = subject.agent(store=store)
    async with agent.stream(REQUEST, session="resumed", **subject.options) as run:
        try:
            async for event in run:
                evidence.events.append(event)
                if event.type == "reply_requested":
                    await run.suspend()
                    break
        except Exception:  # which is told of the other modes
            pass
    if run.result.status == "completed":  # a plugin lets it come to no question: there is nothing to resume
        evidence.result = run.result
        return
    evidence.events.clear()
    async with subject.agent(store=store).resume("resumed", **subject.options) as run:
        try:
            async for event in run:
                evidence.events.append(event)
        except Exception as error:
            evidence.error = error
    evidence.result = run.result


async def _by_parent(subject: Subject, evidence: Evidence) -> None:
    """As the child of another agent's run."""
    child = subject.agent()
    deps = subject.options.get("deps")
    options = {name: value for name, value in subject.options.items() if name != "deps"}
    tool = child.as_tool(name="child", description="Does it.", deps=lambda context: deps)
    parent: Agent[None, str] = Agent(ParentConversation(), name="parent", tools=[tool])
    await _keep(evidence, parent.run(REQUEST, **options))


async def _by_twice(subject: Subject, evidence: Evidence) -> None:
    """Two runs in one session; the evidence is of the second."""
    agent = subject.agent()
    options = {"session": "twice", **subject.options}
    await _keep(evidence, agent.run(REQUEST, **options))
    if evidence.error is None:
        await _keep(evidence, agent.run(REQUEST, **options))


async def _by_many(subject: Subject, evidence: Evidence) -> None:
    """Five runs at once with one plugin; the evidence is of the last."""
    agent = subject.agent()
    everything = [Evidence(label=evidence.label) for _ in range(5)]
    async with anyio.create_task_group() as group:
        for one in everything:
            group.start_soon(_keep, one, agent.run(REQUEST, **subject.options))
    evidence.result, evidence.error = everything[-1].result, everything[-1].error
    for one in everything:
        if one.error is not None and not isinstance(one.error, RunError):
            evidence.result, evidence.error = one.result, one.error


MODES: dict[str, Callable[[Subject, Evidence], Awaitable[None]]] = {
    "run": _by_run,
    "stream": _by_stream,
    "forward": _by_forward,
    "runtime": _by_runtime,
    "nested agent": _by_parent,
    "resumed": _by_resume,
    "two runs in a session": _by_twice,
    "five runs at once": _by_many,
}


async def _keep(evidence: Evidence, running: Awaitable[Any]) -> None:
    try:
        evidence.result = await running
    except Exception as error:
        evidence.error = error
        evidence.result = getattr(error, "result", None)


def check_modes(subject: Subject, backends: tuple[Backend, ...]) -> Iterator[str]:
    """Run in every mode on every backend; say what went wrong, and where the hooks were called otherwise."""
    everything = [_by_run_sync(subject), _by_stream_sync(subject)] if "asyncio" in backends else []
    for backend in backends:
        for name in MODES:
            evidence = Evidence(label=f"{name} on {backend}")
            try:
                subject.run_virtual(_without_leaks, name, subject, evidence, backend=backend)
            except LeakError as error:
                yield f"{evidence.label}: {error}"
            everything.append(evidence)
    for evidence in everything:
        for text in (*complaints(evidence, subject.name), *round_trips(evidence)):
            yield f"{evidence.label}: {text}"
    if not subject.fresh:
        return  # a module may remember earlier runs, so they need not be the same
    alike = [one for one in everything if one.label.partition(" on ")[0] in _ALIKE]
    first = alike[0].calls(subject.name)
    for evidence in alike[1:]:
        found = evidence.calls(subject.name)
        if found != first and evidence.result is not None:
            yield f"{evidence.label}: its hooks are called {_counts(found)}, but {_counts(first)} in {alike[0].label}"


def _counts(calls: dict[str, tuple[int, int]]) -> str:
    texts = (f"{hook} {count}{f' ({failed} failed)' if failed else ''}" for hook, (count, failed) in calls.items())
    return ", ".join(texts) or "not at all"


_ALIKE = ("run_sync", "stream_sync", "run", "stream", "forward", "runtime", "nested agent", "five runs at once")


async def _without_leaks(name: str, subject: Subject, evidence: Evidence) -> None:
    async with no_leaks(wait_seconds=0.5):
        await MODES[name](subject, evidence)


def _by_run_sync(subject: Subject) -> Evidence:
    evidence = Evidence(label="run_sync on asyncio")
    agent = subject.agent()
    try:
        evidence.result = agent.run_sync(REQUEST, **subject.options)
    except Exception as error:
        evidence.error = error
        evidence.result = getattr(error, "result", None)
    return evidence


def _by_stream_sync(subject: Subject) -> Evidence:
    evidence = Evidence(label="stream_sync on asyncio")
    agent = subject.agent()
    try:
        with agent.stream_sync(REQUEST, **subject.options) as events:
            evidence.events.extend(events)
    except Exception as error:
        evidence.error = error
    last = evidence.events[-1] if evidence.events else None
    evidence.result = getattr(last, "result", None)
    return evidence


def check_blocking(subject: Subject) -> Iterator[str]:
    """Plain functions must not hold the event loop up; measured in real time."""
    evidence = _by_run_sync(subject)
    if evidence.result is None:
        return
    compiled = subject.agent().plugins.compile()
    for row in evidence.result.ledger:
        if row.plugin != subject.name or row.seconds / row.calls < BLOCKING_SECONDS:
            continue
        (implementation,) = [one for one in getattr(compiled, row.hook) if one.plugin == row.plugin]
        if not implementation.is_async and not implementation.thread:
            yield (
                f"{row.hook} holds the event loop up for {row.seconds / row.calls:.2f} s a call; "
                "mark it @hookimpl(thread=True), or make it async"
            )
