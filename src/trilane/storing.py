"""What session stores over a database share: large texts beside the records, leases, work for threads.

`pack` takes large texts out of a record and `unpack` puts them back. `this_process` names the holder of a lease so that
`is_gone` can tell whether it died. `HeldLeases` knows when each `RenewedLease` of a store has to be renewed. A `Job` is
work for a thread that owns a connection, awaited by a task of asyncio or trio. What a store must do is in `stores.py`;
the databases are in plugins.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from platform import node
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from .errors import SessionBusyError, SessionConflictError

if TYPE_CHECKING:
    from .stores import SessionRecord

__all__ = [
    "PLAIN",
    "REFERENCE",
    "DroppedError",
    "HeldLeases",
    "Job",
    "Packed",
    "RenewedLease",
    "describe_holder",
    "is_gone",
    "lease_busy",
    "lease_lost",
    "pack",
    "this_process",
    "unpack",
]

T = TypeVar("T")

# ---- large texts beside the records ---------------------------------------------------------------------------------

#: A string of so many characters is kept beside its record.
LARGE = 16_384  # characters

#: How a record is stored: as it is, with strings taken out, or altogether as one blob.
PLAIN, WITHOUT_STRINGS, WHOLE = 0, 1, 2

#: What stands for a large `data`, in records as programs see them.
REFERENCE = "$blob"
_MARK = "$trilane-text"


@dataclass(slots=True)
class Packed:
    """A record as it is stored.

    Attributes:
        body: Its JSON, or the id of the blob that it is.
        packed: `PLAIN`, `WITHOUT_STRINGS` or `WHOLE`.
        blobs: Texts by id that have to be stored.
        uses: Ids of all blobs that the record needs.
    """

    body: str
    packed: int = PLAIN
    blobs: dict[str, str] = field(default_factory=dict)
    uses: set[str] = field(default_factory=set)

    def take_out(self, text: str) -> str:
        """Keep a text beside the record; returns its id."""
        blob = sha256(text.encode()).hexdigest()
        self.blobs[blob] = text
        self.uses.add(blob)
        return blob


def pack(record: SessionRecord) -> Packed:
    """A record as it is to be stored."""
    text = record.to_json()
    packed = Packed(text)
    if record.kind in ("newer", "damaged"):  # these come back letter by letter
        if len(text) > LARGE or "\0" in text:  # not every database has texts with that
            packed.body, packed.packed = packed.take_out(text), WHOLE
        return packed
    if len(text) <= LARGE and REFERENCE not in text and _MARK not in text:
        return packed
    value = json.loads(text)
    if record.kind == "call_finished":
        value["result"]["data"] = _data(packed, value["result"].get("data"))
    value = _without_strings(packed, value)
    packed.body, packed.packed = _dumps(value), WITHOUT_STRINGS
    return packed


def unpack(body: str, packed: int, fetch: Callable[[str], str]) -> str:
    """The JSON of a record as it was stored; `fetch` finds the text of a blob."""
    if packed == WHOLE:
        return fetch(body)
    return _dumps(_with_strings(json.loads(body), fetch))


def _data(packed: Packed, data: Any) -> Any:
    if isinstance(data, dict) and set(data) == {REFERENCE, "characters"} and isinstance(data[REFERENCE], str):
        packed.uses.add(data[REFERENCE])  # a record that was read, and is written again
        return data
    text = _dumps(data)
    if len(text) <= LARGE:
        return data
    return {REFERENCE: packed.take_out(text), "characters": len(text)}


def _without_strings(packed: Packed, value: Any) -> Any:
    if isinstance(value, str):
        return {_MARK: packed.take_out(value)} if len(value) > LARGE else value
    if isinstance(value, list):
        return [_without_strings(packed, item) for item in value]
    if isinstance(value, dict):
        inner = {key: _without_strings(packed, item) for key, item in value.items()}
        return {_MARK: None, "value": inner} if _MARK in value else inner
    return value


def _with_strings(value: Any, fetch: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_with_strings(item, fetch) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: _with_strings(item, fetch) for key, item in value.items()}
    if value[_MARK] is None:
        return {key: _with_strings(item, fetch) for key, item in value["value"].items()}
    return fetch(value[_MARK])


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---- who holds a lease, and is it dead? ------------------------------------------------------------------------------


def this_process() -> str:
    """Who we are, so that others can tell whether we are dead."""
    pid = os.getpid()
    return json.dumps({"pid": pid, "start": _start_of(pid), "host": node(), **_place()}, separators=(",", ":"))


def is_gone(holder: str) -> bool:
    """True if the process is known to be dead. Where that cannot be known its lease has to run out."""
    try:
        found = json.loads(holder)
        pid, start = int(found["pid"]), str(found["start"])
    except (ValueError, KeyError, TypeError):
        return False
    place = _place()
    if not start or not place or any(found.get(key) != value for key, value in place.items()):
        return False
    return _start_of(pid) != start


def _place() -> dict[str, str]:
    """What makes a process id mean the same process: this boot of this machine, and this container."""
    if sys.platform != "linux":
        return {}
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return {"boot": file.read().strip(), "pids": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return {}


def _start_of(pid: int) -> str:
    """When a process was started; empty if there is none of that id, or if it is dead and only not collected yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def describe_holder(holder: str) -> str:
    """The process that `this_process` wrote, for messages."""
    try:
        found = json.loads(holder)
        pid, host = int(found["pid"]), str(found.get("host", ""))
    except (ValueError, KeyError, TypeError):
        return "another process"
    if host and host != node():
        return f"process {pid} on {host}"
    return "this process" if pid == os.getpid() else f"process {pid}"


