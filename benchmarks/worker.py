"""Runs one workload inside one peer's environment and prints one JSON line per measured point.

Started by `run.py`. The stopping cases (W7) are in `stopping.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import logging
import resource
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from core import CURRENT, DELTA, TOOL, Script, Tools, fanout_script, loop_script, make_step, text_script

HERE = Path(__file__).resolve().parent


def emit(**values: object) -> None:
    """Print one sample for `run.py`."""
    print("@@" + json.dumps(values), flush=True)


def load(name: str) -> Any:
    """The module `peers/<name>.py`; by path, because it may share its package's name."""
    spec = importlib.util.spec_from_file_location("bench_peer", HERE / "peers" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["bench_peer"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def app_for(peer: Any, tools: Tools, **options: int) -> Any:
    """The peer's agent, with the one tool."""
    app = peer.build(make_step(tools), **options)
    ready = getattr(peer, "ready", None)
    if ready is not None:
        await ready(app)
    return app


async def drain(peer: Any, app: Any, session: str, script: Script) -> tuple[int, int]:
    """Read one run to its end; the deltas and the tool results that were seen."""
    CURRENT.set(script)
    kind = peer.kind
    deltas = results = 0
    async for event in peer.open(app, session):
        what = kind(event)
        if what == DELTA:
            deltas += 1
        elif what == TOOL:
            results += 1
    return deltas, results


async def _timed(peer: Any, app: Any, session: str, script: Script) -> tuple[float, float, int, int]:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    deltas, results = await drain(peer, app, session, script)
    return time.perf_counter() - wall, time.process_time() - cpu, deltas, results


def _memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def cold_start(name: str) -> None:
    """W1: import the peer and build an agent with one tool."""
    wall, cpu, before = time.perf_counter(), time.process_time(), len(sys.modules)
    asyncio.run(app_for(load(name), Tools()))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    emit(wall=wall, cpu=cpu, peak_mb=_peak_mb(), modules=len(sys.modules) - before)


async def deltas(peer: Any, options: argparse.Namespace) -> None:
    """W2: one response of n deltas."""
    app = await app_for(peer, Tools())
    await drain(peer, app, "warm", text_script(200))
    for n in options.points:
        wall, cpu, seen, _ = await _timed(peer, app, f"s{n}", text_script(n))
        emit(n=n, us=wall / n * 1e6, cpu_us=cpu / n * 1e6, seen=seen, ok=seen == n)


async def tool_loop(peer: Any, options: argparse.Namespace) -> None:
    """W3, and with hooks W6: n turns of one call each, then an answer."""
    tools = Tools()
    app = await app_for(peer, tools, hooks=options.hooks, max_turns=max(options.points))
    await drain(peer, app, "warm", loop_script(5))
    for n in options.points:
        tools.done = 0
        wall, cpu, seen, results = await _timed(peer, app, f"s{n}", loop_script(n))
        right = tools.done == n and results == n and seen == 1
        times = {"us": wall / n * 1e6, "cpu_us": cpu / n * 1e6}
        emit(n=n, hooks=options.hooks, **times, ok=right, done=tools.done, results_seen=results)


async def fan_out(peer: Any, options: argparse.Namespace) -> None:
    """W4: one response with n calls of a tool that sleeps 10 ms."""
    for n in options.points:
        tools = Tools(sleep=0.01)
        app = await app_for(peer, tools)
        await drain(peer, app, "warm", fanout_script(2))
        tools.done = tools.max_inflight = 0
        wall, cpu, _, results = await _timed(peer, app, f"s{n}", fanout_script(n))
        done = {"ok": tools.done == n, "results_seen": results}
        emit(n=n, ms=wall * 1e3, cpu_ms=cpu * 1e3, inflight=tools.max_inflight, **done)


async def _many(peer: Any, app: Any, prefix: str, n: int) -> tuple[list[int], list[float]]:
    """n sessions at once; the deltas each saw, and how long each took, sorted."""
    latencies: list[float] = []

    async def one(session: str) -> int:
        started = time.perf_counter()
        seen, _ = await drain(peer, app, session, loop_script(1, 20, True))
        latencies.append(time.perf_counter() - started)
        return seen

    seen = await asyncio.gather(*[asyncio.create_task(one(f"{prefix}{i}")) for i in range(n)])
    return list(seen), sorted(latencies)


async def sessions(peer: Any, options: argparse.Namespace) -> None:
    """W5: n sessions at once in one loop: one tool turn, then 20 deltas."""
    for n in options.points:
        tools = Tools()
        app = await app_for(peer, tools, max_turns=5)
        await _many(peer, app, "w", 5)
        tools.done = 0
        gc.collect()
        base = _memory_mb()
        wall, cpu = time.perf_counter(), time.process_time()
        seen, latencies = await _many(peer, app, "s", n)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        slow = {"p50_ms": latencies[len(latencies) // 2] * 1e3, "p99_ms": latencies[int(n * 0.99) - 1] * 1e3}
        right = tools.done == n and all(count == 20 for count in seen)
        emit(n=n, per_s=n / wall, cpu_us=cpu / n * 1e6, kb=(_peak_mb() - base) * 1000 / n, **slow, ok=right)


async def stopping(peer: Any, options: argparse.Namespace) -> None:
    """W7."""
    from stopping import CASES

    for case in CASES:
        await case(peer)


WORKLOADS: dict[str, Callable[[Any, argparse.Namespace], Awaitable[None]]] = {
    "W2": deltas,
    "W3": tool_loop,
    "W4": fan_out,
    "W5": sessions,
    "W6": tool_loop,
    "W7": stopping,
}


async def _work(name: str, options: argparse.Namespace) -> None:
    await WORKLOADS[options.workload](load(name), options)


def main() -> None:
    """Run one workload of one peer."""
    parser = argparse.ArgumentParser(description="One workload of one peer; run.py starts this.")
    parser.add_argument("peer")
    parser.add_argument("workload")
    parser.add_argument("--points", type=lambda text: [int(n) for n in text.split(",")], default=[])
    parser.add_argument("--hooks", type=int, default=0)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if options.workload == "W1":
        cold_start(options.peer)
    else:
        asyncio.run(_work(options.peer, options))


if __name__ == "__main__":
    # Peers import `core`, and `stopping` imports this module: both must find the module that is running.
    sys.modules["worker"] = sys.modules["__main__"]
    main()
