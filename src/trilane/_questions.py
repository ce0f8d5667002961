"""The third lane: questions a run has asked, and the one place where replies arrive, from any thread.

A question is registered here before it is shown, so that no reply can come too early, and it is accepted at most once.
What a run does while it waits is in `_asking.py`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ._checking import checked
from ._plain import NOT_FINITE, is_finite, is_json, plain_json
from ._records import error_line
from .errors import ConfigError
from .events import Question, Receipt
from .messages import Approval, ToolResult

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ._tasks import TaskHandle

__all__ = ["OpenQuestion", "QuestionDesk", "schema_of"]

REMEMBERED = 10_000  # closed questions whose late replies are still told apart from unknown ones


class OpenQuestion:
    """A question and what became of it."""

    __slots__ = (
        "answering",
        "asker",
        "deadline",
        "lock",
        "payload",
        "question",
        "receive",
        "shown",
        "status",
        "validate",
        "value",
    )

    def __init__(
        self,
        question: Question,
        validate: Callable[[Any], Any],
        receive: Callable[[Any, Question, Any], tuple[Any, str]],
        asker: Any,
        *,
        shown: bool = True,
    ) -> None:
        self.question = question
        self.shown = shown  # False: for the event agent of the run's queues only, which answers on the input lane
        self.validate = validate  # raises ValueError with reasons
        self.receive = receive  # what plugins of the asker make of a payload, and which did; raises ReplyRejected
        self.asker = asker  # the run; its `notice` is called in the replying thread
        self.lock = threading.RLock()
        self.status = "open"  # then "accepted" or "expired"
        self.payload: JsonValue = None
        self.value: Any = None  # the validated reply, or why nobody could give one
        self.answering: TaskHandle | None = None  # the task of the `answer=` function
        self.deadline: float | None = None  # in the event loop's time, for whoever waits without a task of its own


class ReplyRejected(Exception):
    """A plugin, or the schema, did not take the reply. The question stays open."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def _is_refused(entry: OpenQuestion, payload: Any) -> bool:
    try:
        entry.validate(payload)
    except ReplyRejected:
        return True
    return False


