"""The statements that write records. They run in the threads of the store's pool, inside its transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trilane.errors import SessionConflictError, SessionError
from trilane.messages import clean_text
from trilane.sessions import known_of, preview_of
from trilane.storing import Packed, lease_lost, pack

if TYPE_CHECKING:
    from trilane.stores import SessionRecord

    from .schema import Connection

__all__ = ["Batch", "Unsure", "append", "copy", "delete", "pack_all", "rename"]


@dataclass(slots=True)
class Batch:
    """Records as they are to be stored, and what the row of their session is to have of them."""

    kinds: list[str]
    packed: list[Packed]
    preview: str

    def __len__(self) -> int:
        return len(self.packed)

    def rows(self, start: int, end: int) -> list[tuple[str, int, str]]:
        """Kind, packing and body of some of them."""
        return [
            (kind, one.packed, one.body)
            for kind, one in zip(self.kinds[start:end], self.packed[start:end], strict=True)
        ]


@dataclass(slots=True)
class Unsure:
    """A batch of which it is not known whether it was stored: the connection was lost over its commit."""

    expected_version: int
    batch: Batch

    def may_begin(self, batch: Batch, expected_version: int) -> int:
        """How many records of another batch may be this one, stored already."""
        count = len(self.batch)
        same = expected_version == self.expected_version and batch.rows(0, count) == self.batch.rows(0, count)
        return count if same else 0


def pack_all(records: Iterable[SessionRecord]) -> Batch:
    """Records as they are to be stored. Needs no connection and no transaction."""
    records = tuple(records)
    return Batch([_kind(record) for record in records], [pack(record) for record in records], preview_of(records))


def append(
    connection: Connection, session: str, batch: Batch, *, expected_version: int, owned: bool, maybe_stored: int
) -> tuple[int, int]:
    """Add records and return the new version, and how many were written now.

    Args:
        connection: In a transaction that has locked the session's lease.
        session: Its id.
        batch: The records.
        expected_version: The version that it must have.
        owned: True if the lease is still ours.
        maybe_stored: So many of the records may be stored already, by an attempt whose outcome did not arrive.

    Raises:
        SessionConflictError: the session has another version, or the lease is somebody else's.
    """
    row = connection.execute("SELECT number, version, preview FROM sessions WHERE id = %s", (session,)).fetchone()
    number, version, preview = row if row is not None else (0, 0, "")
    stored = 0
    if maybe_stored and _are_stored(connection, number, batch, expected_version, maybe_stored):
        stored = maybe_stored
        if stored == len(batch):
            return expected_version + stored, 0
    if not owned:
        raise lease_lost(session)
    if version != expected_version + stored:
        raise _conflict(session, version, expected_version)
    if not len(batch):
        return version, 0
    if row is None:
        made = _new_session(connection, session)
        if made is None:
            raise _conflict(session, -1, expected_version)
        number = made
    _insert(connection, number, batch, stored, version)
    new = expected_version + len(batch)
    starts = [expected_version + place for place, kind in enumerate(batch.kinds) if kind == "view_replaced"]
    updated = connection.execute(
        "UPDATE sessions SET version = %s, updated = clock_timestamp(), preview = %s,"
        " view_start = coalesce(%s, view_start) WHERE number = %s AND version = %s",
        (new, preview or batch.preview, starts[-1] if starts else None, number, version),
    )
    if updated.rowcount != 1:
        raise _conflict(session, -1, expected_version)
    return new, len(batch) - stored


def rename(connection: Connection, session: str, title: str) -> None:
    """
    Raises:
        SessionError: there is no such session.
    """
    if connection.execute("UPDATE sessions SET title = %s WHERE id = %s", (clean_text(title), session)).rowcount == 0:
        raise SessionError(f"there is no session {session!r}")


def copy(connection: Connection, session: str, new_session: str, *, version: int, maybe_stored: bool) -> None:
    """Make a session of the first records of another.

    Args:
        connection: In a transaction.
        session: The one to copy.
        new_session: Id of the new one.
        version: How many records.
        maybe_stored: An attempt whose outcome did not arrive may have made it.

    Raises:
        SessionError: there is no such session, or one of the new id already.
    """
    # The lock keeps the session, and with it the blobs that it uses, from being deleted meanwhile.
    row = connection.execute("SELECT number, preview FROM sessions WHERE id = %s FOR KEY SHARE", (session,)).fetchone()
    if row is None:
        raise SessionError(f"there is no session {session!r}")
    number, preview = row
    twin = _new_session(connection, new_session)  # waits for an attempt before, should it still be at its commit
    if twin is None:
        made = connection.execute("SELECT forked_from, version FROM sessions WHERE id = %s", (new_session,)).fetchone()
        if maybe_stored and made == (session, version):
            return
        raise SessionError(f"there is a session {new_session!r} already; choose another id")
    connection.execute(
        "INSERT INTO records (session, position, kind, packed, body)"
        " SELECT %s, position, kind, packed, body FROM records WHERE session = %s AND position <= %s",
        (twin, number, version),
    )
    connection.execute("INSERT INTO blob_uses SELECT %s, blob FROM blob_uses WHERE session = %s", (twin, number))
    connection.execute(
        "UPDATE sessions SET version = %s, preview = %s, forked_from = %s, view_start = coalesce("
        "(SELECT max(position) - 1 FROM records WHERE session = %s AND kind = 'view_replaced'), 0) WHERE number = %s",
        (version, preview, session, twin, twin),
    )


def delete(connection: Connection, session: str) -> bool:
    """Delete a session, and the blobs that nothing else uses; False if there is none."""
    row = connection.execute("SELECT number FROM sessions WHERE id = %s FOR UPDATE", (session,)).fetchone()
    if row is None:
        return False
    connection.execute("DELETE FROM records WHERE session = %s", row)
    freed = connection.execute("DELETE FROM blob_uses WHERE session = %s RETURNING blob", row).fetchall()
    # Should somebody begin to use one at this moment, its foreign key stops one of us, who then tries again.
    connection.execute(
        "DELETE FROM blobs WHERE id = ANY(%s) AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = blobs.id)",
        ([blob for (blob,) in freed],),
    )
    connection.execute("DELETE FROM sessions WHERE number = %s", row)
    return True


def _insert(connection: Connection, number: int, batch: Batch, start: int, version: int) -> None:
    new = batch.packed[start:]
    blobs = {blob: text.encode() for one in new for blob, text in one.blobs.items()}
    if blobs:
        with connection.cursor() as cursor:
            # In one order, so that two who store the same texts do not wait for each other.
            cursor.executemany(
                "INSERT INTO blobs (id, content) VALUES (%s, %s) ON CONFLICT DO NOTHING", sorted(blobs.items())
            )
        connection.execute(
            "INSERT INTO blob_uses (session, blob) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING",
            (number, sorted(blobs)),
        )
    referred = sorted({use for one in new for use in one.uses} - set(blobs))
    if referred:  # by records that were read and are written again; or what is no reference and only looks like one
        connection.execute(
            "INSERT INTO blob_uses (session, blob) SELECT %s, id FROM blobs WHERE id = ANY(%s) FOR KEY SHARE"
            " ON CONFLICT DO NOTHING",
            (number, referred),
        )
    connection.execute(
        "INSERT INTO records (session, position, kind, packed, body) SELECT %s, %s + place, kind, packed, body"
        " FROM unnest(%s::text[], %s::smallint[], %s::text[]) WITH ORDINALITY AS new(kind, packed, body, place)",
        (number, version, batch.kinds[start:], [one.packed for one in new], [one.body for one in new]),
    )


def _are_stored(connection: Connection, number: int, batch: Batch, version: int, count: int) -> bool:
    rows = connection.execute(
        "SELECT kind, packed, body FROM records WHERE session = %s AND position BETWEEN %s AND %s ORDER BY position",
        (number, version + 1, version + count),
    ).fetchall()
    return rows == batch.rows(0, count)


def _new_session(connection: Connection, session: str) -> int | None:
    """Its number; None if there is one of that id."""
    row = connection.execute(
        "INSERT INTO sessions (id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING number", (session,)
    ).fetchone()
    return None if row is None else row[0]


def _conflict(session: str, version: int, expected: int) -> SessionConflictError:
    found = f"has version {version}, not {expected}" if version >= 0 else "was made, changed or deleted"
    return SessionConflictError(
        f"session {session!r} {found}: somebody else wrote to it. Nothing was written; load it again."
    )


def _kind(record: SessionRecord) -> str:
    known = known_of(record)
    return record.kind if known is None else known.kind
