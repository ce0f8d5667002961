"""The history of what was typed: where it is, what is in it, and what happens when it cannot be kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trilane.cli.chat_history import MOST, History, history_path


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"TRILANE_HISTORY": "/a/b", "XDG_STATE_HOME": "/s"}, "/a/b"),
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/trilane/chat-history.jsonl"),
        ({"HOME": "/h"}, "/h/.local/state/trilane/chat-history.jsonl"),
    ],
)
def test_where_it_is(environ: dict[str, str], path: str) -> None:
    assert history_path(environ) == Path(path)


def test_an_empty_variable_keeps_nothing() -> None:
    assert history_path({"TRILANE_HISTORY": "", "HOME": "/h"}) is None
    history = History(None)
    history.add("a")
    assert (history.entries, history.problem) == (["a"], "")


def test_entries_come_back_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history"
    history = History(path)
    for text in (
        "one",
        "two\nlines \\ and \u2028 odd \ud83d",
        "two\nlines \\ and \u2028 odd \ufffd",
        " secret",
        "  ",
        "three",
    ):
        history.add(text)
    assert History(path).entries == ["one", "two\nlines \\ and \u2028 odd \ufffd", "three"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_damaged_is_left_out_and_what_is_old_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"kept"\nnot json\n17\n\xff\xfe\n')
    assert History(path).entries == ["kept"]
    path.write_text("".join(f'"{number}"\n' for number in range(2 * MOST + 1)))
    assert History(path).entries == [str(number) for number in range(MOST + 1, 2 * MOST + 1)]
    assert len(path.read_text().splitlines()) == MOST
    assert os.listdir(tmp_path) == ["history"]


def test_a_place_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / "history")
    history.add("a")
    assert "the history cannot be kept in" in history.problem or "cannot be read" in history.problem
    history.add("b")
    assert history.entries == ["a", "b"]
