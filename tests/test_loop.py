"""`run_sync` in a program: whatever comes while it waits, it hears."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

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
Agent(FunctionModel(nothing)).run_sync("go")
"""


def _until_it_sleeps(pid: int) -> None:
    """Return when its first thread has been seen asleep often enough to mean it, where the system tells."""
    stat = Path(f"/proc/{pid}/stat")
    seen = 0
    while stat.exists() and seen < 50:
        seen = seen + 1 if stat.read_text().rpartition(")")[2].split()[0] == "S" else 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 7)])
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


def test_what_was_woken_by_signals_before_is_woken_again() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write)
    try:
        assert run_loop(_says("done")) == "done"
        assert signal.set_wakeup_fd(write) == write
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)


def test_it_runs_in_any_thread() -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(run_loop(_says("done"))))
    thread.start()
    thread.join()
    assert said == ["done"]
