"""What is stored of a run for a replay, and replays of runs that were not recorded, cut off, resumed or forked."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, Tool, ToolContext, tool
from trilane.decisions import Rewrite
from trilane.errors import RunCancelledError, SessionError
from trilane.events import ToolStarted
from trilane.sessions import fork_session
from trilane.stores import SessionView, record_from_json
from trilane.testing import ScriptedModel, Step, call

from .conftest import SCRIPT, Unreachable, all_hooks, first, look, named, ran, recorded, replay

pytestmark = pytest.mark.anyio


async def test_a_run_that_was_not_recorded_is_compared_by_its_history() -> None:
    store = InMemoryStore()
    agent = Agent(ScriptedModel(*SCRIPT, "More."), tools=[look], store=store)
    async with agent.stream("Where?", session="s") as run:
        async for event in run:
            if isinstance(event, ToolStarted):
                run.follow_up("More?")
    ran.clear()
    found = await replay(store)
    assert found.difference is None
    assert found.runs[0].compared == ("results", "messages", "endings")
    cutting = named("cutting", after_tool=lambda self, run, call, result: result.replace(content="…"))
    difference = first(await replay(store, plugins=[cutting]))
    assert (difference.aspect, difference.plugins) == ("results", ("cutting",))


async def test_steering_that_superseded_calls_without_a_recording() -> None:
    store = InMemoryStore()
    serial = Tool.from_function(look, parallel=False)
    model = ScriptedModel([call("look", place="a"), call("look", place="b")], "Stopped.")
    agent = Agent(model, tools=[serial], store=store)
    async with agent.stream("Where?", session="s") as run:
        async for event in run:
            if isinstance(event, ToolStarted) and event.call.arguments["place"] == "b":
                run.steer("Stop.")
    outcomes = [one.result.outcome for one in (await store.load("s")).records if one.kind == "call_finished"]
    assert outcomes == ["superseded", "superseded"]
    ran.clear()
    assert (await replay(store, tools=[serial])).difference is None


class _Elsewhere:
    """A store that has to be waited for: in those it is kept what arguments a call had."""

    def __init__(self) -> None:
        inner = InMemoryStore()
        self.lease, self.load, self.append = inner.lease, inner.load, inner.append


async def test_a_call_that_was_announced_and_superseded_without_a_recording() -> None:
    store: Any = _Elsewhere()
    model = ScriptedModel([call("look", place="a"), call("look", place="b")], "Stopped.")
    agent = Agent(model, tools=[look], store=store, tool_concurrency=1)
    async with agent.stream("Where?", session="s") as run:
        async for event in run:
            if isinstance(event, ToolStarted):
                run.steer("Stop.")
    records = (await store.load("s")).records
    assert [one.result.outcome for one in records if one.kind == "call_finished"] == ["superseded", "superseded"]
    assert all(one.arguments_hash for one in records if one.kind == "call_started")
    ran.clear()
    found = await replay(store)
    assert found.difference is None
    assert "arguments" in found.runs[0].compared


@pytest.mark.parametrize("replayable", [False, True])
async def test_a_run_that_was_suspended_in_a_tool_goes_on_with_the_same_arguments(replayable: bool) -> None:
    @tool(effect="read")
    async def ask(ctx: ToolContext, about: str) -> str:
        """Ask."""
        return await ctx.ask(about)

    store: Any = _Elsewhere()
    agent: Agent[Any, str] = Agent(
        ScriptedModel(call("ask", about="colour")), tools=[ask], store=store, replayable=replayable
    )
    async with agent.stream("Go", session="s") as run:
        async for event in run:
            if event.type == "reply_requested":
                await run.suspend()
                break
    agent = Agent(ScriptedModel("Blue."), tools=[ask], store=store, replayable=replayable)
    async with agent.resume("s") as run:
        async for event in run:
            if event.type == "reply_requested":
                run.reply(event.question.id, "blue")
    found = await replay(store, tools=[ask])
    assert [(one.status, one.difference) for one in found.runs] == [("suspended", None), ("completed", None)]
    assert "arguments" in found.runs[1].compared


async def test_a_run_that_was_cut_off_is_compared_as_far_as_it_got() -> None:
    store = await recorded([*SCRIPT[:1], call("look", place="bay"), "A ship."], plugins=[all_hooks()])
    whole = (await store.load("s")).records
    for count in range(1, len(whole)):
        part = InMemoryStore()
        part.append_now("s", whole[:count], expected_version=0)
        found = await replay(part, plugins=[all_hooks()])
        assert found.difference is None, count
    meddler = named("meddler", decide_tool=lambda self, run, call: Rewrite(arguments={"place": "pond"}))
    assert first(await replay(part, plugins=[all_hooks(), meddler])).plugins == ("meddler",)


async def test_a_resumed_run_is_as_it_was() -> None:
    store = InMemoryStore()
    started = anyio.Event()

    async def wait(place: str) -> str:
        """Look somewhere."""
        started.set()
        if place == "sea":
            await anyio.sleep_forever()
        return place

    again = Tool.from_function(wait, effect="read")
    agent = Agent(ScriptedModel(call("wait", place="sea")), tools=[again], store=store, replayable=True)
    async with agent.stream("Where?", session="s") as run:
        async for event in run:
            if isinstance(event, ToolStarted):
                break
    other = Tool.from_function(look, name="wait", effect="read")
    store2 = InMemoryStore()
    cut = [one for one in (await store.load("s")).records if one.kind not in ("call_finished", "run_ended")]
    store2.append_now("s", cut, expected_version=0)
    store2.reload_now("s")
    resuming = Agent(ScriptedModel("There."), tools=[other], store=store2, replayable=True)
    async with resuming.resume("s") as stream:
        await stream.wait()
    ran.clear()
    found = await replay(store2, tools=[other])
    assert found.difference is None
    assert [one.status for one in found.runs] == ["", "completed"]


async def test_what_reconcile_found_out_is_not_looked_up_again() -> None:
    async def find_out(place: str) -> str:
        ran.append("reconcile")
        return f"it was sent to {place}"

    async def hang(place: str) -> str:
        ran.append("send")
        await anyio.sleep_forever()
        return place

    send = Tool.from_function(hang, name="send", reconcile=find_out)
    store = InMemoryStore()
    agent = Agent(ScriptedModel(call("send", place="sea")), tools=[send], store=store, replayable=True)
    async with agent.stream("Send it", session="s") as run:
        async for event in run:
            if isinstance(event, ToolStarted):
                break
    cut = InMemoryStore()
    left = [one for one in (await store.load("s")).records if one.kind not in ("call_finished", "run_ended")]
    cut.append_now("s", left, expected_version=0)
    cut.reload_now("s")
    async with Agent(ScriptedModel("Sent."), tools=[send], store=cut, replayable=True).resume("s") as stream:
        assert (await stream.wait()).output == "Sent."
    assert ran == ["reconcile"]
    ran.clear()
    found = await replay(cut, tools=[send])
    assert found.difference is None
    assert [one.status for one in found.runs] == ["", "completed"]


async def test_a_cancelled_run_is_compared_up_to_its_stop() -> None:
    store = InMemoryStore()
    agent = Agent(ScriptedModel(*SCRIPT), tools=[look], plugins=[all_hooks()], store=store, replayable=True)
    async with agent.stream("Where?", session="s") as run:
        async for event in run:
            if event.type == "turn_started" and event.turn == 2:
                run.stop("enough")
                break
    ran.clear()
    found = await replay(store, plugins=[all_hooks()], tools=[look])
    assert (found.difference, found.runs[0].status) == (None, "cancelled")


async def test_calls_beside_one_that_was_cut_off_get_as_far_as_they_got() -> None:
    done = anyio.Event()

    async def work(name: str) -> str:
        if name != "quick":
            await anyio.sleep_forever()
        return name

    def after_tool(self: Any, run: Any, call: Any, result: Any) -> None:
        done.set()

    watching = named("w", before_tool=lambda self, run, call: None, after_tool=after_tool)
    tools = [Tool.from_function(work, effect="read")]
    store = InMemoryStore()
    calls = [call("work", name=name) for name in ("one", "quick", "two")]
    agent = Agent(ScriptedModel(calls), tools=tools, plugins=[watching], store=store, replayable=True)
    async with anyio.create_task_group() as group, agent.stream("Go", session="s") as run:

        async def suspend() -> None:
            await done.wait()
            await anyio.lowlevel.checkpoint()
            await run.suspend()

        group.start_soon(suspend)
        with pytest.raises(RunCancelledError):
            async for _ in run:
                pass
    found = await replay(store, tools=tools, plugins=[watching])
    assert found.difference is None
    assert found.runs[0].status == "suspended"


async def test_a_fork_is_replayed_on_its_own() -> None:
    store = InMemoryStore()
    agent = Agent(ScriptedModel(*SCRIPT, "B."), tools=[look], store=store, replayable=True)
    await agent.run("One", session="s")
    whole = (await store.load("s")).records
    first_answer = next(one for one in whole if one.kind == "message" and one.message.kind == "assistant")
    await fork_session(store, "s", "f", at_message=first_answer.message.id)
    await agent.run("Other", session="f")
    ran.clear()
    found = await Agent(Unreachable(), tools=[look], store=store).replay("f")
    assert found.difference is None
    assert [one.status for one in found.runs] == ["", "completed"]


async def test_there_is_nothing_to_replay() -> None:
    store = await recorded(SCRIPT)
    agent = Agent(Unreachable(), store=store)
    with pytest.raises(SessionError, match="session 'x' has no run; nothing was said in it yet"):
        await agent.replay("x")
    with pytest.raises(SessionError, match="has no run 'zzz'; its last runs are"):
        await agent.replay("s", run_id="zzz")


async def test_what_stands_in_the_history_is_not_stored_twice() -> None:
    long = "whale " * 20_000
    huge = Tool.from_function(lambda: long, name="huge", effect="read", max_result_chars=None)
    store = await recorded([call("huge"), Step(long), "unused"], tools=[huge], plugins=[])
    tapes = [one for one in (await store.load("s")).records if one.kind == "run_tape"]
    assert sum(len(one.to_json()) for one in tapes) < 2000
    assert len(tapes) == 4  # with the request, each answer, and the end


async def test_what_is_stored_can_be_read_again_and_is_no_trouble_where_it_is_not_known() -> None:
    store = await recorded(SCRIPT, plugins=[all_hooks()])
    records = (await store.load("s")).records
    tapes = [one for one in records if one.kind == "run_tape"]
    assert [record_from_json(one.to_json()) for one in tapes] == tapes
    older = [record_from_json(one.to_json().replace('"run_tape"', '"of_later"')) for one in tapes]
    assert {(one.kind, getattr(one, "known", 0)) for one in older} == {("newer", None)}
    with_tapes, without = SessionView(), SessionView()
    for one in records:
        with_tapes.apply(one)
        if one.kind != "run_tape":
            without.apply(one)
    assert with_tapes.log == without.log


async def test_other_runs_store_nothing_more() -> None:
    store = InMemoryStore()
    await Agent(ScriptedModel(*SCRIPT), tools=[look], store=store).run("Where?", session="s")
    kinds = [one.kind for one in (await store.load("s")).records]
    assert kinds == ["message", "message", "call_started", "call_finished", "message", "run_ended"]


@pytest.mark.parametrize("replayable", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
async def test_runs_that_hear_what_an_earlier_one_did_not(replayable: bool, resumed: bool) -> None:
    store = InMemoryStore()
    options: Any = {"tools": [look], "store": store, "replayable": replayable}
    async with Agent(ScriptedModel(Step("Half of it.", error=ConnectionError("gone"))), **options).stream(
        "Where?", session="s"
    ) as run:
        with pytest.raises(ConnectionError):
            async for event in run:
                if event.type == "message_started":
                    run.steer("Here!")
                    run.follow_up("And then?")
    agent = Agent(ScriptedModel("There.", "Nothing."), **options)
    async with agent.resume("s") if resumed else agent.stream("Go on", session="s") as run:
        await run.wait()
    found = await agent.replay("s", run_id=run.run_id)
    assert found.difference is None
    assert len(found.runs) == 1
