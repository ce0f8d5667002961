"""The conformance suite for session stores: what every store must do, as checks that any test framework can run.

`await check_stores(make)` runs them all; a test suite rather runs `CHECKS` one by one. What is particular to a store
(its files, its servers, leases that run out) it tests itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import TypeAlias

import anyio
from pydantic import JsonValue

from trilane.errors import SessionBusyError, SessionConflictError, SessionError
from trilane.events import Question
from trilane.messages import (
    Approval,
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from trilane.sessions import (
    CanDelete,
    CanFork,
    CanKeepBlobs,
    CanList,
    CanRename,
    CanSearch,
    CanSkip,
    fork_session,
    import_session,
    pages,
)
from trilane.stores import (
    CallFinished,
    CallStarted,
    DamagedRecord,
    Lease,
    MessageHidden,
    MessageStored,
    NewerRecord,
    QuestionClosed,
    QuestionStored,
    RunEnded,
    SessionRecord,
    SessionStore,
    ViewReplaced,
    record_from_json,
)

from ._checks import run_checks

__all__ = ["CHECKS", "StoreCheck", "StorePair", "append_all", "check_stores", "said", "sample_records"]

StorePair: TypeAlias = AbstractAsyncContextManager[tuple[SessionStore, SessionStore]]
"""A fresh store and a second user of the same data: another connection, or the same object if there is no other."""

StoreCheck: TypeAlias = Callable[[SessionStore, SessionStore], Awaitable[None]]
"""One check. It raises AssertionError, or whatever the store raised where it should not have."""

_ODD_NAMES = ("a/b", "it's", 'say "hi"', "päivää 🚢", "%_*?", "..", " ", "x" * 200, "select 1; --")


async def check_stores(make: Callable[[], StorePair]) -> None:
    """Run every check, each on a fresh store.

    Raises:
        ExceptionGroup: some failed; each failure has a note with the name of its check.
    """

    async def run(check: StoreCheck) -> None:
        async with make() as (store, other):
            await check(store, other)

    await run_checks("store", CHECKS, run)


# ---- what is stored -------------------------------------------------------------------------------------------------


def said(text: str, *, id: str = "") -> MessageStored:
    """A record of a user's message."""
    return MessageStored(run_id="r1", message=UserMessage(id=id or f"u-{text}", parts=(TextPart(text=text),)))


def sample_records() -> tuple[SessionRecord, ...]:
    """A record of each kind, with something in every field."""
    call = ToolCall(
        id="c1",
        name="look",
        arguments={"where": 'the "north"\n', "n": 1.5, "deep": [{"a": None}]},
        raw="{}",
        approval=Approval(approve=True, arguments={"where": "south"}, reason="closer"),
    )
    messages: tuple[Message, ...] = (
        SystemMessage(id="s1", text="Be brief."),
        UserMessage(id="u1", parts=(TextPart(text="Päivää 🚢 \u2028"), ImagePart(data="aGk=", extra={"x": [1]}))),
        AssistantMessage(
            id="a1",
            parts=(ReasoningPart(text="Hm.", signature="sig"), TextPart(text="Looking."), ToolCallPart(call=call)),
            stop_reason="tool_calls",
            usage=Usage(input_tokens=3, output_tokens=4, cost=0.25),
            model="scripted",
            extra={"id": "resp_1"},
        ),
    )
    result = ToolResult(call_id="c1", content=("a ship", FilePart(name="log.txt", data="aGk=")), data={"ships": [1, 2]})
    return (
        *[MessageStored(run_id="r1", message=message) for message in messages],
        QuestionStored(
            run_id="r1",
            question=Question(
                id="q1", kind="question", prompt="Go on?", schema={"type": "string"}, call=ToolCall(id="c1", name="t")
            ),
            ordinal=2,
        ),
        QuestionClosed(run_id="r1", question_id="q1", status="accepted", payload={"answer": [True, None]}),
        CallStarted(run_id="r1", message_id="a1", call_id="c1", key="k", arguments_hash="h", effect="read", attempt=2),
        CallFinished(run_id="r1", message_id="a1", result=result),
        MessageHidden(run_id="r1", message_id="a1", reason="not accepted"),
        ViewReplaced(run_id="r1", messages=(messages[1], ToolMessage(id="t1", results=(result,))), reason="shorter"),
        RunEnded(run_id="r1", status="suspended", usage=Usage(input_tokens=3), turns=1),
    )


