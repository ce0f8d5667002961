"""Connections that are lost, at any moment and over a commit; cancels; transactions in each other's way."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane import Agent, Limits, tool
from trilane.errors import SessionConflictError, SessionError, StoreError
from trilane.sessions import fork_session
from trilane.testing import ScriptedModel, assert_history, call
from trilane.testing.stores import append_all, said
from trilane_postgres import PostgresStore
from trilane_postgres.testing import TemporaryServer

pytestmark = pytest.mark.anyio

Sql = Callable[..., list[Any]]
Make = Callable[..., PostgresStore]


class Line:
    """Passes bytes between clients and the server, and cuts the line at a statement: before or after it was heard.

    `cut("COMMIT", "before")` cuts it once, when a client says so; `down` lets nobody in any more.
    """

    def __init__(self, folder: str, server: str) -> None:
        self.dsn = f"postgresql://trilane@/postgres?host={folder}"
        self.cuts: list[tuple[bytes, str]] = []
        self.down = threading.Event()
        self.down_after_cut = False
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(folder, ".s.PGSQL.5432")))
        self._listener.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, statement: str, moment: str) -> None:
        self.cuts.append((statement.encode(), moment))

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.down.is_set():
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._open += [client, server]
            deaf, heard = threading.Event(), threading.Event()
            for target in (self._to_server, self._to_client):
                threading.Thread(target=target, args=(client, server, deaf, heard), daemon=True).start()

    def _to_server(
        self, client: socket.socket, server: socket.socket, deaf: threading.Event, heard: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self.cuts and self.cuts[0][0] in data:
                    _, moment = self.cuts.pop(0)
                    if self.down_after_cut:
                        self.down.set()
                    deaf.set()
                    if moment == "after":
                        server.sendall(data)
                        heard.wait(30)  # and done
                    break
                server.sendall(data)
        for one in (client, server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _to_client(
        self, client: socket.socket, server: socket.socket, deaf: threading.Event, heard: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if deaf.is_set():
                    break
                client.sendall(data)
        heard.set()


@pytest.fixture
def line(server: TemporaryServer) -> Iterator[Line]:
    with TemporaryDirectory(prefix="trilane-line-") as folder:
        made = Line(folder, server.socket)
        yield made
        made.close()


@pytest.fixture
def far(make: Make, line: Line, dsn: str) -> PostgresStore:
    """A store whose connections can be cut."""
    return make(f"{line.dsn}&schema={dsn.rpartition('=')[2]}")


def cut_off(sql: Sql) -> None:
    """The server ends every connection but the one that says so."""
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL")


async def test_a_connection_that_was_lost_is_opened_again(store: PostgresStore, sql: Sql) -> None:
    await append_all(store, "s", said("a"))
    async with store.lease("s", ttl_seconds=30) as lease:
        cut_off(sql)
        assert await store.append("s", (said("b"),), expected_version=1, lease=lease) == 2
        cut_off(sql)
        assert (await store.load("s")).records == (said("a"), said("b"))
        cut_off(sql)
        assert [info.version for info in await store.list_sessions()] == [2]
        cut_off(sql)
        await store._keeper.run(lambda connection, job: store._book.beat(connection))
        assert lease.is_valid
        cut_off(sql)
    cut_off(sql)
    assert await append_all(store, "s", said("c")) == 3


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_commit_whose_outcome_did_not_arrive_is_looked_up(far: PostgresStore, line: Line, moment: str) -> None:
    """Cut before the server heard of it the records are written again; after it they are not."""
    await append_all(far, "s", said("a"))
    async with far.lease("s", ttl_seconds=30) as lease:
        line.cut("COMMIT", moment)
        assert await far.append("s", (said("b"), said("c")), expected_version=1, lease=lease) == 3
        assert line.cuts == []
        assert await far.append("s", (said("d"),), expected_version=3, lease=lease) == 4
    assert (await far.load("s")).records == tuple(said(text) for text in "abcd")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_first_commit_is_looked_up(far: PostgresStore, line: Line, moment: str) -> None:
    async with far.lease("s", ttl_seconds=30) as lease:
        line.cut("COMMIT", moment)
        assert await far.append("s", (said("a"),), expected_version=0, lease=lease) == 1
    assert (await far.load("s")).records == (said("a"),)


@pytest.mark.parametrize("statement", ["BEGIN", "FOR UPDATE", "INSERT INTO records", "UPDATE sessions"])
async def test_a_transaction_that_is_cut_off_is_done_again(far: PostgresStore, line: Line, statement: str) -> None:
    await append_all(far, "s", said("a"))
    async with far.lease("s", ttl_seconds=30) as lease:
        line.cut(statement, "after")
        assert await far.append("s", (said("b"),), expected_version=1, lease=lease) == 2
        assert line.cuts == []
    assert (await far.load("s")).records == (said("a"), said("b"))


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_an_append_that_is_tried_again_under_its_lease_finds_out(
    make: Make, line: Line, dsn: str, moment: str
) -> None:
    """The server stays away: the error says that it is not known. More records may come along the next time."""
    store = make(f"{line.dsn}&schema={dsn.rpartition('=')[2]}", reconnect_seconds=0.2)
    await append_all(store, "s", said("a"))
    async with store.lease("s", ttl_seconds=30) as lease:
        line.down_after_cut = True
        line.cut("COMMIT", moment)
        with pytest.raises(StoreError, match="whether they are stored is not known"):
            await store.append("s", (said("b"),), expected_version=1, lease=lease)
        line.down.clear()
        assert await store.append("s", (said("b"), said("c")), expected_version=1, lease=lease) == 3
        with pytest.raises(SessionConflictError, match="has version 3, not 1"):
            await store.append("s", (said("b"), said("c")), expected_version=1, lease=lease)
    assert (await store.load("s")).records == tuple(said(text) for text in "abc")


async def test_what_was_stored_counts_even_if_the_lease_is_gone_since(
    far: PostgresStore, other: PostgresStore, line: Line, sql: Sql
) -> None:
    """Between the commit that was cut off and the look at it somebody has taken the session over, and written."""
    await append_all(far, "s", said("a"))
    first = True
    owns = far._book.owns

    def slowly(connection: Any, lease: Any) -> bool:
        nonlocal first
        if not first:
            sql("UPDATE leases SET token = 'theirs'")
        first = False
        return owns(connection, lease)

    far._book.owns = slowly  # type: ignore[method-assign]
    async with far.lease("s", ttl_seconds=30) as lease:
        line.cut("COMMIT", "after")
        assert await far.append("s", (said("b"),), expected_version=1, lease=lease) == 2
        assert not lease.is_valid
    sql("DELETE FROM leases")
    assert (await other.load("s")).records == (said("a"), said("b"))


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_forks_and_deletions_are_looked_up_too(far: PostgresStore, line: Line, moment: str) -> None:
    await append_all(far, "s", said("a"), said("b"))
    line.cut("COMMIT", moment)
    await far.copy_session("s", "twin", version=1)
    assert (await far.load("twin")).records == (said("a"),)
    with pytest.raises(SessionError, match="there is a session 'twin' already"):
        await far.copy_session("s", "twin", version=1)
    line.cut("COMMIT", moment)
    assert await far.delete_session("s")
    assert not await far.delete_session("s")
    line.cut("COMMIT", moment)
    await far.rename_session("twin", "Twin")
    info = await far.session_info("twin")
    assert info is not None
    assert info.title == "Twin"
    assert line.cuts == []


async def test_a_run_goes_on_through_a_crash_of_the_server(store: PostgresStore, server: TemporaryServer) -> None:
    agent = Agent(ScriptedModel("One.", "Two."), store=store)
    await agent.run("1?", session="s")
    await anyio.to_thread.run_sync(lambda: server.stop(crash=True))
    restart = threading.Thread(target=server.start)
    restart.start()
    assert (await agent.run("2?", session="s")).text == "Two."
    restart.join()
    kinds = [record.kind for record in (await store.load("s")).records]
    assert kinds == ["message", "message", "run_ended"] * 2
    assert await store.check() == []


async def test_a_server_that_hangs_ends_the_run_in_order_and_what_is_stored_is_whole(
    store: PostgresStore, sql: Sql
) -> None:
    """Every backend is stopped while a tool works: its result cannot be stored, and the run says so in time."""
    stopped: list[int] = []

    @tool(effect="read")
    async def hang() -> str:
        """Hang the server."""
        stopped.extend(
            pid
            for (pid,) in sql(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        )
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        return "hung"

    limits = Limits(store_seconds=0.5)
    agent = Agent(ScriptedModel(call("hang"), "Done."), tools=[hang], store=store, limits=limits)
    try:
        with pytest.raises(StoreError, match=r"the store did not take 1 records within 0\.5 s"):
            await agent.run("Hang.", session="s")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert stopped
    other = Agent(ScriptedModel("Done."), tools=[hang], store=store)
    while store._runs._unfinished:
        await anyio.lowlevel.checkpoint()
    stopped.clear()
    records = (await store.load("s")).records
    assert [record.kind for record in records][:3] == ["message", "message", "call_started"]
    result = await other.run("And now?", session="s")
    assert result.text == "Done."
    assert_history(result.messages)


async def test_a_cancel_leaves_no_connection_in_a_transaction(store: PostgresStore, sql: Sql) -> None:
    await append_all(store, "s", said("0"))
    for number in range(25):
        async with store.lease("s", ttl_seconds=30) as lease:
            version = (await store.load("s", limit=0)).version
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(_append, store, version, lease)
                    for _ in range(number):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            while store._runs._unfinished:
                await anyio.lowlevel.checkpoint()
        page = await store.load("s")
        assert page.version in (version, version + 2)
        assert len(page.records) == page.version
        states = sql("SELECT DISTINCT state FROM pg_stat_activity WHERE state LIKE 'idle in%%'")
        assert states == []


async def _append(store: PostgresStore, version: int, lease: Any) -> None:
    await store.append("s", (said("x"), said("y")), expected_version=version, lease=lease)


async def test_a_lease_that_was_invalidated_writes_nothing_any_more(store: PostgresStore) -> None:
    """The run gave up the write because it took too long: what is not committed yet is rolled back."""
    async with store.lease("s", ttl_seconds=30) as lease:
        owns = store._book.owns

        def slowly(connection: Any, ours: Any) -> bool:
            answer = owns(connection, ours)
            ours.invalidate()
            return answer

        store._book.owns = slowly  # type: ignore[method-assign]
        with pytest.raises(SessionConflictError, match="the lease is not valid any more; nothing was written"):
            await store.append("s", (said("late"),), expected_version=0, lease=lease)
    assert (await store.load("s")).version == 0


async def test_what_others_keep_locked_is_named(make: Make, server: TemporaryServer, dsn: str) -> None:
    import psycopg

    store = make(busy_seconds=0.1)
    async with store.lease("s", ttl_seconds=30) as lease:
        with psycopg.connect(server.dsn) as connection:
            connection.execute(f"SET search_path TO {dsn.rpartition('=')[2]}")
            connection.execute("SELECT * FROM leases FOR UPDATE")
            with pytest.raises(StoreError, match=r"another connection kept it locked; .*or raise busy_seconds"):
                await store.append("s", (said("a"),), expected_version=0, lease=lease)
        assert await store.append("s", (said("a"),), expected_version=0, lease=lease) == 1


async def test_texts_that_are_deleted_and_used_at_the_same_moment_stay(
    store: PostgresStore, other: PostgresStore
) -> None:
    large = said("w" * 50_000, id="u")

    async def use(name: str) -> None:
        for number in range(12):
            await append_all(store, f"{name}{number}", large)

    async def forget(name: str) -> None:
        for number in range(12):
            await append_all(other, f"{name}-gone{number}", large)
            await other.delete_session(f"{name}-gone{number}")

    async def branch() -> None:
        await append_all(other, "trunk", large)
        for number in range(12):
            await fork_session(other, "trunk", f"branch{number}")

    async with anyio.create_task_group() as group:
        for name in "ab":
            group.start_soon(use, name)
            group.start_soon(forget, name)
        group.start_soon(branch)
    for info in await store.list_sessions():
        assert (await store.load(info.id)).records == (large,), info.id
    assert await store.check() == []
