"""Tasks that a test can look at, and a way to let everything run as far as it can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
