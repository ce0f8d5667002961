"""The events of one run, written as JSON once, for every client that watches or comes back.

What bounds it: the number and bytes of kept events. The oldest that nobody has to acknowledge go first; whoever asks
for them later is told that there is a gap. It knows nothing of connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

__all__ = ["Journal"]


class Journal:
    """Encoded events by sequence number, contiguous from `first` to `last`.

    Args:
        max_events: How many are kept.
        max_bytes: How much text is kept.
    """

    __slots__ = ("_bytes", "_entries", "_max_bytes", "_max_events", "_watchers", "complete", "first", "last")

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._entries: deque[tuple[int, str]] = deque()
        self._bytes = 0
        self._watchers: list[Callable[[], None]] = []
        self.first = 1  # the oldest event that is kept
        self.last = 0
        self.complete = False  # the terminal event is in it, or none will come

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of text that are kept."""
        return self._bytes

    @property
    def newest(self) -> str | None:
        """The event that came last, if it is kept."""
        return self._entries[-1][1] if self._entries else None

    def append(self, seq: int, text: str, *, needed_from: int) -> None:
        """Add an event and tell everybody; drop the oldest that are not needed if there are too many.

        Args:
            seq: Its sequence number.
            text: The event as JSON.
            needed_from: Events from this one on must be kept.
        """
        if not self._entries:
            self.first = seq
        self._entries.append((seq, text))
        self._bytes += len(text)
        self.last = seq
        # The newest stays whatever its size: nobody has had a chance to get it, and it may be the end of the run.
        while (
            len(self._entries) > self._max_events or self._bytes > self._max_bytes
        ) and seq > self.first < needed_from:
            self._drop()
        self.notify()

    def _drop(self) -> None:
        _, text = self._entries.popleft()
        self._bytes -= len(text)
        self.first = self._entries[0][0] if self._entries else self.last + 1

    def finish(self) -> None:
        """Nothing more comes."""
        self.complete = True
        self.notify()

    def after(self, seq: int, max_bytes: int) -> list[tuple[int, str]]:
        """What follows `seq`, as far as it is kept, about `max_bytes` of it but at least one event."""
        found: list[tuple[int, str]] = []
        size = 0
        for entry in self._following(seq):
            found.append(entry)
            size += len(entry[1])
            if size >= max_bytes:
                break
        return found

    def _following(self, seq: int) -> Iterator[tuple[int, str]]:
        if seq >= self.last:
            return iter(())
        entries = self._entries
        # Sequence numbers have no gaps in an ordinary run; count from whichever end is nearer.
        missing = self.last - seq
        start = max(0, len(entries) - missing)
        if start > len(entries) // 2:
            late = list(islice(reversed(entries), len(entries) - start))
            late.reverse()
            return (entry for entry in late if entry[0] > seq)
        return (entry for entry in islice(entries, start, None) if entry[0] > seq)

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever something was added."""
        self._watchers.append(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Undo `watch`."""
        if wake in self._watchers:
            self._watchers.remove(wake)

    def notify(self) -> None:
        """Wake everybody who watches."""
        for wake in tuple(self._watchers):
            wake()
