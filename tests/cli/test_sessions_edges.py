"""`trilane sessions` and the stores of other commands, where something is missing, odd or broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from trilane.messages import ToolResult
from trilane.stores import CallFinished
from trilane.testing.stores import append_all, said
from trilane_sqlite import SqliteStore

Command = Callable[..., tuple[int, str, str]]


def put(place: Path, *sessions: str) -> None:
    async def main() -> None:
        store = SqliteStore(place, synchronous="normal")
        for session in sessions:
            await append_all(store, session, said("Hello there", id="u1"), said("And?", id="u2"))
        store.close()

    anyio.run(main)


# ---- which store -----------------------------------------------------------------------------------------------------


def test_every_command_reads_the_store_of_the_environment(
    place: Path, trilane: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILANE_STORE", "sqlite:elsewhere.db")
    assert trilane("run", "What can you do?", "--session", "help")[0] == 0
    assert not place.exists()
    assert trilane("sessions", "list", "--json")[1].count('"id":"help"') == 1
    assert trilane("run", "And else?", "--session", "x", "--store", f"sqlite:{place}")[0] == 0
    assert place.exists()


@pytest.mark.parametrize("store", ["nothing", "nothing:x", "sqlite:."])
def test_a_store_that_is_asked_for_and_cannot_be_used_is_an_error(place: Path, trilane: Command, store: str) -> None:
    status, out, err = trilane("run", "What can you do?", "--store", store)
    assert status in (1, 2)
    assert out == ""
    assert "trilane: " in err


@pytest.mark.parametrize("command", [["sessions", "list"], ["sessions", "doctor"], ["run", "Hi", "--session", "s"]])
def test_a_folder_is_no_store(
    place: Path, trilane: Command, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("TRILANE_SESSIONS", str(place.parent))
    status, _, err = trilane(*command)
    assert status == 1
    assert f"session file {place.parent} is a folder. Give the path of a file" in err
    assert "--debug" not in err


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["list", "-s", "x"],
        ["show", "x"],
        ["doctor"],
        ["doctor", "x"],
        ["export", "x"],
        ["fork", "x"],
        ["rename", "x", "y"],
        ["delete", "x"],
        ["replay", "x"],
        ["resume", "x"],
    ],
)
def test_looking_makes_no_file(place: Path, trilane: Command, command: list[str]) -> None:
    status, out, err = trilane("sessions", *command, "--store", "sqlite:not-there/s.db")
    assert not Path("not-there").exists()
    assert (status, out) == (2, "")
    path = str(place.parent / "not-there" / "s.db")
    assert err == f"trilane: --store sqlite:not-there/s.db: there is no file {path!r}; look for it elsewhere\n"


def test_where_sessions_will_be_nothing_may_be_stored_yet(
    place: Path, trilane: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILANE_STORE", "sqlite:not-there/s.db")
    assert trilane("sessions", "list") == (0, "no session is stored yet\n", "")
    assert not Path("not-there").exists()


def test_continuing_makes_no_file(place: Path, trilane: Command) -> None:
    status, _, err = trilane("run", "Hello", "--continue")
    assert status == 2
    assert "no session is stored yet" in err
    assert not place.exists()


def test_a_store_that_keeps_nothing(place: Path, trilane: Command) -> None:
    assert trilane("run", "What can you do?", "--store", "memory")[0] == 0
    assert trilane("sessions", "list", "--store", "memory")[1] == "no session is stored yet\n"
    assert not place.exists()


# ---- odd ids and titles ----------------------------------------------------------------------------------------------

LONG = "long-" + "x" * 10_000


def test_odd_ids_and_titles_stay_on_their_line(place: Path, trilane: Command) -> None:
    put(place, "two\nlines\tand \x1b[31mred", LONG)
    assert trilane("sessions", "rename", LONG[:20], "a title\nof\x1b lines " * 900)[0] == 0
    status, out, _ = trilane("sessions", "list")
    assert status == 0
    lines = out.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) < 160
    assert lines[2].startswith("two␊lines␉and ␛[31mred  ")
    assert lines[1].startswith("long-xxx")
    for command in (["sessions", "list", "-s", "Hello"], ["sessions", "show", LONG], ["sessions", "doctor", LONG]):
        status, out, _ = trilane(*command)
        assert status == 0
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) < 260
    assert trilane("sessions", "delete", LONG)[2].startswith("deleted long-xxx")


@pytest.mark.parametrize(
    "command",
    [
        ["show", "\udcff"],
        ["resume", "\udcff"],
        ["replay", "\udcff"],
        ["fork", "\udcff"],
        ["fork", "s", "--as", "\udcff"],
        ["fork", "s", "--at", "\udcff"],
        ["rename", "\udcff", "x"],
        ["delete", "\udcff"],
        ["export", "\udcff"],
        ["doctor", "\udcff"],
        ["replay", "s", "--run", "\udcff"],
        ["import", "s.jsonl", "--as", "\udcff"],
        ["import", "\udcff.jsonl"],
    ],
)
def test_arguments_that_are_no_utf_8_are_explained(place: Path, trilane: Command, command: list[str]) -> None:
    put(place, "s")
    trilane("sessions", "export", "s", "-o", "s.jsonl")
    status, _, err = trilane("sessions", *command)
    assert status in (1, 2)
    assert err.startswith("trilane: ")
    assert "UnicodeEncodeError" not in err


def test_text_that_is_no_utf_8_can_be_searched_and_be_a_title(place: Path, trilane: Command) -> None:
    put(place, "s")
    assert trilane("sessions", "list", "-s", "\udcff")[0] == 0
    assert trilane("sessions", "rename", "s", "\udcff title")[0] == 0


# ---- files that are cut off ------------------------------------------------------------------------------------------


def test_an_export_that_is_cut_off_is_imported_as_far_as_it_goes(place: Path, trilane: Command) -> None:
    put(place, "s")
    large = CallFinished(run_id="r", message_id="u2", result=ToolResult(call_id="c", content="many"))

    async def more() -> None:
        store = SqliteStore(place, synchronous="normal")
        await append_all(store, "s", large)
        store.close()

    anyio.run(more)
    whole = trilane("sessions", "export", "s")[1]
    lines = whole.splitlines(keepends=True)
    for name, text in (("between", "".join(lines[:-1])), ("within", whole[:-20])):
        Path(name).write_text(text)
        status, out, err = trilane("sessions", "import", name, "--as", name)
        assert (status, out) == (0, f"{name}\n")
        assert err == f"{name} is cut off: it has 2 of the 3 records of its session; these were imported\n"
        assert trilane("sessions", "export", name)[1].splitlines()[1:] == whole.splitlines()[1:3]
    Path("start").write_text(lines[0] + lines[1][:30])
    assert trilane("sessions", "import", "start") == (
        2,
        "",
        "trilane: start has no record of its session in it; nothing was imported\n",
    )
    Path("headless").write_text(lines[1] + lines[2][:-9])
    status, _, err = trilane("sessions", "import", "headless", "--as", "headless")
    assert (status, err) == (
        0,
        "headless is cut off in its last line, which was left out; the 1 records before it were imported\n",
    )
    Path("whole").write_text(whole.rstrip("\n"))
    assert trilane("sessions", "import", "whole", "--as", "whole") == (0, "whole\n", "")


@pytest.mark.parametrize("given", ["half \\ud83d", "a\\u0000b"])
def test_an_id_that_no_store_can_keep_is_not_imported(place: Path, trilane: Command, given: str) -> None:
    put(place, "s")
    lines = trilane("sessions", "export", "s")[1].splitlines(keepends=True)
    Path("odd").write_text(lines[0].replace('"id": "s"', f'"id": "{given}"') + "".join(lines[1:]))
    status, _, err = trilane("sessions", "import", "odd")
    assert status == 2
    assert err.startswith("trilane: odd: no session can have the id ")
    assert err.endswith("give it another with --as ID\n")
    assert trilane("sessions", "import", "odd", "--as", "other") == (0, "other\n", "")


def test_a_title_is_imported_as_it_can_be_kept(place: Path, trilane: Command) -> None:
    put(place, "s")
    lines = trilane("sessions", "export", "s")[1].splitlines(keepends=True)
    Path("odd").write_text(lines[0].replace('"title": ""', '"title": "half \\ud83d"') + "".join(lines[1:]))
    assert trilane("sessions", "import", "odd", "--as", "other") == (0, "other\n", "")
    assert "half \ufffd" in trilane("sessions", "list")[1]


def test_a_line_that_is_nested_too_deeply_is_a_damaged_record(place: Path, trilane: Command) -> None:
    put(place, "s")
    whole = trilane("sessions", "export", "s")[1]
    deep = "[" * 100_000
    Path("deep").write_text(whole + deep + "]" * 100_000)
    status, out, err = trilane("sessions", "import", "deep", "--as", "deep")
    assert (status, out) == (0, "deep\n")
    assert err == f"1 of {len(whole.splitlines())} records cannot be read; they were kept as they are\n"
    assert deep in trilane("sessions", "export", "deep")[1]
    Path("header").write_text(deep + "\n" + whole)
    assert "is no exported session" in trilane("sessions", "import", "header")[2]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("2", "has form 2, this release reads form 1; upgrade trilane"),
        ('"1"', 'its form is "1"'),
        ("true", "its form is true"),
    ],
)
def test_a_form_that_is_not_known(place: Path, trilane: Command, form: str, said: str) -> None:
    put(place, "s")
    whole = trilane("sessions", "export", "s")[1]
    Path("odd").write_text(whole.replace('"trilane_session": 1', f'"trilane_session": {form}'))
    status, _, err = trilane("sessions", "import", "odd", "--as", "odd")
    assert status == 2
    assert said in err


# ---- replay ----------------------------------------------------------------------------------------------------------


def test_a_session_is_replayed(place: Path, trilane: Command) -> None:
    Path("a.md").write_text("one two three")
    assert trilane("run", "How many words are in a.md?", "--session", "words")[0] == 0
    Path("a.md").unlink()  # no tool runs again
    status, out, err = trilane("sessions", "replay", "wor")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "session words"
    assert lines[1].endswith(" things compared")
    assert " (completed): as it was, " in lines[1]
    assert len(lines) == 2


def test_a_replay_that_differs(place: Path, trilane: Command) -> None:
    Path("a.md").write_text("one two three")
    assert trilane("run", "How many words are in a.md?", "--session", "words")[0] == 0
    status, out, _ = trilane("sessions", "replay", "words", "-p", "no:files")
    assert status == 1
    assert out.splitlines()[2:] == [
        "    first difference: hooks, before the first answer (plugin files)",
        '    - {"hook": "on_tool", "plugin": "files"}',
        "    + (nothing)",
    ]
    options = ["--ignore", "hooks", "--ignore", "requests", "-p", "no:files", "--json"]
    status, out, _ = trilane("sessions", "replay", "words", *options)
    found = json.loads(out)
    assert (status, found["session"]) == (1, "words")
    assert found["runs"][0]["difference"]["aspect"] == "arguments"
    assert trilane("sessions", "replay", "words", "--ignore", "colours")[0] == 2
    assert "has no run 'zzz'" in trilane("sessions", "replay", "words", "--run", "zzz")[2]


def test_a_session_of_another_program_is_replayed_by_its_history(place: Path, trilane: Command) -> None:
    assert trilane("run", "What can you do?", "--session", "help")[0] == 0
    lines = trilane("sessions", "export", "help")[1].splitlines()
    kept = [line for line in lines if '"kind":"run_tape"' not in line]
    header = {**json.loads(kept[0]), "version": len(kept) - 1, "id": "bare"}
    Path("bare.jsonl").write_text("\n".join([json.dumps(header), *kept[1:], ""]))
    assert trilane("sessions", "import", "bare.jsonl")[2] == ""
    status, out, _ = trilane("sessions", "replay", "bare")
    assert status == 0
    assert "    not compared: hooks, requests, arguments, events" in out
