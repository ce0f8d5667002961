"""Who may append to which session: rows of the table `leases`, renewed by one heartbeat of the store.

A lease that has run out is lost for good, even if nobody else wanted it: whoever was stopped that long must load the
session again. One whose process is known to be dead need not be waited for.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from trilane.storing import HeldLeases, RenewedLease, is_gone, lease_busy, lease_lost, this_process

__all__ = ["LeaseBook", "SqliteLease"]


class SqliteLease(RenewedLease):
    """The right to append to one session of a file."""


class LeaseBook(HeldLeases[SqliteLease]):
    """The leases that this store holds, and the statements about them. Used in the thread of the store's worker."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.clock = clock

    def take(self, connection: sqlite3.Connection, lease: SqliteLease) -> None:
        """In a transaction: take a lease.

        Raises:
            SessionBusyError: somebody has it.
        """
        now = self.clock()
        row = connection.execute("SELECT holder, expires FROM leases WHERE session = ?", (lease.session,)).fetchone()
        if row is not None and row[1] > now and not is_gone(row[0]):
            raise lease_busy(lease.session, row[0], row[1] - now)
        connection.execute(
            "INSERT OR REPLACE INTO leases (session, token, holder, expires) VALUES (?, ?, ?, ?)",
            (lease.session, lease.token, this_process(), now + lease.ttl_seconds),
        )
        lease.until = time.monotonic() + lease.ttl_seconds

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
            raise lease_lost(lease.session)

    def is_busy(self, connection: sqlite3.Connection, session: str) -> bool:
        """True if somebody, perhaps this very store, has the session's lease."""
        row = connection.execute("SELECT holder, expires FROM leases WHERE session = ?", (session,)).fetchone()
        return row is not None and row[1] > self.clock() and not is_gone(row[0])

    def beat(self, connection: sqlite3.Connection) -> None:
        """Renew every lease that has not run out."""
        self.postpone()
        held = self.held()
        started = time.monotonic()
        now = self.clock()
        connection.execute("BEGIN IMMEDIATE")
        tokens = [lease.token for lease in held if self._renew(connection, lease, now)]
        connection.execute("COMMIT")
        self.renewed(held, tokens, at=started)

    @staticmethod
    def _renew(connection: sqlite3.Connection, lease: SqliteLease, now: float) -> bool:
        cursor = connection.execute(
            "UPDATE leases SET expires = ? WHERE session = ? AND token = ? AND expires > ?",
            (now + lease.ttl_seconds, lease.session, lease.token, now),
        )
        return cursor.rowcount == 1
