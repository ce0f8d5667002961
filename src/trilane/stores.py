"""Where sessions live: the `SessionStore` protocol, the records a session consists of, and the in-memory store.

A session is a list of records that only grows. `SessionView` folds them into what a model sees. What a run writes, and
when, is in `_core.py`; what a store can do besides (list, search, fork and so on) is in `sessions.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import time
from typing import TYPE_CHECKING, Any, Protocol

from ._claims import claim, claimed
from ._records import Record, maker
from ._session_records import (
    CallFinished,
    CallStarted,
    CallWithdrawn,
    DamagedRecord,
    KnownRecord,
    MessageHidden,
    MessageStored,
    MessageWaiting,
    NewerRecord,
    QuestionClosed,
    QuestionStored,
    RunEnded,
    RunTape,
    SessionRecord,
    ViewReplaced,
    record_from_json,
)
from .errors import SessionBusyError, SessionConflictError, SessionError
from .messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    clean_text,
)

if TYPE_CHECKING:
    from pydantic import JsonValue

    from .sessions import SearchHit, SessionInfo
else:
    JsonValue = "JsonValue"

__all__ = [
    "CallFinished",
    "CallStarted",
    "CallWithdrawn",
    "DamagedRecord",
    "InMemoryStore",
    "KnownRecord",
    "Lease",
    "MessageHidden",
    "MessageStored",
    "MessageWaiting",
    "NewerRecord",
    "QuestionClosed",
    "QuestionStored",
    "RunEnded",
    "RunTape",
    "SessionPage",
    "SessionRecord",
    "SessionStore",
    "SessionView",
    "ViewReplaced",
    "record_from_json",
    "undo_compaction",
]

INTERRUPTED = "interrupted, result did not reach the store"


class SessionPage(Record):
    """Part of a session: `records`, and the `version` of the whole session, which is how many records it has."""

    records: tuple[SessionRecord, ...]
    version: int


class Lease(Protocol):
    """The right to append to one session. Ends with its context, or when it is not renewed in time."""

    @property
    def session(self) -> str:
        """The session it is for."""
        ...

    @property
    def is_valid(self) -> bool:
        """False once it ran out or was taken back; the store then refuses to append under it."""
        ...


class SessionStore(Protocol):
    """Keeps sessions. One run at a time holds a session's lease and appends to it."""

    def lease(self, session: str, *, ttl_seconds: float) -> AbstractAsyncContextManager[Lease]:
        """The right to append to `session`, renewed until the context is left.

        Raises:
            SessionBusyError: on entering, if another run holds it.
        """
        ...

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        """Records `after` a version, at most `limit`; a session nobody wrote to is empty.

        What cannot be read comes as a `DamagedRecord` in its place, what a later release wrote as a `NewerRecord`.
        """
        ...

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        """Add all records or none, and return the new version.

        Raises:
            SessionConflictError: the session has another version, or the lease is not valid any more.
        """
        ...


