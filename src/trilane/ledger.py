"""What plugins cost and what they changed, per plugin and hook.

Costs are always counted. What was changed, from what to what, is kept for runs with `trace_plugins=True` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from ._records import ErrorAsJson, Record

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = ["HookFailure", "Ledger", "LedgerRow", "ValueChange", "difference", "plain"]

_Error: TypeAlias = Annotated[BaseException, ErrorAsJson()]


class HookFailure(Record):
    """A failure of a plugin that was contained: reported, and nothing undone.

    Attributes:
        plugin: Name of the plugin.
        hook: Name of the hook.
        error: The exception it raised.
        disabled: True if this failure switched the plugin's hook off for the agent.
    """

    plugin: str
    hook: str
    error: _Error
    disabled: bool = False


class LedgerRow:
    """What one plugin's implementation of one hook cost in a run.

    Attributes:
        plugin: Name of the plugin.
        hook: Name of the hook.
        calls: How often it was called.
        errors: How often it raised or timed out.
        seconds: Time spent in it; an `around_` hook's time includes what it wraps.
        changes: How often it changed the value that was passed to it, or decided something.
    """

    __slots__ = ("calls", "changes", "errors", "hook", "plugin", "seconds")

    def __init__(self, plugin: str, hook: str) -> None:
        self.plugin = plugin
        self.hook = hook
        self.calls = 0
        self.errors = 0
        self.seconds = 0.0
        self.changes = 0

    def __repr__(self) -> str:
        return (
            f"LedgerRow({self.plugin}.{self.hook}: {self.calls} calls, {self.errors} errors, "
            f"{self.changes} changes, {self.seconds * 1000:.2f} ms)"
        )


class ValueChange(Record):
    """One change that a plugin made.

    Attributes:
        plugin: Name of the plugin.
        hook: Its hook.
        subject: What was changed: `request`, `arguments`, `result`, `response`, `message`, `delta`, `decision` …
        turn: Turn in which that was.
        before: The value before, as JSON; of records and requests only the fields that differ.
        after: The value after it, likewise.
        about: The tool whose call it was, if it was about one.
        path: Names of the tools that lead to the child run in which that was; empty for the run itself.
    """

    plugin: str
    hook: str
    subject: str
    turn: int = 0
    before: JsonValue = None
    after: JsonValue = None
    about: str = ""
    path: tuple[str, ...] = ()


class Ledger:
    """The rows of one run, in the order in which the hooks were first called; those of its child runs included.

    Attributes:
        changes: What plugins changed, in order; empty unless the run has `trace_plugins=True`.
    """

    __slots__ = ("_rows", "changes")

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], LedgerRow] = {}
        self.changes: list[ValueChange] = []

    def row(self, plugin: str, hook: str) -> LedgerRow:
        """The row of `plugin` and `hook`, made if there is none."""
        key = (plugin, hook)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = LedgerRow(plugin, hook)
        return found

    def __iter__(self) -> Iterator[LedgerRow]:
        return iter([row for row in self._rows.values() if row.calls])

    def __len__(self) -> int:
        return sum(1 for row in self._rows.values() if row.calls)

    def seconds(self, plugin: str) -> float:
        """Time spent in all hooks of `plugin`."""
        return sum(row.seconds for row in self._rows.values() if row.plugin == plugin)

    def include(self, other: Ledger) -> None:
        """Add what another ledger has, that of a child run."""
        for row in other:
            mine = self.row(row.plugin, row.hook)
            mine.calls += row.calls
            mine.errors += row.errors
            mine.seconds += row.seconds
            mine.changes += row.changes
        self.changes += other.changes

    def as_rows(self) -> list[dict[str, str | int | float]]:
        """The rows as plain dictionaries, for JSON and tables."""
        return [{name: getattr(row, name) for name in row.__slots__} for row in self]


def difference(before: object, after: object) -> tuple[JsonValue, JsonValue]:
    """Two values as JSON, without what is the same in both: equal fields of records, ends of sequences.

    Examples:
        >>> difference({"a": 1, "b": 2}, {"a": 1, "b": 3})
        ({'b': 2}, {'b': 3})
        >>> difference([1, 2, 9], [1, 3, 9])
        ([2], [3])
    """
    old, new = _fields(before), _fields(after)
    if old is not None and new is not None and (type(before) is type(after) or isinstance(before, Mapping)):
        pairs = {
            name: difference(old.get(name), new.get(name))
            for name in dict.fromkeys((*old, *new))
            if old.get(name) != new.get(name)
        }
        return (
            {name: pair[0] for name, pair in pairs.items() if name in old},
            {name: pair[1] for name, pair in pairs.items() if name in new},
        )
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        start, end = 0, 0
        shortest = min(len(before), len(after))
        while start < shortest and before[start] == after[start]:
            start += 1
        while end < shortest - start and before[-1 - end] == after[-1 - end]:
            end += 1
        old_part, new_part = before[start : len(before) - end], after[start : len(after) - end]
        if len(old_part) == len(new_part) == 1 and _fields(old_part[0]) is not None:
            return tuple([part] for part in difference(old_part[0], new_part[0]))  # type: ignore[return-value]
        return plain(list(old_part)), plain(list(new_part))
    return plain(before), plain(after)


def plain(value: object) -> JsonValue:
    """A value as JSON, whatever it is; fields of records that have their default are left out."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Record):
        defaults = type(value)._record_defaults
        return {name: plain(part) for name, part in value._items() if name not in defaults or part != defaults[name]}
    fields = _fields(value)
    if fields is not None:
        return {name: plain(part) for name, part in fields.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(part) for part in value]
    return repr(value)[:200]


def _fields(value: object) -> Mapping[str, Any] | None:
    if isinstance(value, Record):
        return dict(value._items())
    if isinstance(value, Mapping):
        return {str(name): part for name, part in value.items()}
    names = getattr(type(value), "FIELDS", None)  # a ModelRequest, which lives above this module
    return {name: getattr(value, name) for name in names} if isinstance(names, tuple) else None
