"""Counting words: the same number as `wc -w`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trilane.errors import ToolError
from trilane_files.bounded import Deadline
from trilane_files.confine import Root
from trilane_files.counting import count_words, words_in

Write = Callable[..., Path]
_SPACES = " \t\n\r\v\f\u00a0\u1680\u2003\u2007\u202f\u205f\u2060\u3000"


def _is_gnu() -> bool:
    if shutil.which("wc") is None:
        return False
    output = subprocess.run(["wc", "--version"], capture_output=True, text=True, check=False)
    return "GNU coreutils" in output.stdout


IS_GNU = _is_gnu()


def wc_words(path: Path) -> int:
    """What `wc -w` of GNU coreutils says; where there is none, what it would say of letters and white space."""
    if not IS_GNU:
        text = path.read_bytes().decode()
        blanked = "".join(" " if character in _SPACES else character for character in text)
        return sum(1 for word in blanked.split(" ") if word)
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    output = subprocess.run(["wc", "-w", str(path)], capture_output=True, text=True, check=True, env=environment)
    return int(output.stdout.split()[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        (" \n\t ", 0),
        ("one", 1),
        ("one two\nthree\r\nfour\n", 4),
        ("don't stop - now", 4),
        ("naïve café — 日本語 テスト", 5),
        ("a\u00a0b\u3000c\u2003d", 4),
        ("zero\u200bwidth x\u00ady", 2),
        ("a\x1cb \u0085", 2),
        ("page\fbreak\vtab", 3),
        ("👩‍👩‍👧 family", 2),
    ],
)
def test_words_are_runs_without_white_space(root: Root, write: Write, text: str, words: int) -> None:
    write("a.txt", text)
    assert count_words(root, "a.txt") == words


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(st.one_of(st.sampled_from(_SPACES), st.sampled_from("aZ9.,'-äßñé–“日本語한글😀")), max_size=200))
@example("a\u00a0b")
def test_counts_as_wc_does(root: Root, write: Write, text: str) -> None:
    path = write("a.txt", text)
    assert count_words(root, "a.txt") == wc_words(path)


def test_counts_a_megabyte_as_wc_does(root: Root, write: Write) -> None:
    path = write("a.txt", "".join(f"{'wörd' * (n % 7)}{_SPACES[n % len(_SPACES)]}" for n in range(100_000)))
    assert path.stat().st_size > 1_000_000
    assert count_words(root, "a.txt") == wc_words(path)


@given(st.lists(st.text(st.sampled_from("ab \n"), min_size=1, max_size=5), max_size=20))
def test_where_the_text_is_cut_into_pieces_does_not_matter(pieces: list[str]) -> None:
    assert words_in(pieces) == len("".join(pieces).split())


def test_a_byte_order_mark_alone_is_no_word(root: Root, write: Write) -> None:
    write("a.txt", b"\xef\xbb\xbf one")
    assert count_words(root, "a.txt") == 1


def test_the_file_is_streamed(root: Root, write: Write) -> None:
    import tracemalloc

    write("a.txt", b"word " * 1_000_000)
    tracemalloc.start()
    try:
        assert count_words(root, "a.txt") == 1_000_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


def test_other_encodings_are_counted_when_named(root: Root, write: Write) -> None:
    write("a.txt", "café crème".encode("latin-1"))
    with pytest.raises(ToolError, match="encoding='latin-1'"):
        count_words(root, "a.txt")
    assert count_words(root, "a.txt", encoding="latin-1") == 2


def test_binary_files_have_no_words(root: Root, write: Write) -> None:
    write("a.bin", b"a b \0")
    with pytest.raises(ToolError, match="is binary, not text"):
        count_words(root, "a.bin")


def test_a_file_that_takes_too_long_is_told(root: Root, write: Write, passed: Deadline) -> None:
    write("a.txt", "a b c")
    with pytest.raises(ToolError, match=r"'a\.txt' is too large: 5 bytes were counted in 0 seconds"):
        count_words(root, "a.txt", deadline=passed)
