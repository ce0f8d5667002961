"""Model providers and session stores by name."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from trilane.errors import ConfigError, PluginLoadError, UnknownModelError
from trilane.hookspecs import hookimpl
from trilane.messages import Delta
from trilane.models import Model, ModelRequest, ModelResponse
from trilane.plugins import (
    ModelRegistry,
    PluginManager,
    StoreRegistry,
    resolve_model,
    resolve_store,
    store_plugin,
)

from .conftest import Ship


class Named(Model):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def call(self, request: ModelRequest, emit: Callable[[Delta], Awaitable[None]]) -> ModelResponse:
        return ModelResponse()


def provider(name: str = "echo", factory: Callable[[str], Any] = Named, **options: Any) -> object:
    def register_models(registry: ModelRegistry) -> None:
        registry.add(name, factory, **options)

    return types.SimpleNamespace(name=f"plugin-{name}", register_models=hookimpl(register_models))


INSTALLED = """
from pydantic import BaseModel
from trilane.hookspecs import hookimpl
from tests_registries_model import Named

class Settings(BaseModel):
    suffix: str = "!"

class Plugin:
    made = 0

    def __init__(self):
        Plugin.made += 1

    @hookimpl
    def register_settings(self, registry):
        registry.add("remote", Settings)

    @hookimpl
    def register_models(self, registry):
        registry.add("remote", lambda name: Named(name + registry.settings.get("remote").suffix))

    @hookimpl
    def register_stores(self, registry):
        raise AssertionError("only models were asked for")

    @hookimpl
    def on_state(self, run): ...
