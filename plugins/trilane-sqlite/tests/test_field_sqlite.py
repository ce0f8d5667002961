"""Field cases about what is kept in a file: F053, F054, F089, F091."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from trilane import Agent, tool
from trilane.testing import FunctionModel, ScriptedModel, assert_history, call
from trilane.testing.stores import append_all, said
from trilane_sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("text", ["a\nb\r\nc\r", "\"quoted\" 'and' \\back\\slashes\\n", "a\x00b", "\U0001f600 \u2028"])
async def test_f053_f054_text_is_the_same_after_it_was_kept(path: Path, text: str) -> None:
    @tool
    async def odd() -> Any:
        """Return something odd."""
        return {"key\x00": text, "text": [text]}

    first = SqliteStore(path)
    try:
        result = await Agent(ScriptedModel(call("odd"), text), tools=[odd], store=first).run(text, session="s")
    finally:
        first.close()
    model = ScriptedModel("More.")
    second = SqliteStore(path)
    try:
        await Agent(model, tools=[odd], store=second).run("And?", session="s")
    finally:
        second.close()
    kept = model.requests[0].messages
    assert kept[: len(result.messages)] == result.messages
    assert "\x00" not in str([message.to_json() for message in kept])
    if "\x00" not in text:
        assert result.output == text
    assert_history(kept, as_request=True)


async def test_f089_a_clock_that_stands_or_is_set_back_changes_no_order(path: Path) -> None:
    start = time.time()
    store = SqliteStore(path, synchronous="normal")
    try:
        written = [said(str(number)) for number in range(60)]
        for number, one in enumerate(written):
            store._book.clock = lambda number=number: start if number < 30 else start - 3600  # type: ignore[misc]
            await append_all(store, "s", one)
        page = await store.load("s")
    finally:
        store.close()
    assert (page.records, page.version) == (tuple(written), 60)


async def test_f091_the_file_grows_by_what_is_said_and_not_by_all_that_was(path: Path) -> None:
    sizes = []
    for _ in range(4):
        store = SqliteStore(path, synchronous="normal")
        try:
            agent = Agent(FunctionModel(lambda request, emit: "x" * 2000), store=store)
            for _ in range(20):
                await agent.run("y" * 2000, session="s")
        finally:
            store.close()  # what is only in the log moves into the file
        sizes.append(path.stat().st_size)  # noqa: ASYNC240
    growth = [after - before for before, after in pairwise(sizes)]
    assert max(growth) < 2 * min(growth)
    assert sizes[-1] < 5 * 80 * 4000
