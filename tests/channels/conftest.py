"""Tasks that a test can look at, a way to let everything run as far as it can, and interrupts at every line."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from trilane.testing.sinks import _Connection as Connection


class Job:
    """A call in a task of its own: `done`, then `result`, `error` or `cancelled`."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.done = False
        self.cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None

    async def run(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        with self.scope:
            try:
                self.result = await function(*args)
            except Exception as error:
                self.error = error
            except BaseException:
                self.cancelled = True
                raise
            finally:
                self.done = True

    def cancel(self) -> None:
        self.scope.cancel()


async def _settle() -> None:
    # anyio polls every 100 ms on asyncio; after these steps it finds everybody blocked at its first look.
    for _ in range(30):
        await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()


@pytest.fixture
def settle() -> Callable[[], Awaitable[None]]:
    """Let every task run until it waits."""
    return _settle


@pytest.fixture
def start() -> Callable[..., Job]:
    """`start(tasks, function, *args)` calls it in a task and returns the `Job`."""

    def start_job(tasks: TaskGroup, function: Callable[..., Awaitable[Any]], *args: Any) -> Job:
        job = Job()
        tasks.start_soon(job.run, function, *args)
        return job

    return start_job


@pytest.fixture
def interrupt() -> Callable[[Callable[..., Any], int, Callable[[], object]], Any]:
    """`with interrupt(module_function, n, action) as hit:` calls `action` before the n-th line of that file.

    What a signal handler does that comes at this moment; `hit()` says whether the moment came.
    """

    @contextmanager
    def interrupting(anchor: Callable[..., Any], at: int, action: Callable[[], object]) -> Iterator[Callable[[], bool]]:
        filename = anchor.__code__.co_filename  # type: ignore[attr-defined]
        count = 0

        def trace(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal count
            if frame.f_code.co_filename != filename:
                return None
            if event == "line":
                count += 1
                if count == at:
                    action()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield lambda: count >= at
        finally:
            sys.settrace(before)

    return interrupting


@pytest.fixture
def connect() -> type[Connection]:
    """A connection whose writes can be held up, and that fails once it is closed: `connect(stuck=True)` makes one."""
    return Connection
