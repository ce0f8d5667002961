"""Before and between runs: registering, importing, and what is left when the plugin is taken out."""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

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
    if named or not subject.fresh:
        return
    agent.plugins.unregister(subject.name)
    subject.run_virtual(_tools_and_hooks, subject, agent)
    try:
        there = weakref.ref(plugin)
    except TypeError:
        return
    del plugin
    deadline = time.perf_counter() + 1.0
    while there() is not None and time.perf_counter() < deadline:  # a thread of a tool may be on its way out
        gc.collect()
        time.sleep(0.01)
    if there() is not None:
        holders = ", ".join(sorted({type(one).__name__ for one in gc.get_referrers(there())}))
        yield f"unregistered, it is still held by something ({holders}); keep per-run data in run.stash"


async def _tools_and_hooks(subject: Subject, agent: Any) -> tuple[list[str], list[str]]:
    try:
        result = await agent.run(REQUEST, **subject.options)
    except Exception as error:
        result = getattr(error, "result", None)
    offered = [tool.name for tool in agent.model.requests[-1].tools] if agent.model.requests else []
    rows = () if result is None else result.ledger
    return offered, sorted(row.hook for row in rows if row.plugin == subject.name)
