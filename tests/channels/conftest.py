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


class Connection:
    """A connection whose writes can be held up, and that fails once it is closed."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.written: list[Any] = []
        self.writing = 0
        self.overlapped = False
        self.closed = False
        self._room = 0 if stuck else 10**9
        self._changed = anyio.Event()

    async def write(self, item: Any) -> None:
        self.overlapped |= self.writing > 0
        self.writing += 1
        try:
            while self._room == 0 and not self.closed:
                await self._changed.wait()
            if self.closed:
                raise ConnectionError("the connection is closed")
            self._room -= 1
            self.written.append(item)
        finally:
            self.writing -= 1

    def release(self, writes: int = 10**9) -> None:
        self._room += writes
        self._change()

    def close(self) -> None:
        self.closed = True
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@pytest.fixture
def connect() -> type[Connection]:
    """`connect(stuck=True)` makes a `Connection`."""
    return Connection
