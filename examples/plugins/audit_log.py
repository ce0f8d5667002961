"""Audit log: a line of JSON for every tool call and every run, appended to a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from trilane import RunContext, ToolCall, ToolResult, hookimpl

__all__ = ["AuditLog"]


class AuditLog:
    """Writes who asked for what and what came of it.

    Args:
        path: The file; it is appended to.
    """

    name = "audit-log"
    strict = True  # a run whose audit could not be written must not pass for a good one

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = Lock()

    # Files block, so both hooks are called in a thread.

    @hookimpl(thread=True, trylast=True)
    def after_tool(self, run: RunContext[object], call: ToolCall, result: ToolResult) -> None:
        """Reversed order and `trylast`: what plugins made of the result is not seen here, what the tool said is."""
        self._write(run, "tool", tool=call.name, arguments=dict(call.arguments), outcome=result.outcome)

    @hookimpl(thread=True)
    def close_run(self, run: RunContext[object], status: str) -> None:
        self._write(run, "run", status=status, turns=run.turn, tokens=run.usage.input_tokens + run.usage.output_tokens)

    def _write(self, run: RunContext[object], kind: str, **facts: object) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": kind,
            "session": run.session_id,
            "run": run.run_id,
            "path": list(run.path),
            **facts,
        }
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