async def append_all(store: SessionStore, session: str, *records: SessionRecord) -> int:
    """Append under a lease of its own; returns the new version."""
    async with store.lease(session, ttl_seconds=30) as lease:
        version = (await store.load(session, limit=0)).version
        return await store.append(session, records, expected_version=version, lease=lease)


async def _whole(store: SessionStore, session: str) -> tuple[SessionRecord, ...]:
    return (await store.load(session)).records


@asynccontextmanager
async def _refused(error: type[Exception], what: str) -> AsyncIterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(f"{what} must raise {error.__name__}")


# ---- records --------------------------------------------------------------------------------------------------------


async def _a_session_nobody_wrote_to_is_empty(store: SessionStore, other: SessionStore) -> None:
    page = await store.load("nobody")
    assert (page.records, page.version) == ((), 0)
    if isinstance(store, CanList):
        assert list(await store.list_sessions()) == []


async def _records_of_every_kind_come_back_equal(store: SessionStore, other: SessionStore) -> None:
    records = sample_records()
    assert await append_all(store, "s", *records) == len(records)
    for reader in (store, other):
        page = await reader.load("s")
        assert page.version == len(records)
        for stored, expected in zip(page.records, records, strict=True):
            assert stored == expected, f"{expected.kind} came back as {stored!r}"


async def _sessions_with_odd_names_do_not_meet(store: SessionStore, other: SessionStore) -> None:
    for name in _ODD_NAMES:
        await append_all(store, name, said(name))
    for name in _ODD_NAMES:
        assert await _whole(other, name) == (said(name),), f"session {name!r}"


async def _long_sessions_are_paged(store: SessionStore, other: SessionStore) -> None:
    records = tuple(said(str(number)) for number in range(1203))
    await append_all(store, "s", *records)
    page = await store.load("s", after=3, limit=4)
    assert page.records == records[3:7]
    assert page.version == len(records)
    assert (await store.load("s", limit=0)).records == ()
    assert (await store.load("s", after=1200)).records == records[1200:]
    assert (await store.load("s", after=len(records), limit=10)).records == ()
    found = [record async for page in pages(store, "s") for record in page.records]
    assert tuple(found) == records


async def _records_of_later_releases_and_damaged_ones_are_kept(store: SessionStore, other: SessionStore) -> None:
    texts = (
        '{"kind":"mood","run_id":"r","mood":"good"}',
        '{"kind":"message_hidden","run_id":"r","message_id":"m","since":{"release":9}}',
        '{"kind":"message","run_id":"r","message":{"kind":"user","id":"u","parts":[],"weather":"fine"}}',
        '{"kind":"message_hidden"',
        '{"kind":"call_finished","run_id":"r"}',
    )
    records = [record_from_json(text) for text in texts]
    assert [type(record) for record in records] == [NewerRecord] * 3 + [DamagedRecord] * 2
    await append_all(store, "s", said("first"), *records, said("last"))
    stored = (await other.load("s")).records
    assert [record.to_json() for record in stored[1:-1]] == list(texts)
    assert stored[-1] == said("last")
    hidden = stored[2]
    assert isinstance(hidden, NewerRecord)
    assert hidden.known == MessageHidden(run_id="r", message_id="m")


async def _large_texts_and_images_come_back_whole(store: SessionStore, other: SessionStore) -> None:
    text = "Whale 🐋 " * 30_000
    image = ImagePart(data="QUJD" * 100_000)
    message = MessageStored(run_id="r", message=UserMessage(id="u", parts=(TextPart(text=text), image)))
    data: JsonValue = {"rows": [{"n": number, "text": "x" * 100} for number in range(5000)]}
    result = CallFinished(run_id="r", message_id="m", result=ToolResult(call_id="c", content=text, data=data))
    await append_all(store, "s", message, result)
    stored = (await other.load("s")).records
    assert stored[0] == message
    finished = stored[1]
    assert isinstance(finished, CallFinished)
    assert finished.result.content == text
    if finished.result.data != data:
        reference = finished.result.data
        assert isinstance(other, CanKeepBlobs), "data may only be left out by a store that has read_blob"
        assert isinstance(reference, dict)
        assert set(reference) == {"$blob", "characters"}
        whole = await other.read_blob(str(reference["$blob"]))
        assert len(whole) == reference["characters"]
        import json

        assert json.loads(whole) == data
        await append_all(store, "copy", *stored)  # a reference that is written again still leads to the text
        assert (await store.load("copy")).records == stored


