"""The hooks that a run calls before its first turn is sent: what each gets, what it may change, and what fails."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, RunCancelledError, hookimpl, tool
from trilane.errors import AgentProtocolError, PluginError, ToolDefinitionError
from trilane.messages import TextPart, UserMessage
from trilane.state import AgentPhase
from trilane.testing import ScriptedModel, assert_history, call

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


def plugin(hook: str, function: Any, name: str = "under-test") -> Any:
    """A plugin that implements one hook."""
    made = type("Plugin", (), {"name": name, hook: staticmethod(hookimpl(function))})
    return made()


async def failed(agent: Agent[Any, Any], error: type[Exception], match: str, **options: Any) -> Any:
    """Run it; it must fail, name the plugin, call no model, and leave a session that can be used."""
    async with agent.stream("Go", **options) as run:
        with pytest.raises(error, match=match) as caught:
            async for _ in run:
                pass
    assert run.result.status == "failed"
    assert run.result.error is caught.value
    assert_history(run.result.messages)
    return caught.value


# ---- on_tool ---------------------------------------------------------------------------------------------------------


async def test_hook_on_tool_adds_the_tools_of_each_run() -> None:
    seen: list[Any] = []

    def on_tool(run: Any) -> list[Any]:
        seen.append((run.state.phase, run.request.text))
        return [look]

    model = ScriptedModel(call("look"), "A ship.", "Again.")
    agent = Agent(model, plugins=[plugin("on_tool", on_tool)])
    assert (await agent.run("What is there?")).output == "A ship."
    assert (await agent.run("And now?")).output == "Again."
    assert seen == [(AgentPhase.LOADING_CONTEXT, "What is there?"), (AgentPhase.LOADING_CONTEXT, "And now?")]
    assert [spec.name for spec in model.requests[0].tools] == ["look"]


async def test_hook_on_tool_may_be_async_and_may_add_nothing() -> None:
    async def on_tool(run: Any) -> None:
        return None

    model = ScriptedModel("Fine.")
    assert (await Agent(model, plugins=[plugin("on_tool", on_tool)]).run("Go")).output == "Fine."
    assert model.requests[0].tools == ()


@pytest.mark.parametrize(
    ("offered", "says"), [(look, r"such as \[look\]"), (5, r"returned int"), ("look", "returned str")]
)
async def test_hook_on_tool_that_returns_no_list_says_so(offered: Any, says: str) -> None:
    agent = Agent(ScriptedModel(), plugins=[plugin("on_tool", lambda run: offered)])
    await failed(agent, PluginError, f"plugin 'under-test': on_tool .*{says}")


async def test_hook_on_tool_that_raises_fails_the_run() -> None:
    def on_tool(run: Any) -> list[Any]:
        raise LookupError("no tools today")

    model = ScriptedModel()
    error = await failed(Agent(model, plugins=[plugin("on_tool", on_tool)]), LookupError, "no tools today")
    assert "raised in hook on_tool of plugin 'under-test'" in " ".join(error.__notes__)
    assert model.requests == []


async def test_hook_on_tool_may_not_offer_a_name_twice() -> None:
    agent = Agent(ScriptedModel(), tools=[look], plugins=[plugin("on_tool", lambda run: [look])])
    await failed(agent, ToolDefinitionError, r"plugin 'under-test' offers a tool named 'look', and the agent has one")


# ---- on_state --------------------------------------------------------------------------------------------------------


async def test_hook_on_state_prepares_the_run_and_edits_what_it_sees_of_the_history() -> None:
    async def on_state(run: Any) -> None:
        assert run.state.phase is AgentPhase.LOADING_CONTEXT
        run.stash["rules"] = "be brief"
        if run.history:
            del run.history[:2]

    model = ScriptedModel("One.", "Two.")
    agent = Agent(model, plugins=[plugin("on_state", on_state)], instructions=lambda run: str(run.stash["rules"]))
    await agent.run("First", session="s")
    result = await agent.run("Second", session="s")
    assert model.requests[0].instructions == "be brief"
    assert [message.text for message in model.requests[1].messages] == ["Second"]
    # The stored history is whole: a run without the plugin sees all of it.
    plain = ScriptedModel("Three.")
    assert result.output == "Two."
    await Agent(plain, store=agent.store).run("Third", session="s")
    assert [message.text for message in plain.requests[0].messages] == ["First", "One.", "Second", "Two.", "Third"]


async def test_hook_on_state_is_the_last_that_may_edit_the_history() -> None:
    refused: list[Exception] = []

    def before_turn(run: Any) -> None:
        try:
            run.history.clear()
        except AgentProtocolError as error:
            refused.append(error)

    assert (await Agent(ScriptedModel("Fine."), plugins=[plugin("before_turn", before_turn)]).run("Go")).output
    assert "in on_state only" in str(refused[0])


async def test_hook_on_state_that_raises_fails_the_run_and_keeps_the_request() -> None:
    def on_state(run: Any) -> None:
        raise OSError("no rules")

    agent = Agent(ScriptedModel("Now."), plugins=[plugin("on_state", on_state)])
    await failed(agent, OSError, "no rules", session="s")
    again = Agent(ScriptedModel("Now."), store=agent.store)
    assert [message.text for message in (await again.run("Again", session="s")).messages] == ["Go", "Again", "Now."]


# ---- on_message ------------------------------------------------------------------------------------------------------


async def test_hook_on_message_may_change_what_the_user_said() -> None:
    seen: list[tuple[str, str, str]] = []

    def first(run: Any, message: UserMessage) -> UserMessage:
        seen.append(("first", message.origin, message.text))
        return message.replace(parts=(TextPart(text=message.text.replace("secret", "***")),))

    async def second(run: Any, message: UserMessage) -> None:
        seen.append(("second", message.origin, message.text))

    model = ScriptedModel("Fine.")
    # The last registered is called first.
    agent = Agent(model, plugins=[plugin("on_message", second, "second"), plugin("on_message", first, "first")])
    result = await agent.run("My secret")
    assert seen == [("first", "request", "My secret"), ("second", "request", "My ***")]
    assert [message.text for message in result.messages] == ["My ***", "Fine."]


async def test_hook_on_message_sees_steering_and_follow_ups() -> None:
    seen: list[tuple[str, str]] = []

    def on_message(run: Any, message: UserMessage) -> None:
        seen.append((message.origin, message.text))

    agent = Agent(
        ScriptedModel(call("look"), "A ship.", "Blue."), tools=[look], plugins=[plugin("on_message", on_message)]
    )
    async with agent.stream("What is there?") as run:
        async for event in run:
            if event.type == "tool_completed":
                run.steer("Look closely.")
                run.follow_up("Which colour?")
    assert seen == [("request", "What is there?"), ("steering", "Look closely."), ("follow_up", "Which colour?")]


async def test_hook_on_message_that_raises_fails_the_run() -> None:
    def on_message(run: Any, message: UserMessage) -> None:
        raise ValueError("not this")

    model = ScriptedModel()
    await failed(Agent(model, plugins=[plugin("on_message", on_message)]), ValueError, "not this")
    assert model.requests == []


async def test_hook_on_message_must_return_a_message() -> None:
    agent = Agent(ScriptedModel(), plugins=[plugin("on_message", lambda run, message: "text")])
    await failed(agent, PluginError, r"on_message .* returned str; return UserMessage or None")


# ---- before_run, before_turn -----------------------------------------------------------------------------------------


async def test_hook_before_run_is_called_once_before_the_first_turn() -> None:
    order: list[tuple[str, AgentPhase, int]] = []

    class Both:
        name = "both"

        @hookimpl
        def before_run(self, run: Any) -> None:
            order.append(("before_run", run.state.phase, run.turn))

        @hookimpl
        async def before_turn(self, run: Any, turn: int) -> None:
            order.append(("before_turn", run.state.phase, turn))

    await Agent(ScriptedModel(call("look"), "A ship."), tools=[look], plugins=[Both()]).run("Go")
    ready = AgentPhase.READY
    assert order == [("before_run", ready, 0), ("before_turn", ready, 1), ("before_turn", ready, 2)]


async def test_hook_before_run_that_raises_fails_the_run() -> None:
    def before_run(run: Any) -> None:
        raise PermissionError("closed on Sundays")

    model = ScriptedModel()
    await failed(Agent(model, plugins=[plugin("before_run", before_run)]), PermissionError, "closed on Sundays")
    assert model.requests == []


async def test_hook_before_turn_may_stop_the_run() -> None:
    def before_turn(run: Any, turn: int) -> None:
        if turn == 2:
            run.stop("enough")

    model = ScriptedModel(call("look"), "never")
    agent = Agent(model, tools=[look], plugins=[plugin("before_turn", before_turn)])
    with pytest.raises(RunCancelledError, match="enough") as caught:
        await agent.run("Go")
    assert caught.value.result is not None
    assert caught.value.result.status == "cancelled"
    assert len(model.requests) == 1


async def test_hook_before_turn_that_raises_fails_the_run() -> None:
    def before_turn(run: Any, turn: int) -> None:
        raise RuntimeError(f"not turn {turn}")

    await failed(Agent(ScriptedModel(), plugins=[plugin("before_turn", before_turn)]), RuntimeError, "not turn 1")
