"""Finds every await point: calls a function whenever a task of the case has been suspended.

On asyncio a task factory wraps the coroutine of every task; on trio an instrument is told after each step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any

__all__ = ["TrioMeter", "count_asyncio_steps"]


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells when it was suspended."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], suspended: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._suspended = suspended
        self.__name__ = getattr(coroutine, "__name__", "coroutine")
        self.__qualname__ = getattr(coroutine, "__qualname__", "coroutine")

    def send(self, value: Any) -> Any:
        waited_for = self._coroutine.send(value)
        self._suspended()
        return waited_for

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        error = kind if isinstance(kind, BaseException) else value if isinstance(value, BaseException) else kind()
        waited_for = self._coroutine.throw(error)
        self._suspended()
        return waited_for

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._coroutine.__await__()


def count_asyncio_steps(loop: asyncio.AbstractEventLoop, suspended: Callable[[], None]) -> None:
    """From now on call `suspended` whenever a task made in `loop` is suspended."""

    def factory(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(_Counted(coroutine, suspended), loop=loop, **options)

    loop.set_task_factory(factory)  # type: ignore[arg-type]


class TrioMeter:
    """A trio instrument that calls `suspended` after each step of a task, but for those of `ignore`.

    The task in which trio takes wake-ups from threads is nobody's await point either.
    """

    def __init__(self, suspended: Callable[[], None]) -> None:
        self._suspended = suspended
        self.ignore: set[object] = set()

    def after_task_step(self, task: object) -> None:
        if task not in self.ignore and "EntryQueue" not in getattr(task, "name", ""):
            self._suspended()
