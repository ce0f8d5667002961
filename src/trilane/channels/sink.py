"""A bounded way out: many publishers, one writer, one slow network connection.

For servers that pass a run's events on. Not for the order of work inside a run: that is the acknowledged queue in
`event_queue.py`, which a sink stands behind.

What bounds it: capacity. When the queue is full `publish` waits, and so the run does.

Shut down in this order: stop the run, close the sink, close the connection, wait for the sink. `close` cannot interrupt
a write in progress and the sink does not own the connection: waiting before the connection is closed hangs on a stuck
write, and closing the connection first lets events go to a dead one.
"""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from trilane._backend import EventLoop, Waiter, checkpoint_if_cancelled, current_backend, new_waiter, running_event_loop
from trilane._records import error_line
from trilane.errors import AgentProtocolError, EventSinkClosed

__all__ = ["EventSink"]

T = TypeVar("T")

_TERMINAL_TYPES = frozenset({"run_completed", "run_failed", "run_cancelled"})


def _is_terminal(item: object) -> bool:
    kind = getattr(item, "type", None)
    return isinstance(kind, str) and kind in _TERMINAL_TYPES


class EventSink(Generic[T]):
    """A bounded queue with one writer, `run`, which the owner starts in its own task group.

    `publish`, `run` and `wait` belong to one event loop; `close`, `closed`, `dropped` and `error` may be used from any
    thread. Items are written in the order in which they were published, one at a time.

    The writer ends by itself after writing a terminal event (`type` is `run_completed`, `run_failed` or
    `run_cancelled`), when the sink is closed, or when a write fails or takes longer than `write_seconds`; each closes
    the sink. Items that are then still queued are dropped and counted in `dropped`.

    Args:
        write: Sends one item. It is never called again before it has returned.
        capacity: How many items may wait, not counting the one that is being written.
        write_seconds: How long one write may take.

    Raises:
        ValueError: `capacity` is below 1, or `write_seconds` is not above 0.
    """

    def __init__(
        self, write: Callable[[T], Awaitable[None]], *, capacity: int = 64, write_seconds: float = 30.0
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; an EventSink needs room for at least 1 item")
        if not write_seconds > 0:
            raise ValueError(f"write_seconds is {write_seconds}; a write needs more than 0 seconds")
        self._write = write
        self._capacity = capacity
        self._write_seconds = write_seconds
        # Guards what `close` touches from other threads; never held across an await. Re-entrant, because a signal
        # handler or a finaliser may call `close` in the midst of it; where that matters `_closed` is asked again.
        self._lock = RLock()
        self._items: deque[tuple[T, Callable[[], bool] | None]] = deque()
        self._closed = False
        self._dropped = 0
        self._error: BaseException | None = None
        self._loop: EventLoop | None = None
        # Publishers that wait for room, first come first served: only the first may take a free place.
        self._line: deque[Waiter] = deque()
        self._writer: Waiter | None = None
        self._state: str = "new"  # new, running, ended
        self._ending: list[Waiter] = []

    @property
    def closed(self) -> bool:
        """True once nothing can be published any more."""
        return self._closed

    @property
    def dropped(self) -> int:
        """How many published items were dropped because the sink was closed before their turn."""
        return self._dropped

    @property
    def error(self) -> BaseException | None:
        """What ended the writer early: the error of a write, a TimeoutError, a cancellation of `run`; else None."""
        return self._error

    # --- publishers -----------------------------------------------------------------------------------------------

    async def publish(self, item: T, *, live: Callable[[], bool] | None = None) -> None:
        """Queue `item` for the writer; wait while the queue is full.

        Args:
            item: What to write.
            live: Asked by the writer when the turn of `item` comes; if it is false the item is skipped. Terminal
                events are written all the same.

        Raises:
            EventSinkClosed: the sink is closed, or was closed while the call waited. If a write failed, that error is
                the cause.
        """
        if self._closed:
            raise self._refusal()
        await checkpoint_if_cancelled()
        entry = (item, live)
        with self._lock:
            if self._closed:
                raise self._refusal()
            if not self._line and len(self._items) < self._capacity:
                self._enqueue(entry)
                return
            waiter = self._wait_here()
            self._line.append(waiter)
            if self._closed:
                waiter.wake()
        try:
            await waiter.wait()
            with self._lock:
                if self._closed:
                    raise self._refusal()
                self._enqueue(entry)
        finally:
            with self._lock:
                self._leave_line(waiter)

    def _enqueue(self, entry: tuple[T, Callable[[], bool] | None]) -> None:
        self._items.append(entry)
        if self._closed:
            self._drop()
        self._wake_writer()

    def _drop(self) -> None:
        self._dropped += len(self._items)
        self._items.clear()

    def _leave_line(self, waiter: Waiter) -> None:
        """Under the lock. A publisher that was cancelled after it was woken passes its place on here."""
        self._line.remove(waiter)
        self._wake_publisher()

    def _wake_publisher(self) -> None:
        if self._line and len(self._items) < self._capacity:
            self._line[0].wake()

    def _wake_writer(self) -> None:
        if self._writer is not None:
            self._writer.wake()

    def _wait_here(self) -> Waiter:
        """A waiter that `close` can reach from other threads. Under the lock."""
        if self._loop is None:
            self._loop = running_event_loop()
        return new_waiter()

    def _refusal(self) -> EventSinkClosed:
        if self._error is None:
            return EventSinkClosed("the sink is closed; nothing more is written")
        refusal = EventSinkClosed(f"the sink is closed: {_why(self._error)}; nothing more is written")
        refusal.__cause__ = self._error
        return refusal

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse new items, drop and count the queued ones, wake everybody who waits. From any thread, idempotent.

        Never waits. A write in progress goes on; `wait` returns when it has ended.
        """
        self._shut(None)

    def _shut(self, error: BaseException | None) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._error = error
            self._drop()
            loop = self._loop
        if loop is not None:
            loop.call(self._wake_all)

    def _wake_all(self) -> None:
        for waiter in self._line:
            waiter.wake()
        self._wake_writer()
        if self._state != "running":
            self._wake_ending()

    def _wake_ending(self) -> None:
        for waiter in self._ending:
            waiter.wake()

    async def wait(self) -> None:
        """Return when the writer has ended, and with it the write in progress.

        If the sink is closed before `run` has started there is nothing to wait for.
        """
        while not (self._state == "ended" or (self._closed and self._state == "new")):
            with self._lock:
                waiter = self._wait_here()
            self._ending.append(waiter)
            try:
                # Another thread may have closed the sink before it could see this waiter.
                if not (self._closed and self._state == "new"):
                    await waiter.wait()
            finally:
                self._ending.remove(waiter)

    # --- the writer -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is published until the sink ends. Start it once, in a task of the owner.

        It does not raise what a write raised, a cancellation that nobody asked for included: that closes the sink, is
        in `error`, and is the cause of every later `EventSinkClosed`, so that it ends the run and not the owner.

        Raises:
            AgentProtocolError: it was started before; a sink has one writer.
            KeyboardInterrupt: a write raised it, or SystemExit; the sink is closed first.
        """
        if self._state != "new":
            raise AgentProtocolError("EventSink.run was started before; a sink has exactly one writer")
        self._state = "running"
        asked = _cancels_asked_for()
        try:
            while (entry := await self._next()) is not None:
                item, live = entry
                terminal = _is_terminal(item)
                if terminal or live is None or live():
                    await self._write_one(item)
                if terminal:
                    return
        except Exception as error:
            self._shut(error)
        except BaseException as error:
            self._shut(error)
            if not _nobody_asked_for(error, asked):
                raise
        finally:
            self._state = "ended"
            self._shut(None)
            self._wake_ending()

    async def _next(self) -> tuple[T, Callable[[], bool] | None] | None:
        while True:
            with self._lock:
                if self._closed:
                    return None
                if self._items:
                    entry = self._items.popleft()
                    self._wake_publisher()
                    return entry
                self._writer = waiter = self._wait_here()
                if self._closed:
                    waiter.wake()
            try:
                await waiter.wait()
            finally:
                self._writer = None

    async def _write_one(self, item: T) -> None:
        import anyio

        with anyio.move_on_after(self._write_seconds) as scope:
            await self._write(item)
        if scope.cancelled_caught:
            kind = getattr(item, "type", type(item).__name__)
            raise TimeoutError(f"writing {kind} took longer than write_seconds={self._write_seconds:g}")


def _cancels_asked_for() -> int:
    """How often the task was cancelled so far; only asyncio counts."""
    if current_backend() == "trio":
        return 0
    import asyncio

    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _nobody_asked_for(error: BaseException, asked: int) -> bool:
    """True for a GeneratorExit, and for a CancelledError that came from the write and not from a cancel of the task."""
    if isinstance(error, GeneratorExit):
        return True
    from asyncio import CancelledError

    return isinstance(error, CancelledError) and _cancels_asked_for() == asked


def _why(error: BaseException) -> str:
    if isinstance(error, Exception):
        return f"a write failed with {error_line(error)}"
    return f"its writer was ended by {type(error).__name__}"