class SessionView:
    """The history of a session as models see it, folded from its records.

    `log` only grows, so that a run, its requests and its result can share it and remember a length. Whatever must
    change what is in it (a hidden message, a compaction, a plugin's edit) makes a new list.

    `waiting` is what was said to earlier runs and not heard by any: it is in the history once a run has heard it.
    """

    __slots__ = ("_begun", "_calls", "_gap", "_ids", "_open", "log", "results", "version", "waiting")

    def __init__(self) -> None:
        self.log: list[Message] = []
        self.version = 0
        self.results: dict[str, ToolResult] = {}
        self._open: AssistantMessage | None = None  # the last message with calls, while its results come in
        self._calls: tuple[ToolCall, ...] = ()  # of that message
        self._begun: set[str] = set()  # those of them that had begun, by id
        self._ids: set[str] | None = None  # of all calls in the log, once somebody wants to know
        self._gap = False  # a record that cannot be read came after it, and may have said more
        self.waiting: tuple[UserMessage, ...] = ()

    def apply(self, record: SessionRecord) -> None:
        """Fold one more record in. Of one that a later release wrote, what is understood of it."""
        self.version += 1
        if record.kind == "newer":
            if record.known is None:
                return
            record = record.known
        if record.kind == "message":
            if record.message.kind == "tool" and self._open is not None:
                self._answer_open(record.message)
                return
            self._answer_open()
            self.log.append(record.message)
            if self.waiting:
                self._no_longer_waiting(record.message)
            if record.message.kind == "assistant":
                self._calls = record.message.calls
                if self._calls:
                    self._open, self._begun, self._gap = record.message, set(), False
                    if self._ids is not None:
                        self._ids.update(call.id for call in self._calls)
        elif record.kind == "call_started":
            self._begun.add(record.call_id)
        elif record.kind == "call_finished":
            if self._open is not None and record.message_id == self._open.id:
                self.results[record.result.call_id] = record.result
                if len(self.results) == len(self._calls):
                    self._answer_open()
        elif record.kind == "call_withdrawn":
            self._begun.discard(record.call_id)
        elif record.kind == "damaged":
            self._gap = True
        elif record.kind == "message_hidden":
            self._answer_open()
            self.log = [message for message in self.log if message.id != record.message_id]
        elif record.kind == "message_waiting":
            self._no_longer_waiting(record.message)  # never twice
            self.waiting = (*self.waiting, record.message)
        elif record.kind == "view_replaced":
            self._open = None
            self.results = {}
            self.waiting = ()  # what still waits follows: stores give what comes from here on
            self.log = list(record.messages)

    def _no_longer_waiting(self, message: Message) -> None:
        self.waiting = tuple([one for one in self.waiting if one.id != message.id])

    def replace_last(self, message: AssistantMessage) -> None:
        """Put `message` in the place of the last one, which was applied a moment ago and is not stored yet."""
        self.log[-1] = message
        self._calls = message.calls
        self._open = message if self._calls else None

    def has_call(self, call_id: str) -> bool:
        """True if a message in the log has a call of that id."""
        if self._ids is None:
            self._ids = {call.id for message in self.log if message.kind == "assistant" for call in message.calls}
        return call_id in self._ids

    def copy(self) -> SessionView:
        """A view of its own that starts from this one."""
        twin = SessionView()
        twin.log, twin.version, twin.results, twin._open = list(self.log), self.version, dict(self.results), self._open
        twin._calls, twin._begun, twin._gap = self._calls, set(self._begun), self._gap
        twin.waiting = self.waiting
        return twin

    def close(self) -> None:
        """Answer calls that have no stored result; to be called when all records were applied."""
        self._answer_open()

    @property
    def unanswered(self) -> AssistantMessage | None:
        """The last message, if some of its calls have no stored result."""
        return self._open

    def _answer_open(self, given: ToolMessage | None = None) -> None:
        """Answer the open calls, with what was stored and with results `given` whole: a history from elsewhere."""
        message = self._open
        if message is None:
            return
        self._open = None
        found, self.results = self.results, {}
        if given is not None:
            found.update({result.call_id: result for result in given.results})
        elif not self._gap:
            found.update({call.id: _not_begun(call) for call in self._calls if call.id not in {*found, *self._begun}})
        results = [
            found.get(call.id) or ToolResult(call_id=call.id, content=INTERRUPTED, outcome="interrupted")
            for call in self._calls
        ]
        name = f"{message.id}-results" if given is None else given.id
        self.log.append(maker(ToolMessage)(name, tuple(results)))


def _not_begun(call: ToolCall) -> ToolResult:
    """The answer to a call that had waited, for a reply or its turn: its start is stored before it runs."""
    text = f"Tool {call.name} was not run: its run had ended before it began"
    return ToolResult(call_id=call.id, content=text, outcome="not_started")


