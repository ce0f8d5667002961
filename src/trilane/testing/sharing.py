"""What a store must do that several processes share: leases that run out, fencing, dead owners, event loops, races.

`await check_sharing(make)` runs all checks; a test suite rather runs `SHARING_CHECKS` one by one:

```python
@pytest.mark.parametrize("name", SHARING_CHECKS)
async def test_sharing(shared: SharedStore, name: str) -> None:
    await SHARING_CHECKS[name](shared)
```

What every store does, also one that lives in one process, is in `stores.py`. Nothing here imports pytest.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread

from trilane._backend import current_backend
from trilane.errors import SessionBusyError, SessionConflictError
from trilane.stores import Lease, SessionStore

from ._checks import run_checks
from ._partner import Partner
from .races import _close, race
from .stores import append_all, said

__all__ = ["SHARING_CHECKS", "SharedStore", "SharingCheck", "check_sharing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStore:
    """The data that the users of a check share: empty, and its own for each check.

    Attributes:
        make: Makes a store over them: another user each time. The check closes it, if it has `close`.
        address: How other processes get one by name, as `--store` of the command line: `NAME:PLACE` or a URL. The
            plugin must be installed.
        run_out: Makes every lease that somebody has run out, past the store, as if nobody had renewed any for an hour.
    """

    make: Callable[[], SessionStore]
    address: str
    run_out: Callable[[], object]


SharingCheck: TypeAlias = Callable[[SharedStore], Awaitable[None]]
"""One check. It raises AssertionError, or whatever the store raised where it should not have."""

_TTLS = (0.6, 2.4, 9.6)  # seconds: a longer one where the machine was too busy for the heartbeat of the one before
_PATIENCE = 10.0  # seconds for what a thread of the store does behind a task that was cancelled
_ROUNDS = 25  # of the race


async def check_sharing(make: Callable[[], SharedStore]) -> None:
    """Run every check, each on data of its own.

    Raises:
        ExceptionGroup: some failed; each failure has a note with the name of its check.
    """
    await run_checks("store", SHARING_CHECKS, lambda check: check(make()))


# ---- what the checks work with --------------------------------------------------------------------------------------


@asynccontextmanager
async def _users(shared: SharedStore) -> AsyncIterator[tuple[SessionStore, SessionStore]]:
    """Two users of the same data."""
    stores = shared.make(), shared.make()
    try:
        yield stores
    finally:
        for store in stores:
            _close(store)


async def _fenced(store: SessionStore, version: int, lease: Lease, what: str) -> None:
    """A write under this lease must be refused."""
    told = ""
    try:
        await store.append("s", (said("late"),), expected_version=version, lease=lease)
    except SessionConflictError as error:
        told = str(error)
    assert told, f"{what} must raise SessionConflictError"
    assert "lease" in told, f"the error must say that it is the lease: {told}"


async def _busy(store: SessionStore, session: str) -> SessionBusyError:
    """What is said to a user who wants a session that somebody has."""
    try:
        async with store.lease(session, ttl_seconds=30):
            pass
    except SessionBusyError as error:
        return error
    raise AssertionError("entering a lease that somebody has must raise SessionBusyError")


# ---- leases ---------------------------------------------------------------------------------------------------------


async def _a_lease_that_ran_out_is_taken_over_and_fences_the_first_owner(shared: SharedStore) -> None:
    async with _users(shared) as (store, other), store.lease("s", ttl_seconds=30) as first:
        await store.append("s", (said("mine"),), expected_version=0, lease=first)
        shared.run_out()
        async with other.lease("s", ttl_seconds=30) as second:
            assert first.is_valid, "as far as this process knows it is valid: the data know better"
            await _fenced(store, 1, first, "append under a lease that was taken over")
            assert not first.is_valid, "a lease must not be valid any more once an append was refused for it"
            await other.append("s", (said("theirs"),), expected_version=1, lease=second)
        assert (await store.load("s")).records == (said("mine"), said("theirs"))


async def _a_lease_that_ran_out_is_lost_even_if_nobody_wants_it(shared: SharedStore) -> None:
    async with _users(shared) as (store, _):
        async with store.lease("s", ttl_seconds=30) as lease:
            shared.run_out()
            await _fenced(store, 0, lease, "append under a lease that ran out")
        assert (await store.load("s")).version == 0


async def _a_lease_is_renewed_as_long_as_it_is_held(shared: SharedStore) -> None:
    async with _users(shared) as (store, other):
        for number, seconds in enumerate(_TTLS):
            session = f"s{number}"
            async with store.lease(session, ttl_seconds=seconds) as lease:
                await anyio.sleep(1.5 * seconds)  # real time: the heartbeat is a thread or a server
                try:
                    await store.append(session, (said("a"),), expected_version=0, lease=lease)
                    await _busy(other, session)
                except (SessionConflictError, AssertionError):
                    continue
                assert lease.is_valid, "a lease under which can be written must be valid"
                return
        raise AssertionError("a lease must be renewed as long as its context is not left")


async def _a_busy_session_names_its_owner(shared: SharedStore) -> None:
    async with _users(shared) as (store, other), store.lease("s", ttl_seconds=30):
        told = str(await _busy(other, "s"))
        assert "session 's'" in told, f"the error must name the session: {told}"
        assert "in use by this process" in told, f"the error must name the owner, as `describe_holder` does: {told}"


async def _a_cancelled_wait_for_a_lease_leaves_nothing_behind(shared: SharedStore) -> None:
    async with _users(shared) as (store, other):
        for number in range(30):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(_hold, store)
                    for _ in range(number % 5):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            await _soon_free(other)


async def _hold(store: SessionStore) -> None:
    async with store.lease("s", ttl_seconds=30):
        await anyio.sleep_forever()


async def _soon_free(store: SessionStore) -> None:
    with anyio.move_on_after(_PATIENCE):
        while True:
            try:
                assert await append_all(store, "s") == 0
                return
            except SessionBusyError:
                await anyio.sleep(0.002)  # real time: the store gives it back in its own time
    raise AssertionError("a lease must be given back when who waited for it was cancelled")


# ---- event loops ----------------------------------------------------------------------------------------------------


def _backends() -> tuple[str, ...]:
    return ("asyncio", "trio") if importlib.util.find_spec("trio") is not None else ("asyncio",)


async def _one_store_serves_several_event_loops_at_once(shared: SharedStore) -> None:
    async with _users(shared) as (store, _):
        await anyio.to_thread.run_sync(_serve_event_loops, store)
        for name in _loops():
            assert (await store.load(name, limit=0)).version == 20, f"of 20 records in session {name!r} some are lost"


def _loops() -> list[str]:
    return [f"{backend}{number}" for backend in _backends() for number in range(3)]


def _serve_event_loops(store: SessionStore) -> None:
    failures: list[Exception] = []

    def work(name: str) -> None:
        async def main() -> None:
            for number in range(20):
                await append_all(store, name, said(f"{name}{number}"))

        try:
            anyio.run(main, backend=name.rstrip("012"))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in _loops()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ExceptionGroup("a store must serve several event loops at once", failures)


async def _a_store_outlives_the_event_loops_it_was_used_in(shared: SharedStore) -> None:
    async with _users(shared) as (store, _):

        async def add() -> int:
            return await append_all(store, "s", said("a"))

        def run_in_turn() -> list[int]:
            return [anyio.run(add, backend=backend) for backend in (*_backends(), "asyncio")]

        versions = await anyio.to_thread.run_sync(run_in_turn)
        assert versions == [1, 2, 3][: len(versions)]


# ---- processes ------------------------------------------------------------------------------------------------------


async def _two_processes_that_race_for_a_session_have_one_owner_each_time(shared: SharedStore) -> None:
    """A sample of `python -m trilane.testing.races`."""
    backend = current_backend()
    outcome = await anyio.to_thread.run_sync(lambda: race(shared.address, _ROUNDS, backend=backend))
    assert outcome.problems == []
    assert len(outcome.owners) == _ROUNDS


_OWNER = """
import sys, anyio
from trilane.errors import SessionConflictError
from trilane.testing.races import _close, _open
from trilane.testing.stores import said

