"""Searching: path:line: text, plain by default, and no pattern that can hang it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trilane.errors import ToolError
from trilane_files import matching
from trilane_files.bounded import RESULT_CHARACTERS, Deadline
from trilane_files.confine import Root
from trilane_files.searching import LINE_CHARACTERS, search_text

Write = Callable[..., Path]


@pytest.fixture
def project(write: Write, root: Root) -> Root:
    write("README.md", "# Title\n\nUse a.b() here.\r\n  indented TASK: more\n")
    write("src/app.py", "def axb():\n    return 'a.b()'\n")
    write(".git/log", "TASK: hidden\n")
    write("data.bin", b"TASK\0")
    return root


_BINARY = "[left out, binary files: 1, 'data.bin']"


def test_plain_text_is_found_with_path_and_line(project: Root) -> None:
    assert search_text(project, "a.b()").splitlines() == [
        "README.md:3: Use a.b() here.",
        "src/app.py:2:     return 'a.b()'",
        _BINARY,
    ]
    assert search_text(project, "task") == f"No line matches 'task' in the 2 files searched. {_IGNORED}\n{_BINARY}"
    assert search_text(project, "task", ignore_case=True).startswith("README.md:4:   indented TASK: more\n")


_IGNORED = "Hidden and vendor folders (1) were not looked into; include_ignored=True looks into them."


def test_files_are_chosen_by_pattern_and_path(project: Root) -> None:
    assert search_text(project, "a", pattern="*.py", path="src").splitlines()[0] == "src/app.py:1: def axb():"
    assert search_text(project, "TASK", path="README.md") == "README.md:4:   indented TASK: more"
    assert search_text(project, "TASK", include_ignored=True).startswith(".git/log:1: TASK: hidden\nREADME.md:4:")
    with pytest.raises(ToolError, match="is binary, not text"):
        search_text(project, "TASK", path="data.bin")
    with pytest.raises(ToolError, match="There is no 'gone'"):
        search_text(project, "TASK", path="gone")


def test_regular_expressions(project: Root) -> None:
    assert search_text(project, r"a.b\(\)", regex=True).splitlines() == [
        "README.md:3: Use a.b() here.",
        "src/app.py:1: def axb():",
        "src/app.py:2:     return 'a.b()'",
        _BINARY,
    ]
    assert search_text(project, "^DEF", regex=True, ignore_case=True).startswith("src/app.py:1:")
    assert search_text(project, "here.$", regex=True).startswith("README.md:3:")


def test_a_broken_expression_says_what_is_wrong(project: Root) -> None:
    with pytest.raises(ToolError, match=r"'a\(b' is not a regular expression: missing \), unterminated .* regex=False"):
        search_text(project, "a(b", regex=True)


def test_a_catastrophic_expression_is_stopped_and_what_was_found_is_kept(root: Root, write: Write) -> None:
    write("a.txt", "aab\n")
    write("b.txt", "a" * 60 + "!\n")
    write("c.txt", "aab\n")
    begun = time.monotonic()
    text = search_text(root, "^(a+)+b$", regex=True, deadline=Deadline(0.7))
    assert time.monotonic() - begun < 7
    first, note = text.splitlines()[0], text.splitlines()[-1]
    assert first == "a.txt:1: aab"
    assert note.startswith("[stopped in 'b.txt': The regular expression takes too long here. Use a simpler one")
    with pytest.raises(ToolError, match="takes too long here"):
        search_text(root, "^(a+)+b$", path="b.txt", regex=True, deadline=Deadline(0.3))


def test_the_process_of_an_expression_always_ends(root: Root, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.txt", "aab\n")
    started = []
    real_start = matching._start
    monkeypatch.setattr(matching, "_start", lambda: started.append(real_start()) or started[-1])
    search_text(root, "a+b", regex=True)
    with pytest.raises(ToolError):
        search_text(root, "(", regex=True)
    with pytest.raises(ToolError):
        search_text(root, "a", path="gone", regex=True)
    assert [process.poll() is not None for process in started] == [True, True, True]


def test_without_a_process_plain_text_is_offered(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(ToolError, match=r"No process for the regular expression can be started .*regex=False"):
        search_text(root, "a", regex=True)


@pytest.mark.parametrize("query", ["", "a\nb", "a\rb", "x" * 1001])
def test_queries_that_cannot_be_used(root: Root, query: str) -> None:
    with pytest.raises(ToolError, match="query must be 1 to 1000 characters on one line"):
        search_text(root, query)


def test_long_results_come_in_pages(root: Root, write: Write) -> None:
    write("a.txt", "hit\nmiss\n" * 250)
    first = search_text(root, "hit").splitlines()
    assert len(first) == 101
    assert first[-1] == "[matching lines 1-100 of 250; continue with offset=100]"
    last = search_text(root, "hit", offset=200).splitlines()
    assert last[0] == "a.txt:401: hit"
    assert last[-1] == "[matching lines 201-250 of 250]"
    assert search_text(root, "hit", max_results=10**6).count(": hit") == 250


def test_a_result_is_bounded_in_characters(root: Root, write: Write) -> None:
    write("a.txt", ("hit " + "x" * 290 + "\n") * 200)
    text = search_text(root, "hit", max_results=200)
    assert len(text) < RESULT_CHARACTERS + 200
    assert re.search(r"\[matching lines 1-(\d+) of 200; continue with offset=\1\]\Z", text)


def test_a_long_line_is_shown_around_its_match(root: Root, write: Write) -> None:
    write("a.txt", "x" * 3000 + "needle" + "y" * 3000 + "\n")
    line = search_text(root, "needle").removeprefix("a.txt:1: ")
    assert line.startswith("...xxx")
    assert line.endswith("yyy...")
    assert "needle" in line
    assert len(line) == 306


def test_a_very_long_line_is_searched_as_far_as_it_says(root: Root, write: Write) -> None:
    write("a.txt", "x" * (LINE_CHARACTERS - 3) + "hit" + "y" * 200_000 + "late\nhit\n")
    found = search_text(root, "hit").splitlines()
    assert [line.split(" ")[0] for line in found[:2]] == ["a.txt:1:", "a.txt:2:"]
    note = (
        f"[searched only up to column {LINE_CHARACTERS:,}, longer lines: 1; "
        f"read_file(..., column={LINE_CHARACTERS + 1}) shows the rest]"
    )
    assert found[2] == note
    assert search_text(root, "late") == f"No line matches 'late' in the 1 file searched.\n{note}"


def test_lines_are_numbered_as_read_file_numbers_them(root: Root, write: Write) -> None:
    write("a.txt", b"one\r\ntwo\rthree\n\nfive\x0cfive\n" + b"\n" * 70_000 + b"end")
    assert search_text(root, "five") == "a.txt:5: five\x0cfive"
    assert search_text(root, "end") == "a.txt:70006: end"


def test_files_in_other_encodings_are_left_out_and_named(root: Root, write: Write) -> None:
    for number in range(5):
        write(f"{number}.txt", "café\n".encode("latin-1"))
    assert search_text(root, "caf") == (
        "No line matches 'caf' in the 0 files searched.\n"
        "[left out, files that are not utf-8 text: 5, '0.txt', '1.txt', '2.txt', ...]"
    )
    assert search_text(root, "é", encoding="latin-1").splitlines()[0] == "0.txt:1: café"


def test_a_search_that_takes_too_long_says_where_it_stopped(root: Root, write: Write, passed: Deadline) -> None:
    write("a.txt", "hit\n")
    write("b.txt", "hit\n")
    assert search_text(root, "hit", path="a.txt", deadline=passed).splitlines() == [
        "a.txt:1: hit",
        "[matching lines 1-1 of at least 1]",
        "[stopped after 0 seconds in 'a.txt'; narrow path or pattern to search the rest]",
    ]
    assert "[stopped after 0 seconds at '.'" in search_text(root, "hit", deadline=passed)
