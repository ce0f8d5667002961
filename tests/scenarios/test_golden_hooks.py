"""Golden orders: every hook of a run with its phase, for runs that succeed, fail and are stopped."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, RetryModel, hookimpl, tool
from trilane.errors import RunCancelledError
from trilane.hookspecs import HOOKS
from trilane.messages import Approval
from trilane.testing import Recorder, ScriptedModel, Step, call, record

pytestmark = pytest.mark.anyio


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


@tool
async def look() -> str:
    """Look."""
    return "a ship"


class Retrier:
    """Tries again after an error of the model; the only other plugin."""

    name = "retrier"

    @hookimpl
    def on_model_error(self, error: Exception) -> RetryModel | None:
        return RetryModel() if isinstance(error, ConnectionError) else None


def lines(recorder: Recorder) -> list[str]:
    """What was called, as `phase hook detail`."""
    found = []
    for made in recorder.calls:
        if made.phase is not None:
            detail = "" if made.detail is None else f" {made.detail}"
            found.append(f"{made.phase.value} {made.hook}{detail}")
    return found


COMPLETE = """\
loading_context on_event PhaseTransitionEvent
loading_context on_tool
loading_context on_state
loading_context on_message Pay 5
ready on_event MessageAppendedEvent
ready on_event PhaseTransitionEvent
ready before_run
compacting on_event PhaseTransitionEvent
compacting on_compact
ready on_event PhaseTransitionEvent
ready before_turn 1
ready on_model_request 1
generating on_event PhaseTransitionEvent
generating around_model 1
generating on_model_error ConnectionError
generating around_model 1
generating on_delta ('', False)
generating on_delta ('{"amount": 5', False)
generating on_delta ('}', False)
ready on_event PhaseTransitionEvent
ready after_model tool_calls
ready on_event MessageAppendedEvent
ready decide_tool pay
running_tool on_event PhaseTransitionEvent
running_tool on_event QuestionOpenedEvent
running_tool on_reply approval
running_tool on_event QuestionClosedEvent
running_tool decide_tool pay
running_tool before_tool pay
running_tool around_tool pay
running_tool after_tool ('pay', 'ok')
ready on_event MessageAppendedEvent
ready on_event PhaseTransitionEvent
ready after_turn 1
compacting on_event PhaseTransitionEvent
compacting on_compact
ready on_event PhaseTransitionEvent
ready before_turn 2
ready on_model_request 2
generating on_event PhaseTransitionEvent
generating around_model 2
generating on_delta ('Paid.', False)
generating on_delta ('', True)
ready on_event PhaseTransitionEvent
ready after_model end
ready on_event MessageAppendedEvent
ready after_turn 2
ready on_answer Paid.
completed on_event PhaseTransitionEvent
completed after_run completed
completed on_success completed
completed close_run completed
"""


async def approve(agent: Agent[Any, Any], request: str, **options: Any) -> None:
    """Read a run to its end and approve whatever it asks."""
    async with agent.stream(request, **options) as run:
        async for event in run:
            if event.type == "reply_requested":
                assert run.reply(event.question.id, {"approve": True}).status == "accepted"


async def test_every_hook_of_a_complete_run_in_order() -> None:
    recorder = Recorder()
    model = ScriptedModel(ConnectionError("gone"), call("pay", amount=5), "Paid.")
    agent = Agent(model, tools=[pay], plugins=[Retrier(), recorder])
    await approve(agent, "Pay 5")
    assert lines(recorder) == COMPLETE.splitlines()
    # The hooks of runs that are not in it are those of the two other ends.
    of_runs = {name for name, info in HOOKS.items() if info.phases}
    assert of_runs - set(recorder.names()) == {"on_error", "on_cancel"}
    for made in recorder.calls:
        assert made.phase in HOOKS[made.hook].phases if made.phase else HOOKS[made.hook].mode == "register"


async def test_registration_comes_before_every_run() -> None:
    recorder = Recorder()
    Agent(ScriptedModel(), plugins=[recorder])
    assert sorted(recorder.names()) == ["register_models", "register_settings", "register_stores"]


async def test_r35_the_same_script_gives_the_same_order_200_times() -> None:
    first: list[str] = []
    for _ in range(200):
        recorder = Recorder(without=["on_compact"])
        agent = Agent(ScriptedModel(call("look"), "A ship."), tools=[look], plugins=[recorder])
        await agent.run("Look")
        first = first or lines(recorder)
        assert lines(recorder) == first


FAILED = """\
ready on_model_request 1
generating around_model 1
generating on_model_error ValueError
failed on_error ValueError
failed close_run failed
"""


async def test_hooks_of_a_run_that_fails() -> None:
    recorder = Recorder(without=["on_event", "on_compact"])
    boom = ValueError("no")
    agent = Agent(ScriptedModel(boom), plugins=[recorder])
    with pytest.raises(ValueError, match="no") as caught:
        await agent.run("Look")
    assert caught.value is boom
    made = lines(recorder)
    assert made[made.index("ready on_model_request 1") :] == FAILED.splitlines()
    assert "completed" not in "".join(made)


CANCELLED = """\
running_tool before_tool look
running_tool around_tool look
running_tool after_tool ('look', 'not_started')
cancelled on_cancel enough
cancelled close_run cancelled
"""


async def test_r47_hooks_of_a_run_that_is_stopped() -> None:
    class Stopper:
        name = "stopper"

        @hookimpl
        def before_tool(self, run: Any) -> None:
            run.stop("enough")

    recorder = Recorder(without=["on_event", "on_compact"])
    agent = Agent(ScriptedModel(call("look"), "A ship."), tools=[look], plugins=[recorder, Stopper()])
    with pytest.raises(RunCancelledError, match="enough"):
        await agent.run("Look")
    made = lines(recorder)
    assert made[made.index("running_tool before_tool look") :] == CANCELLED.splitlines()
    assert not {"after_run", "on_success", "on_error", "on_answer", "after_turn"} & set(recorder.names())


async def test_r46_the_cancel_is_notified_before_on_cancel_is_called() -> None:
    recorder = Recorder(only=["on_event", "on_cancel", "close_run"])
    agent = Agent(ScriptedModel("Never read."), plugins=[recorder])
    async with agent.stream("Look") as run:
        await run.__anext__()
    assert run.state.phase.value == "cancelled"
    assert lines(recorder)[-4:] == [
        "cancelled on_event PhaseTransitionEvent",
        "cancelled on_event RunCancelledEvent",
        "cancelled on_cancel the stream was closed by its reader",
        "cancelled close_run cancelled",
    ]


async def test_plugins_nest() -> None:
    """In the way in is the registry's order (last registered first); the way out is the same backwards."""
    order: list[str] = []

    class Layer:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def before_run(self) -> None:
            order.append(f"before_run {self.name}")

        @hookimpl
        async def around_tool(self, call_next: Any) -> Any:
            order.append(f"in {self.name}")
            result = await call_next()
            order.append(f"out {self.name}")
            return result

        @hookimpl
        def before_tool(self) -> None:
            order.append(f"before_tool {self.name}")

        @hookimpl
        def after_tool(self) -> None:
            order.append(f"after_tool {self.name}")

        @hookimpl
        def after_run(self) -> None:
            order.append(f"after_run {self.name}")

        @hookimpl
        def on_success(self) -> None:
            order.append(f"on_success {self.name}")

        @hookimpl
        def close_run(self) -> None:
            order.append(f"close_run {self.name}")

    agent = Agent(ScriptedModel(call("look"), "A ship."), tools=[look], plugins=[Layer("a"), Layer("b")])
    await agent.run("Look")
    assert order == [
        *("before_run b", "before_run a"),
        *("before_tool b", "before_tool a", "in b", "in a", "out a", "out b", "after_tool a", "after_tool b"),
        *("after_run a", "after_run b", "on_success a", "on_success b", "close_run a", "close_run b"),
    ]


