"""What stores over a database share: who is dead, large texts beside the records, jobs for threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import anyio
import pytest

from trilane.stores import DamagedRecord
from trilane.storing import (
    PLAIN,
    DroppedError,
    Job,
    describe_holder,
    is_gone,
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