# ---- leases, and when they are renewed -------------------------------------------------------------------------------

RENEWALS = 3  # in the time a lease lasts
AGAIN_SECONDS = 0.5  # after a renewal that failed


class RenewedLease:
    """The right to append to one session, as long as its store renews it: what `SessionStore.lease` yields.

    Args:
        session: The session it is for.
        ttl_seconds: How long it lasts after each renewal.

    Attributes:
        session: The session it is for.
        token: What tells it from every other lease, in the database.
        ttl_seconds: How long it lasts after each renewal.
        until: When it runs out unless it is renewed, in monotonic time; the store sets it when it has taken the lease.
    """

    def __init__(self, session: str, ttl_seconds: float) -> None:
        self.session = session
        self.token = os.urandom(12).hex()
        self.ttl_seconds = ttl_seconds
        self.until = 0.0
        self._ended = False

    @property
    def is_valid(self) -> bool:
        """False once it ran out, was lost or given back, as far as this process knows."""
        return not self._ended and time.monotonic() < self.until

    def invalidate(self) -> None:
        """Nothing more is written under it, not even what is being written now and not committed yet."""
        self._ended = True

    def check(self) -> None:
        """It was not invalidated. Whether it ran out the database knows better.

        Raises:
            SessionConflictError: it was invalidated.
        """
        if self._ended:
            raise SessionConflictError(
                f"session {self.session!r}: the lease is not valid any more; nothing was written. Load it again."
            )


L = TypeVar("L", bound=RenewedLease)


class HeldLeases(Generic[L]):
    """The leases that a store holds, and when its heartbeat has to renew them. For any thread.

    A subclass has the statements. Its heartbeat waits for `due_in`, calls `postpone`, renews what is in `held` and says
    with `renewed` what came of it.
    """

    def __init__(self) -> None:
        self._held: list[L] = []
        self._lock = threading.Lock()
        self._next = 0.0

    def hold(self, lease: L) -> None:
        """From now on the heartbeat renews it.

        Args:
            lease: One that was taken: its `until` is set.
        """
        with self._lock:
            self._held.append(lease)
            self._next = min(self._next, _due(lease)) if len(self._held) > 1 else _due(lease)

    def release(self, lease: L) -> None:
        """The heartbeat renews it no longer, and it is not valid any more. May be called again."""
        lease.invalidate()
        with self._lock:
            if lease in self._held:
                self._held.remove(lease)

    def held(self) -> list[L]:
        """Those to renew."""
        with self._lock:
            return list(self._held)

    def due_in(self) -> float | None:
        """Seconds until leases have to be renewed; None if none is held."""
        with self._lock:
            return self._next - time.monotonic() if self._held else None

    def postpone(self) -> None:
        """Renewing begins. Should it fail, it is tried again soon."""
        with self._lock:
            self._next = time.monotonic() + AGAIN_SECONDS

    def renewed(
        self, leases: Iterable[L], tokens: Collection[str], *, at: float, unknown: Collection[str] = ()
    ) -> None:
        """What came of renewing: the rest is lost, and released.

        Args:
            leases: Those that were to be renewed.
            tokens: Of those that were.
            at: The monotonic time before it was done: they last from then.
            unknown: Tokens of those that could not be renewed now and are not lost. They are tried again soon.
        """
        for lease in leases:
            if lease.token in tokens:
                lease.until = at + lease.ttl_seconds
            elif lease.token not in unknown:
                self.release(lease)
        if not unknown:
            with self._lock:
                self._next = min((_due(lease) for lease in self._held), default=0.0)