async def test_order_on_both_ends_of_an_approval_with_other_arguments() -> None:
    recorder = Recorder(only=["decide_tool", "on_reply", "before_tool"])
    agent = Agent(ScriptedModel(call("pay", amount=5), "Paid."), tools=[pay], plugins=[recorder])
    async with agent.stream("Pay") as run:
        async for event in run:
            if event.type == "reply_requested":
                run.reply(event.question.id, {"approve": True, "arguments": {"amount": 4}})
        assert run.result.messages[2].kind == "tool"
        assert run.result.messages[2].results[0].content == "paid 4"
    assert recorder.names() == ["decide_tool", "on_reply", "decide_tool", "before_tool"]


async def test_every_hook_may_be_async_def() -> None:
    """The same order when implementations await; `on_delta`, `on_reply` and `register_` hooks are sync by contract."""
    order: list[str] = []

    def implement(name: str) -> Any:
        arguments = HOOKS[name].arguments
        if HOOKS[name].mode == "around":
            body = "    seen.append(name)\n    return await call_next(*([request] if 'request' in locals() else []))"
        else:
            body = "    seen.append(name)\n    await checkpoint()"
        scope: dict[str, Any] = {"seen": order, "name": name}
        from anyio.lowlevel import checkpoint

        scope["checkpoint"] = checkpoint
        exec(f"async def {name}({', '.join(arguments)}):\n{body}", scope)
        return hookimpl(scope[name])

    class Plugin:
        name = "all"

        def __init__(self) -> None:
            for hook, info in HOOKS.items():
                if not info.sync:
                    setattr(self, hook, implement(hook))

    recorder = Recorder(without=[name for name, info in HOOKS.items() if info.sync])
    model = ScriptedModel(call("look"), Step("A ship."))
    agent = Agent(model, tools=[look], plugins=[Plugin(), recorder], answer=None)
    async with agent.stream("Look") as run:
        await record(run)
    assert order == recorder.names()


async def test_an_approval_needs_no_plugin() -> None:
    agent = Agent(ScriptedModel(call("pay", amount=5), "Paid."), tools=[pay])

    async def answer(_question: Any) -> Any:
        return Approval(approve=True)

    assert (await agent.run("Pay", answer=answer)).output == "Paid."
