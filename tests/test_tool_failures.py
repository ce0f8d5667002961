"""What a tool does not raise on purpose: the model is told its type, and the developer where it was, in the log.

What the error says may hold what the model has sent: it is logged for those only who ask for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import anyio
import pytest

from trilane import Agent, ToolContext, tool
from trilane._dispatch import IN_DEBUG
from trilane.decisions import Deny
from trilane.errors import RunCancelledError, ToolError
from trilane.hookspecs import hookimpl
from trilane.result import RunResult
from trilane.testing import ScriptedModel, call, record, run_virtual
from trilane.testing.clock import Backend

pytestmark = pytest.mark.anyio


async def result_of(*functions: Any, **options: Any) -> RunResult[str]:
    """Call each tool once, in one batch, without arguments."""
    script = ScriptedModel([call(function.__name__) for function in functions], "Done.")
    return await Agent(script, tools=list(functions), **options).run("Go", session="s")


def told(result: RunResult[Any]) -> list[Any]:
    return [one.content for message in result.messages if message.kind == "tool" for one in message.results]


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "trilane" and record.levelno >= logging.INFO]


def causes(caplog: pytest.LogCaptureFixture) -> list[BaseException]:
    """What was logged at level DEBUG."""
    found = [record for record in caplog.records if record.name == "trilane" and record.levelno == logging.DEBUG]
    return [record.exc_info[1] for record in found if record.exc_info and record.exc_info[1]]


def broken() -> str:
    """Fail."""
    return {"a": "secret"}["nothing"]


async def broken_async() -> str:
    """Fail."""
    return broken()


async def broken_generator() -> Any:
    """Fail."""
    yield "half"
    broken()


@tool(name="broken_on_loop", run_on="loop")
def broken_on_loop() -> str:
    """Fail."""
    return broken()


@pytest.mark.parametrize("function", [broken, broken_async, broken_generator, broken_on_loop])
async def test_an_unexpected_exception_is_in_the_log_once_with_its_traceback(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "trilane")
    result = await result_of(function)
    assert told(result) == [f"Tool {function.__name__} failed: KeyError"]
    (record,) = records(caplog)
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"tool {function.__name__!r} failed: KeyError ({__file__}:")
    (call_id,) = [one.call_id for message in result.messages if message.kind == "tool" for one in message.results]
    assert record.getMessage().endswith(f"; call {call_id} of run {result.run_id}, session s{IN_DEBUG}")
    assert record.exc_info is None
    assert [repr(cause) for cause in causes(caplog)] == ["KeyError('nothing')"]
    assert 'return {"a": "secret"}["nothing"]' in caplog.text


async def test_at_the_usual_level_the_log_says_nothing_of_what_the_model_has_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def login(password: str) -> str:
        """Log in."""
        raise ValueError(f"{password} is wrong")

    child = Agent(ScriptedModel(ValueError("hunter2 is wrong"), name="child"), name="child").as_tool(description="Ask.")
    calls = [call("login", password="hunter2"), call("child", request="hunter2")]
    await Agent(ScriptedModel(calls, "Done."), tools=[login, child]).run("Go")
    assert [record.getMessage().partition(";")[0].partition(" (")[0] for record in records(caplog)] == [
        "tool 'login' failed: ValueError",
        "agent 'child' failed as a tool: ValueError",
    ]
    assert "hunter2" not in caplog.text


async def test_each_failing_call_of_a_batch_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await result_of(broken, broken_async)
    assert sorted(record.getMessage().partition(" failed")[0] for record in records(caplog)) == [
        "tool 'broken'",
        "tool 'broken_async'",
    ]


async def test_a_tool_of_a_child_run_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    child = Agent(ScriptedModel(call("broken"), "Done."), tools=[broken], name="child")
    parent = Agent(
        ScriptedModel(call("child", request="Go"), "Done."), tools=[child.as_tool(name="child", description="Ask.")]
    )
    result = await parent.run("Go")
    assert result.output == "Done."
    (record,) = records(caplog)
    assert "tool 'broken' failed: KeyError" in record.getMessage()
    assert result.run_id not in record.getMessage()


async def test_what_a_tool_says_on_purpose_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def refuse() -> str:
        """Refuse."""
        raise ToolError("there is no such file")

    @tool
    async def refuse_twice() -> str:
        """Refuse."""
        raise ExceptionGroup("both", [ToolError("one"), ToolError("two")])

    @tool
    async def asks(context: ToolContext[None]) -> str:
        """Ask."""
        return await context.ask("Who?")

    class Denies:
        @hookimpl
        def decide_tool(self, call: Any) -> Any:
            return Deny(reason="not today") if call.name == "broken" else None

    result = await result_of(refuse, refuse_twice, asks, broken, plugins=[Denies()])
    assert told(result)[:2] == ["there is no such file", "one\ntwo"]
    assert records(caplog) == []


async def test_a_group_with_an_unexpected_exception_in_it_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def both() -> str:
        """Fail twice."""
        raise ExceptionGroup("both", [ToolError("one"), OSError("the disk is full")])

    caplog.set_level(logging.DEBUG, "trilane")
    assert told(await result_of(both)) == ["Tool both failed: ToolError, OSError"]
    assert len(records(caplog)) == 1
    assert "OSError: the disk is full" in caplog.text


async def test_attempts_that_are_followed_by_others_are_said_at_info(caplog: pytest.LogCaptureFixture) -> None:
    @tool(effect="read", attempts=2)
    async def flaky(context: ToolContext[None]) -> str:
        """Fail at first."""
        if context.attempt == 1:
            raise OSError("not yet")
        return "now"

    caplog.set_level(logging.INFO, "trilane")
    assert told(await result_of(flaky)) == ["now"]
    (record,) = records(caplog)
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("tool 'flaky' failed and is tried again: OSError (")


async def test_what_the_caller_is_raised_is_not_in_the_log_as_well(caplog: pytest.LogCaptureFixture) -> None:
    @tool(on_error="raise")
    async def fatal() -> str:
        """Fail the run."""
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        await result_of(fatal)
    assert records(caplog) == []


async def test_a_value_that_fails_while_it_is_turned_into_text_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text for you")

    @tool
    async def odd() -> Any:
        """Return something odd."""
        return Odd()

    caplog.set_level(logging.DEBUG, "trilane")
    (text,) = told(await result_of(odd))
    assert text == "The tool ran, but its result (Odd) cannot be shown: turning it into text raised ValueError."
    (record,) = records(caplog)
    assert record.getMessage().startswith("tool 'odd' returned what cannot be turned into text: ValueError (")
    assert [str(cause) for cause in causes(caplog)] == ["no text for you"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_exception_that_is_none_of_the_ordinary_ones_is_named_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def fake() -> str:
        """Raise what asyncio raises."""
        raise asyncio.CancelledError

    caplog.set_level(logging.DEBUG, "trilane")
    assert told(await result_of(fake)) == ["Tool fake failed: CancelledError"]
    assert len(records(caplog)) == 1
    assert [type(cause) for cause in causes(caplog)] == [asyncio.CancelledError]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_calls_that_are_timed_out_or_cancelled_are_not_in_the_log(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(timeout=1)
    async def slow() -> str:
        """Take too long."""
        await anyio.sleep(5)
        return ""

    @tool
    async def stops(context: ToolContext[None]) -> str:
        """Stop the run, and wait."""
        await anyio.sleep(2)
        context.stop("enough")
        await anyio.sleep(50)
        return ""

    async def main() -> None:
        script = ScriptedModel([call("slow"), call("stops")], "Done.")
        async with Agent(script, tools=[slow, stops]).stream("Go") as run:
            async for _ in run:
                pass

    with pytest.raises(RunCancelledError, match="enough"):
        run_virtual(main, backend=backend)
    assert records(caplog) == []


async def test_a_thread_that_fails_while_its_run_ends_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @tool(name="broken")
    def waits() -> str:
        """Fail at the end of the run."""
        begun.set()
        go_on.wait(10)
        return broken()

    async with Agent(ScriptedModel(call("broken")), tools=[waits], grace_seconds=5).stream("Go") as run:
        async for event in run:
            if event.type == "tool_started":
                break
        async with anyio.create_task_group() as group:

            async def conduct() -> None:
                while not begun.is_set():
                    await anyio.lowlevel.checkpoint()
                go_on.set()
                await run.close()

            group.start_soon(conduct)
            with pytest.raises(RunCancelledError):
                await record(run)
    assert told(run.result) == ["Tool broken failed: KeyError"]
    (entry,) = records(caplog)
    assert entry.getMessage().startswith("tool 'broken' failed: KeyError (")
