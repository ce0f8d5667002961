"""The planner through `Agent`: real runs with tools of the host."""

from __future__ import annotations

import pytest

from trilane import Agent

pytestmark = pytest.mark.anyio


async def test_tools_of_the_host_and_streamed_text() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with Agent("offline:planner", tools=[add]).stream("add 2 and 3") as run:
        text = "".join([piece async for piece in run.text()])
    assert text == "add(a=2, b=3): 5"
