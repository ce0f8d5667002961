"""Turns the samples of `run.py` into the tables of a Markdown page. It measures nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from quiet import ADDITIONS

__all__ = ["HOOKS", "REFERENCE", "report"]

#: The peer that every ratio is against.
REFERENCE = "zett"
#: Numbers of no-op plugins in W6.
HOOKS = (0, 1, 10, 50)

Row: TypeAlias = dict[str, Any]
Number: TypeAlias = float | None


def _median(rows: Iterable[Row], key: str) -> Number:
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else None


def _number(value: Number, digits: int = 3) -> str:
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def _ratio(value: Number, reference: Number) -> str:
    return _number(value / reference) if value and reference else "-"


def _in_ms(seconds: Number) -> Number:
    return None if seconds is None else seconds * 1e3


def _table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> list[str]:
    rows = [head, ["---"] * len(head), *lines]
    return [*(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows), ""]


def _exponents(points: Iterable[tuple[int, Number]]) -> str:
    """Slope of log(total time) over log(n), per pair of neighbours: 1 is linear, 2 quadratic."""
    totals = [(n, n * value) for n, value in points if value]
    return ", ".join(str(round(math.log(b[1] / a[1]) / math.log(b[0] / a[0]), 2)) for a, b in pairwise(totals))


class _Samples:
    """The rows of a run, by workload and peer."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.rows: list[Row] = data["rows"]
        self.peers: list[str] = data["peers"]
        self.venvs: dict[str, dict[str, Any]] = data["venvs"]

    def of(self, workload: str, peer: str, **where: object) -> list[Row]:
        return [
            row
            for row in self.rows
            if row["workload"] == workload
            and row["peer"] == peer
            and "failed" not in row
            and all(row.get(key) == value for key, value in where.items())
        ]

    def median(self, workload: str, peer: str, key: str, **where: object) -> Number:
        return _median(self.of(workload, peer, **where), key)

    def points(self, workload: str) -> list[int]:
        return sorted({row["n"] for row in self.rows if row["workload"] == workload and "n" in row})


def _cold_start(samples: _Samples) -> Iterator[str]:
    yield from ("## W1 import and build an agent with one tool (cold process)", "")
    reference = samples.median("W1", REFERENCE, "cpu")
    lines = []
    for peer in samples.peers:
        rows, venv = samples.of("W1", peer), samples.venvs.get(peer, {})
        wall, cpu = _median(rows, "wall"), _median(rows, "cpu")
        sizes = (_number(_median(rows, key)) for key in ("peak_mb", "modules"))
        times = (_number(_in_ms(wall)), _number(_in_ms(cpu)), _ratio(cpu, reference))
        lines.append(
            [peer, venv.get("version", ""), *times, *sizes, venv.get("dists", ""), _number(venv.get("venv_mb"))]
        )
    head = ["peer", "version", "wall ms", "cpu ms", f"cpu x {REFERENCE}", "peak RSS MB", "modules", "dists"]
    yield from _table([*head, "venv MB (no pyc)"], lines)


def _growth(samples: _Samples, workload: str, title: str) -> Iterator[str]:
    yield from (f"## {workload} {title}", "")
    points = samples.points(workload)
    middle = points[min(1, len(points) - 1)]
    lines = []
    for peer in samples.peers:
        cpu = [samples.median(workload, peer, "cpu_us", n=n) for n in points]
        wall = [samples.median(workload, peer, "us", n=n) for n in points]
        here = samples.median(workload, peer, "cpu_us", n=middle)
        against = (_ratio(here, samples.median(workload, other, "cpu_us", n=middle)) for other in (REFERENCE, "bare"))
        right = all(row["ok"] for row in samples.of(workload, peer))
        growth = _exponents(zip(points, cpu, strict=True)) + ("" if right else " (counts differ)")
        lines.append([peer, *map(_number, cpu), *map(_number, wall), *against, growth])
    head = [*(f"cpu us @{n}" for n in points), *(f"wall us @{n}" for n in points)]
    yield from _table(["peer", *head, f"x {REFERENCE} @{middle}", f"x bare @{middle}", "growth exponent"], lines)


def _deltas(samples: _Samples) -> Iterator[str]:
    return _growth(samples, "W2", "text deltas: us per delta")


def _tool_loop(samples: _Samples) -> Iterator[str]:
    return _growth(samples, "W3", "tool loop: us per turn")


def _fan_out(samples: _Samples) -> Iterator[str]:
    yield from ("## W4 100 parallel tool calls of 10 ms, whole run", "")
    reference, bare = (samples.median("W4", peer, "ms") for peer in (REFERENCE, "bare"))
    lines = []
    for peer in samples.peers:
        wall, cpu, most = (samples.median("W4", peer, key) for key in ("ms", "cpu_ms", "inflight"))
        walls = (_number(wall), _ratio(wall, 10.0), _ratio(wall, reference), _ratio(wall, bare))
        lines.append(
            [peer, *walls, _number(cpu), _ratio(cpu, samples.median("W4", REFERENCE, "cpu_ms")), _number(most)]
        )
    head = ["peer", "wall ms", "x ideal 10 ms", f"x {REFERENCE}", "x bare", "cpu ms", f"cpu x {REFERENCE}"]
    yield from _table([*head, "most in flight"], lines)


