"""Several users of one schema: leases that run out, fencing, dead owners, event loops, processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane.errors import SessionBusyError, SessionConflictError, StoreError
from trilane.storing import this_process
from trilane.testing.races import race
from trilane.testing.stores import append_all, said
from trilane_postgres import PostgresStore

pytestmark = pytest.mark.anyio

Sql = Callable[..., list[Any]]
Make = Callable[..., PostgresStore]


def let_leases_run_out(sql: Sql) -> None:
    """As if nobody had renewed any for an hour."""
    sql("UPDATE leases SET expires = expires - interval '1 hour'")


async def test_a_lease_that_ran_out_is_taken_over_and_fences_the_first_owner(
    store: PostgresStore, other: PostgresStore, sql: Sql
) -> None:
    async with store.lease("s", ttl_seconds=30) as first:
        await store.append("s", (said("mine"),), expected_version=0, lease=first)
        let_leases_run_out(sql)
        async with other.lease("s", ttl_seconds=30) as second:
            assert first.is_valid  # as far as this process knows: the database knows better
            with pytest.raises(SessionConflictError, match="the lease ran out or was taken over"):
                await store.append("s", (said("late"),), expected_version=1, lease=first)
            assert not first.is_valid
            await other.append("s", (said("theirs"),), expected_version=1, lease=second)
    assert (await store.load("s")).records == (said("mine"), said("theirs"))


async def test_a_lease_that_ran_out_is_lost_even_if_nobody_wants_it(store: PostgresStore, sql: Sql) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        let_leases_run_out(sql)
        with pytest.raises(SessionConflictError, match="did not renew it in time; nothing was written"):
            await store.append("s", (said("late"),), expected_version=0, lease=lease)
    assert (await store.load("s")).version == 0


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


async def test_the_heartbeat_beats_by_itself(store: PostgresStore) -> None:
    beaten = threading.Event()
    book_beat = store._book.beat

    def watched(connection: Any) -> None:
        book_beat(connection)
        beaten.set()

    store._book.beat = watched  # type: ignore[method-assign]
    async with store.lease("s", ttl_seconds=0.9) as lease:
        assert await anyio.to_thread.run_sync(beaten.wait, 30)
        assert lease.is_valid


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


async def test_a_busy_session_names_its_owner(store: PostgresStore, other: PostgresStore) -> None:
    async with store.lease("s", ttl_seconds=30):
        with pytest.raises(SessionBusyError, match=r"session 's' is in use by this process; wait for its run"):
            async with other.lease("s", ttl_seconds=30):
                pass


async def test_an_owner_on_another_machine_is_named_and_waited_for(store: PostgresStore, sql: Sql) -> None:
    import json

    await append_all(store, "s", said("a"))
    holder = json.dumps({**json.loads(this_process()), "host": "harbour", "boot": "another", "start": "1"})
    sql("INSERT INTO leases VALUES ('s', 'theirs', %s, clock_timestamp() + interval '20 seconds')", holder)
    with pytest.raises(SessionBusyError, match=rf"in use by process {os.getpid()} on harbour; .* for (20|19) s"):
        await append_all(store, "s", said("b"))
    let_leases_run_out(sql)
    assert await append_all(store, "s", said("b")) == 2


async def test_a_cancelled_wait_for_a_lease_leaves_nothing_behind(store: PostgresStore, other: PostgresStore) -> None:
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


def test_one_store_serves_several_event_loops_at_once(store: PostgresStore) -> None:
    failures: list[BaseException] = []

    def work(name: str, backend: str) -> None:
        async def main() -> None:
            for number in range(20):
                await append_all(store, name, said(f"{name}{number}"))

        try:
            anyio.run(main, backend=backend)
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(f"{backend}{number}", backend))
        for backend in ("asyncio", "trio")
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

    async def count() -> list[int]:
        return [info.version for info in await store.list_sessions()]

    assert anyio.run(count) == [20] * 6


def test_a_store_outlives_the_event_loops_it_was_used_in(store: PostgresStore) -> None:
    async def add() -> int:
        return await append_all(store, "s", said("a"))

    assert [anyio.run(add, backend=backend) for backend in ("asyncio", "trio", "asyncio")] == [1, 2, 3]


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


# ---- processes ------------------------------------------------------------------------------------------------------


def test_two_processes_that_race_for_one_session_have_one_owner_each_time(dsn: str) -> None:
    """A sample of `python -m trilane_postgres.testing python -m trilane.testing.races --store postgres: …`."""
    outcome = race(dsn, 25, backend="trio")
    assert outcome.problems == []
    assert len(outcome.owners) == 25


_OWNER = """
import sys, anyio
from trilane.errors import SessionConflictError
from trilane.testing.stores import said
from trilane_postgres import PostgresStore

async def main():
    store = PostgresStore(sys.argv[1])
    async with store.lease("s", ttl_seconds=30) as lease:
        await store.append("s", (said("before"),), expected_version=0, lease=lease)
        print("ready", flush=True)
        sys.stdin.readline()
        for version in (1, 2):
            try:
                await store.append("s", (said("after"),), expected_version=version, lease=lease)
                print("written", flush=True)
            except SessionConflictError as error:
                print("refused:", error, flush=True)
    store.close()

anyio.run(main)
"""


def owner(dsn: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", _OWNER, dsn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


async def test_a_stopped_owner_whose_lease_ran_out_cannot_write_when_it_wakes(
    store: PostgresStore, dsn: str, sql: Sql
) -> None:
    with owner(dsn) as child:
        try:
            os.kill(child.pid, signal.SIGSTOP)
            with pytest.raises(SessionBusyError, match=f"in use by process {child.pid}"):
                await append_all(store, "s", said("too early"))
            let_leases_run_out(sql)
            assert await append_all(store, "s", said("taken over")) == 2
            os.kill(child.pid, signal.SIGCONT)
            told, _ = child.communicate("go on\n", timeout=30)
        finally:
            child.kill()
    assert told.count("refused: session 's': the lease") == 2
    assert "written" not in told.splitlines()
    assert (await store.load("s")).records == (said("before"), said("taken over"))


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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody can tell that a process is dead")
async def test_the_lease_of_a_killed_process_need_not_be_waited_for(store: PostgresStore, dsn: str) -> None:
    with owner(dsn) as child:
        child.kill()
    assert await append_all(store, "s", said("at once")) == 2
