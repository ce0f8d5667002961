"""The file: schema versions, damage, checks, backups, permissions."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from trilane import Agent
from trilane.errors import ConfigError, SessionError, StoreError
from trilane.testing import ScriptedModel
from trilane.testing.stores import append_all, said, sample_records
from trilane_sqlite import SqliteStore, schema

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parent / "data"


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


# ---- schema versions ------------------------------------------------------------------------------------------------


def test_a_file_of_every_schema_version_is_kept() -> None:
    kept = {file.name for file in DATA.glob("schema-*.sqlite3")}
    assert kept == {f"schema-{version}.sqlite3" for version in range(1, schema.SCHEMA_VERSION + 1)}


@pytest.mark.parametrize("name", sorted(file.name for file in DATA.glob("schema-*.sqlite3")))
async def test_files_of_every_schema_version_open_and_go_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    shutil.copy(DATA / name, path)
    store = SqliteStore(path)
    assert (await store.load("sample")).records == sample_records()
    large, mood = (await store.load("large")).records
    assert large == said("whale " * 5000, id="u1")
    assert (mood.kind, mood.to_json()) == ("newer", '{"kind":"mood","run_id":"r"}')
    titles = {info.id: (info.title, info.version, info.forked_from) for info in await store.list_sessions()}
    assert titles == {"sample": ("", 10, ""), "large": ("A large one", 2, ""), "fork": ("", 3, "sample")}
    assert list(await store.check()) == []
    result = await Agent(ScriptedModel("Yes."), store=store).run("Still there?", session="large")
    assert result.output == "Yes."
    store.close()


async def test_a_migration_runs_once_and_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    await append_all(store, "s", said("a"))
    store.close()

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'good'")
        raise sqlite3.OperationalError("no more")

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="no more"):
        await store.load("s")
    store.close()

    def works(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'good'")

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:-1], works))
    for _ in range(2):
        store = SqliteStore(path)
        assert (await store.load("s")).records == (said("a"),)
        store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT mood FROM sessions").fetchall() == [("good",)]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()


async def test_a_file_of_a_later_release_is_refused_and_not_touched(store: SqliteStore, path: Path) -> None:
    await append_all(store, "s", said("a"))
    store.close()
    edit(path, "PRAGMA user_version = 99")
    later = SqliteStore(path)
    with pytest.raises(StoreError, match=r"has schema version 99, .* a later release wrote it\. Upgrade"):
        await later.load("s")
    later.close()


async def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bank.sqlite3"
    edit(path, "CREATE TABLE accounts (owner TEXT)")
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="is a database of something else; give the sessions a file of their own"):
        await store.load("s")
    store.close()


# ---- places ---------------------------------------------------------------------------------------------------------


async def test_file_and_folder_are_for_their_owner_only(store: SqliteStore, path: Path) -> None:
    await append_all(store, "s", said("a"))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700


async def test_a_folder_is_explained(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(StoreError, match=r"is a folder\. Give the path of a file that you may write"):
        await store.load("s")
    store.close()


async def test_no_file_in_memory(tmp_path: Path) -> None:
    store = SqliteStore(":memory:")
    with pytest.raises(ConfigError, match="wants the path of a file, not ':memory:'; trilane"):
        await store.load("s")
    store.close()


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = SqliteStore(tmp_path / "file" / "s.sqlite3")
    with pytest.raises(StoreError, match=r"s\.sqlite3 cannot be made: .*\. Check the folder"):
        await store.load("s")
    store.close()


# ---- damage ---------------------------------------------------------------------------------------------------------


async def test_damaged_records_are_isolated(store: SqliteStore, path: Path) -> None:
    await append_all(store, "s", *[said(str(number)) for number in range(5)])
    await append_all(store, "large", said("whale " * 5000))
    store.close()
    edit(
        path,
        "UPDATE records SET body = CAST(x'7bff' AS TEXT) WHERE key % 4294967296 = 2",
        "DELETE FROM records WHERE key % 4294967296 = 4",
        "DELETE FROM blobs",
    )
    again = SqliteStore(path)
    kinds = [record.kind for record in (await again.load("s")).records]
    assert kinds == ["message", "damaged", "message", "damaged", "message"]
    problems = await again.check()
    assert [problem.split(":")[0] for problem in problems] == ["session 's'", "session 's'", "session 'large'"]
    assert "record 2 of 5 is damaged: it is no JSON" in problems[0]
    assert "record 4 of 5 is damaged: record 4 is missing from the file" in problems[1]
    assert "record 1 of 1 is damaged: a part of it is gone" in problems[2]
    model = ScriptedModel("Yes.")
    await Agent(model, store=again).run("Still there?", session="s")
    assert [message.text for message in model.requests[0].messages] == ["0", "2", "4", "Still there?"]  # type: ignore[union-attr]
    again.close()


async def test_records_that_are_nested_too_deeply_are_isolated(store: SqliteStore, path: Path) -> None:
    await append_all(store, "s", said("first"), said("second"))
    await append_all(store, "large", said("whale " * 5000), said("whale"))
    store.close()
    deep = "[" * 100_000 + "]" * 100_000
    edit(path, f'UPDATE records SET body = \'{{"kind":"message","whale":{deep}}}\' WHERE key % 4294967296 = 1')
    again = SqliteStore(path)
    for session in ("s", "large"):
        assert [record.kind for record in (await again.load(session)).records] == ["damaged", "message"]
    assert [hit.position for hit in await again.search_sessions("whale")] == [2]
    problems = await again.check()
    assert len(problems) == 2
    assert "session 's': record 1 of 2 is damaged: it is nested too deeply to be read" in problems[0]
    again.close()


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


async def _filled(path: Path) -> None:
    store = SqliteStore(path)
    for number in range(10):
        await append_all(store, f"s{number}", *[said(f"{number}.{place} " + "x" * 1000) for place in range(20)])
    store.close()
    edit(path, "PRAGMA wal_checkpoint(TRUNCATE)")


async def test_a_file_with_a_page_of_rubbish_gives_what_can_be_read(path: Path) -> None:
    await _filled(path)
    whole = read(path)
    at = whole.index(b"7.5 xxx") // 4096 * 4096
    write(path, whole[:at] + b"\xa5" * 4096 + whole[at + 4096 :])
    store = SqliteStore(path)
    problems = await store.check()
    assert any(str(path) in problem for problem in problems)
    assert any("is in a damaged part of the file" in problem for problem in problems)
    readable = damaged = 0
    for number in range(10):
        for record in (await store.load(f"s{number}")).records:
            if record.kind == "damaged":
                damaged += 1
                assert "damaged part of the file" in record.reason
            else:
                readable += 1
    assert damaged > 0
    assert readable > 180
    assert readable + damaged == 200
    store.close()


async def test_a_truncated_file_is_reported(path: Path) -> None:
    await _filled(path)
    whole = read(path)
    write(path, whole[: len(whole) // 2 // 4096 * 4096])
    store = SqliteStore(path)
    problems = list(await store.check())
    assert any("is in a damaged part of the file" in problem for problem in problems)
    readable = 0
    for info in await store.list_sessions():
        readable += sum(record.kind == "message" for record in (await store.load(info.id)).records)
    assert 50 < readable < 200
    with pytest.raises(StoreError, match=r"the file is damaged and can only be read.*restore a backup"):
        await append_all(store, "s1", said("more"))
    assert read(path) == whole[: len(whole) // 2 // 4096 * 4096]
    store.close()


@pytest.mark.parametrize("content", [b"not a database, but a long enough text to be read as one" * 99, b"\x00" * 5000])
async def test_rubbish_instead_of_a_file_is_said_to_be_rubbish(path: Path, content: bytes) -> None:
    write(path, content)
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=r"file is not a database; the file is damaged.*restore a backup"):
        await store.load("s")
    assert read(path) == content
    store.close()


# ---- backups --------------------------------------------------------------------------------------------------------


async def test_a_backup_is_whole_and_never_replaces_a_file(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    await append_all(store, "s", *sample_records(), said("whale " * 5000))
    target = tmp_path / "copy.sqlite3"
    async with store.lease("s", ttl_seconds=30):
        await store.back_up(target)
    copy = SqliteStore(target)
    assert (await copy.load("s")).records == (await store.load("s")).records
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    copy.close()
    before = read(target)
    with pytest.raises(SessionError, match="exists; a backup never replaces a file"):
        await store.back_up(target)
    assert read(target) == before
    with pytest.raises(SessionError, match=r"the backup of .* failed"):
        await store.back_up(tmp_path / "nowhere" / "copy.sqlite3")
    assert [name for name in os.listdir(tmp_path) if "unfinished" in name] == []


async def test_blobs_go_with_the_last_session_that_uses_them(store: SqliteStore, path: Path) -> None:
    def blobs() -> Any:
        connection = sqlite3.connect(path)
        try:
            return connection.execute("SELECT count(*) FROM blobs").fetchone()[0]
        finally:
            connection.close()

    await append_all(store, "a", said("whale " * 5000, id="u"))
    await append_all(store, "b", said("whale " * 5000, id="u"), said("ship " * 5000, id="v"))
    assert blobs() == 2
    await store.delete_session("b")
    assert blobs() == 1
    await store.delete_session("a")
    assert blobs() == 0


def test_a_file_whose_tables_another_process_makes_meanwhile_is_one_of_sessions(tmp_path: Path) -> None:
    path = str(tmp_path / "sessions.sqlite3")
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("PRAGMA journal_mode = WAL")
    made: list[str] = []

    def meanwhile(statement: str) -> None:
        if "sqlite_master" in statement and not made:
            made.append(statement)
            schema.connect(path, busy_seconds=5, synchronous="normal").close()

    first.set_trace_callback(meanwhile)
    schema._migrate(first, path)
    assert made
    assert first.execute("PRAGMA user_version").fetchone()[0] == len(schema.MIGRATIONS)
    first.close()
