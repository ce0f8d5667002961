"""What an acknowledged hand-over costs: microseconds per event, producer in its own task, on asyncio and trio.

    python benchmarks/micro_channels.py [events]
    python benchmarks/micro_channels.py --write    # and keep the figures in micro_channels.json, for the documentation

Prints the best of five rounds of process CPU time and of wall time. `floor` is two scheduled wake-ups per event and
nothing else: what no queue can beat. The machine drifts between rows; repeat before comparing them.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import trio

from trilane._backend import Waiter, new_waiter
from trilane.channels import AgentEventQueue, EventSink

RESULTS = Path(__file__).with_name("micro_channels.json")
ROUNDS = 5
GROUP = 10


async def floor(events: int) -> None:
    """Two tasks that wake each other, nothing else."""
    waiters: list[Waiter | None] = [None, None]

    async def player(me: int) -> None:
        waiters[me] = waiter = new_waiter()
        for _ in range(events):
            waiter.renew()
            other = waiters[1 - me]
            if other is not None:
                other.wake()
            await waiter.wait()
        last = waiters[1 - me]
        if last is not None:
            last.wake()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(player, 0)
        tasks.start_soon(player, 1)


async def acknowledged(events: int, group: int) -> None:
    """A producer that puts `group` events at a time, a consumer that acknowledges every one."""
    queue: AgentEventQueue[int] = AgentEventQueue()
    queue.enable_acknowledgements()

    async def produce() -> None:
        batch = tuple(range(group))
        for _ in range(events // group):
            await queue.put(*batch)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        for _ in range(events):
            await queue.get()
            queue.acknowledge()


async def plain(events: int) -> None:
    """No acknowledgement: everything is put first and taken afterwards."""
    queue: AgentEventQueue[int] = AgentEventQueue()
    for number in range(events):
        await queue.put(number)
    for _ in range(events):
        await queue.get()


async def sink(events: int) -> None:
    """A sink whose connection is always ready."""

    async def write(_item: int) -> None:
        pass

    out: EventSink[int] = EventSink(write)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(out.run)
        for number in range(events):
            await out.publish(number)
        out.close()


CASES: dict[str, tuple[Callable[[int], Awaitable[None]], int]] = {
    "floor: two wake-ups": (floor, 1),
    "acknowledged event": (lambda events: acknowledged(events, 1), 1),
    f"acknowledged group of {GROUP}": (lambda events: acknowledged(events, GROUP), GROUP),
    "plain put and get": (plain, 1),
    "sink, per publish": (sink, 1),
}


def measure(run: Callable[[], object], events: int) -> tuple[float, float]:
    cpu, wall = [], []
    for _ in range(ROUNDS):
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        run()
        cpu.append(time.process_time() - cpu_start)
        wall.append(time.perf_counter() - wall_start)
    return min(cpu) / events * 1e6, min(wall) / events * 1e6


def main() -> None:
    events = next((int(word) for word in sys.argv[1:] if word.isdigit()), 20_000)
    found: dict[str, dict[str, float]] = {}
    print(f"{'us per event (or group)':28} {'asyncio cpu':>12} {'wall':>8} {'trio cpu':>12} {'wall':>8}")
    for name, (case, group) in CASES.items():

        async def body(case: Callable[[int], Awaitable[None]] = case) -> None:
            await case(events)

        a_cpu, a_wall = measure(lambda body=body: asyncio.run(body()), events // group)  # type: ignore[misc]
        t_cpu, t_wall = measure(lambda body=body: trio.run(body), events // group)  # type: ignore[misc]
        print(f"{name:28} {a_cpu:12.2f} {a_wall:8.2f} {t_cpu:12.2f} {t_wall:8.2f}")
        found[name] = {"asyncio": round(a_cpu, 1), "trio": round(t_cpu, 1)}
    if "--write" in sys.argv:
        kept = {"when": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "cpu_us": found}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
