"""Several users of one schema: what all stores promise that processes share, its heartbeat, and its connections."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane.errors import SessionBusyError, StoreError
from trilane.storing import this_process
from trilane.testing.sharing import SHARING_CHECKS, SharedStore
from trilane.testing.stores import append_all, said
from trilane_postgres import PostgresStore

pytestmark = pytest.mark.anyio

Sql = Callable[..., list[Any]]
Make = Callable[..., PostgresStore]


def let_leases_run_out(sql: Sql) -> None:
    """As if nobody had renewed any for an hour."""
    sql("UPDATE leases SET expires = expires - interval '1 hour'")


@pytest.fixture
def shared(dsn: str, sql: Sql) -> SharedStore:
    return SharedStore(make=lambda: PostgresStore(dsn), address=dsn, run_out=lambda: let_leases_run_out(sql))


@pytest.mark.parametrize("name", SHARING_CHECKS)
async def test_sharing(shared: SharedStore, name: str) -> None:
    await SHARING_CHECKS[name](shared)


async def beat(store: PostgresStore) -> None:
    store._book.postpone()
    await store._keeper.run(lambda connection, job: store._book.beat(connection))


async def test_leases_are_renewed_by_the_heartbeat(store: PostgresStore, sql: Sql) -> None:
    left = "SELECT extract(epoch FROM expires - clock_timestamp())::float8 FROM leases"
    async with store.lease("s", ttl_seconds=30) as lease:
        due = store._book.due_in()
        assert due is not None
        assert 9 < due <= 10
        for _ in range(3):  # after 75 seconds in all
            sql("UPDATE leases SET expires = expires - interval '25 seconds'")
            await beat(store)
        assert 25 < sql(left)[0][0] <= 30
        assert await store.append("s", (said("a"),), expected_version=0, lease=lease) == 1
    assert store._book.due_in() is None


async def test_the_heartbeat_notices_that_a_lease_is_lost(store: PostgresStore, sql: Sql) -> None:
    async with store.lease("s", ttl_seconds=30) as lost, store.lease("t", ttl_seconds=30) as kept:
        sql("UPDATE leases SET token = 'taken' WHERE session = 's'")
        assert lost.is_valid
        await beat(store)
        assert not lost.is_valid
        assert kept.is_valid


async def test_a_lease_that_a_write_has_locked_does_not_keep_the_others_from_being_renewed(
    store: PostgresStore, server: Any, dsn: str
) -> None:
    import psycopg

    async with store.lease("s", ttl_seconds=30) as locked, store.lease("t", ttl_seconds=30) as free:
        with psycopg.connect(server.dsn) as connection:
            connection.execute(f"SET search_path TO {dsn.rpartition('=')[2]}")
            connection.execute("SELECT * FROM leases WHERE session = 's' FOR UPDATE")
            connection.execute("SELECT clock_timestamp()")
            before = free.until  # type: ignore[attr-defined]
            await beat(store)
            assert free.until > before  # type: ignore[attr-defined]
            assert locked.is_valid
            due = store._book.due_in()
            assert due is not None
            assert due < 1  # it is tried again soon
        await beat(store)
        assert locked.is_valid


async def test_an_owner_on_another_machine_is_named_and_waited_for(store: PostgresStore, sql: Sql) -> None:
    import json

    await append_all(store, "s", said("a"))
    holder = json.dumps({**json.loads(this_process()), "host": "harbour", "boot": "another", "start": "1"})
    sql("INSERT INTO leases VALUES ('s', 'theirs', %s, clock_timestamp() + interval '20 seconds')", holder)
    with pytest.raises(SessionBusyError, match=rf"in use by process {os.getpid()} on harbour; .* for (20|19) s"):
        await append_all(store, "s", said("b"))
    let_leases_run_out(sql)
    assert await append_all(store, "s", said("b")) == 2


async def test_after_a_cancelled_wait_for_a_lease_nothing_is_renewed(
    store: PostgresStore, other: PostgresStore
) -> None:
    for number in range(30):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def take() -> None:
                    async with store.lease("s", ttl_seconds=30):
                        await anyio.sleep_forever()

                group.start_soon(take)
                for _ in range(number % 5):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        while store._runs._unfinished:
            await anyio.lowlevel.checkpoint()
        assert store._book.due_in() is None
        assert await append_all(other, "s") == 0


async def test_a_closed_store_says_so(store: PostgresStore) -> None:
    await append_all(store, "s", said("a"))
    store.close()
    with pytest.raises(StoreError, match="the store was closed; make another PostgresStore"):
        await store.load("s")


async def test_no_more_connections_than_said_and_none_when_it_is_closed(make: Make, dsn: str, sql: Sql) -> None:
    name = f"counted_{dsn.rpartition('_')[2]}"
    store = make(f"{dsn}&application_name={name}", connections=2)

    async def write(session: str) -> None:
        for number in range(5):
            await append_all(store, session, said(str(number)))

    async with anyio.create_task_group() as group:
        for session in "abcdefgh":
            group.start_soon(write, session)
    await store.list_sessions()
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    assert sql(count, name)[0][0] <= 3
    store.close()
    while sql(count, name)[0][0]:  # the server takes a moment to notice
        pass


async def test_a_store_that_nobody_has_any_more_lets_go_of_its_connections(dsn: str, sql: Sql) -> None:
    import gc
    import weakref

    name = f"dropped_{dsn.rpartition('_')[2]}"
    store = PostgresStore(f"{dsn}&application_name={name}")
    await append_all(store, "s", said("a"))
    await store.list_sessions()
    threads = [thread for pool in store._pools for thread in pool._threads]
    assert threads
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join, 30)
        assert not thread.is_alive()
    while sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", name)[0][0]:
        pass  # the server takes a moment to notice


# ---- a process that is stopped ---------------------------------------------------------------------------------------

_STOPPED = """
import os, signal, sys, anyio
from trilane.errors import SessionConflictError
from trilane.testing.stores import said
from trilane_postgres import PostgresStore, schema

schema.IDLE_SECONDS = 0.5

async def main():
    store = PostgresStore(sys.argv[1])
    async with store.lease("s", ttl_seconds=30) as lease:
        owns = store._book.owns

        def stopped(connection, lease):
            answer = owns(connection, lease)
            if not hasattr(lease, "again"):
                lease.again = True
                os.kill(os.getpid(), signal.SIGSTOP)
            return answer

        store._book.owns = stopped
        try:
            await store.append("s", (said("late"),), expected_version=0, lease=lease)
            print("written", flush=True)
        except SessionConflictError as error:
            print("refused:", error, flush=True)
    store.close()

anyio.run(main)
"""


def stopped_owner(dsn: str) -> subprocess.Popen[str]:
    """A process that has stopped itself in its transaction."""
    child = subprocess.Popen([sys.executable, "-c", _STOPPED, dsn], stdout=subprocess.PIPE, text=True)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    return child


async def test_an_owner_that_was_stopped_in_the_middle_of_a_write_is_cut_off_and_writes_nothing(
    store: PostgresStore, dsn: str, sql: Sql
) -> None:
    """It has locked its lease. The server ends its transaction, so that others can have the session."""
    with stopped_owner(dsn) as child:
        try:
            let_leases_run_out(sql)  # waits for the lock, as long as the server leaves it to the stopped one
            assert await append_all(store, "s", said("taken over")) == 1
            os.kill(child.pid, signal.SIGCONT)
            told, _ = child.communicate(timeout=30)
        finally:
            child.kill()
    assert told.startswith("refused: session 's': the lease ran out or was taken over")
    assert (await store.load("s")).records == (said("taken over"),)
