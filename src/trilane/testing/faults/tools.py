"""Tools of the scenarios: quick, slow, broken, deaf to cancels, in a thread, with a process."""

from __future__ import annotations

import sys
import time
from typing import Any

from .scenario import At, ScriptedTool

__all__ = ["asking", "broken", "deaf", "hanging", "process", "stuck", "threaded", "worker"]


def worker(name: str, *, seconds: float = 0.0, parallel: bool = True, timeout: float | None = None) -> ScriptedTool:
    """A tool that works for `seconds`, shows progress, and returns its name and argument."""

    async def work(at: At) -> str:
        stage = at.stage
        stage.tool_began(at.call_id, name)
        await _guarded(at, stage.call(f"tool.{name}.start"))
        if seconds:
            assert stage.sleep is not None
            await stage.sleep(seconds)
        if at.progress is not None:
            await at.progress("half")
        await _guarded(at, stage.call(f"tool.{name}.end"))
        return stage.tool_returns(at.call_id, f"{name} says {at.arguments['n']}")

    return ScriptedTool(name, work, parallel=parallel, timeout=timeout)


async def _guarded(at: At, call: Any) -> None:
    """Note what the tool raises, as its own error."""
    try:
        await call
    except Exception as error:
        at.stage.tools[at.call_id].error = error
        raise


def broken(name: str) -> ScriptedTool:
    """A tool that raises."""

    async def work(at: At) -> str:
        at.stage.tool_began(at.call_id, name)
        await _guarded(at, at.stage.call(f"tool.{name}.start"))
        at.stage.tools[at.call_id].error = error = ValueError(f"{name} is broken")
        raise error

    return ScriptedTool(name, work)


def hanging(name: str, *, timeout: float | None = 3.0) -> ScriptedTool:
    """A tool that never returns."""

    async def work(at: At) -> str:
        at.stage.tool_began(at.call_id, name)
        await _guarded(at, at.stage.call(f"tool.{name}.start"))
        assert at.stage.sleep is not None
        await at.stage.sleep(1e6)
        return at.stage.tool_returns(at.call_id, "never")

    return ScriptedTool(name, work, timeout=timeout)


def deaf(name: str, cancels: int, *, seconds: float = 2.0) -> ScriptedTool:
    """A tool that works for `seconds` and swallows so many cancels meanwhile."""

    async def work(at: At) -> str:
        stage = at.stage
        stage.tool_began(at.call_id, name)
        assert stage.sleep is not None
        left = cancels
        until = stage.now() + seconds
        while stage.now() < until:
            try:
                await stage.sleep(until - stage.now())
            except stage.cancelled_types:
                if not left:
                    raise
                left -= 1
        return stage.tool_returns(at.call_id, f"{name} heard {cancels - left} cancels")

    return ScriptedTool(name, work)


def threaded(name: str, *, seconds: float = 0.01) -> ScriptedTool:
    """A plain function in a thread, which nobody can cancel. It takes real time."""

    def work(at: At) -> str:
        at.stage.tool_began(at.call_id, name)
        time.sleep(seconds)
        return at.stage.tool_returns(at.call_id, f"{name} says {at.arguments['n']}")

    return ScriptedTool(name, work, in_thread=True)


def stuck(name: str, *, timeout: float | None = 3.0) -> ScriptedTool:
    """A plain function in a thread that outlasts the whole case."""

    def work(at: At) -> str:
        stage = at.stage
        stage.tool_began(at.call_id, name)
        assert stage.outside is not None
        stage.outside.rest()
        return stage.tool_returns(at.call_id, f"{name} came too late")

    return ScriptedTool(name, work, timeout=timeout, in_thread=True)


def process(name: str, *, hangs: bool = False) -> ScriptedTool:
    """A tool that runs a program and waits for it; one that hangs has a child of its own."""

    async def work(at: At) -> str:
        stage = at.stage
        stage.tool_began(at.call_id, name)
        assert at.process is not None
        assert stage.outside is not None
        argv = stage.outside.hanging_program().argv if hangs else [sys.executable, "-S", "-c", "print('done')"]
        output = await at.process(argv)
        return stage.tool_returns(at.call_id, f"{name} printed {output.strip()}")

    return ScriptedTool(name, work)


def asking(name: str, *, timeout: float | None = None) -> ScriptedTool:
    """A tool that asks outside."""

    async def work(at: At) -> str:
        stage = at.stage
        stage.tool_began(at.call_id, name)
        await _guarded(at, stage.call(f"tool.{name}.start"))
        assert at.ask is not None
        try:
            reply = await at.ask("Which colour?", timeout)
        except Exception as error:
            stage.tools[at.call_id].error = error
            raise
        await _guarded(at, stage.call(f"tool.{name}.end"))
        return stage.tool_returns(at.call_id, f"{name} heard {reply}")

    return ScriptedTool(name, work)