"""


@pytest.fixture
def remote(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("tests_registries_model")
    module.__dict__["Named"] = Named
    monkeypatch.setitem(sys.modules, "tests_registries_model", module)
    ship("trilane-remote", {"remote": "fake_remote:Plugin"}, {"fake_remote": INSTALLED})


class TestModels:
    def test_a_model_object_is_the_model(self) -> None:
        model = Named("mine")

        assert resolve_model(model, PluginManager()) is model

    def test_what_is_neither_text_nor_model(self) -> None:
        with pytest.raises(ConfigError, match="3 is not a model; give a model object, or a text"):
            resolve_model(3, PluginManager())  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("spec", "given"), [("echo:loud", "loud"), ("echo:a:b", "a:b"), ("echo", "first"), ("echo:", "first")]
    )
    def test_the_factory_gets_what_stands_after_the_first_colon(self, spec: str, given: str) -> None:
        manager = PluginManager([provider(models=["first", "second"], description="Echoes.")])

        assert resolve_model(spec, manager).name == given
        (found,) = manager.model_providers()
        assert (found.name, found.plugin, found.models, found.description) == (
            "echo",
            "plugin-echo",
            ("first", "second"),
            "Echoes.",
        )

    def test_without_known_models_a_bare_provider_gives_an_empty_name(self) -> None:
        assert resolve_model("echo", PluginManager([provider()])).name == ""

    def test_an_installed_provider_is_loaded_for_its_models_only_and_once(
        self, remote: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = PluginManager()
        monkeypatch.setenv("TRILANE_REMOTE_SUFFIX", "?")

        assert resolve_model("remote:big", manager).name == "big?"
        assert resolve_model("remote", manager).name == "?"
        assert sys.modules["fake_remote"].Plugin.made == 1
        assert manager.names() == ()
        assert manager.compile().on_state == ()

    def test_a_blocked_provider_is_not_imported(self, remote: None) -> None:
        with pytest.raises(UnknownModelError) as caught:
            resolve_model("remote:big", PluginManager(disabled=["remote"]))

        assert str(caught.value) == (
            "the model 'remote:big' needs the plugin 'remote', which is blocked; remove it from "
            "TRILANE_DISABLED_PLUGINS, disabled_plugins or -p no:NAME"
        )
        assert "fake_remote" not in sys.modules

    def test_an_unknown_provider_names_the_nearest_and_what_to_install(self, remote: None) -> None:
        with pytest.raises(UnknownModelError) as caught:
            resolve_model("remot:big", PluginManager([provider()]))

        assert str(caught.value) == ("no plugin supplies the provider 'remot' of 'remot:big'; did you mean 'remote'?")

    def test_capitals_are_no_other_name(self, remote: None) -> None:
        with pytest.raises(UnknownModelError, match="of 'REMOTE:big'; did you mean 'remote'"):
            resolve_model("REMOTE:big", PluginManager())
        with pytest.raises(UnknownModelError, match="of 'Echo'; did you mean 'echo'"):
            resolve_model("Echo", PluginManager([provider()]))

    def test_only_providers_are_listed(self, ship: Ship, remote: None) -> None:
        ship("trilane-quiet", {"quiet": "fake_quiet"}, {"fake_quiet": "import imported_for_a_message"})
        with pytest.raises(UnknownModelError) as caught:
            resolve_model("acme", PluginManager([provider()]))

        assert str(caught.value) == (
            "no plugin supplies the provider 'acme' of 'acme'; there are: echo "
            "(if its package is missing: pip install trilane-acme)"
        )
        with pytest.raises(UnknownModelError) as caught:
            resolve_model("quite", PluginManager([provider()]))
        assert "did you mean" in str(caught.value), "one that cannot be imported may be the provider that was meant"

    def test_a_plugin_that_supplies_none_is_not_suggested(self, ship: Ship) -> None:
        ship("trilane-quiet", {"quiet": "fake_quiet"}, {"fake_quiet": ""})
        with pytest.raises(UnknownModelError) as caught:
            resolve_model("quite:x", PluginManager())
        assert "quiet" not in str(caught.value)

    def test_an_installed_plugin_without_models_supplies_none(self, ship: Ship) -> None:
        ship("trilane-quiet", {"quiet": "fake_quiet"}, {"fake_quiet": ""})

        with pytest.raises(UnknownModelError) as caught:
            resolve_model("quiet:x", PluginManager([provider()]))
        assert str(caught.value) == (
            "the model 'quiet:x' cannot be made: the plugin 'quiet' supplies no models; there are: echo"
        )

    def test_a_model_without_its_provider_is_found_among_the_known_ones(self) -> None:
        with pytest.raises(UnknownModelError, match="needs its provider before it; did you mean 'echo:loud'"):
            resolve_model("loud", PluginManager([provider(models=["loud"])]))

    @pytest.mark.parametrize("spec", ["", ":x"])
    def test_an_empty_provider(self, spec: str) -> None:
        with pytest.raises(UnknownModelError, match="no plugin supplies the provider ''"):
            resolve_model(spec, PluginManager())

    def test_an_unknown_model_names_the_nearest(self) -> None:
        def factory(name: str) -> Model:
            raise LookupError(name)

        manager = PluginManager([provider(factory=factory, models=["loud", "quiet"])])
        with pytest.raises(
            UnknownModelError, match="provider 'echo' has no model 'laud'; did you mean 'loud'"
        ) as caught:
            resolve_model("echo:laud", manager)
        assert isinstance(caught.value.__cause__, LookupError)

    def test_a_factory_that_fails_names_the_plugin(self) -> None:
        def factory(name: str) -> Model:
            raise RuntimeError("no key")

        with pytest.raises(PluginLoadError) as caught:
            resolve_model("echo:x", PluginManager([provider(factory=factory)]))
        assert str(caught.value) == (
            "plugin 'plugin-echo': its factory failed to make the model 'echo:x': RuntimeError: no key"
        )

    def test_a_factorys_own_configuration_error_passes(self) -> None:
        error = ConfigError("set ECHO_KEY")

        def factory(name: str) -> Model:
            raise error

        with pytest.raises(ConfigError) as caught:
            resolve_model("echo:x", PluginManager([provider(factory=factory)]))
        assert caught.value is error

    def test_a_factory_that_makes_something_else(self) -> None:
        with pytest.raises(PluginLoadError, match="its factory made str for 'echo:x', which is not a Model"):
            resolve_model("echo:x", PluginManager([provider(factory=str)]))

    def test_an_installed_provider_that_cannot_be_loaded_names_the_distribution(self, ship: Ship) -> None:
        ship("trilane-bad", {"bad": "fake_bad"}, {"fake_bad": "import nothing_of_that_name"})

        with pytest.raises(PluginLoadError) as caught:
            resolve_model("bad:x", PluginManager())
        assert str(caught.value) == (
            "plugin 'bad' of trilane-bad 1.0 supplies models but cannot be loaded: "
            "ModuleNotFoundError: No module named 'nothing_of_that_name'"
        )

    def test_two_plugins_cannot_supply_one_provider(self) -> None:
        first, second = provider(), provider()
        second.name = "second"  # type: ignore[attr-defined]
        manager = PluginManager([first])

        with pytest.raises(
            PluginLoadError, match="plugin 'second': register_models adds 'echo', which the plugin 'plugin"
        ):
            manager.register(second)
        assert manager.names() == ("plugin-echo",)

    @pytest.mark.parametrize(
        ("name", "says"), [("a:b", "'a:b' is no name for a model provider"), ("", "'' is no name")]
    )
    def test_unusable_names(self, name: str, says: str) -> None:
        with pytest.raises(PluginLoadError, match=re.escape(says)):
            PluginManager([provider(name)])

    def test_one_plugin_cannot_add_a_name_twice(self) -> None:
        registry = ModelRegistry("p")
        registry.add("a", Named)
        with pytest.raises(PluginLoadError, match="plugin 'p' registers the model provider 'a' twice; remove one"):
            registry.add("a", Named)


class TestStores:
    def store(self, factory: Callable[[str], Any]) -> object:
        def register_stores(registry: StoreRegistry) -> None:
            registry.add("file", factory)

        return types.SimpleNamespace(name="files", register_stores=hookimpl(register_stores))

    def test_the_factory_gets_the_place(self) -> None:
        places: list[str] = []
        manager = PluginManager([self.store(lambda place: places.append(place) or place)])

        assert resolve_store("file:/a:b", manager) == "/a:b"
        assert resolve_store("file", manager) == ""
        assert places == ["/a:b", ""]
        assert [(found.name, found.plugin) for found in manager.store_providers()] == [("file", "files")]

    def test_an_unknown_store_names_the_nearest(self) -> None:
        with pytest.raises(
            ConfigError,
            match=r"session store 'fil'; did you mean 'file'\? Give the agent",
        ):
            resolve_store("fil:x", PluginManager([self.store(str)]))

    def test_a_factory_that_fails_names_the_plugin(self) -> None:
        def factory(place: str) -> object:
            raise OSError("read-only")

        with pytest.raises(PluginLoadError, match=r"plugin 'files': .* session store 'file:x': OSError: read-only"):
            resolve_store("file:x", PluginManager([self.store(factory)]))

    def test_the_scheme_of_a_url_finds_the_plugin_that_supplies_it(self, ship: Ship) -> None:
        source = """
import trilane

@trilane.hookimpl
def register_stores(registry):
    for name in {names!r}:
        registry.add(name, str)
"""
        ship("a-dist", {"db": "db_module"}, {"db_module": source.format(names=("db", "dbsql"))})
        ship("b-dist", {"other": "other_module"}, {"other_module": source.format(names=("far",))})
        ship("c-dist", {"broken": "broken_module"}, {"broken_module": "raise OSError"})
        assert store_plugin("db:here") == store_plugin("dbsql://user:secret@host/x") == "db"
        assert "other_module" not in sys.modules  # the one whose name the scheme begins with is asked first
        assert store_plugin("far://x") == "other"
        assert store_plugin("nowhere://x") == ""
