"""What sessions cost that wait for a reply: memory, in one process, for each of 10,000 by default. Linux only.

    python benchmarks/waiting.py [sessions]

Each session has a run whose tool asks a question that nobody answers; all are open at once in one event loop, each with
its own reader of its stream, as behind a server. Memory is the process's resident set with all of them waiting, less
that with one. `approval` waits before the tool, for a decision; `question` inside a tool that has begun.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trilane import Agent, ModelResponse, ToolCall, ToolCallPart, ToolContext, tool


class Asking:
    """A model that calls the one tool."""

    name = "asking"

    async def call(self, request: Any, emit: Any) -> ModelResponse:
        call = ToolCall(id="call_1", name="act", arguments={"n": 1})
        return ModelResponse(parts=(ToolCallPart(call=call),), stop_reason="tool_calls")


@tool(name="act", approval=True)
async def approved(n: int) -> str:
    """Act.

    Args:
        n: Which.
    """
    return "ok"


@tool(name="act")
async def asking(ctx: ToolContext, n: int) -> str:
    """Act.

    Args:
        n: Which.
    """
    return str(await ctx.ask("Go on?", bool))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(kind: str, sessions: int) -> tuple[float, float]:
    """KB for each waiting session, and milliseconds to bring it there."""
    agent: Agent[Any, Any] = Agent(Asking(), tools=[approved if kind == "approval" else asking])
    waiting = 0
    all_wait = asyncio.Event()
    readers: list[asyncio.Task[None]] = []

    async def read(number: int, expected: int) -> None:
        nonlocal waiting
        async with agent.stream("go", session=f"session-{number}") as run:
            async for event in run:
                if event.type == "reply_requested":
                    waiting += 1
                    if waiting == expected:
                        all_wait.set()

    readers.append(asyncio.create_task(read(0, 1)))
    await all_wait.wait()
    all_wait.clear()
    gc.collect()
    before, began = resident(), time.process_time()
    for number in range(1, sessions + 1):
        readers.append(asyncio.create_task(read(number, sessions + 1)))
        if number % 100 == 0:
            await asyncio.sleep(0)
    await all_wait.wait()
    took = time.process_time() - began
    gc.collect()
    grown = resident() - before
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await agent.aclose()
    return grown / sessions / 1000, took / sessions * 1000


def main() -> None:
    if len(sys.argv) > 2:
        per_session, took = asyncio.run(measure(sys.argv[2], int(sys.argv[1])))
        print(f"{per_session:.2f} {took:.3f}")
        return
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{'waiting for':12} {'sessions':>9} {'KB each':>9} {'MB':>7} {'ms of CPU to begin':>20}")
    for kind in ("approval", "question"):
        done = subprocess.run(
            [sys.executable, __file__, str(sessions), kind], check=True, capture_output=True, text=True
        )
        per_session, took = (float(value) for value in done.stdout.split())
        print(f"{kind:12} {sessions:9} {per_session:9.1f} {per_session * sessions / 1000:7.0f} {took:20.2f}")


if __name__ == "__main__":
    main()
