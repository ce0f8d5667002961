"""A tool without a function: somebody else executes it, and talks to the run over its three explicit queues."""

from __future__ import annotations

import asyncio

from trilane import Agent, QueueClosed, RuntimeQueues, Tool, ToolResult
from trilane.testing import ScriptedModel, call

position = Tool.external(
    name="position",
    description="Where the user is, as the browser knows it.",
    parameters={"type": "object", "properties": {}},
)


async def browser(queues: RuntimeQueues) -> None:
    """What runs on the other side: take calls from `events`, put results on `input`."""
    while True:
        try:
            event = await queues.events.get()
        except QueueClosed:  # the run has ended
            return
        print("the browser is asked for:", event.call.name)
        await queues.input.put(ToolResult(call_id=event.call.id, content="48.4 N, 10.0 E"))


async def main() -> None:
    """The UI stream is read here, the tool is executed there."""
    queues = RuntimeQueues()
    agent = Agent(ScriptedModel(call("position"), "You are in Ulm."), tools=[position])
    async with asyncio.TaskGroup() as group:
        group.create_task(browser(queues))
        async with agent.stream("Where am I?", queues=queues) as run:
            async for event in run:
                if event.type in ("tool_started", "tool_completed"):
                    print(event.type)
    print(run.result.output, "- all lanes empty:", queues.empty)


asyncio.run(main())

# Prints:
# tool_started
# the browser is asked for: position
# tool_completed
# You are in Ulm. - all lanes empty: True
