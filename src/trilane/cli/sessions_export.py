"""`trilane sessions export` and `import`: JSON lines that lose nothing, and Markdown for reading."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from .console import UsageError, say
from .sessions_store import find_session, is_id, new_session_id
from .text import content_text, one_line

if TYPE_CHECKING:
    from trilane.messages import Message, ToolCall, ToolResult
    from trilane.sessions import SessionInfo
    from trilane.stores import SessionRecord, SessionStore

__all__ = ["export", "import_file", "markdown_of"]

#: Version of the form of the JSON lines, in their first line.
FORM = 1


async def export(store: SessionStore, session: str, markdown: bool, output: str) -> None:
    """Write a session to a file or to standard output, some records at a time."""
    info = await find_session(store, session)
    if not output:
        await _write(store, info, markdown, sys.stdout)
        return
    with _new_file(output) as file:
        await _write(store, info, markdown, file)
    say(f"written to {output}")


def _new_file(path: str) -> IO[str]:
    try:
        return open(path, "x", encoding="utf-8", newline="\n")
    except FileExistsError:
        raise UsageError(f"{path} exists; choose another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


async def _write(store: SessionStore, info: SessionInfo, markdown: bool, out: IO[str]) -> None:
    from trilane.sessions import pages

    if markdown:
        out.write(f"# {_plain(info.title or info.preview or info.id)}\n\nSession `{info.id}`\n")
    else:
        out.write(json.dumps({"trilane_session": FORM, **json.loads(info.to_json())}, ensure_ascii=False) + "\n")
    async for page in pages(store, info.id):
        for record in page.records:
            if markdown:
                out.writelines(markdown_of(record))
            else:
                out.write((await _whole(store, record)).to_json().replace("\n", " ") + "\n")


async def _whole(store: SessionStore, record: SessionRecord) -> SessionRecord:
    """A record with the data that its store keeps beside it."""
    from trilane.sessions import CanKeepBlobs

    if record.kind != "call_finished" or not isinstance(store, CanKeepBlobs):
        return record
    data = record.result.data
    if not (isinstance(data, dict) and set(data) == {"$blob", "characters"}):
        return record
    from trilane.errors import SessionError

    try:
        text = await store.read_blob(str(data["$blob"]))
    except SessionError:
        return record  # it only looks like one
    return record.replace(result=record.result.replace(data=json.loads(text)))


# ---- reading --------------------------------------------------------------------------------------------------------


async def import_file(store: SessionStore, file: str, new: str) -> list[str]:
    """Read a session from JSON lines; returns the line with its id.

    Raises:
        UsageError: the file cannot be read, or is no exported session.
    """
    from trilane.messages import clean_text
    from trilane.sessions import CanRename, import_session
    from trilane.stores import record_from_json

    header, lines, is_cut = _read(file)
    session = new_session_id(new, "--as") or str(header.get("id", ""))
    if not session:
        raise UsageError(f"{file} does not say which session it is; give it an id with --as ID")
    if not is_id(session):
        raise UsageError(f"{file}: no session can have the id {one_line(session, 80)!r}; give it another with --as ID")
    records = [record_from_json(line) for line in lines]
    if not records:
        raise UsageError(f"{file} has no record of its session in it; nothing was imported")
    await import_session(store, session, records)
    title = header.get("title")
    if isinstance(title, str) and title and isinstance(store, CanRename):
        await store.rename_session(session, clean_text(title))
    _tell_if_cut(file, header, len(records), is_cut)
    damaged = sum(record.kind == "damaged" for record in records)
    if damaged:
        say(f"{damaged} of {len(records)} records cannot be read; they were kept as they are")
    return [session]


def _tell_if_cut(file: str, header: dict[str, Any], found: int, is_cut: bool) -> None:
    """Say so if a file has not all of its session: a copy that was broken off, a disk that was full."""
    whole = header.get("version")
    if isinstance(whole, int) and found < whole:
        say(f"{file} is cut off: it has {found} of the {whole} records of its session; these were imported")
    elif is_cut:
        say(f"{file} is cut off in its last line, which was left out; the {found} records before it were imported")


def _read(file: str) -> tuple[dict[str, Any], list[str], bool]:
    """The first line of a file, the records after it, and whether the last one was left out: half of it is missing.

    Raises:
        UsageError: the file cannot be read, or is no exported session.
    """
    try:
        if file == "-":
            text = sys.stdin.buffer.read().decode("utf-8", "replace")
        else:
            with open(file, encoding="utf-8", errors="replace") as source:
                text = source.read()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise UsageError(f"{file} is empty")
    try:
        header = json.loads(lines[0])
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or ("trilane_session" not in header and "kind" not in header):
        raise UsageError(f"{file} is no exported session: its first line is no JSON object of one")
    is_cut = len(lines) > 1 and not text.endswith("\n") and not _is_json(lines[-1])
    if is_cut:
        del lines[-1]
    if "trilane_session" not in header:
        return {}, lines, is_cut
    form = header["trilane_session"]
    if type(form) is not int or form < 1:
        shown = one_line(json.dumps(form), 80)
        raise UsageError(f"{file} is no exported session: its form is {shown}, and not a number such as {FORM}")
    if form != FORM:
        raise UsageError(f"{file} has form {form}, this release reads form {FORM}; upgrade trilane")
    return header, lines[1:], is_cut


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    except RecursionError:  # whether it is cut off cannot be told: it is kept as it is
        return True
    return True


# ---- Markdown -------------------------------------------------------------------------------------------------------


def markdown_of(record: SessionRecord) -> Iterator[str]:
    """A record as Markdown, with the blank lines before it; nothing for records that only concern programs."""
    from trilane.sessions import known_of

    known = known_of(record)
    if record.kind == "damaged":
        yield f"\n> A record is damaged: {_plain(record.reason)}\n"
    elif known is None:
        return
    elif known.kind == "message":
        yield from _message(known.message)
    elif known.kind == "call_finished":
        yield from _result(known.result)
    elif known.kind == "message_hidden":
        yield f"\n> The message `{known.message_id}` is hidden from models: {_plain(known.reason)}\n"
    elif known.kind == "message_waiting":
        yield f"\n> Said, for the next run to hear: {_plain(known.message.text)}\n"
    elif known.kind == "view_replaced" and known.undoes:
        yield f"\n> A compaction was taken back: from here on models see {len(known.messages)} messages again.\n"
    elif known.kind == "view_replaced":
        yield f"\n> Compacted: from here on models see {len(known.messages)} messages. {_plain(known.reason)}\n"
    elif known.kind == "question":
        yield f"\n> Asked: {_plain(known.question.prompt)}\n"
    elif known.kind == "question_closed":
        payload = json.dumps(known.payload, ensure_ascii=False)
        yield f"\n> Reply: {payload if known.status == 'accepted' else known.status}\n"
    elif known.kind == "run_ended" and known.status != "completed":
        yield f"\n> The run ended: {known.status.replace('_', ' ')}.\n"


def _message(message: Message) -> Iterator[str]:
    if message.kind == "user":
        yield "\n## You\n"
    elif message.kind == "assistant":
        yield f"\n## Agent{f' ({message.model})' if message.model else ''}\n"
    elif message.kind == "system":
        yield f"\n## Host\n\n{message.text}\n"
        return
    else:
        for result in message.results:
            yield from _result(result)
        return
    for part in message.parts:
        if part.kind == "text":
            yield f"\n{part.text}\n"
        elif part.kind == "tool_call":
            yield from _call(part.call)
        elif part.kind in ("image", "audio", "file"):
            yield f"\n*{part.kind}: {part.media_type}*\n"
    if message.kind == "assistant" and message.interrupted:
        yield "\n*(interrupted)*\n"


def _call(call: ToolCall) -> Iterator[str]:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2)
    yield f"\n**Calls `{call.name}`**\n"
    yield from _fenced(arguments, "json")


def _result(result: ToolResult) -> Iterator[str]:
    yield f"\n**Result**{'' if result.outcome == 'ok' else f' ({result.outcome})'}\n"
    yield from _fenced(content_text(result) or "(no output)", "text")


def _fenced(text: str, language: str) -> Iterable[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return (f"\n{fence}{language}\n{text}\n{fence}\n",)


def _plain(text: str) -> str:
    return " ".join(text.split())
