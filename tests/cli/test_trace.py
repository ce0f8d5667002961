"""`--trace-plugins`: what plugins changed, as text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trilane.cli.trace import trace_lines
from trilane.ledger import Ledger, ValueChange


def _lines(make: Callable[..., Any], *changes: ValueChange) -> list[str]:
    ledger = Ledger()
    ledger.changes += changes
    return trace_lines(make.result("Done.", ledger=ledger))  # type: ignore[attr-defined]


def test_each_change_says_who_and_from_what_to_what(make: Any) -> None:
    assert _lines(
        make,
        ValueChange(
            plugin="mask", hook="on_model_request", subject="request", turn=1, before={"context": []},
            after={"context": ["Be brief."]},
        ),
        ValueChange(
            plugin="paths", hook="decide_tool", subject="arguments", turn=2, about="read_file",
            before={"path": "a"}, after={"path": "b", "limit": 3}, path=("helper",),
        ),
        ValueChange(plugin="guard", hook="decide_tool", subject="decision", after={"Deny": {"reason": "no"}}),
        ValueChange(plugin="short", hook="on_answer", subject="output", before="a\nb", after="a"),
    ) == [
        "4 changes by plugins:",
        "mask in on_model_request: request, turn 1",
        "  - context: []",
        '  + context: ["Be brief."]',
        "helper > paths in decide_tool: arguments of read_file, turn 2",
        '  - path: "a"',
        '  + path: "b"',
        "  + limit: 3",
        "guard in decide_tool: decision",
        '  + Deny: {"reason": "no"}',
        "short in on_answer: output",
        '  - "a\\nb"',
        '  + "a"',
    ]  # fmt: skip


def test_long_values_are_cut_and_control_characters_shown(make: Any) -> None:
    lines = _lines(make, ValueChange(plugin="p", hook="on_answer", subject="output", before="x" * 900, after="\x1b["))
    assert len(lines[2]) <= 162
    assert lines[2].endswith("…")
    assert "\x1b" not in "\n".join(lines)


def test_nothing_changed_is_said(make: Any) -> None:
    assert _lines(make) == ["no plugin changed anything"]


def test_the_command_prints_it_after_the_run(tmp_path: Path) -> None:
    (tmp_path / "acme_brief.py").write_text(
        "from trilane import hookimpl\n"
        "@hookimpl\n"
        "def on_answer(run, output):\n"
        "    from trilane.decisions import Replace\n"
        "    return Replace(output=output.upper()) if output != output.upper() else None\n"
    )
    info = tmp_path / "acme_brief-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-brief\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trilane]\nbrief = acme_brief\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRILANE_")}
    done = subprocess.run(
        [sys.executable, "-m", "trilane", "run", "Hello", "-m", "offline", "--trace-plugins", "-p", "no:files"],
        env={**environment, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "change by plugins:\nbrief in on_answer: output" in done.stderr
