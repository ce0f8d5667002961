"""`trilane sessions` and the sessions of `trilane run`, on a file with sessions in every state."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from trilane import Agent, Tool, ToolContext, tool
from trilane.cli.sessions_doctor import explain
from trilane.messages import AssistantMessage, ImagePart, TextPart, ToolResult, UserMessage
from trilane.stores import CallFinished, DamagedRecord, InMemoryStore, MessageStored, record_from_json
from trilane.testing import ScriptedModel, call
from trilane.testing.stores import append_all, said, sample_records
from trilane_sqlite import SqliteStore

Command = Callable[..., tuple[int, str, str]]


def stored(place: Path, work: Callable[[SqliteStore], Any]) -> Any:
    async def main() -> Any:
        store = SqliteStore(place, synchronous="normal")
        try:
            return await work(store)
        finally:
            store.close()

    return anyio.run(main)


def fill(place: Path) -> None:
    async def work(store: SqliteStore) -> None:
        await append_all(store, "whale-1", said("Where is the whale?", id="u1"))
        answer = AssistantMessage(id="a1", parts=(TextPart(text="In the ```north```."),), model="scripted")
        await append_all(store, "whale-1", MessageStored(run_id="r", message=answer))
        await append_all(store, "ship-2", *sample_records())

    stored(place, work)


def test_list_and_search(place: Path, trilane: Command) -> None:
    assert trilane("sessions", "list")[1] == "no session is stored yet\n"
    fill(place)
    status, out, _ = trilane("sessions", "list")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["SESSION", "LAST", "USED", "RECORDS", "ABOUT"]
    assert [line.split()[0] for line in lines[1:]] == ["ship-2", "whale-1"]
    assert lines[2].endswith("2  Where is the whale?")
    assert trilane("sessions", "list", "-n", "1")[1].count("\n") == 2
    assert [json.loads(line)["id"] for line in trilane("sessions", "list", "--json")[1].splitlines()] == [
        "ship-2",
        "whale-1",
    ]
    found = trilane("sessions", "list", "--search", "WHALE")[1].splitlines()
    assert found[1].split() == ["whale-1", "u1", "Where", "is", "the", "whale?"]
    assert json.loads(trilane("sessions", "list", "-s", "whale", "--json")[1])["message_id"] == "u1"
    assert trilane("sessions", "list", "-s", "shark")[1] == "'shark' was found nowhere\n"


def test_show_takes_the_beginning_of_an_id_or_a_title(place: Path, trilane: Command) -> None:
    fill(place)
    _, out, _ = trilane("sessions", "show", "whale")
    assert out.splitlines() == [
        "session whale-1",
        "you [u1]",
        "  Where is the whale?",
        "agent [a1]",
        "  In the ```north```.",
    ]
    trilane("sessions", "rename", "whale", "The \x1b[31mwhale")
    assert trilane("sessions", "show", "The \x1b[31mwhale")[1].startswith("session whale-1: The ␛[31mwhale\n")
    _, out, _ = trilane("sessions", "show", "ship", "--full")
    assert "  [image: image/png]" in out
    assert '  calls look(where="south"' not in out
    assert "  calls look(" in out
    assert "  result of c1 (ok):\n  a ship\n  [file: application/octet-stream]" in out
    assert "  message a1 is hidden from models: not accepted" in out
    assert "  from here on models see 2 messages instead: shorter" in out
    assert out.endswith("  run suspended\n")


def test_a_session_that_is_not_there(place: Path, trilane: Command) -> None:
    fill(place)
    stored(place, lambda store: append_all(store, "whale-3", said("x")))
    status, out, err = trilane("sessions", "show", "wahle-1")
    assert (status, out) == (2, "")
    assert err.startswith("trilane: there is no session 'wahle-1'; did you mean 'whale-1'? See `trilane sessions list`")
    assert "2 sessions begin with 'whale'; type more of the id" in trilane("sessions", "show", "whale")[2]
    assert trilane("sessions", "resume", "nope")[0] == 2
    assert "the plugin 'nowhere' is not installed" in trilane("sessions", "list", "--store", "nowhere:x")[2]


def test_fork_rename_delete_backup(place: Path, trilane: Command, tmp_path: Path) -> None:
    fill(place)
    assert trilane("sessions", "fork", "whale", "--at", "u1", "--as", "branch") == (0, "branch\n", "")
    assert trilane("sessions", "show", "branch")[1].splitlines()[:2] == ["session branch", "forked from whale-1"]
    assert "has no message 'u9'" in trilane("sessions", "fork", "whale", "--at", "u9")[2]
    assert trilane("sessions", "rename", "branch", "A branch")[0] == 0
    assert trilane("sessions", "backup", str(tmp_path / "copy.sqlite3"))[0] == 0
    assert trilane("sessions", "list", "--store", f"sqlite:{tmp_path / 'copy.sqlite3'}")[1].count("\n") == 4
    status, _, err = trilane("sessions", "delete", "branch", "whale")
    assert status == 2
    assert err == "deleted branch\ntrilane: there is no session 'whale'; nothing more was deleted\n"


def test_what_is_exported_can_be_imported(place: Path, trilane: Command, tmp_path: Path) -> None:
    fill(place)
    rows = [{"n": number, "text": "x" * 50} for number in range(1000)]
    large = CallFinished(run_id="r", message_id="a1", result=ToolResult(call_id="c1", content="many", data=rows))  # type: ignore[arg-type]
    more = (large, record_from_json('{"kind":"mood","x":[1]}'), DamagedRecord(raw="?!", reason="it is no JSON"))
    stored(place, lambda store: append_all(store, "ship-2", *more))
    trilane("sessions", "rename", "ship-2", "Ships")
    assert trilane("sessions", "export", "ship-2", "-o", "ship.jsonl") == (0, "", "written to ship.jsonl\n")
    assert "ship.jsonl exists" in trilane("sessions", "export", "ship-2", "-o", "ship.jsonl")[2]
    lines = Path("ship.jsonl").read_text().split("\n")
    assert json.loads(lines[0])["trilane_session"] == 1
    assert json.loads(lines[11])["result"]["data"] == rows
    status, out, err = trilane("sessions", "import", "ship.jsonl", "--as", "again")
    assert (status, out, err) == (0, "again\n", "1 of 13 records cannot be read; they were kept as they are\n")
    _, exported, _ = trilane("sessions", "export", "again")
    assert exported.split("\n")[1:] == lines[1:]
    assert json.loads(exported.split("\n")[0])["title"] == "Ships"
    assert "there is a session 'ship-2' already" in trilane("sessions", "import", "ship.jsonl")[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("hello\n", "is no exported session"),
        ('{"trilane_session": 99}\n', "has form 99, this release reads form 1"),
        ('{"kind":"mood"}\n', "does not say which session it is; give it an id with --as ID"),
    ],
)
def test_what_cannot_be_imported(trilane: Command, content: str, message: str) -> None:
    Path("x.jsonl").write_text(content)
    status, _, err = trilane("sessions", "import", "x.jsonl")
    assert status == 2
    assert message in err
    assert "cannot be read: No such file" in trilane("sessions", "import", "nowhere.jsonl")[2]


def test_markdown_is_for_reading(place: Path, trilane: Command) -> None:
    fill(place)
    image = MessageStored(run_id="r", message=UserMessage(id="u", parts=(ImagePart(data="aGk="),)))
    stored(place, lambda store: append_all(store, "whale-1", image))
    _, out, _ = trilane("sessions", "export", "whale-1", "--markdown")
    assert out == (
        "# Where is the whale?\n\nSession `whale-1`\n\n## You\n\nWhere is the whale?\n"
        "\n## Agent (scripted)\n\nIn the ```north```.\n\n## You\n\n*image: image/png*\n"
    )
    _, out, _ = trilane("sessions", "export", "ship-2", "--markdown")
    assert '**Calls `look`**\n\n```json\n{\n  "where": "the \\"north\\"\\n",' in out
    assert '> Reply: {"answer": [true, null]}' in out
    assert "> The run ended: suspended." in out


def test_the_doctor_of_the_store(place: Path, trilane: Command) -> None:
    fill(place)
    assert trilane("sessions", "doctor") == (0, "2 sessions, 12 records\nall of the store can be read\n", "")
    stored(place, lambda store: append_all(store, "whale-1", DamagedRecord(raw="?", reason="it is no JSON")))
    status, out, _ = trilane("sessions", "doctor")
    assert status == 1
    assert "session 'whale-1': record 3 of 3 is damaged: it is no JSON" in out
    status, out, _ = trilane("sessions", "doctor", "whale-1")
    assert status == 1
    assert "record 3 is damaged: it is no JSON" in out


# ---- where a session stands -----------------------------------------------------------------------------------------


@tool
async def pay(amount: int) -> str:
    """Pay."""
    await anyio.sleep_forever()
    return ""


@tool(effect="idempotent")
async def note(ctx: ToolContext) -> str:
    """Note."""
    return str(await ctx.ask("What shall I note?"))


@tool(approval=True)
async def delete() -> str:
    """Delete."""
    return "deleted"


@tool
async def look() -> str:
    """Look."""
    return "a ship"


LOCATE = Tool.external(name="locate", description="Locate.", parameters={"type": "object", "properties": {}})


def left(script: Sequence[Any], at: str, number: int = 1, end: str = "") -> list[str]:
    """What the doctor says of a run that was cut off while the n-th event `at` was held."""

    async def main() -> Any:
        store = InMemoryStore()
        agent = Agent(ScriptedModel(*script), tools=[pay, note, delete, look, LOCATE], store=store)
        seen = 0
        async with agent.stream("Go", session="s") as run:
            async for event in run:
                seen += event.type == at
                if seen == number:
                    records = (await store.load("s")).records
                    if end == "suspend":
                        await run.suspend()
                    elif end == "close":
                        await run.close()
                    return (await store.load("s")).records if end else records
        records = (await store.load("s")).records
        return records[:-1] if end == "kill" else records

    return explain(list(anyio.run(main)))


def test_the_doctor_says_what_becomes_of_every_call() -> None:
    calls = [
        call("look"),
        call("pay", amount=5),
        call("note"),
        call("delete"),
        call("locate"),
        call("nothing"),
    ]
    lines = left([calls, "Never."], "reply_requested", 3)
    assert lines[0].endswith("; models see 2 messages; runs that ended: none")
    assert lines[1] == "the last run was cut off while tools were called; resuming it:"
    fates = dict(line.strip().split(": ", 1) for line in lines[2:])
    assert fates["look()"] == "its result is stored (ok) and stays"
    assert fates["pay(amount=5)"].startswith("had started and may not run twice")
    assert fates["note()"] == (
        "had started 1 time and is safe to repeat: it runs again with the same key; "
        "its question “What shall I note?” is asked again"
    )
    assert fates["delete()"].startswith("waits for a reply to “May the tool 'delete' run?”")
    assert fates["locate()"].startswith("waits for a reply to “Run the tool 'locate'")


@pytest.mark.parametrize(
    ("script", "at", "end", "expected"),
    [
        (["Hello."], "", "", "the last run has completed; there is nothing to resume"),
        (["Hel lo."], "text_delta", "", "the last run was cut off before the model had answered; resuming it asks"),
        (["Hel lo."], "text_delta", "suspend", "the last run was put aside before the model had answered"),
        (["Hel lo."], "text_delta", "close", "the last run was cancelled before the model had answered"),
        (["Hello."], "", "kill", "the last run was cut off after the answer was stored"),
        ([[call("look")], "x"], "message_completed", "", "the last run was cut off while tools were called"),
    ],
)
def test_the_doctor_says_how_a_run_was_left(script: Any, at: str, end: str, expected: str) -> None:
    assert any(line.startswith(expected) for line in left(script, at, end=end))


def test_the_doctor_of_an_empty_session() -> None:
    assert explain([])[-1] == "nothing was said yet; there is nothing to resume"
    lines = explain([record_from_json('{"kind":"mood"}')])
    assert "record 1 was written by a later release; it is kept and not used" in lines


# ---- trilane run ----------------------------------------------------------------------------------------------------


def test_runs_are_kept_and_can_be_continued(place: Path, trilane: Command) -> None:
    assert trilane("run", "-c", "How many words are there?")[0] == 2
    assert trilane("run", "What can you do?", "--session", "help")[0] == 0
    assert trilane("run", "And what else?", "--continue")[0] == 0
    shown = trilane("sessions", "show", "help")[1]
    assert shown.count("you [") == 2
    assert trilane("sessions", "doctor", "help")[1].endswith("there is nothing to resume\n")
    assert trilane("run", "Hello", "--session", "a", "--continue")[0] == 2


def test_a_session_is_resumed(place: Path, trilane: Command) -> None:
    stored(place, lambda store: append_all(store, "cut", said("What can you do?")))
    assert "resuming it asks the model again" in trilane("sessions", "doctor", "cut")[1]
    status, out, _ = trilane("sessions", "resume", "cut")
    assert status == 0
    assert "What I can do here" in out
    assert trilane("sessions", "doctor", "cut")[1].endswith("there is nothing to resume\n")


def test_a_run_that_wants_no_session_is_not_stopped_by_the_store(place: Path, trilane: Command) -> None:
    place.write_text("this is no database, and it is long enough to be read as one " * 20)
    status, out, err = trilane("run", "What can you do?")
    assert (status, "What I can do here" in out) == (0, True)
    assert "warning: the session is not kept: session file" in err
    assert trilane("run", "What can you do?", "--session", "s")[0] == 1


def test_without_the_plugin_sessions_are_not_kept(place: Path, trilane: Command) -> None:
    assert trilane("run", "What can you do?", "-p", "no:sqlite")[0] == 0
    assert not place.exists()
    status, _, err = trilane("run", "What can you do?", "-p", "no:sqlite", "--continue")
    assert status == 2
    assert "the plugin that keeps sessions is left out" in err
