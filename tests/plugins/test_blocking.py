"""What has no effect is said: blocked names that no plugin has, wherever they were given, and plugins without hooks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, hookimpl
from trilane.plugins import PluginManager, installed, warning
from trilane.plugins.blocking import blocks_nothing
from trilane.testing import ScriptedModel

HOOK = "from trilane import hookimpl\n@hookimpl\ndef before_run(run): ...\n"


@pytest.fixture(autouse=True)
def _files(ship: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    ship("trilane-files", {"files": "fake_files"}, {"fake_files": HOOK})
    monkeypatch.setattr(warning, "_warned", set())


def test_a_misspelt_name_in_the_environment_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRILANE_DISABLED_PLUGINS", "fles")
    with caplog.at_level(logging.WARNING, logger="trilane"):
        for _ in range(2):
            assert "files" in PluginManager(installed()).names()
    assert [record.getMessage() for record in caplog.records] == [
        "'fles' in TRILANE_DISABLED_PLUGINS blocks nothing: no plugin of that name is installed; did you mean 'files'?"
    ], "once, and not again for every agent"


def test_a_misspelt_name_in_code_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="trilane"):
        Agent(ScriptedModel(), plugins=installed(), disabled_plugins=["Files"])
    (record,) = caplog.records
    assert record.getMessage() == (
        "'Files' in disabled_plugins or -p no:NAME blocks nothing: no plugin of that name is installed; "
        "did you mean 'files'?"
    )


def test_a_name_that_some_plugin_has_is_not_said() -> None:
    class Given:
        name = "given"

        @hookimpl
        def before_run(self, run: Any) -> None: ...

    assert blocks_nothing(PluginManager([Given(), "files"], disabled=["given", "files"])) == {}
    assert blocks_nothing(PluginManager(installed())) == {}


def test_a_plugin_without_hooks_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Idle:
        name = "idle"

        def watch(self, run: Any) -> None: ...

    with caplog.at_level(logging.WARNING, logger="trilane"):
        Agent(ScriptedModel(), plugins=[Idle()])
    assert [record.getMessage() for record in caplog.records] == [
        "plugin 'idle' implements no hook, so it does nothing; mark its functions with @hookimpl"
    ]
