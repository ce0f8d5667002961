"""The two agents. The chat agent talks; the event agent does. Between them are only the queues of the run.

The chat agent can be made in two ways: with tools that have no function, whose calls go out on `events`, and, to
compare, with the tools themselves. Clients cannot tell which one they talk to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable

from trilane import Agent, Model, QueueClosed, RuntimeQueues, Tool, ToolCall, ToolError, ToolResult, tool
from trilane.tools import as_tool, error_result, render_result

__all__ = ["TOOLS", "EventAgent", "Pause", "book_seat", "chat_agent", "find_trains", "weather"]

Pause = Callable[[], Awaitable[None]]

INSTRUCTIONS = "You work at the counter of a railway station. Be brief."

TRAINS = {"R12": "09:14", "R14": "11:14", "N1": "22:40"}


@tool(effect="read")
async def find_trains(start: str, destination: str) -> str:
    """Find trains.

    Args:
        start: Where the journey begins.
        destination: Where it ends.
    """
    return "\n".join(f"{name} leaves {start} for {destination} at {time}" for name, time in TRAINS.items())


@tool(effect="read")
async def weather(place: str) -> dict[str, str]:
    """What the weather is like.

    Args:
        place: A town.
    """
    return {"place": place, "sky": "clear" if len(place) % 2 else "cloudy"}


@tool(approval=True)
async def book_seat(train: str, seats: int) -> str:
    """Book seats in a train.

    Args:
        train: Its name.
        seats: How many.
    """
    if train not in TRAINS:
        raise ToolError(f"There is no train {train!r}; there are {', '.join(TRAINS)}.")
    return f"{seats} seat{'s' * (seats > 1)} booked in {train}"


TOOLS = tuple(as_tool(function) for function in (find_trains, weather, book_seat))


def _without_function(known: Tool) -> Tool:
    """The same tool for the model and for approvals; who executes it is not said."""
    return Tool.external(
        name=known.name,
        description=known.description,
        parameters=known.parameters,
        effect=known.effect,
        approval=known.approval,
    )


def chat_agent(model: Model | str, *, split: bool = True) -> Agent[None, str]:
    """The agent that clients talk to.

    Args:
        model: Its model.
        split: False to let it execute its tools itself.
    """
    tools = tuple(_without_function(known) for known in TOOLS) if split else TOOLS
    return Agent(model, name="Counter", instructions=INSTRUCTIONS, tools=tools)


class EventAgent:
    """Takes calls off `events`, executes them side by side, and puts each result on `input` as soon as it is there.

    Args:
        tools: What it can execute.
        pause: Awaited before each call is executed and before the next one is taken, so that a person can watch.
    """

    def __init__(self, tools: tuple[Tool, ...] = TOOLS, *, pause: Pause | None = None) -> None:
        self._tools = {known.name: known for known in tools}
        self._pause = pause

    async def __call__(self, queues: RuntimeQueues) -> None:
        """Serve one run, until it ends."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    event = await queues.events.get()
                except QueueClosed:
                    return
                group.create_task(self._answer(queues, event.call))
                if self._pause is not None:
                    await self._pause()

    async def _answer(self, queues: RuntimeQueues, call: ToolCall) -> None:
        result = await self._execute(call)
        try:
            queues.input.put_nowait(result)
        except QueueClosed:
            pass  # the run was stopped meanwhile, and has answered the call itself

    async def _execute(self, call: ToolCall) -> ToolResult:
        try:
            known = self._tools[call.name]
            if self._pause is not None:
                await self._pause()
            value = known.call(known.bind(call.arguments))
            return render_result(await value if isawaitable(value) else value, call_id=call.id)
        except Exception as error:
            return error_result(call, error)