async def _what_looks_like_a_blob_is_left_alone(store: SessionStore, other: SessionStore) -> None:
    large = "y" * 200_000
    looks: tuple[JsonValue, ...] = (
        {"$blob": "me", "characters": 3},
        {"deep": [{"$blob": None, "text": large}]},
        {"$blob": {"$blob": 1}},
    )
    for data in looks:
        result = ToolResult(call_id="c", content=large, data=data)
        session = f"s{len(str(data))}"
        await append_all(store, session, CallFinished(run_id="r", message_id="m", result=result))
        finished = (await other.load(session)).records[0]
        assert isinstance(finished, CallFinished)
        assert finished.result.content == large
        if not (isinstance(finished.result.data, dict) and set(finished.result.data) == {"$blob", "characters"}):
            assert finished.result.data == data


# ---- appending ------------------------------------------------------------------------------------------------------


async def _another_version_is_a_conflict_and_nothing_is_written(store: SessionStore, other: SessionStore) -> None:
    await append_all(store, "s", said("a"))
    async with store.lease("s", ttl_seconds=30) as lease:
        for version in (0, 2, 99):
            async with _refused(SessionConflictError, f"append with expected_version={version} instead of 1"):
                await store.append("s", (said("b"), said("c")), expected_version=version, lease=lease)
        assert await store.append("s", (), expected_version=1, lease=lease) == 1
    assert await _whole(other, "s") == (said("a"),)


async def _a_lease_is_for_its_session_and_ends_with_its_context(store: SessionStore, other: SessionStore) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        assert lease.session == "s"
        assert lease.is_valid
        async with _refused(SessionConflictError, "append to another session under this lease"):
            await store.append("t", (said("a"),), expected_version=0, lease=lease)
    assert not lease.is_valid
    async with _refused(SessionConflictError, "append under a lease that has ended"):
        await store.append("s", (said("a"),), expected_version=0, lease=lease)
    async with store.lease("s", ttl_seconds=30) as lease:
        invalidate = getattr(lease, "invalidate", None)
        if invalidate is not None:
            invalidate()
            async with _refused(SessionConflictError, "append under a lease that was invalidated"):
                await store.append("s", (said("a"),), expected_version=0, lease=lease)
    assert await _whole(other, "s") == ()


async def _one_user_at_a_time_has_the_lease(store: SessionStore, other: SessionStore) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        for second in (store, other):
            async with _refused(SessionBusyError, "entering a lease that somebody has"):
                async with second.lease("s", ttl_seconds=30):
                    pass
        async with other.lease("t", ttl_seconds=30) as elsewhere:
            await other.append("t", (said("t"),), expected_version=0, lease=elsewhere)
        assert lease.is_valid
        await store.append("s", (said("s"),), expected_version=0, lease=lease)
    async with other.lease("s", ttl_seconds=30) as lease:
        assert await other.append("s", (said("again"),), expected_version=1, lease=lease) == 2


async def _a_lease_is_given_back_after_errors_and_cancels(store: SessionStore, other: SessionStore) -> None:
    async with _refused(ZeroDivisionError, "leaving a lease with an error"):
        async with store.lease("s", ttl_seconds=30):
            raise ZeroDivisionError
    with anyio.CancelScope() as scope:
        async with store.lease("s", ttl_seconds=30):
            scope.cancel()
            await anyio.sleep_forever()
    async with other.lease("s", ttl_seconds=30) as lease:
        assert lease.is_valid


async def _a_cancelled_append_writes_all_or_nothing(store: SessionStore, other: SessionStore) -> None:
    version = 0
    for round_number in range(10):
        batch = tuple(said(f"{round_number}.{number}") for number in range(5))
        with anyio.CancelScope() as scope:
            async with store.lease("s", ttl_seconds=30) as lease:
                async with anyio.create_task_group() as group:
                    group.start_soon(_append_quietly, store, batch, version, lease)
                    for _ in range(round_number):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
        page = await other.load("s")
        assert page.version in (version, version + 5)
        assert len(page.records) == page.version
        version = page.version
    await append_all(store, "s", said("the store still works"))


