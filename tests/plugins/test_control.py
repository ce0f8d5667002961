"""Enabling, disabling and reloading plugins of a live agent: between runs, without residue."""

from __future__ import annotations

import gc
import os
import sys
import textwrap
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trilane import Agent, hookimpl
from trilane.errors import AgentProtocolError, PluginLoadError, UnknownModelError
from trilane.plugins import installed
from trilane.testing import ScriptedModel

if TYPE_CHECKING:
    from conftest import Ship

pytestmark = pytest.mark.anyio

WHOLE = textwrap.dedent("""
    from pydantic import BaseModel
    from trilane import hookimpl, tool, ModelResponse, TextPart

    class Settings(BaseModel):
        size: int = 1

    class Own:
        name = "whole:own"
        closed = 0
        async def call(self, request, emit):
            return ModelResponse(parts=(TextPart(text="own"),))
        async def aclose(self):
            Own.closed += 1

    @tool
    def weigh(text: str) -> str:
        "Weigh a text."
        return text

    @hookimpl
    def register_settings(registry): registry.add("whole", Settings)

    @hookimpl
    def register_models(registry): registry.add("whole", lambda name: Own())

    @hookimpl
    def on_tool(run): return [weigh]

    seen = []

    @hookimpl
    def before_turn(run, turn): seen.append(turn)
""")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Notes:
    name = "notes"

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl
    def before_run(self, run: object) -> None:
        self.seen.append("before_run")


class Failing:
    name = "failing"

    @hookimpl
    def before_tool(self, run: object) -> None:
        raise ValueError("no")

    @hookimpl
    def after_turn(self, run: object) -> None:
        raise ValueError("no")


def write(folder: Path, module: str, source: str) -> None:
    """Rewrite a module so that no cached bytecode of the old text is taken for it."""
    path = folder / f"{module}.py"
    path.write_text(textwrap.dedent(source))
    stamp = path.stat().st_mtime + 10
    os.utime(path, (stamp, stamp))


async def tools_offered(agent: Agent[None, str], model: ScriptedModel) -> list[str]:
    await agent.run("Hello")
    return [tool.name for tool in model.requests[-1].tools]


async def test_disable_leaves_nothing_and_enable_brings_all_back(ship: Ship) -> None:
    ship("acme-whole", {"whole": "whole_plugin"}, {"whole_plugin": WHOLE})
    model = ScriptedModel("1", "2", "3")
    agent = Agent(model, plugins=["whole"])
    assert await tools_offered(agent, model) == ["weigh"]
    assert (await agent.run("Hello", model="whole")).output == "own"

    agent.plugins.disable("whole")
    assert [(info.name, info.status) for info in agent.plugins.plugins()] == [("whole", "blocked")]
    assert await tools_offered(agent, model) == []
    assert list((await agent.run("Hello", model=ScriptedModel("x"))).ledger) == []
    assert agent.plugins.model_providers() == []
    with pytest.raises(PluginLoadError, match="no active plugin has settings 'whole'"):
        agent.plugins.settings("whole")
    with pytest.raises(UnknownModelError, match="whole"):
        await agent.run("Hello", model="whole")

    assert agent.plugins.enable("whole") == "whole"
    assert await tools_offered(agent, model) == ["weigh"]
    assert agent.plugins.settings("whole").model_dump() == {"size": 1}
    await agent.aclose()
    assert sys.modules["whole_plugin"].Own.closed == 1


async def test_a_plugin_that_was_given_as_an_object_comes_back_as_the_same_object() -> None:
    notes = Notes()
    agent = Agent(ScriptedModel("1", "2", "3"), plugins=[notes])
    agent.plugins.disable("notes")
    await agent.run("Hello")
    assert notes.seen == []
    agent.plugins.enable("notes")
    await agent.run("Hello")
    assert notes.seen == ["before_run"]
    assert agent.plugins.get("notes") is notes


