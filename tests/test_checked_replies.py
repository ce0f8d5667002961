"""What is wrong inside of a reply is found where it arrives, and what only Python can say is taken as it is."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, SecretStr, field_validator

from trilane import Agent, Approval, InMemoryStore, Reject, ToolContext, hookimpl, tool
from trilane.errors import NoAnswererError
from trilane.stores import record_from_json
from trilane.testing import ScriptedModel, call, no_leaks

pytestmark = pytest.mark.anyio

THING = object()  # nothing that JSON can express
NUL = "a\x00b\ud83d"


@tool(approval=True)
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


async def test_a_reply_that_json_cannot_express_is_invalid_and_the_question_stays_open() -> None:
    answers: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        answers.append(str(await ctx.ask("Well?", dict)))
        return ""

    class Rejecting:
        name = "rejecting"

        @hookimpl
        def on_reply(self, payload: Any) -> Any:
            return Reject(reason=5) if payload == {"a": 5} else None  # type: ignore[arg-type]

    store = InMemoryStore()
    receipts = []
    agent: Agent[Any, str] = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask], plugins=[Rejecting()], store=store)
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    payloads: list[Any] = [{"a": THING}, {"a": 5}, {"a": [1, NUL]}]
                    receipts += [run.reply(event.question.id, payload) for payload in payloads]
    assert [receipt.status for receipt in receipts] == ["invalid", "invalid", "accepted"]
    assert "the reply must be something that JSON can express" in receipts[0].reasons[0]
    assert receipts[1].reasons == ("5",)
    assert answers == ["{'a': [1, 'a\ufffdb\ufffd']}"], "the tool that ran and one that is resumed see the same"
    closed = [record for record in (await store.load("s")).records if record.kind == "question_closed"]
    assert [record.payload for record in closed] == [{"a": [1, "a\ufffdb\ufffd"]}]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Approval(approve=True, arguments={"n": (1,)}), "error"),  # type: ignore[dict-item]
        (Approval(approve=True, arguments={"n": 2}), "ok"),
        (Approval(approve=False, reason=None), "denied"),  # type: ignore[arg-type]
        ({"approve": False, "reason": NUL}, "denied"),
        (Approval(approve=False, reason=NUL), "denied"),
        (Approval(approve="no"), "denied"),  # type: ignore[arg-type]
    ],
)
async def test_an_approval_is_taken_in_either_form_and_can_be_stored(reply: Any, outcome: str) -> None:
    store = InMemoryStore()
    agent: Agent[Any, str] = Agent(ScriptedModel(call("pay", n=1), "Done."), tools=[pay], store=store)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                assert run.reply(event.question.id, reply).status == "accepted"
    results = run.result.messages[2]
    assert results.kind == "tool"
    assert results.results[0].outcome == outcome
    for record in (await store.load("s")).records:
        assert record_from_json(record.to_json()).kind == record.kind


async def test_a_reply_that_a_plugin_made_and_nobody_can_take_is_the_plugins() -> None:
    class Meddling:
        name = "meddling"

        @hookimpl
        def on_reply(self, payload: Any) -> Any:
            return {"approve": True, "at": THING} if payload == {"approve": True} else None

    receipts = []
    model = ScriptedModel(call("pay", n=1), "Done.")
    agent: Agent[Any, str] = Agent(model, tools=[pay], plugins=[Meddling()])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                replies: list[Any] = [{"approve": True}, {"approve": False}]
                receipts += [run.reply(event.question.id, reply) for reply in replies]
    assert [receipt.status for receipt in receipts] == ["invalid", "accepted"]
    assert "that cannot be used: must be something that JSON can express" in receipts[0].reasons[0]
    assert receipts[0].reasons[0].startswith("plugin 'meddling': on_reply (")


async def test_an_error_of_a_validator_of_ones_own_is_named_in_the_receipt() -> None:
    class Choice(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def broken(cls, n: int) -> int:
            return n + "x"  # type: ignore[operator, no-any-return]

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str(await ctx.ask("Which?", Choice, timeout=0.01))

    agent: Agent[Any, str] = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                receipt = run.reply(event.question.id, {"n": 1})
                assert receipt.status == "invalid"
                assert (
                    "could not be checked: a validator failed with TypeError: unsupported operand" in receipt.reasons[0]
                )


@pytest.mark.parametrize("reply", [Approval(approve=True, arguments="n=1"), Approval(approve=False, reason=5)])  # type: ignore[arg-type]
async def test_an_approval_that_is_none_is_invalid(reply: Any) -> None:
    model = ScriptedModel(call("pay", n=1), "Done.")
    agent: Agent[Any, str] = Agent(model, tools=[pay])
    receipts = []
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                receipts += [run.reply(event.question.id, one) for one in (reply, {"approve": True})]
    assert [receipt.status for receipt in receipts] == ["invalid", "accepted"]


async def test_a_reply_of_python_values_is_validated_as_it_is() -> None:
    class Login(BaseModel, strict=True):
        password: SecretStr
        since: date

    given = {"password": SecretStr("whale"), "since": date(2026, 1, 2)}
    taken: list[Login] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        taken.append(await ctx.ask("Who are you?", Login))
        return "hello"

    agent: Agent[Any, str] = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                assert run.reply(event.question.id, given).status == "accepted"  # type: ignore[arg-type]
    assert taken[0].password.get_secret_value() == "whale"


@pytest.mark.parametrize("payload", [float("inf"), float("nan"), {"a": [1, float("-inf")]}, (1, float("inf"))])
async def test_a_number_that_would_be_stored_as_null_is_invalid(payload: Any) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str(await ctx.ask("Well?", Any))

    agent: Agent[Any, str] = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask])
    receipts = []
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                receipts = [run.reply(event.question.id, payload), run.reply(event.question.id, 1.5)]
    assert [receipt.status for receipt in receipts] == ["invalid", "accepted"]
    assert receipts[0].reasons == ("the reply must not have a number that JSON cannot express, such as NaN, in it",)


async def test_an_approval_with_a_number_that_would_be_stored_as_null_is_invalid() -> None:
    agent: Agent[Any, str] = Agent(ScriptedModel(call("pay", n=1), "Done."), tools=[pay])
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                receipt = run.reply(event.question.id, Approval(approve=True, arguments={"n": float("inf")}))
                assert (receipt.status, receipt.reasons) == (
                    "invalid",
                    ("the reply arguments: it has a number that JSON cannot express, such as NaN",),
                )
                run.reply(event.question.id, Approval(approve=True))


async def test_a_validator_that_fails_makes_the_reply_invalid_and_the_question_stays_open() -> None:
    share = Annotated[float, BeforeValidator(lambda value: 100 / value)]
    answers: list[float] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        answers.append(await ctx.ask("Well?", share))
        return ""

    agent: Agent[Any, str] = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask])
    receipts = []
    async with agent.stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                receipts = [run.reply(event.question.id, 0), run.reply(event.question.id, 5)]
    assert [receipt.status for receipt in receipts] == ["invalid", "accepted"]
    assert receipts[0].reasons == ("could not be checked: a validator failed with ZeroDivisionError: division by zero",)
    assert answers == [20.0]


async def test_a_validator_that_fails_on_what_answer_returns_names_itself(caplog: pytest.LogCaptureFixture) -> None:
    share = Annotated[float, BeforeValidator(lambda value: 100 / value)]

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        try:
            return str(await ctx.ask("Well?", share))
        except NoAnswererError as error:
            return str(error)

    async def answer(question: Any) -> Any:
        return 0

    agent: Agent[Any, str] = Agent(ScriptedModel(call("ask"), "Done."), tools=[ask], answer=answer)
    message = (await agent.run("Go")).messages[2]
    assert message.kind == "tool"
    assert "the answer= function returned what the question does not take" in str(message.results[0].content)
    assert "a validator failed with ZeroDivisionError" in caplog.text
