"""What a turn costs on a long session, with each store: it must not grow with what was said before.

    python benchmarks/long_sessions.py              # memory, SQLite and PostgreSQL; 100, 1,000 and 10,000 messages
    python benchmarks/long_sessions.py --stores sqlite --sizes 100,50000
    python benchmarks/long_sessions.py --check      # exit status 1 if something grows
    python benchmarks/long_sessions.py --write      # and keep the figures in long_sessions.json and .md

*open* is the first run on the session in a process, which has to read it; every other figure is of a process that goes
on. Times are the best of several, of the wall clock. *read* and *written* are records per turn. *results* is how much
the memory of a fresh process grows by a run on a session whose tools returned so many megabytes.
PostgreSQL is that of `TRILANE_POSTGRES_DSN`; without it one is started in a temporary folder, for which the programs of
a server must be installed (Debian: `postgresql`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from trilane import Agent, InMemoryStore
from trilane.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResult,
    UserMessage,
)
from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.stores import (
    CallFinished,
    Lease,
    MessageStored,
    SessionPage,
    SessionRecord,
    SessionStore,
)

RESULTS = Path(__file__).with_name("long_sessions.json")
STORES = ("memory", "sqlite", "postgres")
SESSION = "long"
TEXT = "What was said in the harbour, and what was heard of it. " * 4
TURNS = 20
GROUP = 100

#: With so many times the messages nothing may take longer than by this factor, and this much for the clock.
FACTOR, SLACK_MS = 2.0, 1.0

#: What the memory of a process may grow by, whatever the results weigh.
MOST_MEGABYTES = 20.0


class Echo:
    """A model that answers at once and keeps nothing."""

    name = "echo"

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        return ModelResponse(parts=(TextPart(text=TEXT),), stop_reason="end", model="echo")


class Counted:
    """A store that counts the records that pass. What else it can do is the inner one's."""

    def __init__(self, inner: SessionStore) -> None:
        self._inner = inner
        self.read = self.written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @asynccontextmanager
    async def lease(self, session: str, *, ttl_seconds: float) -> AsyncIterator[Lease]:
        async with self._inner.lease(session, ttl_seconds=ttl_seconds) as lease:
            yield lease

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        page = await self._inner.load(session, after=after, limit=limit)
        self.read += len(page.records)
        return page

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        self.written += len(records)
        return await self._inner.append(session, records, expected_version=expected_version, lease=lease)


# ---- one session ----------------------------------------------------------------------------------------------------


def conversation(messages: int) -> list[SessionRecord]:
    """Requests and answers by turns."""
    texts = [TextPart(text=f"{number} {TEXT}") for number in range(messages)]
    kinds = (UserMessage, AssistantMessage)
    return [
        MessageStored(run_id="r", message=kinds[number % 2](id=f"m{number}", parts=(text,)))
        for number, text in enumerate(texts)
    ]


def results(megabytes: int) -> list[SessionRecord]:
    """Tool results of one megabyte each, in what programs see of them; the model sees a line."""
    made: list[SessionRecord] = []
    for number in range(megabytes):
        call = ToolCall(id=f"c{number}", name="measure")
        message = AssistantMessage(id=f"a{number}", parts=(ToolCallPart(call=call),), stop_reason="tool_calls")
        result = ToolResult(call_id=call.id, content="measured", data=f"{number:08}" * 125_000)
        made += [
            MessageStored(run_id="r", message=UserMessage(id=f"u{number}", parts=(TextPart(text="Measure."),))),
            MessageStored(run_id="r", message=message),
            CallFinished(run_id="r", message_id=message.id, result=result),
            MessageStored(run_id="r", message=AssistantMessage(id=f"b{number}", parts=(TextPart(text="Done."),))),
        ]
    return made


async def fill(store: SessionStore, records: Sequence[SessionRecord], group: int = GROUP) -> None:
    async with store.lease(SESSION, ttl_seconds=60.0) as lease:
        version = 0
        for start in range(0, len(records), group):
            some = records[start : start + group]
            version = await store.append(SESSION, some, expected_version=version, lease=lease)


async def best(action: Callable[[], Awaitable[object]], times: int = TURNS) -> float:
    """Milliseconds of the quickest."""
    quickest = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        await action()
        quickest = min(quickest, time.perf_counter() - started)
    return quickest * 1000


