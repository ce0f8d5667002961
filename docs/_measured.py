"""The tables of pages that show what was measured: from the files that the scripts in `benchmarks/` have written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["ahead_table", "benchmark_results", "channel_table"]

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
_CHANNELS = {
    "floor: two wake-ups": "two wake-ups and nothing else",
    "acknowledged event": "an acknowledged event",
    "acknowledged group of 10": "an acknowledged group of ten events",
    "plain put and get": "put and get without a reader to wait for",
}


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))
    return found


def ahead_table() -> str:
    """How far work is ahead of its reader."""
    found = _read("ahead.json")
    lines = [
        "| channel | pieces of work done that the reader was not done with | a piece is done |",
        "| --- | --- | --- |",
    ]
    for channel, row in found["channels"].items():
        late = float(row["ms_after_the_reader"])
        when = f"{abs(late):.0f} ms before the reader is done with its announcement"
        when = f"{late:.2f} ms after it" if late >= 0 else when
        lines.append(f"| {channel} | {row['pieces_ahead']:.0f} | {when} |")
    return "\n".join([*lines, "", f"*Measured {found['when']}, Python {found['python']}.*"]) + "\n"


def channel_table() -> str:
    """What an acknowledged hand-over costs."""
    found = _read("micro_channels.json")
    lines = ["| microseconds of CPU time | asyncio | trio |", "| --- | --- | --- |"]
    for case, meaning in _CHANNELS.items():
        row = found["cpu_us"][case]
        lines.append(f"| {meaning} | {row['asyncio']} | {row['trio']} |")
    return "\n".join([*lines, "", f"*Measured {found['when']}, Python {found['python']}.*"]) + "\n"


def benchmark_results() -> str:
    """`benchmarks/results.md`, one level of headings down."""
    text = (BENCHMARKS / "results.md").read_text(encoding="utf-8").partition("\n")[2].strip()
    return re.sub(r"^##", "###", text, flags=re.MULTILINE) + "\n"
