"""Two hundred turns under the limit, and a cost for each that does not grow with what was before."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, ModelResponse, TextPart, ToolCallPart, Usage, tool
from trilane.testing import assert_history, call
from trilane_compact import CompactPlugin
from trilane_compact.counting import tokens_of_all

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]
WINDOW = 4000
LONG = "ships and harbours " * 15


@tool(effect="read")
async def look(at: int) -> str:
    """Look.

    Args:
        at: Where.
    """
    return f"At {at}: {LONG}"


def work(request: Any, *, counts: bool) -> ModelResponse:
    """Looks twice at once for each request, and then answers."""
    usage = Usage(input_tokens=200 + tokens_of_all(request.messages) * 5 // 4) if counts else Usage()
    if request.messages[-1].kind == "tool":
        return ModelResponse(parts=(TextPart(text=f"Seen. {LONG}"),), usage=usage)
    calls = tuple([ToolCallPart(call=call("look", at=at)) for at in (1, 2)])
    return ModelResponse(parts=calls, stop_reason="tool_calls", usage=usage)


@pytest.mark.parametrize("counts", [True, False])
async def test_200_turns_stay_under_the_limit(worker: Make, counts: bool) -> None:
    model = worker("Ships were looked at. " * 20, answer=lambda request: work(request, counts=counts))
    plugin = CompactPlugin(context_tokens=WINDOW)
    agent = Agent(model, tools=[look], plugins=[plugin])
    for n in range(100):  # two turns each
        result = await agent.run(f"{n}: {LONG}", session="s")
        assert result.hook_failures == ()
    assert len(model.turns) == 200
    factor = 5 / 4 if counts else 1
    sizes = [tokens_of_all(request.messages) * factor for request in model.turns]
    assert max(sizes) < WINDOW
    assert max(sizes) > WINDOW / 2  # it is used, too
    assert sum(sizes[100:]) / 100 > WINDOW / 3
    for request in (*model.turns, *model.asked):
        assert_history(request.messages, as_request=True)
        assert tokens_of_all(request.messages) < WINDOW
    assert model.turns[-1].messages[0].text.startswith("0: ships")
    assert 5 < len(model.asked) < 30  # once in a while, not in every turn


async def test_a_turn_costs_no_more_the_longer_the_session_is(worker: Make) -> None:
    plugin = CompactPlugin()  # a context that is never full
    agent = Agent(worker(answer=lambda request: work(request, counts=True)), tools=[look], plugins=[plugin])
    gauge = plugin._gauges.of("s")
    looked_at = []
    for n in range(60):
        await agent.run(f"{n}: {LONG}", session="s")
        looked_at.append(gauge.looked_at)
    steps = {later - earlier for earlier, later in itertools.pairwise(looked_at)}
    assert steps == {4}  # the messages that are new, whatever was before


async def test_after_a_compaction_only_the_view_is_counted_anew(worker: Make) -> None:
    plugin = CompactPlugin(context_tokens=WINDOW)
    agent = Agent(worker(answer=lambda request: work(request, counts=False)), tools=[look], plugins=[plugin])
    for n in range(100):
        await agent.run(f"{n}: {LONG}", session="s")
    assert plugin._gauges.of("s").looked_at < 3 * 400  # of 400 messages, each at most thrice on average
