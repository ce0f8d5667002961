"""Field cases about hooks and plugins through whole runs: F066 to F077."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from trilane import Agent, AgentPhase, Ask, hookimpl, tool
from trilane.models import ModelRequest
from trilane.testing import Recorder, ScriptedModel, assert_history, call, no_leaks, record

pytestmark = pytest.mark.anyio


@tool
async def look(what: str = "ships") -> str:
    """Look.

    Args:
        what: At what.
    """
    return f"seen {what}"


class Wrapping:
    """Writes down when its halves run; may raise in the closing one, in place of an error or of its own."""

    def __init__(self, name: str, log: list[str], fails: type[Exception] | None = None, instead: bool = False) -> None:
        self.name = name
        self._log, self._fails, self._instead = log, fails, instead

    async def _wrap(self, call_next: Any) -> Any:
        self._log.append(f"{self.name} in")
        try:
            return await call_next()
        except Exception as error:
            if self._instead and self._fails is not None:
                raise self._fails(self.name) from error
            raise
        finally:
            self._log.append(f"{self.name} out")
            if self._fails is not None and not self._instead:
                raise self._fails(self.name)


class AroundTool(Wrapping):
    @hookimpl
    async def around_tool(self, run: Any, call: Any, call_next: Any) -> Any:
        return await self._wrap(call_next)


class AroundModel(Wrapping):
    @hookimpl
    async def around_model(self, run: Any, request: Any, call_next: Any) -> Any:
        async def again() -> Any:
            return await call_next(request)

        return await self._wrap(again)


async def test_f066_around_model_closes_from_inside_out_and_chains_the_errors() -> None:
    log: list[str] = []
    plugins = [
        AroundModel("inner", log, LookupError, instead=True),
        AroundModel("middle", log, KeyError),
        AroundModel("outer", log),
    ]
    gone = ConnectionError("gone")
    with pytest.raises(Exception, match="middle") as caught:
        await Agent(ScriptedModel(gone), plugins=plugins).run("Go")
    assert log == ["outer in", "middle in", "inner in", "inner out", "middle out", "outer out"]
    chain: list[BaseException | None] = [caught.value]
    for error in chain:
        if error is not None:
            chain += [one for one in (error.__cause__, error.__context__) if one not in chain]
    assert gone in chain
    assert [one for one in chain if type(one) is LookupError]


@pytest.mark.parametrize("hook", ["on_delta", "on_message", "on_answer", "before_turn"])
async def test_f066_the_error_of_a_hook_keeps_what_stands_behind_it(hook: str) -> None:
    first = LookupError("first")

    def fail() -> None:
        try:
            raise first
        finally:
            raise KeyError("second")

    class Failing:
        name = "failing"

    setattr(Failing, hook, staticmethod(hookimpl(fail)))
    with pytest.raises(KeyError) as caught:
        await Agent(ScriptedModel("Hello."), plugins=[Failing()]).run("Go")
    assert caught.value.__context__ is first
    assert not caught.value.__suppress_context__


async def test_f066_around_tool_closes_from_inside_out_keeps_the_result_and_reports_every_failure() -> None:
    log: list[str] = []
    plugins = [AroundTool(name, log, KeyError) for name in ("a", "b", "c")]
    result = await Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=plugins).run("Go")
    ins = [line.removesuffix(" in") for line in log if line.endswith(" in")]
    outs = [line.removesuffix(" out") for line in log if line.endswith(" out")]
    assert (sorted(ins), outs) == (["a", "b", "c"], ins[::-1])
    assert [one.outcome for message in result.messages if message.kind == "tool" for one in message.results] == ["ok"]
    assert {failure.plugin for failure in result.hook_failures} >= {"a"}
    assert result.output == "Done."


@pytest.mark.parametrize("where", ["model", "tool", "hook"])
async def test_f069_every_run_that_began_has_one_end_and_the_callers_error(where: str) -> None:
    told: list[BaseException] = []
    recorder = Recorder(only=["before_run", "on_error", "close_run", "on_success", "on_cancel"])

    class Watcher:
        name = "watcher"

        @hookimpl
        def on_error(self, error: BaseException) -> None:
            told.append(error)

        @hookimpl
        def before_turn(self, turn: int) -> None:
            if where == "hook" and turn == 2:
                raise KeyError("hook")

    @tool(on_error="raise")
    async def breaks() -> str:
        """Break in the second turn."""
        raise KeyError("tool")

    second: Any = {"model": KeyError("model"), "tool": call("breaks"), "hook": "Done."}[where]
    agent = Agent(ScriptedModel(call("look"), second), tools=[look, breaks], plugins=[Watcher(), recorder])
    with pytest.raises(Exception, match=where) as caught:
        await agent.run("Go")
    assert told == [caught.value]
    assert recorder.names() == ["before_run", "on_error", "close_run"]


@pytest.mark.parametrize("parallel", [True, False])
async def test_f070_a_hook_that_fails_for_the_second_of_three_calls_is_reported_either_way(parallel: bool) -> None:
    @tool(parallel=parallel)
    async def work(number: int) -> str:
        """Work."""
        return str(number)

    class Filter:
        name = "filter"

        @hookimpl
        def after_tool(self, call: Any, result: Any) -> None:
            if call.arguments["number"] == 2:
                raise KeyError("filter")

    calls = [call("work", number=number) for number in (1, 2, 3)]
    result = await Agent(ScriptedModel(calls, "Done."), tools=[work], plugins=[Filter()]).run("Go")
    contents = [one.content for message in result.messages if message.kind == "tool" for one in message.results]
    assert contents == ["1", "2", "3"]
    assert [(one.plugin, one.hook, type(one.error)) for one in result.hook_failures] == [
        ("filter", "after_tool", KeyError)
    ]


@pytest.mark.parametrize("answer", [True, False])
async def test_f071_a_hook_that_fails_beside_a_question_does_not_answer_it(answer: bool) -> None:
    ran: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    class Asking:
        name = "asking"

        @hookimpl
        def decide_tool(self, call: Any) -> Ask | None:
            return None if call.approval else Ask(prompt="May I?")

        @hookimpl
        def before_tool(self) -> None:
            raise KeyError("contained")

    async with Agent(ScriptedModel(call("pay"), "Done."), tools=[pay], plugins=[Asking()]).stream("Go") as run:
        async for event in run:
            if event.type == "reply_requested":
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                assert ran == []
                run.reply(event.question.id, {"approve": answer})
    assert ran == (["paid"] if answer else [])
    assert run.result.output == "Done."


def _spoil(value: Any) -> None:
    """Change whatever can be changed of what a hook was given."""
    for change in ("clear", "sort", "reverse"):
        try:
            getattr(value, change)()
        except (AttributeError, TypeError):
            pass
    for name in ("append", "add"):
        try:
            getattr(value, name)("spoiled")
        except (AttributeError, TypeError):
            pass


async def test_f072_what_hooks_do_to_the_containers_they_get_changes_nothing() -> None:
    kept: list[Any] = []

    class Spoiler:
        name = "spoiler"

        @hookimpl
        def on_model_request(self, request: ModelRequest) -> None:
            kept.extend([request.messages, request.tools, request.settings.extra, request.tools[0].parameters])
            self._spoil_all()

        @hookimpl
        def decide_tool(self, call: Any) -> None:
            kept.append(call.arguments)
            self._spoil_all()

        @hookimpl
        def after_tool(self, call: Any, result: Any) -> None:
            kept.extend([call.arguments, result.data])
            self._spoil_all()

        @hookimpl
        def after_run(self, run: Any, result: Any) -> None:
            kept.extend([result.messages, result.new_messages, result.hook_failures, run.metadata])
            self._spoil_all()

        def _spoil_all(self) -> None:
            for value in kept:
                _spoil(value)

    @tool
    async def listing(names: list[str]) -> list[str]:
        """List."""
        return [*names, "c"]

    plain, spoiled = (
        Agent(
            ScriptedModel(call("listing", call_id="x", names=["b", "a"]), "Done.", "More."),
            tools=[listing],
            plugins=plugins,
        )
        for plugins in ([], [Spoiler()])
    )
    texts = []
    for agent in (plain, spoiled):
        await agent.run("Go", session="s")
        for value in kept:
            _spoil(value)
        result = await agent.run("More", session="s")
        assert_history(result.messages)
        texts.append(
            [
                [one.content for one in message.results] if message.kind == "tool" else getattr(message, "text", "")
                for message in result.messages
            ]
        )
    assert texts[0] == texts[1]


async def test_f073_hooks_of_one_name_keep_their_order_and_their_run() -> None:
    order: list[tuple[str, str]] = []

    class Slow:
        name = "slow"

        @hookimpl
        async def on_model_request(self, run: Any, request: ModelRequest) -> ModelRequest:
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            order.append((run.session_id, "slow"))
            return request.replace(tools=request.tools if run.session_id == "with" else ())

    class Quick:
        name = "quick"

        @hookimpl
        async def on_model_request(self, run: Any, request: ModelRequest) -> ModelRequest:
            order.append((run.session_id, "quick"))
            return request.with_context(str(len(request.tools)))

    seen = []
    for _ in range(20):
        order.clear()
        models = {name: ScriptedModel("Done.") for name in ("with", "without")}
        agent = Agent("scripted:x", plugins=[Slow(), Quick(), Supplier()], tools=[look])
        async with anyio.create_task_group() as tasks:
            for name, model in models.items():
                tasks.start_soon(partial(agent.run, "Go", session=name, model=model))
        assert [len(models[name].requests[0].tools) for name in models] == [1, 0]
        seen.append(tuple([plugin for session, plugin in order if session == name] for name in models))
    assert all(one == seen[0] for one in seen)
    assert sorted(seen[0][0]) == ["quick", "slow"]


class Supplier:
    """Supplies the models of the provider `scripted`."""

    name = "supplier"

    @hookimpl
    def register_models(self, registry: Any) -> None:
        registry.add("scripted", lambda name: ScriptedModel("Supplied.", "Again."))


async def test_f076_an_agent_needs_no_server_and_may_be_entered_and_left_twice() -> None:
    recorder = Recorder(only=["before_run", "close_run"])
    agent = Agent(ScriptedModel("One.", "Two.", "Three."), plugins=[recorder])
    async with no_leaks():
        assert (await agent.run("Go")).output == "One."
        for _ in range(2):
            async with agent.runtime() as rt, rt.stream("Go") as run:
                (await record(run)).check()
            assert run.state.phase is AgentPhase.COMPLETED
    assert recorder.names() == ["before_run", "close_run"] * 3


@pytest.mark.parametrize("first", [True, False])
async def test_f077_what_any_plugin_registers_is_there_before_the_first_hook_of_a_run(first: bool) -> None:
    seen: list[list[str]] = []

    class Offering:
        name = "offering"

        @hookimpl
        def on_tool(self) -> list[Any]:
            return [look]

    class Reading:
        name = "reading"

        @hookimpl
        def on_model_request(self, request: ModelRequest) -> None:
            seen.append([spec.name for spec in request.tools])

    plugins = [Reading(), Offering(), Supplier()]
    agent = Agent("scripted:x", plugins=plugins if first else plugins[::-1])
    assert (await agent.run("Go")).output == "Supplied."
    assert seen == [["look"]]
