"""Who may append to which session: rows of the table `leases`, renewed by one heartbeat of the store.

The clock is the server's, so those of its users may differ. A lease that has run out is lost for good, even if nobody
else wanted it: whoever was stopped that long must load the session again.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from trilane.storing import HeldLeases, RenewedLease, is_gone, lease_busy, this_process

if TYPE_CHECKING:
    from .schema import Connection
    from .writing import Unsure

__all__ = ["LeaseBook", "PostgresLease"]

REMEMBERED = 1000  # leases that were given back: should the server not have heard of it, they bind nobody here

# A lease need not survive the server: without its row nothing is written under it. So its transaction, which is one
# statement, does not wait for the disk.
_NO_WAIT = "set_config('synchronous_commit', 'off', true)"

_LOOK = "SELECT token, holder, extract(epoch FROM expires - clock_timestamp())::float8 FROM leases WHERE session = %s"

_TAKE = f"""
INSERT INTO leases (session, token, holder, expires)
SELECT %(session)s, %(token)s, %(holder)s, clock_timestamp() + %(ttl)s * interval '1 second' FROM {_NO_WAIT}
ON CONFLICT (session) DO UPDATE SET token = excluded.token, holder = excluded.holder, expires = excluded.expires
WHERE leases.expires <= clock_timestamp() OR leases.token IN (%(token)s, %(dead)s)
RETURNING token
"""

_GIVE_BACK = f"DELETE FROM leases USING {_NO_WAIT} WHERE session = %s AND token = %s"

# Locks the row whoever has it: so an earlier attempt of ours whose outcome is unknown has ended when this returns.
_CHECK = "SELECT token = %s AND expires > clock_timestamp() FROM leases WHERE session = %s FOR UPDATE"

# Rows that an append has locked are passed over: one that hangs must not keep the others from being renewed.
_RENEW = """
WITH given AS (
    SELECT * FROM unnest(%(sessions)s::text[], %(tokens)s::text[], %(ttls)s::float8[]) AS given(session, token, ttl)
), mine AS (
    SELECT leases.session, given.ttl FROM leases JOIN given USING (session, token)
    WHERE leases.expires > clock_timestamp() FOR UPDATE OF leases SKIP LOCKED
)
UPDATE leases SET expires = clock_timestamp() + mine.ttl * interval '1 second'
FROM mine WHERE leases.session = mine.session RETURNING leases.token
"""

_STILL_OURS = "SELECT token FROM leases WHERE token = ANY(%s) AND expires > clock_timestamp()"


class PostgresLease(RenewedLease):
    """The right to append to one session."""

    def __init__(self, session: str, ttl_seconds: float) -> None:
        super().__init__(session, ttl_seconds)
        self.unsure: Unsure | None = None


class LeaseBook(HeldLeases[PostgresLease]):
    """The leases that this store holds, and the statements about them. Statements run in the threads of its pools."""

    def __init__(self) -> None:
        super().__init__()
        self._given_back: deque[str] = deque(maxlen=REMEMBERED)

    def take(self, connection: Connection, lease: PostgresLease) -> None:
        """Take a lease. Done twice, it is the same lease.

        Raises:
            SessionBusyError: somebody has it.
        """
        while True:
            # Looked at first, because what is in use shall not be waited for while its owner writes.
            row = connection.execute(_LOOK, (lease.session,)).fetchone()
            token, holder, left = row if row is not None else ("", "", 0.0)
            dead = token if left > 0 and (token in self._given_back or is_gone(holder)) else ""
            if left > 0 and not dead and token != lease.token:
                raise lease_busy(lease.session, holder, left)
            started = time.monotonic()
            taken = connection.execute(
                _TAKE,
                {
                    "session": lease.session,
                    "token": lease.token,
                    "holder": this_process(),
                    "ttl": lease.ttl_seconds,
                    "dead": dead,
                },
            ).fetchone()
            if taken is not None:
                lease.until = started + lease.ttl_seconds
                return

    def release(self, lease: PostgresLease) -> None:
        """The heartbeat renews it no longer, and should the server not hear of it, it binds nobody here."""
        super().release(lease)
        self._given_back.append(lease.token)

    @staticmethod
    def give_back(connection: Connection, lease: PostgresLease) -> None:
        """Let others have it."""
        connection.execute(_GIVE_BACK, (lease.session, lease.token))

    @staticmethod
    def owns(connection: Connection, lease: PostgresLease) -> bool:
        """In the transaction of a write: is it still ours? Nobody can take it before the transaction has ended."""
        row = connection.execute(_CHECK, (lease.token, lease.session)).fetchone()
        return row is not None and bool(row[0])

    def beat(self, connection: Connection) -> None:
        """Renew every lease that has not run out."""
        held = self.held()
        if not held:
            return
        started = time.monotonic()
        tokens = [lease.token for lease in held]
        ttls = [lease.ttl_seconds for lease in held]
        given = {"sessions": [lease.session for lease in held], "tokens": tokens, "ttls": ttls}
        renewed = {row[0] for row in connection.execute(_RENEW, given)}
        locked: set[str] = set()
        if len(renewed) < len(held):
            locked = {row[0] for row in connection.execute(_STILL_OURS, (tokens,))} - renewed
        self.renewed(held, renewed, at=started, unknown=locked)
