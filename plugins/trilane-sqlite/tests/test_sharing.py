"""Several users of one file: leases that run out, fencing, dead owners, event loops, processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane.errors import SessionBusyError, SessionConflictError, StoreError
from trilane.testing.races import race
from trilane.testing.stores import append_all, said
from trilane_sqlite import SqliteStore

pytestmark = pytest.mark.anyio

LATER = 3600.0


def late(store: SqliteStore) -> SqliteStore:
    """The same store an hour later: every lease that is not renewed has run out."""
    store._book.clock = lambda: time.time() + LATER
    return store


async def test_a_lease_that_ran_out_is_taken_over_and_fences_the_first_owner(
    store: SqliteStore, other: SqliteStore
) -> None:
    async with store.lease("s", ttl_seconds=30) as first:
        await store.append("s", (said("mine"),), expected_version=0, lease=first)
        async with late(other).lease("s", ttl_seconds=30) as second:
            with pytest.raises(SessionConflictError, match="the lease ran out or was taken over"):
                await store.append("s", (said("late"),), expected_version=1, lease=first)
            assert not first.is_valid
            await other.append("s", (said("theirs"),), expected_version=1, lease=second)
    assert (await store.load("s")).records == (said("mine"), said("theirs"))


async def test_a_lease_that_ran_out_is_lost_even_if_nobody_wants_it(store: SqliteStore) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        late(store)
        with pytest.raises(SessionConflictError, match="did not renew it in time; nothing was written"):
            await store.append("s", (said("late"),), expected_version=0, lease=lease)
    assert (await store.load("s")).version == 0


async def beat(store: SqliteStore) -> None:
    await store._worker.run(lambda connection, job: store._book.beat(connection))


async def test_leases_are_renewed_by_the_heartbeat(store: SqliteStore, path: Path) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        due = store._book.due_in()
        assert due is not None
        assert 9 < due <= 10
        start = time.time()
        store._book.clock = lambda: start + 29
        await beat(store)
        store._book.clock = lambda: start + 58
        assert await store.append("s", (said("a"),), expected_version=0, lease=lease) == 1
    assert store._book.due_in() is None


async def test_the_heartbeat_beats_by_itself(store: SqliteStore) -> None:
    beaten = threading.Event()
    book_beat = store._book.beat

    def watched(connection: sqlite3.Connection) -> None:
        book_beat(connection)
        beaten.set()

    store._book.beat = watched  # type: ignore[method-assign]
    async with store.lease("s", ttl_seconds=0.9) as lease:
        assert await anyio.to_thread.run_sync(beaten.wait, 30)
        assert lease.is_valid


async def test_the_heartbeat_notices_that_a_lease_is_lost(store: SqliteStore, path: Path) -> None:
    async with store.lease("s", ttl_seconds=30) as lease:
        connection = sqlite3.connect(path)
        connection.execute("UPDATE leases SET token = 'taken'")
        connection.commit()
        connection.close()
        assert lease.is_valid
        await beat(store)
        assert not lease.is_valid
        assert store._book.due_in() is None


async def test_a_busy_session_names_its_owner(store: SqliteStore, other: SqliteStore) -> None:
    async with store.lease("s", ttl_seconds=30):
        with pytest.raises(SessionBusyError, match=r"session 's' is in use by this process; wait for its run"):
            async with other.lease("s", ttl_seconds=30):
                pass


async def test_a_cancelled_wait_for_a_lease_leaves_nothing_behind(store: SqliteStore, other: SqliteStore) -> None:
    for _ in range(20):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def take() -> None:
                    async with store.lease("s", ttl_seconds=30):
                        await anyio.sleep_forever()

                group.start_soon(take)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        await store.view_start("s")  # whatever was posted has been done
        assert await append_all(other, "s") == 0


async def test_a_closed_store_says_so(store: SqliteStore) -> None:
    await append_all(store, "s", said("a"))
    store.close()
    with pytest.raises(StoreError, match="the store was closed; make another SqliteStore"):
        await store.load("s")


def test_one_store_serves_several_event_loops_at_once(store: SqliteStore) -> None:
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
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

    async def count() -> list[int]:
        return [info.version for info in await store.list_sessions()]

    assert anyio.run(count) == [20] * 4


def test_a_store_outlives_the_event_loops_it_was_used_in(store: SqliteStore) -> None:
    async def add() -> int:
        return await append_all(store, "s", said("a"))

    assert [anyio.run(add, backend=backend) for backend in ("asyncio", "trio", "asyncio")] == [1, 2, 3]


# ---- processes ------------------------------------------------------------------------------------------------------

_CHILD = """
import sys, anyio
from trilane.errors import SessionBusyError
from trilane.testing.stores import said
from trilane_sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1], synchronous="normal")
    done = 0
    while done < int(sys.argv[3]):
        try:
            async with store.lease("s", ttl_seconds=30) as lease:
                version = (await store.load("s", limit=0)).version
                await store.append("s", (said(f"{sys.argv[2]}-{done}"),), expected_version=version, lease=lease)
                done += 1
        except SessionBusyError:
            pass
    store.close()

anyio.run(main)
"""


def test_processes_that_race_for_a_session_lose_nothing(path: Path) -> None:
    """Each write by exactly one owner, none lost, none twice; and the file is never said to be locked."""
    rounds, names = 25, ("a", "b", "c")
    children = [
        subprocess.Popen([sys.executable, "-c", _CHILD, str(path), name, str(rounds)], stderr=subprocess.PIPE)
        for name in names
    ]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert (child.returncode, errors.decode()) == (0, "")

    async def read() -> Any:
        store = SqliteStore(path)
        try:
            return (await store.load("s")).records
        finally:
            store.close()

    written = [record.message.id for record in anyio.run(read)]
    assert len(written) == rounds * len(names)
    for name in names:
        assert [id for id in written if id.startswith(f"u-{name}-")] == [f"u-{name}-{n}" for n in range(rounds)]


def test_two_processes_that_race_for_one_session_have_one_owner_each_time() -> None:
    """A sample of `python -m trilane.testing.races --store sqlite --rounds 1000`."""
    outcome = race("sqlite", 25)
    assert outcome.problems == []
    assert len(outcome.owners) == 25


_OWNER = """
import sys, anyio
from trilane.errors import SessionConflictError
from trilane.testing.stores import said
from trilane_sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1], synchronous="normal")
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


def owner(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


async def test_a_stopped_owner_whose_lease_ran_out_cannot_write_when_it_wakes(store: SqliteStore, path: Path) -> None:
    with owner(path) as child:
        try:
            os.kill(child.pid, signal.SIGSTOP)
            with pytest.raises(SessionBusyError, match=f"in use by process {child.pid}"):
                await append_all(store, "s", said("too early"))
            assert await append_all(late(store), "s", said("taken over")) == 2
            os.kill(child.pid, signal.SIGCONT)
            told, _ = child.communicate("go on\n", timeout=30)
        finally:
            child.kill()
    assert told.count("refused: session 's': the lease") == 2
    assert "written" not in told.splitlines()
    assert (await store.load("s")).records == (said("before"), said("taken over"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody can tell that a process is dead")
async def test_the_lease_of_a_killed_process_need_not_be_waited_for(store: SqliteStore, path: Path) -> None:
    with owner(path) as child:
        child.kill()
    assert await append_all(store, "s", said("at once")) == 2
