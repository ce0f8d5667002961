"""One run of a given size, for `instructions.py`: `import 0`, `delta N`, `turn N`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from trilane import Agent, Delta, Limits, ModelResponse, ToolCall, ToolCallPart, tool

if TYPE_CHECKING:
    from trilane import Emit, ModelRequest


@tool
async def step(n: int) -> str:
    """Do one step.

    Args:
        n: Which step.
    """
    return "ok"


class Model:
    name = "workload"

    def __init__(self, deltas: int, turns: int) -> None:
        self.deltas = deltas
        self.turns = turns
        self.made = 0

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        if self.made < self.turns:
            self.made += 1
            call = ToolCall(id=f"call_{self.made}", name="step", arguments={"n": self.made})
            return ModelResponse(parts=(ToolCallPart(call=call),), stop_reason="tool_calls")
        for _ in range(self.deltas):
            await emit(Delta(text="abcd "))
        return ModelResponse()


async def main(workload: str, size: int) -> None:
    model = Model(size if workload == "delta" else 1, size if workload == "turn" else 0)
    agent = Agent(model, tools=[step], limits=Limits(turns=size + 5))
    if workload == "import":
        return
    async with agent.stream("go") as run:
        async for _ in run:
            pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
