"""`SqliteStore`: the session store over one file. What it does is in the modules beside it; here it is put together.

Records are written by one thread with one connection; lists, searches, checks and backups have another of each, so that
no run waits for them.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import anyio

from trilane.errors import SessionBusyError, SessionConflictError
from trilane.sessions import SearchHit, SessionInfo
from trilane.stores import Lease, SessionPage, SessionRecord

from . import examining, reading, writing
from .leases import LeaseBook, SqliteLease
from .schema import connect
from .worker import SqliteJob, Worker

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["SqliteStore"]

RELEASE_SECONDS = 5.0  # for giving back a lease; after that it runs out by itself


class SqliteStore:
    """Sessions in one SQLite file. Any number of event loops, threads and processes may use the file at once.

    Args:
        path: The file; it and its folder are made at the first use, for their owner only.
        synchronous: `full`: what was stored survives a power failure. `normal`: it survives the end of the process,
            however that comes; after a power failure the last moments may be missing. The file is whole either way.
        busy_seconds: How long other processes that write are waited for.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["full", "normal"] = "full",
        busy_seconds: float = 10.0,
    ) -> None:
        self.path = os.path.abspath(os.path.expanduser(path)) if str(path) != ":memory:" else ":memory:"
        place = self.path

        def connection() -> sqlite3.Connection:
            return connect(place, busy_seconds=busy_seconds, synchronous=synchronous)

        self._book = LeaseBook()
        self._worker = Worker(connection, path=place, busy_seconds=busy_seconds, beat=self._book)
        self._browser = Worker(connection, path=place, busy_seconds=busy_seconds)
        for worker in (self._worker, self._browser):
            weakref.finalize(self, worker.stop)

    def close(self) -> None:
        """End the threads, after what they have to do. Afterwards the store cannot be used any more."""
        self._browser.close()
        self._worker.close()

    # ---- what every store does ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lease(self, session: str, *, ttl_seconds: float) -> AsyncIterator[Lease]:
        """The right to append to `session`, renewed until the context is left.

        Raises:
            SessionBusyError: another run, of this process or another, holds it.
            StoreError: the file cannot be used.
        """
        lease = SqliteLease(session, ttl_seconds)

        def take(connection: sqlite3.Connection, job: SqliteJob[None]) -> None:
            with job.transaction(connection):
                self._book.take(connection, lease)
            self._book.hold(lease)

        def give_back(connection: sqlite3.Connection, job: SqliteJob[None]) -> None:
            with job.transaction(connection):
                self._book.give_back(connection, lease)

        def undo(connection: sqlite3.Connection, job: SqliteJob[None]) -> None:
            self._book.release(lease)
            give_back(connection, job)

        try:
            await self._worker.run(take)
        except SessionBusyError:
            raise
        except BaseException:  # cancelled: it may be ours all the same
            self._book.release(lease)
            self._worker.post(undo)
            raise
        try:
            yield lease
        finally:
            self._book.release(lease)
            with anyio.move_on_after(RELEASE_SECONDS, shield=True):
                await self._worker.run(give_back)

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        """Records `after` a version, at most `limit`; what cannot be read comes as a `DamagedRecord`.

        Raises:
            StoreError: the file cannot be used.
        """
        return await self._worker.run(
            lambda connection, job: reading.load(connection, session, after=after, limit=limit)
        )

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        """Add all records or none, and return the new version.

        Raises:
            SessionConflictError: the session has another version, or the lease is not valid any more.
            StoreError: the file cannot be used.
        """
        if not isinstance(lease, SqliteLease) or lease.session != session:
            raise SessionConflictError(f"session {session!r}: this is no lease for it; nothing was written")
        ours = lease
        packed = writing.pack_all(records)

        def write(connection: sqlite3.Connection, job: SqliteJob[int]) -> int:
            with job.transaction(connection):
                self._book.check(connection, ours)
                version = writing.append(
                    connection,
                    session,
                    records,
                    packed,
                    expected_version=expected_version,
                    now=self._book.clock(),
                )
                ours.check()  # it may have been invalidated since, because this took too long
            return version

        return await self._worker.run(write)

    # ---- what `trilane.sessions` describes ---------------------------------------------------------------------------

    async def view_start(self, session: str) -> int:
        """A version from which the records suffice to know what models see."""
        return await self._worker.run(lambda connection, job: reading.view_start(connection, session))

    async def read_blob(self, blob: str) -> str:
        """The text that a record refers to as `{"$blob": ID, "characters": N}`.

        Raises:
            SessionError: there is none of that id.
        """
        return await self._browser.run(lambda connection, job: reading.read_blob(connection, blob))

    async def list_sessions(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        """Sessions, the one written to last first."""
        return await self._browser.run(lambda connection, job: reading.infos(connection, limit=limit, offset=offset))

    async def session_info(self, session: str) -> SessionInfo | None:
        """One session; None if there is none of that id."""
        found = await self._browser.run(lambda connection, job: reading.infos(connection, session=session))
        return found[0] if found else None

    async def search_sessions(self, text: str, *, limit: int = 50) -> Sequence[SearchHit]:
        """Messages and tool results that contain `text`, in either case of its letters, newest session first."""
        return await self._browser.run(lambda connection, job: reading.search(connection, text, limit=limit))

    async def rename_session(self, session: str, title: str) -> None:
        """Name a session.

        Raises:
            SessionError: there is no such session.
        """
        await self._write(lambda connection: writing.rename(connection, session, title))

    async def copy_session(self, session: str, new_session: str, *, version: int) -> None:
        """Make `new_session` of the first `version` records of `session`.

        Raises:
            SessionError: there is no such session, or one of the new id already.
        """
        now = self._book.clock
        await self._write(lambda connection: writing.copy(connection, session, new_session, version=version, now=now()))

    async def delete_session(self, session: str) -> bool:
        """Delete a session with the blobs that only it uses; False if there was none.

        Raises:
            SessionBusyError: a run is active on it, in this process or another.
        """

        def remove(connection: sqlite3.Connection) -> bool:
            if self._book.is_busy(connection, session):
                raise SessionBusyError(f"session {session!r} is in use; stop its run first")
            return writing.delete(connection, session)

        return await self._write(remove)

    async def check(self) -> Sequence[str]:
        """What is wrong with the file, in words; nothing if all is well. Reads all of it."""
        return await self._browser.run(lambda connection, job: examining.problems(connection, self.path))

    async def back_up(self, path: str | os.PathLike[str]) -> None:
        """Write a copy of the file as it is now to a new file; runs go on meanwhile.

        Raises:
            SessionError: there is such a file already, or it cannot be written.
        """
        await self._browser.run(lambda connection, job: examining.back_up(connection, self.path, os.fspath(path)))

    async def _write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        def write(connection: sqlite3.Connection, job: SqliteJob[T]) -> T:
            with job.transaction(connection):
                return function(connection)

        return await self._worker.run(write)
