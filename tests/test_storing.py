"""What stores over a database share: who is dead, leases, large texts beside the records, jobs for threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import anyio
import pytest

from trilane.errors import SessionConflictError
from trilane.stores import DamagedRecord
from trilane.storing import (
    PLAIN,
    DroppedError,
    HeldLeases,
    Job,
    RenewedLease,
    describe_holder,
    is_gone,
    lease_busy,
    lease_lost,
    pack,
    this_process,
    unpack,
)
from trilane.testing.stores import said


def test_who_is_dead() -> None:
    assert not is_gone(this_process())
    dead = json.loads(this_process())
    if sys.platform == "linux":
        assert is_gone(json.dumps({**dead, "start": "1"}))
        child = subprocess.Popen([sys.executable, "-c", "pass"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not collected yet
        assert is_gone(json.dumps({**dead, "pid": child.pid}))
        child.wait()
    assert not is_gone(json.dumps({**dead, "start": "1", "boot": "another"}))
    assert not is_gone(json.dumps({"pid": 1}))
    assert not is_gone("rubbish")


def test_who_it_is() -> None:
    me = json.loads(this_process())
    assert describe_holder(this_process()) == "this process"
    assert describe_holder(json.dumps({**me, "pid": 1})) == "process 1"
    assert describe_holder(json.dumps({**me, "host": "harbour"})) == f"process {os.getpid()} on harbour"
    assert describe_holder("rubbish") == "another process"


def taken(session: str, ttl_seconds: float) -> RenewedLease:
    lease = RenewedLease(session, ttl_seconds)
    lease.until = time.monotonic() + ttl_seconds
    return lease


def test_a_lease_is_valid_from_its_taking_until_it_runs_out_or_is_invalidated() -> None:
    lease = RenewedLease("s", 30)
    assert not lease.is_valid
    lease.until = time.monotonic() + 30
    assert lease.is_valid
    lease.check()
    lease.until = time.monotonic()
    assert not lease.is_valid
    lease.check()  # that is for the database to say
    lease.invalidate()
    with pytest.raises(SessionConflictError, match="session 's': the lease is not valid any more; nothing was written"):
        lease.check()
    assert lease.token != RenewedLease("s", 30).token


def test_leases_are_due_thrice_in_their_time_the_shortest_first() -> None:
    leases: HeldLeases[RenewedLease] = HeldLeases()
    assert leases.due_in() is None
    long, short = taken("s", 30), taken("t", 3)
    leases.hold(long)
    assert leases.due_in() == pytest.approx(10, abs=0.9)
    leases.hold(short)
    assert leases.due_in() == pytest.approx(1, abs=0.9)
    leases.postpone()
    assert leases.due_in() == pytest.approx(0.5, abs=0.4)
    leases.release(short)
    leases.release(short)
    leases.renewed([long], [long.token], at=time.monotonic() + 30)
    assert leases.due_in() == pytest.approx(40, abs=0.9)
    assert (leases.held(), long.is_valid, short.is_valid) == ([long], True, False)


def test_what_was_not_renewed_is_lost_unless_that_is_unknown() -> None:
    leases: HeldLeases[RenewedLease] = HeldLeases()
    kept, lost, locked = (taken(session, 30) for session in "stu")
    for lease in (kept, lost, locked):
        leases.hold(lease)
    until = locked.until
    leases.postpone()
    leases.renewed([kept, lost, locked], {kept.token}, at=time.monotonic() + 9, unknown={locked.token})
    assert leases.held() == [kept, locked]
    assert (kept.is_valid, lost.is_valid, locked.is_valid) == (True, False, True)
    assert kept.until > until == locked.until
    assert leases.due_in() == pytest.approx(0.5, abs=0.4)  # the one that is unknown is tried again soon


def test_who_is_refused_is_told_why() -> None:
    assert str(lease_busy("s", this_process(), 12.3)) == (
        "session 's' is in use by this process; wait for its run, or for 12 s should that be dead"
    )
    assert str(lease_lost("s")) == (
        "session 's': the lease ran out or was taken over, for this process did not renew it in time; nothing was "
        "written. Load the session again, or resume it."
    )


def test_small_records_stay_as_they_are_and_large_ones_come_back() -> None:
    small, large = said("a"), said("x" * 50_000)
    assert (pack(small).body, pack(small).packed, pack(small).blobs) == (small.to_json(), PLAIN, {})
    packed = pack(large)
    assert len(packed.body) < 500
    assert unpack(packed.body, packed.packed, packed.blobs.__getitem__) == large.to_json()
    assert packed.uses == set(packed.blobs)


def test_damaged_text_that_no_database_takes_is_kept_beside() -> None:
    damaged = DamagedRecord(raw="a\x00b", reason="it is no JSON")
    packed = pack(damaged)
    assert "\x00" not in packed.body
    assert unpack(packed.body, packed.packed, packed.blobs.__getitem__) == damaged.to_json()


@pytest.mark.anyio
async def test_a_job_that_nobody_waits_for_has_no_effect_or_all_of_it() -> None:
    dropped: Job[int] = Job()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await dropped.wait()
    assert dropped.dropped
    with pytest.raises(DroppedError):
        dropped.seal()
    sealed: Job[int] = Job()
    sealed.seal()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await sealed.wait()
    assert sealed.sealed
    assert not sealed.dropped


@pytest.mark.anyio
async def test_a_thread_hands_over_a_value_or_an_error() -> None:
    good, bad = Job[int](), Job[int]()

    def work() -> None:
        good.finish(3, None)
        bad.finish(None, KeyError("k"))

    thread = threading.Thread(target=work)
    thread.start()
    assert await good.wait() == 3
    with pytest.raises(KeyError):
        await bad.wait()
    thread.join()


def test_an_event_loop_that_has_ended_needs_no_outcome() -> None:
    async def make() -> Job[int]:
        return Job()

    for backend in ("asyncio", "trio"):
        anyio.run(make, backend=backend).finish(1, None)
    Job[int](awaited=False).finish(1, None)
