"""Reading: exact text, bounded results that say how to get the rest, and clear words where there is no text."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilane.errors import ToolError
from trilane_files.bounded import RESULT_CHARACTERS, Deadline
from trilane_files.confine import Root
from trilane_files.counting import count_words
from trilane_files.decoding import Encoding, NotTextError, TextPieces
from trilane_files.describing import file_info
from trilane_files.reading import MOST_LINES, read_file
from trilane_files.searching import search_text

Write = Callable[..., Path]
_CONTINUE = re.compile(r"\[lines .*; continue with offset=(\d+)(?:, column=(\d+))?\]\Z")


def read_all(root: Root, path: str, limit: int = 500) -> str:
    """The whole text, by following the notes."""
    text, offset, column = "", 1, 1
    while True:
        page = read_file(root, path, offset=offset, column=column, limit=limit)
        found = _CONTINUE.search(page)
        if found is None:
            body, mark, _ = page.rpartition("[lines ")
            return text + (body if mark else page)
        offset, column = int(found[1]), int(found[2] or 1)
        body = page[: found.start()]
        text += body if column == 1 else body[:-1]


def test_a_short_file_is_returned_as_it_is(root: Root, write: Write) -> None:
    write("a.txt", "one\n\n  two äöü 😀")
    assert read_file(root, "a.txt") == "one\n\n  two äöü 😀"


def test_an_empty_file_says_so(root: Root, write: Write) -> None:
    write("a.txt")
    write("bom.txt", b"\xef\xbb\xbf")
    assert read_file(root, "a.txt") == "['a.txt' is empty: 0 bytes]"
    assert read_file(root, "bom.txt") == "['bom.txt' is empty: 3 bytes]"


def test_a_file_with_one_line_end_is_not_empty(root: Root, write: Write) -> None:
    write("a.txt", "\n")
    assert read_file(root, "a.txt") == "\n"


def test_line_ends_become_line_feeds(root: Root, write: Write) -> None:
    write("a.txt", b"one\r\ntwo\r\n\rthree\r\n")
    assert read_file(root, "a.txt") == "one\ntwo\n\nthree\n"
    assert read_file(root, "a.txt", offset=2, limit=1) == ("two\n[lines 2-2 of 4; continue with offset=3]")


def test_a_line_end_between_two_pieces_is_one_line_end(root: Root, write: Write) -> None:
    write("a.txt", b"x" * ((1 << 16) - 1) + b"\r\n" + b"end")
    assert read_file(root, "a.txt", offset=2) == "end\n[lines 2-2 of 2: the end of the file]"


def test_a_byte_order_mark_is_left_out(root: Root, write: Write) -> None:
    write("a.txt", b"\xef\xbb\xbfone\n")
    assert read_file(root, "a.txt") == "one\n"


def test_a_page_says_what_is_missing_and_how_to_get_it(root: Root, write: Write) -> None:
    write("a.txt", "".join(f"line {n}\n" for n in range(1, 1235)))
    page = read_file(root, "a.txt")
    assert page.startswith("line 1\n")
    assert page.endswith("line 500\n[lines 1-500 of 1,234; continue with offset=501]")
    assert read_file(root, "a.txt", offset=1233) == (
        "line 1233\nline 1234\n[lines 1,233-1,234 of 1,234: the end of the file]"
    )
    assert read_file(root, "a.txt", offset=1233, limit=2).endswith("[lines 1,233-1,234 of 1,234: the end of the file]")


def test_no_more_than_the_highest_limit_is_returned(root: Root, write: Write) -> None:
    write("a.txt", "x\n" * 5000)
    page = read_file(root, "a.txt", limit=10**9)
    assert page.count("x\n") == MOST_LINES
    assert page.endswith(f"[lines 1-{MOST_LINES:,} of 5,000; continue with offset={MOST_LINES + 1}]")


def test_a_megabyte_on_one_line_can_be_read_in_parts(root: Root, write: Write) -> None:
    text = "".join(f"{n:07}" for n in range(150_000))
    write("a.txt", text)
    page = read_file(root, "a.txt")
    assert len(page) < RESULT_CHARACTERS + 200
    assert page.endswith(f"\n[lines 1-1 of 1; continue with offset=1, column={RESULT_CHARACTERS + 1}]")
    assert read_all(root, "a.txt").rstrip("\n") == text


def test_a_megabyte_of_lines_can_be_read_in_parts(root: Root, write: Write) -> None:
    text = "".join(f"{n} {'x' * (n % 200)}\n" for n in range(10_000))
    assert len(text) > 1_000_000
    write("a.txt", text)
    assert read_all(root, "a.txt") == text


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(st.sampled_from("ab\n"), max_size=60), limit=st.integers(1, 4), room=st.integers(1, 9))
def test_following_the_notes_gives_the_exact_text(root: Root, write: Write, text: str, limit: int, room: int) -> None:
    write("a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trilane_files.reading.RESULT_CHARACTERS", room)
        got = read_all(root, "a.txt", limit)
    assert got.rstrip("\n") == (text.rstrip("\n") if text else "['a.txt' is empty: 0 bytes]")


def test_asking_past_the_end_says_how_long_the_file_is(root: Root, write: Write) -> None:
    write("a.txt", "one\ntwo")
    with pytest.raises(ToolError, match=r"'a\.txt' has 2 lines: offset=3 is past its end\."):
        read_file(root, "a.txt", offset=3)
    with pytest.raises(ToolError, match=r"Line 1 of 'a\.txt' ends before column=9\."):
        read_file(root, "a.txt", column=9)
    with pytest.raises(ToolError, match=r"Line 2 of 'a\.txt' ends before column=4\."):
        read_file(root, "a.txt", offset=2, column=4)
    assert read_file(root, "a.txt", offset=2, column=3) == "o\n[lines 2-2 of 2, from column 3: the end of the file]"


@pytest.mark.parametrize("name", ["offset", "limit", "column"])
def test_numbers_below_one_are_refused(root: Root, write: Write, name: str) -> None:
    write("a.txt", "one")
    with pytest.raises(ToolError, match=f"{name}=0 cannot be used: it must be 1 or more"):
        read_file(root, "a.txt", **{name: 0})


def test_binary_files_are_named_as_such(root: Root, write: Write) -> None:
    write("a.bin", b"text and \0 more")
    write("b.bin", b"\xff\xfe\0\0 \xff")
    write("late.bin", b"x\n" * 60_000 + b"\0")
    with pytest.raises(ToolError, match=r"'a\.bin' is binary, not text: NUL byte at offset 9\. file_info"):
        read_file(root, "a.bin")
    with pytest.raises(ToolError, match="UTF-16"):
        read_file(root, "b.bin")
    with pytest.raises(ToolError, match="NUL byte at offset 120,000"):
        read_file(root, "late.bin", offset=60_000)


def test_trouble_behind_the_page_does_not_take_the_page_away(root: Root, write: Write) -> None:
    write("late.bin", b"x\n" * 60_000 + b"\xff\0")
    assert read_file(root, "late.bin", limit=1).startswith("x\n[lines 1-1 of at least ")


@pytest.mark.parametrize(
    ("start", "what"),
    [(b"%PDF-1.7\n", "a PDF document"), (b"\x89PNG\r\n", "a PNG image"), (b"PK\x03\x04", "a ZIP archive")],
)
def test_known_formats_are_named(root: Root, write: Write, start: bytes, what: str) -> None:
    write("a", start + b"rest")
    with pytest.raises(NotTextError, match=what) as caught:
        read_file(root, "a")
    assert caught.value.reason == "binary"


def test_latin_1_is_refused_with_the_way_to_read_it(root: Root, write: Write) -> None:
    write("a.txt", "caf\u00e9 cr\u00e8me\n".encode("latin-1"))
    with pytest.raises(NotTextError) as caught:
        read_file(root, "a.txt")
    assert str(caught.value).startswith("'a.txt' is not utf-8 text: byte 0xe9 at offset 3. If it is text, call again")
    assert "encoding='latin-1'" in str(caught.value)
    assert read_file(root, "a.txt", encoding="latin-1") == "café crème\n"


def test_bad_bytes_are_found_where_they_are(root: Root, write: Write) -> None:
    write("late.txt", b"x" * 70_000 + b"\xc3(")
    write("cut.txt", b"ab\xe2\x82")
    write("surrogate.txt", b"ab\xed\xa0\xbd")
    write("utf16.txt", "ab".encode("utf-16") + b"c")
    with pytest.raises(NotTextError, match="byte 0xc3 at offset 70,000"):
        read_file(root, "late.txt", column=60_000)
    with pytest.raises(NotTextError, match="byte 0xe2 at offset 2"):
        read_file(root, "cut.txt")
    with pytest.raises(NotTextError, match="byte 0xed at offset 2"):
        read_file(root, "surrogate.txt")
    with pytest.raises(NotTextError, match="not utf-16 text: byte 0x63 at offset 6"):
        read_file(root, "utf16.txt", encoding="utf-16")


def test_utf_16_is_recognised(root: Root, write: Write) -> None:
    write("a.txt", "one\ntwo\n".encode("utf-16"))
    with pytest.raises(NotTextError, match=r"'a\.txt' is UTF-16 text\. Call again with encoding='utf-16'\."):
        read_file(root, "a.txt")
    assert read_file(root, "a.txt", encoding="utf-16") == "one\ntwo\n"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.one_of(st.binary(max_size=100), st.text(max_size=40).map(str.encode)),
    encoding=st.sampled_from(get_args(Encoding)),
    offset=st.integers(1, 4),
    column=st.integers(1, 4),
)
def test_any_bytes_become_valid_text_or_an_explanation(
    root: Root, write: Write, content: bytes, encoding: Encoding, offset: int, column: int
) -> None:
    write("a.txt", content)
    calls: list[Callable[[], object]] = [
        lambda: read_file(root, "a.txt", offset=offset, column=column, encoding=encoding),
        lambda: count_words(root, "a.txt", encoding=encoding),
        lambda: search_text(root, "a", encoding=encoding),
        lambda: file_info(root, "a.txt"),
    ]
    for call in calls:
        try:
            text = str(call())
        except ToolError as error:
            text = str(error)
        assert text.encode()


def test_a_line_that_is_not_reached_in_time_is_told(root: Root, write: Write, passed: Deadline) -> None:
    write("a.txt", "x\n" * 100_000)
    with pytest.raises(ToolError, match=r"Line 99,000 of 'a\.txt' was not reached within 0 seconds"):
        read_file(root, "a.txt", offset=99_000, deadline=passed)


def test_counting_the_rest_of_a_huge_file_ends(root: Root, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trilane_files.reading._COUNT_SECONDS", 0.0)
    write("a.txt", "x\n" * 1_000_000)
    page = read_file(root, "a.txt", limit=1)
    assert re.fullmatch(r"x\n\[lines 1-1 of at least [\d,]+; continue with offset=2\]", page)


class _Raw(io.FileIO):
    """A file whose reads go wrong."""

    def __init__(self, path: Path, outcome: OSError | None) -> None:
        super().__init__(path)
        self._outcome = outcome

    def read(self, size: int | None = -1, /) -> bytes:
        if self._outcome is not None:
            raise self._outcome
        return None  # type: ignore[return-value]  # what a descriptor that would block gives


def test_a_read_that_fails_or_would_block_is_told(write: Write) -> None:
    path = write("a.txt", "x")
    with _Raw(path, OSError(errno.EIO, "Input/output error")) as file:
        with pytest.raises(ToolError, match=r"'a\.txt' cannot be read on: Input/output error"):
            list(TextPieces(file, "a.txt"))
    with _Raw(path, None) as file:
        with pytest.raises(ToolError, match="would block"):
            list(TextPieces(file, "a.txt"))
