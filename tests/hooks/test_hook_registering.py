"""The hooks that are called while a plugin is loaded: `register_models`, `register_stores`, `register_settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trilane import Agent, hookimpl
from trilane.errors import ConfigError, PluginLoadError
from trilane.plugins import PluginManager, resolve_store
from trilane.stores import InMemoryStore
from trilane.testing import FunctionModel, ScriptedModel

pytestmark = pytest.mark.anyio


class EchoSettings(BaseModel):
    """Settings of the plugin below."""

    suffix: str = "!"


class Echo:
    """A plugin that supplies a model, a store and settings, and writes down in which order it is asked for them."""

    name = "echo"

    def __init__(self) -> None:
        self.order: list[str] = []

    @hookimpl
    def register_stores(self, registry: Any) -> None:
        self.order.append("stores")
        registry.add("shelf", lambda place: InMemoryStore())

    @hookimpl
    def register_models(self, registry: Any) -> None:
        self.order.append("models")

        def make(name: str) -> FunctionModel:
            suffix = registry.settings.get("echo", EchoSettings).suffix
            return FunctionModel(lambda request, emit: request.messages[-1].text + suffix, name=f"echo:{name}")

        registry.add("echo", make, models=["loud", "quiet"], description="Says it again")

    @hookimpl
    def register_settings(self, registry: Any) -> None:
        self.order.append("settings")
        registry.add("echo", EchoSettings)


async def test_hook_register_models_supplies_a_model_by_name() -> None:
    plugin = Echo()
    agent = Agent("echo", plugins=[plugin])
    result = await agent.run("Hello")
    assert result.output == "Hello!"
    assert (await Agent("echo:quiet", plugins=[Echo()]).run("Hello")).output == "Hello!"
    assert [(one.name, one.models, one.description) for one in agent.plugins.model_providers()] == [
        ("echo", ("loud", "quiet"), "Says it again")
    ]


async def test_hook_register_models_is_called_once_while_loading_and_not_in_runs() -> None:
    plugin = Echo()
    agent = Agent("echo", plugins=[plugin])
    assert plugin.order == ["settings", "models", "stores"]
    await agent.run("Hello")
    await agent.run("Hello")
    assert plugin.order == ["settings", "models", "stores"]


async def test_hook_register_stores_supplies_a_store_by_name() -> None:
    manager = PluginManager([Echo()])
    store = resolve_store("shelf:here", manager)
    agent = Agent(ScriptedModel("Fine."), store=store)
    await agent.run("Hello", session="s")
    assert [one.name for one in manager.store_providers()] == ["shelf"]
    assert len((await store.load("s")).records) >= 2
    with pytest.raises(ConfigError, match="no active plugin supplies the session store 'shelv'"):
        resolve_store("shelv", manager)


async def test_hook_register_settings_are_read_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = Agent("echo", plugins=[Echo()])
    assert agent.plugins.settings_names("echo") == ("echo",)
    monkeypatch.setenv("TRILANE_ECHO_SUFFIX", "?")
    assert (await Agent("echo", plugins=[Echo()]).run("Hello")).output == "Hello?"
    assert agent.plugins.settings("echo") == EchoSettings(suffix="!"), "read before the variable was set"


class Broken:
    """A plugin whose implementation of `hook` raises; the others work."""

    name = "broken"

    def __new__(cls, hook: str) -> Any:
        def fail(registry: Any) -> None:
            raise OSError("no such library")

        def register_settings(registry: Any) -> None:
            registry.add("broken", EchoSettings)

        hooks = {"register_settings": register_settings, hook: fail}
        marked = {name: staticmethod(hookimpl(function)) for name, function in hooks.items()}
        return type("Plugin", (), {"name": "broken", **marked})()


@pytest.mark.parametrize("hook", ["register_models", "register_settings", "register_stores"])
async def test_hook_register_models_stores_and_settings_that_raise_leave_nothing_registered(hook: str) -> None:
    manager = PluginManager([Echo()])
    with pytest.raises(PluginLoadError, match=f"'broken'.*{hook}.*no such library"):
        manager.register(Broken(hook))
    assert manager.names() == ("echo",)
    assert manager.settings_names("broken") == ()
    assert [one.name for one in manager.model_providers()] == ["echo"]
    assert [one.name for one in manager.store_providers()] == ["shelf"]


async def test_hook_register_models_may_not_take_the_name_of_another_plugin() -> None:
    class Other:
        name = "other"

        @hookimpl
        def register_models(self, registry: Any) -> None:
            registry.add("echo", lambda name: ScriptedModel())

    with pytest.raises(PluginLoadError, match="register_models adds 'echo', which the plugin 'echo' has added already"):
        Agent(ScriptedModel(), plugins=[Echo(), Other()])
