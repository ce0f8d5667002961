"""Listing: the same order every time, hidden and vendor folders left out, bounded and honest about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilane.errors import ToolError
from trilane_files import listing
from trilane_files.bounded import RESULT_CHARACTERS, Deadline
from trilane_files.confine import Root
from trilane_files.listing import list_files
from trilane_files.patterns import FilePattern

Write = Callable[..., Path]


@pytest.fixture
def project(write: Write, root: Root) -> Root:
    for name in [
        "README.md",
        "docs/guide.md",
        "docs/deep/er/notes.md",
        "docs/index.rst",
        "src/app.py",
        "src/app/__pycache__/x.pyc",
        ".git/config.md",
        ".github/workflow.md",
        ".venv/lib/readme.md",
        "env/pyvenv.cfg",
        "env/lib/readme.md",
        "node_modules/left/README.md",
        "vendor/readme.md",
        "lib.egg-info/readme.md",
        ".hidden.md",
    ]:
        write(name, "x\n")
    return root


def names(root: Root, pattern: str = "**/*", **arguments: object) -> list[str]:
    return list_files(root, pattern, **arguments).splitlines()  # type: ignore[arg-type]


def test_a_bare_pattern_matches_at_any_depth(project: Root) -> None:
    assert names(project, "*.md") == [".hidden.md", "README.md", "docs/deep/er/notes.md", "docs/guide.md"]
    assert names(project, "**/*.md") == names(project, "*.md")
    assert names(project, "guide.md") == ["docs/guide.md"]


def test_a_pattern_with_a_slash_starts_at_the_folder(project: Root) -> None:
    assert names(project, "./*.md") == [".hidden.md", "README.md"]
    assert names(project, "docs/*.md") == ["docs/guide.md"]
    assert names(project, "docs/**/*.md") == ["docs/deep/er/notes.md", "docs/guide.md"]
    assert names(project, "docs/**") == ["docs/deep/er/notes.md", "docs/guide.md", "docs/index.rst"]
    assert names(project, "**/er/*") == ["docs/deep/er/notes.md"]
    assert names(project, "deep/**/*.md", path="docs") == ["docs/deep/er/notes.md"]


def test_braces_and_classes(project: Root) -> None:
    assert names(project, "docs/*.{md,rst}") == ["docs/guide.md", "docs/index.rst"]
    assert names(project, "{src,docs}/[ai]*.{py,rst}") == ["docs/index.rst", "src/app.py"]
    assert names(project, "?ppp.py", path="src") == ["No file in 'src' matches '?ppp.py'. " + _IGNORED.format(1)]


_IGNORED = "Hidden and vendor folders ({}) were not looked into; include_ignored=True looks into them."


def test_hidden_and_vendor_folders_are_left_out_unless_asked_for(project: Root) -> None:
    everything = names(project)
    assert everything == sorted(everything, key=lambda name: name.split("/"))
    assert len(everything) == 6
    assert len(names(project, include_ignored=True)) == 15
    assert names(project, ".github/*.md") == [".github/workflow.md"]
    assert names(project, ".venv/**/*.md") == [".venv/lib/readme.md"]
    assert names(project, "env/lib/*") == ["env/lib/readme.md"]
    assert names(project, path="node_modules") == ["node_modules/left/README.md"]


def test_a_listing_that_finds_nothing_says_where_it_did_not_look(project: Root) -> None:
    assert list_files(project, "config.md") == "No file in '.' matches 'config.md'. " + _IGNORED.format(8)


def test_an_empty_folder(root: Root, folder: Path) -> None:
    (folder / "empty").mkdir()
    assert list_files(root) == "No file in '.' matches '**/*'."
    assert list_files(root, path="empty") == "No file in 'empty' matches '**/*'."


def test_order_does_not_depend_on_the_system(root: Root, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["b/1", "a/2", "a-b", "a.txt", "B", "ä"]:
        write(name)
    expected = ["B", "a/2", "a-b", "a.txt", "b/1", "ä"]
    assert names(root) == expected
    real_scan = Root.scan
    monkeypatch.setattr(Root, "scan", lambda self, place, most: real_scan(self, place, most=most)[::-1])
    assert names(root) == expected


def test_a_long_listing_comes_in_pages(root: Root, write: Write) -> None:
    for number in range(25):
        write(f"{number:02}.txt")
    first = names(root, max_results=10)
    assert first[0] == "00.txt"
    assert first[-1] == "[files 1-10 of 25; continue with offset=10]"
    assert names(root, max_results=10, offset=20)[-1] == "[files 21-25 of 25]"
    assert names(root, offset=25) == ["[no files after offset=25: there are 25]"]


def test_long_names_make_shorter_pages(root: Root, write: Write) -> None:
    for number in range(100):
        write(f"{number:03}{'x' * 200}")
    text = list_files(root)
    assert len(text) < RESULT_CHARACTERS + 100
    assert text.endswith("[files 1-78 of 100; continue with offset=78]")


def test_a_walk_that_takes_too_long_says_so(project: Root, passed: Deadline) -> None:
    text = list_files(project, deadline=passed)
    assert "[stopped after 0 seconds at '.': narrow path or pattern to see the rest]" in text


def test_a_folder_with_too_many_names_says_so(root: Root, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_MOST_ENTRIES", 10)
    for number in range(20):
        write(f"{number:02}.txt")
    text = list_files(root)
    assert "[stopped at '.' after 10 names: narrow path or pattern to see the rest]" in text


def test_deep_folders_need_neither_recursion_nor_descriptors(root: Root, folder: Path) -> None:
    current = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(os.open("end.txt", os.O_CREAT | os.O_WRONLY, dir_fd=current))
    os.close(current)
    listed = list_files(root, "end.txt")
    while (folder / "d" / "d").is_dir():  # taken apart from the top: removing it as a tree would recurse
        (folder / "d" / "d").rename(folder / "inner")
        (folder / "d").rmdir()
        (folder / "inner").rename(folder / "d")
    assert listed == "d/" * 1200 + "end.txt"


def test_a_file_is_no_folder_to_list(root: Root, write: Write) -> None:
    write("a.txt")
    with pytest.raises(ToolError, match=r"'a\.txt' is a file, not a folder\. read_file\(path='a\.txt'\) shows"):
        list_files(root, path="a.txt")
    with pytest.raises(ToolError, match="There is no 'gone'"):
        list_files(root, path="gone")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "pattern must have 1 to 1000 characters"),
        ("/", "pattern must have 1 to 1000 characters"),
        ("x" * 1001, "pattern must have 1 to 1000 characters"),
        ("./.", "pattern names no file"),
        ("../*", "pattern cannot contain '..'"),
        ("{..,a}/*", "pattern cannot contain '..'"),
        ("{a,b}" * 10, "more than 64 alternatives"),
    ],
)
def test_patterns_that_cannot_be_used(root: Root, pattern: str, message: str) -> None:
    with pytest.raises(ToolError, match=message.replace("..", r"\.\.")):
        list_files(root, pattern)


def test_numbers_that_cannot_be_used(root: Root) -> None:
    with pytest.raises(ToolError, match="max_results=0 cannot be used: it must be 1 or more"):
        list_files(root, max_results=0)
    with pytest.raises(ToolError, match="offset=-1 cannot be used: it must be 0 or more"):
        list_files(root, offset=-1)


@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5))
def test_any_pattern_is_refused_or_matches_quickly(pattern: str, path: list[str]) -> None:
    try:
        compiled = FilePattern(pattern)
    except ToolError:
        return
    states = compiled.start
    for name in path:
        assert isinstance(compiled.accepts(states, name), bool)
        states = compiled.enter(states, name)


def test_no_pattern_is_slow() -> None:
    compiled = FilePattern("/".join(["**", "a*a*a*a*a*b"] * 60))
    states = compiled.start
    for _ in range(200):
        states = compiled.enter(states, "a" * 100)
    assert not compiled.accepts(states, "a" * 200)
