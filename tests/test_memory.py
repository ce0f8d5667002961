"""What long answers, big results and many waiting sessions cost in memory. Figures are in `benchmarks/`."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from trilane import Agent, ModelResponse, TextPart, ToolCallPart, ToolContext, tool
from trilane.testing import FunctionModel, ScriptedModel, call

LONG_ANSWER = """
import asyncio, resource, sys
from trilane import Agent, Delta, ModelResponse
class Talker:
    name = "talker"
    def __init__(self, deltas): self.deltas = deltas
    async def call(self, request, emit):
        for _ in range(self.deltas):
            await emit(Delta(text="abcd "))
        return ModelResponse()
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform != "darwin" else 1024 ** 2)
async def read(deltas):
    async with Agent(Talker(deltas)).stream("go") as run:
        characters = 0
        async for event in run:
            if event.type == "text_delta":
                characters += len(event.text)
    assert characters == len(run.result.text) == deltas * 5, characters
asyncio.run(read(2_000))
before = most()
asyncio.run(read(200_000))
print(most() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="not installed: the module resource")
def test_an_answer_of_200_000_deltas_costs_little_more_than_its_text() -> None:
    """A megabyte of text, its pieces until it is whole, and one copy or two; but no event, however many there were."""
    done = subprocess.run([sys.executable, "-c", LONG_ANSWER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 25, "MB more than after 2,000 deltas"


async def _most(work: Callable[[], Awaitable[Any]]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.anyio
async def test_a_tool_result_of_5_mb_is_kept_once() -> None:
    """In history, event and request it is one string; checking and clipping may make another for a moment."""
    big = "y" * 5_000_000

    @tool(max_result_chars=6_000_000)
    async def read_all() -> str:
        """Read everything."""
        return big

    async def work() -> None:
        agent = Agent(ScriptedModel(call("read_all"), "done"), tools=[read_all])
        async with agent.stream("go") as run:
            async for _ in run:
                pass
        assert run.result.text == "done"

    await work()
    assert await _most(work) < 2.5 * len(big)


@pytest.mark.anyio
async def test_a_tool_result_of_5_mb_is_cut_without_copies_of_it() -> None:
    big = "y" * 5_000_000

    @tool
    async def read_all() -> str:
        """Read everything."""
        return big

    async def work() -> None:
        agent = Agent(ScriptedModel(call("read_all"), "done"), tools=[read_all])
        async with agent.stream("go") as run:
            async for _ in run:
                pass

    await work()
    assert await _most(work) < 1.5 * len(big)


@tool(name="act", approval=True)
async def approved() -> str:
    """Act."""
    return "ok"


@tool(name="act")
async def asking(ctx: ToolContext) -> str:
    """Act."""
    return str(await ctx.ask("Go on?", bool))


@pytest.mark.parametrize(("waits", "most"), [(approved, 13_000), (asking, 16_000)])
def test_sessions_that_wait_for_a_reply_are_small(waits: Any, most: int) -> None:
    """Some hundreds of them, each with its reader; `benchmarks/waiting.py` has ten thousand."""
    sessions = 400

    def answer(request: Any, emit: Any) -> ModelResponse:
        return ModelResponse(parts=(ToolCallPart(call=call("act")), TextPart(text="")), stop_reason="tool_calls")

    async def work() -> None:
        agent: Agent[Any, Any] = Agent(FunctionModel(answer), tools=[waits])
        waiting = 0
        all_wait = asyncio.Event()

        async def read(number: int, expected: int) -> None:
            nonlocal waiting
            async with agent.stream("go", session=f"s{number}") as run:
                async for event in run:
                    if event.type == "reply_requested":
                        waiting += 1
                        if waiting == expected:
                            all_wait.set()

        readers = [asyncio.create_task(read(0, 1))]
        await all_wait.wait()
        all_wait.clear()
        gc.collect()
        tracemalloc.start()
        try:
            readers += [asyncio.create_task(read(number, sessions + 1)) for number in range(1, sessions + 1)]
            await all_wait.wait()
            gc.collect()
            cost = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert cost / sessions < most

    asyncio.run(work())
