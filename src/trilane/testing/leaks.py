"""Finds what a piece of code leaves behind: tasks, threads, open files and child processes.

Memory is not measured here, and file descriptors and child processes only where `/proc` tells of them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["IDLE_THREADS", "LeakError", "Snapshot", "no_leaks", "snapshot"]

#: Beginnings of the names of threads that wait in a pool for more work, and so are not left behind by anybody.
IDLE_THREADS = ("AnyIO worker thread", "Trio thread", "asyncio_")

Snapshot = Mapping[str, Mapping[Hashable, str]]
"""For each kind of thing, what there is: a key that tells one from another, and a description."""


class LeakError(AssertionError):
    """Something was left behind; the message lists it."""


class no_leaks:  # noqa: N801  (used like a function, as `contextlib.suppress` is)
    """A context manager that raises `LeakError` if there is more at its end than there was at its start.

    With `async with` it sees the tasks of the running event loop as well, and lets the loop run until they have ended.
    Things on their way out get `wait_seconds` of real time. If its body raises, nothing is checked.

    ```python
    async with no_leaks():
        async with agent.stream("Hello") as run:
            async for event in run:
                break
    ```
    """

    def __init__(self, *, wait_seconds: float = 1.0, idle_threads: tuple[str, ...] = IDLE_THREADS) -> None:
        """Say how long to wait for things on their way out, in real time, and which threads do not count."""
        self._wait_seconds = wait_seconds
        self._idle_threads = idle_threads
        self._before: Snapshot = {}

    def __enter__(self) -> Self:
        self._before = self._look()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        deadline = time.perf_counter() + self._wait_seconds
        while error is None and (left := self._left()):
            if time.perf_counter() >= deadline:
                raise LeakError(_report(left))
            time.sleep(0.001)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        import anyio.lowlevel

        deadline = time.perf_counter() + self._wait_seconds
        rounds = 0
        while error is None and (left := self._left()):
            if time.perf_counter() >= deadline:
                raise LeakError(_report(left))
            await anyio.lowlevel.checkpoint()
            rounds += 1
            if rounds > 50:  # so it waits for something outside of the event loop
                time.sleep(0.001)  # noqa: ASYNC251  (an async sleep would take virtual time)

    def _look(self) -> Snapshot:
        return snapshot(idle_threads=self._idle_threads)

    def _left(self) -> Snapshot:
        now = self._look()
        left = {
            kind: {key: text for key, text in things.items() if key not in self._before[kind]}
            for kind, things in now.items()
        }
        return {kind: things for kind, things in left.items() if things}


def snapshot(*, idle_threads: tuple[str, ...] = IDLE_THREADS) -> Snapshot:
    """What there is now: `tasks` of the running event loop, `threads`, `files`, `processes`.

    Args:
        idle_threads: Beginnings of the names of threads that do not count.
    """
    return {
        "tasks": dict(_tasks()),
        "threads": {
            thread: repr(thread) for thread in threading.enumerate() if not thread.name.startswith(idle_threads)
        },
        "files": dict(_files()),
        "processes": dict(_processes()),
    }


def _report(left: Snapshot) -> str:
    lines = ["left behind:"]
    for kind, things in left.items():
        lines += [f"  {kind}: {text}" for text in things.values()]
    return "\n".join(lines)


def _tasks() -> Iterator[tuple[Hashable, str]]:
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        yield from _trio_tasks(trio.lowlevel.current_root_task())
        return
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        return
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no running event loop
        return
    for task in tasks:
        yield task, repr(task)


def _trio_tasks(root: Any) -> Iterator[tuple[Hashable, str]]:
    # The root's innermost nursery has the main task; the others have what trio runs for everybody.
    nurseries = list(root.child_nurseries[-1:])
    while nurseries:
        for task in nurseries.pop().child_tasks:
            yield task, repr(task)
            nurseries += task.child_nurseries


def _files() -> Iterator[tuple[Hashable, str]]:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except OSError:  # the one that listing the folder needed
            continue
        yield (name, target), f"{name} -> {target}"


def _processes() -> Iterator[tuple[Hashable, str]]:
    for children in Path("/proc/self/task").glob("*/children"):
        try:
            ids = children.read_text(encoding="ascii").split()
        except OSError:  # the thread has ended
            continue
        for process in ids:
            yield process, f"{process} {_command(process)}"


def _command(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
