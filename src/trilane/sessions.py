"""What a session store may offer beyond keeping sessions: listing, searching, renaming, forking, deleting, blobs.

Runs need none of it; a store has what it can, and whoever wants it asks with `isinstance(store, CanList)`. The
functions work with every store: they use what it has, or do the same with `load` and `append`. What every store must
have is in `stores.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from ._records import Record
from .errors import SessionError
from .messages import Message, ToolResult, clean_text, new_id, text_of

if TYPE_CHECKING:
    from .stores import KnownRecord, SessionPage, SessionRecord, SessionStore

__all__ = [
    "CanBackUp",
    "CanCheck",
    "CanDelete",
    "CanFork",
    "CanKeepBlobs",
    "CanList",
    "CanRename",
    "CanSearch",
    "CanSkip",
    "SearchHit",
    "SessionInfo",
    "cut_after",
    "fork_session",
    "hits_in",
    "import_session",
    "known_of",
    "pages",
    "preview_of",
    "record_texts",
]

PAGE = 500  # records that are read at a time where all are wanted
PREVIEW = 80  # characters


class SessionInfo(Record):
    """A session in a list.

    Attributes:
        id: Its id.
        title: The name it was given, empty without one.
        version: How many records it has.
        created: When its first record was written.
        updated: When its last record was written.
        preview: The beginning of the first request.
        forked_from: Id of the session it was forked from, if it was.
    """

    id: str
    title: str = ""
    version: int = 0
    created: datetime | None = None
    updated: datetime | None = None
    preview: str = ""
    forked_from: str = ""


class SearchHit(Record):
    """A place where a searched text occurs.

    Attributes:
        session: Id of the session.
        title: Its name, empty without one.
        position: Number of the record, from 1.
        message_id: The message, or the one whose call the result belongs to.
        excerpt: The text around the place, on one line.
    """

    session: str
    title: str = ""
    position: int
    message_id: str
    excerpt: str


@runtime_checkable
class CanList(Protocol):
    """A store that knows its sessions."""

    async def list_sessions(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        """Sessions, the one written to last first."""
        ...

    async def session_info(self, session: str) -> SessionInfo | None:
        """One session; None if there is none of that id."""
        ...


@runtime_checkable
class CanSearch(Protocol):
    """A store that finds text."""

    async def search_sessions(self, text: str, *, limit: int = 50) -> Sequence[SearchHit]:
        """Messages and tool results that contain `text`, in either case of its letters, newest session first."""
        ...


@runtime_checkable
class CanRename(Protocol):
    """A store whose sessions may have names."""

    async def rename_session(self, session: str, title: str) -> None:
        """Name a session.

        Raises:
            SessionError: there is no such session.
        """
        ...


@runtime_checkable
class CanFork(Protocol):
    """A store that copies a session without moving its records through this process."""

    async def copy_session(self, session: str, new_session: str, *, version: int) -> None:
        """Make `new_session` of the first `version` records of `session`.

        Raises:
            SessionError: there is no such session, or one of the new id already.
        """
        ...


@runtime_checkable
class CanDelete(Protocol):
    """A store that can forget."""

    async def delete_session(self, session: str) -> bool:
        """Delete a session with all that belongs to it; False if there was none.

        Raises:
            SessionBusyError: a run is active on it.
        """
        ...


@runtime_checkable
class CanKeepBlobs(Protocol):
    """A store that keeps large texts (images, results) beside its records.

    `load` puts back what a model may have to see. The `data` of a large tool result, which no model sees, stays where
    it is: the result has `{"$blob": ID, "characters": N}` in its place.
    """

    async def read_blob(self, blob: str) -> str:
        """The text of a blob.

        Raises:
            SessionError: there is none of that id.
        """
        ...


@runtime_checkable
class CanSkip(Protocol):
    """A store that knows where the last compaction of a session is."""

    async def view_start(self, session: str) -> int:
        """A version from which the records suffice to know what models see; 0 if all are needed."""
        ...


@runtime_checkable
class CanCheck(Protocol):
    """A store that can be examined."""

    async def check(self) -> Sequence[str]:
        """What is wrong with the store as a whole, in words; nothing if all is well."""
        ...


@runtime_checkable
class CanBackUp(Protocol):
    """A store that can be copied while it is in use."""

    async def back_up(self, path: str) -> None:
        """Write a copy of everything to a new file.

        Raises:
            SessionError: the file exists or cannot be written.
        """
        ...


def pages(store: SessionStore, session: str, *, after: int = 0, view: bool = False) -> AsyncIterator[SessionPage]:
    """The records of a session, some at a time, so that a long one need not fit into memory: `async for page in ...`.

    Args:
        store: Where it is.
        session: Its id.
        after: The version to begin after.
        view: True to begin, where the store can tell, at the last compaction: that suffices to know what models see.
    """
    return _Pages(store, session, after, view)


class _Pages:
    """Not a generator: one that is left early would have to be closed."""

    def __init__(self, store: SessionStore, session: str, after: int, view: bool) -> None:
        self._store = store
        self._session = session
        self._after = after
        self._finds_start = view and isinstance(store, CanSkip)
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionPage:
        if self._over:
            raise StopAsyncIteration
        if self._finds_start:
            self._finds_start = False
            assert isinstance(self._store, CanSkip)
            self._after = await self._store.view_start(self._session)
        page = await self._store.load(self._session, after=self._after, limit=PAGE)
        self._after += len(page.records)
        self._over = not page.records or self._after >= page.version
        return page


def known_of(record: SessionRecord) -> KnownRecord | None:
    """What this release understands of a record, None if nothing."""
    if record.kind == "newer":
        return record.known
    return None if record.kind == "damaged" else record


def record_texts(record: SessionRecord) -> list[tuple[str, str]]:
    """The texts of a record that a reader of the session sees, each with the id of its message."""
    known = known_of(record)
    if known is None:
        return []
    if known.kind == "message":
        message: Message = known.message
        if message.kind == "tool":
            return [(message.id, _result_text(result)) for result in message.results]
        text = message.text if message.kind == "system" else text_of(message.parts)
        return [(message.id, text)]
    return [(known.message_id, _result_text(known.result))] if known.kind == "call_finished" else []


def _result_text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(part for part in result.content if isinstance(part, str))


def hits_in(record: SessionRecord, text: str, *, session: str, title: str, position: int) -> list[SearchHit]:
    """Where `text` occurs in a record, in either case of its letters: one hit for each of its texts."""
    wanted = text.casefold()
    hits = []
    for message_id, whole in record_texts(record) if wanted else ():
        folded = whole.casefold()
        start, length = folded.find(wanted), len(text)
        if start >= 0:
            if len(folded) != len(whole):  # some letters are longer in that form
                end = _unfolded(whole, start + len(wanted) - 1) + 1
                start = _unfolded(whole, start)
                length = end - start
            around = _excerpt(whole, start, length)
            hits.append(
                SearchHit(session=session, title=title, position=position, message_id=message_id, excerpt=around)
            )
    return hits


def _unfolded(text: str, position: int) -> int:
    """Which character of `text` stands at a position of `text.casefold()`."""
    for number, character in enumerate(text):
        position -= len(character.casefold())
        if position < 0:
            return number
    return len(text)


def preview_of(records: Iterable[SessionRecord]) -> str:
    """The beginning of the first request among `records`, on one line."""
    for record in records:
        known = known_of(record)
        if known is not None and known.kind == "message" and known.message.kind == "user":
            return _excerpt(known.message.text, 0, 0, around=PREVIEW)
    return ""


def _excerpt(text: str, start: int, length: int, *, around: int = 40) -> str:
    """What stands around a place in a text, on one line."""
    first, last = max(0, start - around), min(len(text), start + length + around)
    cut = " ".join(text[first:last].split())
    return ("…" if first else "") + cut + ("…" if last < len(text) else "")


async def cut_after(store: SessionStore, session: str, message_id: str) -> int:
    """The version of a session with everything up to a message, and the results of its calls.

    Raises:
        SessionError: the session has no such message.
    """
    wanted = message_id.removesuffix("-results")
    found = position = 0
    async for page in pages(store, session):
        for record in page.records:
            position += 1
            known = known_of(record)
            if known is None:
                continue
            if known.kind == "message":
                if found and known.message.kind == "tool":  # results that came whole, with a history from elsewhere
                    return position
                if found:
                    return found
                if known.message.id in (wanted, message_id):
                    found = position
            elif found and known.kind in ("call_started", "call_finished", "question", "question_closed"):
                found = position
    if not found:
        raise SessionError(f"session {session!r} has no message {message_id!r}; `trilane sessions show` lists them")
    return found


async def fork_session(
    store: SessionStore, session: str, new_session: str = "", *, at_message: str = "", version: int | None = None
) -> str:
    """Make a session of the beginning of another, and return its id. The other stays as it is.

    Args:
        store: Where both live.
        session: The session to fork.
        new_session: Id of the new one; a fresh id without it.
        at_message: The last message of the new one, with the results of its calls; all of them without it.
        version: Instead of a message, how many records are taken.

    Raises:
        SessionError: there is no such session or message, the new session exists already, or no store can keep its id.
    """
    new_session = new_session or new_id()
    _check_id(new_session)
    if clean_text(session) != session:
        raise SessionError(f"there is no session {session!r} to fork")
    if at_message:
        version = await cut_after(store, session, at_message)
    whole = (await store.load(session, limit=0)).version
    if not whole:
        raise SessionError(f"there is no session {session!r} to fork")
    version = whole if version is None else version
    if not 0 < version <= whole:
        raise SessionError(f"session {session!r} has {whole} records; it cannot be forked after {version}")
    if isinstance(store, CanFork):
        await store.copy_session(session, new_session, version=version)
        return new_session
    records: list[SessionRecord] = []
    async for page in pages(store, session):
        records += page.records
        if len(records) >= version:
            break
    await import_session(store, new_session, records[:version])
    return new_session


async def import_session(store: SessionStore, session: str, records: Sequence[SessionRecord]) -> None:
    """Write a whole session, such as one that was exported.

    Raises:
        SessionError: there is one of that id already, or no store can keep the id.
        SessionBusyError: a run is active on it.
    """
    _check_id(session)
    async with store.lease(session, ttl_seconds=30.0) as lease:
        if (await store.load(session, limit=0)).version:
            raise SessionError(f"there is a session {session!r} already; choose another id")
        version = 0
        for start in range(0, len(records), PAGE):
            version = await store.append(session, records[start : start + PAGE], expected_version=version, lease=lease)


def _check_id(session: str) -> None:
    """Raise `SessionError` if the id of a new session is none: runs refuse such ids too."""
    if clean_text(session) != session:
        raise SessionError(
            f"session {session!r} has a NUL or half a surrogate pair in its id, which no store can keep; choose another"
        )