class _MemoryLease:
    __slots__ = ("is_valid", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self.is_valid = True

    def invalidate(self) -> None:
        """Nothing more is written under it."""
        self.is_valid = False


class _MemorySession:
    __slots__ = ("created", "forked_from", "records", "title", "updated", "view")

    def __init__(self) -> None:
        self.records: list[SessionRecord] = []
        self.view = SessionView()
        self.created = self.updated = 0.0
        self.title = self.forked_from = ""


class InMemoryStore:
    """Sessions in this process's memory: the default store.

    A run takes no lease here, for the claim that every run makes on its session within the process is enough, and it
    appends without waiting (`append_now`), which spares it the shields and time limits around every write. A lease is
    such a claim, too: whoever has one keeps runs away, and gets none while a run is active.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, _MemorySession] = {}
        self._leases: dict[str, _MemoryLease] = {}

    def sessions(self) -> tuple[str, ...]:
        """Ids of all sessions, oldest first."""
        return tuple(session for session, found in self._sessions.items() if found.records)

    def delete(self, session: str) -> bool:
        """Forget a session; False if there was none.

        Raises:
            SessionBusyError: a run is active on it, or somebody has its lease.
        """
        if claimed(self, session):
            raise SessionBusyError(f"session {session!r} is in use; stop its run first")
        return self._sessions.pop(session, None) is not None

    @asynccontextmanager
    async def lease(self, session: str, *, ttl_seconds: float) -> AsyncIterator[Lease]:
        """The right to append to `session`. It does not run out: whoever holds it is in this process.

        Raises:
            SessionBusyError: somebody has it, or a run is active on the session.
        """
        if session in self._leases:
            raise SessionBusyError(f"session {session!r} is leased by another user of this store; wait for it")
        claims = claim(self, session)
        lease = self._leases[session] = _MemoryLease(session)
        try:
            yield lease
        finally:
            lease.is_valid = False
            del self._leases[session]
            claims.discard(session)

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        """Records `after` a version, at most `limit`."""
        found = self._sessions.get(session)
        records = found.records if found else []
        end = len(records) if limit is None else after + limit
        return SessionPage(records=tuple(records[after:end]), version=len(records))

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        """Add all records or none, and return the new version.

        Raises:
            SessionConflictError: the session has another version, or the lease is not valid any more.
        """
        if not lease.is_valid or lease.session != session:
            raise SessionConflictError(f"session {session!r}: the lease is not valid any more; nothing was written")
        version = self.append_now(session, records, expected_version=expected_version)
        view = self._sessions[session].view
        for record in records:  # a run has done so before it calls `append_now`
            view.apply(record)
        return version

    def open_now(self, session: str) -> SessionView:
        """The view of `session`, shared with whoever asks: append through `append_now` only."""
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = _MemorySession()
        return found.view

    def reload_now(self, session: str) -> None:
        """Fold the view of `session` from its records again, after a run recorded what could not be stored."""
        found = self._sessions.get(session)
        if found is not None:
            found.view = SessionView()
            for record in found.records:
                found.view.apply(record)

    def append_now(self, session: str, records: Sequence[SessionRecord], *, expected_version: int) -> int:
        """`append`, without waiting.

        Raises:
            SessionConflictError: the session has another version.
        """
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = _MemorySession()
        stored = found.records
        if len(stored) != expected_version:
            raise SessionConflictError(
                f"session {session!r} has version {len(stored)}, not {expected_version}: somebody else wrote to it. "
                "Nothing was written; load it again."
            )
        found.updated = time()
        if not stored:
            found.created = found.updated
        stored.extend(records)
        return len(stored)

    # ---- what `sessions.py` describes --------------------------------------------------------------------------------

    async def list_sessions(self, *, limit: int | None = None, offset: int = 0) -> Sequence[SessionInfo]:
        """Sessions, the one written to last first."""
        end = None if limit is None else offset + limit
        return [self._info(session, found) for session, found in self._newest_first()[offset:end]]

    async def session_info(self, session: str) -> SessionInfo | None:
        """One session; None if there is none of that id."""
        found = self._sessions.get(session)
        return None if found is None or not found.records else self._info(session, found)

    async def search_sessions(self, text: str, *, limit: int = 50) -> Sequence[SearchHit]:
        """Messages and tool results that contain `text`, in either case of its letters."""
        from .sessions import hits_in

        hits: list[SearchHit] = []
        for session, found in self._newest_first():
            for position, record in enumerate(found.records, 1):
                hits += hits_in(record, text, session=session, title=found.title, position=position)
                if len(hits) >= limit:
                    return hits[:limit]
        return hits

    async def rename_session(self, session: str, title: str) -> None:
        """Name a session.

        Raises:
            SessionError: there is no such session.
        """
        self._existing(session).title = clean_text(title)

    async def copy_session(self, session: str, new_session: str, *, version: int) -> None:
        """Make `new_session` of the first `version` records of `session`.

        Raises:
            SessionError: there is no such session, or one of the new id already.
        """
        source = self._existing(session)
        taken = self._sessions.get(new_session)
        if taken is not None and taken.records:
            raise SessionError(f"there is a session {new_session!r} already; choose another id")
        self.append_now(new_session, source.records[:version], expected_version=0)
        self._sessions[new_session].forked_from = session
        self.reload_now(new_session)

    async def delete_session(self, session: str) -> bool:
        """Forget a session; False if there was none.

        Raises:
            SessionBusyError: a run is active on it, or somebody has its lease.
        """
        return self.delete(session)

    def _newest_first(self) -> list[tuple[str, _MemorySession]]:
        written = [(session, found) for session, found in self._sessions.items() if found.records]
        return sorted(written, key=lambda item: item[1].updated, reverse=True)

    def _existing(self, session: str) -> _MemorySession:
        found = self._sessions.get(session)
        if found is None or not found.records:
            raise SessionError(f"there is no session {session!r}")
        return found

    def _info(self, session: str, found: _MemorySession) -> SessionInfo:
        from datetime import UTC, datetime

        from .sessions import SessionInfo, preview_of

        return SessionInfo(
            id=session,
            title=found.title,
            version=len(found.records),
            created=datetime.fromtimestamp(found.created, UTC),
            updated=datetime.fromtimestamp(found.updated, UTC),
            preview=preview_of(found.records),
            forked_from=found.forked_from,
        )

    def __reduce__(self) -> Any:
        raise TypeError("an InMemoryStore lives in its process and cannot be pickled or copied; share it by reference")


# ---- compactions -----------------------------------------------------------------------------------------------------


async def undo_compaction(store: SessionStore, session: str) -> bool:
    """Take the last compaction of a session back: models see again what they saw before it, and all that came since.

    The one before it can be taken back after that. Nothing is removed: one more record says what models see.

    Returns:
        False if no compaction is left to take back.

    Raises:
        SessionBusyError: a run is active on it.
        SessionError: a tool call of the session has no result yet.
    """
    async with store.lease(session, ttl_seconds=30.0) as lease:
        kept, version = await _compactions(store, session)
        if not kept:
            return False
        records = await _without_compaction(store, session, frozenset(kept[:-1]))
        await store.append(session, records, expected_version=version, lease=lease)
        return True


async def _compactions(store: SessionStore, session: str) -> tuple[list[int], int]:
    """Positions of the compactions that hold, and the version of the session."""
    from .sessions import known_of, pages

    held: list[int] = []
    position = 0
    async for page in pages(store, session):
        for record in page.records:
            position += 1
            known = known_of(record)
            if known is None or known.kind != "view_replaced":
                continue
            if known.undoes:
                del held[-1:]
            else:
                held.append(position)
    return held, position


async def _without_compaction(store: SessionStore, session: str, held: frozenset[int]) -> list[SessionRecord]:
    """What models see if only the compactions at some positions hold, and what still waits to be heard."""
    from .sessions import known_of, pages

    view = SessionView()
    position = 0
    async for page in pages(store, session):
        for record in page.records:
            position += 1
            known = known_of(record)
            if known is None or known.kind != "view_replaced" or position in held:
                view.apply(record)
    if view.unanswered is not None:
        raise SessionError(f"session {session!r}: a tool call has no result yet; resume the session first")
    undone = ViewReplaced(run_id="", messages=tuple(view.log), reason="the compaction was taken back", undoes=True)
    return [undone, *(MessageWaiting(run_id="", message=message) for message in view.waiting)]
