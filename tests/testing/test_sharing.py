"""The suite for stores that processes share finds what is wrong; good stores pass it in the tests of the plugins."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trilane.errors import SessionConflictError
from trilane.stores import Lease, SessionPage, SessionRecord
from trilane.storing import RenewedLease, lease_busy, lease_lost, this_process
from trilane.testing import sharing
from trilane.testing.sharing import SHARING_CHECKS, SharedStore, check_sharing

pytestmark = pytest.mark.anyio

IN_THIS_PROCESS = [name for name in SHARING_CHECKS if "process" not in name and "stopped" not in name]


class Data:
    """What the users share, in this process only; leases as token and when they run out."""

    def __init__(self) -> None:
        self.records: dict[str, list[SessionRecord]] = {}
        self.leases: dict[str, tuple[str, float]] = {}
        self.lock = threading.Lock()

    def run_out(self) -> None:
        self.leases = {session: (token, until - 3600) for session, (token, until) in self.leases.items()}


class Store:
    """One user of them."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.process = this_process()

    def take(self, lease: RenewedLease) -> None:
        with self.data.lock:
            _, until = self.data.leases.get(lease.session, ("", 0.0))
            if until > time.monotonic():
                raise lease_busy(lease.session, self.process, until - time.monotonic())
            lease.until = time.monotonic() + self.seconds(lease)
            self.data.leases[lease.session] = (lease.token, lease.until)

    def seconds(self, lease: RenewedLease) -> float:
        return max(30.0, lease.ttl_seconds)  # instead of a heartbeat

    def give_back(self, lease: RenewedLease) -> None:
        lease.invalidate()
        if self.data.leases.get(lease.session, ("", 0.0))[0] == lease.token:
            del self.data.leases[lease.session]

    @asynccontextmanager
    async def lease(self, session: str, *, ttl_seconds: float) -> AsyncIterator[Lease]:
        lease = RenewedLease(session, ttl_seconds)
        self.take(lease)
        try:
            yield lease
        finally:
            self.give_back(lease)

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        records = self.data.records.get(session, [])
        end = len(records) if limit is None else after + limit
        return SessionPage(records=tuple(records[after:end]), version=len(records))

    def check(self, lease: RenewedLease) -> None:
        token, until = self.data.leases.get(lease.session, ("", 0.0))
        if token != lease.token or until <= time.monotonic():
            lease.invalidate()
            raise lease_lost(lease.session)

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        assert isinstance(lease, RenewedLease)
        self.check(lease)
        self.data.records.setdefault(session, []).extend(records)
        return len(self.data.records[session])


class Unfenced(Store):
    def check(self, lease: RenewedLease) -> None:
        pass


class Vague(Store):
    def check(self, lease: RenewedLease) -> None:
        try:
            super().check(lease)
        except SessionConflictError:
            raise SessionConflictError("no") from None


class Dozing(Store):
    def seconds(self, lease: RenewedLease) -> float:
        return lease.ttl_seconds


class Anonymous(Store):
    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.process = ""


class Forgetful(Store):
    def give_back(self, lease: RenewedLease) -> None:
        lease.invalidate()


class Tied(Store):
    """To the thread that made it."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.thread = threading.get_ident()

    def take(self, lease: RenewedLease) -> None:
        if threading.get_ident() != self.thread:
            raise RuntimeError("another event loop")
        super().take(lease)


class Deaf(Store):
    """Whoever has the lease."""

    def take(self, lease: RenewedLease) -> None:
        lease.until = time.monotonic() + 30
        self.data.leases[lease.session] = (lease.token, lease.until)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_TTLS", (0.01, 0.02))
    monkeypatch.setattr(sharing, "_PATIENCE", 0.05)
    monkeypatch.setattr(sharing, "_ROUNDS", 1)


def shared(store: type[Store], address: str = "") -> SharedStore:
    data = Data()
    return SharedStore(make=lambda: store(data), address=address, run_out=data.run_out)


@pytest.mark.parametrize("name", IN_THIS_PROCESS)
async def test_a_good_store_passes(name: str) -> None:
    await SHARING_CHECKS[name](shared(Store))


@pytest.mark.parametrize(
    ("store", "check", "says"),
    [
        (Unfenced, "a_lease_that_ran_out_is_taken_over_and_fences_the_first_owner", "append under a lease that was"),
        (Vague, "a_lease_that_ran_out_is_taken_over_and_fences_the_first_owner", "must say that it is the lease: no"),
        (Unfenced, "a_lease_that_ran_out_is_lost_even_if_nobody_wants_it", "append under a lease that ran out must"),
        (Dozing, "a_lease_is_renewed_as_long_as_it_is_held", "a lease must be renewed"),
        (Anonymous, "a_busy_session_names_its_owner", "the error must name the owner, as `describe_holder` does"),
        (Deaf, "a_busy_session_names_its_owner", "must raise SessionBusyError"),
        (Forgetful, "a_cancelled_wait_for_a_lease_leaves_nothing_behind", "a lease must be given back"),
        (Tied, "one_store_serves_several_event_loops_at_once", "a store must serve several event loops at once"),
        (Tied, "a_store_outlives_the_event_loops_it_was_used_in", "another event loop"),
    ],
)
async def test_each_check_finds_a_bad_store(store: type[Store], check: str, says: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, ExceptionGroup)) as caught:
        await SHARING_CHECKS[check](shared(store))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("two_processes_that_race_for_a_session_have_one_owner_each_time", "the process 'left' has ended"),
        ("a_stopped_owner_whose_lease_ran_out_cannot_write_when_it_wakes", "the process 'owner' has ended"),
        ("the_lease_of_a_killed_process_need_not_be_waited_for", "Look at the address 'nowhere:'"),
    ],
)
async def test_an_address_that_is_none_is_told(check: str, says: str) -> None:
    with pytest.raises(AssertionError, match=r"no plugin 'nowhere' is installed") as caught:
        await SHARING_CHECKS[check](shared(Store, "nowhere:"))
    assert says in str(caught.value)


async def test_a_store_that_is_not_the_one_of_the_address_is_found(tmp_path: Path) -> None:
    first, second = (shared(Store, f"sqlite:{tmp_path}/{name}") for name in "ab")
    with pytest.raises(AssertionError, match="a lease that somebody has must raise SessionBusyError"):
        await SHARING_CHECKS["a_stopped_owner_whose_lease_ran_out_cannot_write_when_it_wakes"](first)
    with pytest.raises(AssertionError, match="written one record, but the session has version 0"):
        await SHARING_CHECKS["the_lease_of_a_killed_process_need_not_be_waited_for"](second)


async def test_all_failures_come_as_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SHARING_CHECKS", {name: SHARING_CHECKS[name] for name in IN_THIS_PROCESS})
    await check_sharing(lambda: shared(Store))
    with pytest.raises(ExceptionGroup, match="2 of 7 checks of the store failed") as caught:
        await check_sharing(lambda: shared(Unfenced))
    assert [failure.__notes__ for failure in caught.value.exceptions] == [
        [f"in the check {name!r}"] for name in IN_THIS_PROCESS if "ran_out" in name
    ]


def test_each_check_has_a_bad_store() -> None:
    cases = [
        case[place]
        for test, place in ((test_each_check_finds_a_bad_store, 1), (test_an_address_that_is_none_is_told, 0))
        for mark in test.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
        for case in mark.args[1]
    ]
    assert set(cases) == set(SHARING_CHECKS)
