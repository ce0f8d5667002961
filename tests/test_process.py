"""`ctx.run_process`: output, limits, and that nothing of the process tree is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane import Agent, ToolContext, tool
from trilane.context import ProcessResult
from trilane.errors import RunCancelledError
from trilane.events import ToolCompleted, ToolProgress
from trilane.testing import EventRecorder, ScriptedModel, assert_history, call, no_leaks, record

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="needs process groups"),
]

PYTHON = sys.executable


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A dead child of a dead parent is a zombie until init collects it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def gone(pids: list[int]) -> bool:
    """True if the processes end; they were killed, and need a moment to die."""
    assert pids
    with anyio.move_on_after(5):
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110  (the system tells nobody)
            await anyio.sleep(0.01)  # real time: of another process
    return not any(is_alive(pid) for pid in pids)


async def processed(function: Any, *, timeout: float | None = None) -> tuple[EventRecorder, list[Any]]:
    """Run `function(ctx)` as a tool and give what it returned."""
    found: list[Any] = []

    async def use(ctx: ToolContext) -> str:
        """Use a process."""
        found.append(await function(ctx))
        return "done"

    made = tool(timeout=timeout)(use) if timeout else tool(use)
    async with no_leaks(wait_seconds=5):
        async with Agent(ScriptedModel(call("use"), "Done."), tools=[made]).stream("Go") as run:
            events = await record(run)
    events.check()
    assert_history(run.result.messages)
    assert run.result.output == "Done."
    return events, found


async def test_output_input_status_and_environment(tmp_path: Path) -> None:
    folder = str(tmp_path.resolve())  # noqa: ASYNC240
    script = "import os, sys; print(os.environ['SHIP'], os.getcwd()); sys.stderr.write(sys.stdin.read()); sys.exit(3)"
    _, (result,) = await processed(
        lambda ctx: ctx.run_process([PYTHON, "-c", script], input="Grüße".encode(), env={"SHIP": "Moby"}, cwd=folder)
    )
    assert isinstance(result, ProcessResult)
    assert (result.returncode, result.stderr, result.timed_out, result.cut_bytes) == (3, "Grüße", False, 0)
    assert result.stdout.split() == ["Moby", folder]


async def test_lines_come_as_they_are_written() -> None:
    async def work(ctx: ToolContext) -> ProcessResult:
        async def show(line: str) -> None:
            await ctx.progress(line)

        return await ctx.run_process([PYTHON, "-c", "print('one'); print('two'); print('rest', end='')"], on_line=show)

    events, (result,) = await processed(work)
    assert [event.text for event in events.of(ToolProgress)] == ["one", "two", "rest"]
    assert result.stdout == "one\ntwo\nrest"


async def test_an_error_in_on_line_comes_out_as_it_is() -> None:
    async def work(ctx: ToolContext) -> str:
        async def fail(_line: str) -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await ctx.run_process([PYTHON, "-c", "print('one'); print('two')"], on_line=fail)
        return "raised"

    _, found = await processed(work)
    assert found == ["raised"]


async def test_output_is_bounded_and_says_what_was_left_out() -> None:
    script = "import sys; sys.stdout.write('x' * 300_000); sys.stderr.write('y' * 300_000)"
    _, (result,) = await processed(lambda ctx: ctx.run_process([PYTHON, "-c", script], max_output_bytes=1000))
    assert (len(result.stdout), len(result.stderr), result.cut_bytes) == (1000, 1000, 598_000)


async def test_a_program_that_does_not_read_its_input_is_no_problem() -> None:
    _, (result,) = await processed(lambda ctx: ctx.run_process([PYTHON, "-c", "pass"], input=b"x" * 1_000_000))
    assert result.returncode == 0


async def test_a_shell_command_line_and_a_missing_program_are_refused() -> None:
    async def work(ctx: ToolContext) -> str:
        with pytest.raises(ValueError, match="not a shell command line"):
            await ctx.run_process("ls -l")
        with pytest.raises(FileNotFoundError):
            await ctx.run_process(["/no/such/program"])
        return "refused"

    _, found = await processed(work)
    assert found == ["refused"]


FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


async def test_r87_a_timeout_kills_the_whole_tree() -> None:
    pids: list[int] = []

    async def work(ctx: ToolContext) -> ProcessResult:
        async def note(line: str) -> None:
            pids.append(int(line))

        return await ctx.run_process([PYTHON, "-c", FAMILY], timeout=1.5, on_line=note)

    _, (result,) = await processed(work)
    assert result.timed_out
    assert result.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    assert await gone(pids)


async def test_r87_a_tool_timeout_kills_the_whole_tree_and_is_a_result() -> None:
    pids: list[int] = []

    async def work(ctx: ToolContext) -> ProcessResult:
        async def note(line: str) -> None:
            pids.append(int(line))

        return await ctx.run_process([PYTHON, "-c", FAMILY], on_line=note)

    events, found = await processed(work, timeout=1.5)
    assert found == []
    assert events.one(ToolCompleted).result.outcome == "timed_out"
    assert await gone(pids)


async def test_a_cancel_kills_the_whole_tree() -> None:
    pids: list[int] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""

        async def note(line: str) -> None:
            pids.append(int(line))
            await ctx.progress("running")

        await ctx.run_process([PYTHON, "-c", FAMILY], on_line=note)
        return "never"

    async with no_leaks(wait_seconds=5):
        async with Agent(ScriptedModel(call("work")), tools=[work]).stream("Go") as run:
            async for event in run:
                if event.type == "tool_progress":
                    break
    assert run.result.messages[2].results[0].outcome == "interrupted"  # type: ignore[union-attr]
    assert await gone(pids)


STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


async def test_a_program_that_ignores_the_request_to_end_is_killed() -> None:
    async def work(ctx: ToolContext) -> ProcessResult:
        return await ctx.run_process([PYTHON, "-c", STUBBORN], timeout=1.5)

    _, (result,) = await processed(work)
    assert (result.timed_out, result.returncode) == (True, -signal.SIGKILL)


async def test_a_grandchild_that_keeps_the_pipes_open_holds_nobody() -> None:
    """The program has ended; what it left behind, with its output, is killed when the time is up."""
    script = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"

    async def work(ctx: ToolContext) -> ProcessResult:
        return await ctx.run_process([PYTHON, "-c", script], timeout=1.5)

    _, (result,) = await processed(work)
    assert result.returncode == 0


async def test_closing_while_a_process_runs_ends_within_the_grace_time() -> None:
    begun = anyio.Event()

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""

        async def note(_line: str) -> None:
            begun.set()

        await ctx.run_process([PYTHON, "-c", STUBBORN], on_line=note)
        return "never"

    async with no_leaks(wait_seconds=5):
        async with Agent(ScriptedModel(call("work")), tools=[work]).stream("Go", session="s") as run:
            async with anyio.create_task_group() as group:

                async def close() -> None:
                    await begun.wait()
                    await run.close()

                group.start_soon(close)
                with pytest.raises(RunCancelledError):
                    await record(run)
    assert_history(run.result.messages)


async def test_r87_a_cancel_while_a_program_starts_kills_what_it_has_started_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started, go_on = anyio.Event(), anyio.Event()
    opened: list[anyio.abc.Process] = []
    mark = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[1] + '.new', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(600)"
    )
    real = anyio.open_process

    async def slowly(*args: Any, **options: Any) -> anyio.abc.Process:
        opened.append(await real(*args, **options))
        while not mark.exists():  # noqa: ASYNC110  (another process makes it)
            await anyio.sleep(0.01)  # real time: another process writes the file
        started.set()
        await go_on.wait()
        return opened[0]

    monkeypatch.setattr(anyio, "open_process", slowly)

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        await ctx.run_process([PYTHON, "-c", code, str(mark)])
        return "never"

    async with no_leaks(wait_seconds=5):
        async with Agent(ScriptedModel(call("work")), tools=[work]).stream("Go", session="s") as run:
            async with anyio.create_task_group() as group:

                async def close() -> None:
                    await started.wait()
                    group.start_soon(run.close)
                    await anyio.wait_all_tasks_blocked()
                    go_on.set()

                group.start_soon(close)
                with pytest.raises(RunCancelledError):
                    await record(run)
    assert opened[0].returncode is not None
    assert await gone([int(one) for one in mark.read_text().split()])
