"""Read the UI stream of a run, and see that nothing runs ahead of the event you hold."""

from __future__ import annotations

import asyncio

from trilane import Agent, ToolCompleted, ToolStarted, tool
from trilane.testing import ScriptedModel, call

counted: list[str] = []


@tool
async def count_words(text: str) -> int:
    """Count the words of a text."""
    counted.append(text)
    return len(text.split())


async def main() -> None:
    """Hold the event that announces the call for a while: the tool waits."""
    model = ScriptedModel(call("count_words", text="three lanes that never mix"), "Five words.")
    async with Agent(model, tools=[count_words]).stream("How many words?") as run:
        async for event in run:
            match event:
                case ToolStarted():
                    await asyncio.sleep(0.01)
                    print("announced:", event.call.name, "- calls made so far:", len(counted))
                case ToolCompleted():
                    print("result:", event.result.content, "- calls made so far:", len(counted))
    print("answer:", run.result.output)


asyncio.run(main())

# Prints:
# announced: count_words - calls made so far: 0
# result: 5 - calls made so far: 1
# answer: Five words.
