"""What is left behind is found, what has ended is not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from trilane.testing import LeakError, no_leaks
from trilane.testing.leaks import snapshot

FAST = 0.02


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.anyio
async def test_a_task_that_goes_on_is_a_leak() -> None:
    async with anyio.create_task_group() as group:
        with pytest.raises(LeakError, match=r"left behind:\n  tasks: .*Event\.wait|sleep_forever"):
            async with no_leaks(wait_seconds=FAST):
                group.start_soon(anyio.sleep_forever)
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_task_inside_a_task_is_a_leak_too() -> None:
    async def outer() -> None:
        async with anyio.create_task_group() as inner:
            inner.start_soon(anyio.sleep_forever)

    async with anyio.create_task_group() as group:
        with pytest.raises(LeakError) as caught:
            async with no_leaks(wait_seconds=FAST):
                group.start_soon(outer)
                await anyio.wait_all_tasks_blocked()
        assert str(caught.value).count("  tasks: ") == 2
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_tasks_that_end_are_waited_for() -> None:
    async def short() -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    before = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(before.wait)
        async with no_leaks():
            group.start_soon(short)
        before.set()


@pytest.mark.anyio
async def test_idle_worker_threads_are_none() -> None:
    async with no_leaks():
        await anyio.to_thread.run_sync(int)


@pytest.mark.anyio
async def test_an_error_of_the_body_is_not_hidden() -> None:
    async with anyio.create_task_group() as group:
        with pytest.raises(KeyError, match="mine"):
            async with no_leaks(wait_seconds=FAST):
                group.start_soon(anyio.sleep_forever)
                raise KeyError("mine")
        group.cancel_scope.cancel()


def test_a_thread_is_a_leak_until_it_ends() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left one", daemon=True)
    with pytest.raises(LeakError, match=r"threads: <Thread\(left one, started daemon"):
        with no_leaks(wait_seconds=FAST):
            thread.start()
    with no_leaks(wait_seconds=FAST):
        release.set()
        thread.join()


def test_a_thread_on_its_way_out_is_waited_for() -> None:
    release = threading.Event()
    with no_leaks():
        thread = threading.Thread(target=release.wait)
        thread.start()
        release.set()
    thread.join()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_an_open_file_is_a_leak(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "data")
    with pytest.raises(LeakError, match=r"files: \d+ -> .*data"):
        with no_leaks(wait_seconds=FAST):
            stream = open(path, "w")  # noqa: SIM115
    with no_leaks(wait_seconds=FAST):
        stream.close()
        with open(path) as again:
            assert again.read() == ""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
def test_a_child_process_is_a_leak() -> None:
    code = "import sys; sys.stdin.read()"
    with pytest.raises(LeakError, match=r"processes: \d+ .*sys\.stdin\.read"):
        with no_leaks(wait_seconds=FAST):
            child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
            # Until it has replaced itself, the child bears the name of its parent.
            while b"stdin.read" not in Path(f"/proc/{child.pid}/cmdline").read_bytes():
                pass
    child.communicate()
    assert str(child.pid) not in snapshot()["processes"]


def test_outside_of_an_event_loop_there_are_no_tasks() -> None:
    assert snapshot()["tasks"] == {}

    async def main() -> int:
        return len(snapshot()["tasks"])

    assert asyncio.run(main()) == 1
