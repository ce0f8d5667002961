"""A session of trilane-sqlite that trilane-compact keeps short, from process to process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trilane import Agent, ModelRequest, ModelResponse, ToolCallPart, tool
from trilane.sessions import fork_session
from trilane.testing import FunctionModel, assert_history, call
from trilane_compact import compact
from trilane_compact.marks import is_summary
from trilane_sqlite import SqliteStore

pytestmark = pytest.mark.anyio
LONG = "ships and harbours " * 30


@tool(effect="read")
async def look(at: int) -> str:
    """Look.

    Args:
        at: Where.
    """
    return f"At {at}: {LONG}"


class Model(FunctionModel):
    """Looks twice for each request, and sums up what it is asked to."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.turns: list[ModelRequest] = []

    def _answer(self, request: ModelRequest, emit: Any) -> ModelResponse | str:
        if request.instructions.startswith("You shorten the record"):
            return "Harbours were looked at."
        self.turns.append(request)
        assert_history(request.messages, as_request=True)
        if request.messages[-1].kind == "tool":
            return "Seen."
        calls = [ToolCallPart(call=call("look", at=at)) for at in (1, 2)]
        return ModelResponse(parts=tuple(calls), stop_reason="tool_calls")


class Process:
    """What one process has: its store, its plugin and its agent. Use as an `async with`."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path, synchronous="normal")
        self.model = Model()
        self.agent = Agent(self.model, tools=[look], plugins=[compact(context_tokens=3000)], store=self.store)

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.store.close()

    async def seen(self, session: str = "s") -> list[str]:
        """Ask once more, in a fork, and return what the model was shown before that."""
        fork = await fork_session(self.store, session)
        await self.agent.run("And now?", session=fork)
        first = next(turn for turn in self.model.turns if getattr(turn.messages[-1], "text", "") == "And now?")
        self.model.turns.clear()
        return [message.id for message in first.messages[:-1]]


async def test_each_process_reads_from_the_last_compaction_on(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite3"
    for number in range(12):
        async with Process(path) as process:
            result = await process.agent.run(f"{number}: {LONG}", session="s")
            assert result.output == "Seen."
            assert not result.hook_failures
    async with Process(path) as process:
        start = await process.store.view_start("s")
        version = (await process.store.load("s", limit=0)).version
        assert version * 0.5 < start < version
        history = await process.seen()
        page = await process.store.load("s")
    assert len(history) < 24
    stored = [one.message.id for one in page.records if one.kind == "message"]
    assert len(stored) == 12 * 3  # the results are in records of their own
    assert sum(one.kind == "view_replaced" for one in page.records) >= 2


async def test_what_is_compacted_in_one_process_is_taken_back_in_another(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite3"
    async with Process(path) as process:
        for number in range(3):
            await process.agent.run(f"{number}: {LONG}", session="s")
        before = await process.seen()
        assert await process.agent.compact("s") is True
    async with Process(path) as process:
        after = await process.seen()
        assert len(after) < len(before)
        assert await process.agent.undo_compaction("s") is True
        assert await process.seen() == before  # its view is read anew
    async with Process(path) as process:
        assert await process.seen() == before
        assert await process.agent.undo_compaction("s") is False


async def test_a_run_that_was_put_aside_after_a_compaction_is_taken_up_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite3"
    async with Process(path) as process:
        for number in range(6):
            await process.agent.run(f"{number}: {LONG}", session="s")
        async with process.agent.stream(f"6: {LONG}", session="s") as run:
            async for event in run:
                if event.type == "tool_started":
                    await run.suspend()
                    break
    async with Process(path) as process:
        async with process.agent.resume("s") as resumed:
            result = await resumed.wait()
        assert result.output == "Seen."
        assert any(is_summary(message) for message in result.messages)
        assert_history(result.messages)
        tools = [message for message in result.messages if message.kind == "tool"]
        assert [one.content[:4] for one in tools[-1].results] == ["At 1", "At 2"]
