"""How full the context of a session is, counted from message to message: each is looked at once.

What the provider reported with its last answer is taken as it is, and only what came after it is estimated.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from .counting import tokens_of
from .marks import view_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trilane import Message

__all__ = ["Gauge", "Gauges"]

_MOST_SESSIONS = 1000
_FACTORS = (0.5, 2.0)  # what a provider counts differs from the estimate by no more: the rest is instructions and tools


class Gauge:
    """What is known of one session.

    Attributes:
        wait_until: No automatic compaction is tried below so many tokens, because one was tried before.
        looked_at: How many messages were counted in all; for tests, and for the curious.
    """

    __slots__ = ("_count", "_counted", "_last_id", "_own_from", "_reported", "_reported_at", "looked_at", "wait_until")

    def __init__(self) -> None:
        self.wait_until = 0
        self.looked_at = 0
        self._forget()

    def _forget(self) -> None:
        self._count = 0  # messages that were counted
        self._last_id = ""
        self._counted = 0  # tokens of these, by the estimate
        self._own_from = 0  # usage of earlier messages was reported before they were compacted
        self._reported = 0  # tokens by the provider, up to the last message with a report
        self._reported_at = 0  # the same by the estimate

    def read(self, history: Sequence[Message]) -> int:
        """Tokens of the whole history."""
        length = len(history)
        if self._count > length or (self._count and history[self._count - 1].id != self._last_id):
            self._forget()
        if not self._count:
            self._own_from = view_length(history)
        for position in range(self._count, length):
            message = history[position]
            self._counted += tokens_of(message)
            if message.kind == "assistant" and message.usage.input_tokens and position >= self._own_from:
                self._reported = message.usage.input_tokens + message.usage.output_tokens
                self._reported_at = self._counted
        self.looked_at += length - self._count
        self._count = length
        self._last_id = history[length - 1].id if length else ""
        return self._reported + self._counted - self._reported_at

    @property
    def factor(self) -> float:
        """How many tokens of the provider an estimated one is."""
        if not self._reported_at:
            return 1.0
        return min(max(self._reported / self._reported_at, _FACTORS[0]), _FACTORS[1])


class Gauges:
    """The gauges of the sessions that were used last."""

    __slots__ = ("_gauges",)

    def __init__(self) -> None:
        self._gauges: OrderedDict[str, Gauge] = OrderedDict()

    def of(self, session: str) -> Gauge:
        """The gauge of a session."""
        gauge = self._gauges.get(session)
        if gauge is None:
            gauge = self._gauges[session] = Gauge()
            if len(self._gauges) > _MOST_SESSIONS:
                self._gauges.popitem(last=False)
        else:
            self._gauges.move_to_end(session)
        return gauge
