"""The table of field cases is complete, and the tests it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "field_cases.md"
#: Where tests live; the conformance suites of the kit are tests, too, which the plugins run.
TESTS = ("tests/**/test_*.py", "plugins/*/tests/**/test_*.py", "src/trilane/testing/*.py")
CASES = [f"F{number:03}" for number in range(1, 124)]


def _rows() -> list[list[str]]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| F\d", line)]


@pytest.fixture(scope="module")
def tests() -> set[str]:
    found = set()
    for pattern in TESTS:
        for path in ROOT.glob(pattern):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                    found.add(node.name)
    return found


def test_every_case_has_one_row_in_order() -> None:
    assert [row[0] for row in _rows()] == CASES


def test_rows_are_short() -> None:
    assert [row for row in _rows() if len(row) != 3 or not 2 <= len(row[1].split()) <= 10] == []


def test_every_test_that_is_named_exists(tests: set[str]) -> None:
    named = {name for row in _rows() for name in re.findall(r"`(test_\w+)`", row[2])}
    assert sorted(named - tests) == []


def test_rows_without_a_test_say_why() -> None:
    reasons = {row[0]: row[2] for row in _rows() if "`test_" not in row[2]}
    assert {case: reason for case, reason in reasons.items() if len(reason.split()) < 5} == {}


def test_numbers_in_the_names_of_tests_are_those_of_cases(tests: set[str]) -> None:
    numbers = {f"F{number}" for name in tests for number in re.findall(r"(?<=_)f(\d{3})(?=_)", name)}
    assert sorted(numbers - {*CASES}) == []
