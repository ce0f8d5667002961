"""The hooks of the other two lanes: `on_event` for notifications, `on_reply` for what comes back from outside."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from trilane import Agent, ExtensionEvent, PhaseTransitionEvent, Reject, ToolContext, hookimpl, tool
from trilane.errors import AgentProtocolError
from trilane.events import QuestionClosedEvent, QuestionOpenedEvent
from trilane.testing import EventRecorder, ScriptedModel, call, record

pytestmark = pytest.mark.anyio


class NotedEvent(ExtensionEvent):
    """A notification of a plugin."""

    text: str


def plugin(hook: str, function: Any, name: str = "under-test") -> Any:
    """A plugin that implements one hook."""
    made = type("Plugin", (), {"name": name, hook: staticmethod(hookimpl(function))})
    return made()


@tool
async def greet(ctx: ToolContext[None]) -> str:
    """Greet somebody."""
    return f"hello {await ctx.ask('Who?')}"


async def streamed(agent: Agent[Any, Any]) -> tuple[EventRecorder, Any]:
    async with agent.stream("Go") as run:
        events = await record(run)
    events.check()
    return events, run


# ---- on_event --------------------------------------------------------------------------------------------------------


async def test_hook_on_event_gets_every_notification_in_order_and_the_caller_gets_none() -> None:
    heard: list[tuple[str, str]] = []

    class Speaker:
        name = "speaker"

        @hookimpl
        async def before_turn(self, run: Any, turn: int) -> None:
            await run.publish(NotedEvent(text=f"turn {turn}"))

    def hearing(name: str) -> Any:
        def on_event(run: Any, notification: ExtensionEvent) -> None:
            if isinstance(notification, NotedEvent):
                heard.append((name, notification.text))

        return plugin("on_event", on_event, name)

    agent = Agent(ScriptedModel("Fine."), plugins=[hearing("second"), hearing("first"), Speaker()])
    events, _ = await streamed(agent)
    assert heard == [("first", "turn 1"), ("second", "turn 1")]
    assert "turn 1" not in repr(events.events)


async def test_hook_on_event_is_told_of_every_phase_after_the_change() -> None:
    seen: list[bool] = []

    async def on_event(run: Any, notification: ExtensionEvent) -> None:
        if isinstance(notification, PhaseTransitionEvent):
            seen.append(run.state.phase is notification.phase)

    events, _ = await streamed(Agent(ScriptedModel("Fine."), plugins=[plugin("on_event", on_event)]))
    assert len(seen) == len(events.phases())
    assert all(seen)


async def test_hook_on_event_may_be_addressed_alone() -> None:
    heard: list[str] = []

    def hearing(name: str) -> Any:
        def on_event(run: Any, notification: ExtensionEvent) -> None:
            if isinstance(notification, NotedEvent):
                heard.append(name)

        return plugin("on_event", on_event, name)

    async def before_run(run: Any) -> None:
        await run.publish(NotedEvent(text="for you"), to="second")
        with pytest.raises(AgentProtocolError, match="no active plugin of that name has an on_event hook"):
            await run.publish(NotedEvent(text="for nobody"), to="third")

    plugins = [hearing("second"), hearing("first"), plugin("before_run", before_run, "speaker")]
    await streamed(Agent(ScriptedModel("Fine."), plugins=plugins))
    assert heard == ["second"]


async def test_hook_on_event_may_not_publish_itself() -> None:
    refused: list[str] = []

    async def on_event(run: Any, notification: ExtensionEvent) -> None:
        try:
            await run.publish(NotedEvent(text="echo"))
        except AgentProtocolError as error:
            refused.append(str(error))

    await streamed(Agent(ScriptedModel("Fine."), plugins=[plugin("on_event", on_event)]))
    assert set(refused) == {"publish() inside on_event would never end; publish from another hook"}


async def test_hook_on_event_that_raises_is_reported_and_the_others_are_called() -> None:
    heard: list[str] = []

    def on_event(run: Any, notification: ExtensionEvent) -> None:
        raise KeyError("bell")

    def hearing(run: Any, notification: ExtensionEvent) -> None:
        heard.append(type(notification).__name__)

    agent = Agent(ScriptedModel("Fine."), plugins=[plugin("on_event", hearing, "other"), plugin("on_event", on_event)])
    _, run = await streamed(agent)
    assert run.result.output == "Fine."
    assert heard.count("PhaseTransitionEvent") == 5
    failures = run.result.hook_failures
    assert [(one.plugin, one.hook) for one in failures] == [("under-test", "on_event")] * 3
    assert [one.disabled for one in failures] == [False, False, True]  # switched off after three in a row


# ---- on_reply --------------------------------------------------------------------------------------------------------


async def asked(agent: Agent[Any, Any], *payloads: Any) -> tuple[list[Any], Any]:
    """Run `greet` and give these replies; the receipts, and the result."""
    receipts = []
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                receipts += [run.reply(event.question.id, payload) for payload in payloads]
    return receipts, run.result


async def test_hook_on_reply_may_change_the_reply_and_the_first_value_counts() -> None:
    seen: list[tuple[str, str, Any, str]] = []

    def replying(name: str, change: Any) -> Any:
        def on_reply(run: Any, question: Any, payload: Any) -> Any:
            seen.append((name, question.prompt, payload, threading.current_thread().name))
            return change(payload)

        return plugin("on_reply", on_reply, name)

    plugins = [
        replying("third", lambda payload: "never"),
        replying("second", lambda payload: payload.title()),
        replying("first", lambda payload: None),
    ]
    agent = Agent(ScriptedModel(call("greet"), "Done."), tools=[greet], plugins=plugins)
    receipts, result = await asked(agent, "ada")
    here = threading.current_thread().name
    assert seen == [("first", "Who?", "ada", here), ("second", "Who?", "ada", here)]
    assert [receipt.status for receipt in receipts] == ["accepted"]
    assert result.messages[2].results[0].content == "hello Ada"


async def test_hook_on_reply_is_called_in_the_thread_that_replies() -> None:
    threads: list[str] = []

    def on_reply(run: Any, question: Any, payload: Any) -> None:
        threads.append(threading.current_thread().name)

    agent = Agent(ScriptedModel(call("greet"), "Done."), tools=[greet], plugins=[plugin("on_reply", on_reply)])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                thread = threading.Thread(target=run.reply, args=(event.question.id, "Ada"), name="web handler")
                thread.start()
                thread.join()
    assert threads == ["web handler"]


async def test_hook_on_reply_may_refuse_and_the_question_stays_open() -> None:
    def on_reply(run: Any, question: Any, payload: Any) -> Reject | None:
        return Reject(reason="no strangers") if payload != "Ada" else None

    agent = Agent(ScriptedModel(call("greet"), "Done."), tools=[greet], plugins=[plugin("on_reply", on_reply)])
    receipts, result = await asked(agent, "Eve", "Ada")
    assert [(receipt.status, receipt.reasons) for receipt in receipts] == [
        ("invalid", ("no strangers",)),
        ("accepted", ()),
    ]
    assert result.messages[2].results[0].content == "hello Ada"


async def test_hook_on_reply_that_raises_makes_the_receipt_invalid() -> None:
    fail = [True]

    def on_reply(run: Any, question: Any, payload: Any) -> None:
        if fail:
            fail.clear()
            raise KeyError("roles")

    agent = Agent(ScriptedModel(call("greet"), "Done."), tools=[greet], plugins=[plugin("on_reply", on_reply)])
    receipts, result = await asked(agent, "Ada", "Ada")
    assert [receipt.status for receipt in receipts] == ["invalid", "accepted"]
    assert "under-test" in receipts[0].reasons[0]
    assert result.status == "completed"


async def test_hook_on_event_is_told_when_questions_open_and_close() -> None:
    heard: list[type] = []

    def on_event(run: Any, notification: ExtensionEvent) -> None:
        if isinstance(notification, QuestionOpenedEvent | QuestionClosedEvent):
            heard.append(type(notification))

    agent = Agent(ScriptedModel(call("greet"), "Done."), tools=[greet], plugins=[plugin("on_event", on_event)])
    await asked(agent, "Ada")
    assert heard == [QuestionOpenedEvent, QuestionClosedEvent]
