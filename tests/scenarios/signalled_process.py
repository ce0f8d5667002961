"""The processes that `test_signals.py` signals: a run that is held in one place, over a SQLite store.

For each line `STORE PLACE BACKEND OUTPUT` on its input it forks a process, prints its id, and prints its exit status
when it is asked for with `PID`. The process works one request and writes a line to OUTPUT when the run is held in
PLACE: `held PHASE`. SIGINT stops the run (exit status 130), SIGTERM suspends it (exit status 143); the last line is
then `ended STATUS STOP_REASON`. A run that nobody signals is held for ever.

The module is a plugin, too: as `held`, with HELD_AT=PLACE in the environment, it does the same to `trilane run`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import anyio

from trilane import Agent, Limits, RunContext, RunStream, ToolContext, hookimpl, tool
from trilane.errors import RunCancelledError
from trilane.messages import Delta, TextPart, ToolCall, ToolCallPart, UserMessage
from trilane.models import ModelResponse
from trilane.testing import FunctionModel
from trilane_sqlite import SqliteStore

if TYPE_CHECKING:
    from trilane.models import Emit, ModelRequest
    from trilane.stores import SessionStore

SESSION = "signalled"
REQUEST = "Go"
ANSWER = "All done."
PLACES = ("loading_context", "ready", "compacting", "generating", "running_tool", "thread", "reply", "asked")
PATIENCE_SECONDS = 0.1  # how long a stop may take to come to a boundary


@tool(effect="read")
async def look() -> str:
    """Look; it is always finished before anything is held."""
    return "a ship"


@tool(effect="idempotent")
async def interview(ctx: ToolContext) -> str:
    """Ask."""
    return f"heard {await ctx.ask('Which colour?')}"


@tool(approval=True)
async def erase(path: str) -> str:
    """Erase, once approved."""
    return f"erased {path}"


class Held:
    """A plugin, its tools and its model: the run is held in `place`, and nowhere if that is empty."""

    name = "held"

    def __init__(self, place: str) -> None:
        self.place = place

    async def hold(self, run: RunContext[Any], place: str) -> None:
        if place == self.place:
            announce(run)
            await anyio.sleep_forever()

    @hookimpl
    def register_models(self, registry: Any) -> None:
        registry.add("held", lambda name: FunctionModel(self.answer), models=["script"])

    @hookimpl
    async def on_tool(self, run: RunContext[Any]) -> list[Any]:
        await self.hold(run, "loading_context")

        @tool(effect="idempotent")
        async def work(ctx: ToolContext) -> str:
            """Work."""
            await self.hold(ctx, "running_tool")
            return "worked"

        @tool(effect="idempotent")
        def work_in_a_thread(ctx: ToolContext) -> str:
            """Work in a thread that hears nothing."""
            if self.place == "thread":
                announce(ctx)
                threading.Event().wait()
            return "worked"

        return [look, interview, erase, work, work_in_a_thread]

    @hookimpl
    async def before_run(self, run: RunContext[Any]) -> None:
        await self.hold(run, "ready")

    @hookimpl
    async def after_run(self, run: RunContext[Any]) -> None:
        await self.hold(run, "completed")

    @hookimpl(tryfirst=True)
    async def on_compact(self, run: RunContext[Any]) -> None:
        await self.hold(run, "compacting")

    @hookimpl
    def on_delta(self, run: RunContext[Any], delta: Delta, final: bool) -> None:
        if self.place == "generating" and not final:
            announce(run)

    async def answer(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """What the model says depends on the history alone, so that a resumed run goes on as this one would have."""
        if self.place == "generating":
            await emit(Delta(text="Half an"))
            await anyio.sleep_forever()
        if not isinstance(request.messages[-1], UserMessage):
            return ModelResponse(parts=(TextPart(text=ANSWER),))
        if request.messages[-1].text != REQUEST:
            return ModelResponse(parts=(TextPart(text="Fine."),))
        calls = [ToolCall(id="look", name="look")]
        if self.place in ("reply", "asked"):
            calls += [
                ToolCall(id="erase", name="erase", arguments={"path": "a.md"}),
                ToolCall(id="interview", name="interview"),
            ]
        elif self.place == "thread":
            calls.append(ToolCall(id="work", name="work_in_a_thread"))
        else:
            calls.append(ToolCall(id="work", name="work"))
        return ModelResponse(parts=tuple(ToolCallPart(call=one) for one in calls), stop_reason="tool_calls")


async def announce_when_quiet(run: RunStream[Any]) -> None:
    await anyio.wait_all_tasks_blocked()
    announce(run)


def announce(run: RunContext[Any] | RunStream[Any]) -> None:
    """Past all buffers and whatever stands before the output: the test reads one line and then signals."""
    os.write(1, f"held {run.state.phase.value}\n".encode())


def make_agent(store: SessionStore, place: str) -> Agent[None, str]:
    held = Held(place)
    # On a busy machine a write may take longer than it is given at an end; a deaf thread takes all of the time.
    grace_seconds = 1.5 if place == "thread" else 6.0
    limits = Limits(store_seconds=60)
    return Agent(FunctionModel(held.answer), plugins=[held], store=store, grace_seconds=grace_seconds, limits=limits)


async def main(path: str, place: str) -> int:
    store = SqliteStore(path, synchronous="normal")
    ended = anyio.Event()
    obeyed: list[int] = []

    async def obey() -> None:
        number = await anext(signals)
        obeyed.append(number)
        if number == signal.SIGTERM:
            await run.suspend()
            ended.set()
            return
        run.stop("interrupted by SIGINT")
        with anyio.move_on_after(PATIENCE_SECONDS):
            await ended.wait()
        await run.close()
        ended.set()

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with make_agent(store, place).stream(REQUEST, session=SESSION) as run, anyio.create_task_group() as group:
            group.start_soon(obey)
            asked = 0
            try:
                async for event in run:
                    asked += event.type == "reply_requested"
                    if event.type != "reply_requested" or asked < 2:
                        continue
                    if place == "asked":  # the reader holds the question: the tool has not begun to wait for its reply
                        announce(run)
                        await ended.wait()
                        continue
                    group.start_soon(announce_when_quiet, run)
            except RunCancelledError:
                pass
            ended.set()
    store.close()
    os.write(1, f"ended {run.result.status} {run.result.stop_reason}\n".encode())
    if run.result.store_error is not None:
        print(f"store: {run.result.store_error!r}", file=sys.stderr, flush=True)
    return 128 + obeyed[0]


def serve() -> None:
    """Fork what is asked for: everything is imported once, and each process is its own from its first line on."""
    import trio  # noqa: F401  (so that the children need not)

    for line in sys.stdin:
        words = line.split()
        if len(words) == 1:
            print(os.waitstatus_to_exitcode(os.waitpid(int(words[0]), 0)[1]), flush=True)
        elif (pid := os.fork()) == 0:
            sys.exit(begin(*words))
        else:
            print(pid, flush=True)


def begin(path: str, place: str, backend: str, output: str) -> int:
    os.dup2(os.open(output, os.O_WRONLY), 1)
    os.close(0)
    return anyio.run(main, path, place, backend=backend)


if __name__ == "__main__":
    serve()
else:
    plugin = Held(os.environ.get("HELD_AT", ""))