def _sessions(samples: _Samples) -> Iterator[str]:
    yield from (f"## W5 {samples.points('W5')} concurrent sessions (1 tool turn + 20 deltas)", "")
    lines = []
    for peer in samples.peers:
        rate, cpu, memory, slowest = (samples.median("W5", peer, key) for key in ("per_s", "cpu_us", "kb", "p99_ms"))
        against = (_ratio(cpu, samples.median("W5", other, "cpu_us")) for other in (REFERENCE, "bare"))
        lines.append([peer, _number(rate), _number(cpu), *against, _number(memory), _number(slowest)])
    head = ["peer", "sessions/s", "cpu us/session", f"cpu x {REFERENCE}", "cpu x bare", "peak KB/session", "p99 ms"]
    yield from _table(head, lines)


def _hooks(samples: _Samples) -> Iterator[str]:
    yield from (f"## W6 no-op hooks on the tool loop (T={samples.points('W6')}), cpu us per turn", "")
    lines = []
    for peer in samples.peers:
        cpu = [samples.median("W6", peer, "cpu_us", hooks=count) for count in HOOKS]
        none, most = cpu[0], cpu[-1]
        each = (most - none) / HOOKS[-1] if most and none else None
        lines.append([peer, *map(_number, cpu), *(_ratio(value, none) for value in cpu[1:]), _number(each)])
    head = [*(f"{count} hooks" for count in HOOKS), *(f"{count} x 0" for count in HOOKS[1:])]
    yield from _table(["peer", *head, f"us per hook per turn ({HOOKS[-1]})"], lines)


def _tasks(row: Row) -> str:
    return f"{len(row['tasks_now'])} / {len(row['tasks_50ms'])}" if row else "-"


def _unanswered(row: Row) -> str:
    history = row.get("history")
    return "-" if not history else history.get("error") or f"{history['unanswered']} of {history['calls']}"


def _stopping(samples: _Samples) -> Iterator[str]:
    yield from ("## W7 stop safety", "")
    lines = []
    for peer in samples.peers:
        cases: dict[str, Row] = {row["case"]: row for row in samples.of("W7", peer)}
        close, drop, cancel, tools, deltas = (
            cases.get(name, {}) for name in ("close", "drop", "cancel", "slow_tools", "slow_deltas")
        )
        closed = (close.get("started", "-"), _tasks(close), _unanswered(close))
        dropped = (drop.get("started", "-"), _tasks(drop))
        cancelled = (f"{cancel['started']} / {cancel['done']}" if cancel else "-", _tasks(cancel), _unanswered(cancel))
        ahead = (tools.get(key, "-") for key in ("started_before_call_event_done", "ahead_tools", "ahead_models"))
        lines.append([peer, *closed, *dropped, *cancelled, *ahead, deltas.get("ahead_deltas", "-")])
    head = ["peer", "close: tools started", "close: tasks now/+50ms", "close: unanswered calls", "drop: tools started"]
    head += ["drop: tasks now/+50ms", "cancel in tool 2: started/done", "cancel: tasks now/+120ms"]
    head += ["cancel: unanswered calls", "slow: tools started under the CALL event", "slow: tools ahead at RESULT"]
    yield from _table([*head, "slow: model calls ahead at RESULT", "slow: deltas ahead (of 500)"], lines)


_SECTIONS = {
    "W1": _cold_start,
    "W2": _deltas,
    "W3": _tool_loop,
    "W4": _fan_out,
    "W5": _sessions,
    "W6": _hooks,
    "W7": _stopping,
}


def _quiet(limit_ms: float | None) -> Iterator[str]:
    if limit_ms is not None:
        yield (
            f"Samples count only where a loop of {ADDITIONS:,} additions took at most {limit_ms:g} ms just before and "
            "just after; others were taken again."
        )


def report(data: dict[str, Any], page: Path) -> None:
    """Write the tables of all workloads that `data` has samples of."""
    samples = _Samples(data)
    measured = {row["workload"] for row in samples.rows}
    lines = [
        "# Results",
        "",
        f"Taken {data['when']}, Python {data['python']}, {data['cores']} cores.",
        "Each number is the median over repeats. `cpu` is the process's own CPU time: less noisy than wall time.",
        *_quiet(data.get("quiet_ms")),
        f"`x {REFERENCE}` is the ratio to `{REFERENCE}`, of the cpu figure or, where only that is given, of wall time.",
        "",
    ]
    for workload, section in _SECTIONS.items():
        lines += section(samples) if workload in measured else ()
    failed = [row for row in samples.rows if "failed" in row]
    if failed:
        lines += ["## Failed or timed out", ""]
        lines += sorted({f"- {row['peer']} {row['workload']} hooks={row['hooks']}: {row['failed']}" for row in failed})
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
