"""What hooks cost, with deadline and ledger on: the plugins of benchmark W6, no more than five times its goals.

The goals are 1 µs for a call that does nothing on asyncio and 2 µs on trio; the figures themselves are measured by
`benchmarks/run.py --only W6`. Here it is the processor's time, the best of some rounds, for other programs are at work.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import anyio
import pytest

from trilane import Agent, ToolCall, hookimpl, tool
from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.testing import Step, call

TURNS = 40
HOOKS_A_TURN = 4
ROUNDS = 5
GOAL = {"asyncio": 1e-6, "trio": 2e-6}
ALLOWANCE = 5


class NoOp:
    """Four hooks of a turn that do nothing."""

    def __init__(self, number: int) -> None:
        self.name = f"no-op-{number}"

    @hookimpl
    async def on_model_request(self, run: Any, request: ModelRequest) -> None: ...

    @hookimpl
    async def after_model(self, run: Any, response: ModelResponse) -> None: ...

    @hookimpl
    async def before_tool(self, run: Any, call: ToolCall) -> None: ...

    @hookimpl
    async def after_tool(self, run: Any, call: ToolCall, result: Any) -> None: ...


class Looping:
    """Asks for a tool in each turn, and answers in the last."""

    name = "looping"

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        return (Step("Done.") if request.turn > TURNS else Step(calls=[call("step")])).response()


@tool
async def step() -> str:
    """Do nothing."""
    return "done"


def seconds_of_a_run(plugins: int, backend: str) -> float:
    """The processor's time for one run with so many plugins, the best of some."""
    agent = Agent(Looping(), tools=[step], plugins=[NoOp(number) for number in range(plugins)])
    spent: list[float] = []

    async def main() -> None:
        for _ in range(ROUNDS):
            before = process_time()
            result = await agent.run("Go on.")
            spent.append(process_time() - before)
            calls = sorted(row.calls for row in result.ledger)
            assert calls == [TURNS] * 2 * plugins + [TURNS + 1] * 2 * plugins
            assert all(row.seconds > 0 for row in result.ledger)

    anyio.run(main, backend=backend)
    return min(spent)


@pytest.mark.parametrize("backend", GOAL)
@pytest.mark.parametrize(("few", "many"), [(1, 10), (10, 50)])
def test_a_call_of_a_hook_that_does_nothing_is_cheap(backend: str, few: int, many: int) -> None:
    def seconds_of_a_call() -> float:
        more = seconds_of_a_run(many, backend) - seconds_of_a_run(few, backend)
        return more / ((many - few) * HOOKS_A_TURN * TURNS)

    assert _best(seconds_of_a_call, ALLOWANCE * GOAL[backend]) < ALLOWANCE * GOAL[backend]


@pytest.mark.parametrize("backend", GOAL)
def test_the_first_plugin_costs_less_than_the_turns_it_is_called_in(backend: str) -> None:
    assert _best(lambda: seconds_of_a_run(1, backend) / seconds_of_a_run(0, backend), 2.0) < 2.0


def _best(measure: Callable[[], float], enough: float) -> float:
    """Measure again if it was too much: something else may have been in the way."""
    found = measure()
    for _ in range(3):
        if found < enough:
            break
        found = min(found, measure())
    return found
