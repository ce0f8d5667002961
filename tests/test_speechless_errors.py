"""Errors of plugins, tools, models and stores that cannot even say what they are: their `__str__` raises.

Whoever reports such an error must neither fail in its place nor say less than its type.
"""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from importlib.metadata import EntryPoint
from typing import Any

import anyio
import pytest

from trilane import Agent, Event, EventSink, InMemoryStore, ToolContext, hookimpl, tool
from trilane.errors import PluginLoadError, StoreError, TrilaneError
from trilane.hookspecs import HOOKS
from trilane.models import ModelRequest
from trilane.plugins import PluginManager, installed
from trilane.testing import ScriptedModel, assert_history, call

pytestmark = pytest.mark.anyio


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot be said")

    def __repr__(self) -> str:
        return "SpeechlessError()"


@tool
async def look() -> str:
    """Look."""
    return "a ship"


@tool
async def fail() -> str:
    """Fail."""
    raise SpeechlessError


def broken(hook: str, **marks: Any) -> Any:
    def raise_it() -> None:
        raise SpeechlessError

    made: Any = type("Plugin", (), {"name": "broken"})()
    setattr(made, hook, hookimpl(**marks)(raise_it))
    return made


async def result_of(agent: Agent[Any, Any], **options: Any) -> Any:
    """How a run ended. Each of its events can be written down."""
    async with agent.stream("Go", **options) as run:
        try:
            async for event in run:
                assert json.loads(event.to_json())["type"] == event.type
        except SpeechlessError:
            assert isinstance(run.result.error, SpeechlessError)
        except ConnectionError:
            assert isinstance(run.result.error, ConnectionError)
        except TrilaneError as error:
            assert "SpeechlessError" in str(error)  # noqa: PT017
    assert_history(run.result.messages)
    assert json.loads(run.result.to_json())["status"] == run.result.status
    return run.result


@pytest.mark.parametrize("strict", [False, True], ids=["contained", "strict"])
@pytest.mark.parametrize("hook", [name for name in HOOKS if not name.startswith("register_") and name != "on_reply"])
async def test_in_a_hook(hook: str, strict: bool) -> None:
    plugin = broken(hook)
    plugin.strict = strict
    ends = {"on_error": ConnectionError("gone"), "on_model_error": ConnectionError("gone")}
    model = ScriptedModel(call("look"), ends.get(hook, "Done."))
    result = await result_of(Agent(model, tools=[look], plugins=[plugin]), replayable=True)
    assert isinstance(result.status, str)
    for failure in result.hook_failures:
        assert (failure.plugin, failure.hook, type(failure.error)) == ("broken", hook, SpeechlessError)


