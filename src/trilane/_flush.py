"""Writing what a run has recorded to a store that has to be waited for, one group after the other.

A store in this process is written to at once, see `Core.flush`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._backend import Waiter, new_waiter
from ._records import error_line
from ._tasks import TaskHandle, wait_shielded
from .errors import StoreError

if TYPE_CHECKING:
    from ._core import Core
    from .stores import SessionRecord

__all__ = ["write"]


async def write(core: Core) -> None:
    """Write the outbox, whole, when nobody else is writing.

    Raises:
        StoreError: the store failed or was too slow; the records are back in the outbox.
    """
    if core.flushing:
        waiter = new_waiter()
        core.flush_line.append(waiter)
        try:
            await waiter.wait()
        except BaseException:
            if waiter in core.flush_line:
                core.flush_line.remove(waiter)
            elif core.flushing is waiter:
                _pass_on(core)
            raise
        if core.flushing is not waiter:
            return  # whoever wrote before took along what this task recorded
    core.flushing = True
    records, core.outbox = tuple(core.outbox), []
    try:
        if records:
            await _append(core, records)
    except StoreError:
        # The ending tries once more: under the expected version nothing can be written twice.
        core.outbox[:0] = records
        core.unsure = len(records)
        raise
    finally:
        _pass_on(core)


def _pass_on(core: Core) -> None:
    """The next one writes what has come meanwhile; if nothing has, nobody need wait any more."""
    line = core.flush_line
    if line and core.outbox:
        core.flushing = waiter = line.pop(0)  # never False in between, when somebody could tell what is not stored
        waiter.wake()
        return
    core.flushing = False
    for waiter in line:
        waiter.wake()
    line.clear()


async def _append(core: Core, records: tuple[SessionRecord, ...]) -> None:
    outcome: list[int | BaseException] = []

    async def write() -> None:
        try:
            assert core.lease is not None
            version, rest = core.version, records
            if core.unsure:  # a store may have failed when it had written already
                known = (await core.store.load(core.session_id, after=version, limit=core.unsure)).records
                if known == records[: len(known)]:
                    version, rest = version + len(known), records[len(known) :]
            if rest:
                version = await core.store.append(core.session_id, rest, expected_version=version, lease=core.lease)
            outcome.append(version)
        except BaseException as error:  # this is the whole task: nobody above could see it
            outcome.append(error)
        task.ends()

    seconds = core.limits.store_seconds
    limit = core.timers.now() + seconds
    task = TaskHandle()
    core.owner.start(task, write, now=True)  # the run does nothing else until it has ended
    cancelled = 0
    while not task.done and core.timers.now() < min(limit, core.deadline):
        cancelled += await _wait_for_write(core, task, min(limit, core.deadline))
    if not task.done:
        task.cancel()
        core.answer_tasks.append(task)
        task.on_done.append(lambda: core.answer_tasks.remove(task))
    if not outcome:
        invalidate = getattr(core.lease, "invalidate", None)
        if invalidate is not None:
            invalidate()
        raise StoreError(
            f"session {core.session_id!r}: the store did not take {len(records)} records within {seconds:g} s; "
            "the run ends, because what follows could not be kept. Check the store, or raise Limits.store_seconds."
        )
    if isinstance(outcome[0], BaseException):
        raise StoreError(f"session {core.session_id!r}: the store failed: {error_line(outcome[0])}") from outcome[0]
    core.version, core.unsure = outcome[0], 0
    if cancelled and not core.settled:  # a cancel that arrived inside the shield takes effect now
        import asyncio

        raise asyncio.CancelledError


async def _wait_for_write(core: Core, task: TaskHandle, deadline: float) -> int:
    """Wait for a write until `deadline`, or until the run's own deadline has come nearer."""
    known = core.deadline

    def subscribe(waiter: Waiter) -> None:
        task.on_done.append(waiter.wake)
        core.hurried[:] = [waiter]

    try:
        return await wait_shielded(core.timers, lambda: task.done or core.deadline < known, subscribe, deadline)
    finally:
        core.hurried.clear()
