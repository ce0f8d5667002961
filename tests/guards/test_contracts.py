"""Every numbered rule of the design has a test that carries its number: `r01` to `r91`, faults `w01` to `w34`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

RULES = range(1, 92)
#: Faults that were seen in other runtimes; the numbers that are missing were merged into others.
FAULTS = sorted(set(range(1, 35)) - {11, 16, 20, 28, 33})

_NUMBER = re.compile(r"(?<![a-z0-9])([rw])(\d{1,2})(?=_)")


def numbered() -> set[tuple[str, int]]:
    """What the names of all tests say they show."""
    found: set[tuple[str, int]] = set()
    for folder in ("tests", "plugins"):
        for path in (ROOT / folder).rglob("test_*.py"):
            for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")):
                found.update((kind, int(number)) for kind, number in _NUMBER.findall(name))
    return found


def test_every_rule_has_a_test_that_carries_its_number() -> None:
    missing = [f"r{number:02}" for number in RULES if ("r", number) not in numbered()]
    missing += [f"w{number:02}" for number in FAULTS if ("w", number) not in numbered()]
    assert missing == []


def test_no_test_carries_a_number_that_no_rule_has() -> None:
    known = {("r", number) for number in RULES} | {("w", number) for number in FAULTS}
    assert sorted(numbered() - known) == []
