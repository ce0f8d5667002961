"""How far a producer is ahead of a slow reader: with an unbounded queue, a queue of one, and acknowledgement.

    python benchmarks/ahead.py            # prints the table
    python benchmarks/ahead.py --write    # and keeps it in ahead.json, which the documentation shows

The producer announces each of eight pieces of work, then does it at once; the reader takes 20 ms for each announcement,
as a page does that draws it. How long after (or, if negative, before) the reader was done with its announcement was a
piece done? The median of its pieces, and of seven rounds.
"""

from __future__ import annotations

import asyncio
import json
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from trilane.channels import AgentEventQueue

RESULTS = Path(__file__).with_name("ahead.json")
PIECES = 8
READER_SECONDS = 0.02
ROUNDS = 7

Put = Callable[[int], Awaitable[None]]
Get = Callable[[], Awaitable[int]]


def _bounded(size: int) -> tuple[Put, Get, Callable[[], None]]:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=size)
    return queue.put, queue.get, lambda: None


def _acknowledged() -> tuple[Put, Get, Callable[[], None]]:
    queue: AgentEventQueue[int] = AgentEventQueue()
    queue.enable_acknowledgements()
    return queue.put, queue.get, queue.acknowledge


CHANNELS: dict[str, Callable[[], tuple[Put, Get, Callable[[], None]]]] = {
    "unbounded queue": lambda: _bounded(0),
    "queue of one": lambda: _bounded(1),
    "acknowledgement": _acknowledged,
}


async def measure(channel: str) -> dict[str, float]:
    """One round: the most pieces done that the reader was not done with, and when the typical piece was done."""
    put, get, acknowledge = CHANNELS[channel]()
    done: list[float] = []
    seen: list[float] = []
    ahead = 0

    async def produce() -> None:
        for number in range(PIECES):
            await put(number)
            done.append(time.perf_counter())  # the work, which takes no time here

    task = asyncio.create_task(produce())
    for _ in range(PIECES):
        await get()
        await asyncio.sleep(READER_SECONDS)
        ahead = max(ahead, len(done) - len(seen))
        seen.append(time.perf_counter())
        acknowledge()
    await task
    late = statistics.median(at - moved for at, moved in zip(done, seen, strict=True))
    return {"pieces_ahead": ahead, "ms_after_the_reader": late * 1000}


def results() -> dict[str, Any]:
    """Every channel, with the machine and the day."""
    rows: dict[str, dict[str, float]] = {}
    for channel in CHANNELS:
        rounds = [asyncio.run(measure(channel)) for _ in range(ROUNDS)]
        rows[channel] = {key: round(statistics.median(one[key] for one in rounds), 2) for key in rounds[0]}
    return {"when": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "channels": rows}


def main() -> None:
    """Measure and print."""
    found = results()
    for channel, row in found["channels"].items():
        ahead, late = row["pieces_ahead"], row["ms_after_the_reader"]
        print(f"{channel:18} {ahead:4.0f} pieces ahead {late:9.2f} ms after the reader")
    if "--write" in sys.argv:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
