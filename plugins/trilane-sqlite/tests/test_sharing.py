"""Several users of one file: what all stores promise that processes share, its heartbeat, and races of processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane.errors import StoreError
from trilane.testing.sharing import SHARING_CHECKS, SharedStore
from trilane.testing.stores import append_all, said
from trilane_sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def shared(path: Path) -> SharedStore:
    def run_out() -> None:
        connection = sqlite3.connect(path)
        connection.execute("UPDATE leases SET expires = expires - 3600")
        connection.commit()
        connection.close()

    return SharedStore(make=lambda: SqliteStore(path, synchronous="normal"), address=f"sqlite:{path}", run_out=run_out)


@pytest.mark.parametrize("name", SHARING_CHECKS)
async def test_sharing(shared: SharedStore, name: str) -> None:
    await SHARING_CHECKS[name](shared)


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


async def test_a_closed_store_says_so(store: SqliteStore) -> None:
    await append_all(store, "s", said("a"))
    store.close()
    with pytest.raises(StoreError, match="the store was closed; make another SqliteStore"):
        await store.load("s")


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
