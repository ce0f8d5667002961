"""What plugins changed in a run, as lines of text: `trilane run --trace-plugins`. What they cost is in `stats.py`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .text import count, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trilane.ledger import ValueChange
    from trilane.result import RunResult

__all__ = ["trace_lines"]

#: Characters of one side of a change.
WIDTH = 160


def trace_lines(result: RunResult[Any]) -> list[str]:
    """For each change who made it, and below it what was there before (`-`) and after it (`+`)."""
    changes = result.ledger.changes
    if not changes:
        return ["no plugin changed anything"]
    lines = [f"{count(len(changes), 'change')} by plugins:"]
    for change in changes:
        lines += _change(change)
    return lines


def _change(change: ValueChange) -> Iterator[str]:
    where = "".join(f"{name} > " for name in change.path)
    about = f" of {change.about}" if change.about else ""
    when = f", turn {change.turn}" if change.turn else ""
    yield one_line(f"{where}{change.plugin} in {change.hook}: {change.subject}{about}{when}", WIDTH)
    before, after = change.before, change.after
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = _named(before), _named(after)
        for name in dict.fromkeys((*old, *new)):
            label = f"{name}: " if name else ""
            yield from _side("-", label, old[name]) if name in old else ()
            yield from _side("+", label, new[name]) if name in new else ()
    else:
        yield from _side("-", "", before)
        yield from _side("+", "", after)


def _named(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {} if value is None else {"": value}


def _side(sign: str, label: str, value: Any) -> Iterator[str]:
    if value is None and not label:
        return
    yield "  " + one_line(f"{sign} {label}{json.dumps(value, ensure_ascii=False)}", WIDTH)
