"""The run that is killed: an agent with ten tools of every effect, questions and an approval, and its kill switch.

Its tools write what they do to a file, line by line, so that it can be told afterwards what happened in truth.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from trilane import Agent, Tool, ToolContext, tool
from trilane.errors import SessionError
from trilane.events import Question
from trilane.messages import AssistantMessage, TextPart, ToolCall, ToolCallPart
from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.result import RunResult
from trilane.stores import Lease, SessionPage, SessionRecord, SessionStore, SessionView
from trilane.testing.models import FunctionModel

__all__ = ["ANSWER", "EFFECTS", "SESSION", "Switch", "effects_of", "work"]

SESSION = "killed"
ANSWER = "All of it is done."

#: The tools, with the effect of each.
EFFECTS = {
    "pay": "unsafe",
    "send": "unsafe",
    "write": "unsafe",
    "print_it": "unsafe",
    "delete": "unsafe",
    "put": "idempotent",
    "interview": "idempotent",
    "retry": "idempotent",
    "look": "read",
    "reconciled": "unsafe",
}

_TURNS: tuple[tuple[str, ...], ...] = (
    ("pay", "put", "look", "print_it"),
    ("delete", "interview", "send"),
    ("retry", "reconciled", "write"),
)


class Switch:
    """Kills the process at one point: `write:3:before`, `write:3:after` or `await:120`. It counts all points."""

    def __init__(self, at: str = "") -> None:
        self._at = at
        self.writes = 0
        self.awaits = 0

    def pass_by(self, point: str) -> None:
        """This point is reached; if it is the one, nothing comes after this line."""
        if point == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self) -> None:
        """A task goes on after an await."""
        self.awaits += 1
        if self._at:
            self.pass_by(f"await:{self.awaits}")


class _DeadlyStore:
    """A store that passes the switch before and after every write."""

    def __init__(self, inner: SessionStore, switch: Switch) -> None:
        self._inner = inner
        self._switch = switch

    @asynccontextmanager
    async def lease(self, session: str, *, ttl_seconds: float) -> AsyncIterator[Lease]:
        async with self._inner.lease(session, ttl_seconds=ttl_seconds) as lease:
            yield lease

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        return await self._inner.load(session, after=after, limit=limit)

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        self._switch.writes += 1
        number = self._switch.writes
        self._switch.pass_by(f"write:{number}:before")
        version = await self._inner.append(session, records, expected_version=expected_version, lease=lease)
        self._switch.pass_by(f"write:{number}:after")
        return version


class _Journal:
    """What the tools did, in a file that is written line by line and survives the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, name: str, key: str, attempt: int) -> None:
        os.write(self._file, f"{name}\t{key}\t{attempt}\n".encode())


