"""The records a session consists of, and reading them back, whatever release wrote them.

Public through `stores.py`, which also folds them into what a model sees.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from ._records import Record, adapter
from .events import Question
from .messages import Effect, Message, ToolResult, Usage, UserMessage

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = [
    "CallFinished",
    "CallStarted",
    "CallWithdrawn",
    "DamagedRecord",
    "KnownRecord",
    "MessageHidden",
    "MessageStored",
    "MessageWaiting",
    "NewerRecord",
    "QuestionClosed",
    "QuestionStored",
    "RunEnded",
    "RunTape",
    "SessionRecord",
    "ViewReplaced",
    "record_from_json",
]


class MessageStored(Record):
    """A message was added to the history. Results of tools are in `CallFinished` records."""

    kind: Literal["message"] = "message"
    version: int = 1
    run_id: str
    message: Message


class CallStarted(Record):
    """A tool call was about to run. `key` is the same at every attempt; what ran is known from `arguments_hash`."""

    kind: Literal["call_started"] = "call_started"
    version: int = 1
    run_id: str
    message_id: str
    call_id: str
    key: str
    arguments_hash: str = ""
    effect: Effect = "unsafe"
    attempt: int = 1


class CallWithdrawn(Record):
    """A call that was about to run did not begin: the run was suspended before. Resuming decides about it anew."""

    kind: Literal["call_withdrawn"] = "call_withdrawn"
    version: int = 1
    run_id: str
    message_id: str
    call_id: str


class CallFinished(Record):
    """A tool call of message `message_id` has its result."""

    kind: Literal["call_finished"] = "call_finished"
    version: int = 1
    run_id: str
    message_id: str
    result: ToolResult


class MessageHidden(Record):
    """A message stays in the raw history, but models do not see it any more."""

    kind: Literal["message_hidden"] = "message_hidden"
    version: int = 1
    run_id: str
    message_id: str
    reason: str = ""


class MessageWaiting(Record):
    """Steering or a follow-up that its run accepted and had not heard when it ended.

    It is in no history yet. The next run on the session hears it, and stores it as a message of the same id.
    """

    kind: Literal["message_waiting"] = "message_waiting"
    version: int = 1
    run_id: str
    message: UserMessage


class ViewReplaced(Record):
    """From here on models see `messages` instead of everything before: a compaction, or one taken back (`undoes`)."""

    kind: Literal["view_replaced"] = "view_replaced"
    version: int = 1
    run_id: str
    messages: tuple[Message, ...]
    reason: str = ""
    undoes: bool = False


class QuestionStored(Record):
    """A question was opened.

    `ordinal` counts the questions that a tool asks in one attempt, from 1, so that a later attempt finds its replies
    again; 0 for questions about a call.
    """

    kind: Literal["question"] = "question"
    version: int = 1
    run_id: str
    question: Question
    ordinal: int = 0


class QuestionClosed(Record):
    """A question was answered (`status` accepted, with its payload) or withdrawn.

    `is_result` says that the payload is a whole `ToolResult`, which a program gave for a call it ran.
    """

    kind: Literal["question_closed"] = "question_closed"
    version: int = 1
    run_id: str
    question_id: str
    status: str
    payload: JsonValue = None
    is_result: bool = False

    @property
    def reply(self) -> JsonValue | ToolResult:
        """What was replied."""
        if not self.is_result:
            return self.payload
        import json

        return ToolResult.from_json(json.dumps(self.payload))


class RunEnded(Record):
    """A run has ended."""

    kind: Literal["run_ended"] = "run_ended"
    version: int = 1
    run_id: str
    status: Literal["completed", "failed", "cancelled", "timed_out", "suspended"]
    usage: Usage = Usage()
    turns: int = 0


class RunTape(Record):
    """What happened in a run beside its messages, as far as a replay needs it: hooks called, requests, raw replies.

    Written only by runs that are `replayable`, with whatever they store next; models never see it. `entries` are lists
    whose first item says what they are; see `trilane.replay`.
    """

    kind: Literal["run_tape"] = "run_tape"
    version: int = 1
    run_id: str
    entries: tuple[JsonValue, ...] = ()


KnownRecord: TypeAlias = Union[  # noqa: UP007  (pydantic needs the discriminator on a Union)
    MessageStored,
    CallStarted,
    CallWithdrawn,
    CallFinished,
    MessageHidden,
    MessageWaiting,
    ViewReplaced,
    QuestionStored,
    QuestionClosed,
    RunEnded,
    RunTape,
]
"""The records of this version."""


class _RawRecord(Record):
    """A record whose text is kept as it was found: `to_json` gives it back unchanged."""

    raw: str
    version: int = 1
    run_id: str = ""

    def to_json(self) -> str:
        """The text as it was found."""
        return self.raw


class NewerRecord(_RawRecord):
    """A record that a later release wrote: of an unknown kind, or with fields that this one does not know.

    Attributes:
        raw: Its JSON, for export, forks and the release that understands it.
        known: What this release understands of it; None for an unknown kind.
    """

    kind: Literal["newer"] = "newer"
    known: KnownRecord | None = None


class DamagedRecord(_RawRecord):
    """A record that cannot be read. It keeps its place, so that the others keep theirs.

    Attributes:
        raw: What was found of it; bytes that are no UTF-8 are escaped.
        reason: Why it cannot be read.
    """

    kind: Literal["damaged"] = "damaged"
    reason: str


SessionRecord: TypeAlias = KnownRecord | NewerRecord | DamagedRecord


@cache  # each `Annotated` is another one to `adapter`, and building it takes a tenth of a second
def _record_adapter() -> Any:
    from pydantic import Field

    return adapter(Annotated[KnownRecord, Field(discriminator="kind")])


def record_from_json(data: str | bytes) -> SessionRecord:
    """The record that `to_json` of any record class wrote. It never raises: nothing of a session is dropped.

    What a later release wrote becomes a `NewerRecord`, what cannot be read a `DamagedRecord`.
    """
    from pydantic import ValidationError

    known = _record_adapter()
    record: SessionRecord
    try:
        record = known.validate_json(data, extra="forbid")
    except ValidationError as error:
        reason = error
    else:
        return record
    raw = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
    try:
        return NewerRecord(raw=raw, known=known.validate_json(data))
    except ValidationError:
        return _unknown_record(raw, reason)


def _unknown_record(raw: str, reason: Any) -> NewerRecord | DamagedRecord:
    """A record of which nothing is understood: of a kind or a version to come, or damaged."""
    import json

    try:
        value = json.loads(raw)
    except ValueError as error:
        return DamagedRecord(raw=raw, reason=f"it is no JSON: {error}")
    except RecursionError:
        return DamagedRecord(raw=raw, reason="it is nested too deeply to be read")
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return DamagedRecord(raw=raw, reason="it has no kind")
    version = value.get("version", 1)
    if value["kind"] not in _KINDS or (isinstance(version, int) and version > 1):
        return NewerRecord(raw=raw, version=version if isinstance(version, int) else 1)
    wrong = reason.errors(include_url=False)
    where = ".".join(str(step) for step in wrong[0]["loc"]) if wrong else ""
    return DamagedRecord(raw=raw, reason=f"{where}: {wrong[0]['msg']}" if wrong else "it does not fit its kind")


_KINDS = frozenset(
    {
        "message",
        "call_started",
        "call_withdrawn",
        "call_finished",
        "message_hidden",
        "message_waiting",
        "view_replaced",
        "question",
        "question_closed",
        "run_ended",
        "run_tape",
    }
)