async def measure(name: str, open_store: Callable[[], SessionStore], messages: int) -> dict[str, Any]:
    """One row: a store with a session of so many messages."""
    store = open_store()
    records = conversation(messages)
    started = time.perf_counter()
    await fill(store, records)
    filled = time.perf_counter() - started
    if name != "memory":
        close(store)
        store = Counted(open_store())
    agent = Agent(Echo(), store=store)
    opened = await best(lambda: agent.run("And now?", session=SESSION), times=1)
    before = (store.read, store.written) if isinstance(store, Counted) else (0, 0)
    turn = await best(lambda: agent.run("And now?", session=SESSION))
    after = (store.read, store.written) if isinstance(store, Counted) else (0, 0)

    async with store.lease(SESSION, ttl_seconds=60.0) as lease:
        version = (await store.load(SESSION, limit=0)).version

        async def append() -> None:
            nonlocal version
            one = MessageStored(run_id="r", message=UserMessage(id=f"x{version}", parts=(TextPart(text=TEXT),)))
            version = await store.append(SESSION, (one,), expected_version=version, lease=lease)

        appended = await best(append)
    paged = await best(lambda: store.load(SESSION, after=messages // 2, limit=50))
    close(store)
    return {
        "store": name,
        "messages": messages,
        "fill_us_per_record": filled / messages * 1e6,
        "open_ms": opened,
        "turn_ms": turn,
        "append_ms": appended,
        "page_ms": paged,
        "read": (after[0] - before[0]) / TURNS,
        "written": (after[1] - before[1]) / TURNS,
    }


def close(store: object) -> None:
    """Let go of it, unless it is in this process."""
    done = getattr(store, "close", None)
    if done is not None:
        done()


# ---- large results --------------------------------------------------------------------------------------------------


def weigh(spec: str, megabytes: int) -> dict[str, Any]:
    """Fill a session with results in one process, and run a turn on it in another: how much does that one grow?"""
    for part in ("fill", "turn"):
        done = subprocess.run(
            [sys.executable, __file__, "--part", part, "--at", spec, "--megabytes", str(megabytes)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
    return {"store": spec.partition(":")[0], "megabytes": megabytes, **json.loads(done.stdout)}


async def _part(part: str, spec: str, megabytes: int) -> None:
    store = opener(spec)()
    agent = Agent(Echo(), store=store)
    if part == "fill":
        await fill(store, results(megabytes), group=4)
    else:
        await agent.run("Hello.", session="small")  # what is loaded and connected for any session is not counted
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        await agent.run("And now?", session=SESSION)
        await agent.run("And now?", session=SESSION)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(json.dumps({"grown_mb": grown / 1024, "two_turns_ms": (time.perf_counter() - started) * 1000}))
    close(store)


def opener(spec: str) -> Callable[[], SessionStore]:
    """What opens the store that a spec means."""
    if spec == "memory":
        made = InMemoryStore()
        return lambda: made
    from trilane.plugins import PluginManager, resolve_store, store_plugin

    manager = PluginManager([store_plugin(spec)])
    return lambda: resolve_store(spec, manager)


# ---- all of it ------------------------------------------------------------------------------------------------------


def everything(stores: Sequence[str], sizes: Sequence[int], megabytes: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    weights: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trilane-long-"))
        for store in stores:
            place = _place(store, folder, stack)
            for size in sizes:
                print(f"{store}: {size} messages", file=sys.stderr)
                rows.append(asyncio.run(measure(store, opener(place.format(size)), size)))
            if store != "memory" and megabytes:
                print(f"{store}: {megabytes} MB of results", file=sys.stderr)
                weights.append(weigh(place.format("results"), megabytes))
    return {"sessions": rows, "results": weights, "python": platform.python_version(), "machine": platform.machine()}


def _place(store: str, folder: str, stack: ExitStack) -> str:
    """The spec of a store, with a gap for what it is for."""
    if store != "postgres":
        return store if store == "memory" else f"{store}:{folder}/{{}}"
    dsn = os.environ.get("TRILANE_POSTGRES_DSN")
    if not dsn:
        from trilane_postgres.testing import TemporaryServer

        dsn = stack.enter_context(TemporaryServer(durable=True)).dsn
    return f"{dsn}{'&' if '?' in dsn else '?'}schema=long_{os.getpid()}_{{}}"


def growing(found: dict[str, Any], factor: float = FACTOR) -> list[str]:
    """What grows with the length of a session and should not."""
    said = []
    by_store: dict[str, list[dict[str, Any]]] = {}
    for row in found["sessions"]:
        by_store.setdefault(row["store"], []).append(row)
    for store, rows in by_store.items():
        short, long = rows[0], rows[-1]
        said += [
            f"{store}: {figure} {short[figure]:.2f} with {short['messages']} messages, {long[figure]:.2f} with "
            f"{long['messages']}"
            for figure in ("turn_ms", "append_ms", "page_ms")
            if long[figure] > factor * short[figure] + SLACK_MS
        ]
        said += [
            f"{store}: {figure} {short[figure]:g} and {long[figure]:g} records a turn"
            for figure in ("read", "written")
            if long[figure] != short[figure]
        ]
    said += [
        f"{row['store']}: a run grew the process by {row['grown_mb']:.0f} MB beside {row['megabytes']} MB of results"
        for row in found["results"]
        if row["grown_mb"] > MOST_MEGABYTES
    ]
    return said


def table(found: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        "| store | messages | fill us/record | open ms | turn ms | append ms | page of 50 ms | read | written |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['store']} | {row['messages']:,} | {row['fill_us_per_record']:.0f} | {row['open_ms']:.1f} | "
        f"{row['turn_ms']:.2f} | {row['append_ms']:.2f} | {row['page_ms']:.2f} | "
        f"{row['read']:g} | {row['written']:g} |"
        for row in found["sessions"]
    ]
    lines += ["", "| store | results MB | process grew by MB | two turns ms |", "| --- | ---: | ---: | ---: |"]
    for row in found["results"]:
        grown, turns = f"{row['grown_mb']:.1f}", f"{row['two_turns_ms']:.0f}"
        lines.append(f"| {row['store'].replace('postgresql', 'postgres')} | {row['megabytes']} | {grown} | {turns} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--sizes", default="100,1000,10000", help="messages, ascending")
    parser.add_argument("--megabytes", type=int, default=100, help="of tool results; 0 for none")
    parser.add_argument("--check", action="store_true", help="fail if something grows")
    parser.add_argument("--factor", type=float, default=FACTOR, help="by which no time may grow")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        asyncio.run(_part(options.part, options.at, options.megabytes))
        return 0
    sizes = [int(size) for size in options.sizes.split(",")]
    found = everything(options.stores.split(","), sizes, options.megabytes)
    print(table(found))
    if options.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        head = f"Python {found['python']} on {found['machine']}; see README.md for what is measured.\n\n"
        RESULTS.with_suffix(".md").write_text(f"# Long sessions\n\n{head}{table(found)}", encoding="utf-8")
    problems = growing(found, options.factor)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if options.check and problems else 0


if __name__ == "__main__":
    sys.exit(main())