async def _append_quietly(store: SessionStore, batch: Sequence[SessionRecord], version: int, lease: Lease) -> None:
    try:
        await store.append("s", batch, expected_version=version, lease=lease)
    except SessionConflictError:
        pass  # the lease was given back first


async def _racing_users_lose_nothing(store: SessionStore, other: SessionStore) -> None:
    written: list[str] = []

    async def write(user: SessionStore, name: str) -> None:
        for number in range(10):
            while True:
                try:
                    async with user.lease("s", ttl_seconds=30) as lease:
                        version = (await user.load("s", limit=0)).version
                        await anyio.lowlevel.checkpoint()
                        record = said(f"{name}{number}")
                        assert await user.append("s", (record,), expected_version=version, lease=lease) == version + 1
                        written.append(record.message.id)
                        break
                except SessionBusyError:
                    await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for user, name in ((store, "a"), (other, "b"), (store, "c"), (other, "d")):
            group.start_soon(write, user, name)
    stored = [record.message.id for record in await _whole(store, "s") if record.kind == "message"]
    assert stored == written
    assert len(stored) == 40


# ---- what stores may offer besides ----------------------------------------------------------------------------------


async def _sessions_are_listed_newest_first(store: SessionStore, other: SessionStore) -> None:
    if not isinstance(store, CanList) or not isinstance(other, CanList):
        return
    for name in ("first", "second", "third"):
        await append_all(store, name, said(f"Tell me about {name}.\n" + "More. " * 50), said("and more"))
    await append_all(store, "first", said("again"))
    listed = await other.list_sessions()
    assert [info.id for info in listed] == ["first", "third", "second"]
    assert [info.version for info in listed] == [3, 2, 2]
    assert listed[0].preview.startswith("Tell me about first. More.")
    assert len(listed[0].preview) < 100
    assert listed[0].created is not None
    assert listed[0].updated is not None
    assert listed[0].created <= listed[0].updated
    assert [info.id for info in await other.list_sessions(limit=1, offset=1)] == ["third"]
    assert await other.session_info("second") == listed[2]
    assert await other.session_info("fourth") is None


async def _texts_are_found(store: SessionStore, other: SessionStore) -> None:
    if not isinstance(store, CanSearch) or not isinstance(other, CanSearch):
        return
    result = ToolResult(call_id="c", content='Three "Ships", 100% \\ seen')
    await append_all(store, "s", said("Where is ÄLSKLING?"), CallFinished(run_id="r", message_id="m", result=result))
    await append_all(store, "t", said("Nothing here but text and kind."))
    for text, session, position in (("älskling", "s", 1), ('"ships", 100% \\', "s", 2), ("BUT TEXT", "t", 1)):
        hits = await other.search_sessions(text)
        assert [(hit.session, hit.position) for hit in hits] == [(session, position)], text
        assert text.casefold() in hits[0].excerpt.casefold()
    assert list(await other.search_sessions("message_id")) == []
    assert list(await other.search_sessions("1000")) == []
    assert list(await other.search_sessions("")) == []
    assert len(await other.search_sessions("e", limit=1)) == 1


async def _sessions_are_renamed(store: SessionStore, other: SessionStore) -> None:
    if not isinstance(store, CanRename) or not isinstance(other, CanList):
        return
    await append_all(store, "s", said("a"))
    await store.rename_session("s", 'The "whale" 🐋')
    info = await other.session_info("s")
    assert info is not None
    assert info.title == 'The "whale" 🐋'
    await store.rename_session("s", "half \ud83d a \0 pair")
    info = await other.session_info("s")
    assert info is not None
    assert info.title == "half \ufffd a \ufffd pair"
    async with _refused(SessionError, "renaming a session that does not exist"):
        await store.rename_session("t", "x")