def _due(lease: RenewedLease) -> float:
    return lease.until - lease.ttl_seconds + lease.ttl_seconds / RENEWALS


def lease_busy(session: str, holder: str, seconds: float) -> SessionBusyError:
    """The error to raise where somebody has the lease.

    Args:
        session: The session.
        holder: Who, as `this_process` wrote it there.
        seconds: How long the lease still lasts.
    """
    return SessionBusyError(
        f"session {session!r} is in use by {describe_holder(holder)}; wait for its run, or for {seconds:.0f} s should "
        "that be dead"
    )


def lease_lost(session: str) -> SessionConflictError:
    """The error to raise for a write under a lease that is in the database no longer, or has run out there.

    Args:
        session: The session.
    """
    return SessionConflictError(
        f"session {session!r}: the lease ran out or was taken over, for this process did not renew it in time; "
        "nothing was written. Load the session again, or resume it."
    )


# ---- work for the thread of a connection -----------------------------------------------------------------------------


class DroppedError(Exception):
    """The job is not wanted any more: whoever waited for it was cancelled before it was committed."""


class Job(Generic[T]):
    """One piece of work for a thread, and the wait for its outcome in the task that makes it.

    A task that is cancelled while it waits drops its job, and the thread asks with `seal` before it commits: so a job
    that nobody waits for is either rolled back, or done whole.

    Args:
        awaited: True if the running task will await `wait`; False for work whose outcome nobody wants.
    """

    def __init__(self, *, awaited: bool = True) -> None:
        self._arrival = _arrival() if awaited else None
        self._lock = threading.Lock()
        self._dropped = self._sealed = False
        self._value: T | None = None
        self._error: BaseException | None = None

    async def wait(self) -> T:
        """Wait until the thread has finished it; returns what it made of it, or raises what it raised there."""
        assert self._arrival is not None, "a job that is not awaited"
        try:
            await self._arrival.wait()
        except BaseException:
            self.drop()
            raise
        if self._error is not None:
            raise self._error
        value: Any = self._value
        outcome: T = value
        return outcome

    def drop(self) -> None:
        """Nobody waits any more: unless it is being committed already, it shall have no effect."""
        with self._lock:
            self._dropped = not self._sealed

    @property
    def dropped(self) -> bool:
        """True if it shall have no effect."""
        return self._dropped

    @property
    def sealed(self) -> bool:
        """True once its commit has begun: from then on it may have had its effect."""
        return self._sealed

    def seal(self) -> None:
        """The commit begins. From the thread.

        Raises:
            DroppedError: the job was dropped.
        """
        with self._lock:
            if self._dropped:
                raise DroppedError
            self._sealed = True

    def finish(self, value: T | None, error: BaseException | None) -> None:
        """Hand over the outcome: a value, or an error. From the thread."""
        self._value, self._error = value, error
        if self._arrival is not None:
            self._arrival.tell()


class _Arrival(Protocol):
    def tell(self) -> None: ...
    async def wait(self) -> None: ...


def _arrival() -> _Arrival:
    """Something that the running task can wait for and the thread can tell."""
    lowlevel = sys.modules.get("trio.lowlevel")
    if lowlevel is not None and lowlevel.in_trio_task():
        return _TrioArrival()
    return _AsyncioArrival()


class _AsyncioArrival:
    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._future: Any = self._loop.create_future()

    def tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._set)
        except RuntimeError:
            pass  # the event loop has ended: nobody waits

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        await self._future


class _TrioArrival:
    def __init__(self) -> None:
        import trio

        self._token = trio.lowlevel.current_trio_token()
        self._event = trio.Event()
        self._gone = trio.RunFinishedError

    def tell(self) -> None:
        try:
            self._token.run_sync_soon(self._event.set)
        except self._gone:
            pass  # the event loop has ended: nobody waits

    async def wait(self) -> None:
        await self._event.wait()
