"""Between a run and its client: the next event is taken only when the client has shown enough of what it was sent.

`GatedSink` is the exit of `run.forward`. Because the run waits until its reader has moved past an event, a `publish`
that does not return holds the run, and with it the model's own connection. The sink's queue and writer are those of
`EventSink`; when to let go is asked of the `Gate`. While nothing is queued an event need not wait for the writer's
turn, which would be a task switch and a timer for every delta.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from trilane import Event, EventSink, EventSinkClosed

from .protocol import AckPolicy

__all__ = ["TERMINAL", "Gate", "GatedSink"]

TERMINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})


class Gate:
    """Decides whether a run may go on past the event it has shown last.

    Args:
        policy: `strict` waits for every event; `windowed` lets the run be a number of events, bytes and seconds ahead;
            `detached` never waits.
        window_events: Under `windowed`, how many events it may be ahead.
        window_seconds: Under `windowed`, how old the oldest unacknowledged event may be.
        window_bytes: Under `windowed`, how much text it may be ahead.
    """

    def __init__(self, policy: AckPolicy, *, window_events: int, window_seconds: float, window_bytes: int) -> None:
        self.policy: AckPolicy = policy
        self.acknowledged = 0
        self.waiting_since: float | None = None  # the run waits here, since then
        self._window_events = window_events
        self._window_seconds = window_seconds
        self._window_bytes = window_bytes
        self._unacknowledged: deque[tuple[int, int, float]] = deque()  # seq, bytes, when
        self._bytes = 0
        self._shut = False
        self._released = False
        self._holds = policy != "detached"  # follows the policy, and that asks for acknowledgements
        self._waiter: asyncio.Future[None] | None = None

    # ---- what moves it -----------------------------------------------------------------------------------------------

    def note(self, seq: int, size: int) -> None:
        """An event of `size` bytes is on its way."""
        if self._released:
            return
        self._unacknowledged.append((seq, size, asyncio.get_running_loop().time()))
        self._bytes += size

    def acknowledge(self, seq: int) -> bool:
        """Everything up to `seq` was shown; True if that is news."""
        if seq <= self.acknowledged:
            return False
        self.acknowledged = seq
        waiting = self._unacknowledged
        while waiting and waiting[0][0] <= seq:
            self._bytes -= waiting.popleft()[1]
        self._wake()
        return True

    def shut(self) -> None:
        """Let nothing pass until `reopen`: the client is away and the run is to be paused."""
        self._shut = True

    def open(self) -> None:
        """Let everything pass until `reopen`: the client is away and the run is to go on."""
        self._holds = False
        self._wake()

    def reopen(self) -> None:
        """Follow the policy again."""
        self._shut = False
        self._holds = self.policy != "detached" and not self._released
        self._wake()

    def release(self) -> None:
        """Let everything pass from now on: the run is being stopped."""
        self._released = True
        self._holds = False
        self._unacknowledged.clear()
        self._bytes = 0
        self._wake()

    # ---- what waits at it --------------------------------------------------------------------------------------------

    @property
    def needed_from(self) -> int:
        """Events from this one on must be kept for the client; beyond the last one if it need not wait for any."""
        return self.acknowledged + 1 if self._holds and self._unacknowledged else 1 << 62

    def may_pass(self, seq: int) -> bool:
        """True if the run may go on past event `seq` now."""
        if self._released:
            return True
        if self._shut:
            return False
        if not self._holds:
            return True
        if self.policy == "strict":
            return self.acknowledged >= seq
        waiting = self._unacknowledged
        if not waiting:
            return True
        if len(waiting) >= self._window_events or self._bytes >= self._window_bytes:
            return False
        return asyncio.get_running_loop().time() - waiting[0][2] < self._window_seconds

    async def passed(self, seq: int) -> None:
        """Return when the run may go on past event `seq`."""
        if self.may_pass(seq):
            return
        loop = asyncio.get_running_loop()
        self.waiting_since = loop.time()
        try:
            while True:
                self._waiter = loop.create_future()
                await self._waiter
                if self.may_pass(seq):
                    return
        finally:
            self._waiter = None
            self.waiting_since = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class GatedSink(EventSink[Event]):
    """An `EventSink` whose `publish` returns when the event was queued and the gate lets the run go on.

    Args:
        write: Takes an event and its JSON text.
        gate: Told of each event, and asked after it.
        encode: Makes the JSON text.
        at_once: Does what `write` does, but never waits: used while nothing is queued, except for the terminal event,
            with which the writer ends.
        capacity: As of `EventSink`.
        write_seconds: As of `EventSink`.
    """

    def __init__(
        self,
        write: Callable[[Event, str], Awaitable[None]],
        gate: Gate,
        encode: Callable[[Event], str],
        *,
        at_once: Callable[[Event, str], None] | None = None,
        capacity: int = 64,
        write_seconds: float = 30.0,
    ) -> None:
        super().__init__(self._write_text, capacity=capacity, write_seconds=write_seconds)
        self._gate = gate
        self._encode = encode
        self._write_with_text = write
        self._at_once = at_once
        self._failure: Exception | None = None  # of `at_once`, for the writer to end the sink with
        self._queued = 0  # events that the writer has not done with
        self._texts: dict[int, str] = {}  # of the queued events, by their number in the stream

    async def _write_text(self, item: Event) -> None:
        text = self._texts.pop(item.seq, None)
        skipped = [number for number in self._texts if number < item.seq]
        for number in skipped:
            del self._texts[number]
        try:
            if self._failure is not None:
                raise self._failure
            await self._write_with_text(item, self._encode(item) if text is None else text)
        except BaseException:
            self._gate.release()  # what was not written is never acknowledged
            raise
        finally:
            self._queued -= 1 + len(skipped)

    async def publish(self, item: Event, *, live: Callable[[], bool] | None = None) -> None:
        """Write or queue `item`, then wait for the gate.

        Raises:
            EventSinkClosed: the sink is closed, or was closed while the call waited.
        """
        text = self._encode(item)
        self._gate.note(item.seq, len(text))
        terminal = item.type in TERMINAL
        if self._queued or terminal or self._at_once is None or live is not None or not await self._written(item, text):
            await self._queue(item, text, live)
        if terminal:
            return
        if not self._gate.may_pass(item.seq):
            await self._gate.passed(item.seq)
        if self.closed:
            raise EventSinkClosed("the sink was closed while the run waited for its client") from self.error

    async def _written(self, item: Event, text: str) -> bool:
        """Write without the writer; False if that was not done, and the writer has to see why."""
        assert self._at_once is not None
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            await asyncio.sleep(0)
        if self.closed or self._queued:
            return False
        try:
            self._at_once(item, text)
        except Exception as error:
            self._failure = error
        return self._failure is None

    async def _queue(self, item: Event, text: str, live: Callable[[], bool] | None) -> None:
        self._texts[item.seq] = text
        self._queued += 1
        try:
            await super().publish(item, live=live)
        except BaseException:
            self._texts.pop(item.seq, None)
            self._queued -= 1
            raise

    def close(self) -> None:
        """Close the sink and let go whoever waits at the gate. As `EventSink.close`, but from the event loop only."""
        super().close()
        self._gate.release()