async def test_unregister_keeps_no_reference_to_the_plugin() -> None:
    agent = Agent(ScriptedModel("1", "2"), plugins=[Notes()])
    await agent.run("Hello")
    there = weakref.ref(agent.plugins.get("notes"))
    agent.plugins.unregister("notes")
    await agent.run("Hello")
    gc.collect()
    assert there() is None


async def test_an_object_can_be_enabled_that_was_never_there() -> None:
    notes = Notes()
    agent = Agent(ScriptedModel("1"), disabled_plugins=["notes"])
    assert agent.plugins.enable(notes) == "notes"
    await agent.run("Hello")
    assert notes.seen == ["before_run"]
    with pytest.raises(PluginLoadError, match="loaded already"):
        agent.plugins.enable(notes)


@pytest.mark.parametrize("change", ["enable", "disable", "reload", "register", "unregister", "load"])
async def test_changes_are_refused_during_a_run(change: str) -> None:
    agent = Agent(ScriptedModel("1"), plugins=[Notes()])
    argument: Any = {"register": Failing(), "load": [Failing()], "enable": Failing()}.get(change, "notes")
    async with agent.stream("Hello", session="s1") as run:
        await run.__anext__()
        with pytest.raises(AgentProtocolError, match=r"while a run is active \(session 's1'\).*agent.active"):
            getattr(agent.plugins, change)(argument)
    assert agent.plugins.names() == ("notes",)
    agent.plugins.disable("notes")


async def test_a_hook_cannot_change_plugins() -> None:
    class Meddler:
        name = "meddler"

        @hookimpl
        def before_run(self, run: object) -> None:
            agent.plugins.disable("notes")

    agent: Agent[None, str] = Agent(ScriptedModel("1"), plugins=[Notes(), Meddler()])
    with pytest.raises(AgentProtocolError, match="while a run is active"):
        await agent.run("Hello")
    assert set(agent.plugins.names()) == {"notes", "meddler"}


async def test_a_stream_that_was_made_before_a_change_runs_with_the_change() -> None:
    notes = Notes()
    agent = Agent(ScriptedModel("1"), plugins=[notes])
    stream = agent.stream("Hello")
    agent.plugins.disable("notes")
    async with stream as run:
        await run.wait()
    assert notes.seen == []


async def test_an_observer_that_was_switched_off_starts_anew_when_it_is_enabled_again() -> None:
    agent = Agent(ScriptedModel(*"123456"), plugins=[Failing(), Notes()])
    results = [await agent.run("Hello") for _ in range(4)]
    assert [len(result.hook_failures) for result in results] == [1, 1, 1, 0]
    assert results[2].hook_failures[0].disabled
    agent.plugins.disable("notes")
    assert (await agent.run("Hello")).hook_failures == ()  # another plugin's change does not switch it on
    agent.plugins.disable("failing")
    agent.plugins.compile()
    agent.plugins.enable("failing")
    assert len((await agent.run("Hello")).hook_failures) == 1


