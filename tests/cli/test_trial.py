"""The trial run of `trilane plugins doctor`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from trilane import hookimpl
from trilane.cli.doctor import examine
from trilane.cli.registry import LiveRegistry
from trilane.cli.trial import Fault, trial_run
from trilane.decisions import Ask, Deny
from trilane.errors import RunLimitError
from trilane.hookspecs import HOOKS
from trilane.plugins import PluginManager
from trilane.testing import Recorder


def manager(**hooks: Any) -> PluginManager:
    marked = {hook: staticmethod(hookimpl(function)) for hook, function in hooks.items()}
    return PluginManager([type("Plugin", (), {"name": "tried", **marked})()])


def test_a_good_plugin_has_no_fault_and_every_hook_of_a_run_is_tried() -> None:
    recorder = Recorder()
    assert trial_run(PluginManager([recorder])) == []
    tried = {name for name in recorder.names() if not name.startswith("register_")}
    assert tried == set(HOOKS) - {
        *("on_error", "on_cancel", "on_model_error", "on_reply"),
        *("register_models", "register_stores", "register_settings"),
    }


def test_a_plugin_that_fails_is_named_once_for_each_hook() -> None:
    def failing(run: Any) -> None:
        raise KeyError("x")

    assert trial_run(manager(after_turn=failing, close_run=failing)) == [
        Fault("tried", "after_turn fails in a trial run: KeyError: 'x'"),
        Fault("tried", "close_run fails in a trial run: KeyError: 'x'"),
    ]


def test_a_plugin_that_fails_the_run_is_named() -> None:
    def failing(run: Any) -> None:
        raise KeyError("x")

    (fault,) = trial_run(manager(before_run=failing))
    assert fault.plugin == "tried"
    assert fault.text.startswith("a trial run failed: KeyError: 'x' raised in hook before_run of plugin 'tried'")


@pytest.mark.parametrize("decision", [Deny(reason="no"), Ask(prompt="May I?")])
def test_what_plugins_may_do_is_no_fault(decision: Any) -> None:
    def limiting(run: Any, turn: int) -> None:
        if turn > 1:
            raise RunLimitError("enough")

    assert trial_run(manager(decide_tool=lambda: decision, before_turn=limiting)) == []


def test_a_plain_function_that_never_returns_is_named_with_its_place() -> None:
    gate = threading.Event()

    def hanging(run: Any) -> None:
        gate.wait()

    try:
        (fault,) = trial_run(manager(before_turn=hanging), run_seconds=0.5)
    finally:
        gate.set()
    assert fault.plugin == "tried"
    assert fault.text.startswith("a hook has not returned from a trial run within 0.5 s; it is at ")


def test_settings_that_cannot_be_used_are_a_fault_with_file_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic import BaseModel

    class Settings(BaseModel):
        size: int = 1

    monkeypatch.chdir(tmp_path)
    (tmp_path / "trilane.toml").write_text("[tried]\nsize = 'big'\n")
    registry = LiveRegistry(manager(register_settings=lambda registry: registry.add("tried", Settings)))
    (fault,) = [one for one in examine(registry).findings if one.kind == "fault"]
    assert fault.plugin == "tried"
    assert "trilane.toml [tried]: 'size': Input should be a valid integer" in fault.text


def test_hooks_of_another_version_are_noted() -> None:
    class Plugin:
        name = "newer"

        @hookimpl(optionalhook=True)
        def on_tomorrow(self, run: Any) -> None: ...

        @hookimpl
        def close_run(self, run: object) -> None: ...

    notes = [one.text for one in examine(LiveRegistry(PluginManager([Plugin()]))).findings]
    assert notes == ["on_tomorrow can never be called: this version of Trilane has no such hook"]
