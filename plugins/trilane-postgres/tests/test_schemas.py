"""Schemas of other versions, what is damaged, and databases that cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane import Agent, tool
from trilane.errors import SessionError, StoreError
from trilane.messages import ImagePart, TextPart, UserMessage
from trilane.stores import MessageStored
from trilane.testing import FunctionModel, ScriptedModel, assert_history, call
from trilane.testing.stores import append_all, said
from trilane_postgres import PostgresStore, schema
from trilane_postgres.reading import ODD_LETTERS
from trilane_postgres.testing import TemporaryServer

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parent / "data"
KEPT = sorted(file.name for file in DATA.glob("schema-*.sql"))

Sql = Callable[..., list[Any]]
Make = Callable[..., PostgresStore]


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """One backend: all of this happens in threads. How tasks wait for these is tested elsewhere on both."""
    return str(request.param)


# ---- versions of the schema -----------------------------------------------------------------------------------------


def test_a_schema_of_every_version_is_kept() -> None:
    assert sorted(f"schema-{version}.sql" for version in range(1, schema.SCHEMA_VERSION + 1)) == KEPT


@pytest.mark.parametrize("name", KEPT)
async def test_schemas_of_every_version_open_and_go_on(make: Make, dsn: str, sql: Sql, name: str) -> None:
    sql(f"CREATE SCHEMA {dsn.rpartition('=')[2]}")
    sql((DATA / name).read_text(encoding="utf-8"))
    bodies = dict(sql("SELECT position, body FROM records WHERE session = 1 AND packed = 0"))
    store = make()
    records = (await store.load("old")).records
    assert [record.kind for record in records[-4:]] == ["view_replaced", "run_ended", "newer", "message"]
    told = {number: json.loads(record.to_json()) for number, record in enumerate(records[:-1], 1)}
    stored = {number: json.loads(body) for number, body in bodies.items()}
    # A release may know fields that the one that wrote them did not.
    assert {number: {key: told[number].get(key) for key in body} for number, body in stored.items()} == stored
    assert told.keys() == stored.keys()
    assert records[-1] == said("x" * 16385, id="large")
    assert await store.view_start("old") == 8
    infos = {info.id: (info.title, info.version, info.forked_from) for info in await store.list_sessions()}
    assert infos == {"old": ("Päivää", 12, ""), "branch": ("", 5, "old")}
    assert await store.check() == []
    result = await Agent(ScriptedModel("Yes."), store=store).run("Still there?", session="branch")
    assert result.output == "Yes."
    await append_all(store, "new", said("x" * 16385, id="large"))
    assert sql("SELECT version FROM trilane_schema") == [(schema.SCHEMA_VERSION,)]


async def test_a_migration_runs_once_and_whole(make: Make, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    await append_all(make(), "s", said("a"))

    def broken(connection: Any) -> None:
        connection.execute("ALTER TABLE sessions ADD COLUMN mood text NOT NULL DEFAULT 'good'")
        connection.execute("SELECT no_such_function()")

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    with pytest.raises(StoreError, match="no_such_function"):
        await make().load("s")

    def works(connection: Any) -> None:
        connection.execute("ALTER TABLE sessions ADD COLUMN mood text NOT NULL DEFAULT 'good'")

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:-1], works))
    stores = [make() for _ in range(4)]
    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(store.load, "s")
    assert (await stores[0].load("s")).records == (said("a"),)
    assert sql("SELECT mood FROM sessions") == [("good",)]
    assert sql("SELECT version FROM trilane_schema") == [(schema.SCHEMA_VERSION + 1,)]


async def test_many_that_make_the_schema_at_once_make_it_once(make: Make, sql: Sql) -> None:
    stores = [make() for _ in range(6)]
    async with anyio.create_task_group() as group:
        for number, store in enumerate(stores):
            group.start_soon(append_all, store, f"s{number}", said("a"))
    assert sql("SELECT count(*) FROM sessions") == [(6,)]


async def test_whoever_only_looks_makes_no_tables(make: Make, dsn: str, sql: Sql) -> None:
    store = make()
    assert (
        list(await store.list_sessions()) == list(await store.search_sessions("a")) == list(await store.check()) == []
    )
    assert await store.session_info("s") is None
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
    assert sql(schemas, dsn.rpartition("=")[2]) == [(0,)]
    await append_all(store, "s", said("a"))
    assert [info.id for info in await store.list_sessions()] == ["s"]


async def test_a_schema_of_a_later_release_is_refused_and_not_touched(make: Make, sql: Sql) -> None:
    await append_all(make(), "s", said("a"))
    sql("UPDATE trilane_schema SET version = 99")
    with pytest.raises(StoreError, match=r"has schema version 99, .* a later release wrote it\. Upgrade"):
        await make().load("s")


async def test_a_schema_of_something_else_is_refused(make: Make, dsn: str, sql: Sql) -> None:
    sql(f"CREATE SCHEMA {dsn.rpartition('=')[2]} CREATE TABLE sessions (key text)")
    with pytest.raises(StoreError, match="has tables of something else; give the sessions a schema of their own"):
        await make().load("s")
    assert sql("SELECT count(*) FROM sessions") == [(0,)]


async def test_a_database_that_cannot_keep_every_text_is_refused(make: Make, dsn: str, sql: Sql) -> None:
    sql("DROP DATABASE IF EXISTS narrow")
    sql("CREATE DATABASE narrow ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreError, match="has the encoding LATIN1, which cannot keep every text"):
        await make(dsn.replace("/postgres?", "/narrow?")).load("s")


async def test_a_user_who_may_not_make_the_schema_is_told(make: Make, dsn: str, sql: Sql) -> None:
    sql("DROP ROLE IF EXISTS guest")
    sql("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreError, match=r"permission denied .*; grant this user USAGE and CREATE on the schema"):
        await make(dsn.replace("trilane@", "guest@")).load("s")


async def test_an_id_that_is_too_long_for_an_index_is_explained(store: PostgresStore) -> None:
    odd = "".join(chr(0x4E00 + number) for number in range(3000))
    with pytest.raises(StoreError, match="an id of a session may have about 2,600 bytes"):
        await append_all(store, odd, said("a"))


# ---- damage ---------------------------------------------------------------------------------------------------------


async def test_damaged_records_are_isolated(store: PostgresStore, sql: Sql) -> None:
    image = MessageStored(run_id="r1", message=UserMessage(id="u", parts=(ImagePart(data="QUJD" * 9000),)))
    await append_all(store, "s", said("a"), said("b"), said("c"), said("d" * 20_000, id="d"), said("e"), image)
    await append_all(store, "t", said("elsewhere"))
    assert await store.check() == []
    sql("UPDATE records SET body = 'rubbish' WHERE position = 2")
    sql("DELETE FROM records WHERE position = 3")
    sql("ALTER TABLE blob_uses DROP CONSTRAINT blob_uses_blob_fkey")
    sql("DELETE FROM blobs WHERE length(content) = 20000")
    records = (await store.load("s")).records
    assert [record.kind for record in records] == ["message", "damaged", "damaged", "damaged", "message", "message"]
    assert records[0] == said("a")
    assert records[5] == image
    reasons = [record.reason for record in records if record.kind == "damaged"]
    assert reasons[0].startswith("it is no JSON")
    assert reasons[1] == "record 3 is missing from the database"
    assert reasons[2].startswith("a part of it is gone: there is no blob")
    problems = await store.check()
    assert [problem.partition(" is damaged")[0] for problem in problems] == [
        f"session 's': record {position} of 6" for position in (2, 3, 4)
    ]
    result = await Agent(ScriptedModel("Yes."), store=store).run("Go on?", session="s")
    assert result.output == "Yes."
    assert [hit.position for hit in await store.search_sessions("e") if hit.session == "s"] == [5, 8]


async def test_what_should_not_be_there_is_reported(store: PostgresStore, sql: Sql) -> None:
    await append_all(store, "s", said("a"))
    sql("INSERT INTO records SELECT session, position + 1, kind, packed, body FROM records")
    sql("INSERT INTO records SELECT session + 100, position, kind, packed, body FROM records")
    sql("INSERT INTO blobs VALUES ('lonely', 'x')")
    assert await store.check() == [
        "session 's': has 1 records beyond its version 1",
        "2 records belong to no session; they are harmless",
        "1 large texts belong to no session; they are harmless",
    ]
    assert (await store.load("s")).records == (said("a"),)


async def test_a_page_of_rubbish_costs_only_what_was_in_it(
    store: PostgresStore, server: TemporaryServer, sql: Sql
) -> None:
    records = tuple(said(f"{number} {'x' * 500}", id=f"u{number}") for number in range(200))
    await append_all(store, "s", *records)
    sql("CHECKPOINT")
    folder, path = sql("SHOW data_directory")[0][0], sql("SELECT pg_relation_filepath('records')")[0][0]
    await anyio.to_thread.run_sync(server.stop)
    with open(os.path.join(folder, path), "r+b") as file:  # noqa: ASYNC230
        file.seek(3 * 8192)
        file.write(b"rubbish " * 1024)
    await anyio.to_thread.run_sync(server.start)
    found = (await store.load("s")).records
    assert len(found) == 200
    lost = [number for number, record in enumerate(found) if record.kind == "damaged"]
    assert 5 <= len(lost) <= 20
    assert all(found[number] == records[number] for number in range(200) if number not in lost)
    reason = found[lost[0]]
    assert reason.kind == "damaged"
    assert "is in a damaged part of the database: invalid page in block 3" in reason.reason
    assert len(await store.check()) >= len(lost)


# ---- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a\nb\r\nc\r", "\"quoted\" 'and' \\back\\slashes\\n", "a\x00b", "\U0001f600 \u2028"])
async def test_f053_f054_text_is_the_same_after_it_was_kept(make: Make, text: str) -> None:
    @tool
    async def odd() -> Any:
        """Return something odd."""
        return {"key\x00": text, "text": [text]}

    result = await Agent(ScriptedModel(call("odd"), text), tools=[odd], store=make()).run(text, session="s")
    model = ScriptedModel("More.")
    await Agent(model, tools=[odd], store=make()).run("And?", session="s")
    kept = model.requests[0].messages
    assert kept[: len(result.messages)] == result.messages
    assert "\x00" not in str([message.to_json() for message in kept])
    assert_history(kept, as_request=True)


def test_the_letters_that_the_server_cannot_fold_are_all_known() -> None:
    letters = map(chr, range(0x80, 0x20000))
    assert {letter for letter in letters if any(part.isascii() for part in letter.casefold())} == set(ODD_LETTERS)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Straße", "STRASSE"),
        ("STRASSE", "straße"),
        ("ﬁsh", "FISH"),
        ("100%_sure", "0%_S"),
        ("a\\b", "A\\B"),
    ],
)
async def test_a_search_finds_what_differs_by_case_only(store: PostgresStore, text: str, wanted: str) -> None:
    await append_all(store, "s", said(f"it is {text} here", id="u"), said("something else", id="v"))
    assert [hit.position for hit in await store.search_sessions(wanted)] == [1]


async def test_a_search_that_nobody_waits_for_ends(store: PostgresStore, sql: Sql) -> None:
    await append_all(store, "s", *[said(f"ship {number}") for number in range(500)])
    for number in range(10):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(store.search_sessions, "no such text")
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
    assert len(await store.search_sessions("ship", limit=600)) == 500
    assert sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%%'") == [(0,)]


async def test_large_texts_go_with_the_last_session_that_uses_them(store: PostgresStore, sql: Sql) -> None:
    large = MessageStored(run_id="r", message=UserMessage(id="u", parts=(TextPart(text="w" * 50_000),)))
    await append_all(store, "s", large)
    await store.copy_session("s", "twin", version=1)
    assert await store.delete_session("s")
    assert sql("SELECT count(*) FROM blobs") == [(1,)]
    assert (await store.load("twin")).records == (large,)
    assert await store.delete_session("twin")
    for table in ("blobs", "blob_uses", "records", "sessions", "leases"):
        assert sql(f"SELECT count(*) FROM {table}") == [(0,)], table
    with pytest.raises(SessionError, match="it belonged to a session that was deleted"):
        await store.read_blob("0" * 64)


async def test_f091_the_tables_grow_by_what_is_said_and_not_by_all_that_was(store: PostgresStore, sql: Sql) -> None:
    agent = Agent(FunctionModel(lambda request, emit: "x" * 2000), store=store)
    for _ in range(20):
        await agent.run("y" * 2000, session="s")
    assert sql("SELECT sum(length(body)) < 20 * 6000 FROM records") == [(True,)]