async def test_reload_takes_the_new_code_and_keeps_the_place(ship: Ship) -> None:
    source = """
        from trilane import hookimpl
        from acme_part import WORD
        @hookimpl
        def on_model_request(run, request): return request.with_context(WORD)
    """
    folder = ship("acme-one", {"one": "acme_one"}, {"acme_one": textwrap.dedent(source), "acme_part": "WORD = 'old'"})
    ship("acme-two", {"two": "acme_two"}, {"acme_two": textwrap.dedent(source).replace("WORD)", "'two')")})
    model = ScriptedModel("1", "2", "3")
    agent = Agent(model, plugins=installed())
    await agent.run("Hello")
    write(folder, "acme_one", source.replace("WORD)", "'new, ' + WORD)"))
    agent.plugins.reload("one")
    await agent.run("Hello")
    assert [request.context for request in model.requests] == [("two", "old"), ("two", "new, old")]
    assert agent.plugins.names() == ("one", "two")
    assert [info.status for info in agent.plugins.plugins()] == ["loaded", "loaded"]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("from trilane import hookimpl\n@hookimpl\ndef before_rum(run): ...", "did you mean 'before_run'"),
        ("from trilane import hookimpl\n@hookimpl(before='nobody')\ndef before_run(run): ...", "nobody"),
        ("from trilane import hookimpl\n@hookimpl\ndef register_models(registry): raise OSError('x')", "OSError"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
async def test_a_reload_that_fails_leaves_the_old_plugin_in_use(ship: Ship, broken: str, says: str) -> None:
    folder = ship("acme-whole", {"whole": "whole_plugin"}, {"whole_plugin": WHOLE})
    model = ScriptedModel("1")
    agent = Agent(model, plugins=["whole"])
    module = sys.modules["whole_plugin"]
    write(folder, "whole_plugin", broken)
    with pytest.raises(PluginLoadError, match=f"(?s)'whole' of acme-whole 1.0 .*the old one stays in use.*{says}"):
        agent.plugins.reload("whole")
    assert sys.modules["whole_plugin"] is module
    assert await tools_offered(agent, model) == ["weigh"]
    assert agent.plugins.settings("whole").model_dump() == {"size": 1}


async def test_a_plugin_that_failed_to_load_can_be_loaded_when_it_is_mended(ship: Ship) -> None:
    folder = ship("acme-whole", {"whole": "whole_plugin"}, {"whole_plugin": "1 / 0"})
    model = ScriptedModel("1")
    agent = Agent(model, plugins=installed())
    assert [info.status for info in agent.plugins.plugins()] == ["failed"]
    with pytest.raises(PluginLoadError, match="ZeroDivisionError"):
        agent.plugins.enable("whole")
    write(folder, "whole_plugin", WHOLE)
    agent.plugins.reload("whole")
    assert await tools_offered(agent, model) == ["weigh"]


def test_what_cannot_be_reloaded_says_why(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    ship("acme-whole", {"whole": "whole_plugin"}, {"whole_plugin": WHOLE})
    agent = Agent(ScriptedModel(), plugins=[Notes()])
    with pytest.raises(PluginLoadError, match="was given as an object"):
        agent.plugins.reload("notes")
    with pytest.raises(PluginLoadError, match="did you mean 'whole'"):
        agent.plugins.reload("whol")
    agent.plugins.disable("whole")
    with pytest.raises(PluginLoadError, match=r"blocked by plugins\.disable"):
        agent.plugins.reload("whole")
    with pytest.raises(PluginLoadError, match="did you mean 'notes'"):
        agent.plugins.disable("note")
    monkeypatch.setenv("TRILANE_DISABLED_PLUGINS", "whole")
    other = Agent(ScriptedModel(), plugins=installed())
    with pytest.raises(PluginLoadError, match="take its name out of that variable"):
        other.plugins.enable("whole")


async def test_a_failed_enable_changes_nothing(ship: Ship) -> None:
    ship("acme-bad", {"bad": "acme_bad"}, {"acme_bad": "1 / 0"})
    agent = Agent(ScriptedModel(), disabled_plugins=["bad"], plugins=installed())
    before = (agent.plugins.plugins(), dict(agent.plugins.disabled))
    with pytest.raises(PluginLoadError, match="'bad' cannot be enabled: ZeroDivisionError"):
        agent.plugins.enable("bad")
    assert (agent.plugins.plugins(), agent.plugins.disabled) == before


async def test_the_models_of_a_reloaded_plugin_are_made_anew(ship: Ship) -> None:
    folder = ship("acme-whole", {"whole": "whole_plugin"}, {"whole_plugin": WHOLE})
    agent = Agent("whole", plugins=["whole"])
    assert (await agent.run("Hello")).output == "own"
    old = sys.modules["whole_plugin"]
    write(folder, "whole_plugin", WHOLE.replace('text="own"', 'text="newer"'))
    agent.plugins.reload("whole")
    assert (await agent.run("Hello")).output == "newer"
    await agent.aclose()
    assert (old.Own.closed, sys.modules["whole_plugin"].Own.closed) == (1, 1)