class Odd:
    """What cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("it cannot be said")


@pytest.mark.parametrize("hook", [name for name in HOOKS if not name.startswith("register_") and name != "on_reply"])
async def test_what_a_hook_returns_may_be_unable_to_say_what_it_is(hook: str) -> None:
    plugin: Any = type("Plugin", (), {"name": "broken"})()
    setattr(plugin, hook, hookimpl(lambda: Odd()))
    ends = {"on_error": ConnectionError("gone"), "on_model_error": ConnectionError("gone")}
    model = ScriptedModel(call("look"), ends.get(hook, "Done."))
    async with Agent(model, tools=[look], plugins=[plugin]).stream("Go", replayable=True) as run:
        try:
            async for event in run:
                assert json.loads(event.to_json())["type"] == event.type
        except ConnectionError:
            assert hook in ends
        except TrilaneError as error:
            assert "broken" in str(error)  # noqa: PT017
    for failure in run.result.hook_failures:
        assert failure.hook == hook
        assert isinstance(failure.error, TrilaneError)


async def test_in_a_tool() -> None:
    result = await result_of(Agent(ScriptedModel(call("fail"), "Done."), tools=[fail]), replayable=True)
    assert result.output == "Done."
    (tool_result,) = result.messages[2].results
    assert tool_result.outcome == "error"
    assert "SpeechlessError" in tool_result.content


async def test_in_the_model() -> None:
    result = await result_of(Agent(ScriptedModel(SpeechlessError())), replayable=True)
    assert result.status == "failed"
    assert isinstance(result.error, SpeechlessError)


async def test_in_a_child() -> None:
    child = Agent(ScriptedModel(SpeechlessError(), name="child model"), name="child")
    delegate = child.as_tool(name="delegate", description="Delegates a piece of work.")
    result = await result_of(Agent(ScriptedModel(call("delegate", request="Look"), "Done."), tools=[delegate]))
    assert result.output == "Done."
    assert "The agent delegate failed: SpeechlessError" in result.messages[2].results[0].content


async def test_in_what_a_plugin_asks_a_model() -> None:
    class Asker:
        name = "asker"

        @hookimpl
        async def before_run(self, run: Any) -> None:
            with pytest.raises(SpeechlessError):
                await run.call_model(ModelRequest(), model=ScriptedModel(SpeechlessError()))

    result = await result_of(Agent(ScriptedModel("Done."), plugins=[Asker()]), replayable=True)
    assert (result.output, result.hook_failures) == ("Done.", ())


async def test_in_a_reply() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str(await ctx.ask("Which ship?"))

    async with Agent(ScriptedModel(call("ask"), "Done."), tools=[ask], plugins=[broken("on_reply")]).stream(
        "Go"
    ) as run:
        async for event in run:
            if event.type == "reply_requested":
                receipt = run.reply(event.question.id, "Moby")
                assert receipt.status == "invalid"
                assert "plugin 'broken' failed in on_reply: SpeechlessError" in receipt.reasons[0]
                run.stop("enough")
                break


class BrokenStore:
    """A store whose method `fails` does."""

    def __init__(self, fails: str) -> None:
        self._inner = InMemoryStore()
        self._fails = fails

    def lease(self, session: str, *, ttl_seconds: float) -> AbstractAsyncContextManager[Any]:
        if self._fails == "lease":
            raise SpeechlessError
        return self._inner.lease(session, ttl_seconds=ttl_seconds)

    async def load(self, session: str, **options: Any) -> Any:
        if self._fails == "load":
            raise SpeechlessError
        return await self._inner.load(session, **options)

    async def append(self, session: str, records: Any, **options: Any) -> Any:
        if self._fails == "append":
            raise SpeechlessError
        return await self._inner.append(session, records, **options)


@pytest.mark.parametrize("fails", ["lease", "load", "append"])
async def test_in_the_store(fails: str) -> None:
    with pytest.raises((StoreError, SpeechlessError)) as caught:
        await Agent(ScriptedModel("Done."), store=BrokenStore(fails)).run("Go", session="s")  # type: ignore[arg-type]
    assert isinstance(caught.value, SpeechlessError) or "SpeechlessError" in str(caught.value)


async def test_in_a_sink() -> None:
    async def write(event: Event) -> None:
        raise SpeechlessError

    sink = EventSink(write)
    async with anyio.create_task_group() as group:
        group.start_soon(sink.run)
        async with Agent(ScriptedModel("Done.")).stream("Go") as run:
            result = await run.forward(sink)
    assert "a write failed with SpeechlessError" in str(result.error)
    assert isinstance(sink.error, SpeechlessError)


@pytest.mark.parametrize("hook", ["register_models", "register_stores", "register_settings"])
async def test_in_a_hook_that_registers(hook: str) -> None:
    plugin: Any = type("Plugin", (), {"name": "broken"})()

    def raise_it(registry: Any) -> None:
        raise SpeechlessError

    setattr(plugin, hook, hookimpl(raise_it))
    with pytest.raises(PluginLoadError, match=r"plugin 'broken': .* failed: SpeechlessError"):
        Agent(ScriptedModel("Done."), plugins=[plugin])


def test_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: EntryPoint) -> object:
        raise SpeechlessError

    monkeypatch.setattr(EntryPoint, "load", load)
    found = [info for info in PluginManager(installed()).plugins() if info.status == "failed"]
    assert {info.reason for info in found} == {"SpeechlessError: (no readable message)"}
