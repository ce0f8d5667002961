"""Imports that hang, print, exit or fail."""

from __future__ import annotations

import sys
import threading

import pytest

from trilane.plugins import PluginInfo, PluginManager, installed

from .conftest import Gate, Ship

GOOD = """
from trilane.hookspecs import hookimpl

@hookimpl
def on_state(run): ...
"""


def status(manager: PluginManager, name: str) -> PluginInfo:
    return next(info for info in manager.plugins() if info.name == name)


def test_a_hanging_import_is_given_up_and_asked_for_only_once(ship: Ship, gate: Gate) -> None:
    ship(
        "trilane-slow",
        {"slow": "fake_slow"},
        {"fake_slow": "from trilane_test_gate import gate\ngate.go.wait()" + GOOD},
    )
    ship("trilane-good", {"good": "fake_good"}, {"fake_good": GOOD})

    manager = PluginManager(installed(), import_seconds=0.05)
    assert manager.names() == ("good",)
    assert status(manager, "slow").reason == "TimeoutError: the import has not ended within 0.05 s"

    # The same import again would wait for the module's lock: this returns at once or not at all.
    again = PluginManager(installed(), import_seconds=3600)
    assert status(again, "slow").status == "failed"

    gate.go.set()
    for thread in threading.enumerate():
        if thread.name == "trilane import slow":
            thread.join()
    assert PluginManager(installed()).names() == ("good", "slow")


def test_what_an_import_prints_is_reported_and_not_shown(
    ship: Ship, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    ship("trilane-loud", {"loud": "fake_loud"}, {"fake_loud": "print('hello')\nimport sys\nsys.stdout.flush()" + GOOD})
    before = sys.stdout

    manager = PluginManager(installed())

    assert manager.names() == ("loud",)
    assert status(manager, "loud").output == "hello\n"
    assert capsys.readouterr().out == ""
    assert sys.stdout is before
    assert "plugin 'loud' of trilane-loud 1.0 printed while it was imported: 'hello'" in caplog.text


def test_other_threads_print_as_usual_during_an_import(
    ship: Ship, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "from trilane_test_gate import gate\nprint('inside')\ngate.started.set()\ngate.go.wait()" + GOOD
    ship("trilane-loud", {"loud": "fake_loud2"}, {"fake_loud2": source})

    def elsewhere() -> None:
        gate.started.wait()
        print("outside")
        gate.go.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    manager = PluginManager(installed(), import_seconds=60)
    thread.join()

    assert status(manager, "loud").output == "inside\n"
    assert capsys.readouterr().out == "outside\n"


def test_standard_output_is_put_back_when_a_given_up_import_ends(ship: Ship, gate: Gate) -> None:
    source = "from trilane_test_gate import gate\ngate.started.set()\ngate.go.wait()\nprint('late')"
    ship("trilane-slow", {"slow": "fake_slow3"}, {"fake_slow3": source})
    before = sys.stdout

    PluginManager(installed(), import_seconds=0.05)
    assert sys.stdout is not before
    gate.go.set()
    for thread in threading.enumerate():
        if thread.name == "trilane import slow":
            thread.join()

    assert sys.stdout is before


def test_a_module_that_is_imported_already_needs_no_thread(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    ship("trilane-good", {"good": "fake_good"}, {"fake_good": GOOD})
    PluginManager(installed())

    monkeypatch.setattr(threading.Thread, "start", None)

    assert PluginManager(installed()).names() == ("good",)
