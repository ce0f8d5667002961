"""What `trilane plugins doctor` says of hooks, commands and settings that can have no effect."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trilane import Tool, ToolContext, hookimpl, tool
from trilane.cli.doctor import examine
from trilane.cli.idle import idle_hooks, shadowed_commands
from trilane.cli.options import blocked_names
from trilane.cli.registry import LiveRegistry, list_lines
from trilane.hookspecs import HOOKS
from trilane.plugins import PluginManager
from trilane.plugins.unread import unread_sections
from trilane.testing import Recorder


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "a ship"


@tool(approval=True)
async def sail() -> str:
    """Sail."""
    return "gone"


@tool
async def ask(context: ToolContext) -> str:
    """Ask."""
    return "asked"


def plugin(name: str, **hooks: Callable[..., Any]) -> object:
    return type("Plugin", (), {"name": name, **{hook: staticmethod(hookimpl(one)) for hook, one in hooks.items()}})()


def registry(*plugins: object) -> LiveRegistry:
    return LiveRegistry(PluginManager(plugins))


def offering(*tools: Any) -> object:
    return plugin("tools", on_tool=lambda: list(tools))


def notes(*plugins: object, with_run: bool = True) -> list[str]:
    found = examine(registry(*plugins), with_run=with_run)
    assert found.is_well
    return [one.text for one in found.findings if "annotation" not in one.text]


WATCHER = "watcher"


def watching(*hooks: str) -> object:
    return Recorder(WATCHER, only=hooks)


def test_every_hook_that_needs_a_call_or_a_question_is_known_from_the_catalogue() -> None:
    idle = list(idle_hooks(registry(Recorder(WATCHER, without=["on_tool"])), WATCHER, None))
    said = {name for text in idle for name in text.partition(" can never")[0].split(", ")}
    assert said == {hook.name for hook in HOOKS.values() if {"call", "question"} & set(hook.arguments)}


def test_hooks_of_tools_without_a_tool() -> None:
    assert notes(watching("before_tool", "after_tool")) == [
        "before_tool, after_tool can never be called: no plugin supplies a tool with on_tool"
    ]
    assert notes(watching("before_tool"), offering()) == [
        "before_tool can never be called: on_tool of tools offered no tool in a trial run"
    ]
    assert notes(watching("before_tool"), offering(), with_run=False) == []
    assert notes(watching("before_tool"), offering(look)) == []


@pytest.mark.parametrize(
    ("tools", "can_ask"), [([], False), ([look], False), ([sail], True), ([ask], True), ([look, sail], True)]
)
def test_hooks_of_replies_without_a_question(tools: list[Any], can_ask: bool) -> None:
    found = notes(watching("on_reply"), offering(*tools))
    assert (found == []) is can_ask
    assert all(text.startswith("on_reply can never be called: nothing asks a question, ") for text in found)


def test_a_tool_from_outside_and_a_plugin_that_decides_may_ask() -> None:
    external = Tool.external(name="fetch", description="Fetches.", parameters={"type": "object", "properties": {}})
    assert notes(watching("on_reply"), offering(external)) == []
    assert notes(watching("on_reply"), offering(look), plugin("guard", decide_tool=lambda: None)) == []


def test_commands_that_another_one_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        _Point("run", "acme-one"),
        _Point("fly", "acme-one"),
        _Point("fly", "acme-two"),
        _Point("swim", "acme-two"),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "trilane.commands" else [])
    assert list(shadowed_commands()) == [
        ("acme-one", "its command 'run' can never be called: Trilane has one of that name"),
        ("acme-two", "its command 'fly' can never be called: acme-one has one of that name"),
    ]


class _Point:
    def __init__(self, name: str, distribution: str) -> None:
        self.name = name
        self.value = f"{distribution}:command"
        self.dist = type("Distribution", (), {"name": distribution})()


def test_sections_that_no_plugin_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Settings(BaseModel):
        size: int = 1

    monkeypatch.chdir(tmp_path)
    (tmp_path / "trilane.toml").write_text("[harbour]\nsize = 2\n[harbor]\nsize = 3\n[elsewhere]\nx = 1\n")
    (tmp_path / "pyproject.toml").write_text("[tool.trilane.Harbour]\nsize = 2\n[tool.ruff]\nx = 1\n")
    live = registry(plugin("harbour", register_settings=lambda registry: registry.add("harbour", Settings)))
    assert list(unread_sections(live.manager)) == [
        ("trilane.toml [harbor] is read by no plugin; did you mean 'harbour'?", True),
        ("trilane.toml [elsewhere] is read by no plugin; there are: harbour", False),
        ("pyproject.toml [tool.trilane.Harbour] is read by no plugin; did you mean 'harbour'?", True),
    ]
    faults = [one.text for one in examine(live).findings if one.kind == "fault"]
    assert len(faults) == 2
    monkeypatch.setenv("TRILANE_HARBOUR_SIEZ", "3")
    faults = [one.text for one in examine(live).findings if one.kind == "fault"]
    assert (
        "environment: TRILANE_HARBOUR_SIEZ is no setting of 'harbour'; did you mean 'TRILANE_HARBOUR_SIZE'?" in faults
    )
    (tmp_path / "trilane.toml").write_text("not toml")
    (tmp_path / "pyproject.toml").unlink()
    assert list(unread_sections(live.manager)) == []


def test_a_file_that_cannot_be_read_is_one_fault_however_many_would_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Settings(BaseModel):
        size: int = 1

    class Reads:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def register_settings(self, registry: Any) -> None:
            self.registry = registry
            registry.add(self.name, Settings)

        @hookimpl
        async def before_run(self, run: Any) -> None:
            self.registry.get(self.name)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "trilane.toml").write_text("x = [")
    findings = examine(registry(Reads("one"), Reads("two"))).findings
    (fault,) = [one for one in findings if one.kind == "fault"]
    assert fault.plugin == "-"
    assert fault.text.startswith("trilane.toml is not valid TOML: ")


def test_blocked_names_that_no_plugin_has_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILANE_DISABLED_PLUGINS", "watchr,zz-elsewhere")
    live = registry(watching("before_run"))
    said = [(one.kind, one.plugin) for one in examine(live).findings]
    assert said == [("fault", "watchr"), ("note", "zz-elsewhere")]
    assert "did you mean 'watcher'?" in list_lines(live)[-2]
    assert "zz-elsewhere" in list_lines(live)[-1]


def test_an_option_that_leaves_out_nothing_is_refused() -> None:
    assert blocked_names(("no:files", "no:offline")) == ("files", "offline")
    with pytest.raises(Exception, match="-p no:fles: no plugin 'fles' is installed, so nothing would be left out; did"):
        blocked_names(("no:files", "no:fles"))


def test_a_plugin_that_calls_itself_otherwise_is_told_its_name() -> None:
    manager = PluginManager()
    manager.register(watching("before_run"), name="watch")
    assert [one.text for one in examine(LiveRegistry(manager)).findings] == [
        "calls itself 'watcher', but its entry point, and so its name, is 'watch'; make them the same"
    ]
