"""The reply lane of running agents: questions of tools, receipts, races, and runs that nobody can answer."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from trilane import Agent, Ask, Reject, Tool, ToolContext, ToolResult, hookimpl, tool
from trilane.errors import NoAnswererError, ReplyTimeoutError, RunCancelledError
from trilane.events import PluginFailed, QuestionClosedEvent, QuestionOpenedEvent, Receipt, ReplyReceived, ToolCompleted
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, no_leaks, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


class Choice(BaseModel):
    colour: str
    count: int = 1


@tool
async def choose(ctx: ToolContext) -> str:
    """Choose."""
    choice = await ctx.ask("Which colour?", Choice)
    return f"{choice.count} {choice.colour}"


@tool
async def name(ctx: ToolContext) -> str:
    """Ask for a name."""
    return "called " + await ctx.ask("What is its name?")


@tool
def threaded(ctx: ToolContext) -> str:
    """Ask from a thread."""
    return "called " + ctx.blocking.ask("What is its name?")


def agent(*calls: Any, plugins: Any = (), **options: Any) -> Agent[None, str]:
    return Agent(ScriptedModel(list(calls), "Done."), tools=[choose, name, threaded], plugins=plugins, **options)


async def answered(subject: Agent[Any, Any], *payloads: Any, session: str | None = None) -> tuple[EventRecorder, Any]:
    """Read a run to its end and give the payloads to its questions, one after the other."""
    left = list(payloads)
    events = EventRecorder()
    async with no_leaks():
        async with subject.stream("Go", session=session) as run:
            async for event in run:
                events.events.append(event)
                if event.type == "reply_requested":
                    assert run.reply(event.question.id, left.pop(0)).status == "accepted"
    events.check()
    assert_history(run.result.messages)
    return events, run


def contents(events: EventRecorder) -> list[Any]:
    return [event.result.content for event in events.of(ToolCompleted)]


async def test_ask_from_a_tool_of_the_event_loop_and_from_one_in_a_thread() -> None:
    for which in ("name", "threaded"):
        events, _ = await answered(agent(call(which)), "Moby")
        assert contents(events) == ["called Moby"]
        types = events.types()
        first = types.index("tool_started")
        assert types[first : first + 4] == ["tool_started", "reply_requested", "reply_received", "tool_completed"]


async def test_a_reply_is_validated_and_invalid_ones_leave_the_question_open() -> None:
    receipts: list[Receipt] = []
    events = EventRecorder()
    async with agent(call("choose")).stream("Go") as run:
        async for event in run:
            events.events.append(event)
            if event.type == "reply_requested":
                assert event.question.schema["required"] == ["colour"]
                bad: list[Any] = [{}, {"colour": 5}, "red", None, {"colour": "red", "count": "two"}]
                for payload in [*bad, {"colour": "red", "count": 2}]:
                    receipts += [run.reply(event.question.id, payload)]
    events.check()
    assert [receipt.status for receipt in receipts] == ["invalid"] * 5 + ["accepted"]
    assert receipts[0].reasons == ("colour: Field required",)
    assert all(receipt.reasons for receipt in receipts[:5])
    assert contents(events) == ["2 red"]


async def test_r54_wrong_late_and_duplicate_replies_are_told_apart() -> None:
    subject = agent(call("name"))
    receipts: dict[str, Receipt] = {}
    question = ""
    async with subject.stream("Go", session="mine") as run:
        async for event in run:
            if event.type == "reply_requested":
                question = event.question.id
                receipts["unknown"] = subject.reply("mine", "nonsense", "x")
                receipts["wrong_session"] = subject.reply("other", question, "x")
                receipts["accepted"] = subject.reply("mine", question, "Moby")
                receipts["duplicate"] = subject.reply("mine", question, "Dick")
            if event.type == "tool_completed":
                receipts["late"] = subject.reply("mine", question, "Dick")
    receipts["after the run"] = subject.reply("mine", question, "Dick")
    assert {name: receipt.status for name, receipt in receipts.items()} == {
        "unknown": "unknown",
        "wrong_session": "wrong_session",
        "accepted": "accepted",
        "duplicate": "duplicate",
        "late": "duplicate",
        "after the run": "duplicate",
    }
    results = run.result.messages[2]
    assert results.kind == "tool"
    assert results.results[0].content == "called Moby"


async def test_r54_a_race_of_64_threads_has_one_acceptance() -> None:
    subject = agent(call("name"))
    statuses: list[str] = []
    async with subject.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                question = event.question.id
                barrier = threading.Barrier(64)

                def reply(number: int, barrier: threading.Barrier = barrier, question: str = question) -> None:
                    barrier.wait()
                    statuses.append(subject.reply("s", question, f"name {number}").status)

                threads = [threading.Thread(target=reply, args=(number,)) for number in range(64)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    assert sorted(statuses) == ["accepted"] + ["duplicate"] * 63
    assert run.result.output == "Done."


async def test_the_question_is_registered_before_it_is_shown() -> None:
    """W32: a reply given the moment the question appears, in the body that holds the event, is not lost."""
    subject = agent(call("name"))
    async with subject.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                assert [one.id for one in subject.questions("s")] == [event.question.id]
                assert [one.id for one in run.questions] == [event.question.id]
                assert event.question.call is not None
                assert (event.question.kind, event.question.asked_by) == ("question", "name")
                assert run.reply(event.question.id, "Moby").status == "accepted"
                break
        await record(run)
    assert run.result.output == "Done."
    assert subject.questions("s") == ()


async def test_w32_a_reply_without_content_is_refused_by_the_schema() -> None:
    async with agent(call("name")).stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                assert run.reply(event.question.id, None).status == "invalid"
                assert run.reply(event.question.id, "Moby").status == "accepted"


async def test_several_questions_may_be_open_and_are_answered_in_any_order() -> None:
    subject = agent(call("name", call_id="one"), call("name", call_id="two"))
    asked: list[Any] = []
    events = EventRecorder()
    async with subject.stream("Go") as run:
        async for event in run:
            events.events.append(event)
            if event.type == "reply_requested":
                asked.append(event.question)
                if len(asked) == 2:
                    assert asked[0].id != asked[1].id
                    for question in reversed(asked):
                        assert question.call is not None
                        assert run.reply(question.id, question.call.id).status == "accepted"
    events.check()
    assert contents(events) == ["called one", "called two"]


async def test_plugins_may_change_or_reject_a_reply_in_the_replying_thread() -> None:
    threads: list[threading.Thread] = []

    class Guard:
        name = "guard"

        @hookimpl
        def on_reply(self, question: Any, payload: Any) -> Any:
            threads.append(threading.current_thread())
            if payload == "bad":
                return Reject(reason="no bad names")
            if payload == "worse":
                raise KeyError("worse")
            if payload == "number":
                return 7
            if payload == 8:
                return 9
            return payload.upper() if payload == "moby" else None

    receipts: list[Receipt] = []
    events = EventRecorder()
    async with agent(call("name"), plugins=[Guard()]).stream("Go") as run:
        async for event in run:
            events.events.append(event)
            if event.type == "reply_requested":
                question = event.question.id

                def replies(question: str = question) -> None:
                    receipts.extend(run.reply(question, payload) for payload in ("bad", "worse", "number", 8, "moby"))

                thread = threading.Thread(target=replies)
                thread.start()
                thread.join()
                assert threads == [thread] * 5
    assert [receipt.status for receipt in receipts] == [*["invalid"] * 4, "accepted"]
    assert receipts[0].reasons == ("no bad names",)
    assert "plugin 'guard' failed in on_reply" in receipts[1].reasons[0]
    assert receipts[2].reasons == ("on_reply of plugin 'guard' changed the reply: Input should be a valid string",)
    assert receipts[3].reasons == ("Input should be a valid string",)  # it was before, and is the sender's mistake
    assert contents(events) == ["called MOBY"]
    rows = {row.hook: row for row in run.result.ledger}
    assert (rows["on_reply"].calls, rows["on_reply"].errors) == (5, 1)


async def test_questions_are_notified_to_plugins() -> None:
    heard: list[Any] = []

    class Hearer:
        name = "hearer"

        @hookimpl
        def on_event(self, notification: Any) -> None:
            if isinstance(notification, (QuestionOpenedEvent, QuestionClosedEvent)):
                heard.append(notification)

    await answered(agent(call("name"), plugins=[Hearer()]), "Moby")
    opened, closed = heard
    assert opened.question.prompt == "What is its name?"
    assert (closed.question_id, closed.receipt.status) == (opened.question.id, "accepted")


# ---- answer=


async def test_answer_answers_in_the_process_under_run_and_under_stream() -> None:
    asked: list[str] = []

    async def answer(question: Any) -> Any:
        asked.append(question.prompt)
        await anyio.lowlevel.checkpoint()
        return "Moby"

    assert (await agent(call("name"), call("threaded"), answer=answer).run("Go")).output == "Done."
    assert asked == ["What is its name?"] * 2
    async with agent(call("name")).stream("Go", answer=answer) as run:
        events = await record(run)
    events.check()
    assert contents(events) == ["called Moby"]


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


CLIENT = Tool.external(name="client_side", description="Runs elsewhere.", parameters={"type": "object"})


async def raises(question: Any) -> Any:
    raise RuntimeError("the window of Ada is gone")


async def misspells(question: Any) -> Any:
    return {"aprove": "Ada"}


def is_not_async(question: Any) -> Any:
    return {"approve": True, "colour": "red"}


@pytest.mark.parametrize(
    ("answer", "told", "logged"),
    [
        (raises, "failed (RuntimeError)", "raised RuntimeError: the window of Ada is gone ("),
        (misspells, "returned what the question does not take", "returned what the question does not take: "),
        (is_not_async, "failed (TypeError)", "raised TypeError: answer= must be an async function; it returned a dict"),
    ],
)
@pytest.mark.parametrize("tool_name", ["choose", "pay", "client_side"])
async def test_what_is_wrong_with_an_answer_function_is_told_to_the_model_in_short_and_logged(
    answer: Any, told: str, logged: str, tool_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    if (answer, tool_name) == (misspells, "client_side"):
        return  # an external call takes any result
    subject = Agent(ScriptedModel(call(tool_name), "Done."), tools=[choose, pay, CLIENT], answer=answer)
    result = await subject.run("Go", session="s")
    assert result.output == "Done."
    results = result.messages[2]
    assert results.kind == "tool"
    assert results.results[0].outcome == ("denied" if tool_name == "pay" else "error")
    assert f"the answer= function {told}" in str(results.results[0].content)
    assert "Ada" not in str(results.results[0].content)
    (entry,) = [one for one in caplog.records if one.name == "trilane"]
    assert entry.getMessage().startswith(f"the answer= function {logged}")
    assert entry.getMessage().endswith(f" by {tool_name!r} in run {result.run_id}, session s")
    assert (entry.exc_info is None) == (answer is misspells)


async def test_an_answer_function_may_say_that_nobody_can_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(question: Any) -> Any:
        raise NoAnswererError("it is night")

    subject = Agent(ScriptedModel([call("choose"), call("pay")], "Done."), tools=[choose, pay], answer=answer)
    results = (await subject.run("Go")).messages[2]
    assert results.kind == "tool"
    assert [one.content for one in results.results] == [
        "it is night",
        "Tool pay was denied: it needs an approval, and nobody can answer",
    ]
    assert caplog.records == []


async def test_an_answer_function_that_is_withdrawn_with_its_question_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(question: Any) -> Any:
        await anyio.sleep_forever()

    async with agent(call("name")).stream("Go", answer=answer) as run:
        async for event in run:
            if event.type == "reply_requested":
                assert run.reply(event.question.id, "Moby").status == "accepted"
    async with agent(call("name")).stream("Go", answer=answer) as run:
        async for event in run:
            if event.type == "reply_requested":
                break
    assert caplog.records == []


UNUSABLE = pytest.mark.parametrize("schema", [object(), ["red", "blue"], {"enum": [object()]}])


@UNUSABLE
async def test_a_tool_that_asks_for_what_nobody_can_give_is_told_so(schema: Any) -> None:
    @tool
    async def odd(ctx: ToolContext) -> str:
        """Ask oddly."""
        with pytest.raises(TypeError, match="give a type that pydantic knows, or a JSON Schema as a dict"):
            await ctx.ask("Which?", schema)
        return await ctx.ask("Which?")

    model = ScriptedModel(call("odd"), call("choose"), "Done.")
    events, _ = await answered(Agent(model, tools=[odd, choose]), "red", {"colour": "blue"})
    assert contents(events) == ["red", "1 blue"]


@UNUSABLE
async def test_an_ask_of_a_plugin_that_nobody_can_answer_denies_the_call_and_names_the_plugin(schema: Any) -> None:
    class Odd:
        @hookimpl
        def decide_tool(self) -> Any:
            return Ask(prompt="May it?", schema=schema)

    subject = Agent(ScriptedModel(call("name"), "Done."), tools=[name], plugins=[Odd()])
    events, run = await answered(subject)
    assert run.result.output == "Done."
    assert [event.result.outcome for event in events.of(ToolCompleted)] == ["denied"]
    assert "plugin 'Odd' failed while deciding about it" in contents(events)[0]
    failure = str(events.one(PluginFailed).error)
    assert "returned an Ask that cannot be used: cannot ask for" in failure
    assert "plugin 'Odd': decide_tool" in failure


async def test_a_prompt_that_is_no_text_is_refused() -> None:
    @tool
    async def odd(ctx: ToolContext) -> str:
        """Ask oddly."""
        with pytest.raises(TypeError, match=r"ask\(\) takes a prompt as a str, not int"):
            await ctx.ask(5)  # type: ignore[arg-type]
        return "asked nobody"

    events, _ = await answered(Agent(ScriptedModel(call("odd"), "Done."), tools=[odd]))
    assert contents(events) == ["asked nobody"]


async def test_nobody_can_answer_under_run() -> None:
    errors: list[BaseException] = []

    @tool
    async def careful(ctx: ToolContext) -> str:
        """Ask and go on without."""
        try:
            return await ctx.ask("Well?")
        except NoAnswererError as error:
            errors.append(error)
            return "without an answer"

    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    client = Tool.external(name="client_side", description="Runs elsewhere.", parameters={"type": "object"})
    model = ScriptedModel([call("careful"), call("pay"), call("client_side")], "Done.")
    result = await Agent(model, tools=[careful, pay, client]).run("Go")
    results = result.messages[2]
    assert results.kind == "tool"
    assert [one.outcome for one in results.results] == ["ok", "denied", "error"]
    assert "nobody can answer" in str(results.results[1].content)
    assert "pass answer=" in str(errors[0])


async def test_wait_on_a_stream_closes_questions_that_nobody_will_see() -> None:
    async with agent(call("name")).stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                break
        result = await run.wait()
    assert result.output == "Done."
    assert "nobody can answer" in result.messages[2].to_json()


async def test_a_program_may_reply_with_a_whole_result_and_a_wire_with_json() -> None:
    locate = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})
    given = ToolResult(call_id="c1", content="no signal", outcome="error", data={"bars": 0})
    wire = {"call_id": "c1", "content": [{"kind": "image", "url": "file:///etc/passwd"}], "outcome": "ok", "data": 1}
    unusable = given.replace(outcome="odd")  # type: ignore[arg-type]
    for reply, expected in (
        (given, given),
        (given.replace(call_id=""), given),
        (wire, ToolResult(call_id="c1", content=json.dumps(wire), data=wire)),  # type: ignore[arg-type]
    ):
        subject = Agent(ScriptedModel(call("locate", call_id="c1"), "Done."), tools=[locate])
        results: list[ToolResult] = []
        async with subject.stream("Go") as run:
            async for event in run:
                if event.type == "reply_requested":
                    refused = run.reply("c1", unusable)  # type: ignore[arg-type]
                    assert refused.status == "invalid"
                    assert "outcome" in refused.reasons[0]
                    assert run.reply("c1", reply).status == "accepted"  # type: ignore[arg-type]
                elif event.type == "tool_completed":
                    results.append(event.result)
        assert results == [expected]


# ---- ends of questions


async def test_r88_a_stop_while_a_question_is_open_closes_it_and_leaves_nothing() -> None:
    for _ in range(100):
        subject = agent(call("name"))
        events = EventRecorder()
        question = ""
        async with no_leaks():
            async with subject.stream("Go", session="s") as run:
                with pytest.raises(RunCancelledError):
                    async for event in run:
                        events.events.append(event)
                        if event.type == "reply_requested":
                            question = event.question.id
                            run.stop("enough")
        events.check()
        assert [event.receipt.status for event in events.of(ReplyReceived)] == ["expired"]
        assert subject.reply("s", question, "Moby").status == "expired"
        assert_history(run.result.messages)


class TestDeadlines:
    @pytest.fixture(params=["asyncio", "trio"])
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return request.param  # type: ignore[no-any-return]

    def test_ask_with_a_timeout_and_with_reply_seconds(self, backend: Backend) -> None:
        @tool
        async def patient(ctx: ToolContext, seconds: int = 0) -> str:
            """Ask.

            Args:
                seconds: How long to wait.
            """
            try:
                return await ctx.ask("Well?", timeout=seconds or None)
            except ReplyTimeoutError:
                return "too late"

        async def main() -> None:
            from trilane import Limits

            for arguments, limits in (({"seconds": 60}, Limits()), ({}, Limits(reply_seconds=60))):
                subject = Agent(ScriptedModel(call("patient", **arguments), "Done."), tools=[patient], limits=limits)
                start = anyio.current_time()
                async with subject.stream("Go", session="s") as run:
                    events = await record(run)
                events.check()
                assert contents(events) == ["too late"]
                assert anyio.current_time() - start == pytest.approx(60, abs=1)
                (question,) = [event.question for event in events if event.type == "reply_requested"]
                assert question.expires is not None
                assert subject.reply("s", question.id, "x").status == "expired"

        run_virtual(main, backend=backend)

    def test_the_time_of_tools_and_runs_stands_still_while_a_reply_is_awaited(self, backend: Backend) -> None:
        @tool(timeout=5)
        async def quick(ctx: ToolContext) -> str:
            """Ask."""
            return await ctx.ask("Well?")

        async def main() -> None:
            from trilane import Limits

            async def answer(_question: Any) -> Any:
                await anyio.sleep(1000)
                return "at last"

            subject = Agent(ScriptedModel(call("quick"), "Done."), tools=[quick], limits=Limits(run_seconds=20))
            async with subject.stream("Go", answer=answer) as run:
                events = await record(run)
            assert contents(events) == ["at last"]

        run_virtual(main, backend=backend)

    def test_an_approval_that_nobody_gives_in_time_is_a_denial(self, backend: Backend) -> None:
        @tool(approval=True)
        async def pay() -> str:
            """Pay."""
            return "paid"

        async def main() -> None:
            from trilane import Limits

            subject = Agent(ScriptedModel(call("pay"), "Done."), tools=[pay], limits=Limits(reply_seconds=60))
            async with subject.stream("Go") as run:
                events = await record(run)
            events.check()
            assert "nobody answered in time" in contents(events)[0]
            assert [event.receipt.status for event in events.of(ReplyReceived)] == ["expired"]

        run_virtual(main, backend=backend)


async def test_a_tool_that_was_given_up_cannot_ask_any_more() -> None:
    gave_up = threading.Event()
    told: list[BaseException] = []
    done = threading.Event()

    @tool(timeout=0.05)  # real time: a thread, which nothing can stop
    def slow(ctx: ToolContext) -> str:
        """Ask late."""
        gave_up.wait(30)
        try:
            return ctx.blocking.ask("Still there?")
        except BaseException as error:
            told.append(error)
            raise
        finally:
            done.set()

    asked: list[str] = []
    async with Agent(ScriptedModel(call("slow"), "Done."), tools=[slow]).stream("Go") as run:
        async for event in run:
            if event.type == "turn_completed" and not gave_up.is_set():
                gave_up.set()
                await anyio.to_thread.run_sync(done.wait, 30)
            if event.type == "reply_requested":
                asked.append(event.question.prompt)
    assert [type(error) for error in told] == [NoAnswererError]
    assert "answered without it" in str(told[0])
    assert asked == []
