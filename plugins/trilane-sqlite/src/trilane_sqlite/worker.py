"""One thread with one connection, for tasks of any event loop: SQLite blocks, and a connection wants one thread.

Only the thread touches the connection. A task that is cancelled while it waits drops its job: one that has not reached
its commit is rolled back. What the jobs do is in the other modules.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trilane.errors import SessionError, StoreError
from trilane.storing import DroppedError, Job

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Beat", "SqliteJob", "Worker", "is_busy"]

T = TypeVar("T")

RETRY_SECONDS = 0.01  # between attempts where SQLite says "busy" at once instead of waiting
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Beat(Protocol):
    """What the thread does by itself, whenever it is due."""

    def due_in(self) -> float | None:
        """Seconds until it is due; None if it is not."""
        ...

    def beat(self, connection: sqlite3.Connection) -> None:
        """Do it. What it raises is ignored; it must be due again later."""
        ...


class SqliteJob(Job[T]):
    """One piece of work for the thread."""

    def __init__(self, function: Callable[[sqlite3.Connection, SqliteJob[T]], T], *, awaited: bool = True) -> None:
        super().__init__(awaited=awaited)
        self.function = function

    @contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        """A write transaction, from the first statement: nobody else writes before it has ended."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.seal()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


class Worker:
    """The thread, started with the first job.

    Args:
        connect: Opens the connection, in the thread.
        path: The file, for messages.
        busy_seconds: How long other processes that write are waited for.
        beat: What the thread does by itself, if anything.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        path: str,
        busy_seconds: float,
        beat: Beat | None = None,
    ) -> None:
        self._connect = connect
        self._path = path
        self._busy_seconds = busy_seconds
        self._beat = beat
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[SqliteJob[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._closed = False

    async def run(self, function: Callable[[sqlite3.Connection, SqliteJob[T]], T]) -> T:
        """Run `function(connection, job)` in the thread and return what it returns.

        Raises:
            StoreError: the file cannot be used.
            Exception: what the function raised.
        """
        job = SqliteJob(function)
        self._put(job)
        return await job.wait()

    def post(self, function: Callable[[sqlite3.Connection, SqliteJob[None]], None]) -> None:
        """Run a function in the thread some time soon, and do not wait for it."""
        if not self._closed:
            self._put(SqliteJob(function, awaited=False))

    def close(self, timeout: float = 5.0) -> None:
        """End the thread after the jobs it has, and wait for that at most `timeout` seconds."""
        thread = self._thread
        self.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def stop(self) -> None:
        """Let the thread end after the jobs it has. Does not wait."""
        self._closed = True
        self._jobs.put(None)

    def _put(self, job: SqliteJob[Any]) -> None:
        if self._closed:
            raise StoreError(f"{self._path}: the store was closed; make another SqliteStore")
        with self._lock:
            if self._thread is None or self._process != os.getpid():  # a fork has no threads, and may not share files
                self._process = os.getpid()
                self._jobs = SimpleQueue()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._jobs,), name="trilane sqlite", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def _serve(self, jobs: SimpleQueue[SqliteJob[Any] | None]) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            due = self._beat.due_in() if self._beat is not None and connection is not None else None
            try:
                job = jobs.get(timeout=None if due is None else max(0.0, due))
            except Empty:
                assert connection is not None
                self._beat_once(connection)
                continue
            if job is None:
                break
            if due is not None and due <= 0 and connection is not None:
                self._beat_once(connection)
            connection = self._work(connection, job)
            del job
        if connection is not None:
            connection.close()

    def _beat_once(self, connection: sqlite3.Connection) -> None:
        assert self._beat is not None
        try:
            self._beat.beat(connection)
        except Exception:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _work(self, connection: sqlite3.Connection | None, job: SqliteJob[Any]) -> sqlite3.Connection | None:
        value: Any = None
        error: BaseException | None = None
        try:
            if not job.dropped:
                if connection is None:
                    connection = self._connect()
                value = self._patiently(connection, job)
        except DroppedError:
            pass  # nobody waits for it any more
        except (SessionError, OSError) as caught:
            error = caught
        except sqlite3.Error as caught:
            error = self._explained(caught)
        except BaseException as caught:  # the thread must go on; whoever waits gets the error
            error = caught
        job.finish(value, error)
        return connection

    def _patiently(self, connection: sqlite3.Connection, job: SqliteJob[Any]) -> Any:
        """Where SQLite gives up at once instead of waiting for another process, try again."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                return job.function(connection, job)
            except sqlite3.OperationalError as error:
                if not is_busy(error) or job.dropped or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _explained(self, error: sqlite3.Error) -> StoreError:
        text = f"session file {self._path}: {error}"
        if isinstance(error, sqlite3.OperationalError) and is_busy(error):
            text += (
                f"; another process kept it locked for {self._busy_seconds:g} s. Find out which, or raise busy_seconds"
            )
        elif getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            text += "; the file is damaged. `trilane sessions doctor` says what can be read; restore a backup"
        elif getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            text += "; free some space, nothing was written"
        elif getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
            text += "; it is read-only, or the file is damaged and can only be read: then restore a backup"
        explained = StoreError(text)
        explained.__cause__ = error
        return explained


def is_busy(error: sqlite3.Error) -> bool:
    """True if another connection is in the way."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY
