"""W7: what a peer has done, and what it leaves behind, when its reader stops, goes away, is cancelled or is slow."""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
from collections.abc import Awaitable, Iterator
from typing import Any

from core import CALL, CURRENT, DELTA, TOOL, Reply, Script, Tools, loop_script
from worker import app_for, drain, emit

__all__ = ["CASES"]

_Tasks = set["asyncio.Task[Any]"]


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:120]


async def _error_of(work: Awaitable[Any]) -> str | None:
    try:
        await asyncio.wait_for(work, 5)
    except BaseException as error:
        return _named(error)
    return None


async def _history(peer: Any, app: Any, session: str) -> dict[str, Any] | None:
    """Calls, results, and calls without a result; the report says what could not be read."""
    try:
        found = peer.history(app, session)
        if inspect.isawaitable(found):
            found = await found
        if found is None:
            return None
        calls, results = found
        return {"calls": len(calls), "results": len(results), "unanswered": len(set(calls) - set(results))}
    except Exception as error:
        return {"error": _named(error)}


def _alive(before: _Tasks) -> list[str]:
    """Names of the tasks that run now and did not run before."""
    mine = {asyncio.current_task(), *before}
    coroutines = [task.get_coro() for task in asyncio.all_tasks() if task not in mine and not task.done()]
    return sorted(getattr(coroutine, "__qualname__", str(coroutine))[:60] for coroutine in coroutines)


async def _leave(peer: Any, case: str) -> None:
    """Five tool turns are scripted; stop reading at the first tool result, then close the stream or let go of it."""
    tools = Tools(sleep=0.002)
    peer.HOLD = case != "drop"  # an abandoned stream must have no reference left
    app = await app_for(peer, tools, max_turns=10)
    await drain(peer, app, "warm", loop_script(1))
    tools.started = tools.done = 0
    script = loop_script(5)
    CURRENT.set(script)
    before = set(asyncio.all_tasks())
    stream = peer.open(app, "stop")
    async for event in stream:
        if peer.kind(event) == TOOL:
            break
    at_break, error = tools.started, None
    if case == "close":
        error = await _error_of(peer.close(stream))
    else:
        del stream, event
        gc.collect()
    now = _alive(before)
    await asyncio.sleep(0.05)
    counts = {"at_break": at_break, "started": tools.started, "done": tools.done, "model_calls": script.turn}
    history = await _history(peer, app, "stop")
    emit(case=case, **counts, tasks_now=now, tasks_50ms=_alive(before), history=history, error=error)
    peer.HOLD = True


async def close(peer: Any) -> None:
    """The reader stops and closes the stream as the peer documents."""
    await _leave(peer, "close")


async def drop(peer: Any) -> None:
    """The reader only breaks, and lets go of every reference to the stream."""
    await _leave(peer, "drop")


async def cancel(peer: Any) -> None:
    """The reader's task is cancelled while the second tool runs."""
    tools = Tools(sleep=0.05)
    app = await app_for(peer, tools, max_turns=10)
    script = loop_script(5)
    before = set(asyncio.all_tasks())

    async def reader() -> None:  # the documented way: whatever happens, close the stream
        CURRENT.set(script)
        stream = peer.open(app, "cancel")
        try:
            async for _ in stream:
                continue
        finally:
            await peer.close(stream)

    task = asyncio.create_task(reader())
    while tools.started < 2:  # noqa: ASYNC110  (an event would have to be set inside the peer's tool)
        await asyncio.sleep(0.001)
    started = time.perf_counter()
    task.cancel()
    try:
        await asyncio.wait_for(task, 5)
        error: str | None = "no CancelledError"
    except asyncio.CancelledError:
        error = None
    except BaseException as other:
        error = _named(other)
    took, now = time.perf_counter() - started, _alive(before)
    await asyncio.sleep(0.12)
    counts = {"started": tools.started, "done": tools.done, "model_calls": script.turn, "cancel_ms": took * 1e3}
    history = await _history(peer, app, "cancel")
    emit(case="cancel", **counts, tasks_now=now, tasks_50ms=_alive(before), history=history, error=error)


async def slow_tools(peer: Any) -> None:
    """The reader takes 20 ms for each event: which tools and model calls are ahead of it?"""
    tools = Tools()
    app = await app_for(peer, tools, max_turns=10)
    await drain(peer, app, "warm", loop_script(1))
    tools.started = 0
    script = loop_script(5)
    CURRENT.set(script)
    ahead_tools = ahead_models = results = calls = 0
    started_early: int | None = None  # tools that started while the reader still held the event that announces the call
    async for event in peer.open(app, "slow"):
        kind = peer.kind(event)
        results += kind == TOOL
        await asyncio.sleep(0.02)
        if kind == CALL:
            started_early = max(started_early or 0, tools.started - calls)
            calls += 1
        if kind == TOOL:
            ahead_tools = max(ahead_tools, tools.started - results)
            ahead_models = max(ahead_models, script.turn - results)
    ahead = {"ahead_tools": ahead_tools, "ahead_models": ahead_models, "started_before_call_event_done": started_early}
    emit(case="slow_tools", **ahead, calls_seen=calls, results_seen=results)


async def slow_deltas(peer: Any) -> None:
    """The reader takes 20 ms for each delta: how many has the model produced ahead of it?"""
    app = await app_for(peer, Tools(), max_turns=10)
    script = Script(lambda turn: Reply(deltas=produce(), pace=True))

    def produce() -> Iterator[str]:
        for _ in range(500):
            script.produced += 1
            yield "abcd "

    CURRENT.set(script)
    seen = ahead = 0
    stream = peer.open(app, "slowd")
    async for event in stream:
        if peer.kind(event) == DELTA:
            seen += 1
            await asyncio.sleep(0.02)
            ahead = max(ahead, script.produced - seen)
            if seen == 20:
                break
    emit(case="slow_deltas", ahead_deltas=ahead, error=await _error_of(peer.close(stream)))


CASES = (close, drop, cancel, slow_tools, slow_deltas)
