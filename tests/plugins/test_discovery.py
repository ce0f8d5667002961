"""Finding installed plugins without importing them."""

from __future__ import annotations

import sys

import pytest

from trilane.errors import ConfigError
from trilane.plugins import PluginInfo, PluginManager, discover, installed

from .conftest import Gate, Ship

FAILS = "raise AssertionError('imported')"


def test_what_is_installed_is_listed_and_not_imported(ship: Ship) -> None:
    ship("trilane-b", {"beta": "fake_b"}, {"fake_b": FAILS}, version="2.1")
    ship("trilane-a", {"alpha": "fake_a:Plugin"}, {"fake_a": FAILS})

    assert discover() == [
        PluginInfo(name="alpha", distribution="trilane-a", version="1.0", value="fake_a:Plugin"),
        PluginInfo(name="beta", distribution="trilane-b", version="2.1", value="fake_b"),
    ]
    assert discover()[1].origin == "trilane-b 2.1"
    assert "fake_a" not in sys.modules


def test_blocked_plugins_are_listed_with_the_reason(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    ship("trilane-ab", {"alpha": "fake_a", "beta": "fake_b", "gamma": "fake_c"})
    monkeypatch.setenv("TRILANE_DISABLED_PLUGINS", " alpha, ,nobody")

    assert [(info.name, info.status, info.reason) for info in discover(["beta"])] == [
        ("alpha", "blocked", "blocked by TRILANE_DISABLED_PLUGINS"),
        ("beta", "blocked", "blocked by disabled_plugins or -p no:NAME"),
        ("gamma", "available", ""),
    ]


def test_a_change_of_the_path_or_of_a_folder_is_noticed(ship: Ship) -> None:
    assert discover() == []
    folder = ship("trilane-a", {"alpha": "fake_a"})
    assert [info.name for info in discover()] == ["alpha"]
    sys.path.remove(str(folder))
    assert discover() == []


@pytest.mark.parametrize("last", [False, True])
def test_f075_two_distributions_with_one_name_are_decided_by_a_fixed_rule(ship: Ship, last: bool) -> None:
    ship("trilane-one", {"audit": "fake_one"})
    ship("trilane-two", {"audit": "fake_two"}, last=last)

    first, second = discover()

    assert (first.distribution, first.status) == ("trilane-one", "available")
    assert (second.distribution, second.status) == ("trilane-two", "duplicate")
    assert second.reason == (
        "trilane-one 1.0 and trilane-two 1.0 both ship a plugin 'audit'; trilane-one 1.0 is used, because its name "
        "sorts first; uninstall one of them"
    )


@pytest.mark.parametrize("last", [False, True])
def test_f075_a_distribution_that_is_visible_twice_counts_once(ship: Ship, last: bool) -> None:
    ship("trilane-one", {"audit": "fake_one"}, version="1.0")
    ship("Trilane_One", {"audit": "fake_one"}, version="1.1", last=last)

    assert [(info.status, info.version) for info in discover()] == [("available", "1.0" if last else "1.1")]


def test_a_plugin_that_a_newer_copy_no_longer_has_is_not_there(ship: Ship) -> None:
    ship("trilane-one", {"audit": "fake_one"}, version="1.0")
    ship("trilane-one", {}, version="2.0")

    assert discover() == []


def test_one_distribution_that_names_two_values_is_a_duplicate_too(ship: Ship) -> None:
    ship("trilane-one", "audit = fake_one\naudit = fake_two\naudit = fake_two")

    assert [(info.status, info.value) for info in discover()] == [("available", "fake_one"), ("duplicate", "fake_two")]


def test_broken_metadata_hides_nobody_else(ship: Ship) -> None:
    folder = ship("trilane-broken", {"broken": "fake"})
    (folder / "trilane_broken-1.0.dist-info" / "METADATA").write_text("")
    ship("trilane-good", {"good": "fake_good"})

    by_status = {info.status: info for info in discover()}

    assert by_status["available"].name == "good"
    assert "its metadata cannot be read" in by_status["failed"].reason
    assert by_status["failed"].name == "trilane_broken-1.0.dist-info"


def test_the_marker_for_all_installed_plugins_shows_what_it_is() -> None:
    assert repr(installed()) == "installed()"


def test_the_environment_bounds_imports(ship: Ship, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    ship("acme-slow", {"slow": "acme_slow"}, {"acme_slow": "from trilane_test_gate import gate\ngate.go.wait()"})
    monkeypatch.setenv("TRILANE_IMPORT_SECONDS", "0.05")
    (info,) = PluginManager(installed()).plugins()
    assert (info.status, info.reason) == ("failed", "TimeoutError: the import has not ended within 0.05 s")


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_bound_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILANE_IMPORT_SECONDS", text)
    with pytest.raises(ConfigError, match=f"TRILANE_IMPORT_SECONDS is '{text}'; give a number of seconds above 0"):
        PluginManager()
