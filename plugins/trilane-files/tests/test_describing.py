"""`file_info`: one line that says what something is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trilane.errors import ToolError
from trilane_files import describing
from trilane_files.bounded import Deadline
from trilane_files.confine import Root
from trilane_files.describing import file_info

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"one two\nthree\n", "14 bytes, UTF-8 text, 2 lines (LF), 3 words"),
        (b"one\r\ntwo", "8 bytes, UTF-8 text, 2 lines (CRLF), 2 words"),
        (b"one\r\ntwo\n", "9 bytes, UTF-8 text, 2 lines (LF/CRLF), 2 words"),
        (b"one", "3 bytes, UTF-8 text, 1 lines, 1 words"),
        (b"", "0 bytes, empty"),
        (b"a\0b", "3 bytes, binary"),
        (b"caf\xe9", "4 bytes, not UTF-8 text (read_file takes an encoding)"),
    ],
)
def test_files(root: Root, write: Write, content: bytes, what: str) -> None:
    os.utime(write("a.txt", content), (1_700_000_000, 1_700_000_000))
    assert file_info(root, "a.txt") == f"a.txt: file, {what}, modified 2023-11-14 22:13:20 UTC"


def test_folders(root: Root, write: Write, folder: Path) -> None:
    assert file_info(root, ".").startswith(".: empty folder, modified ")
    write("docs/a.txt")
    write("docs/b.txt")
    write("docs/c/d.txt")
    assert file_info(root, "docs").startswith("docs: folder with 1 folders and 2 files directly in it, modified ")


def test_a_huge_file_is_described_as_far_as_time_allows(root: Root, write: Write, passed: Deadline) -> None:
    write("a.txt", "one two\n" * 50_000)
    text = file_info(root, "a.txt", deadline=passed)
    assert "400,000 bytes, UTF-8 text, at least 8,192 lines" in text
    assert "at least 16,384 words" in text


def test_missing(root: Root) -> None:
    with pytest.raises(ToolError, match=r"There is no 'a\.txt'"):
        file_info(root, "a.txt")


def test_a_time_no_calendar_has() -> None:
    assert describing._time(1e30) == "at an unknown time"