async def _sessions_are_forked_at_any_message(store: SessionStore, other: SessionStore) -> None:
    call = ToolCallPart(call=ToolCall(id="c", name="look"))
    asking = MessageStored(run_id="r", message=AssistantMessage(id="a", parts=(call,), stop_reason="tool_calls"))
    started = CallStarted(run_id="r", message_id="a", call_id="c", key="k")
    finished = CallFinished(run_id="r", message_id="a", result=ToolResult(call_id="c", content="z" * 100_000))
    records = (said("one"), asking, started, finished, said("two"), RunEnded(run_id="r", status="completed"))
    await append_all(store, "s", *records)
    for message, count in (("u-one", 1), ("a", 4), ("a-results", 4), ("u-two", 5), ("", 6)):
        forked = await fork_session(store, "s", at_message=message)
        assert await _whole(other, forked) == records[:count], message
    named = await fork_session(store, "s", "named", version=2)
    assert named == "named"
    await append_all(store, "named", said("elsewhere"))
    assert await _whole(other, "named") == (*records[:2], said("elsewhere"))
    assert await _whole(other, "s") == records
    if isinstance(store, CanFork) and isinstance(other, CanList):
        info = await other.session_info("named")
        assert info is not None
        assert info.forked_from == "s"
    for session, new, message in (("s", "named", ""), ("nobody", "x", ""), ("s", "x", "no such message")):
        async with _refused(SessionError, f"forking {session} as {new} at {message!r}"):
            await fork_session(store, session, new, at_message=message)
    for session, new in (("s", "half \ud83d"), ("s", "a\0b"), ("half \ud83d", "x")):
        async with _refused(SessionError, f"forking {session!r} as {new!r}"):
            await fork_session(store, session, new)
    for new in ("half \ud83d", "a\0b"):
        async with _refused(SessionError, f"importing as {new!r}"):
            await import_session(store, new, records)
    await import_session(store, "imported", await _whole(store, "s"))
    assert await _whole(other, "imported") == records
    async with _refused(SessionError, "importing over a session"):
        await import_session(store, "imported", records)


async def _sessions_are_deleted_with_what_is_theirs(store: SessionStore, other: SessionStore) -> None:
    if not isinstance(store, CanDelete) or not isinstance(other, CanDelete):
        return
    large = said("w" * 200_000, id="u")
    await append_all(store, "s", large)
    twin = await fork_session(store, "s")
    async with store.lease("s", ttl_seconds=30):
        async with _refused(SessionBusyError, "deleting a session that is in use"):
            await other.delete_session("s")
    assert await other.delete_session("s")
    assert not await other.delete_session("s")
    assert await _whole(store, "s") == ()
    assert await _whole(store, twin) == (large,)
    assert await append_all(store, "s", said("new")) == 1


async def _the_last_compaction_is_known(store: SessionStore, other: SessionStore) -> None:
    if not isinstance(other, CanSkip):
        return
    replaced = ViewReplaced(run_id="r", messages=(UserMessage(id="u", parts=(TextPart(text="short"),)),))
    await append_all(store, "s", said("a"), said("b"))
    assert await other.view_start("s") == 0
    await append_all(store, "s", replaced, said("c"))
    assert await other.view_start("s") == 2
    twin = await fork_session(store, "s", version=2)
    assert await other.view_start(twin) == 0
    assert await other.view_start(await fork_session(store, "s")) == 2


_ALL: tuple[StoreCheck, ...] = (
    _a_session_nobody_wrote_to_is_empty,
    _records_of_every_kind_come_back_equal,
    _sessions_with_odd_names_do_not_meet,
    _long_sessions_are_paged,
    _records_of_later_releases_and_damaged_ones_are_kept,
    _large_texts_and_images_come_back_whole,
    _what_looks_like_a_blob_is_left_alone,
    _another_version_is_a_conflict_and_nothing_is_written,
    _a_lease_is_for_its_session_and_ends_with_its_context,
    _one_user_at_a_time_has_the_lease,
    _a_lease_is_given_back_after_errors_and_cancels,
    _a_cancelled_append_writes_all_or_nothing,
    _racing_users_lose_nothing,
    _sessions_are_listed_newest_first,
    _texts_are_found,
    _sessions_are_renamed,
    _sessions_are_forked_at_any_message,
    _sessions_are_deleted_with_what_is_theirs,
    _the_last_compaction_is_known,
)

CHECKS: Mapping[str, StoreCheck] = MappingProxyType({check.__name__.lstrip("_"): check for check in _ALL})
"""The checks by name, for parametrised tests: each wants a fresh store and a second user of its data."""
