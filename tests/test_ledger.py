"""What plugins changed: counted in every run, kept from what to what where the run is traced."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, hookimpl, tool
from trilane.decisions import Ask, CompactedHistory, Deny, Replace, RetryModel, Rewrite, SendBack, UseResult
from trilane.ledger import Ledger, ValueChange, difference
from trilane.messages import ReasoningPart, TextPart, ToolCall, ToolResult, UserMessage
from trilane.result import RunResult
from trilane.testing import ScriptedModel, Step, call
from trilane.testing.models import ScriptStep

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tool
def look(place: str) -> str:
    """Look somewhere.

    Args:
        place: Where.
    """
    return f"a ship in {place}"


def plugin(hook: str, function: Any, name: str = "changer") -> object:
    """A plugin with one hook."""
    return type("Plugin", (), {"name": name, hook: staticmethod(hookimpl(function))})()


async def changes(hook: str, function: Any, *steps: ScriptStep, **options: Any) -> list[ValueChange]:
    """What a run with that hook says was changed; also checks that the counts of the rows agree."""
    agent = Agent(ScriptedModel(*(steps or ("Done.",))), tools=[look], plugins=[plugin(hook, function)])
    result = await agent.run("Hello", trace_plugins=True, **options)
    (row,) = [row for row in result.ledger if row.hook == hook]
    assert row.changes == len(result.ledger.changes)
    assert {(change.plugin, change.hook) for change in result.ledger.changes} <= {("changer", hook)}
    return result.ledger.changes


def look_in(place: str) -> ToolCall:
    return call("look", place=place)


async def test_a_request_is_traced_with_the_fields_that_differ() -> None:
    (change,) = await changes("on_model_request", lambda request: request.with_context("It is noon."))
    assert (change.subject, change.turn) == ("request", 1)
    assert (change.before, change.after) == ({"context": []}, {"context": ["It is noon."]})


async def test_what_is_not_changed_is_not_traced() -> None:
    assert await changes("on_model_request", lambda request: request) == []
    assert await changes("on_model_request", lambda request: request.replace()) == []


async def test_arguments_are_traced_with_the_tool() -> None:
    (change,) = await changes(
        "decide_tool",
        lambda call: Rewrite(arguments={**call.arguments, "place": "port"}),
        look_in("sea"),
        "Done.",
    )
    assert (change.subject, change.about) == ("arguments", "look")
    assert (change.before, change.after) == ({"place": "sea"}, {"place": "port"})


@pytest.mark.parametrize(
    ("decision", "after"),
    [
        (Deny(reason="no"), {"Deny": {"reason": "no"}}),
        (
            UseResult(result=ToolResult(call_id="", content="fog")),
            {"UseResult": {"result": {"call_id": "", "content": "fog"}}},
        ),
        (Ask(prompt="May I?"), {"Ask": {"prompt": "May I?"}}),
    ],
)
async def test_decisions_are_traced(decision: Any, after: Any) -> None:
    (change,) = await changes("decide_tool", lambda: decision, look_in("sea"), "Done.")
    assert (change.subject, change.about, change.before, change.after) == ("decision", "look", None, after)


async def test_a_result_is_traced_after_and_around_the_tool() -> None:
    (change,) = await changes("after_tool", lambda result: result.replace(content="-"), look_in("sea"), "Done.")
    assert (change.subject, change.about, change.turn) == ("result", "look", 1)
    assert (change.before, change.after) == ({"content": "a ship in sea"}, {"content": "-"})

    async def around_tool(call_next: Any) -> ToolResult:
        return (await call_next()).replace(content="+")

    (change,) = await changes("around_tool", around_tool, look_in("sea"), "Done.")
    assert (change.subject, change.before, change.after) == ("result", {"content": "a ship in sea"}, {"content": "+"})

    async def same(call_next: Any) -> ToolResult:
        return await call_next()

    assert await changes("around_tool", same, look_in("sea"), "Done.") == []


async def test_request_and_response_are_traced_around_the_model() -> None:
    async def around_model(request: Any, call_next: Any) -> Any:
        response = await call_next(request.with_context("Be brief."))
        return response.replace(parts=(TextPart(text="Well."),))

    first, second = await changes("around_model", around_model)
    assert (first.subject, first.after) == ("request", {"context": ["Be brief."]})
    assert (second.subject, second.before) == ("response", {"parts": [{"text": "Done."}]})
    assert second.after == {"parts": [{"text": "Well."}]}


async def test_messages_deltas_answers_and_history_are_traced() -> None:
    (change,) = await changes(
        "on_message", lambda message: message.replace(parts=(TextPart(text="Bye"),)) if message.text != "Bye" else None
    )
    assert (change.subject, change.before, change.after) == (
        "message",
        {"parts": [{"text": "Hello"}]},
        {"parts": [{"text": "Bye"}]},
    )
    (change,) = await changes("on_delta", lambda delta, final: None if final else delta.replace(text="x"))
    assert (change.subject, change.before, change.after) == ("delta", {"text": "Done."}, {"text": "x"})
    (change,) = await changes("on_answer", lambda output: Replace(output="Better."))
    assert (change.subject, change.before, change.after) == ("output", "Done.", "Better.")
    (change,) = await changes(
        "on_answer", lambda output: SendBack(feedback="more") if output == "1" else None, "1", "2"
    )
    assert change.after == {"SendBack": {"feedback": "more"}}
    (change,) = await changes("after_model", lambda response: response.replace(extra={"seen": True}))
    assert (change.subject, change.before, change.after) == ("response", {"extra": None}, {"extra": {"seen": True}})

    def on_state(run: Any) -> None:
        run.history.append(UserMessage(id="u0", parts=(TextPart(text="Earlier."),)))

    (change,) = await changes("on_state", on_state)
    assert (change.subject, change.before) == ("history", [])
    assert change.after == [{"id": "u0", "parts": [{"text": "Earlier."}]}]


async def test_tools_retries_and_compactions_are_traced() -> None:
    @tool
    def other() -> str:
        """Do something else."""
        return ""

    (change,) = await changes("on_tool", lambda: [other])
    assert (change.subject, change.after) == ("tools", ["other"])
    (change,) = await changes("on_model_error", lambda: RetryModel(after_seconds=0), ValueError("x"), "Done.")
    assert (change.subject, change.after) == ("decision", {"RetryModel": {}})
    short = UserMessage(id="u1", parts=(TextPart(text="Short."),))
    (change,) = await changes("on_compact", lambda: CompactedHistory(messages=(short,)))
    assert (change.subject, change.after) == ("history", {"messages": [{"id": "u1", "parts": [{"text": "Short."}]}]})


async def test_without_tracing_changes_are_counted_only() -> None:
    agent = Agent(ScriptedModel("1"), plugins=[plugin("on_model_request", lambda request: request.with_context("x"))])
    ledger = (await agent.run("Hello")).ledger
    assert [(row.plugin, row.hook, row.changes) for row in ledger] == [("changer", "on_model_request", 1)]
    assert ledger.changes == []


async def test_tracing_can_be_the_agents_and_switched_off_for_a_run() -> None:
    agent = Agent(
        ScriptedModel("1", "2"),
        plugins=[plugin("on_model_request", lambda request: request.with_context("x"))],
        trace_plugins=True,
    )
    assert len((await agent.run("Hello")).ledger.changes) == 1
    assert (await agent.run("Hello", trace_plugins=False)).ledger.changes == []


async def test_a_childs_plugins_are_in_the_ledger_of_the_run_around_it() -> None:
    changer = plugin("on_model_request", lambda request: request.with_context("x"))
    child = Agent(ScriptedModel("From below."), plugins=[changer])
    parent = Agent(
        ScriptedModel(call("below", request="Go."), "Done."),
        tools=[child.as_tool(name="below", description="Ask below.")],
    )
    ledger = (await parent.run("Hello", trace_plugins=True)).ledger
    assert [(row.plugin, row.calls, row.changes) for row in ledger] == [("changer", 1, 1)]
    assert [change.path for change in ledger.changes] == [("below",)]


async def test_the_trace_goes_through_json_with_the_result() -> None:
    step = Step("Done.", reasoning="Hm.")
    agent = Agent(
        ScriptedModel(step), plugins=[plugin("after_model", lambda response: response.replace(extra={"a": [1]}))]
    )
    result = await agent.run("Hello", trace_plugins=True)
    assert RunResult.from_json(result.to_json()).ledger.changes == result.ledger.changes
    assert len(result.ledger.changes) == 1


def test_a_difference_leaves_out_what_is_the_same() -> None:
    assert difference(1, "1") == (1, "1")
    assert difference({"a": 1}, {"b": 2}) == ({"a": 1}, {"b": 2})
    assert difference((1, 2, 3), (1, 3)) == ([2], [])
    assert difference(TextPart(text="a"), ReasoningPart(text="a")) == ({"text": "a"}, {"text": "a"})
    assert difference(None, object)[1] == "<class 'object'>"
    assert difference(b"x", {1, 2}) == ("b'x'", [1, 2])


def test_ledgers_add_up() -> None:
    one, two = Ledger(), Ledger()
    for ledger in (one, two):
        row = ledger.row("a", "before_run")
        row.calls, row.seconds, row.errors = 2, 0.5, 1
    two.row("b", "before_run").calls = 1
    one.include(two)
    assert one.as_rows() == [
        {"plugin": "a", "hook": "before_run", "calls": 4, "errors": 2, "seconds": 1.0, "changes": 0},
        {"plugin": "b", "hook": "before_run", "calls": 1, "errors": 0, "seconds": 0, "changes": 0},
    ]


async def test_hooks_that_are_first_called_at_the_end_are_in_the_ledger_too() -> None:
    agent = Agent(ScriptedModel("1"), plugins=[plugin("close_run", lambda: None)])
    assert [(row.hook, row.calls) for row in (await agent.run("Hello")).ledger] == [("close_run", 1)]
