"""The race of two processes for one session finds what is wrong; what stores make of it is in their own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trilane.testing.races import _lost, _rounds


class Puppet:
    """A process that says what it was given to say."""

    def __init__(self, name: str, *words: str) -> None:
        self.name = name
        self.told: list[str] = []
        self._words = ["ready", *words]

    def tell(self, text: str) -> None:
        self.told.append(text)

    def hear(self) -> str:
        return self._words.pop(0)


def judged(left: Puppet, right: Puppet, rounds: int = 1) -> Any:
    return _rounds((left, right), rounds)  # type: ignore[arg-type]


def test_one_owner_in_each_round_is_right() -> None:
    left = Puppet("left", "owner 0", "done 0", "busy 1")
    right = Puppet("right", "busy 0", "owner 1", "done 1")
    outcome = judged(left, right, 2)
    assert (outcome.owners, outcome.problems) == (["left", "right"], [])
    assert left.told == ["0", "answer", "1"]


def test_two_owners_none_and_an_owner_that_fails_are_found() -> None:
    two = judged(Puppet("left", "owner 0", "done 0"), Puppet("right", "owner 0", "failed Conflict"))
    assert two.problems == [
        "round 0: ['owner 0', 'owner 0'] instead of one owner",
        "round 0: the owner ended with 'failed Conflict'",
    ]
    none = judged(Puppet("left", "busy 0"), Puppet("right", "busy 0"))
    assert none.problems == ["round 0: ['busy 0', 'busy 0'] instead of one owner"]


def test_what_was_lost_is_found(tmp_path: Path) -> None:
    found = _lost(f"sqlite:{tmp_path}/s", "nobody-wrote", ["left"], "asyncio")
    assert found == ["the session lacks ['heard left 0', 'left 0'] and has [] besides; or the order is another"]
