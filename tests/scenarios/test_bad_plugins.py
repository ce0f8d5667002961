"""Ten bad plugins, all installed: runs work, `doctor` names each with its fault, the ledger blames the right one.

Their run-time faults sit in observer hooks. The same faults in deciding and setup hooks fail closed, see below.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane import Agent, hookimpl, tool
from trilane.errors import HookSpecError, HookTimeoutError, PluginError, PluginLoadError
from trilane.events import RunCompleted, event_from_json
from trilane.plugins import PluginManager, installed
from trilane.testing import ScriptedModel, assert_history, call
from trilane.testing.clock import Backend, run_virtual

HEAD = "import asyncio, time\nfrom trilane import hookimpl\n"

#: Name of the plugin, its module's source, and what `doctor` says of it.
BAD = {
    "bad-import": ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
    "bad-syntax": ("def broken(:", "SyntaxError"),
    "bad-hang": ("import time\ntime.sleep(3600)", "the import has not ended within 0.5 s"),
    "bad-spelling": (HEAD + "@hookimpl\ndef before_tol(run): ...", "did you mean 'before_tool'?"),
    "bad-argument": (HEAD + "@hookimpl\ndef before_tool(run, tool_call): ...", "takes 'tool_call'"),
    "bad-blocking": (HEAD + "@hookimpl\ndef before_tool(run): time.sleep(0.2)", "before_tool blocks the event loop"),
    "bad-endless": (
        HEAD + "@hookimpl(timeout=0.3)\nasync def after_run(run): await asyncio.Event().wait()",
        "after_run fails in a trial run: plugin 'bad-endless': after_run",
    ),
    "bad-cancel": (
        HEAD + "@hookimpl\nasync def after_turn(run): raise asyncio.CancelledError",
        "raised CancelledError, which nobody had asked for",
    ),
    "bad-twin": (HEAD + "@hookimpl\ndef close_run(run): ...", "acme-bad-twin 1.0 and acme-other-twin 1.0 both ship"),
    "bad-print": ("print('hello from import')\n" + HEAD + "@hookimpl\ndef close_run(run): ...", "'hello from import'"),
}


def _install(folder: Path, distribution: str, plugin: str, module: str, source: str) -> None:
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[trilane]\n{plugin} = {module}\n")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which all ten are installed."""
    folder = tmp_path_factory.mktemp("bad")
    for name, (source, _) in BAD.items():
        _install(folder, f"acme-{name}", name, f"acme_{name.replace('-', '_')}", source)
    _install(folder, "acme-other-twin", "bad-twin", "acme_other_twin", BAD["bad-twin"][0])
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("TRILANE_", "OPENAI_", "ANTHR"))}
    return {**keep, "PYTHONPATH": str(folder), "TRILANE_IMPORT_SECONDS": "0.5"}


def _trilane(environment: dict[str, str], tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "a.txt").write_text("one two three")
    command = [sys.executable, "-m", "trilane", *arguments]
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_with_all_of_them_installed_a_run_works_and_the_ledger_blames_the_right_one(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = _trilane(environment, tmp_path, "run", "How many words are in a.txt?", "-m", "offline", "--json", "--stats")
    assert done.returncode == 0, done.stderr
    last = event_from_json(done.stdout.splitlines()[-1])
    assert isinstance(last, RunCompleted)
    assert "3" in last.result.text
    rows = {row.plugin: row for row in last.result.ledger}
    assert {name: row.errors > 0 for name, row in rows.items() if name.startswith("bad-")} == {
        "bad-blocking": False,
        "bad-endless": True,
        "bad-cancel": True,
        "bad-twin": False,
        "bad-print": False,
    }
    assert rows["bad-blocking"].seconds >= 0.2 * rows["bad-blocking"].calls
    assert max(row.seconds for name, row in rows.items() if name in ("bad-cancel", "bad-twin", "bad-print")) < 0.1
    assert {failure.plugin for failure in last.result.hook_failures} == {"bad-endless", "bad-cancel"}
    assert "bad-blocking  before_tool" in done.stderr
    assert "hello from import" not in done.stdout


def test_doctor_names_each_with_its_fault(environment: dict[str, str], tmp_path: Path) -> None:
    done = _trilane(environment, tmp_path, "plugins", "doctor")
    assert done.returncode == 1, done.stderr
    faults = [line.split(maxsplit=2) for line in done.stdout.splitlines() if line.startswith("fault ")]
    said = {name: " ".join(text for _, other, text in faults if other == name) for name in BAD}
    assert {name: fault in said[name] for name, (_, fault) in BAD.items()} == dict.fromkeys(BAD, True), done.stdout
    assert {name for _, name, _ in faults} == set(BAD)
    assert done.stdout.splitlines()[-1] == "10 faults found"


def test_without_a_trial_run_doctor_names_those_that_do_not_load(environment: dict[str, str], tmp_path: Path) -> None:
    done = _trilane(environment, tmp_path, "plugins", "doctor", "--no-run")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "7 faults found"


def test_list_shows_all_of_them(environment: dict[str, str], tmp_path: Path) -> None:
    done = _trilane(environment, tmp_path, "plugins", "list")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines() if "bad-" in line]
    assert sorted(line[3] for line in lines if line[0] == "bad-twin") == ["duplicate", "loaded"]
    status = {line[0]: line[3] for line in lines if line[0] != "bad-twin"}
    assert status == {
        "bad-argument": "failed",
        "bad-blocking": "loaded",
        "bad-cancel": "loaded",
        "bad-endless": "loaded",
        "bad-hang": "failed",
        "bad-import": "failed",
        "bad-print": "loaded",
        "bad-spelling": "failed",
        "bad-syntax": "failed",
    }


