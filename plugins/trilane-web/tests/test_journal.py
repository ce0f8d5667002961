"""Events that are kept for those who come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trilane_web.journal import Journal


def _filled(count: int, *, max_events: int = 10_000, max_bytes: int = 10_000_000, needed: int = 1 << 60) -> Journal:
    journal = Journal(max_events, max_bytes)
    for seq in range(1, count + 1):
        journal.append(seq, f'{{"seq":{seq}}}', needed_from=needed)
    return journal


def test_what_follows_a_number() -> None:
    journal = _filled(5)
    assert [seq for seq, _ in journal.after(3, 1000)] == [4, 5]
    assert journal.after(5, 1000) == []
    assert journal.after(99, 1000) == []
    assert [seq for seq, _ in journal.after(0, 1)] == [1], "at least one, however small the frame"


def test_the_oldest_go_first_and_what_is_needed_stays() -> None:
    journal = _filled(20, max_events=5)
    assert (journal.first, journal.last, len(journal)) == (16, 20, 5)
    kept = _filled(20, max_events=5, needed=3)
    assert (kept.first, len(kept)) == (3, 18)
    small = _filled(100, max_bytes=50)
    assert small.size <= 50
    assert small.last == 100


def test_the_newest_stays_whatever_its_size() -> None:
    """It may be the one that tells the end, and nobody has had a chance to get it."""
    journal = Journal(10, 100)
    for seq, size in ((1, 10), (2, 5000), (3, 10), (4, 90), (5, 5000)):
        journal.append(seq, "x" * size, needed_from=1 << 60)
        assert journal.newest == "x" * size
    assert (journal.first, journal.last, len(journal), journal.size) == (5, 5, 1, 5000)
    assert journal.after(0, 10) == [(5, "x" * 5000)]


def test_watchers_are_woken_until_they_leave() -> None:
    journal = Journal(10, 1000)
    woken: list[int] = []

    def wake() -> None:
        woken.append(journal.last)

    journal.watch(wake)
    journal.append(1, "{}", needed_from=1)
    journal.unwatch(wake)
    journal.unwatch(wake)
    journal.append(2, "{}", needed_from=1)
    assert woken == [1]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(-1, 70), st.integers(1, 400))
def test_reading_in_pieces_gives_every_kept_event_once(count: int, room: int, after: int, piece: int) -> None:
    journal = _filled(count, max_events=room)
    read: list[int] = []
    at = max(0, after)
    while batch := journal.after(at, piece):
        read += [seq for seq, _ in batch]
        at = batch[-1][0]
    assert read == list(range(max(journal.first, max(0, after) + 1), count + 1))