def effects_of(path: str) -> list[tuple[str, str, int]]:
    """What the tools did: name, key and attempt of each call."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return [(name, key, int(attempt)) for name, key, attempt in rows]


def _tools(journal: _Journal) -> list[Tool]:
    def plain(name: str, **options: Any) -> Tool:
        async def function(ctx: ToolContext) -> str:
            journal.note(name, ctx.key, ctx.attempt)
            return f"{name} done"

        return Tool.from_function(function, name=name, description=f"Does {name}.", **options)

    def in_thread(ctx: ToolContext) -> str:
        journal.note("print_it", ctx.key, ctx.attempt)
        return "print_it done"

    @tool(effect="idempotent")
    async def interview(ctx: ToolContext) -> str:
        """Asks twice."""
        first = await ctx.ask("First?", int)
        second = await ctx.ask("Second?", int)
        journal.note("interview", ctx.key, ctx.attempt)
        return f"interview done: {first} {second}"

    @tool(effect="idempotent", attempts=3)
    async def retry(ctx: ToolContext) -> str:
        """Works at the second attempt of each process."""
        journal.note("retry", ctx.key, ctx.attempt)
        if ctx.attempt == 1:
            raise OSError("once more")
        return "retry done"

    async def find_out(ctx: ToolContext) -> str:
        return "reconciled: it was looked up"

    return [
        plain("pay"),
        plain("send"),
        plain("write", parallel=False),
        Tool.from_function(in_thread, name="print_it", description="Prints."),
        plain("delete", approval=True),
        plain("put", effect="idempotent"),
        _marked(interview),
        _marked(retry),
        plain("look", effect="read"),
        plain("reconciled", reconcile=find_out),
    ]


def _marked(function: Callable[..., Any]) -> Tool:
    """A marked function as a tool."""
    from trilane.tools import as_tool

    return as_tool(function)


def _answer(request: ModelRequest, emit: Emit) -> ModelResponse:
    """A model that depends on nothing but the history: so it says after a kill what it would have said without."""
    turn = sum(message.kind == "assistant" for message in request.messages)
    if turn == len(_TURNS):
        return ModelResponse(parts=(TextPart(text=ANSWER),), model="scripted")
    calls = tuple(ToolCallPart(call=ToolCall(id=f"call-{name}", name=name)) for name in _TURNS[turn])
    return ModelResponse(parts=calls, stop_reason="tool_calls", model="scripted")


async def _reply(question: Question) -> Any:
    if question.kind == "approval":
        return {"approve": True}
    return 1 if question.prompt == "First?" else 2


async def _run(store: SessionStore, journal: _Journal, session: str) -> RunResult[Any]:
    agent = Agent(FunctionModel(_answer), tools=_tools(journal), store=store, answer=_reply)
    if (await store.load(session, limit=0)).version == 0:
        return await agent.run("Do all of it.", session=session)
    try:
        async with agent.resume(session) as run:
            return await run.wait()
    except SessionError as error:
        if type(error) is not SessionError:
            raise
        return await _stored(store, session)


async def _stored(store: SessionStore, session: str) -> RunResult[Any]:
    """What a run has left that was killed when its end was stored already: there is nothing to resume."""
    records = (await store.load(session)).records
    view = SessionView()
    for record in records:
        view.apply(record)
    last = view.log[-1] if view.log else None
    ended = [record for record in records if record.kind == "run_ended"]
    return RunResult(
        status=ended[-1].status if ended and ended[-1].status != "suspended" else "failed",
        stop_reason="end",
        run_id=ended[-1].run_id if ended else "",
        session_id=session,
        message=last if isinstance(last, AssistantMessage) else None,
        messages=view.log,
    )


def work(
    store: SessionStore, journal_path: str, switch: Switch, backend: str, session: str = SESSION
) -> RunResult[Any]:
    """Begin the run, or take it up where an earlier process was killed, in an event loop of its own."""
    journal = _Journal(journal_path)
    if backend == "trio":
        return _on_trio(_DeadlyStore(store, switch), journal, switch, session)
    import asyncio

    async def main() -> RunResult[Any]:
        asyncio.get_running_loop().set_task_factory(
            lambda loop, coroutine, **options: asyncio.Task(_Counted(coroutine, switch), loop=loop, **options)
        )
        return await asyncio.ensure_future(_run(_DeadlyStore(store, switch), journal, session))

    return asyncio.run(main())


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that passes the switch whenever it goes on: the awaits of a task, from outside."""

    def __init__(self, inner: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], switch: Switch) -> None:
        self._inner = inner
        self._switch = switch

    def send(self, value: Any) -> Any:
        self._switch.step()
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        self._switch.step()
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise TypeError("it belongs to a task")


def _on_trio(store: SessionStore, journal: _Journal, switch: Switch, session: str) -> RunResult[Any]:
    import trio

    class Counting(trio.abc.Instrument):
        def before_task_step(self, task: object) -> None:
            switch.step()

    result: RunResult[Any] = trio.run(_run, store, journal, session, instruments=[Counting()])
    return result
