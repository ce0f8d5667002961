"""A run whose task is cancelled by somebody else before it has taken a step, as the end of an event loop does."""

from __future__ import annotations

import asyncio

import pytest

from trilane import Agent
from trilane.errors import RunCancelledError
from trilane.testing import ScriptedModel


@pytest.mark.asyncio
async def test_w01_a_run_task_that_never_stepped_is_ended_for_whoever_reads() -> None:
    agent = Agent(ScriptedModel("Never."))
    before = asyncio.all_tasks()
    async with agent.stream("Go", session="s") as run:
        (task,) = asyncio.all_tasks() - before
        task.cancel()
        with pytest.raises(RunCancelledError, match="was cancelled"):
            async for _ in run:
                pass
    assert run.result.status == "cancelled"
    assert (await Agent(ScriptedModel("Yes."), store=agent.store).run("Again", session="s")).output == "Yes."


@pytest.mark.asyncio
async def test_w01_whoever_ends_it_instead_may_never_have_stepped_either() -> None:
    agent = Agent(ScriptedModel("Never."))
    before = asyncio.all_tasks()
    async with agent.stream("Go", session="s") as run:
        (task,) = asyncio.all_tasks() - before
        task.cancel()
        task.add_done_callback(lambda _task: [one.cancel() for one in asyncio.all_tasks() - before])
        with pytest.raises(RunCancelledError, match="was cancelled"):
            async for _ in run:
                pass
    assert run.result.status == "cancelled"
    assert (await Agent(ScriptedModel("Yes."), store=agent.store).run("Again", session="s")).output == "Yes."