async def main():
    store = _open(sys.argv[1])
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
    _close(store)

anyio.run(main)
"""


def _owner(shared: SharedStore) -> Partner:
    """A process that has the session; it has written one record, and writes more when it is told to."""
    advice = f"Look at the address {shared.address!r} that the SharedStore was given."
    return Partner("owner", [sys.executable, "-c", _OWNER, shared.address], advice=advice)


async def _a_stopped_owner_whose_lease_ran_out_cannot_write_when_it_wakes(shared: SharedStore) -> None:
    """Where processes can be stopped."""
    if sys.platform == "win32":
        return
    async with _users(shared) as (store, _):
        with _owner(shared) as owner:
            assert owner.hear() == "ready"
            os.kill(owner.pid, signal.SIGSTOP)
            told = str(await _busy(store, "s"))
            assert f"in use by process {owner.pid}" in told, f"the error must name the process that has it: {told}"
            shared.run_out()
            version = await append_all(store, "s", said("taken over"))
            assert version == 2, f"the owner has written one record, but the session has version {version - 1}"
            os.kill(owner.pid, signal.SIGCONT)
            owner.tell("go on")
            answers = [owner.hear(), owner.hear()]
        for answer in answers:
            assert answer.startswith("refused:"), f"an owner that was stopped for too long must not write: {answer}"
            assert "lease" in answer, f"the error must say that it is the lease: {answer}"
        assert (await store.load("s")).records == (said("before"), said("taken over"))


async def _the_lease_of_a_killed_process_need_not_be_waited_for(shared: SharedStore) -> None:
    """On Linux: elsewhere nobody can tell that a process is dead."""
    if sys.platform != "linux":
        return
    async with _users(shared) as (store, _):
        with _owner(shared) as owner:
            assert owner.hear() == "ready"
            owner.kill()
        version = await append_all(store, "s", said("at once"))
        assert version == 2, f"the owner has written one record, but the session has version {version - 1}"


_ALL: tuple[SharingCheck, ...] = (
    _a_lease_that_ran_out_is_taken_over_and_fences_the_first_owner,
    _a_lease_that_ran_out_is_lost_even_if_nobody_wants_it,
    _a_lease_is_renewed_as_long_as_it_is_held,
    _a_busy_session_names_its_owner,
    _a_cancelled_wait_for_a_lease_leaves_nothing_behind,
    _one_store_serves_several_event_loops_at_once,
    _a_store_outlives_the_event_loops_it_was_used_in,
    _two_processes_that_race_for_a_session_have_one_owner_each_time,
    _a_stopped_owner_whose_lease_ran_out_cannot_write_when_it_wakes,
    _the_lease_of_a_killed_process_need_not_be_waited_for,
)

SHARING_CHECKS: Mapping[str, SharingCheck] = MappingProxyType({check.__name__.lstrip("_"): check for check in _ALL})
"""The checks of stores that processes share, by name, for parametrised tests: each wants data of its own."""
