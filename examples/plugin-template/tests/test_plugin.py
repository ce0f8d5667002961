"""The plugin on real runs, with a scripted model."""

from __future__ import annotations

import pytest
from trilane_example import ExamplePlugin

from trilane import Agent, tool
from trilane.testing import ScriptedModel, assert_events, assert_history, call


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.anyio
async def test_the_rule_is_in_the_request_and_not_in_the_history() -> None:
    model = ScriptedModel("Certainly.")
    result = await Agent(model, plugins=[ExamplePlugin(rule="Be brief.")]).run("Will you?")
    assert model.requests[0].context == ("Be brief.",)
    assert "Be brief." not in repr(result.messages)


@pytest.mark.anyio
async def test_what_is_forbidden_does_not_run() -> None:
    plugin = ExamplePlugin(forbidden=["delete"])
    agent = Agent(ScriptedModel(call("delete", path="a"), "I may not."), tools=[delete], plugins=[plugin])
    async with agent.stream("Delete a.") as run:
        events = [event async for event in run]
    assert_events(events)
    assert_history(run.result.messages)
    assert [event.result.outcome for event in events if event.type == "tool_completed"] == ["denied"]
    assert plugin.endings == {"completed": 1}


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILANE_EXAMPLE_RULE", "Be kind.")
    model = ScriptedModel("Certainly.")
    Agent(model, plugins=[ExamplePlugin()]).run_sync("Will you?")
    assert model.requests[0].context == ("Be kind.",)
