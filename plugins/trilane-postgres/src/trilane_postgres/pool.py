"""A few threads, each with a connection of its own, for tasks of any event loop: psycopg's own async needs asyncio.

Only its thread touches a connection. Whatever becomes of the task that waits, the thread ends its transaction; and a
connection that is lost is opened again and the job done again, so jobs must find out by reading what an attempt before
may have done: `PostgresJob.sealed` says that there may have been one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trilane.errors import SessionError, StoreError
from trilane.storing import DroppedError, Job

from .failures import explained
from .place import load_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .schema import Connection

__all__ = ["Beat", "Pool", "PostgresJob"]

T = TypeVar("T")

IDLE_SECONDS = 60.0  # after which a connection that nobody needs is closed
RETRY_SECONDS = 0.05  # between attempts to reach the server; doubled each time
MOST_RETRY_SECONDS = 1.0

#: The server ends the connection: shutdown, crash, start, idle too long, idle too long in a transaction.
_LOST = ("57P01", "57P02", "57P03", "57P05", "25P03")

#: Two transactions were in each other's way and one had to give in: serialization, deadlock, a blob that was deleted
#: while it was referred to.
_COLLISIONS = ("40001", "40P01", "23503")


class Beat(Protocol):
    """What a pool does by itself, whenever it is due."""

    def due_in(self) -> float | None:
        """Seconds until it is due; None if it is not."""
        ...

    def postpone(self) -> None:
        """It is being tried. Until that succeeds it is due again a little later."""
        ...

    def beat(self, connection: Connection) -> None:
        """Do it. What it raises is ignored."""
        ...


class PostgresJob(Job[T]):
    """One piece of work for a thread of the pool."""

    def __init__(self, function: Callable[[Connection, PostgresJob[T]], T], *, awaited: bool = True) -> None:
        super().__init__(awaited=awaited)
        self.function = function

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """A transaction that is committed at the end, unless nobody waits for it any more."""
        connection.execute("BEGIN", prepare=False)
        try:
            yield
            self.seal()
            connection.execute("COMMIT", prepare=False)
        except BaseException:
            _roll_back(connection)
            raise


class Pool:
    """Threads with connections, started when they are needed and ended when they have been idle.

    Args:
        connect: Opens a connection, in its thread.
        place: The database, for messages.
        size: Connections, at most.
        reconnect_seconds: How long a connection that was lost is tried again.
        beat: What is done by itself, if anything; for a pool of one.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        place: str,
        size: int,
        reconnect_seconds: float,
        beat: Beat | None = None,
    ) -> None:
        self._connect = connect
        self._place = place
        self._size = size
        self._reconnect_seconds = reconnect_seconds
        self._beat = beat
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[PostgresJob[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._process = os.getpid()
        self._closed = False
        self._connected = False  # once it was, a loss is waited out; an address that is wrong is not

    async def run(self, function: Callable[[Connection, PostgresJob[T]], T]) -> T:
        """Run `function(connection, job)` in a thread and return what it returns. It may be called more than once.

        Raises:
            StoreError: the database cannot be used.
            Exception: what the function raised.
        """
        job = PostgresJob(function)
        self._put(job)
        return await job.wait()

    def post(self, function: Callable[[Connection, PostgresJob[None]], None]) -> None:
        """Run a function in a thread some time soon, and do not wait for it."""
        if not self._closed:
            self._put(PostgresJob(function, awaited=False))

    def wake(self) -> None:
        """Look again when it is due."""
        self.post(_nothing)

    def close(self, timeout: float = 5.0) -> None:
        """End the threads after the jobs they have, and wait for that at most `timeout` seconds."""
        threads = list(self._threads) if self._process == os.getpid() else []
        self.stop()
        deadline = time.monotonic() + timeout
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """Let the threads end after the jobs they have. Does not wait."""
        self._closed = True
        for _ in range(self._size):
            self._jobs.put(None)

    def _put(self, job: PostgresJob[Any]) -> None:
        if self._closed:
            raise StoreError(f"{self._place}: the store was closed; make another PostgresStore")
        with self._lock:
            if self._process != os.getpid():  # a fork has no threads, and may not use what its parent is connected to
                self._process = os.getpid()
                self._jobs, self._threads, self._unfinished = SimpleQueue(), [], 0
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self._size:
                thread = threading.Thread(target=self._serve, args=(self._jobs,), name="trilane postgres", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put(job)

    # ---- in the threads ----------------------------------------------------------------------------------------------

    def _serve(self, jobs: SimpleQueue[PostgresJob[Any] | None]) -> None:
        line = _Line(self._connect)
        while True:
            due = self._beat.due_in() if self._beat is not None else None
            try:
                job = jobs.get(timeout=IDLE_SECONDS if due is None else max(0.0, due))
            except Empty:
                if due is not None:
                    self._beat_once(line)
                elif self._leave(jobs):
                    break
                continue
            if job is None:
                break
            if due is not None and due <= 0:
                self._beat_once(line)
            if job.function is not _nothing:
                self._work(line, job)
            with self._lock:
                self._unfinished -= 1
            del job
        line.close()

    def _leave(self, jobs: SimpleQueue[PostgresJob[Any] | None]) -> bool:
        """This thread is not needed; True unless a job has come meanwhile."""
        with self._lock:
            if jobs.empty() and threading.current_thread() in self._threads:
                self._threads.remove(threading.current_thread())
                return True
            return False

    def _beat_once(self, line: _Line) -> None:
        assert self._beat is not None
        self._beat.postpone()
        try:
            self._beat.beat(line.opened())
        except Exception:
            pass  # it is tried again, and whose lease runs out meanwhile is refused
        line.clean_up()

    def _work(self, line: _Line, job: PostgresJob[Any]) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            if not job.dropped:
                value = self._persistently(line, job)
        except DroppedError:
            pass  # nobody waits for it any more
        except (SessionError, OSError) as caught:
            error = caught
        except load_driver().Error as caught:
            error = explained(caught, self._place, connected=line.connected, sealed=job.sealed)
        except BaseException as caught:  # the thread must go on; whoever waits gets the error
            error = caught
        line.clean_up()
        job.finish(value, error)

    def _persistently(self, line: _Line, job: PostgresJob[Any]) -> Any:
        """Again when the connection was lost, or when transactions were in each other's way."""
        driver = load_driver()
        deadline = 0.0  # from the first loss on: what was asked may take its time
        wait = RETRY_SECONDS
        while True:
            try:
                connection = line.opened()
                self._connected = True
                return job.function(connection, job)
            except driver.Error as error:
                line.clean_up(error)
                if line.connected and error.sqlstate not in _COLLISIONS:
                    raise
                deadline = deadline or time.monotonic() + self._reconnect_seconds
                if job.dropped or not self._connected or time.monotonic() >= deadline:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, MOST_RETRY_SECONDS)


class _Line:
    """The connection of one thread: opened when it is needed, and closed when it is in doubt."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    @property
    def connected(self) -> bool:
        """False before the first use and after a loss."""
        return self._connection is not None

    def opened(self) -> Connection:
        """The connection."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def clean_up(self, error: Exception | None = None) -> None:
        """Close it if it is lost, or was left in a transaction."""
        if self._connection is None:
            return
        lost = self._connection.closed or getattr(error, "sqlstate", None) in _LOST
        if lost or self._connection.info.transaction_status != load_driver().pq.TransactionStatus.IDLE:
            self.close()

    def close(self) -> None:
        """Close it, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _nothing(connection: Connection, job: PostgresJob[None]) -> None:
    """A job that needs no connection: it makes the thread look at its beat."""


def _roll_back(connection: Connection) -> None:
    driver = load_driver()
    try:
        if connection.info.transaction_status != driver.pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK", prepare=False)
    except driver.Error:
        connection.close()
