"""Views of stored sessions are kept between runs, and dropped where the session is not what it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from trilane import Agent, InMemoryStore, hookimpl
from trilane.errors import StoreError
from trilane.messages import AssistantMessage, ToolCall, ToolCallPart
from trilane.stores import (
    CallStarted,
    CallWithdrawn,
    DamagedRecord,
    MessageStored,
    SessionPage,
    SessionRecord,
    SessionView,
)
from trilane.testing import ScriptedModel
from trilane.testing.stores import append_all, said

pytestmark = pytest.mark.anyio


class CountingStore:
    """Notes after which version it was read."""

    def __init__(self) -> None:
        self.inner = InMemoryStore()
        self.lease = self.inner.lease
        self.read: list[int] = []
        self.broken = False

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        self.read.append(after)
        return await self.inner.load(session, after=after, limit=limit)

    async def append(self, session: str, records: Sequence[SessionRecord], **options: Any) -> int:
        if self.broken:
            raise OSError("disk full")
        return await self.inner.append(session, records, **options)


async def asked(store: CountingStore, text: str = "And now?", **options: Any) -> list[str]:
    """Run a request; returns what the model was shown."""
    model = ScriptedModel(f"Re: {text}")
    store.read.clear()
    await Agent(model, store=store, **options).run(text, session="s")
    return [message.text for message in model.requests[0].messages]  # type: ignore[union-attr]


async def test_only_what_is_new_is_read() -> None:
    store = CountingStore()
    assert await asked(store, "One") == ["One"]
    assert store.read == [0]
    assert await asked(store, "Two") == ["One", "Re: One", "Two"]
    assert store.read == [2]
    await append_all(store, "s", said("Aside"))
    assert await asked(store, "Three") == ["One", "Re: One", "Two", "Re: Two", "Aside", "Three"]
    assert store.read == [5]


async def test_a_session_that_was_made_anew_is_read_whole() -> None:
    store = CountingStore()
    await asked(store, "One")
    await store.inner.delete_session("s")
    await append_all(store, "s", said("a"), said("b"), said("c"))
    assert await asked(store, "Two") == ["a", "b", "c", "Two"]
    assert store.read == [2, 0]
    await store.inner.delete_session("s")
    assert await asked(store, "Three") == ["Three"]


async def test_what_a_plugin_edited_is_in_its_run_only() -> None:
    class Editing:
        @hookimpl
        def on_state(self, run: Any) -> None:
            run.history.clear()

    store = CountingStore()
    await asked(store, "One")
    assert await asked(store, "Two", plugins=[Editing()]) == ["Two"]
    assert await asked(store, "Three") == ["One", "Re: One", "Two", "Re: Two", "Three"]
    assert store.read == [5]


async def test_what_could_not_be_stored_is_in_no_later_run() -> None:
    store = CountingStore()
    await asked(store, "One")
    store.broken = True
    with pytest.raises(StoreError, match="disk full"):
        await asked(store, "Two")
    store.broken = False
    assert await asked(store, "Three") == ["One", "Re: One", "Three"]
    assert store.read == [0]


async def test_a_resumed_run_reads_whole() -> None:
    store = CountingStore()
    await asked(store, "One")
    await append_all(store, "s", said("Cut off"))
    store.read.clear()
    model = ScriptedModel("Resumed.")
    async with Agent(model, store=store).resume("s") as run:
        await run.wait()
    assert store.read == [0, 0]  # where it stands, and what models see
    assert [message.text for message in model.requests[0].messages] == ["One", "Re: One", "Cut off"]  # type: ignore[union-attr]
    assert await asked(store, "Two") == ["One", "Re: One", "Cut off", "Resumed.", "Two"]
    assert store.read == [5]


def test_whether_a_call_had_begun_is_unknown_if_a_record_cannot_be_read() -> None:
    made = AssistantMessage(id="a", parts=(ToolCallPart(call=ToolCall(id="c", name="look")),))
    outcomes = []
    for between in ((), (DamagedRecord(raw="?", reason="it is no JSON"),), (started("c"),), (started("c"), WITHDRAWN)):
        view = SessionView()
        for record in (MessageStored(run_id="r", message=made), *between):
            view.apply(record)
        view.close()
        outcomes.append(view.log[-1].results[0].outcome)  # type: ignore[union-attr]
    assert outcomes == ["not_started", "interrupted", "interrupted", "not_started"]


def started(call_id: str) -> CallStarted:
    return CallStarted(run_id="r", message_id="a", call_id=call_id, key="k")


WITHDRAWN = CallWithdrawn(run_id="r", message_id="a", call_id="c")
