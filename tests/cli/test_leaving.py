"""A tool that calls `sys.exit` fails its run; it does not decide with which status the program ends."""

from __future__ import annotations

import asyncio
from typing import Any

from trilane import Agent, tool
from trilane.cli.answers import Answers
from trilane.cli.driver import drive
from trilane.cli.rendering import Renderer
from trilane.testing import ScriptedModel, call


class Silent(Renderer):
    """Shows nothing."""

    def show(self, event: Any) -> None:
        return None

    def note(self, text: str) -> None:
        return None


def test_a_tool_that_leaves_the_program_fails_the_run() -> None:
    @tool
    async def leave() -> str:
        """Leave."""
        raise SystemExit(0)

    agent = Agent(ScriptedModel(call("leave")), tools=[leave])
    outcome = asyncio.run(drive(lambda: agent.stream("Go"), Silent(), Answers()))
    assert outcome.exit_status == 1
    assert "tried to end the program (SystemExit: 0)" in str(outcome.error)
    assert outcome.result is not None
    assert outcome.result.status == "failed"
