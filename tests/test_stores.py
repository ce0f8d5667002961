"""The stores of the core: the conformance suite on memory and on a plain store; records, views, and capabilities."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from trilane import Agent, InMemoryStore, tool
from trilane.errors import SessionBusyError, SessionError
from trilane.messages import AssistantMessage, TextPart, ToolCall, ToolCallPart, ToolResult
from trilane.sessions import (
    CanDelete,
    CanFork,
    CanKeepBlobs,
    CanList,
    CanRename,
    CanSearch,
    cut_after,
    fork_session,
    hits_in,
    pages,
)
from trilane.stores import (
    CallFinished,
    DamagedRecord,
    MessageHidden,
    MessageStored,
    NewerRecord,
    SessionView,
    record_from_json,
    undo_compaction,
)
from trilane.testing import ScriptedModel, call
from trilane.testing.stores import CHECKS, append_all, check_stores, said, sample_records

pytestmark = pytest.mark.anyio


class PlainStore:
    """Nothing but the protocol."""

    def __init__(self) -> None:
        inner = InMemoryStore()
        self.lease, self.load, self.append = inner.lease, inner.load, inner.append


@pytest.mark.parametrize("kind", [InMemoryStore, PlainStore])
@pytest.mark.parametrize("name", CHECKS)
async def test_conformance(kind: type[Any], name: str) -> None:
    store = kind()
    await CHECKS[name](store, store)


async def test_the_suite_tells_which_checks_failed() -> None:
    class Forgetful(InMemoryStore):
        async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> Any:
            page = await super().load(session, after=after, limit=limit)
            return page.replace(records=page.records[:1])

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        store = Forgetful()
        yield store, store

    with pytest.raises(ExceptionGroup, match="checks of the store failed") as caught:
        await check_stores(make)
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert "in the check 'long_sessions_are_paged'" in notes
    assert "in the check 'a_session_nobody_wrote_to_is_empty'" not in notes


def test_memory_has_every_capability_that_makes_sense_for_it() -> None:
    store = InMemoryStore()
    for capability in (CanList, CanSearch, CanRename, CanFork, CanDelete):
        assert isinstance(store, capability)
        assert not isinstance(PlainStore(), capability)
    assert not isinstance(store, CanKeepBlobs)


@pytest.mark.parametrize("record", sample_records(), ids=lambda record: record.kind)
def test_records_come_back_from_json(record: Any) -> None:
    assert record_from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is no JSON"),
        ("\x00\x01", "it is no JSON"),
        ("[]", "it has no kind"),
        ('{"kind":7}', "it has no kind"),
        ('{"kind":"run_ended","run_id":"r","status":"great"}', "run_ended.status: Input should be"),
        ('{"kind":"message","run_id":"r","message":{"kind":"user"}}', "message"),
        ('{"kind":"question","run_id":"r","question":{"kind":"question"}}', "question.question.id: Field required"),
    ],
)
def test_a_damaged_record_says_what_is_wrong_and_keeps_its_text(text: str, reason: str) -> None:
    record = record_from_json(text)
    assert isinstance(record, DamagedRecord)
    assert reason in record.reason
    assert record.to_json() == text


def test_bytes_that_are_no_text_are_escaped() -> None:
    record = record_from_json(b'{"kind":"\xff\xfe"}')
    assert isinstance(record, DamagedRecord)
    assert "\\xff\\xfe" in record.raw


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ('{"kind":"mood","version":3}', None),
        ('{"kind":"run_ended","version":2,"status":"paused"}', None),
        ('{"kind":"message_hidden","run_id":"r","message_id":"m","new":1}', MessageHidden(run_id="r", message_id="m")),
    ],
)
def test_a_record_of_a_later_release_keeps_what_is_not_understood(text: str, known: Any) -> None:
    record = record_from_json(text)
    assert isinstance(record, NewerRecord)
    assert record.known == known
    assert record.to_json() == text


def test_a_view_takes_what_it_understands_and_keeps_count() -> None:
    call = ToolCallPart(call=ToolCall(id="c", name="look"))
    newer = MessageStored(run_id="r", message=AssistantMessage(id="a", parts=(call,))).to_json()[:-1] + ',"mood":1}'
    view = SessionView()
    for record in (
        said("Go"),
        record_from_json(newer),
        DamagedRecord(raw="?", reason="it is no JSON"),
        CallFinished(run_id="r", message_id="a", result=ToolResult(call_id="c", content="a ship")),
        record_from_json('{"kind":"mood"}'),
    ):
        view.apply(record)
    assert view.version == 5
    assert [message.kind for message in view.log] == ["user", "assistant", "tool"]
    assert view.unanswered is None


async def test_a_run_goes_on_with_the_readable_part_of_a_session() -> None:
    store = PlainStore()
    answer = MessageStored(run_id="r", message=AssistantMessage(id="a", parts=(TextPart(text="Hello."),)))
    await append_all(store, "s", said("Go"), DamagedRecord(raw="?", reason="it is no JSON"), answer)
    model = ScriptedModel("Bye.")
    result = await Agent(model, store=store).run("And now?", session="s")
    assert [message.kind for message in model.requests[0].messages] == ["user", "assistant", "user"]
    assert result.output == "Bye."
    assert (await store.load("s")).records[1].kind == "damaged"


async def test_a_store_without_forks_is_forked_by_copying() -> None:
    store = PlainStore()
    await append_all(store, "s", said("a"), record_from_json('{"kind":"mood"}'), said("b"))
    forked = await fork_session(store, "s", at_message="u-b")
    assert (await store.load(forked)).records == (await store.load("s")).records
    with pytest.raises(SessionError, match="it cannot be forked after 4"):
        await fork_session(store, "s", version=4)


@pytest.mark.parametrize("letters", ["ß", "İ", "ﬃ", "x"])
@pytest.mark.parametrize("wanted", ["needle", "NEEDLE", "Straße", "STRASSE", "strasse"])
def test_an_excerpt_has_the_place_however_long_letters_become_when_case_is_ignored(letters: str, wanted: str) -> None:
    record = said(letters * 200 + " the needle of the Straße in the haystack " + letters * 200)
    (hit,) = hits_in(record, wanted, session="s", title="", position=1)
    assert wanted.casefold() in hit.excerpt.casefold()
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert len(hit.excerpt) <= 2 + 40 + len(wanted) + 40


async def test_where_a_fork_is_cut() -> None:
    store = InMemoryStore()
    await append_all(store, "s", *sample_records())
    assert await cut_after(store, "s", "u1") == 2
    assert await cut_after(store, "s", "a1") == 7
    with pytest.raises(SessionError, match="has no message 'x'"):
        await cut_after(store, "s", "x")


async def test_only_what_is_needed_is_read_where_a_store_can_tell() -> None:
    asked: list[int] = []

    class Skipping(PlainStore):
        async def view_start(self, session: str) -> int:
            return 2

        def __init__(self) -> None:
            super().__init__()
            whole = self.load

            async def load(session: str, *, after: int = 0, limit: int | None = None) -> Any:
                asked.append(after)
                return await whole(session, after=after, limit=limit)

            self.load = load

    store = Skipping()
    await append_all(store, "s", *[said(str(number)) for number in range(4)])
    asked.clear()
    found = [record async for page in pages(store, "s", view=True) for record in page.records]
    assert found == [said("2"), said("3")]
    assert asked == [2]


async def test_a_session_of_the_memory_store_is_left_alone_while_a_run_is_active_on_it() -> None:
    store = InMemoryStore()
    refused: list[str] = []

    async def write() -> None:
        async with store.lease("s", ttl_seconds=30) as lease:
            await store.append("s", [], expected_version=(await store.load("s")).version, lease=lease)

    async def forget() -> None:
        store.delete("s")

    @tool
    async def meddle() -> str:
        """Meddle."""
        for attempt in (store.delete_session("s"), forget(), write(), undo_compaction(store, "s")):
            with pytest.raises(SessionBusyError, match="'s'"):
                await attempt
            refused.append("s")
        return "left alone"

    agent = Agent(ScriptedModel("Hello.", call("meddle"), "Done.", "Yes."), tools=[meddle], store=store)
    await agent.run("Go", session="s")
    result = await agent.run("Go on", session="s")
    assert (result.output, len(refused)) == ("Done.", 4)
    async with store.lease("s", ttl_seconds=30):
        with pytest.raises(SessionBusyError, match="'s'"):
            await agent.run("More", session="s")
    assert (await agent.run("More", session="s")).output == "Yes."
    assert await store.delete_session("s")
