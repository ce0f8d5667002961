"""The UI stream: a queue in which the producer waits until the consumer has moved past its event.

For handing events from one run to one consumer so that nothing runs ahead of what the consumer has seen. Not for slow
network connections (`sink.py`) and not for the lanes that need no acknowledgement (`queues.py`).

What bounds it: acknowledgement. The run is one producer whose tasks take turns, so at most one `put` is unacknowledged.
Use it from the thread of one event loop only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar

from trilane._backend import OTHERS_WAIT, Waiter, checkpoint_if_cancelled, new_waiter
from trilane.errors import AgentProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["AgentEventQueue", "QueueClosed"]

T = TypeVar("T")

_CREDIT = 32  # so many events may be handed over before the event loop turns
_PATIENCE = 0.001  # seconds, for `let_others_run`
_WORK = 8  # what the start of a tool takes of it


class QueueClosed(AgentProtocolError):
    """The queue was closed and nothing is left in it. For a reader this is an end, but not a successful one."""


class AgentEventQueue(Generic[T]):
    """An acknowledged queue with one producer and one consumer.

    Without acknowledgement it is a plain FIFO. With it (`enable_acknowledgements`, before the first event) `put`
    returns only after the consumer has acknowledged that event.

    `fail` and `close` are terminal signals: what is queued still comes first, the first signal wins and stays. A put
    that is parked when the signal comes ends with the error of `fail`, or with `QueueClosed`; a put after it raises
    `AgentProtocolError`.

    To see what passes, override `put`, `put_nowait` and `__anext__`; a run and `get` use these.
    """

    __slots__ = (
        "_acknowledged",
        "_acknowledging",
        "_complete",
        "_credit",
        "_discarding",
        "_due",
        "_error",
        "_getter",
        "_getting",
        "_held",
        "_later",
        "_line",
        "_most_credit",
        "_now",
        "_parked",
        "_produced",
        "_putter",
        "_ready",
        "_target",
        "_traceback",
        "putting",
        "refused",
    )

    def __init__(self) -> None:
        # What waits: `_ready`, the first one last, then `_later`, which becomes the next `_ready`. Two lists and not a
        # deque: an empty one takes 700 bytes, and a server holds thousands.
        self._ready: list[T] = []
        self._later: list[T] | None = None
        self._acknowledging = False
        self._discarding = False
        self._complete = False
        self._held = False  # an event was handed over and is not acknowledged yet
        # Both count events since the start; a parked put waits until `_acknowledged` reaches its `_target`.
        self._produced = 0
        self._acknowledged = 0
        self._target = 0
        # Each side has one waiter, renewed for every wait; the flags say whether it waits.
        self._getting = False
        self._getter: Waiter | None = None
        self._parked = False
        self._putter: Waiter | None = None
        self._most_credit = self._credit = (
            _CREDIT  # for handing over within the call of `put`; renewed when the loop has turned
        )
        # For `let_others_run`: the time, and until when events are handed over before the loop must turn.
        self._now: Callable[[], float] | None = None
        self._due = 0.0
        #: Whose turn it is to put: the waiter that waited for it, or True; False if it is nobody's.
        self.putting: Waiter | bool = False
        self._line: list[Waiter] = []  # short: tasks of one run; an empty deque takes 600 bytes
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        #: What the last put that was cancelled wanted to put, if it was cancelled before its turn; else None.
        self.refused: tuple[T, ...] | None = None

    @property
    def closed(self) -> bool:
        """True once `fail` or `close` was called; queued events may still wait."""
        return self._error is not None

    @property
    def empty(self) -> bool:
        """True if no produced event waits to be taken. An event that was handed over does not wait."""
        return not self._ready and not self._later

    @property
    def taken(self) -> int:
        """How many events were taken; the one that was handed over last counts once it is acknowledged."""
        return self._acknowledged

    def enable_acknowledgements(self) -> None:
        """Make `put` wait for the consumer from now on.

        Raises:
            AgentProtocolError: an event was put already.
        """
        if self._produced:
            raise AgentProtocolError(
                "enable_acknowledgements came after the first put; enable them before anything is produced"
            )
        self._acknowledging = True

    # --- the producer's side --------------------------------------------------------------------------------------

    async def put(self, *events: T) -> None:
        """Hand over one or more events together; return after the last of them is acknowledged.

        Tasks that call it at the same time take turns in order. If the call is cancelled while it waits for its turn,
        nothing was put; if it is cancelled while it waits for the acknowledgement, its events stay queued.

        Raises:
            AgentProtocolError: a terminal signal came before the call, or it was `close` and came during it.
            BaseException: the error given to `fail`, if that came during the call.
        """
        if self.putting is not False and self._error is None and self._acknowledging:
            try:
                await self._take_turn()
            except BaseException:
                self.refused = events
                raise
            if self._error is not None or not events:
                self._pass_turn()
                if self._error is None:
                    return
                raise self._error.with_traceback(self._traceback)
            self.putting = False
        if (events or self._error is not None) and not self.offer(*events):
            await self.acknowledged()

    def offer(self, *events: T) -> bool:
        """The first half of `put`, without waiting, for where every coroutine is felt: only while nobody is `putting`.

        Returns:
            True if the consumer has acknowledged them, or need not; False if `acknowledged` must be awaited now.

        Raises:
            AgentProtocolError: a terminal signal came before the call.
        """
        if self._error is not None:
            raise self._refusal()
        if not self._acknowledging:
            self._append(events)
            self._wake_getter()
            return True
        self.refused = None
        if self._ready or self._later is not None or self._discarding:
            self._append(events)
            target = self._produced
        else:  # the same for where nothing waits, as nearly always
            self._produced = target = self._produced + len(events)
            self._ready.extend(events if len(events) == 1 else events[::-1])
        self._target = target
        getter = self._getter
        if self._getting and getter is not None:
            if self._credit > 0 and (self._now is None or self._now() < self._due):
                self.putting = True  # against the consumer itself, which runs in here
                self._credit = getter.hand_over(self._credit)
            else:
                getter.wake()
        if self._acknowledged >= target:
            self.putting = False
            if self._line:
                self._pass_turn()
            return True
        self.putting = True
        return False

    async def acknowledged(self) -> None:
        """The second half of `put`: return after the last offered event is acknowledged.

        Raises:
            AgentProtocolError: `close` came.
            BaseException: the error given to `fail`.
        """
        target = self._target
        try:
            while self._acknowledged < target and self._error is None:
                putter = self._putter
                if putter is None:
                    self._putter = putter = new_waiter()
                else:
                    putter.renew()
                self._parked = True
                self._credit = self._most_credit
                await putter.wait()
                if self._now is not None:
                    self._due = self._now() + _PATIENCE
            if self._acknowledged < target and self._error is not None:
                raise self._error.with_traceback(self._traceback)
        finally:
            self._parked = False
            self._pass_turn()

    def put_nowait(self, *events: T) -> None:
        """Queue events after what is queued, without waiting for anything.

        For the events that end a run. They are dropped after a terminal signal or once the consumer is gone.
        """
        if self._error is None:
            self._append(events)
            self._wake_getter()

    def discard(self) -> None:
        """Say that nobody reads: drop what is queued and whatever is put later, and never let `put` wait again."""
        self._discarding = True
        self._ready.clear()
        self._later = None
        self._held = False
        self._acknowledged = self._produced
        self._wake_putter()

    def let_others_run(self, now: Callable[[], float]) -> None:
        """From now on the event loop turns after a few events or a millisecond, and at once if anybody is ready.

        For a consumer that only hands them on: they are not seen before the others had their turn. Whose timer is due,
        or whose socket can be read, is ready only when the loop has turned.

        Args:
            now: The event loop's time, in seconds.
        """
        self._most_credit = self._credit = OTHERS_WAIT - 1
        self._now = now

    def always_turn(self) -> None:
        """From now on the event loop turns before the consumer goes on with what was put.

        For a consumer that puts it into the next queue, and so on: each would go on within the call of the one before,
        and the stack has an end.
        """
        self._most_credit = self._credit = 0

    def may_go_on(self) -> bool:
        """True if the producer may do a larger piece of work before the event loop turns; it costs of the credit."""
        self._credit -= _WORK
        return self._credit > 0

    def loop_turns(self) -> None:
        """The producer waits for something else than the consumer: whoever is ready has its turn."""
        self._credit = self._most_credit

    def _append(self, events: tuple[T, ...]) -> None:
        self._produced += len(events)
        if self._discarding:
            self._acknowledged = self._produced
            return
        if self._later is not None:
            self._later.extend(events)
        elif self._ready:
            self._later = list(events)
        else:
            self._ready.extend(events[::-1])

    def _wake_getter(self) -> None:
        if self._getting and self._getter is not None:
            self._getter.wake()

    def _wake_putter(self) -> None:
        if self._parked and self._putter is not None:
            self._putter.wake()

    async def _take_turn(self) -> None:
        waiter = new_waiter()
        self._line.append(waiter)
        try:
            await waiter.wait()
        except BaseException:
            if self.putting is waiter:
                self._pass_turn()
            else:
                self._line.remove(waiter)
            raise

    def _pass_turn(self) -> None:
        if self._line:
            self.putting = waiter = self._line.pop(0)
            waiter.wake()
        else:
            self.putting = False

    def _refusal(self) -> AgentProtocolError:
        if isinstance(self._error, QueueClosed):
            return QueueClosed("put after close; nothing can be put once the queue has its terminal signal")
        refusal = AgentProtocolError("put after fail; nothing can be put once the queue has its terminal signal")
        refusal.__cause__ = self._error
        return refusal

    # --- the consumer's side --------------------------------------------------------------------------------------

    async def get(self) -> T:
        """Take the next event; return at once if one waits.

        A cancelled call loses no event. After a terminal signal it needs no acknowledgement.

        Raises:
            AgentProtocolError: the event before is not acknowledged, or another task waits in `get`. Nothing is lost.
            QueueClosed: the queue was closed, and nothing is left in it.
            BaseException: the error given to `fail`, the same object every time, once nothing is left in the queue.
        """
        if self._held and self._error is None and not self._getting:
            raise AgentProtocolError("get before the previous event was acknowledged; call acknowledge() first")
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            assert self._error is not None
            raise self._error.with_traceback(self._traceback) from None

    def __aiter__(self) -> Self:
        """Take all events: asking for the next one acknowledges the one before. It ends where the queue is complete."""
        return self

    async def __anext__(self) -> T:
        ready = self._ready
        if ready and not self._getting:  # as below, in a third of the steps: nine of ten events are taken here
            if self._held:
                self._acknowledged = acknowledged = self._acknowledged + 1
                if self._parked and acknowledged >= self._target:
                    self._wake_putter()
            else:
                self._held = self._acknowledging
            return ready.pop()
        getter = self._getter
        if not self._later and (self._held if getter is None else getter.cancel_is_due()):
            await checkpoint_if_cancelled()
        if self._getting:
            raise AgentProtocolError("get while another task waits in get; an AgentEventQueue has one consumer")
        if self._held:  # as `acknowledge` does
            self._held = False
            self._acknowledged = acknowledged = self._acknowledged + 1
            if self._parked and acknowledged >= self._target:
                self._wake_putter()
        while not ready:
            if self._later is not None:
                self._ready, self._later = self._later, None
                ready = self._ready
                ready.reverse()
                continue
            if self._error is not None:
                if self._complete:
                    raise StopAsyncIteration
                # Without the reset every raise would add its frames to the traceback of the one before.
                raise self._error.with_traceback(self._traceback)
            if getter is None:
                self._getter = getter = new_waiter()
            else:
                getter.renew()
            self._getting = True
            try:
                await getter.wait()
            finally:
                self._getting = False
            ready = self._ready
        self._held = self._acknowledging
        return ready.pop()

    def acknowledge(self) -> None:
        """Say that the consumer is done with the event it holds. Harmless if it holds none."""
        if self._held:
            self._held = False
            self._acknowledged += 1
            # Events of one put are released together, by the last.
            if self._parked and self._acknowledged >= self._target:
                self._wake_putter()

    # --- terminal signals -----------------------------------------------------------------------------------------

    async def fail(self, error: BaseException) -> None:
        """End the queue with an error, without waiting. See `fail_now`."""
        self.fail_now(error)

    async def close(self) -> None:
        """End the queue, without waiting. See `close_now`."""
        self.close_now()

    def fail_now(self, error: BaseException) -> None:
        """End the queue: a parked put and, after what is queued, every `get` raise this very error.

        Does nothing after an earlier terminal signal.
        """
        if self._error is None:
            self._error = error
            self._traceback = error.__traceback__
            self._wake_getter()
            self._wake_putter()

    def close_now(self, *, complete: bool = False) -> None:
        """End the queue: a parked put and, after what is queued, every `get` raise `QueueClosed`.

        Does nothing after an earlier terminal signal.

        Args:
            complete: Nothing is missing: for whoever iterates (`next`) this is the end, not an error.
        """
        if self._error is None:
            self._complete = complete
            self.fail_now(QueueClosed("the queue was closed; no further event comes"))
