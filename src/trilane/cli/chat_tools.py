"""Which tools a run would have, without making one: only `on_tool` of every plugin is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trilane.agent import Agent
    from trilane.tools import Tool

__all__ = ["offered_tools"]


async def offered_tools(agent: Agent[None, str]) -> list[tuple[Tool, str]]:
    """The tools, and the plugin each comes from.

    Raises:
        Exception: what a plugin raised.
    """
    from trilane._core import Core
    from trilane._tasks import TaskOwner
    from trilane.channels import AgentEventQueue
    from trilane.tools import as_tool

    owner = TaskOwner()
    await owner.open()
    try:
        core = Core(agent.stream("Which tools are there?")._setup, owner, AgentEventQueue())
        core.clock.start()
        try:
            values = await core.dispatcher.each(core.hooks.on_tool, core.clock, core.context)
        finally:
            core.clock.end()
    finally:
        await owner.close()
    found = [(tool, "the agent") for tool in core.tools.values()]
    for implementation, offered in values:
        found += [(as_tool(one), implementation.plugin) for one in offered or ()]
    return found
