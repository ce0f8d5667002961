"""How far the events of a run were sent to one client. Knows nothing of the way they take."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue

from . import protocol as p
from .live import LiveRun

__all__ = ["Subscription"]


class Subscription:
    """How far the events of one run were sent on one connection, or event stream.

    Attributes:
        live: The run.
        sent: The last event that was sent.
        acknowledgeable: The last one that was ever sent here: who asks for events again may have the others already.
        wake: What the run's journal is to call, if it has to call something.
    """

    __slots__ = ("acknowledgeable", "live", "sent", "wake")

    def __init__(self, live: LiveRun, sent: int) -> None:
        self.live = live
        self.sent = self.acknowledgeable = sent
        self.wake: Callable[[], None] | None = None

    @classmethod
    def after(cls, live: LiveRun, after: JsonValue) -> tuple[Subscription, p.Gap | None]:
        """From `after` on, with the gap to be told if that is not possible."""
        first, last = live.journal.first, live.journal.last
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            return cls(live, first - 1), cls._gap(live, str(after)[:100], "unreadable")
        if after > last:
            return cls(live, first - 1), cls._gap(live, after, "future")
        if after + 1 < first:
            return cls(live, first - 1), cls._gap(live, after, "discarded")
        return cls(live, after), None

    @staticmethod
    def _gap(live: LiveRun, after: JsonValue, reason: str) -> p.Gap:
        return p.Gap.model_validate(
            {
                "session": live.session,
                "run": live.run_id,
                "after": after,
                "first": live.journal.first,
                "reason": reason,
            }
        )

    def fell_behind(self) -> p.Gap | None:
        """The gap, if what comes next was discarded before it could be sent; then it goes on after that."""
        if self.sent + 1 >= self.live.journal.first:
            return None
        gap = self._gap(self.live, self.sent, "discarded")
        self.sent = self.live.journal.first - 1
        return gap

    def take(self, max_bytes: int) -> list[tuple[int, str]]:
        """What comes next; it counts as sent."""
        batch = self.live.journal.after(self.sent, max_bytes)
        if batch:
            self.sent = batch[-1][0]
            self.acknowledgeable = max(self.acknowledgeable, self.sent)
        return batch

    def only_news(self) -> str | None:
        """The event that came last, if it is the only one that was not sent; `took` says that it was."""
        journal = self.live.journal
        return journal.newest if self.sent == journal.last - 1 else None

    def took(self) -> None:
        """What `only_news` gave was sent."""
        self.sent = self.live.journal.last
        self.acknowledgeable = max(self.acknowledgeable, self.sent)
