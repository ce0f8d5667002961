"""The explicit view of one run's lanes: input, output, events.

For code that stands between a run and its outside: what feeds messages, results and replies in, what takes tool calls
out. Not for the UI stream itself (`event_queue.py`) and not shared between runs.

What bounds the two lanes here: the run. `input` holds what was said since the last model call, `events` the calls of
one batch.
"""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NoReturn, TypeAlias, TypeVar

from trilane._backend import EventLoop, Waiter, new_waiter, running_event_loop
from trilane._records import Record
from trilane.errors import AgentProtocolError

from .event_queue import AgentEventQueue, QueueClosed

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.events import Event, ToolCallEvent
    from trilane.messages import ToolResult, UserMessage
else:
    JsonValue = "JsonValue"

__all__ = ["InputItem", "LaneQueue", "Reply", "RuntimeQueues"]

T = TypeVar("T")


class Reply(Record):
    """An answer to an open question, on the input lane; the same as `agent.reply`.

    Attributes:
        question_id: The question it answers.
        payload: What the question's schema asks for.
    """

    question_id: str
    payload: JsonValue = None


InputItem: TypeAlias = "UserMessage | ToolResult | Reply"
"""What the input lane carries: messages of the user, results of tools executed outside, replies to questions."""


class LaneQueue(Generic[T]):
    """A typed FIFO queue that never makes the putter wait. Readers are served in the order in which they came.

    `get` belongs to one event loop; everything else may be used from any thread.

    Args:
        name: What messages call it.
        accepts: The types it takes; empty for any.
        on_put: Called with each item, in the putting thread, after the item was queued. It may take the item out
            again (`remove`). What it raises reaches the putter, and the item stays queued.
    """

    def __init__(self, name: str, *, accepts: tuple[type, ...] = (), on_put: Callable[[T], None] | None = None) -> None:
        self.name = name
        self.accepts = accepts
        self.on_put = on_put
        # Guards what other threads touch; never held across an await or while `on_put` runs. Re-entrant, because a
        # signal handler or a finaliser may put or close in the midst of it.
        self._lock = RLock()
        self._items: deque[T] = deque()
        self._closed = False
        self._loop: EventLoop | None = None
        self._line: deque[Waiter] = deque()  # readers; only the first may take, then it wakes the next

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        # A queue is something even when nothing is in it: `queue or default` must not replace an injected one.
        return True

    @property
    def empty(self) -> bool:
        """True if nothing is queued."""
        return not self._items

    @property
    def closed(self) -> bool:
        """True once nothing can be put any more; queued items may still wait."""
        return self._closed

    async def put(self, item: T) -> None:
        """Queue `item`; `put_nowait` for those who prefer to await."""
        self.put_nowait(item)

    def put_nowait(self, item: T) -> None:
        """Queue `item` and wake a reader, from any thread.

        Raises:
            AgentProtocolError: the queue does not take items of that type.
            QueueClosed: the queue is closed.
        """
        if self.accepts and not isinstance(item, self.accepts):
            names = ", ".join(accepted.__name__ for accepted in self.accepts)
            raise AgentProtocolError(f"the {self.name} lane takes {names}; got {type(item).__name__}")
        with self._lock:
            if self._closed:
                raise QueueClosed(f"put on the {self.name} lane after it was closed; its run has ended")
            self._items.append(item)
        if self.on_put is not None:
            self.on_put(item)
        self._wake_reader()

    def _wake_reader(self) -> None:
        with self._lock:
            loop = self._loop if self._line else None
        if loop is not None:
            loop.call(self._wake_first)

    def _wake_first(self) -> None:
        with self._lock:
            if self._line and (self._items or self._closed):
                self._line[0].wake()

    async def get(self) -> T:
        """Take the next item; return at once if one waits and nobody came before. A cancelled call loses nothing.

        Raises:
            QueueClosed: the queue is closed and nothing is left in it.
        """
        waiter: Waiter | None = None
        try:
            while True:
                with self._lock:
                    first = not self._line if waiter is None else self._line[0] is waiter
                    if self._items and first:
                        return self._items.popleft()
                    if self._closed and not self._items:
                        raise QueueClosed(f"the {self.name} lane was closed; nothing is left in it")
                    waiter = self._wait_again(waiter)
                await waiter.wait()
        finally:
            if waiter is not None:
                self._leave_line(waiter)

    def _wait_again(self, old: Waiter | None) -> Waiter:
        """A new waiter at the end of the line, or at the place of the one that was used up. Under the lock."""
        self._loop = running_event_loop()
        waiter = new_waiter()
        if old is None:
            self._line.append(waiter)
        else:
            self._line[self._line.index(old)] = waiter
        self._wake_first()
        return waiter

    def _leave_line(self, waiter: Waiter) -> None:
        with self._lock:
            self._line.remove(waiter)
            self._wake_first()

    def remove(self, item: T) -> bool:
        """Take out this very item, wherever it stands; False if somebody has taken it before."""
        with self._lock:
            for index, queued in enumerate(self._items):
                if queued is item:
                    del self._items[index]
                    return True
        return False

    def drain(self) -> tuple[T, ...]:
        """Take out everything that is queued, in order."""
        with self._lock:
            items = tuple(self._items)
            self._items.clear()
        return items

    def close(self) -> None:
        """Refuse new items, and let readers end once nothing is left. Idempotent, never waits, from any thread."""
        with self._lock:
            self._closed = True
        self._wake_reader()


class RuntimeQueues:
    """The three lanes of one run, as one small object; make your own to see or feed them, one per run.

    Attributes:
        input: User messages, results of external tools and replies, on their way in.
        output: The UI stream; the run's `AgentEventQueue` itself.
        events: Tool calls for whoever executes them; answer on `input`.
        has_event_agent: True if somebody takes the calls off `events` and answers them. Then the reader of `output` is
            not asked: it sees what it would see if the run had executed the tools itself, and may not answer for them.
    """

    __slots__ = ("events", "has_event_agent", "input", "output")

    def __init__(
        self,
        *,
        input: LaneQueue[InputItem] | None = None,
        output: AgentEventQueue[Event] | None = None,
        events: LaneQueue[ToolCallEvent] | None = None,
        has_event_agent: bool = False,
    ) -> None:
        from trilane.events import ToolCallEvent
        from trilane.messages import ToolResult, UserMessage

        self.input: LaneQueue[InputItem] = (
            LaneQueue("input", accepts=(UserMessage, ToolResult, Reply)) if input is None else input
        )
        self.output: AgentEventQueue[Event] = AgentEventQueue() if output is None else output
        self.events: LaneQueue[ToolCallEvent] = (
            LaneQueue("events", accepts=(ToolCallEvent,)) if events is None else events
        )
        self.has_event_agent = has_event_agent

    def __reduce__(self) -> NoReturn:
        raise TypeError("RuntimeQueues belong to one run and cannot be copied or pickled; make others for another run")

    @property
    def empty(self) -> bool:
        """True if nothing is queued on any of the three."""
        return self.input.empty and self.output.empty and self.events.empty
