"""Mistakes that were made once, or nearly: put back into a copy of the source, the matrix must find each.

What a mistake replaces must be there exactly once. Where the source has changed, look what the mistake would be now.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import trilane

SOURCE = Path(trilane.__file__).parent


@dataclass(frozen=True)
class Mistake:
    """Replacements by file, the cases that are played, and the invariant that must be violated."""

    arguments: str
    invariant: str
    replace: tuple[tuple[str, str, str], ...]
    append: tuple[tuple[str, str], ...] = field(default=())


UNGUARDED = """

async def wait_unguarded(timers, is_over, subscribe, deadline, on_cancel=None):
    while not is_over() and timers.now() < deadline:
        waiter = new_waiter()
        subscribe(waiter)
        timer = timers.call_at(deadline, waiter.wake) if deadline < float("inf") else None
        try:
            await waiter.wait()
        finally:
            if timer is not None:
                timer.cancel()
    return 0
"""

MISTAKES = {
    "a write to the store that no shield keeps from a cancel": Mistake(
        arguments="--scenario store --fault cancel_once",
        invariant="results_kept",
        replace=(
            (
                "_flush.py",
                "    seconds = core.limits.store_seconds\n",
                "    core.version = await core.store.append(\n"
                "        core.session_id, records, expected_version=core.version, lease=core.lease\n"
                "    )\n"
                "    return\n"
                "    seconds = core.limits.store_seconds\n",
            ),
        ),
    ),
    "a result that is committed after somebody was told": Mistake(
        arguments="--scenario parallel --fault cancel_once",
        invariant="results_kept",
        replace=(
            (
                "_invoke.py",
                "            run.result = _result_of(core, run, value)\n",
                "            import anyio\n            await anyio.sleep(0)\n"
                "            run.result = _result_of(core, run, value)\n",
            ),
        ),
    ),
    "an event that is acknowledged when it is handed over": Mistake(
        arguments="--scenario plain --fault hold",
        invariant="nothing_ahead",
        replace=(
            (
                "channels/event_queue.py",
                "            return ready.pop()\n        getter",
                "            self.acknowledge()\n            return ready.pop()\n        getter",
            ),
        ),
    ),
    "a hook that is called before what it is told of is stored": Mistake(
        arguments="--scenario store_steering --fault stop",
        invariant="stored_first",
        replace=(
            (
                "_core.py",
                "        if self.outbox or self.flushing:\n            await self.flush()\n        if self.must_show",
                "        if self.must_show",
            ),
            (
                "_core.py",
                "        while self.flushing or (stored and self.outbox and clock is main):\n",
                "        while self.flushing:\n",
            ),
        ),
    ),
    "hooks that run at the same time": Mistake(
        arguments="--scenario hooks --fault interrupt",
        invariant="right_exception",
        replace=(
            (
                "_dispatch.py",
                "            for implementation in implementations:\n"
                "                value = await self._bounded(frame, implementation, clock, args)\n"
                "                values.append((implementation, value))\n",
                "            import asyncio\n"
                "            calls = [self._bounded(frame, one, clock, args) for one in implementations]\n"
                "            values = list(zip(implementations, await asyncio.gather(*calls)))\n",
            ),
        ),
    ),
    "an exit that a second cancel gets through": Mistake(
        arguments="--scenario tool --fault cancel_twice",
        invariant="one_terminal",
        replace=(
            (
                "_main.py",
                "        swallowed += await wait_shielded(\n            core.timers,\n            lambda task",
                "        swallowed += await wait_unguarded(\n            core.timers,\n            lambda task",
            ),
        ),
        append=(("_main.py", UNGUARDED),),
    ),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_w01_w02_w03_the_matrix_finds_the_mistake(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    copy = tmp_path / "trilane"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.html", "*.js"))
    for file, before, after in mistake.replace:
        text = (copy / file).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{file} has changed; what would the mistake be now?"
        (copy / file).write_text(text.replace(before, after), encoding="utf-8")
    for file, more in mistake.append:
        with (copy / file).open("a", encoding="utf-8") as opened:
            opened.write(more)
    done = subprocess.run(
        [sys.executable, "-m", "trilane.testing.faults", *mistake.arguments.split(), "--backend", "asyncio", "--first"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\n    {mistake.invariant}: " in done.stdout, done.stdout
