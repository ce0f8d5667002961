"""One agent, many sessions at once. Each has its own history; the runtime owns the tasks of all."""

from __future__ import annotations

import asyncio

from trilane import Agent, Emit, ModelRequest, Runtime, text_of
from trilane.testing import FunctionModel


def echo(request: ModelRequest, emit: Emit) -> str:
    """A model that says how often it was spoken to, and what was said last."""
    said = [text_of(message.parts) for message in request.messages if message.kind == "user"]
    return f"{len(said)}: {said[-1]}"


async def talk(runtime: Runtime, number: int) -> str:
    """Two runs on one session; the second sees the first."""
    answer = ""
    for text in (f"hello from {number}", "and again"):
        answer = "".join([delta async for delta in runtime.stream(text, session=f"session-{number}").text()])
    return answer


async def main() -> None:
    """A thousand sessions."""
    async with Agent(FunctionModel(echo)).runtime() as runtime:
        answers = await asyncio.gather(*(talk(runtime, number) for number in range(1000)))
    print(len(answers), "sessions, each ended with:", set(answers))


asyncio.run(main())

# Prints:
# 1000 sessions, each ended with: {'2: and again'}