class QuestionDesk:
    """All questions of one agent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], OpenQuestion] = {}
        # By question: the one session that asks it, as nearly always, or all of them.
        self._sessions: dict[str, str | set[str]] = {}
        self._closed: OrderedDict[tuple[str, str], tuple[str, bool]] = OrderedDict()  # what it is late for; was shown

    def open(self, entry: OpenQuestion) -> None:
        """Register a question: from now on it can be answered.

        Raises:
            ConfigError: the session already has an open question of that id.
        """
        question = entry.question
        key = (question.session_id, question.id)
        with self._lock:
            if key in self._open:
                raise ConfigError(f"session {question.session_id!r} already has an open question {question.id!r}")
            self._open[key] = entry
            if entry.shown:
                others = self._sessions.get(question.id)
                if others is None:
                    self._sessions[question.id] = question.session_id
                elif isinstance(others, str):
                    self._sessions[question.id] = {others, question.session_id}
                else:
                    others.add(question.session_id)
            self._closed.pop(key, None)

    def knows(self, session: str, question_id: str, *, closed: bool = True) -> bool:
        """True if a question of that id is open or, with `closed`, was a while ago."""
        key = (session, question_id)
        with self._lock:
            return key in self._open or (closed and key in self._closed)

    def open_in(self, session: str) -> tuple[Question, ...]:
        """The open questions of a session that anybody may answer."""
        with self._lock:
            return tuple(entry.question for (owner, _), entry in self._open.items() if owner == session and entry.shown)

    def withdraw(self, entry: OpenQuestion) -> bool:
        """Close a question without an answer; False if it was answered."""
        with entry.lock:
            if entry.status != "open":
                return False
            entry.status = "expired"
        self._forget(entry, "expired")
        return True

    def reply(self, session: str, question_id: str, payload: JsonValue, *, inside: bool = False) -> Receipt:
        """Answer a question, from any thread. At most one reply is accepted.

        `inside` says that the reply came by the input lane; to all others a question that was not shown is unknown.
        """
        key = (session, question_id)
        with self._lock:
            entry = self._open.get(key)
            if entry is None or not (entry.shown or inside):
                return self._late(key, inside)
        with entry.lock:
            if entry.status != "open":
                return Receipt(status="duplicate" if entry.status == "accepted" else "expired")
            changed_by = ""
            try:
                try:
                    if isinstance(payload, (Approval, ToolResult)):
                        payload = checked(payload)
                    given = payload
                    payload, changed_by = entry.receive(entry.asker, entry.question, payload)
                    plain = plain_json(payload)
                    if not is_finite(plain):  # the tool would see another value than one that is resumed
                        raise ValueError(f"must not have {NOT_FINITE}, in it")
                except (TypeError, ValueError) as error:
                    raise ReplyRejected(f"the reply {error}") from None
                # What JSON says is taken as it is stored, with its texts cleaned; what only Python says, as it is.
                value = entry.validate(plain if is_json(payload) else payload)
            except ReplyRejected as rejected:
                reasons = rejected.reasons
                if changed_by and not _is_refused(entry, given):  # it is no mistake of the sender's
                    reasons = tuple([f"on_reply of plugin {changed_by!r} changed the reply: {one}" for one in reasons])
                return Receipt(status="invalid", reasons=reasons)
            entry.value, entry.payload = value, plain
            entry.status = "accepted"
        self._forget(entry, "duplicate")
        entry.asker.notice()
        return Receipt(status="accepted")

    def _late(self, key: tuple[str, str], inside: bool) -> Receipt:
        closed, shown = self._closed.get(key, ("", True))
        if closed and (shown or inside):
            return Receipt(status="duplicate" if closed == "duplicate" else "expired")
        return Receipt(status="wrong_session" if self._sessions.get(key[1]) else "unknown")

    def _forget(self, entry: OpenQuestion, late: str) -> None:
        key = (entry.question.session_id, entry.question.id)
        with self._lock:
            if self._open.get(key) is entry:
                del self._open[key]
            self._closed[key] = (late, entry.shown)
            while len(self._closed) > REMEMBERED:
                (session, question_id), _ = self._closed.popitem(last=False)
                owners = self._sessions.get(question_id)
                if owners is None or (session, question_id) in self._open:
                    continue
                if not isinstance(owners, str):
                    owners.discard(session)
                elif owners == session:
                    owners = ""
                if not owners:
                    del self._sessions[question_id]


def schema_of(schema: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """JSON Schema and validator of what a reply must be: any type pydantic knows, or a JSON Schema dictionary.

    A dictionary is shown to whoever answers; of it only the top-level `type`, `required` and `enum` are checked here.

    Raises:
        TypeError: it is neither.
    """
    try:
        if not isinstance(schema, dict):
            return _of_type(schema)
        plain: Any = plain_json(schema)
    except Exception as error:  # also what a type's own hooks for pydantic raise
        reason = (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0]
        raise TypeError(
            f"cannot ask for {schema!r:.200}; give a type that pydantic knows, or a JSON Schema as a dict: {reason}"
        ) from error
    return plain, lambda payload: _check_json(plain, payload)


@cache
def _of_type(schema: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Made once: many sessions may wait for a reply of one type."""
    from pydantic import ValidationError

    from ._records import adapter

    checked = adapter(schema)

    def validate(payload: Any) -> Any:
        try:
            return checked.validate_python(payload)
        except ValidationError as error:
            reasons = []
            for found in error.errors(include_url=False):
                where = ".".join(str(step) for step in found["loc"])
                reasons.append(f"{where}: {found['msg']}" if where else found["msg"])
            raise ReplyRejected(*reasons) from None
        except Exception as error:  # whatever a validator of somebody's type raises
            raise ReplyRejected(f"could not be checked: a validator failed with {error_line(error)}") from error

    return checked.json_schema(), validate


_JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _check_json(schema: dict[str, Any], payload: Any) -> Any:
    wanted = schema.get("type")
    if isinstance(wanted, str) and wanted in _JSON_TYPES:
        is_bool = isinstance(payload, bool)
        if not isinstance(payload, _JSON_TYPES[wanted]) or (is_bool and wanted in ("integer", "number")):
            raise ReplyRejected(f"must be of type {wanted}, not {type(payload).__name__}")
    if "enum" in schema and payload not in schema["enum"]:
        raise ReplyRejected(f"must be one of {schema['enum']}")
    if isinstance(payload, dict):
        missing = [name for name in schema.get("required", ()) if name not in payload]
        if missing:
            raise ReplyRejected(*(f"{name}: is required" for name in missing))
    return payload
