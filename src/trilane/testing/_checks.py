"""Running the checks of a kit to the end, whichever of them fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

__all__ = ["run_checks"]

C = TypeVar("C")


async def run_checks(subject: str, checks: Mapping[str, C], run: Callable[[C], Awaitable[None]]) -> None:
    """Call `run` with every check.

    Raises:
        ExceptionGroup: some failed; each failure has a note with the name of its check.
    """
    failures: list[Exception] = []
    for name, check in checks.items():
        try:
            await run(check)
        except Exception as error:
            error.add_note(f"in the check {name!r}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(checks)} checks of the {subject} failed", failures)
