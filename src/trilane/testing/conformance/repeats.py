"""Steps that are executed twice: hooks are called again for what they were called for before.

That happens when a stored run is resumed, when a model or a tool is tried again, and when a call that was asked about
is decided again. The plugin must survive it, and what is stored must be what an uninterrupted run stores.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
from pydantic import JsonValue

from trilane import Agent, Ask, RetryModel, SendBack, hookimpl, tool
from trilane._records import error_line
from trilane.errors import RunError, SessionError
from trilane.messages import Message, ToolResult
from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.stores import InMemoryStore, Lease, SessionPage, SessionRecord, record_from_json
from trilane.testing.clock import Backend

from .evidence import Evidence, complaints
from .modes import REQUEST
from .subject import Conversation, Subject, approve

__all__ = ["check_repeats"]

SESSION = "repeats"
STEP = 4  # on a second backend only every so manieth moment, to save time
QUESTION = "May this call run, asks the conformance kit?"

_Play: TypeAlias = "Callable[[Subject, Evidence], Awaitable[Agent[Any, str]]]"


def check_repeats(subject: Subject, backends: tuple[Backend, ...]) -> Iterator[str]:
    """Play every repetition; at most one complaint for each kind and backend, the first."""
    for backend in backends:
        whole = _Kept(subject, backend)
        yield from whole.findings
        told: set[str] = set()
        for kind, place, play, alike in _repetitions(whole, 1 if backend == backends[0] else STEP):
            if kind in told:
                continue
            evidence = Evidence(label=kind.format(place))
            agent = subject.run_virtual(play, subject, evidence, backend=backend)
            found = [*complaints(evidence, subject.name)] if agent is not None else []
            if not found and agent is not None and alike:
                found = [*whole.differences(evidence, agent, fresh="restarted" in kind)]
            if found:
                told.add(kind)
                yield f"{kind.format(place)} on {backend}: {'; '.join(found)}"


def _repetitions(whole: _Kept, step: int) -> Iterator[tuple[str, int, Any, bool]]:
    """Kind, place, how it is played, and whether all must be as in the uninterrupted run."""
    for place in range(1, len(whole.groups), step):
        yield "restarted after write {}", place, _restarted(whole.groups[:place]), True
    if whole.compares_stored:
        for place in range(1, len(whole.groups), step):
            yield "what came after write {} is lost, and done again", place, _lost(place), True
    for place in range(1, whole.pauses + 1, step):
        yield "suspended in pause {} and resumed", place, _suspended(place), True
    yield "every model call fails at first", 0, _stumbling, True
    yield "every echo fails at first", 0, _flaky, True
    yield "every call is decided again after a question", 0, _asked, True
    yield "the answer is sent back once", 0, _sent_back, False


# ---- the uninterrupted run -------------------------------------------------------------------------------------------


class _Kept:
    """What is stored if nothing is interrupted.

    Attributes:
        groups: The records of the session, as they were written.
        pauses: How often the model and the tools pause.
        findings: What does not come back from JSON as it went in.
    """

    def __init__(self, subject: Subject, backend: Backend) -> None:
        first, again = (Evidence(label="run") for _ in range(2))
        counted = _Pauses()
        store = _Store()
        agent = subject.run_virtual(_plain, subject, first, store, counted, backend=backend)
        other = subject.run_virtual(_plain, subject, again, _Store(), _Pauses(), backend=backend)
        self.groups = store.groups
        self.pauses = counted.count
        self._subject = subject
        self._completed = first.error is None and first.result is not None
        self._messages = _said(first)
        # Where two runs that nothing happened to differ, such as in the time of day, there is nothing to compare.
        self._steady = self._messages == _said(again)
        self.findings = [f"on {backend}: {text}" for text in store.findings]
        self._stored: str | None = None
        if subject.stored is not None and self._completed:
            self._stored, text = _stored(subject, agent)
            self.findings += [f"on {backend}: {text}"] if text else []
            once_more, _ = _stored(subject, other) if self._stored is not None else (None, "")
            if self._stored != once_more:
                if subject.fresh:
                    self.findings.append(
                        f"on {backend}: stored() gives {_brief(self._stored)} and {_brief(once_more)} after two runs "
                        "that were the same; leave out what depends on when and in which run it was"
                    )
                self._stored = None

    @property
    def compares_stored(self) -> bool:
        """Whether it is known what the plugin should have stored."""
        return self._stored is not None

    def differences(self, evidence: Evidence, agent: Agent[Any, str], *, fresh: bool) -> Iterator[str]:
        """Where a run with repeated steps has left something else. `fresh`: by a new plugin, which saw only the end."""
        if not self._completed or evidence.error is not None:
            return
        if self._steady:
            yield from _first_difference(self._messages, _said(evidence))
        if self._stored is not None and not fresh:
            now, text = _stored(self._subject, agent)
            if text or now != self._stored:
                yield text or f"it has stored {_brief(now)}, but {_brief(self._stored)} in a run without repeated steps"


def _stored(subject: Subject, agent: Agent[Any, str]) -> tuple[str | None, str]:
    """What the plugin has stored, as JSON, or what is wrong with it."""
    assert subject.stored is not None
    value = subject.stored(agent.plugins.get(subject.name))
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        return None, f"what it stores cannot be written to JSON: {error_line(error)}"
    if json.loads(text) != value:
        different = f"{_brief(text)} is not {_brief(repr(value))}"
        return None, f"what it stores comes back from JSON as something else: {different}"
    return text, ""


def _brief(text: str | None) -> str:
    text = text or "nothing"
    return text if len(text) <= 200 else f"{text[:200]}…"


_Said: TypeAlias = "list[tuple[str, list[JsonValue]]]"


def _said(evidence: Evidence) -> _Said:
    """The messages without their ids, which are new in each run."""
    return [] if evidence.result is None else [_parts(message) for message in evidence.result.messages]


def _parts(message: Message) -> tuple[str, list[JsonValue]]:
    if message.kind == "tool":
        return "tool", [_result(result) for result in message.results]
    value: dict[str, Any] = json.loads(message.to_json())
    return message.kind, value.get("parts", [value])


def _result(result: ToolResult) -> JsonValue:
    if result.outcome == "interrupted":  # what becomes of tools that must not run twice
        return {"call_id": result.call_id}
    value: dict[str, Any] = json.loads(result.to_json())
    return value


def _first_difference(expected: _Said, found: _Said) -> Iterator[str]:
    for number, (one, other) in enumerate(zip(expected, found, strict=False), start=1):
        if one == other or (one[0] == other[0] == "tool" and _same_results(one[1], other[1])):
            continue
        yield (
            f"message {number} of the session is {other[0]} {_brief(json.dumps(other[1]))}, "
            f"but {one[0]} {_brief(json.dumps(one[1]))} in a run without repeated steps"
        )
        return
    if len(expected) != len(found):
        yield f"the session has {len(found)} messages, but {len(expected)} in a run without repeated steps"


def _same_results(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    return len(expected) == len(found) and all(
        one == other or (len(other) == 1 and one["call_id"] == other["call_id"])
        for one, other in zip(expected, found, strict=True)
    )


class _Store:
    """A store that keeps apart what was written together, and looks whether it survives being written.

    Attributes:
        groups: What was written, write by write.
        findings: Records that do not come back from JSON as they went in.
    """

    def __init__(self) -> None:
        self._memory = InMemoryStore()
        self.lease = self._memory.lease
        self.groups: list[tuple[SessionRecord, ...]] = []
        self.findings: list[str] = []

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        """Records `after` a version, at most `limit`."""
        return await self._memory.load(session, after=after, limit=limit)

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        """Add all records or none."""
        version = await self._memory.append(session, records, expected_version=expected_version, lease=lease)
        self.groups.append(tuple(records))
        for record in records:
            try:
                if record_from_json(record.to_json()) != record:
                    self.findings.append(f"the record {record.kind} comes back from JSON as something else")
            except Exception as error:
                what = error_line(error)
                self.findings.append(f"the record {record.kind} cannot be written to JSON and read: {what}")
        return version


class _Pauses:
    """Counts the pauses of the model and the tools, and at one of them waits to be suspended."""

    def __init__(self, at: int = 0) -> None:
        self.count = 0
        self._at = at
        self.reached = anyio.Event()

    async def __call__(self) -> None:
        self.count += 1
        if self.count == self._at:
            self.reached.set()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    def echo(self) -> Any:
        """The tool `echo`, with a pause on the way."""

        @tool(name="echo", effect="read")
        async def echo(text: str) -> str:
            """Say a text again."""
            await self()
            return f"echo: {text}"

        return echo


async def _plain(subject: Subject, evidence: Evidence, store: _Store, pauses: _Pauses) -> Agent[Any, str]:
    agent = subject.agent(store=store, pause=pauses, echo=pauses.echo())
    await _keep(evidence, agent.run(REQUEST, session=SESSION, **subject.options))
    return agent


async def _keep(evidence: Evidence, running: Awaitable[Any]) -> None:
    try:
        evidence.result = await running
    except Exception as error:
        evidence.error = error
        evidence.result = getattr(error, "result", None)


# ---- repetitions -----------------------------------------------------------------------------------------------------


async def _resume(agent: Agent[Any, str], subject: Subject, evidence: Evidence) -> Agent[Any, str] | None:
    try:
        async with agent.resume(SESSION, **subject.options) as run:
            await _keep(evidence, run.wait())
    except SessionError as error:  # nothing was stored yet, or the end already
        evidence.error = error
    nothing = isinstance(evidence.error, SessionError) and evidence.result is None
    return None if nothing else agent


def _restarted(groups: Sequence[Sequence[SessionRecord]]) -> _Play:
    """The process was killed after these writes; another one, with a new plugin, takes the session up."""

    async def play(subject: Subject, evidence: Evidence) -> Any:
        return await _resume(subject.agent(store=await _store_with(groups)), subject, evidence)

    return play


def _lost(place: int) -> _Play:
    """The plugin has kept what it stored, the session has lost what came after a write: the steps are done again."""

    async def play(subject: Subject, evidence: Evidence) -> Any:
        store = _Store()
        before = await _plain(subject, Evidence(label="before"), store, _Pauses())
        plugin = before.plugins.get(subject.name)
        again = subject.agent(plugin=plugin, store=await _store_with(store.groups[:place]))
        return await _resume(again, subject, evidence)

    return play


async def _store_with(groups: Sequence[Sequence[SessionRecord]]) -> _Store:
    store = _Store()
    async with store.lease(SESSION, ttl_seconds=30) as lease:
        version = 0
        for records in groups:
            version = await store.append(SESSION, records, expected_version=version, lease=lease)
    return store


def _suspended(place: int) -> _Play:
    """The run is suspended in the midst of the model or a tool; the same plugin sees it taken up."""

    async def play(subject: Subject, evidence: Evidence) -> Any:
        pauses = _Pauses(place)
        agent = subject.agent(store=_Store(), pause=pauses, echo=pauses.echo())
        async with agent.stream(REQUEST, session=SESSION, **subject.options) as run:

            async def suspend() -> None:
                await pauses.reached.wait()
                await run.suspend()

            async with anyio.create_task_group() as group:
                group.start_soon(suspend)
                try:
                    async for _ in run:
                        pass
                except RunError:
                    pass
                group.cancel_scope.cancel()
        return await _resume(agent, subject, evidence)

    return play


class _Stumbling(Conversation):
    """A model whose first call of each turn is cut off half-way."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._stumbled: set[int] = set()

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Fail, or answer."""
        if request.turn in self._stumbled:
            return await super().call(request, emit)
        self._stumbled.add(request.turn)
        for delta in self._step(request).deltas[:3]:
            await emit(delta)
        raise ConnectionError("the connection was cut off, on purpose")


async def _stumbling(subject: Subject, evidence: Evidence) -> Any:
    class Retrier:
        name = "conformance-retrier"

        @hookimpl
        def on_model_error(self, error: Exception) -> RetryModel | None:
            return RetryModel(after_seconds=0) if isinstance(error, ConnectionError) else None

    agent = subject.agent(model=_Stumbling(subject.calls))
    agent.plugins.register(Retrier())
    await _keep(evidence, agent.run(REQUEST, session=SESSION, **subject.options))
    return agent


async def _flaky(subject: Subject, evidence: Evidence) -> Any:
    failed: set[str] = set()

    @tool(name="echo", effect="read", attempts=2)
    async def echo(text: str) -> str:
        """Say a text again."""
        if text not in failed:
            failed.add(text)
            raise ConnectionError("the connection was cut off, on purpose")
        return f"echo: {text}"

    agent = subject.agent(echo=echo)
    await _keep(evidence, agent.run(REQUEST, session=SESSION, **subject.options))
    return agent


async def _asked(subject: Subject, evidence: Evidence) -> Any:
    class Asker:
        name = "conformance-asker"

        @hookimpl
        def decide_tool(self) -> Ask:
            return Ask(prompt=QUESTION)

    given = subject.options.get("answer", approve)

    async def answer(question: Any) -> Any:
        return {"approve": True} if QUESTION in question.prompt else await given(question)

    agent = subject.agent()
    agent.plugins.register(Asker())
    await _keep(evidence, agent.run(REQUEST, session=SESSION, **{**subject.options, "answer": answer}))
    return agent


async def _sent_back(subject: Subject, evidence: Evidence) -> Any:
    class Sender:
        name = "conformance-sender"

        @hookimpl(trylast=True)
        def on_answer(self, run: Any) -> SendBack | None:
            if run.stash.get(self.name):
                return None
            run.stash[self.name] = True
            return SendBack(feedback="Say it again.")

    agent = subject.agent()
    agent.plugins.register(Sender())
    await _keep(evidence, agent.run(REQUEST, session=SESSION, **subject.options))
    return agent
