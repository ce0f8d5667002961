"""Loading, blocking, naming and rolling back."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import dataclass

import pytest

from trilane.errors import HookSpecError, PluginLoadError
from trilane.hookspecs import hookimpl
from trilane.plugins import ModelRegistry, PluginInfo, PluginManager, installed

from .conftest import Ship

GOOD = """
from trilane.hookspecs import hookimpl

@hookimpl
def on_state(run): ...
"""
HALF = """
from trilane.hookspecs import hookimpl

@hookimpl
def on_state(run): ...

@hookimpl
def register_models(registry):
    registry.add("half", str)
    raise RuntimeError("half done")
"""


def found(manager: PluginManager) -> dict[str, PluginInfo]:
    return {info.name: info for info in manager.plugins()}


class TestNames:
    def test_a_plugin_is_called_what_it_says_or_like_its_class_or_module(self) -> None:
        class Plugin:
            pass

        manager = PluginManager([Plugin(), types.SimpleNamespace(name="said"), types.ModuleType("some.module")])
        manager.register(types.SimpleNamespace(name="unused"), name="given")

        assert manager.names() == ("Plugin", "said", "some.module", "given")

    def test_a_name_that_is_no_text_or_cannot_be_read_does_not_count(self) -> None:
        class Numbered:
            name = 7

        class Raising:
            @property
            def name(self) -> str:
                raise RuntimeError("not yet")

        assert PluginManager([Numbered(), Raising()]).names() == ("Numbered", "Raising")

    def test_an_installed_plugin_is_called_like_its_entry_point(self, ship: Ship) -> None:
        source = GOOD + "\nclass Plugin:\n    name = 'other'\n"
        ship("trilane-good", {"good": "fake_good:Plugin"}, {"fake_good": source})

        assert PluginManager(["good"]).names() == ("good",)

    def test_unregister_removes_everything_and_knows_the_nearest(self) -> None:
        class Plugin:
            name = "audit"

            @hookimpl
            def register_models(self, registry: ModelRegistry) -> None:
                registry.add("m", lambda name: None)  # type: ignore[arg-type, return-value]

        plugin = Plugin()
        manager = PluginManager([plugin])
        assert [provider.name for provider in manager.model_providers()] == ["m"]

        with pytest.raises(PluginLoadError, match="no plugin 'audt' is registered; did you mean 'audit'"):
            manager.unregister("audt")
        assert manager.unregister("audit") is plugin
        assert manager.names() == ()
        assert manager.model_providers() == []
        assert manager.plugins() == []

    def test_plugins_that_cannot_be_hashed_are_fine_and_equal_ones_are_refused(self) -> None:
        @dataclass
        class Plugin:
            name: str
            limit: int = 1

        assert PluginManager([Plugin("a"), Plugin("b")]).names() == ("a", "b")
        with pytest.raises(PluginLoadError, match="plugin 'b' is equal to the plugin 'a'; register it once"):
            manager = PluginManager([Plugin("a")])
            manager.register(Plugin("a"), name="b")


class TestLoading:
    def test_an_instance_shared_by_two_managers_is_registered_in_both(self) -> None:
        plugin = types.SimpleNamespace(name="shared", on_state=hookimpl(lambda: None))
        first, second = PluginManager([plugin]), PluginManager([plugin])

        first.unregister("shared")

        assert second.get("shared") is plugin

    def test_a_class_is_instantiated_for_each_manager(self, ship: Ship) -> None:
        ship("trilane-good", {"good": "fake_good:Plugin"}, {"fake_good": "class Plugin: ..."})

        first, second = PluginManager(["good"]).get("good"), PluginManager(["good"]).get("good")

        assert type(first) is type(second)
        assert first is not second

    def test_installed_plugins_are_loaded_by_name_in_alphabetical_order(self, ship: Ship) -> None:
        ship("trilane-b", {"beta": "fake_b"}, {"fake_b": GOOD})
        ship("trilane-a", {"alpha": "fake_a"}, {"fake_a": GOOD})

        manager = PluginManager(installed())

        assert manager.names() == ("alpha", "beta")
        assert found(manager)["beta"] == PluginInfo(
            name="beta", distribution="trilane-b", version="1.0", status="loaded", value="fake_b"
        )

    def test_a_name_loads_that_plugin_only(self, ship: Ship) -> None:
        ship("trilane-ab", {"alpha": "fake_a", "beta": "fake_b"}, {"fake_a": GOOD, "fake_b": "raise OSError"})

        assert PluginManager(["alpha", "alpha", installed()], disabled=["beta"]).names() == ("alpha",)
        assert "fake_b" not in sys.modules

    def test_a_name_that_is_not_installed_is_an_error_with_the_nearest(self, ship: Ship) -> None:
        ship("trilane-a", {"alpha": "fake_a"}, {"fake_a": GOOD})

        with pytest.raises(PluginLoadError) as caught:
            PluginManager(["alfa"])

        assert str(caught.value) == (
            "no plugin 'alfa' is installed; did you mean 'alpha'? (if its package is missing: pip install trilane-alfa)"
        )

    def test_what_is_given_as_an_object_wins_over_the_installed_one_wherever_it_stands(self, ship: Ship) -> None:
        ship("trilane-a", {"alpha": "fake_a"}, {"fake_a": "raise AssertionError('imported')"})
        plugin = types.SimpleNamespace(name="alpha")

        for plugins in ([plugin, installed()], [installed(), plugin]):
            manager = PluginManager(plugins)
            assert manager.get("alpha") is plugin
            assert found(manager)["alpha"].status == "loaded"

    def test_an_object_and_an_installed_plugin_of_one_name_both_asked_for(self, ship: Ship) -> None:
        ship("trilane-a", {"alpha": "fake_a"}, {"fake_a": GOOD})
        plugin = types.SimpleNamespace(name="alpha")

        for plugins in ([plugin, "alpha"], ["alpha", plugin]):
            with pytest.raises(PluginLoadError, match=r"two plugins are called 'alpha': .*trilane-a 1.0"):
                PluginManager(plugins)

    def test_a_module_or_the_marker_need_no_list(self, ship: Ship) -> None:
        module = types.ModuleType("alone")

        assert PluginManager(module).names() == ("alone",)  # type: ignore[arg-type]

    def test_the_function_installed_without_parentheses_is_explained(self) -> None:
        with pytest.raises(
            HookSpecError, match=re.escape("is the function installed, not a plugin; call it (installed())")
        ):
            PluginManager([installed])


class TestBlocking:
    def test_a_blocked_plugin_is_not_imported(self, ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
        ship(
            "trilane-ab", {"alpha": "fake_a", "beta": "fake_b"}, {"fake_a": "raise OSError", "fake_b": "raise OSError"}
        )
        monkeypatch.setenv("TRILANE_DISABLED_PLUGINS", "alpha")

        for plugins in (installed(), ["alpha", "beta"]):
            manager = PluginManager(plugins, disabled=["beta"], strict=True)

            assert manager.names() == ()
            assert found(manager)["alpha"].reason == "blocked by TRILANE_DISABLED_PLUGINS"
            assert found(manager)["alpha"].distribution == "trilane-ab"
            assert found(manager)["beta"].status == "blocked"
        assert not {"fake_a", "fake_b"} & set(sys.modules)

    def test_a_blocked_name_also_blocks_an_object(self) -> None:
        manager = PluginManager(disabled=["alpha"])

        assert manager.register(types.SimpleNamespace(name="alpha")) is None
        assert manager.names() == ()
        assert found(manager)["alpha"].status == "blocked"

    def test_a_blocked_name_that_is_not_installed_is_no_error(self) -> None:
        assert found(PluginManager(["ghost"], disabled=["ghost"]))["ghost"].status == "blocked"


BROKEN = {
    "import_error": ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "syntax_error": ("def (", "SyntaxError: "),
    "system_exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "attribute": ("", "AttributeError: "),
    "constructor": ("class Plugin:\n    def __init__(self): raise SystemExit(4)", "SystemExit: 4"),
    "half": (HALF + "\nimport sys\nPlugin = sys.modules[__name__]", "RuntimeError: half done"),
    "hook": (GOOD + "\nclass Plugin:\n    @hookimpl\n    def on_stat(self): ...", "did you mean 'on_state'?"),
    "value": ("Plugin = 3", "is not a plugin"),
}


class TestFailing:
    @pytest.mark.parametrize("kind", BROKEN)
    def test_f074_a_plugin_that_fails_is_listed_and_the_others_load(
        self, ship: Ship, caplog: pytest.LogCaptureFixture, kind: str
    ) -> None:
        source, reason = BROKEN[kind]
        ship("trilane-broken", {"broken": f"fake_{kind}:Plugin"}, {f"fake_{kind}": source})
        ship("trilane-ab", {"alpha": "fake_a", "zeta": "fake_z"}, {"fake_a": GOOD, "fake_z": GOOD})

        manager = PluginManager(installed())
        PluginManager(installed())

        assert manager.names() == ("alpha", "zeta")
        info = found(manager)["broken"]
        assert (info.status, info.distribution) == ("failed", "trilane-broken")
        assert reason in info.reason
        (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert "plugin 'broken' of trilane-broken 1.0" in record.getMessage()
        assert f"entry point 'fake_{kind}:Plugin'" in record.getMessage()
        assert reason in record.getMessage()

    @pytest.mark.parametrize("kind", BROKEN)
    def test_f074_strict_raises(self, ship: Ship, kind: str) -> None:
        source, reason = BROKEN[kind]
        ship("trilane-broken", {"broken": f"fake_{kind}:Plugin"}, {f"fake_{kind}": source})

        with pytest.raises(PluginLoadError) as caught:
            PluginManager(installed(), strict=True)

        assert caught.value.plugin == "broken"
        assert reason in str(caught.value)
        assert caught.value.__cause__ is not None

    @pytest.mark.parametrize(
        "source",
        ["raise KeyboardInterrupt", "class Plugin:\n    def __init__(self): raise KeyboardInterrupt"],
    )
    def test_f074_keyboard_interrupt_is_not_swallowed(self, ship: Ship, source: str) -> None:
        ship("trilane-broken", {"broken": "fake_interrupt:Plugin"}, {"fake_interrupt": source})

        with pytest.raises(KeyboardInterrupt):
            PluginManager(installed())

    def test_f074_a_half_done_registration_is_rolled_back(self, ship: Ship) -> None:
        ship("trilane-half", {"half": "fake_half"}, {"fake_half": HALF})

        manager = PluginManager(installed())

        assert manager.names() == ()
        assert manager.model_providers() == []
        assert manager.compile().on_state == ()

    def test_an_object_that_fails_raises_and_leaves_nothing(self) -> None:
        class Plugin:
            name = "half"

            @hookimpl
            def register_models(self, registry: ModelRegistry) -> None:
                registry.add("m", lambda name: None)  # type: ignore[arg-type, return-value]
                raise RuntimeError("half done")

        manager = PluginManager()
        with pytest.raises(PluginLoadError, match=r"plugin 'half': 'register_models' at .* failed: RuntimeError: half"):
            manager.load([types.SimpleNamespace(name="before"), Plugin()])

        assert manager.names() == ()
        assert manager.model_providers() == []

    @pytest.mark.parametrize("last", [False, True])
    def test_f075_of_two_distributions_with_one_name_the_same_one_is_loaded(
        self, ship: Ship, caplog: pytest.LogCaptureFixture, last: bool
    ) -> None:
        ship("trilane-one", {"audit": "fake_one"}, {"fake_one": GOOD})
        ship("trilane-two", {"audit": "fake_two"}, {"fake_two": GOOD}, last=last)

        for plugins in (installed(), ["audit"]):
            manager = PluginManager(plugins)
            assert [(info.distribution, info.status) for info in manager.plugins()] == [
                ("trilane-one", "loaded"),
                ("trilane-two", "duplicate"),
            ]
            assert getattr(manager.get("audit"), "__name__", "") == "fake_one"
            with pytest.raises(
                PluginLoadError, match=r"trilane-one 1.0 and trilane-two 1.0 both ship a plugin 'audit'"
            ):
                PluginManager(plugins, strict=True)
        assert caplog.text.count("both ship a plugin 'audit'") == 1

    def test_f075_a_distribution_that_is_visible_twice_is_loaded_once(self, ship: Ship) -> None:
        ship("trilane-one", {"audit": "fake_one"}, {"fake_one": GOOD})
        ship("trilane-one", {"audit": "fake_one"}, {"fake_one": GOOD})

        manager = PluginManager(installed(), strict=True)

        assert [(info.name, info.status) for info in manager.plugins()] == [("audit", "loaded")]
