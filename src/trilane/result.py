"""What a run returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from ._records import Record, adapter
from .errors import RecordedError, RunNotCompletedError
from .ledger import HookFailure, Ledger, ValueChange
from .messages import AssistantMessage, Message, StopReason, ToolCall, Usage

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = ["RecordedResult", "RunResult", "Status"]

Status: TypeAlias = Literal["completed", "failed", "cancelled", "timed_out"]
"""How a run ended."""

Oc = TypeVar("Oc", default=object, covariant=True)


class RunResult(Generic[Oc]):
    """How a run ended and what it made. Also there for failed and cancelled runs, with whatever they had reached.

    Attributes:
        status: How the run ended.
        stop_reason: Why it stopped; for a completed run the reason of its last message.
        message: The last assistant message, None if there was none.
        usage: Tokens and money of all model calls, child runs included.
        turns: Number of turns begun.
        error: What made the run fail or the cancel; None for a completed run.
        store_error: What went wrong with the session store after the run had ended, if anything did.
        run_id: The run.
        session_id: Its session.
        ledger: What plugins cost.
        hook_failures: Failures of plugins that were contained.
        abandoned: Tool calls whose function was still running when the run ended.
    """

    __slots__ = (
        "_count",
        "_earlier_new",
        "_first",
        "_log",
        "_messages",
        "_output",
        "abandoned",
        "error",
        "hook_failures",
        "ledger",
        "message",
        "run_id",
        "session_id",
        "status",
        "stop_reason",
        "store_error",
        "turns",
        "usage",
    )

    def __init__(
        self,
        *,
        status: Status,
        run_id: str,
        session_id: str,
        output: Any = None,
        stop_reason: StopReason = "end",
        message: AssistantMessage | None = None,
        usage: Usage | None = None,
        turns: int = 0,
        error: BaseException | None = None,
        store_error: BaseException | None = None,
        ledger: Ledger | None = None,
        hook_failures: tuple[HookFailure, ...] = (),
        abandoned: tuple[ToolCall, ...] = (),
        messages: Sequence[Message] = (),
        first_new: int = 0,
        earlier_new: Sequence[Message] = (),
    ) -> None:
        self.status: Status = status
        self.run_id = run_id
        self.session_id = session_id
        self._output = output
        self.stop_reason: StopReason = stop_reason
        self.message = message
        self.usage = usage or Usage()
        self.turns = turns
        self.error = error
        self.store_error = store_error
        self.ledger = Ledger() if ledger is None else ledger  # an empty one is false, and the run still fills it
        self.hook_failures = hook_failures
        self.abandoned = abandoned
        # The log is shared with the session and only ever grows: these are its first `_count` items.
        self._log = messages
        self._count = len(messages)
        self._first = first_new
        self._earlier_new = tuple(earlier_new)  # those that are not in the log: a compaction has replaced them
        self._messages: tuple[Message, ...] | None = None

    @property
    def output(self) -> Oc:
        """The answer: the text, or the validated value of the run's `output_type`.

        Raises:
            RunNotCompletedError: the run failed or was cancelled; the original error is its cause.
        """
        if self.status != "completed":
            raise RunNotCompletedError(
                f"run {self.run_id} has no output: it ended {self.status} ({self.stop_reason}). "
                "Look at result.error, or at result.text for what had arrived.",
                result=self,
            ) from self.error
        value: Oc = self._output
        return value

    @property
    def text(self) -> str:
        """Text of the last assistant message, complete or not; empty if there is none."""
        return self.message.text if self.message is not None else ""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole history of the session at the end of the run, as models see it."""
        if self._messages is None:
            self._messages = tuple(self._log[: self._count])
        return self._messages

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """The messages this run added, those that a compaction hides from models included."""
        return (*self._earlier_new, *self._log[self._first : self._count])

    def __repr__(self) -> str:
        return f"RunResult({self.status}, {self.stop_reason}, turns={self.turns}, text={self.text[:60]!r})"

    def to_json(self) -> str:
        """This result as one line of JSON: new messages in full, earlier ones left out, errors as type and message."""
        text: str = adapter(RunResult).dump_json(self).decode()
        return text

    @classmethod
    def from_json(cls, data: str | bytes) -> RunResult[Any]:
        """The result that `to_json` wrote; `messages` are the new ones only.

        Raises:
            pydantic.ValidationError: `data` is not a result.
        """
        result: RunResult[Any] = adapter(RunResult).validate_json(data)
        return result

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        record = handler.generate_schema(RecordedResult)
        read = core_schema.no_info_after_validator_function(_from_record, record)
        return core_schema.json_or_python_schema(
            json_schema=read,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(RunResult), read]),
            serialization=core_schema.plain_serializer_function_ser_schema(_to_record, return_schema=record),
        )


class RecordedResult(Record):
    """A `RunResult` as it is written to JSON."""

    status: Status
    stop_reason: StopReason
    run_id: str
    session_id: str
    output: JsonValue = None
    text: str = ""
    message: AssistantMessage | None = None
    new_messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    turns: int = 0
    error: dict[str, str] | None = None
    store_error: dict[str, str] | None = None
    hook_failures: tuple[HookFailure, ...] = ()
    abandoned: tuple[ToolCall, ...] = ()
    ledger: tuple[dict[str, JsonValue], ...] = ()
    changes: tuple[ValueChange, ...] = ()


def _error_json(error: BaseException | None) -> dict[str, str] | None:
    if error is None:
        return None
    from ._records import error_text

    return {"type": getattr(error, "type", None) or type(error).__name__, "message": error_text(error)}


def _to_record(result: RunResult[Any]) -> RecordedResult:
    from pydantic_core import to_jsonable_python

    return RecordedResult(
        status=result.status,
        stop_reason=result.stop_reason,
        run_id=result.run_id,
        session_id=result.session_id,
        output=to_jsonable_python(result._output, fallback=str) if result.status == "completed" else None,
        text=result.text,
        message=result.message,
        new_messages=result.new_messages,
        usage=result.usage,
        turns=result.turns,
        error=_error_json(result.error),
        store_error=_error_json(result.store_error),
        hook_failures=result.hook_failures,
        abandoned=result.abandoned,
        ledger=tuple(dict(row) for row in result.ledger.as_rows()),
        changes=tuple(result.ledger.changes),
    )


def _from_record(value: Any) -> RunResult[Any]:
    if isinstance(value, RunResult):
        return value
    ledger = Ledger()
    for row in value.ledger:
        entry = ledger.row(str(row["plugin"]), str(row["hook"]))
        entry.calls, entry.errors, entry.changes = int(row["calls"]), int(row["errors"]), int(row["changes"])
        entry.seconds = float(row["seconds"])
    ledger.changes += value.changes
    return RunResult(
        status=value.status,
        stop_reason=value.stop_reason,
        run_id=value.run_id,
        session_id=value.session_id,
        output=value.output,
        message=value.message,
        usage=value.usage,
        turns=value.turns,
        error=RecordedError(**value.error) if value.error else None,
        store_error=RecordedError(**value.store_error) if value.store_error else None,
        ledger=ledger,
        hook_failures=value.hook_failures,
        abandoned=value.abandoned,
        messages=value.new_messages,
    )
