"""A trial run for `trilane plugins doctor`: what plugins do wrong only while a run is on.

The model is made up and asks for one tool of ours, so nothing is sent anywhere by us. The run has a thread of its own:
a plain function that never returns cannot be interrupted, but it can be named.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trilane.errors import RunError

from .text import error_paragraph

if TYPE_CHECKING:
    from trilane.agent import Agent
    from trilane.models import Emit, ModelRequest, ModelResponse
    from trilane.plugins import PluginManager
    from trilane.result import RunResult
    from trilane.tools import Tool

__all__ = ["Fault", "Trial", "trial_run", "try_out"]

HOOK_SECONDS = 3.0
RUN_SECONDS = 60.0
BLOCKING_SECONDS = 0.1
SESSION = "trilane-plugins-doctor"
TOOL = "doctor_looks"


@dataclass(frozen=True, slots=True)
class Fault:
    """What `plugin` did wrong; an empty name if nobody could be blamed."""

    plugin: str
    text: str


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial run has shown: faults, in the order of the hooks, and the tools that plugins offered to it.

    `tools` is None if it did not get that far.
    """

    faults: list[Fault]
    tools: tuple[Tool, ...] | None


class _Model:
    """Asks for the one tool, then answers."""

    name = "doctor"

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        from trilane.messages import Delta, TextPart, ToolCall, ToolCallPart
        from trilane.models import ModelResponse

        if request.turn == 1:
            part = ToolCallPart(call=ToolCall(id="doctor", name=TOOL, arguments={}))
            return ModelResponse(parts=(part,), stop_reason="tool_calls")
        await emit(Delta(kind="text", text="All is done.", index=0))
        return ModelResponse(parts=(TextPart(text="All is done."),))


def trial_run(manager: PluginManager, *, run_seconds: float = RUN_SECONDS) -> list[Fault]:
    """Run once with the loaded plugins; returns their faults, in the order of the hooks."""
    return try_out(manager, run_seconds=run_seconds).faults


def try_out(manager: PluginManager, *, run_seconds: float = RUN_SECONDS) -> Trial:
    """Run once with the loaded plugins."""
    agent = _agent(manager)
    outcome: list[RunResult[Any] | BaseException] = []
    offered: list[Tool] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(_run(agent, offered)))
        except BaseException as error:  # the thread's end; what it was is reported
            outcome.append(error)

    thread = threading.Thread(target=work, name="trilane plugins doctor", daemon=True)
    thread.start()
    thread.join(run_seconds)
    tools = tuple(tool for tool in offered if tool.name != TOOL) if offered else None
    if not outcome:
        return Trial([_hanging(agent, thread, run_seconds)], tools)
    return Trial(list(_faults(agent, outcome[0])), tools)


def _agent(manager: PluginManager) -> Agent[None, str]:
    from trilane.agent import Agent
    from trilane.tools import Tool

    def doctor_looks() -> str:
        """Return at once."""
        return "fine"

    tool = Tool.from_function(doctor_looks, name=TOOL, effect="read")
    agent = Agent(_Model(), name="doctor", tools=[tool], hook_timeout=HOOK_SECONDS)
    agent.plugins = manager
    return agent


async def _run(agent: Agent[None, str], offered: list[Tool]) -> RunResult[Any]:
    async with agent.stream("Look whether all is well.", session=SESSION) as run:
        try:
            try:
                await run.wait()
            finally:
                core = run._core
                offered += () if core is None else core.tools.values()
        except RunError:  # a plugin may end a run on purpose
            pass
        except Exception as error:
            error.__trilane_result__ = run.result  # type: ignore[attr-defined]
            raise
        return run.result


def _faults(agent: Agent[None, str], outcome: RunResult[Any] | BaseException) -> Iterator[Fault]:
    from trilane.result import RunResult

    error = None if isinstance(outcome, RunResult) else outcome
    result = outcome if isinstance(outcome, RunResult) else getattr(outcome, "__trilane_result__", None)
    if not isinstance(result, RunResult):
        yield Fault("", f"a trial run failed: {error_paragraph(error) if error else 'without a result'}")
        return
    told = set()
    for failure in result.hook_failures:
        if (failure.plugin, failure.hook) not in told:
            told.add((failure.plugin, failure.hook))
            yield Fault(failure.plugin, f"{failure.hook} fails in a trial run: {error_paragraph(failure.error)}")
    guilty = [row for row in result.ledger if row.errors and (row.plugin, row.hook) not in told]
    if error is not None:
        text = f"a trial run failed: {error_paragraph(error)}"
        yield Fault(guilty[-1].plugin if guilty else "", text)
    compiled = agent.plugins.compile()
    for row in result.ledger:
        plain = [one for one in getattr(compiled, row.hook) if one.plugin == row.plugin and not one.is_async]
        if plain and not plain[0].thread and row.seconds / row.calls >= BLOCKING_SECONDS:
            text = f"{row.hook} blocks the event loop for {row.seconds / row.calls:.1f} s a call"
            yield Fault(row.plugin, f"{text}; mark it @hookimpl(thread=True), or make it async")


def _hanging(agent: Agent[None, str], thread: threading.Thread, seconds: float) -> Fault:
    stream = agent.active(SESSION)
    core = None if stream is None else stream._core
    plugin = "" if core is None else core.clock.plugin
    frame = sys._current_frames().get(thread.ident or 0)
    last = traceback.extract_stack(frame)[-1] if frame is not None else None
    where = "" if last is None else f"; it is at {last.filename}:{last.lineno} in {last.name}"
    return Fault(plugin, f"a hook has not returned from a trial run within {seconds:g} s{where}")
