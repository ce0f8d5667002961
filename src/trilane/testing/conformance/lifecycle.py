"""Before and between runs: registering, importing, and what is left when the plugin is taken out."""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from trilane.errors import PluginLoadError
from trilane.plugins import PluginManager

from .modes import REQUEST
from .subject import Subject

__all__ = ["check_annotations", "check_import", "check_residue"]

_IMPORT = """
import io, json, sys, threading, time
import trilane
from trilane import Agent, hookimpl, tool
sys.stdout, real = io.StringIO(), sys.stdout
before = threading.active_count()
start, worked = time.perf_counter(), time.process_time()
__import__(sys.argv[1])
# Time of the processor, which does not depend on what else the machine does; but an import may also sleep.
seconds = max(time.process_time() - worked, (time.perf_counter() - start) / 4)
print(json.dumps([seconds, sys.stdout.getvalue(), threading.active_count() - before]), file=real)
"""


def check_annotations(subject: Subject) -> Iterator[str]:
    """Every hook should say what it takes and returns, so that type checkers can help."""
    manager = PluginManager([subject.make()])
    plugin = manager.get(manager.names()[0])
    for hook in subject.hooks:
        function = getattr(plugin, hook, None)
        if not callable(function):
            continue
        signature = inspect.signature(function)
        missing = [name for name, value in signature.parameters.items() if value.annotation is value.empty]
        missing += ["the return value"] if signature.return_annotation is signature.empty else []
        if missing:
            yield f"{hook} has no annotation for {', '.join(missing)}"


def check_import(subject: Subject, import_seconds: float) -> Iterator[str]:
    """Import its module in a new process. Test modules, and those that only this process can see, are left out."""
    if subject.module.rpartition(".")[2].startswith(("test_", "conftest")):
        return
    runs: list[list[Any]] = []
    while len(runs) < 3 and all(run[0] > import_seconds for run in runs):  # the machine may have been busy
        found = _import(subject.module)
        if isinstance(found, str):
            yield f"importing {subject.module} in a new process fails: {found}"
        if not isinstance(found, list):
            return
        runs.append(found)
    seconds = min(run[0] for run in runs)
    if seconds > import_seconds:
        yield (
            f"importing {subject.module} takes {seconds:.2f} s, the budget is {import_seconds:g} s; "
            "import what is heavy inside the functions that use it"
        )
    if runs[0][1]:
        yield f"importing {subject.module} prints {runs[0][1][:100]!r}; it may be somebody's protocol"
    if runs[0][2]:
        yield f"importing {subject.module} starts threads; start them when a run needs them"


def _import(module: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(place or "." for place in sys.path)}
    command = [sys.executable, "-c", _IMPORT, module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    last = done.stderr.strip().splitlines()[-1:]
    missing = f"No module named {module.partition('.')[0]!r}"
    return None if last and missing in last[0] else "".join(last)


def check_residue(subject: Subject) -> Iterator[str]:
    """Take it out and put it back between runs: nothing stays, everything comes back, nobody holds on to it."""
    plugin = subject.make()
    named = isinstance(plugin, str)
    agent = subject.agent(plugin=plugin)
    before = subject.run_virtual(_tools_and_hooks, subject, agent)
    agent.plugins.disable(subject.name)
    after = subject.run_virtual(_tools_and_hooks, subject, agent)
    if after[1]:
        yield f"disabled, its hooks are still called: {', '.join(after[1])}"
    own = set(before[0]) - set(after[0])
    agent.plugins.enable(subject.name)
    again = subject.run_virtual(_tools_and_hooks, subject, agent)
    if subject.fresh and not own <= set(again[0]):
        yield f"enabled again, it no longer offers {', '.join(sorted(own - set(again[0])))}"
    if subject.fresh and again[1] != before[1]:
        yield f"enabled again, its hooks are called as {again[1]}, at first as {before[1]}"
    if named:
        yield from _reloaded(subject, agent, before)
    if not subject.fresh:
        return
    agent.plugins.unregister(subject.name)
    subject.run_virtual(_tools_and_hooks, subject, agent)
    try:
        there = weakref.ref(plugin)
    except TypeError:
        return
    del plugin
    if not _is_gone(there):
        holders = ", ".join(sorted({type(one).__name__ for one in gc.get_referrers(there())}))
        yield f"unregistered, it is still held by something ({holders}); keep per-run data in run.stash"


def _reloaded(subject: Subject, agent: Any, before: tuple[list[str], list[str]]) -> Iterator[str]:
    """Import it anew: it must do what it did, and nothing may hold on to its old self."""
    package = subject.module.partition(".")[0]
    modules = {name: module for name, module in sys.modules.items() if _is_in(name, package)}
    old = agent.plugins.get(subject.name)
    there = None if isinstance(old, ModuleType) else weakref.ref(old)
    threads = set(threading.enumerate())
    del old
    try:
        agent.plugins.reload(subject.name)
        tools, hooks = subject.run_virtual(_tools_and_hooks, subject, agent)
    except PluginLoadError as error:
        yield f"it cannot be reloaded: {error}"
        return
    finally:
        for name in [name for name in sys.modules if _is_in(name, package)]:
            del sys.modules[name]
        sys.modules.update(modules)  # whoever has imported from it before goes on with the same classes
    if (sorted(set(tools)), hooks) != (sorted(set(before[0])), before[1]):
        yield f"reloaded, it offers {', '.join(tools)} and its hooks are called as {hooks}, at first as {before[1]}"
    started = [thread.name for thread in threading.enumerate() if thread not in threads and thread.is_alive()]
    if started:
        yield f"reloaded, it leaves threads running: {', '.join(started)}"
    if there is not None and not _is_gone(there):
        yield "reloaded, its old self is still held by something"


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _is_gone(there: weakref.ref[object]) -> bool:
    """Wait a moment for it: a thread of a tool may be on its way out."""
    deadline = time.perf_counter() + 1.0
    while there() is not None and time.perf_counter() < deadline:
        gc.collect()
        time.sleep(0.01)
    return there() is None


async def _tools_and_hooks(subject: Subject, agent: Any) -> tuple[list[str], list[str]]:
    try:
        result = await agent.run(REQUEST, **subject.options)
    except Exception as error:
        result = getattr(error, "result", None)
    offered = [tool.name for tool in agent.model.requests[-1].tools] if agent.model.requests else []
    rows = () if result is None else result.ledger
    return offered, sorted(row.hook for row in rows if row.plugin == subject.name)
