"""Virtual time on both backends."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from trilane.testing import VirtualEventLoop, run_virtual, virtual_backend
from trilane.testing.clock import Backend

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")
both = pytest.mark.parametrize("backend", BACKENDS)


@both
def test_an_hour_takes_no_time(backend: Backend) -> None:
    async def main() -> tuple[float, float]:
        start = anyio.current_time()
        await anyio.sleep(3600)
        return start, anyio.current_time()

    real = time.perf_counter()
    start, end = run_virtual(main, backend=backend)
    assert end - start == pytest.approx(3600)
    assert time.perf_counter() - real < 5


@both
def test_timers_fire_in_order_and_at_their_time(backend: Backend) -> None:
    fired: list[tuple[str, float]] = []

    async def timer(name: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        fired.append((name, round(anyio.current_time() - start, 6)))

    async def main() -> None:
        nonlocal start
        start = anyio.current_time()
        async with anyio.create_task_group() as group:
            for name, seconds in (("c", 90_000.5), ("a", 1.0), ("b", 30.25)):
                group.start_soon(timer, name, seconds)

    start = 0.0
    run_virtual(main, backend=backend)
    assert fired == [("a", 1.0), ("b", 30.25), ("c", 90_000.5)]


@both
def test_a_timeout_comes_before_what_takes_longer(backend: Backend) -> None:
    async def main(limit: float) -> bool:
        with anyio.move_on_after(limit) as scope:
            await anyio.sleep(10)
        return scope.cancelled_caught

    assert run_virtual(main, 9.0, backend=backend) is True
    assert run_virtual(main, 11.0, backend=backend) is False


@both
def test_a_thread_is_faster_than_a_timeout(backend: Backend) -> None:
    """Without the real moment before a jump the clock would be at the timeout before the thread has begun."""

    def work() -> str:
        anyio.from_thread.run_sync(woken.append, anyio.from_thread.run(now))
        return "done"

    async def now() -> float:
        return anyio.current_time()

    async def main() -> str:
        with anyio.fail_after(5):
            return await anyio.to_thread.run_sync(work)

    woken: list[float] = []
    assert run_virtual(main, backend=backend, real_seconds=2.0) == "done"
    assert len(woken) == 1


@both
def test_a_thread_that_hangs_does_not_stop_the_time(backend: Backend) -> None:
    release = threading.Event()

    async def main() -> bool:
        with anyio.move_on_after(600) as scope:
            await anyio.to_thread.run_sync(release.wait, abandon_on_cancel=True)
        release.set()
        return scope.cancelled_caught

    assert run_virtual(main, backend=backend) is True


@both
def test_time_stands_while_it_is_held_and_goes_on_after(backend: Backend) -> None:
    working = threading.Event()
    looks = 0

    def held() -> bool:
        nonlocal looks
        looks += 1
        return working.is_set()

    def work() -> None:
        time.sleep(0.05)  # real time: a thread that works while the virtual clock is held
        working.clear()

    async def main() -> tuple[float, int]:
        working.set()
        thread = threading.Thread(target=work)
        thread.start()
        await anyio.sleep(3600)
        thread.join()
        stood = looks
        await anyio.sleep(3600)
        return anyio.current_time(), stood

    real = time.perf_counter()
    now, stood = run_virtual(main, backend=backend, held=held)
    assert now == pytest.approx(7200)
    assert stood > 1, "the clock has asked again"
    assert time.perf_counter() - real >= 0.05


def test_wake_ups_from_threads_reach_a_loop_that_only_waits() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, "woken"))
        thread.start()
        value = await future
        thread.join()
        return value

    assert run_virtual(main) == "woken"


def test_sockets_work() -> None:
    async def main() -> bytes:
        nonlocal closed
        closed = asyncio.Event()
        server = await asyncio.start_server(answer, "127.0.0.1", 0, family=socket.AF_INET)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"ping\n")
            async with asyncio.timeout(60):
                line = await reader.readline()
            writer.close()
            await writer.wait_closed()
            await closed.wait()
            return line

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await asyncio.sleep(30)
        writer.close()
        await writer.wait_closed()
        closed.set()

    closed: asyncio.Event
    assert run_virtual(main) == b"PING\n"


@both
def test_a_process_gets_its_real_seconds(backend: Backend) -> None:
    async def main() -> bytes:
        with anyio.fail_after(60):
            done = await anyio.run_process([sys.executable, "-c", "print('out')"], env=dict(os.environ))
        return done.stdout.strip()

    assert run_virtual(main, backend=backend, real_seconds=10.0) == b"out"


def test_a_loop_in_which_nothing_can_happen_says_so() -> None:
    # In a process of its own: here, idle threads of other tests could wake the loop for all it knows.
    code = (
        "import asyncio\n"
        "from trilane.testing import run_virtual\n"
        "async def main(): await asyncio.get_running_loop().create_future()\n"
        "run_virtual(main)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 1
    assert "RuntimeError: nothing can happen any more: every task waits" in run.stderr


def test_time_is_moved_by_hand_too_but_not_back() -> None:
    loop = VirtualEventLoop()
    try:
        loop.advance(2.5)
        assert loop.time() == 2.5
        with pytest.raises(ValueError, match=r"time cannot go back by 1\.0 seconds"):
            loop.advance(-1.0)
    finally:
        loop.close()


@both
def test_errors_and_arguments_come_through(backend: Backend) -> None:
    async def main(number: int) -> int:
        if number < 0:
            raise LookupError(number)
        return number

    assert run_virtual(main, 4, backend=backend) == 4
    with pytest.raises(LookupError):
        run_virtual(main, -1, backend=backend)


class TestInAnyioTests:
    """The backend for anyio's test plugin."""

    @pytest.fixture(params=BACKENDS)
    def anyio_backend(self, request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
        return virtual_backend(request.param)

    @pytest.mark.anyio
    async def test_time_is_virtual(self, anyio_backend_name: str) -> None:
        real = time.perf_counter()
        await anyio.sleep(7200)
        assert time.perf_counter() - real < 5
        if anyio_backend_name == "asyncio":
            assert isinstance(asyncio.get_running_loop(), VirtualEventLoop)
        else:
            import trio.lowlevel

            assert trio.lowlevel.in_trio_task()


def test_a_loop_that_waits_for_a_thread_that_wakes_nobody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from trilane.testing import clock

    monkeypatch.setattr(clock, "STUCK_SECONDS", 0.05)
    gate = threading.Event()
    threading.Thread(target=gate.wait, daemon=True).start()

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    try:
        with pytest.raises(RuntimeError, match="nothing can happen any more"):
            run_virtual(main)
    finally:
        gate.set()
