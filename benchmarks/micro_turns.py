"""What hooks and stores add to a turn or a delta, in microseconds, against the same run without them.

    python benchmarks/micro_turns.py [turns] [rounds]

Rows with hooks are per call of one hook implementation. Rows of the SQLite store are per turn, which is two appends:
each is a hand-over to the store's thread and a transaction. `normal` is durable when the process dies, `full` also when
the power fails: it waits for the disk twice, and its wall time is that of the disk.

Rounds are interleaved; the cheapest of each row is printed for CPU, the median for wall time.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trilane import Agent, Limits, RunContext, ToolCall, hookimpl
from workload import Model, step

HOOKS = 10


class Quiet:
    """One plugin with a hook for each turn, each tool call, and each delta."""

    def __init__(self, name: str) -> None:
        self.name = name


class Turns(Quiet):
    @hookimpl
    def before_turn(self, run: RunContext[Any], turn: int) -> None:
        """Nothing."""


class AsyncTurns(Quiet):
    @hookimpl
    async def before_turn(self, run: RunContext[Any], turn: int) -> None:
        """Nothing."""


class Decisions(Quiet):
    @hookimpl
    def decide_tool(self, run: RunContext[Any], call: ToolCall) -> None:
        """Nothing."""


class Deltas(Quiet):
    @hookimpl
    def on_delta(self, run: RunContext[Any], delta: object, final: bool) -> None:
        """Nothing."""


def plugins(kind: type[Quiet]) -> list[Quiet]:
    return [kind(f"quiet-{number}") for number in range(HOOKS)]


async def run_once(agent: Agent[Any, Any]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    async with agent.stream("go") as run:
        async for _ in run:
            pass
    return time.process_time() - cpu, time.perf_counter() - wall


async def measure(turns: int, rounds: int, folder: Path) -> None:
    from trilane_sqlite import SqliteStore

    stores = [SqliteStore(folder / f"{name}.db", synchronous=name) for name in ("normal", "full")]
    limits = Limits(turns=turns + 5)

    def tools(**options: Any) -> Callable[[], Agent[Any, Any]]:
        return lambda: Agent(Model(1, turns), tools=[step], limits=limits, **options)

    def talk(**options: Any) -> Callable[[], Agent[Any, Any]]:
        return lambda: Agent(Model(turns * 10, 0), limits=limits, **options)

    # name: how an agent is made, the row it is compared with, and by how many its difference is divided
    rows: dict[str, tuple[Callable[[], Agent[Any, Any]], str, int]] = {
        "a turn": (tools(), "", turns),
        "a delta": (talk(), "", turns * 10),
        "before_turn": (tools(plugins=plugins(Turns)), "a turn", turns * HOOKS),
        "before_turn, async": (tools(plugins=plugins(AsyncTurns)), "a turn", turns * HOOKS),
        "decide_tool": (tools(plugins=plugins(Decisions)), "a turn", turns * HOOKS),
        "on_delta": (talk(plugins=plugins(Deltas)), "a delta", turns * 10 * HOOKS),
        "SQLite, normal": (tools(store=stores[0]), "a turn", turns),
        "SQLite, full": (tools(store=stores[1]), "a turn", turns),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    for number in range(rounds + 1):
        for name, (make, _, _) in rows.items():
            took = await run_once(make())
            if number:  # the first is for imports and compiled constructors
                taken[name].append(took)
    for store in stores:
        store.close()
    print(f"{'us more than without':24} {'cpu':>9} {'wall':>9}")
    for name, (_, base, parts) in rows.items():
        cpu, wall = _figures(taken[name])
        less_cpu, less_wall = _figures(taken[base]) if base else (0.0, 0.0)
        print(f"{name:24} {(cpu - less_cpu) / parts * 1e6:9.2f} {(wall - less_wall) / parts * 1e6:9.2f}")


def _figures(taken: list[tuple[float, float]]) -> tuple[float, float]:
    return min(cpu for cpu, _ in taken), statistics.median(wall for _, wall in taken)


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(turns, rounds, Path(folder)))


if __name__ == "__main__":
    main()