# ---- the same faults where they matter: deciding and setup hooks fail closed -----------------------------------------


@tool
def look() -> str:
    """Look."""
    return "a ship"


async def _endless(run: Any) -> None:
    await anyio.sleep_forever()


async def _faked_cancel(run: Any) -> None:
    raise asyncio.CancelledError


def _raising(run: Any) -> None:
    raise KeyError("settings")


def _blocking(run: Any) -> None:
    threading.Event().wait(0.2)


FAULTS: dict[str, tuple[Callable[[Any], Awaitable[None] | None], type[BaseException]]] = {
    "endless": (_endless, HookTimeoutError),
    "faked cancel": (_faked_cancel, PluginError),
    "raising": (_raising, KeyError),
}


def _bad(hook: str, fault: str) -> object:
    return type("Bad", (), {"name": "bad", hook: staticmethod(hookimpl(FAULTS[fault][0]))})()


async def _call(hook: str, fault: str) -> Any:
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[_bad(hook, fault)])
    return await agent.run("Look")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_decide_tool_denies_the_call_and_names_the_plugin(fault: str, backend: Backend) -> None:
    result = run_virtual(_call, "decide_tool", fault, backend=backend)
    (denied,) = result.new_messages[2].results
    assert (denied.outcome, result.output) == ("denied", "Done.")
    assert "plugin 'bad' failed while deciding about it" in denied.content
    (failure,) = result.hook_failures
    assert (failure.plugin, failure.hook, type(failure.error)) == ("bad", "decide_tool", FAULTS[fault][1])
    assert_history(result.messages)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("hook", ["on_tool", "on_state", "on_message", "before_run", "before_turn", "on_model_request"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_setup_hook_fails_the_run_and_names_the_plugin(fault: str, hook: str, backend: Backend) -> None:
    with pytest.raises(FAULTS[fault][1]) as caught:
        run_virtual(_call, hook, fault, backend=backend)
    told = " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "'bad'" in told
    assert hook in told
    assert "test_bad_plugins.py:" in told


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_on_answer_accepts_nothing(fault: str, backend: Backend) -> None:
    with pytest.raises(FAULTS[fault][1]) as caught:
        run_virtual(_call, "on_answer", fault, backend=backend)
    assert "'bad'" in " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_a_deciding_hook_that_blocks_is_measured() -> None:
    plugin = type("Bad", (), {"name": "bad", "decide_tool": staticmethod(hookimpl(_blocking))})()
    result = Agent(ScriptedModel(call("look"), "Done."), tools=[look], plugins=[plugin]).run_sync("Look")
    (row,) = result.ledger
    assert (row.plugin, row.hook, row.calls) == ("bad", "decide_tool", 1)
    assert row.seconds >= 0.2


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ("1 / 0", PluginLoadError, "ZeroDivisionError"),
        ("def broken(:", PluginLoadError, "SyntaxError"),
        (HEAD + "@hookimpl\ndef decide_tol(run): ...", HookSpecError, "did you mean 'decide_tool'"),
        (HEAD + "@hookimpl\ndef decide_tool(run, tool_call): ...", HookSpecError, "tool_call"),
        (HEAD + "@hookimpl\ndef register_settings(registry): raise OSError('disk')", PluginLoadError, "OSError: disk"),
    ],
)
def test_where_plugins_must_be_right_a_faulty_one_stops_the_start(
    source: str, error: type[Exception], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"acme_strict_{abs(hash(source))}"
    _install(tmp_path, "acme-strict", "strict", module, source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginLoadError) as caught:
        PluginManager(installed(), strict=True)
    assert "plugin 'strict' of acme-strict 1.0" in str(caught.value)
    assert says in str(caught.value)
    assert isinstance(caught.value.__cause__, error) or error is PluginLoadError
