"""`decide_tool`: every decision and how decisions are combined, on running agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, Allow, Ask, Deny, Rewrite, UseResult, hookimpl, tool
from trilane.events import PluginFailed, ToolCompleted, ToolStarted
from trilane.messages import Approval, ToolResult
from trilane.testing import EventRecorder, ScriptedModel, call, record

pytestmark = pytest.mark.anyio

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
async def move(path: str, mode: str = "plain") -> str:
    """Move.

    Args:
        path: What.
        mode: How.
    """
    ran.append(f"{path}:{mode}")
    return f"moved {path}"


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    ran.append(f"pay {amount}")
    return f"paid {amount}"


class Decider:
    """A plugin whose decisions are a function of the call."""

    def __init__(self, name: str, decide: Callable[[Any], Any], *, strict: bool = False) -> None:
        self.name = name
        self.strict = strict
        self.asked: list[dict[str, Any]] = []
        self._decide = decide

    @hookimpl
    def decide_tool(self, run: Any, call: Any) -> Any:
        self.asked.append(dict(call.arguments))
        return self._decide(call)


def deciders(**functions: Callable[[Any], Any]) -> list[Decider]:
    """Plugins that are asked in the order given."""
    return [Decider(name, decide) for name, decide in reversed(functions.items())]


async def played(plugins: list[Any], *calls: Any, reply: Any = None, **options: Any) -> EventRecorder:
    """One batch of calls; every question is answered with `reply` (a list: one after the other)."""
    replies = list(reply) if isinstance(reply, list) else None
    agent = Agent(ScriptedModel(list(calls) or [call("move", path="a")], "Done."), tools=[move, pay], plugins=plugins)
    events = EventRecorder()
    async with agent.stream("Go", **options) as run:
        async for event in run:
            events.events.append(event)
            if event.type == "reply_requested":
                payload = replies.pop(0) if replies is not None else reply
                assert run.reply(event.question.id, payload).status == "accepted"
    events.check()
    assert run.result.output == "Done."
    return events


def result_of(events: EventRecorder) -> ToolResult:
    return events.one(ToolCompleted).result


def questions(events: EventRecorder) -> list[Any]:
    return [event.question for event in events if event.type == "reply_requested"]


async def test_every_plugin_is_asked_and_none_and_allow_mean_the_same() -> None:
    plugins = deciders(first=lambda _: None, second=lambda _: Allow())
    events = await played(plugins)
    assert [len(plugin.asked) for plugin in plugins] == [1, 1]
    assert result_of(events).content == "moved a"


async def test_w21_deny_ends_the_asking_and_the_run_goes_on() -> None:
    plugins = deciders(first=lambda _: Deny(reason="Sundays only"), second=lambda _: Allow())
    events = await played(plugins)
    assert [len(plugin.asked) for plugin in plugins] == [0, 1]  # the second was not asked any more
    assert (result_of(events).outcome, ran) == ("denied", [])
    assert "Sundays only" in str(result_of(events).content)
    assert not events.of(ToolStarted)


async def test_a_deny_wins_over_earlier_asks_and_results() -> None:
    plugins = deciders(
        first=lambda _: Ask(prompt="May I?"),
        second=lambda _: UseResult(result=ToolResult(call_id="", content="cached")),
        third=lambda _: Deny(reason="never"),
    )
    events = await played(plugins)
    assert result_of(events).outcome == "denied"
    assert not questions(events)


async def test_a_rewrite_asks_everybody_again_about_the_new_arguments() -> None:
    def rewrite(made: Any) -> Any:
        return Rewrite(arguments={"path": "b"}) if made.arguments["path"] == "a" else None

    plugins = deciders(guard=lambda _: None, rewriter=rewrite, last=lambda _: None)
    events = await played(plugins)
    last, rewriter, guard = plugins
    assert guard.asked == [{"path": "a"}, {"path": "b"}]
    assert rewriter.asked == [{"path": "a"}, {"path": "b"}]
    assert last.asked == [{"path": "b"}]
    assert ran == ["b:plain"]
    assert events.one(ToolStarted).call.arguments == {"path": "b"}


async def test_what_a_guard_denies_cannot_be_smuggled_in_by_a_later_rewrite() -> None:
    plugins = deciders(
        guard=lambda made: Deny(reason="secret") if made.arguments["path"] == "secret" else None,
        rewriter=lambda made: Rewrite(arguments={"path": "secret"}),
    )
    events = await played(plugins)
    assert (result_of(events).outcome, ran) == ("denied", [])


async def test_a_rewrite_to_equal_arguments_is_allow() -> None:
    plugins = deciders(same=lambda made: Rewrite(arguments=dict(made.arguments)))
    events = await played(plugins)
    assert len(plugins[0].asked) == 1
    assert result_of(events).outcome == "ok"


async def test_eight_rounds_of_rewriting_deny_and_name_the_plugins() -> None:
    plugins = deciders(
        ping=lambda made: Rewrite(arguments={"path": "ping"}) if made.arguments["path"] != "ping" else None,
        pong=lambda made: Rewrite(arguments={"path": "pong"}) if made.arguments["path"] != "pong" else None,
    )
    events = await played(plugins)
    assert result_of(events).outcome == "denied"
    assert "ping, pong" in str(result_of(events).content)
    assert "8 times" in str(result_of(events).content)
    assert ran == []
    assert len(plugins[1].asked) == 8


async def test_use_result_answers_without_running() -> None:
    plugins = deciders(cache=lambda _: UseResult(result=ToolResult(call_id="wrong", content="from the cache")))
    events = await played(plugins)
    completed = events.one(ToolCompleted)
    assert (completed.result.content, completed.result.call_id) == ("from the cache", completed.call.id)
    assert ran == []
    assert not events.of(ToolStarted)


async def test_use_result_serves_a_tool_that_nobody_has() -> None:
    plugins = deciders(cache=lambda _: UseResult(result=ToolResult(call_id="", content="served")))
    events = await played(plugins, call("unheard_of"))
    assert result_of(events).content == "served"


async def test_ask_beats_use_result_and_allow() -> None:
    plugins = deciders(
        cache=lambda _: UseResult(result=ToolResult(call_id="", content="cached")), asker=lambda _: Ask(prompt="Sure?")
    )
    events = await played(plugins, reply={"approve": False, "reason": "no"})
    assert [question.prompt for question in questions(events)] == ["Sure?"]
    assert result_of(events).outcome == "denied"


async def test_approved_ask_then_a_cached_result_is_used() -> None:
    plugins = deciders(
        cache=lambda _: UseResult(result=ToolResult(call_id="", content="cached")), asker=lambda _: Ask(prompt="Sure?")
    )
    events = await played(plugins, reply={"approve": True})
    assert (result_of(events).content, ran) == ("cached", [])


@pytest.mark.parametrize("bad", [ValueError("broken"), KeyError("x")])
async def test_an_error_while_deciding_denies(bad: Exception) -> None:
    def fail(_: Any) -> Any:
        raise bad

    plugins = deciders(broken=fail, other=lambda _: Allow())
    events = await played(plugins)
    assert (result_of(events).outcome, ran) == ("denied", [])
    assert "plugin 'broken'" in str(result_of(events).content)
    failed = events.one(PluginFailed)
    assert (failed.plugin, failed.hook, failed.error) == ("broken", "decide_tool", bad)


async def test_something_that_is_no_decision_denies() -> None:
    events = await played(deciders(odd=lambda _: True))
    assert (result_of(events).outcome, ran) == ("denied", [])
    assert "decide_tool returned bool" in str(events.one(PluginFailed).error)


async def test_a_plugin_that_changes_the_arguments_it_sees_changes_nothing() -> None:
    def meddle(made: Any) -> Any:
        made.arguments["path"] = "meddled"

    await played(deciders(meddler=meddle))
    assert ran == ["a:plain"]


async def test_a_rewrite_that_does_not_fit_the_tool_is_an_error_result() -> None:
    events = await played(deciders(odd=lambda _: Rewrite(arguments={"nonsense": 1})))
    assert (result_of(events).outcome, ran) == ("error", [])
    assert "nonsense" in str(result_of(events).content)


# ---- Ask and approvals


async def test_the_question_has_everything_an_asker_needs() -> None:
    events = await played(deciders(asker=lambda _: Ask(prompt="Move it?")), reply={"approve": True})
    (question,) = questions(events)
    assert (question.kind, question.prompt, question.asked_by) == ("approval", "Move it?", "asker")
    assert question.call is not None
    assert question.call.arguments == {"path": "a"}
    assert set(question.schema["properties"]) == {"approve", "arguments", "reason"}
    assert ran == ["a:plain"]


async def test_one_question_stands_for_all_who_asked_in_a_round() -> None:
    plugins = deciders(one=lambda _: Ask(prompt="Because of me?"), two=lambda _: Ask(prompt="And of me?"))
    events = await played(plugins, reply={"approve": True})
    (question,) = questions(events)
    assert question.prompt.splitlines() == ["Because of me?", "And of me?"]
    assert question.asked_by == "one, two"
    assert ran == ["a:plain"]


async def test_an_approved_call_is_decided_again_with_the_approval_attached() -> None:
    seen: list[Approval | None] = []

    def ask(made: Any) -> Any:
        seen.append(made.approval)
        return Ask(prompt="May I?")

    events = await played(deciders(asker=ask), reply={"approve": True, "reason": "fine"})
    assert seen == [None, Approval(approve=True, reason="fine")]
    assert len(questions(events)) == 1  # an Ask for an approved hash is Allow
    assert result_of(events).outcome == "ok"


async def test_edited_arguments_are_decided_again_and_what_runs_is_what_was_decided() -> None:
    plugins = deciders(
        guard=lambda made: Deny(reason="secret") if made.arguments["path"] == "secret" else None,
        asker=lambda _: Ask(prompt="May I?"),
    )
    events = await played(plugins, reply={"approve": True, "arguments": {"path": "secret"}})
    assert (result_of(events).outcome, ran) == ("denied", [])
    assert plugins[1].asked == [{"path": "a"}, {"path": "secret"}]


async def test_edited_arguments_that_pass_are_the_ones_that_run() -> None:
    events = await played(
        deciders(asker=lambda _: Ask(prompt="May I?")), reply={"approve": True, "arguments": {"path": "b"}}
    )
    assert ran == ["b:plain"]
    assert events.one(ToolStarted).call.arguments == {"path": "b"}


async def test_a_rewrite_after_the_approval_needs_another_approval() -> None:
    def rewrite(made: Any) -> Any:
        if made.approval is not None and "mode" not in made.arguments:
            return Rewrite(arguments={"path": "b", "mode": "forced"})
        return None

    plugins = deciders(asker=lambda _: Ask(prompt="May I?"), rewriter=rewrite)
    events = await played(plugins, reply=[{"approve": True}, {"approve": False, "reason": "not that"}])
    assert len(questions(events)) == 2
    assert questions(events)[1].call.arguments == {"path": "b", "mode": "forced"}
    assert (result_of(events).outcome, ran) == ("denied", [])
    assert "not that" in str(result_of(events).content)


async def test_edited_arguments_that_do_not_fit_are_an_error_result() -> None:
    events = await played([], call("pay", amount=5), reply={"approve": True, "arguments": {"amount": "much"}})
    assert (result_of(events).outcome, ran) == ("error", [])


async def test_a_tool_that_needs_approval_asks_by_itself() -> None:
    events = await played([], call("pay", amount=5), reply={"approve": True})
    (question,) = questions(events)
    assert question.asked_by == "pay"
    assert ran == ["pay 5"]


async def test_a_question_with_a_schema_of_its_own() -> None:
    plugins = deciders(asker=lambda _: Ask(prompt="Type yes", schema=bool))
    events = await played(plugins, reply=True)
    assert questions(events)[0].schema == {"type": "boolean"}
    assert ran == ["a:plain"]
    ran.clear()
    assert result_of(await played(plugins, reply=False)).outcome == "denied"
    assert ran == []


async def test_a_denied_approval_gives_the_reason_to_the_model() -> None:
    events = await played([], call("pay", amount=5), reply={"approve": False, "reason": "too much"})
    assert result_of(events).outcome == "denied"
    assert "too much" in str(result_of(events).content)
    assert ran == []


async def test_bad_arguments_are_refused_before_anybody_is_asked() -> None:
    events = await played([], call("pay", amount="much"))
    assert not questions(events)
    assert result_of(events).outcome == "error"


async def test_the_ledger_counts_decisions() -> None:
    agent = Agent(
        ScriptedModel([call("move", path="a"), call("move", path="b")], "Done."),
        tools=[move],
        plugins=deciders(denier=lambda made: Deny(reason="no") if made.arguments["path"] == "a" else None),
    )
    async with agent.stream("Go") as run:
        await record(run)
    (row,) = [row for row in run.result.ledger if row.hook == "decide_tool"]
    assert (row.plugin, row.calls, row.errors, row.changes) == ("denier", 2, 0, 1)
