"""What a run cost, as lines of text: usage, and the ledger of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .text import columns, count, error_paragraph

if TYPE_CHECKING:
    from trilane.result import RunResult

__all__ = ["stats_lines"]


def stats_lines(result: RunResult[Any]) -> list[str]:
    """Turns, tokens, money; then one line per plugin and hook, and every failure that was contained."""
    usage = result.usage
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    if usage.cache_read_tokens:
        tokens += f" ({usage.cache_read_tokens:,} of the input from cache)"
    money = "" if usage.cost is None else f", ${usage.cost:.4f}"
    lines = [f"{result.status}: {count(result.turns, 'turn')}, {tokens}{money}"]
    rows = [
        [row.plugin, row.hook, str(row.calls), f"{row.seconds * 1000:.1f} ms", str(row.changes), str(row.errors)]
        for row in sorted(result.ledger, key=lambda row: (-result.ledger.seconds(row.plugin), row.plugin))
    ]
    if rows:
        lines += columns([["plugin", "hook", "calls", "time", "changes", "errors"], *rows], right=(2, 3, 4, 5))
    for failure in result.hook_failures:
        off = "; this hook is now switched off" if failure.disabled else ""
        lines.append(f"{failure.plugin} failed in {failure.hook}: {error_paragraph(failure.error)}{off}")
    if result.store_error is not None:
        lines.append(error_paragraph(result.store_error))
    return lines
