"""Many runs in one process, each stopped at random: tasks, threads, open files and memory must stay flat."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trilane import Agent
from trilane.testing.clock import Backend, run_virtual
from trilane.testing.leaks import snapshot
from trilane.testing.models import ScriptedModel, Step, call

__all__ = ["Measured", "grown", "soak"]

#: How much more memory the end may show than the first measurement: allocators keep some.
ALLOWED_BYTES = 6_000_000


@dataclass(frozen=True, slots=True)
class Measured:
    """What there is after so many runs. `memory` is resident bytes, 0 where the system does not tell."""

    runs: int
    tasks: int
    threads: int
    files: int
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.runs:6} runs: {self.tasks} tasks, {self.threads} threads, {self.files} files, "
            f"{self.memory / 1e6:.1f} MB"
        )


def soak(runs: int, backend: Backend, seed: int = 0) -> Iterator[Measured]:
    """Stop `runs` runs at random and measure ten times, first after a tenth of them."""
    chooser = random.Random(seed)
    tenth = max(1, runs // 10)
    measured: list[Measured] = []

    async def all_of_them() -> None:
        for number in range(1, runs + 1):
            await _one(chooser)
            if number % tenth == 0:
                measured.append(_measure(number))

    run_virtual(all_of_them, backend=backend)
    yield from measured


def grown(measured: list[Measured]) -> list[str]:
    """What is more at the end than after the first tenth; empty if nothing is."""
    first, last = measured[0], measured[-1]
    problems = [
        f"{name}: {getattr(first, name)} after {first.runs} runs, {getattr(last, name)} after {last.runs}"
        for name in ("tasks", "threads", "files")
        if getattr(last, name) > getattr(first, name)
    ]
    if last.memory - first.memory > ALLOWED_BYTES:
        problems.append(f"memory grew by {(last.memory - first.memory) / 1e6:.1f} MB")
    return problems


async def _one(chooser: random.Random) -> None:
    import anyio

    async def look(n: int) -> str:
        """Look.

        Args:
            n: Where.
        """
        await anyio.sleep(0.1 * n)
        return "x" * 2000

    calls = [call("look", call_id=f"look_{n}", n=n) for n in range(3)]
    agent: Agent[Any, Any] = Agent(ScriptedModel(Step("Looking about.", calls=calls), "Found it."), tools=[look])
    how = chooser.choice(["close", "stop", "cancel", "raise", "read"])
    point = chooser.randrange(1, 40)
    try:
        with anyio.CancelScope() as scope:
            async with agent.stream("Go on.") as run:
                count = 0
                async for _event in run:
                    count += 1
                    if count != point:
                        continue
                    if how == "close":
                        break
                    if how == "stop":
                        run.stop()
                    elif how == "cancel":
                        scope.cancel()
                    elif how == "raise":
                        raise ValueError("the consumer's own error")
    except Exception:  # each end is an end; what is left is what counts
        return


def _measure(runs: int) -> Measured:
    gc.collect()
    seen = snapshot()
    return Measured(runs, len(seen["tasks"]), threading.active_count(), len(seen["files"]), _resident())


def _resident() -> int:
    if not sys.platform.startswith("linux"):
        return 0
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
