"""Keys from bytes, what they do to a line, and how the line is laid out."""

from __future__ import annotations

import pytest

from trilane.cli.chat_editor import LineEditor, layout
from trilane.cli.chat_keys import Key, KeyDecoder


def _typed(editor: LineEditor, data: str) -> list[str]:
    return [action for key in KeyDecoder().feed(data.encode()) if (action := editor.feed(key))]


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"ab\r", [Key("text", "ab"), Key("enter")]),
        ("é漢".encode(), [Key("text", "é漢")]),
        (b"\x1b[A\x1bOB\x1b[1;5C\x1b[3~", [Key("up"), Key("down"), Key("alt-f"), Key("delete")]),
        (b"\x1bb\x1b\r\x1b\x7f", [Key("alt-b"), Key("newline"), Key("ctrl-w")]),
        (b"\x01\x03\x7f\t", [Key("ctrl-a"), Key("ctrl-c"), Key("backspace"), Key("tab")]),
        (b"\x1b[200~a\r\nb\x1b[31m\x1b[201~c", [Key("paste", "a\nb\x1b[31m"), Key("text", "c")]),
        (b"\x1b[99;99zx", [Key("text", "x")]),
        (b"\x1b\x1b[A", [Key("up")]),
    ],
)
def test_keys_however_the_bytes_are_cut(data: bytes, keys: list[Key]) -> None:
    assert KeyDecoder().feed(data) == keys
    decoder = KeyDecoder()
    one_by_one = [key for byte in data for key in decoder.feed(bytes([byte]))]
    merged: list[Key] = []
    for key in one_by_one:
        if key.name == "text" and merged and merged[-1].name == "text":
            merged[-1] = Key("text", merged[-1].text + key.text)
        else:
            merged.append(key)
    assert merged == keys


@pytest.mark.parametrize(
    ("data", "text", "cursor"),
    [
        ("one two\x17three", "one three", 9),
        ("one two\x1b[D\x1b[D\x7f", "one wo", 4),
        ("one\x01zero \x05!", "zero one!", 9),
        ("one two\x1bb\x0b", "one ", 4),
        ("one two\x15\x19", "one two", 7),
        ("one two\x01\x1bd", " two", 0),
        ("ab\x02\x04", "a", 1),
        ("ab\x1b[H\x1b[3~", "b", 0),
        ("a\x1b\rbc\x1b[A\x01x", "xa\nbc", 1),
        ("abc\x1b\rd\x1b[A", "abc\nd", 1),
        ("a\x1b\rb\x1b[A\x1b[B\x05c", "a\nbc", 4),
    ],
)
def test_editing(data: str, text: str, cursor: int) -> None:
    editor = LineEditor()
    assert _typed(editor, data) == []
    assert (editor.text, editor.cursor) == (text, cursor)


def test_enter_submits_and_a_backslash_goes_on() -> None:
    editor = LineEditor()
    assert _typed(editor, "a\\\rb") == []
    assert editor.text == "a\nb"
    assert _typed(editor, "\r") == ["submit"]
    assert _typed(LineEditor(), "a\\\\\r") == ["submit"], "two backslashes are one that is meant"


def test_a_paste_never_submits() -> None:
    editor = LineEditor()
    assert _typed(editor, "\x1b[200~a\nb\n\x1b[201~") == []
    assert editor.text == "a\nb"
    single = LineEditor(multiline=False)
    _typed(single, "\x1b[200~a\nb\n\x1b[201~\x1b\r")
    assert single.text == "a b"


def test_keys_that_mean_something_beyond_the_line() -> None:
    assert _typed(LineEditor("x"), "\x03\x0c\x1a") == ["interrupt", "clear", "suspend"]
    assert _typed(LineEditor("x"), "\x01\x04\x04") == ["eof"], "Ctrl-D deletes while there is something to delete"


def test_history_and_back_to_the_draft() -> None:
    editor = LineEditor("draft", entries=["first", "second"])
    seen = []
    for key in ("\x1b[A", "\x1b[A", "\x1b[A", "\x1b[B", "\x1b[B", "\x1b[B"):
        _typed(editor, key)
        seen.append(editor.text)
    assert seen == ["second", "first", "first", "second", "draft", "draft"]


def test_completion() -> None:
    names = ["/model", "/more"]
    editor = LineEditor(complete=lambda line: [name for name in names if name.startswith(line)])
    _typed(editor, "/\t")
    assert (editor.text, editor.hint) == ("/mo", "/model  /more")
    _typed(editor, "d\t")
    assert (editor.text, editor.hint) == ("/model ", "")


@pytest.mark.parametrize(
    ("text", "cursor", "rows", "row", "column"),
    [
        ("", 0, ["> "], 0, 2),
        ("abc", 1, ["> abc"], 0, 3),
        ("abcdefgh", 8, ["> abcdefg", "  h"], 1, 3),
        ("a\nb", 3, ["> a", "  b"], 1, 3),
        ("漢字漢字", 4, ["> 漢字漢", "  字"], 1, 4),
        ("\x1b\t", 2, ["> ␛    "], 0, 7),
    ],
)
def test_layout(text: str, cursor: int, rows: list[str], row: int, column: int) -> None:
    assert layout(text, cursor, prompt="> ", width=10) == (rows, row, column)
