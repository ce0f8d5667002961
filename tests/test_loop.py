"""`run_sync` in a program: whatever comes while it waits, it hears."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trilane._loop import run_loop

SLEEPER = """
import signal, sys, threading
from trilane import Agent
from trilane.testing import FunctionModel
import anyio

async def nothing(request, emit):
    print("it waits", flush=True)
    await anyio.sleep_forever()

# The system gives the signal to this thread; the loop, which waits in the other, is not interrupted.
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
try:
    Agent(FunctionModel(nothing)).run_sync("go")
except KeyboardInterrupt:
    sys.exit(6)
"""


def _until_it_sleeps(pid: int) -> None:
    """Return when its first thread has been seen asleep often enough to mean it, where the system tells."""
    stat = Path(f"/proc/{pid}/stat")
    seen = 0
    while stat.exists() and seen < 50:
        seen = seen + 1 if stat.read_text().rpartition(")")[2].split()[0] == "S" else 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 6), (signal.SIGTERM, 7)])
def test_no_signal_is_slept_through(number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "it waits\n"
            _until_it_sleeps(process.pid)
            process.send_signal(number)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == code, said


async def _says(text: str) -> str:
    await asyncio.sleep(0)
    return text


@pytest.fixture
def woken() -> Iterator[int]:
    """A program that is woken by signals itself: what can be read is whose turn it is."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(read, False)
    before = signal.set_wakeup_fd(write)
    old = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        yield read
    finally:
        signal.signal(signal.SIGUSR1, old)
        assert signal.set_wakeup_fd(before) in (write, -1)
        os.close(read)
        os.close(write)


def test_whoever_was_woken_by_signals_before_hears_of_those_that_came_meanwhile(woken: int) -> None:
    turns = 0

    async def main() -> str:
        nonlocal turns
        os.kill(os.getpid(), signal.SIGUSR1)
        for turns in range(1, 20):  # noqa: B007
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGUSR1)
        return "done"

    assert run_loop(main()) == "done"
    assert os.read(woken, 100) == bytes([signal.SIGUSR1] * 2)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert os.read(woken, 100) == bytes([signal.SIGUSR1])


def test_a_wake_up_descriptor_that_was_closed_meanwhile_costs_no_result(woken: int) -> None:
    other_read, other_write = os.pipe()
    os.set_blocking(other_write, False)
    before = signal.set_wakeup_fd(other_write)

    async def main() -> str:
        os.close(other_write)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0)
        return "done"

    assert run_loop(main()) == "done"
    assert signal.set_wakeup_fd(before) == -1
    os.close(other_read)


def test_after_a_signal_the_loop_sleeps_again(woken: int) -> None:
    async def main() -> int:
        loop: Any = asyncio.get_running_loop()
        turn, turns = loop._run_once, 0

        def counted() -> None:
            nonlocal turns
            turns += 1
            turn()

        os.kill(os.getpid(), signal.SIGUSR1)
        loop._run_once = counted
        await asyncio.sleep(0.05)  # real time: a loop that does not sleep makes thousands of turns
        del loop._run_once
        return turns

    assert run_loop(main()) < 20


def test_where_signals_cannot_be_heard_it_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise ValueError("set_wakeup_fd only works in main thread of the main interpreter")

    monkeypatch.setattr(signal, "set_wakeup_fd", refuse)
    assert run_loop(_says("done")) == "done"


def test_it_runs_in_any_thread() -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(run_loop(_says("done"))))
    thread.start()
    thread.join()
    assert said == ["done"]
