"""What plugins cost and what they changed, per plugin and hook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeAlias

from ._records import ErrorAsJson, Record

__all__ = ["HookFailure", "Ledger", "LedgerRow"]

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
        changes: How often it changed the value that was passed to it.
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


class Ledger:
    """The rows of one run, in the order in which the hooks were first called."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], LedgerRow] = {}

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

    def as_rows(self) -> list[dict[str, str | int | float]]:
        """The rows as plain dictionaries, for JSON and tables."""
        return [{name: getattr(row, name) for name in row.__slots__} for row in self]
