"""Plays the same runs in every way there is to run, and writes down which hooks were called.

The tests compare them (`tests/scenarios/test_hook_parity.py`), the hook reference shows them (`_generate.py`). It is
also the module of two plugins, `parity` and `parity-recorder`, for the way through the command line.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from trilane import Agent, Answerer, Approval, Question, RetryModel, RunContext, Tool, hookimpl, tool
from trilane.channels import EventSink
from trilane.plugins import ModelRegistry, discover
from trilane.stores import InMemoryStore
from trilane.testing import Recorder, ScriptedModel, call

__all__ = ["MODES", "SCENARIOS", "FileRecorder", "ParityPlugin", "called_in", "play"]

REQUEST = "Pay 5"
FILE_VARIABLE = "PARITY_FILE"

#: How each run ends, and what the model does in it.
SCENARIOS: dict[str, Callable[[], ScriptedModel]] = {
    "completed": lambda: ScriptedModel(ConnectionError("gone"), call("pay", amount=5), "Paid."),
    "failed": lambda: ScriptedModel(call("pay", amount=5), ValueError("the wire broke")),
    "cancelled": lambda: ScriptedModel(call("pay", amount=5), call("stop_here"), "Never said."),
}


@tool(approval=True, effect="idempotent")
async def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


class ParityPlugin:
    """Brings the tools, a second attempt after a lost connection, and the models."""

    name = "parity"

    @hookimpl
    def on_tool(self, run: RunContext[Any]) -> list[Tool | Callable[..., object]]:
        async def stop_here() -> str:
            """Stop."""
            run.stop("enough")
            return "stopped"

        return [pay, stop_here]

    @hookimpl
    def on_model_error(self, run: RunContext[Any], error: Exception) -> RetryModel | None:
        return RetryModel(after_seconds=0) if isinstance(error, ConnectionError) else None

    @hookimpl
    def register_models(self, registry: ModelRegistry) -> None:
        registry.add("parity", lambda name: SCENARIOS[name]())


def lines(recorder: Recorder) -> list[str]:
    """The calls of hooks of runs, as `phase hook detail`."""
    return [
        f"{made.phase.value} {made.hook}{'' if made.detail is None else f' {made.detail}'}"
        for made in recorder.calls
        if made.phase is not None
    ]


class FileRecorder(Recorder):
    """Writes down what a process that it cannot talk to has called."""

    def __init__(self) -> None:
        super().__init__("parity-recorder")
        atexit.register(self._write)

    def _write(self) -> None:
        Path(os.environ[FILE_VARIABLE]).write_text(json.dumps(lines(self)), encoding="utf-8")


async def approve(question: Question) -> Any:
    """Approves."""
    return Approval(approve=True)


def agent(scenario: str, recorder: Recorder, *, answer: Answerer | None = approve) -> Agent[None, str]:
    """An agent with the recorder."""
    return Agent(SCENARIOS[scenario](), plugins=[ParityPlugin(), recorder], answer=answer)


# ---- the ways --------------------------------------------------------------------------------------------------------


async def _run(scenario: str, recorder: Recorder) -> None:
    await agent(scenario, recorder).run(REQUEST)


async def _stream(scenario: str, recorder: Recorder) -> None:
    async with agent(scenario, recorder).stream(REQUEST) as run:
        async for _ in run:
            pass


async def _runtime(scenario: str, recorder: Recorder) -> None:
    async with agent(scenario, recorder).runtime() as runtime:
        async for _ in runtime.stream(REQUEST):
            pass


async def _forward(scenario: str, recorder: Recorder) -> None:
    """Through a sink to a connection."""

    async def write(event: object) -> None:
        return None

    sink: EventSink[Any] = EventSink(write)
    async with agent(scenario, recorder).stream(REQUEST) as run, asyncio.TaskGroup() as group:
        group.create_task(sink.run())
        await run.forward(sink)


async def _websocket(scenario: str, recorder: Recorder) -> None:
    """Through `trilane-web`, started by a message over a WebSocket; the client approves."""
    from _parity_web import by_websocket

    await by_websocket(agent(scenario, recorder, answer=None), REQUEST)


async def _http(scenario: str, recorder: Recorder) -> None:
    """Through `trilane-web`, started by a POST and read as server-sent events; the client approves."""
    from _parity_web import by_http

    await by_http(agent(scenario, recorder, answer=None), REQUEST)


async def _nested(scenario: str, recorder: Recorder) -> None:
    child = agent(scenario, recorder)
    model = ScriptedModel(call("child", request=REQUEST), "Done.")
    parent = Agent(model, tools=[child.as_tool(name="child", description="Does it.")], answer=approve)
    await parent.run("Let it be done")


async def _resumed(scenario: str, recorder: Recorder) -> None:
    """Suspended while the first question is open; what is written down is the run that takes it up."""
    store, model = InMemoryStore(), SCENARIOS[scenario]()
    async with Agent(model, plugins=[ParityPlugin()], store=store).stream(REQUEST, session="parity") as run:
        async for event in run:
            if event.type == "reply_requested":
                await run.suspend()
                break
    later = Agent(model, plugins=[ParityPlugin(), recorder], answer=approve, store=store)
    async with later.resume("parity") as again:
        await again.wait()


def _run_sync(scenario: str, recorder: Recorder) -> None:
    agent(scenario, recorder).run_sync(REQUEST)


def _in_a_loop(way: Callable[[str, Recorder], Awaitable[None]]) -> Callable[[str, Recorder], None]:
    async def main(scenario: str, recorder: Recorder) -> None:
        await way(scenario, recorder)

    return lambda scenario, recorder: asyncio.run(main(scenario, recorder))


def _command_line(scenario: str) -> list[str]:
    """`trilane run` in a process of its own, in which only the two plugins of this module are loaded."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        info = folder / "parity-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parity\nVersion: 1.0\n", encoding="utf-8")
        points = "[trilane]\nparity = _parity:ParityPlugin\nparity-recorder = _parity:FileRecorder\n"
        (info / "entry_points.txt").write_text(points, encoding="utf-8")
        search = os.pathsep.join((place, str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
        written = folder / "calls.json"
        command = [sys.executable, "-m", "trilane", "run", REQUEST, "-m", f"parity:{scenario}", "--yes"]
        command += [part for other in discover() for part in ("-p", f"no:{other.name}")]
        environment = {**os.environ, "PYTHONPATH": search, FILE_VARIABLE: str(written)}
        done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)
        if not written.exists():
            raise RuntimeError(f"trilane run did not come to its end: {done.stderr}")
        found: list[str] = json.loads(written.read_text(encoding="utf-8"))
        return found


#: Every way to run.
MODES: dict[str, Callable[[str, Recorder], None] | None] = {
    "run": _in_a_loop(_run),
    "run_sync": _run_sync,
    "stream": _in_a_loop(_stream),
    "runtime": _in_a_loop(_runtime),
    "forward": _in_a_loop(_forward),
    "WebSocket": _in_a_loop(_websocket),
    "HTTP": _in_a_loop(_http),
    "nested agent": _in_a_loop(_nested),
    "command line": None,
    "resumed": _in_a_loop(_resumed),
}


def play(scenario: str, mode: str) -> list[str]:
    """The hooks that a run of `scenario` calls when it is run in the way `mode`, as `phase hook detail`."""
    way = MODES[mode]
    if way is None:
        return _command_line(scenario)
    recorder = Recorder("parity-recorder")
    try:
        way(scenario, recorder)
    except Exception:  # the other two end with one; which it is, is not the matter here
        if scenario == "completed":
            raise
    return lines(recorder)


def called_in(mode: str) -> set[str]:
    """The hooks that are called in this way to run, in one of the scenarios."""
    return {line.split()[1] for scenario in SCENARIOS for line in play(scenario, mode)}
