"""Processes of tools: each in a group of its own, killed as a whole, with bounded output."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._backend import current_backend
from .context import ProcessResult

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, Process

__all__ = ["run_process"]

END_SECONDS = 0.5  # between SIGTERM and SIGKILL for the group


class _Collector:
    """Output up to a bound; what is beyond is counted and dropped."""

    __slots__ = ("chunks", "cut", "left")

    def __init__(self, limit: int) -> None:
        self.chunks: list[bytes] = []
        self.left = limit
        self.cut = 0

    def add(self, data: bytes) -> None:
        kept = data[: self.left]
        self.left -= len(kept)
        self.cut += len(data) - len(kept)
        if kept:
            self.chunks.append(kept)

    def text(self) -> str:
        return b"".join(self.chunks).decode("utf-8", "replace")


async def run_process(
    argv: Sequence[str],
    *,
    input: bytes,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    on_line: Callable[[str], Awaitable[None]] | None,
    max_output_bytes: int,
) -> ProcessResult:
    """Run a program to its end; on timeout and cancel its whole process group is killed and reaped.

    Raises:
        OSError: it cannot be started.
    """
    import subprocess

    import anyio

    if isinstance(argv, str) or not argv:
        raise ValueError("run_process takes a list of program and arguments, not a shell command line")
    process, cancelled = await _open_through_cancels(
        lambda: anyio.open_process(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
            start_new_session=sys.platform != "win32",
        )
    )
    out, err = _Collector(max_output_bytes), _Collector(max_output_bytes)
    timed_out = False
    try:
        if cancelled is not None:
            raise cancelled
        with anyio.move_on_after(timeout) as scope:
            await _communicate(process, input, out, err, on_line)
            await process.wait()
        timed_out = scope.cancelled_caught
    finally:
        await _end(process)
    return ProcessResult(
        returncode=process.returncode if process.returncode is not None else -signal.SIGKILL,
        stdout=out.text(),
        stderr=err.text(),
        timed_out=timed_out,
        cut_bytes=out.cut + err.cut,
    )


async def _open_through_cancels(
    open_process: Callable[[], Coroutine[Any, Any, Process]],
) -> tuple[Process, BaseException | None]:
    """The process, whatever is cancelled meanwhile, and the cancel that arrived, if one did.

    asyncio kills a program whose start is cancelled, and not what that has started by then; so let it start, and then
    kill the whole group.
    """
    import anyio

    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=True):
        if current_backend() == "trio":
            process = await open_process()
        else:
            import asyncio

            opening = asyncio.ensure_future(open_process())
            while not opening.done():
                try:
                    await asyncio.wait({opening})
                except asyncio.CancelledError as error:
                    cancelled = error
            if cancelled is not None and opening.exception() is not None:
                raise cancelled
            process = opening.result()
    return process, cancelled


async def _communicate(
    process: Process,
    input: bytes,
    out: _Collector,
    err: _Collector,
    on_line: Callable[[str], Awaitable[None]] | None,
) -> None:
    """Feed the input and drain both outputs at once, so that no pipe can fill up and block the program."""
    import anyio

    failures: list[Exception] = []

    async def feed() -> None:
        assert process.stdin is not None
        try:
            if input:
                await process.stdin.send(input)
            await process.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return  # the program did not want it all

    async def read(stream: ByteReceiveStream | None, into: _Collector, lines: Any) -> None:
        assert stream is not None
        rest = b""
        async for data in stream:
            into.add(data)
            if lines is not None and not failures:
                *whole, rest = (rest + data).split(b"\n")
                try:
                    for line in whole:
                        await lines(line.rstrip(b"\r").decode("utf-8", "replace"))
                except Exception as error:  # raised below as it is, not in a group
                    failures.append(error)
        if lines is not None and rest and not failures:
            try:
                await lines(rest.decode("utf-8", "replace"))
            except Exception as error:
                failures.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(feed)
        group.start_soon(read, process.stdout, out, on_line)
        group.start_soon(read, process.stderr, err, None)
    if failures:
        raise failures[0]


async def _end(process: Process) -> None:
    """Kill what is left of the group, and reap the program, through further cancels."""
    cancelled: BaseException | None = None
    running = process.returncode is None
    _signal_group(process, signal.SIGTERM)
    if running:
        cancelled = await _through_cancels(process.wait, END_SECONDS)
    _signal_group(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    cancelled = await _through_cancels(process.aclose, END_SECONDS) or cancelled
    if cancelled is not None:
        raise cancelled


async def _through_cancels(function: Callable[[], Awaitable[object]], seconds: float) -> BaseException | None:
    """Await `function()` for so long at most, and return the cancel that arrived meanwhile, if one did.

    On trio the shield keeps cancels out. On asyncio it keeps those of scopes out, but a run cancels its tasks natively,
    and more than once where one takes its time.
    """
    import anyio

    cancelled: BaseException | None = None
    until = anyio.current_time() + seconds
    while True:
        try:
            with anyio.move_on_after(until - anyio.current_time(), shield=True):
                await function()
            return cancelled
        except anyio.get_cancelled_exc_class() as error:
            cancelled = error


def _signal_group(process: Process, number: int) -> None:
    try:
        if sys.platform == "win32":
            if process.returncode is None:
                process.kill()
        else:
            os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody of the group is left
