"""What the plugin does for a session: when, with which model, what stays, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, InMemoryStore, ModelResponse, TextPart, Usage, hookimpl, tool
from trilane.errors import ConfigError
from trilane.events import CompactionCompleted, PluginFailed
from trilane.sessions import fork_session
from trilane.testing import ScriptedModel, assert_history, call, record
from trilane_compact import CompactPlugin, compact, pinned
from trilane_compact.marks import is_summary

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]
LONG = "ships and harbours " * 30  # about 160 tokens


class PlainStore:
    """A store that has to be awaited."""

    def __init__(self) -> None:
        inner = InMemoryStore()
        self.lease, self.load, self.append = inner.lease, inner.load, inner.append


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages if message.kind in ("user", "assistant")]


async def talk(agent: Agent[None, str], *requests: Any, session: str = "s") -> list[Any]:
    """Work requests one after the other; the events of all of them."""
    events: list[Any] = []
    for request in requests:
        async with agent.stream(request, session=session) as run:
            recorded = await record(run)
        recorded.check()
        events += recorded.events
    return events


async def test_a_session_is_compacted_when_the_context_is_full_and_not_before(worker: Make) -> None:
    model = worker()
    agent = Agent(model, plugins=[compact(context_tokens=2000)])
    events = await talk(agent, *[f"{n}: {LONG}" for n in range(6)])
    done = [event for event in events if event.type == "compaction_completed"]
    assert [event.changed for event in done] == [False] * 5 + [True]
    assert "7 messages (about 1,1" in done[-1].reason
    request = model.turns[-1].messages
    assert_history(request, as_request=True)
    assert texts(request)[0].startswith("0:")
    summary = texts(request)[1]
    assert summary.startswith("[Summary of 7 earlier messages of this conversation,")
    assert summary.endswith("It is summed up.")
    assert [text[:6] for text in texts(request)[2:]] == ["4: shi", "Re: 4:", "5: shi"]
    (asked,) = model.asked
    assert "User: 3: ships" in asked.messages[0].text
    assert "User: 0: ships" not in asked.messages[0].text  # it stays, so nobody has to say it again
    progress = [event.text for event in events if event.type == "compaction_progress"]
    assert progress[0].startswith("summarising 7 messages (about 1,1")
    assert progress[0].endswith("tokens) with worker")


async def test_what_is_stored_stays_whole(worker: Make) -> None:
    agent = Agent(worker(), plugins=[compact(context_tokens=2000)])
    requests = [f"{n}: {LONG}" for n in range(8)]
    await talk(agent, *requests)
    page = await agent.store.load("s")
    stored = [one.message for one in page.records if one.kind == "message"]
    assert [text for text in texts(stored) if not text.startswith("Re:")] == requests
    assert not any(is_summary(message) for message in stored)


async def test_a_summary_is_written_anew_with_what_it_says_and_stands_for_all(worker: Make) -> None:
    model = worker(lambda request, emit: f"Sum {len(model.asked)}.")
    agent = Agent(model, plugins=[compact(context_tokens=2000)])
    await talk(agent, *[f"{n}: {LONG}" for n in range(16)])
    assert len(model.asked) >= 2
    second = model.asked[1].messages[0].text
    assert "<earlier_summary>\nSum 1.\n</earlier_summary>" in second
    assert "[Summary of" not in second
    last = model.turns[-1].messages
    (summary,) = [message for message in last if is_summary(message)]
    assert f"Sum {len(model.asked)}." in summary.text
    number = int(summary.text.split()[2])
    assert number + len(last) - 1 == 31  # every message is there, or counted


async def test_tool_turns_of_a_long_run_are_compacted_while_it_works(worker: Make) -> None:
    @tool(effect="read")
    async def look(at: int) -> str:
        """Look.

        Args:
            at: Where.
        """
        return f"At {at}: {LONG}"

    def answer(request: Any) -> Any:
        if request.turn == 12:
            return "All seen."
        calls = [call("look", at=request.turn), call("look", at=-request.turn)]
        from trilane import ToolCallPart

        return ModelResponse(parts=tuple([ToolCallPart(call=one) for one in calls]), stop_reason="tool_calls")

    model = worker(answer=answer)
    agent = Agent(model, tools=[look], plugins=[compact(context_tokens=1600)])
    async with agent.stream("Look everywhere.", session="s") as run:
        events = await record(run)
    events.check()
    assert run.result.output == "All seen."
    assert sum(event.changed for event in events.of(CompactionCompleted)) >= 2
    for request in model.turns:
        assert_history(request.messages, as_request=True)
        said = [message.text for message in request.messages if message.kind == "user"]
        assert said[-1] == "Look everywhere."
    assert len(run.result.new_messages) == 1 + 11 * 2 + 1
    assert len(run.result.messages) < 20


async def test_pinned_requests_and_whatever_keep_names_stay_word_for_word(worker: Make) -> None:
    model = worker()
    plugin = compact(keep=lambda message: "treasure" in getattr(message, "text", ""), context_tokens=2000)
    agent = Agent(model, plugins=[plugin])
    requests = [f"0: {LONG}", pinned("Never sink a ship."), "Where is the treasure?"]
    await talk(agent, *requests, *[f"{n}: {LONG}" for n in range(3, 12)])
    assert len(model.asked) >= 2
    last = texts(model.turns[-1].messages)
    assert last[1:4] == ["Never sink a ship.", "Where is the treasure?", "Re: Where is the treasure?"]
    assert last[4].startswith("[Summary of")


async def test_the_providers_own_count_is_preferred(worker: Make) -> None:
    def counted(request: Any) -> ModelResponse:
        # This provider says of every request that it is nearly empty, and of the fifth that it is nearly full.
        tokens = 90_000 if len(model.turns) == 5 else 10
        return ModelResponse(parts=(TextPart(text="Yes."),), usage=Usage(input_tokens=tokens))

    model = worker(answer=counted)
    agent = Agent(model, plugins=[compact(context_tokens=100_000)])
    events = await talk(agent, *[f"{n}: {LONG * 80}" for n in range(7)])
    done = [event.changed for event in events if event.type == "compaction_completed"]
    assert done == [False] * 5 + [True, False]


@pytest.mark.parametrize("given", ["setting", "model", "neither"])
async def test_the_context_is_that_of_the_settings_or_what_the_model_says_of_itself(worker: Make, given: str) -> None:
    model = worker()
    if given != "neither":
        model.context_tokens = 2000 if given == "model" else 9_000_000
    agent = Agent(model, plugins=[compact(context_tokens=2000) if given == "setting" else compact()])
    events = await talk(agent, *[f"{n}: {LONG}" for n in range(6)])
    assert any(event.type == "compaction_completed" and event.changed for event in events) is (given != "neither")


async def test_another_model_summarises_where_the_settings_name_one(worker: Make) -> None:
    other = ScriptedModel("The other one has summed up.", name="other")

    class Provider:
        name = "other"

        @hookimpl
        def register_models(self, registry: Any) -> None:
            registry.add("other", lambda name: other)

    model = worker()
    agent = Agent(model, plugins=[compact(context_tokens=2000, model="other:small"), Provider()])
    events = await talk(agent, *[f"{n}: {LONG}" for n in range(6)])
    assert not model.asked
    other.assert_finished()
    assert "summed up" in texts(model.turns[-1].messages)[1]
    assert any("with other:small" in event.text for event in events if event.type == "compaction_progress")


@pytest.mark.parametrize("setting", ["none", ""])
async def test_without_a_language_model_the_summary_is_a_list(worker: Make, setting: str) -> None:
    model = worker()
    if not setting:
        model._name = "offline:planner"
    agent = Agent(model, plugins=[compact(context_tokens=2000, model=setting)])
    await talk(agent, *[f"{n}: {LONG}" for n in range(6)])
    assert not model.asked
    lines = texts(model.turns[-1].messages)[1].split("\n")
    assert lines[2].startswith("Assistant: Re: 0: ships")
    assert lines[-1].startswith("Assistant: Re: 3: ships")
    assert all(len(line) < 300 for line in lines[2:])


async def test_what_a_summary_used_is_counted(worker: Make) -> None:
    def summary(request: Any, emit: Any) -> ModelResponse:
        return ModelResponse(parts=(TextPart(text="Sum."),), usage=Usage(input_tokens=1400, output_tokens=3))

    agent = Agent(worker(summary), plugins=[compact(context_tokens=2000)])
    await talk(agent, *[f"{n}: {LONG}" for n in range(5)])
    result = await agent.run(f"5: {LONG}", session="s")
    assert result.usage == Usage(input_tokens=1400, output_tokens=3)
    assert result.turns == 1


async def test_a_long_summary_is_told_while_it_is_written(worker: Make) -> None:
    async def summary(request: Any, emit: Any) -> ModelResponse:
        from trilane import Delta

        for _ in range(50):
            await emit(Delta(text="ten letters and more. "))
        return ModelResponse()

    agent = Agent(worker(summary), plugins=[compact(context_tokens=4000)])
    async with agent.stream(f"0: {LONG}", session="s"):
        pass
    events = await talk(agent, *[f"{n}: {LONG}" for n in range(1, 12)])
    told = [event.text for event in events if event.type == "compaction_progress"]
    assert "418 characters are written" in told
    assert "836 characters are written" in told
    assert any(event.type == "compaction_completed" and event.changed for event in events)


# ---- by command ------------------------------------------------------------------------------------------------------


async def test_a_short_session_is_compacted_if_somebody_asks(worker: Make) -> None:
    model = worker()
    agent = Agent(model, plugins=[compact()])
    await talk(agent, *[f"{n}: {LONG}" for n in range(3)])
    assert await agent.compact("s") is True
    assert await agent.compact("s") is False  # nothing to compact, and nobody is asked
    assert len(model.asked) == 1
    await talk(agent, "And now?")
    assert [text[:6] for text in texts(model.turns[-1].messages)] == ["0: shi", "[Summa", "2: shi", "Re: 2:", "And no"]


async def test_one_that_is_switched_off_still_works_by_command(worker: Make) -> None:
    model = worker()
    agent = Agent(model, plugins=[compact(context_tokens=2000, automatic=False)])
    events = await talk(agent, *[f"{n}: {LONG}" for n in range(12)])
    assert not any(event.type == "compaction_completed" and event.changed for event in events)
    assert await agent.compact("s") is True


@pytest.mark.parametrize("make_store", [InMemoryStore, PlainStore])
async def test_a_compaction_is_taken_back_whole(worker: Make, make_store: Any) -> None:
    store, model = make_store(), worker()
    agent = Agent(model, plugins=[compact()], store=store)
    requests = [f"{n}: {LONG}" for n in range(4)]
    await talk(agent, *requests)
    before = await fork_session(store, "s")
    assert await agent.compact("s") is True
    assert await agent.undo_compaction("s") is True
    await agent.run("And now?", session="s")
    await agent.run("And now?", session=before)
    first, second = model.turns[-2:]
    assert texts(first.messages) == texts(second.messages)
    assert len(first.messages) == 9


# ---- other processes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_store", [InMemoryStore, PlainStore])
async def test_another_process_goes_on_from_the_summary(worker: Make, make_store: Any) -> None:
    store = make_store()
    await talk(
        Agent(worker(), plugins=[compact(context_tokens=2000)], store=store), *[f"{n}: {LONG}" for n in range(6)]
    )
    model = worker()
    events = await talk(Agent(model, plugins=[compact(context_tokens=2000)], store=store), "And now?")
    assert texts(model.turns[0].messages)[1].startswith("[Summary of 7")
    assert not any(event.type == "compaction_completed" and event.changed for event in events)


async def test_usage_from_before_a_compaction_starts_no_other_in_another_process(worker: Make) -> None:
    def nearly_full(request: Any) -> ModelResponse:
        tokens = 85_000 if len(request.messages) == 9 and not model.asked else 900
        return ModelResponse(parts=(TextPart(text="Yes."),), usage=Usage(input_tokens=tokens))

    store = PlainStore()
    model = worker(answer=nearly_full)
    await talk(
        Agent(model, plugins=[compact(context_tokens=100_000)], store=store), *[f"{n}: {LONG * 70}" for n in range(6)]
    )
    assert len(model.asked) == 1
    for _ in range(3):  # each time a process that knows nothing
        await talk(Agent(model, plugins=[compact(context_tokens=100_000)], store=store), "And now?")
    assert len(model.asked) == 1


async def test_a_fork_from_before_the_compaction_sees_everything(worker: Make) -> None:
    store, model = InMemoryStore(), worker()
    agent = Agent(model, plugins=[compact(context_tokens=2000)], store=store)
    await talk(agent, *[f"{n}: {LONG}" for n in range(6)])
    stored = [one.message for one in (await store.load("s")).records if one.kind == "message"]
    early = await fork_session(store, "s", at_message=stored[3].id)
    late = await fork_session(store, "s")
    await talk(agent, "Early?", session=early)
    await talk(agent, "Late?", session=late)
    assert [text[:3] for text in texts(model.turns[-2].messages)] == ["0: ", "Re:", "1: ", "Re:", "Ear"]
    assert texts(model.turns[-1].messages)[1].startswith("[Summary of 7")


async def test_runs_that_are_replayable_are_compacted_alike_and_replayed_without_a_summary(worker: Make) -> None:
    model = worker()
    model.context_tokens = 2000
    agent = Agent(model, plugins=[compact()], replayable=True)
    events = await talk(agent, *[f"{n}: {LONG}" for n in range(7)])
    assert [event.changed for event in events if event.type == "compaction_completed"] == [False] * 5 + [True, False]
    asked = len(model.asked)
    replay = await agent.replay("s")
    assert replay.difference is None
    assert len(replay.runs) == 7
    assert len(model.asked) == asked


# ---- settings --------------------------------------------------------------------------------------------------------


async def test_the_installed_plugin_reads_its_settings_where_it_is_used(
    worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILANE_COMPACT_CONTEXT_TOKENS", "2000")
    monkeypatch.setenv("TRILANE_COMPACT_THRESHOLD", "0.5")
    agent = Agent(worker(), plugins=["compact"])
    events = await talk(agent, *[f"{n}: {LONG}" for n in range(6)])
    done = [event.changed for event in events if event.type == "compaction_completed"]
    assert done.index(True) == 3
    plugin = CompactPlugin(context_tokens=1_000_000)  # what is given in code is stronger
    events = await talk(Agent(worker(), plugins=[plugin]), *[f"{n}: {LONG}" for n in range(6)])
    assert not any(event.changed for event in events if event.type == "compaction_completed")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"keep_share": 1}, "keep_share"),
        ({"threshold": 0.2}, "keep must be less than threshold"),
        ({"seconds": 0}, "seconds"),
    ],
)
async def test_a_wrong_setting_is_told_and_fails_no_run(worker: Make, settings: dict[str, Any], told: str) -> None:
    agent = Agent(worker(), plugins=[compact(**settings)])
    async with agent.stream("Hello?") as run:
        events = await record(run)
    assert run.result.output == "Re: Hello?"
    failure = events.one(PluginFailed)
    assert isinstance(failure.error, ConfigError)
    assert told in str(failure.error)


async def test_one_plugin_serves_sessions_side_by_side(worker: Make) -> None:
    model, plugin = worker(), compact(context_tokens=2000)
    agents = [Agent(model, plugins=[plugin]) for _ in range(2)]
    for n in range(6):
        for agent in agents:
            for session in ("s", "t"):
                await agent.run(f"{n}: {LONG}", session=session)
    assert len(model.asked) == 4
    assert not [one for one in model.turns if len(one.messages) > 11]
