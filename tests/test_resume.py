"""`agent.resume` and `RunStream.suspend`: what a session that was cut off anywhere continues with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from trilane import Agent, Allow, Approval, Ask, InMemoryStore, Tool, ToolContext, hookimpl, tool
from trilane.errors import RunCancelledError, SessionError
from trilane.events import ReplyRequested, RunStarted, ToolCompleted, ToolStarted
from trilane.messages import ToolCall
from trilane.stores import CallStarted, QuestionClosed, RunEnded, SessionPage, SessionRecord
from trilane.testing import EventRecorder, ScriptedModel, Step, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio


class PlainStore:
    """A store that has to be awaited and knows nothing beyond the protocol."""

    def __init__(self) -> None:
        self.inner = InMemoryStore()
        self.lease = self.inner.lease
        self.writes: list[tuple[SessionRecord, ...]] = []

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        await anyio.lowlevel.checkpoint()
        return await self.inner.load(session, after=after, limit=limit)

    async def append(self, session: str, records: Sequence[SessionRecord], **options: Any) -> int:
        await anyio.lowlevel.checkpoint()
        version = await self.inner.append(session, records, **options)
        self.writes.append(tuple(records))
        return version


@pytest.fixture(params=[InMemoryStore, PlainStore])
def make_store(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return request.param  # type: ignore[no-any-return]


async def killed(store: Any, make_store: Callable[[], Any], *, keep: int | None = None) -> Any:
    """A store with what a process that was killed now would have left of session `s`; of it, the first `keep`."""
    page = await store.load("s")
    twin = make_store()
    async with twin.lease("s", ttl_seconds=30) as lease:
        await twin.append("s", page.records[:keep], expected_version=0, lease=lease)
    return twin


async def cut_off(
    make_store: Callable[[], Any],
    script: Sequence[Any],
    tools: Sequence[Any],
    *,
    at: str = "",
    until: anyio.Event | None = None,
    plugins: Sequence[Any] = (),
    replies: Sequence[Any] = (),
) -> Any:
    """What is stored when a run is killed: while the event `at` is held, or once `until` was set."""
    store = make_store()
    agent = Agent(ScriptedModel(*script), tools=tools, plugins=plugins, store=store)
    left = list(replies)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == at and not left:
                return await killed(store, make_store)
            if event.type == "reply_requested" and left:
                run.reply(event.question.id, left.pop(0))
            if event.type == "tool_started" and until is not None:
                async with anyio.create_task_group() as group:
                    group.start_soon(read_on, run)
                    await until.wait()
                    twin = await killed(store, make_store)
                    group.cancel_scope.cancel()
                return twin
    raise AssertionError(f"{at} never came")


async def read_on(run: Any) -> None:
    async for _ in run:
        pass


async def resumed(
    store: Any, script: Sequence[Any], tools: Sequence[Any], *replies: Any, plugins: Sequence[Any] = ()
) -> tuple[EventRecorder, Any, ScriptedModel]:
    """Resume session `s` and read it to its end."""
    model = ScriptedModel(*script)
    events, left = EventRecorder(), list(replies)
    async with no_leaks():
        async with Agent(model, tools=tools, plugins=plugins, store=store).resume("s") as run:
            async for event in run:
                events.events.append(event)
                if event.type == "reply_requested":
                    assert run.reply(event.question.id, left.pop(0)).status == "accepted"
    events.check()
    assert_history(run.result.messages)
    model.assert_finished()
    assert left == []
    return events, run, model


async def records(store: Any, kind: type[Any]) -> list[Any]:
    return [one for one in (await store.load("s")).records if isinstance(one, kind)]


def contents(events: EventRecorder) -> list[Any]:
    return [event.result.content for event in events.of(ToolCompleted)]


def endless(began: anyio.Event, seen: list[tuple[str, int]], **options: Any) -> Any:
    """A tool that never comes back the first time, and does the second time."""

    @tool(**options)
    async def work(ctx: ToolContext, what: str = "") -> str:
        """Work."""
        seen.append((ctx.key, ctx.attempt))
        if len(seen) == 1:
            began.set()
            await anyio.sleep_forever()
        return "worked"

    return work


# ---- where there is nothing to do -----------------------------------------------------------------------------------


async def test_a_finished_session_is_answered_without_a_model_call(make_store: Callable[[], Any]) -> None:
    store = make_store()
    await Agent(ScriptedModel("Hello."), store=store).run("Go", session="s")
    events, run, _ = await resumed(store, [], [])
    assert run.result.output == "Hello."
    assert run.result.new_messages == ()
    assert events.one(RunStarted).request.text == "Go"
    assert len(run.result.messages) == 2


async def test_an_empty_session_cannot_be_resumed(make_store: Callable[[], Any]) -> None:
    with pytest.raises(SessionError, match="session 's' is empty, there is nothing to resume"):
        async with Agent(ScriptedModel(), store=make_store()).resume("s") as run:
            await run.wait()


async def test_neither_on_message_nor_before_run_is_called_again(make_store: Callable[[], Any]) -> None:
    called: list[str] = []

    class Counting:
        @hookimpl
        def on_state(self, run: Any) -> None:
            called.append("on_state")

        @hookimpl
        def on_message(self, run: Any, message: Any) -> None:
            called.append("on_message")

        @hookimpl
        def before_run(self, run: Any) -> None:
            called.append("before_run")

    store = await cut_off(make_store, ["Hel lo."], [], at="text_delta")
    _, run, _ = await resumed(store, ["Hello."], [], plugins=[Counting()])
    assert called == ["on_state"]
    assert run.result.output == "Hello."


# ---- cut off while generating ---------------------------------------------------------------------------------------


async def test_an_answer_that_was_cut_off_is_generated_again(make_store: Callable[[], Any]) -> None:
    store = await cut_off(make_store, ["Hel lo."], [], at="text_delta")
    _, run, model = await resumed(store, ["Hello again."], [])
    assert run.result.output == "Hello again."
    assert [message.kind for message in model.requests[0].messages] == ["user"]
    assert [message.kind for message in run.result.messages] == ["user", "assistant"]


async def test_half_an_answer_of_a_closed_run_is_not_in_the_next_request(make_store: Callable[[], Any]) -> None:
    store = make_store()
    async with Agent(ScriptedModel("Half of it."), store=store).stream("Go", session="s") as run:
        async for event in run:
            if event.type == "text_delta":
                break
    assert run.result.messages[-1].interrupted
    _, run, model = await resumed(store, ["Hello."], [])
    assert [message.kind for message in model.requests[0].messages] == ["user"]
    assert run.result.output == "Hello."
    kept = [one.message.text for one in (await store.load("s")).records if one.kind == "message"]
    assert kept[0] == "Go"
    assert kept[1].startswith("Half")  # the raw history has it still


async def test_a_run_that_failed_in_the_model_is_tried_again(make_store: Callable[[], Any]) -> None:
    store = make_store()
    with pytest.raises(OSError, match="no route"):
        await Agent(ScriptedModel(OSError("no route")), store=store).run("Go", session="s")
    _, run, _ = await resumed(store, ["Hello."], [])
    assert run.result.output == "Hello."


# ---- cut off inside a tool ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_safe_tool_runs_again_with_the_same_key_and_a_higher_attempt(
    make_store: Callable[[], Any], effect: Any
) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, effect=effect)
    store = await cut_off(make_store, [call("work", what="x"), "Never."], [work], until=began)
    events, run, _ = await resumed(store, ["Done."], [work])
    assert seen[0][1] == 1
    assert seen[1] == (seen[0][0], 2)
    assert contents(events) == ["worked"]
    assert [one.attempt for one in await records(store, CallStarted)] == [1, 2]
    assert run.result.output == "Done."


async def test_an_unsafe_tool_is_not_run_again_and_the_model_is_told(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen)
    store = await cut_off(make_store, [call("work"), "Never."], [work], until=began)
    events, _, model = await resumed(store, ["Done."], [work])
    assert len(seen) == 1
    assert events.of(ToolStarted) == []
    told = model.requests[0].messages[-1].results[0]
    assert told.outcome == "interrupted"
    assert told.content.startswith("Tool work was interrupted, effect unknown.")


async def test_a_tool_that_was_unsafe_when_it_ran_is_not_safe_afterwards(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    store = await cut_off(make_store, [call("work"), "Never."], [endless(began, seen)], until=began)
    events, _, _ = await resumed(store, ["Done."], [endless(began, seen, effect="idempotent")])
    assert len(seen) == 1
    assert events.one(ToolCompleted).result.outcome == "interrupted"


async def test_a_tool_that_is_gone_is_said_to_have_been_interrupted(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    store = await cut_off(make_store, [call("work"), "Never."], [endless(began, seen, effect="read")], until=began)
    events, _, _ = await resumed(store, ["Done."], [])
    assert "interrupted, effect unknown" in str(contents(events)[0])


async def test_reconcile_decides_about_an_unsafe_call(make_store: Callable[[], Any]) -> None:
    asked: list[tuple[str, str, int]] = []

    async def look_it_up(ctx: ToolContext, what: str) -> str:
        asked.append((what, ctx.key, ctx.attempt))
        return "it was done"

    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, reconcile=look_it_up)
    store = await cut_off(make_store, [call("work", what="x"), "Never."], [work], until=began)
    events, _, _ = await resumed(store, ["Done."], [work])
    assert asked == [("x", seen[0][0], 2)]
    assert len(seen) == 1
    assert contents(events) == ["it was done"]


async def test_results_that_reached_the_store_are_kept_and_calls_not_started_run(make_store: Callable[[], Any]) -> None:
    began, seen, ran = anyio.Event(), list[tuple[str, int]](), list[str]()

    @tool
    async def first() -> str:
        """First."""
        ran.append("first")
        return "one"

    @tool(parallel=False)
    async def last() -> str:
        """Last."""
        ran.append("last")
        return "three"

    work = endless(began, seen, parallel=False)
    tools = [first, work, last]
    script = [[call("first"), call("work"), call("last")], "Never."]
    store = await cut_off(make_store, script, tools, until=began)
    assert ran == ["first"]
    _, run, _ = await resumed(store, ["Done."], tools)
    # All three were announced before the first of them ran: of the last nobody knows that it had not begun.
    assert ran == ["first"]
    assert [one.outcome for one in run.result.messages[-2].results] == ["ok", "interrupted", "interrupted"]


async def test_a_retry_of_a_tool_is_stored_before_it_runs(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[int]()

    @tool(effect="idempotent", attempts=3)
    async def work(ctx: ToolContext) -> str:
        """Work."""
        seen.append(ctx.attempt)
        if len(seen) == 1:
            raise OSError("once")
        if len(seen) == 2:
            began.set()
            await anyio.sleep_forever()
        return "worked"

    store = await cut_off(make_store, [call("work"), "Never."], [work], until=began)
    await resumed(store, ["Done."], [work])
    assert seen == [1, 2, 3]


async def test_calls_that_had_not_started_are_decided_again(make_store: Callable[[], Any]) -> None:
    decided: list[str] = []

    class Deciding:
        @hookimpl
        def decide_tool(self, run: Any, call: ToolCall) -> Allow:
            decided.append(call.name)
            return Allow()

    @tool
    async def look() -> str:
        """Look."""
        return "a ship"

    store = await cut_off(make_store, [call("look"), "Never."], [look], at="message_completed", plugins=[Deciding()])
    events, _, _ = await resumed(store, ["Done."], [look], plugins=[Deciding()])
    assert decided[-1:] == ["look"]
    assert contents(events) == ["a ship"]
    assert [one.attempt for one in await records(store, CallStarted)] == [1]


async def test_every_prefix_of_what_was_written_can_be_resumed() -> None:
    """As if killed at any write of a run with parallel calls, an approval and a question."""
    effects: list[str] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        effects.append(f"pay {amount}")
        return f"paid {amount}"

    @tool(effect="idempotent")
    async def note(ctx: ToolContext) -> str:
        """Note."""
        return "noted " + await ctx.ask("What?")

    @tool(approval=True)
    async def delete() -> str:
        """Delete."""
        effects.append("delete")
        return "deleted"

    tools = [pay, note, delete]
    calls = [
        call("pay", call_id="p1", amount=1),
        call("note", call_id="n"),
        call("delete", call_id="d"),
        call("pay", call_id="p2", amount=2),
    ]
    store = PlainStore()
    agent = Agent(ScriptedModel(calls, "Done."), tools=tools, store=store)
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                run.reply(event.question.id, {"approve": True} if event.question.kind == "approval" else "this")
    sizes = [len(batch) for batch in store.writes]
    assert len(sizes) >= 7
    for writes in range(1, len(sizes) + 1):
        twin = await killed(store, PlainStore, keep=sum(sizes[:writes]))
        before = [one for batch in store.writes[:writes] for one in batch]
        started = {one.call_id for one in before if one.kind == "call_started"}
        finished = {one.result.call_id for one in before if one.kind == "call_finished"}
        effects.clear()
        needs_model = not any(one.kind == "message" and one.message.kind == "assistant" for one in before)
        has_answer = any(one.kind == "message" and getattr(one.message, "text", "") == "Done." for one in before)
        script: list[Any] = [calls, "Done."] if needs_model else [] if has_answer else ["Done."]
        model = ScriptedModel(*script)
        async with Agent(model, tools=tools, store=twin).resume("s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    payload: Any = {"approve": True} if event.question.kind == "approval" else "this"
                    assert run.reply(event.question.id, payload).status == "accepted"
        model.assert_finished()
        assert_history(run.result.messages)
        assert run.result.output == "Done."
        names = {"p1": "pay 1", "d": "delete", "p2": "pay 2"}
        assert sorted(effects) == sorted(text for id, text in names.items() if id not in started)
        told = {one.call_id: one for one in run.result.messages[2].results}
        for id in names:
            assert told[id].outcome == ("interrupted" if id in started - finished else "ok"), (writes, id)
        assert told["n"].content == "noted this"


# ---- waiting for a reply --------------------------------------------------------------------------------------------


@tool(approval=True)
async def delete(path: str) -> str:
    """Delete."""
    return f"deleted {path}"


async def test_an_approval_is_asked_again_under_its_id(make_store: Callable[[], Any]) -> None:
    store = await cut_off(make_store, [call("delete", path="a"), "Never."], [delete], at="reply_requested")
    asked = [one.question["id"] for one in (await store.load("s")).records if one.kind == "question"]
    events, _, _ = await resumed(store, ["Done."], [delete], {"approve": True})
    assert [event.question.id for event in events.of(ReplyRequested)] == asked
    assert contents(events) == ["deleted a"]


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ({"approve": True}, "deleted a"),
        ({"approve": True, "arguments": {"path": "b"}}, "deleted b"),
        ({"approve": False, "reason": "too dear"}, "Tool delete was denied: too dear"),
    ],
)
async def test_a_stored_approval_is_taken(make_store: Callable[[], Any], reply: Any, content: str) -> None:
    store = await cut_off(make_store, [call("delete", path="a"), "Never."], [delete], at="reply_requested")
    question = next(one for one in (await store.load("s")).records if one.kind == "question").question["id"]
    await add(store, QuestionClosed(run_id="r", question_id=question, status="accepted", payload=reply))
    events, _, _ = await resumed(store, ["Done."], [delete])
    assert events.of(ReplyRequested) == []
    assert contents(events) == [content]


async def add(store: Any, *more: SessionRecord) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        await store.append("s", more, expected_version=(await store.load("s")).version, lease=lease)


async def test_an_approved_call_that_was_cut_off_is_not_asked_about_again(make_store: Callable[[], Any]) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, effect="idempotent", approval=True)
    store = await cut_off(make_store, [call("work"), "Never."], [work], until=began, replies=[{"approve": True}])
    events, _, _ = await resumed(store, ["Done."], [work])
    assert events.of(ReplyRequested) == []
    assert [attempt for _, attempt in seen] == [1, 2]


class Yes(Approval):
    colour: str = ""


async def test_a_stored_reply_of_a_form_of_its_own_is_taken(make_store: Callable[[], Any]) -> None:
    class Asking:
        @hookimpl
        def decide_tool(self, run: Any, call: ToolCall) -> Ask:
            return Ask(prompt="May it?", schema=Yes)

    @tool
    async def look() -> str:
        """Look."""
        return "a ship"

    store = await cut_off(make_store, [call("look"), "Never."], [look], at="reply_requested", plugins=[Asking()])
    question = next(one for one in (await store.load("s")).records if one.kind == "question").question["id"]
    payload = {"approve": True, "colour": "red"}
    await add(store, QuestionClosed(run_id="r", question_id=question, status="accepted", payload=payload))
    events, _, _ = await resumed(store, ["Done."], [look], plugins=[Asking()])
    assert contents(events) == ["a ship"]


def asking(began: anyio.Event, **options: Any) -> Any:
    @tool(**options)
    async def interview(ctx: ToolContext) -> str:
        """Ask three things, and never come back the first time."""
        try:
            first = await ctx.ask("First?", timeout=0 if ctx.attempt == 1 else None)
        except TimeoutError:
            first = "nothing"
        second = await ctx.ask("Second?", int)
        if ctx.attempt == 1:
            began.set()
            await anyio.sleep_forever()
        return f"{first}, {second}, {await ctx.ask('Third?')}"

    return interview


async def test_questions_of_a_tool_are_found_by_their_ordinal(make_store: Callable[[], Any]) -> None:
    """The first ran out of time, the second was answered: what was said to the second is no answer to the first."""
    began = anyio.Event()
    interview = asking(began, effect="idempotent")
    store = make_store()
    agent = Agent(ScriptedModel(call("interview"), "Never."), tools=[interview], store=store)
    async with agent.stream("Go", session="s") as run:
        async with anyio.create_task_group() as group:

            async def read() -> None:
                async for event in run:
                    if event.type == "reply_requested" and event.question.prompt == "Second?":
                        assert run.reply(event.question.id, 2).status == "accepted"

            group.start_soon(read)
            await began.wait()
            twin = await killed(store, make_store)
            group.cancel_scope.cancel()
    assert [one.ordinal for one in (await twin.load("s")).records if one.kind == "question"] == [1, 2]
    events, _, _ = await resumed(twin, ["Done."], [interview], "one", "three")
    assert [event.question.prompt for event in events.of(ReplyRequested)] == ["First?", "Third?"]
    assert contents(events) == ["one, 2, three"]


async def test_a_question_of_a_tool_is_asked_again_under_its_id(make_store: Callable[[], Any]) -> None:
    @tool(effect="read")
    async def name(ctx: ToolContext) -> str:
        """Ask."""
        return "called " + await ctx.ask("What is its name?")

    store = await cut_off(make_store, [call("name"), "Never."], [name], at="reply_requested")
    asked = [one.question["id"] for one in (await store.load("s")).records if one.kind == "question"]
    events, _, _ = await resumed(store, ["Done."], [name], "Moby")
    assert [event.question.id for event in events.of(ReplyRequested)] == asked
    assert contents(events) == ["called Moby"]


async def test_a_question_inside_an_unsafe_tool_does_not_survive(make_store: Callable[[], Any]) -> None:
    @tool
    async def name(ctx: ToolContext) -> str:
        """Ask."""
        return "called " + await ctx.ask("What is its name?")

    store = await cut_off(make_store, [call("name"), "Never."], [name], at="reply_requested")
    events, _, _ = await resumed(store, ["Done."], [name])
    assert events.of(ReplyRequested) == []
    assert events.one(ToolCompleted).result.outcome == "interrupted"


async def test_a_stored_reply_that_does_not_fit_any_more_is_asked_for_again(make_store: Callable[[], Any]) -> None:
    def counting(schema: Any) -> Any:
        @tool(effect="read")
        async def count(ctx: ToolContext) -> str:
            """Ask."""
            return f"{await ctx.ask('How many?', schema)}"

        return count

    store = await cut_off(make_store, [call("count"), "Never."], [counting(str)], at="reply_requested")
    question = next(one for one in (await store.load("s")).records if one.kind == "question").question["id"]
    await add(store, QuestionClosed(run_id="r", question_id=question, status="accepted", payload="a few"))
    events, _, _ = await resumed(store, ["Done."], [counting(int)], 3)
    assert contents(events) == ["3"]


async def test_a_call_run_by_the_client_is_asked_for_again_under_its_id(make_store: Callable[[], Any]) -> None:
    locate = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})
    store = await cut_off(make_store, [call("locate", call_id="c1"), "Never."], [locate], at="reply_requested")
    events, _, _ = await resumed(store, ["Done."], [locate], "in the north")
    assert events.one(ReplyRequested).question.id == "c1"
    assert contents(events) == ["in the north"]


async def test_a_stored_result_of_the_client_is_taken(make_store: Callable[[], Any]) -> None:
    locate = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})
    store = await cut_off(make_store, [call("locate", call_id="c1"), "Never."], [locate], at="reply_requested")
    await add(store, QuestionClosed(run_id="r", question_id="c1", status="accepted", payload={"lat": 1}))
    events, _, _ = await resumed(store, ["Done."], [locate])
    assert contents(events) == ['{"lat": 1}']


# ---- suspend --------------------------------------------------------------------------------------------------------


async def test_suspend_leaves_the_question_open_and_says_how_it_ended(make_store: Callable[[], Any]) -> None:
    store = make_store()
    agent = Agent(ScriptedModel(call("delete", path="a"), "Never."), tools=[delete], store=store)
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                if event.type == "reply_requested":
                    break
            await run.suspend()
            with pytest.raises(RunCancelledError, match="suspended"):
                async for _ in run:
                    pass
    assert run.result.status == "cancelled"
    assert run.result.stop_reason == "suspended"
    assert [one.status for one in await records(store, RunEnded)] == ["suspended"]
    assert await records(store, QuestionClosed) == []
    events, again, _ = await resumed(store, ["Done."], [delete], {"approve": True})
    assert events.one(ReplyRequested).question.id == event.question.id
    assert again.result.output == "Done."
    assert again.result.turns == 2


@pytest.mark.parametrize(("effect", "outcome"), [("idempotent", "ok"), ("unsafe", "interrupted")])
async def test_suspend_inside_a_tool_keeps_true_results_only(
    make_store: Callable[[], Any], effect: Any, outcome: str
) -> None:
    began, seen = anyio.Event(), list[tuple[str, int]]()
    work = endless(began, seen, effect=effect)

    @tool
    async def quick() -> str:
        """Be quick."""
        return "done"

    store = make_store()
    agent = Agent(ScriptedModel([call("quick"), call("work")], "Never."), tools=[work, quick], store=store)
    async with no_leaks():
        async with agent.stream("Go", session="s") as run:
            async with anyio.create_task_group() as group:

                async def read() -> None:
                    with pytest.raises(RunCancelledError):
                        await record(run)

                group.start_soon(read)
                await began.wait()
                await run.suspend()
    kept = [one.result.content for one in (await store.load("s")).records if one.kind == "call_finished"]
    assert kept == ["done"]
    _, again, _ = await resumed(store, ["Done."], [work, quick])
    assert [one.outcome for one in again.result.messages[2].results] == ["ok", outcome]


async def test_suspend_while_generating_generates_again(make_store: Callable[[], Any]) -> None:
    store = make_store()
    async with Agent(ScriptedModel(Step("Half of it.")), store=store).stream("Go", session="s") as run:
        async for event in run:
            if event.type == "text_delta":
                break
        await run.suspend()
    assert [one.kind for one in (await store.load("s")).records] == ["message", "run_ended"]
    _, again, model = await resumed(store, ["Whole."], [])
    assert [message.kind for message in model.requests[0].messages] == ["user"]
    assert again.result.output == "Whole."


async def test_the_session_goes_on_after_it_was_resumed(make_store: Callable[[], Any]) -> None:
    store = await cut_off(make_store, ["Hel lo."], [], at="text_delta")
    await resumed(store, ["Hello."], [])
    model = ScriptedModel("Bye.")
    result = await Agent(model, store=store).run("And now?", session="s")
    assert [message.kind for message in model.requests[0].messages] == ["user", "assistant", "user"]
    assert result.output == "Bye."
