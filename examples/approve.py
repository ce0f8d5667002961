"""A plugin asks before it lets a tool run; the loop that reads the stream answers each question."""

from __future__ import annotations

import asyncio

from trilane import Agent, Ask, ReplyRequested, RunContext, ToolCall, ToolCompleted, hookimpl, tool
from trilane.testing import ScriptedModel, call


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


class AskBeforeDeleting:
    """Every `delete` needs somebody's approval."""

    name = "ask-before-deleting"

    @hookimpl
    def decide_tool(self, run: RunContext[object], call: ToolCall) -> Ask | None:
        """Ask, naming the file."""
        return Ask(prompt=f"Delete {call.arguments['path']}?") if call.name == "delete" else None


async def main() -> None:
    """Approve temporary files, refuse everything else."""
    model = ScriptedModel([call("delete", path="notes.md"), call("delete", path="old.tmp")], "One of two is gone.")
    agent = Agent(model, tools=[delete], plugins=[AskBeforeDeleting()])
    async with agent.stream("Clean up.") as run:
        async for event in run:
            if isinstance(event, ReplyRequested):
                approve = event.question.prompt.endswith(".tmp?")
                receipt = run.reply(event.question.id, {"approve": approve, "reason": "only temporary files"})
                print(event.question.prompt, "yes" if approve else "no", f"({receipt.status})")
            elif isinstance(event, ToolCompleted):
                print(event.call.arguments["path"], "->", event.result.outcome)
    print(run.result.output)


asyncio.run(main())

# Prints:
# Delete notes.md? no (accepted)
# Delete old.tmp? yes (accepted)
# notes.md -> denied
# old.tmp -> ok
# One of two is gone.
