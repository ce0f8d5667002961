"""A hook, event, error or public name is done when it has its reference entry; a hook also when it has its test."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import typer

import trilane
import trilane.testing
from trilane import errors, events, hookspecs
from trilane.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
TESTS = sorted((*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "plugins").glob("*/tests/**/test_*.py")))
HOOKS = sorted(hookspecs.HOOKS)
EVENTS = [
    name
    for name in events.__all__
    if isinstance(getattr(events, name), type)
    and issubclass(getattr(events, name), events.AgentEvent | events.ExtensionEvent)
    and name not in ("AgentEvent", "ExtensionEvent")
]
#: Modules that others import from, beyond what the package itself offers.
DOCUMENTED = [
    "channels",
    "config",
    "context",
    "decisions",
    "ledger",
    "messages",
    "models",
    "plugins",
    "providers",
    "replay",
    "result",
    "sessions",
    "stores",
    "storing",
    "testing.faults",
    "testing.providers",
    "testing.sharing",
    "testing.stores",
    "testing.wire",
]
#: The same of plugins that programs import from.
OF_PLUGINS = ["trilane_web", "trilane_web.client", "trilane_web.serving", "trilane_web.settings"]


def _page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def _aliases() -> set[str]:
    """Names that stand for a combination of types; they have a table of their own."""
    return set(re.findall(r"^\| `(\w+)` \|", _page("agent.md"), re.MULTILINE))


@pytest.fixture(scope="module")
def anchors(site: Path) -> set[str]:
    """Every object that the built reference documents, by its full name."""
    header, packed = re.split(rb"(?<=zlib\.\n)", (site / "objects.inv").read_bytes(), maxsplit=1)
    assert header.startswith(b"# Sphinx inventory")
    return {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}


def test_there_is_something_to_document() -> None:
    assert len(HOOKS) == 27
    assert len(EVENTS) > 35
    assert len(errors.__all__) > 25


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_test(hook: str) -> None:
    named = re.compile(rf"def test_hook_{hook}(_\w+)?\(")
    assert any(named.search(path.read_text(encoding="utf-8")) for path in TESTS), f"write test_hook_{hook}"


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented(hook: str) -> None:
    assert re.search(rf"^### `{hook}`", _page("hooks.md"), re.MULTILINE)


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_documented(name: str, anchors: set[str]) -> None:
    assert f"`{name}`" in _page("events.md")
    assert f"trilane.events.{name}" in anchors


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_documented(name: str, anchors: set[str]) -> None:
    assert re.search(rf"\b{name}\b", _page("errors.md"))
    assert f"trilane.errors.{name}" in anchors


def test_the_tree_in_the_docstring_of_errors_is_complete() -> None:
    drawn = re.findall(r"^[│ ├└─]*(\w+(?:Error|Closed))\b", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(errors.__all__)


def test_every_public_name_is_documented(anchors: set[str]) -> None:
    documented = {anchor.rpartition(".")[2] for anchor in anchors}
    documented |= _aliases()
    documented |= set(re.findall(r"`trilane\.([A-Z_]+)`", _page("phases.md")))  # tables
    assert [name for name in trilane.__all__ if name not in documented and not name.startswith("__")] == []


def test_the_test_kit_is_documented(anchors: set[str]) -> None:
    assert [name for name in trilane.testing.__all__ if f"trilane.testing.{name}" not in anchors] == []


@pytest.mark.parametrize("module", DOCUMENTED)
def test_every_name_of_a_public_module_is_documented(module: str, anchors: set[str]) -> None:
    documented = {anchor.rpartition(".")[2] for anchor in anchors} | _aliases()
    names = importlib.import_module(f"trilane.{module}").__all__
    assert [name for name in names if not name.isupper() and name not in documented] == []


@pytest.mark.parametrize("module", OF_PLUGINS)
def test_every_public_name_of_a_plugin_is_documented(module: str, anchors: set[str]) -> None:
    page = _page("web.md")
    documented = {anchor.rpartition(".")[2] for anchor in anchors if anchor.startswith("trilane_web.")}
    names = importlib.import_module(module).__all__
    assert names
    assert [name for name in names if name not in documented and f"`{module}.{name}`" not in page] == []


@pytest.mark.parametrize("name", ["start", "resume", "watch", "reply", "steer", "follow_up", "stop", "ping"])
def test_what_a_client_can_do_is_documented(name: str, anchors: set[str]) -> None:
    assert f"trilane_web.client.Client.{name}" in anchors


def _commands(group: Any, *path: str) -> dict[str, Any]:
    """Every command below a group, as it is typed."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        found |= _commands(command, *path, name) if hasattr(command, "commands") else {" ".join((*path, name)): command}
    return found


COMMANDS = _commands(typer.main.get_command(app))


def test_the_commands_were_found() -> None:
    assert {"run", "chat", "schema", "plugins list", "plugins new"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_documented(command: str) -> None:
    page = _page("commands.md")
    options = [option for item in COMMANDS[command].params for option in (*item.opts, *item.secondary_opts)]
    names = {name for name in options if name.startswith("--") and name != "--help"}
    assert f"`trilane {command}" in page, "write its reference entry"
    assert [name for name in sorted(names) if f"`{name}" not in page] == []


def test_every_variable_of_the_environment_is_documented() -> None:
    used = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'"(TRILANE_[A-Z_]+[A-Z])"', path.read_text(encoding="utf-8"))
    }
    assert "TRILANE_DISABLED_PLUGINS" in used
    assert [name for name in sorted(used) if f"`{name}`" not in _page("settings.md")] == []


def test_the_generated_parts_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "_generate.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//|<link[^>]+rel=["']?stylesheet[^>]+//""")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 15
    assert [str(page.relative_to(site)) for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
