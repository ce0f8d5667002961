"""Who may append to which session: rows of the table `leases`, renewed by one heartbeat of the store.

A lease that has run out is lost for good, even if nobody else wanted it: whoever was stopped that long must load the
session again. One whose process is known to be dead need not be waited for.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable

from trilane.errors import SessionBusyError, SessionConflictError
from trilane.storing import describe_holder, is_gone, this_process

__all__ = ["LeaseBook", "SqliteLease"]

RENEWALS = 3  # in the time a lease lasts
AGAIN_SECONDS = 0.5  # after a renewal that failed


class SqliteLease:
    """The right to append to one session of a file."""

    def __init__(self, session: str, ttl_seconds: float) -> None:
        self.session = session
        self.token = os.urandom(12).hex()
        self.ttl_seconds = ttl_seconds
        self.until = 0.0  # in monotonic time
        self._ended = False

    @property
    def is_valid(self) -> bool:
        """False once it ran out, was lost or given back."""
        return not self._ended and time.monotonic() < self.until

    def invalidate(self) -> None:
        """Nothing more is written under it, not even what is being written now and not committed yet."""
        self._ended = True

    def check(self) -> None:
        """
        Raises:
            SessionConflictError: it was invalidated.
        """
        if self._ended:
            raise SessionConflictError(
                f"session {self.session!r}: the lease is not valid any more; nothing was written. Load it again."
            )


class LeaseBook:
    """The leases that this store holds, and the statements about them. Used in the thread of the store's worker."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._held: list[SqliteLease] = []
        self._lock = threading.Lock()
        self._next = 0.0

    def take(self, connection: sqlite3.Connection, lease: SqliteLease) -> None:
        """In a transaction: take a lease.

        Raises:
            SessionBusyError: somebody has it.
        """
        now = self.clock()
        row = connection.execute("SELECT holder, expires FROM leases WHERE session = ?", (lease.session,)).fetchone()
        if row is not None and row[1] > now and not is_gone(row[0]):
            raise SessionBusyError(
                f"session {lease.session!r} is in use by {describe_holder(row[0])}; wait for its run, or for "
                f"{row[1] - now:.0f} s should that be dead"
            )
        connection.execute(
            "INSERT OR REPLACE INTO leases (session, token, holder, expires) VALUES (?, ?, ?, ?)",
            (lease.session, lease.token, this_process(), now + lease.ttl_seconds),
        )
        lease.until = time.monotonic() + lease.ttl_seconds

    def hold(self, lease: SqliteLease) -> None:
        """From now on the heartbeat renews it."""
        with self._lock:
            self._held.append(lease)
            self._next = min(self._next, self._due(lease)) if len(self._held) > 1 else self._due(lease)

    def release(self, lease: SqliteLease) -> None:
        """The heartbeat renews it no longer."""
        lease.invalidate()
        with self._lock:
            if lease in self._held:
                self._held.remove(lease)

    @staticmethod
    def give_back(connection: sqlite3.Connection, lease: SqliteLease) -> None:
        """In a transaction: let others have it."""
        connection.execute("DELETE FROM leases WHERE session = ? AND token = ?", (lease.session, lease.token))

    def check(self, connection: sqlite3.Connection, lease: SqliteLease) -> None:
        """In the transaction of a write: is it still ours?

        Raises:
            SessionConflictError: it ran out, or somebody else has it.
        """
        lease.check()
        row = connection.execute(
            "SELECT expires FROM leases WHERE session = ? AND token = ?", (lease.session, lease.token)
        ).fetchone()
        if row is None or row[0] <= self.clock():
            lease.invalidate()
            raise SessionConflictError(
                f"session {lease.session!r}: the lease ran out or was taken over, for this process did not renew it in "
                "time; nothing was written. Load the session again, or resume it."
            )

    def is_busy(self, connection: sqlite3.Connection, session: str) -> bool:
        """True if somebody, perhaps this very store, has the session's lease."""
        row = connection.execute("SELECT holder, expires FROM leases WHERE session = ?", (session,)).fetchone()
        return row is not None and row[1] > self.clock() and not is_gone(row[0])

    # ---- the heartbeat -----------------------------------------------------------------------------------------------

    def due_in(self) -> float | None:
        """Seconds until leases have to be renewed; None if none is held."""
        with self._lock:
            return self._next - time.monotonic() if self._held else None

    def beat(self, connection: sqlite3.Connection) -> None:
        """Renew every lease that has not run out."""
        with self._lock:
            held = list(self._held)
            self._next = time.monotonic() + AGAIN_SECONDS
        started = time.monotonic()
        now = self.clock()
        connection.execute("BEGIN IMMEDIATE")
        renewed = [lease for lease in held if self._renew(connection, lease, now)]
        connection.execute("COMMIT")
        for lease in held:
            if lease in renewed:
                lease.until = started + lease.ttl_seconds
            else:
                self.release(lease)
        with self._lock:
            self._next = min((self._due(lease) for lease in self._held), default=0.0)

    @staticmethod
    def _renew(connection: sqlite3.Connection, lease: SqliteLease, now: float) -> bool:
        cursor = connection.execute(
            "UPDATE leases SET expires = ? WHERE session = ? AND token = ? AND expires > ?",
            (now + lease.ttl_seconds, lease.session, lease.token, now),
        )
        return cursor.rowcount == 1

    @staticmethod
    def _due(lease: SqliteLease) -> float:
        return lease.until - lease.ttl_seconds + lease.ttl_seconds / RENEWALS
