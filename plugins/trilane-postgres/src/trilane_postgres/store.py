"""`PostgresStore`: the session store over one schema. What it does is in the modules beside it.

Runs share a few connections; lists, searches and checks have one of their own, so that no run waits for them, and so
has the heartbeat, so that nothing keeps leases from being renewed.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from trilane.errors import SessionBusyError, SessionConflictError
from trilane.sessions import SearchHit, SessionInfo
from trilane.stores import Lease, SessionPage, SessionRecord
from trilane.storing import DroppedError

from . import examining, reading, writing
from .leases import LeaseBook, PostgresLease
from .place import find_place
from .pool import Pool, PostgresJob
from .schema import AbsentError, connect
from .writing import Unsure

if TYPE_CHECKING:
    from typing import TypeVar

    from .schema import Connection

    T = TypeVar("T")

__all__ = ["PostgresStore"]

RELEASE_SECONDS = 5.0  # for giving back a lease; after that it runs out by itself
DELETE_SECONDS = 30.0  # the lease under which a session is deleted


class PostgresStore:
    """Sessions in PostgreSQL. Any number of event loops, threads, processes and machines may use them at once.

    Nothing is connected before it is used.

    Args:
        dsn: A URL, `key=value` pairs, or empty for libpq's environment variables (PGHOST and so on). A URL may name
            the schema: `postgresql://host/database?schema=NAME`.
        schema: The schema with the tables, made at the first use.
        connections: For runs, at most; one more lists and searches, one more renews leases.
        busy_seconds: How long what others have locked is waited for.
        reconnect_seconds: How long a connection that was lost is tried again.

    Raises:
        ConfigError: the DSN or the schema cannot be used, or psycopg finds no libpq.
    """

    def __init__(
        self,
        dsn: str = "",
        *,
        schema: str = "trilane",
        connections: int = 4,
        busy_seconds: float = 10.0,
        reconnect_seconds: float = 10.0,
    ) -> None:
        place = find_place(dsn, schema)
        self.place = place.text

        def opener(*, durable: bool = True, makes: bool = True) -> Callable[[], Connection]:
            return lambda: connect(place, busy_seconds=busy_seconds, durable=durable, makes=makes)

        self._book = LeaseBook()
        options = {"place": place.text, "reconnect_seconds": reconnect_seconds}
        self._runs = Pool(opener(), size=connections, **options)  # type: ignore[arg-type]
        self._browser = Pool(opener(makes=False), size=1, **options)  # type: ignore[arg-type]
        self._keeper = Pool(opener(durable=False), size=1, beat=self._book, **options)  # type: ignore[arg-type]
        for pool in self._pools:
            weakref.finalize(self, pool.stop)

    @property
    def _pools(self) -> tuple[Pool, Pool, Pool]:
        return self._keeper, self._browser, self._runs

    def close(self) -> None:
        """End the threads, after what they have to do, and close the connections. The store cannot be used any more."""
        for pool in self._pools:
            pool.close()

    # ---- what every store does ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lease(self, session: str, *, ttl_seconds: float) -> AsyncIterator[Lease]:
        """The right to append to `session`, renewed until the context is left.

        Raises:
            SessionBusyError: another run, of this process or another, holds it.
            StoreError: the database cannot be used.
        """
        async with self._lease(session, ttl_seconds) as lease:
            yield lease

    @asynccontextmanager
    async def _lease(self, session: str, ttl_seconds: float) -> AsyncIterator[PostgresLease]:
        lease = PostgresLease(session, ttl_seconds)

        def take(connection: Connection, job: PostgresJob[None]) -> None:
            self._book.take(connection, lease)
            self._book.hold(lease)
            try:
                job.seal()
            except DroppedError:
                give_back(connection, job)
                raise

        def give_back(connection: Connection, job: PostgresJob[None]) -> None:
            self._book.release(lease)
            self._book.give_back(connection, lease)

        try:
            await self._runs.run(take)
        except SessionBusyError:
            raise
        except BaseException:  # cancelled just when it was ours, or the connection was lost
            self._runs.post(give_back)
            raise
        self._keeper.wake()
        try:
            yield lease
        finally:
            self._book.release(lease)
            with anyio.move_on_after(RELEASE_SECONDS, shield=True):
                await self._runs.run(give_back)

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        """Records `after` a version, at most `limit`; what cannot be read comes as a `DamagedRecord`.

        Raises:
            StoreError: the database cannot be used.
        """
        return await self._runs.run(lambda connection, job: reading.load(connection, session, after=after, limit=limit))

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        """Add all records or none, and return the new version.

        Raises:
            SessionConflictError: the session has another version, or the lease is not valid any more.
            StoreError: the database cannot be used; it says so if the records may have been written all the same.
        """
        if not isinstance(lease, PostgresLease) or lease.session != session:
            raise SessionConflictError(f"session {session!r}: this is no lease for it; nothing was written")
        ours = lease
        batch = writing.pack_all(records)
        maybe = ours.unsure.may_begin(batch, expected_version) if ours.unsure is not None else 0

        def write(connection: Connection, job: PostgresJob[int]) -> int:
            again = job.sealed  # the connection was lost over the commit of an attempt before
            if not again:
                ours.check()
            owned = True
            try:
                with job.transaction(connection):
                    owned = self._book.owns(connection, ours)
                    version, written = writing.append(
                        connection,
                        session,
                        batch,
                        expected_version=expected_version,
                        owned=owned,
                        maybe_stored=len(batch) if again else maybe,
                    )
                    if written:
                        ours.check()  # it may have been invalidated since, because this took too long
            except BaseException:
                if job.sealed:
                    ours.unsure = Unsure(expected_version, batch)
                raise
            finally:
                if not owned:
                    ours.invalidate()
            ours.unsure = None
            return version

        return await self._runs.run(write)

    # ---- what `trilane.sessions` describes ---------------------------------------------------------------------------

    async def view_start(self, session: str) -> int:
        """A version from which the records suffice to know what models see."""
        return await self._runs.run(lambda connection, job: reading.view_start(connection, session))

    async def read_blob(self, blob: str) -> str:
        """The text that a record refers to as `{"$blob": ID, "characters": N}`.

        Raises:
            SessionError: there is none of that id.
        """
        return await self._runs.run(lambda connection, job: reading.read_blob(connection, blob))

    async def list_sessions(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        """Sessions, the one written to last first."""
        return await self._look(lambda connection, job: reading.infos(connection, limit=limit, offset=offset))

    async def session_info(self, session: str) -> SessionInfo | None:
        """One session; None if there is none of that id."""
        found = await self._look(lambda connection, job: reading.infos(connection, session=session))
        return found[0] if found else None

    async def search_sessions(self, text: str, *, limit: int = 50) -> Sequence[SearchHit]:
        """Messages and tool results that contain `text`, in either case of its letters, newest session first."""

        def look(connection: Connection, job: PostgresJob[list[SearchHit]]) -> list[SearchHit]:
            return reading.search(connection, job, text, limit=limit)

        return await self._look(look)

    async def rename_session(self, session: str, title: str) -> None:
        """Name a session.

        Raises:
            SessionError: there is no such session.
        """

        def write(connection: Connection, job: PostgresJob[None]) -> None:
            with job.transaction(connection):
                writing.rename(connection, session, title)

        await self._runs.run(write)

    async def copy_session(self, session: str, new_session: str, *, version: int) -> None:
        """Make `new_session` of the first `version` records of `session`.

        Raises:
            SessionError: there is no such session, or one of the new id already.
        """

        def write(connection: Connection, job: PostgresJob[None]) -> None:
            again = job.sealed
            with job.transaction(connection):
                writing.copy(connection, session, new_session, version=version, maybe_stored=again)

        await self._runs.run(write)

    async def delete_session(self, session: str) -> bool:
        """Delete a session with the blobs that only it uses; False if there was none.

        Raises:
            SessionBusyError: a run is active on it, in this process or another.
        """
        found = False

        def remove(connection: Connection, job: PostgresJob[bool]) -> bool:
            nonlocal found
            with job.transaction(connection):
                if not self._book.owns(connection, lease):
                    raise SessionBusyError(f"session {session!r} was taken by somebody else; stop its run first")
                found = writing.delete(connection, session) or found
            return found

        async with self._lease(session, DELETE_SECONDS) as lease:
            return await self._runs.run(remove)

    async def check(self) -> Sequence[str]:
        """What is wrong with the sessions of this schema, in words; nothing if all is well. Reads all of them."""
        return await self._look(lambda connection, job: examining.problems(connection, self.place))

    async def _look(self, function: Callable[[Connection, PostgresJob[list[T]]], list[T]]) -> list[T]:
        """Runs it where no run waits for it; there is nothing to be seen where there are no tables yet."""
        try:
            return await self._browser.run(function)
        except AbsentError:
            return []
