"""What the three lanes carry: UI events, notifications for plugins, questions and receipts.

UI events have plain names and are what the caller of a run sees, in order, each acknowledged. Notifications end in
`Event`, go to plugins only, and are in no history. Questions go out and replies come in on the third lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from ._records import ErrorAsJson, Record, adapter
from .messages import AssistantMessage, Message, StopReason, ToolCall, ToolResult, Usage, UserMessage
from .result import RunResult, Status
from .state import AgentPhase

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = [
    "AgentEvent",
    "ChildEvent",
    "CompactionCompleted",
    "CompactionProgress",
    "CompactionStarted",
    "CustomEvent",
    "Event",
    "ExtensionEvent",
    "LateResultEvent",
    "MessageAppendedEvent",
    "MessageCompleted",
    "MessageStarted",
    "ModelStarted",
    "PhaseChanged",
    "PhaseTransitionEvent",
    "PluginFailed",
    "PluginFailedEvent",
    "Question",
    "QuestionClosedEvent",
    "QuestionOpenedEvent",
    "ReasoningCompleted",
    "ReasoningDelta",
    "ReasoningStarted",
    "Receipt",
    "ReplyReceived",
    "ReplyRequested",
    "RunCancelled",
    "RunCancelledEvent",
    "RunCompleted",
    "RunFailed",
    "RunStarted",
    "TextCompleted",
    "TextDelta",
    "TextStarted",
    "ToolCallDelta",
    "ToolCallEvent",
    "ToolCompleted",
    "ToolProgress",
    "ToolStarted",
    "TurnCompleted",
    "TurnStarted",
    "UserMessageAdded",
    "event_from_json",
    "event_json_schema",
]

_Error: TypeAlias = Annotated[BaseException, ErrorAsJson()]


# ---- questions and replies -------------------------------------------------------------------------------------------


class Question(Record):
    """Something a run asks the outside.

    Attributes:
        id: Unique everywhere.
        kind: `approval` (may this call run?), `question` (a tool asks), `external_tool` (please run this tool).
        prompt: What to show.
        schema: JSON Schema the reply must follow.
        call: The tool call it is about.
        asked_by: The plugins or the tool that asked.
        session_id: The session a reply must name: the root's, where a child run asks.
        path: Names of the tools that lead from the root run to the asking one.
        expires: When it stops being answerable, in UTC; None for never.
    """

    id: str
    kind: Literal["approval", "question", "external_tool"]
    prompt: str
    schema: Mapping[str, JsonValue]
    call: ToolCall | None = None
    asked_by: str = ""
    session_id: str = ""
    path: tuple[str, ...] = ()
    expires: datetime | None = None


class Receipt(Record):
    """What became of a reply.

    Attributes:
        status: `accepted` (exactly once per question), `invalid` (see `reasons`; the question stays open), `unknown`,
            `wrong_session`, `duplicate` (somebody answered before), `expired` (the question was withdrawn).
        reasons: For `invalid`: what is wrong with the reply.
    """

    status: Literal["accepted", "invalid", "unknown", "wrong_session", "duplicate", "expired"]
    reasons: tuple[str, ...] = ()


# ---- UI events -------------------------------------------------------------------------------------------------------


class AgentEvent(Record):
    """Base of everything on the UI stream.

    Attributes:
        type: The class name in snake case; what tells events apart in JSON.
        seq: Position in the run's stream, from 1 without gaps, given when the event was produced.
        run_id: The run.
        session_id: Its session.
        phase: The phase in which it was produced.
        milestone: False for deltas and progress, which a slow viewer may leave out; True for all others.
    """

    type: str
    seq: int
    run_id: str
    session_id: str
    phase: AgentPhase
    milestone: bool = True


class RunStarted(AgentEvent):
    """The run has claimed its session. First event of every stream."""

    type: Literal["run_started"] = "run_started"
    request: UserMessage


class PhaseChanged(AgentEvent):
    """The phase changed from `previous` to `phase`."""

    type: Literal["phase_changed"] = "phase_changed"
    previous: AgentPhase


class TurnStarted(AgentEvent):
    """A turn begins: one model call and the tool calls it asks for."""

    type: Literal["turn_started"] = "turn_started"
    turn: int


class TurnCompleted(AgentEvent):
    """A turn has ended. `usage` is that of its model call."""

    type: Literal["turn_completed"] = "turn_completed"
    turn: int
    usage: Usage


class UserMessageAdded(AgentEvent):
    """A user message entered the conversation; `origin` says how."""

    type: Literal["user_message_added"] = "user_message_added"
    message: UserMessage
    origin: Literal["request", "steering", "follow_up", "feedback"]


class ModelStarted(AgentEvent):
    """A model call is about to be made; `attempt` counts from 1 within the turn."""

    type: Literal["model_started"] = "model_started"
    model: str
    attempt: int = 1


class MessageStarted(AgentEvent):
    """The model has begun to answer."""

    type: Literal["message_started"] = "message_started"
    message_id: str


class TextStarted(AgentEvent):
    """A text part begins; `index` says which part of its message it is, counted from 0."""

    type: Literal["text_started"] = "text_started"
    message_id: str
    index: int


class TextDelta(AgentEvent):
    """More text of the part."""

    type: Literal["text_delta"] = "text_delta"
    milestone: bool = False
    message_id: str
    index: int
    text: str


class TextCompleted(AgentEvent):
    """The text part has ended."""

    type: Literal["text_completed"] = "text_completed"
    message_id: str
    index: int


class ReasoningStarted(AgentEvent):
    """A reasoning part begins; `index` says which part of its message it is, counted from 0."""

    type: Literal["reasoning_started"] = "reasoning_started"
    message_id: str
    index: int


class ReasoningDelta(AgentEvent):
    """More reasoning of the part."""

    type: Literal["reasoning_delta"] = "reasoning_delta"
    milestone: bool = False
    message_id: str
    index: int
    text: str


class ReasoningCompleted(AgentEvent):
    """The reasoning part has ended."""

    type: Literal["reasoning_completed"] = "reasoning_completed"
    message_id: str
    index: int


class ToolCallDelta(AgentEvent):
    """More of the JSON text of a call's arguments; the part of each call has its own `index`.

    The finished call is in `MessageCompleted`.
    """

    type: Literal["tool_call_delta"] = "tool_call_delta"
    milestone: bool = False
    message_id: str
    index: int
    call_id: str
    name: str
    arguments: str


class MessageCompleted(AgentEvent):
    """The message is complete and in the history, or was cut off, or is superseded by a later one.

    Attributes:
        message: The message as the history has it.
        stop_reason: Why the model stopped.
        interrupted: It was cut off; what had arrived is kept.
        superseded: It is not part of the conversation any more: another attempt or a corrected answer follows.
    """

    type: Literal["message_completed"] = "message_completed"
    message: AssistantMessage
    stop_reason: StopReason
    interrupted: bool = False
    superseded: bool = False


class ToolStarted(AgentEvent):
    """A tool is about to run; if `external`, not here: whoever reads the stream is asked for its result."""

    type: Literal["tool_started"] = "tool_started"
    call: ToolCall
    external: bool = False


class ToolProgress(AgentEvent):
    """A tool reports how far it is; `fraction` is between 0 and 1."""

    type: Literal["tool_progress"] = "tool_progress"
    milestone: bool = False
    call_id: str
    text: str = ""
    data: JsonValue = None
    fraction: float | None = None


class ToolCompleted(AgentEvent):
    """A call has its result. A call that was refused has no `ToolStarted` before it."""

    type: Literal["tool_completed"] = "tool_completed"
    call: ToolCall
    result: ToolResult


class ReplyRequested(AgentEvent):
    """The run asks; answer with `agent.reply(session_id, question.id, payload)`, at once or later."""

    type: Literal["reply_requested"] = "reply_requested"
    question: Question


class ReplyReceived(AgentEvent):
    """A question was answered or withdrawn."""

    type: Literal["reply_received"] = "reply_received"
    question_id: str
    receipt: Receipt


class CompactionStarted(AgentEvent):
    """A plugin is asked to shorten what the model sees."""

    type: Literal["compaction_started"] = "compaction_started"


class CompactionProgress(AgentEvent):
    """How far compaction is."""

    type: Literal["compaction_progress"] = "compaction_progress"
    milestone: bool = False
    text: str


class CompactionCompleted(AgentEvent):
    """Compaction has ended; `changed` says whether the model now sees something else, `reason` why (not)."""

    type: Literal["compaction_completed"] = "compaction_completed"
    changed: bool
    reason: str = ""


class ChildEvent(AgentEvent):
    """An event of a run inside a tool; `path` names the tools that lead to it."""

    type: Literal["child_event"] = "child_event"
    path: tuple[str, ...]
    event: Event


class CustomEvent(AgentEvent):
    """An event of a plugin's own, from `run.emit(name, data)`."""

    type: Literal["custom_event"] = "custom_event"
    plugin: str
    name: str
    data: JsonValue = None


class PluginFailed(AgentEvent):
    """A plugin failed where that is contained: nothing is undone, and the run goes on or ends as it would have."""

    type: Literal["plugin_failed"] = "plugin_failed"
    plugin: str
    hook: str
    error: _Error


class RunCompleted(AgentEvent):
    """The run has completed. Terminal: the last event of its stream."""

    type: Literal["run_completed"] = "run_completed"
    result: RunResult[Any]


class RunFailed(AgentEvent):
    """The run has failed; the next pull raises `error` itself. Terminal."""

    type: Literal["run_failed"] = "run_failed"
    error: _Error
    status: Status
    result: RunResult[Any]


class RunCancelled(AgentEvent):
    """The run was stopped; the next pull raises `RunCancelledError`. Terminal."""

    type: Literal["run_cancelled"] = "run_cancelled"
    reason: str
    result: RunResult[Any]


#: Every event of the UI stream: closed, so that a `match` over it can end in `assert_never`.
Event: TypeAlias = Union[  # noqa: UP007  (pydantic needs the discriminator on a Union)
    RunStarted,
    PhaseChanged,
    TurnStarted,
    TurnCompleted,
    UserMessageAdded,
    ModelStarted,
    MessageStarted,
    TextStarted,
    TextDelta,
    TextCompleted,
    ReasoningStarted,
    ReasoningDelta,
    ReasoningCompleted,
    ToolCallDelta,
    MessageCompleted,
    ToolStarted,
    ToolProgress,
    ToolCompleted,
    ReplyRequested,
    ReplyReceived,
    CompactionStarted,
    CompactionProgress,
    CompactionCompleted,
    ChildEvent,
    CustomEvent,
    PluginFailed,
    RunCompleted,
    RunFailed,
    RunCancelled,
]


@cache  # each `Annotated` is another one to `adapter`, and building it takes a tenth of a second
def _event_adapter() -> Any:
    from pydantic import Field

    return adapter(Annotated[Event, Field(discriminator="type")])


def event_from_json(data: str | bytes) -> Event:
    """The event that `to_json` of any event class wrote.

    Raises:
        pydantic.ValidationError: `data` is not an event.
    """
    event: Event = _event_adapter().validate_json(data)
    return event


def event_json_schema() -> dict[str, Any]:
    """JSON Schema of every event, as `trilane run --json` prints them."""
    schema: dict[str, Any] = _event_adapter().json_schema(mode="serialization")
    return schema


# ---- notifications ---------------------------------------------------------------------------------------------------


class ExtensionEvent(Record):
    """Base of notifications: published inside a run for plugins, never shown to the caller, never in the history."""


class PhaseTransitionEvent(ExtensionEvent):
    """The phase has changed."""

    previous: AgentPhase
    phase: AgentPhase


class MessageAppendedEvent(ExtensionEvent):
    """A message was added to the history."""

    message: Message


class QuestionOpenedEvent(ExtensionEvent):
    """A question was registered and can be answered."""

    question: Question


class QuestionClosedEvent(ExtensionEvent):
    """A question was answered or withdrawn."""

    question_id: str
    receipt: Receipt


class RunCancelledEvent(ExtensionEvent):
    """The run was cancelled."""

    reason: str


class PluginFailedEvent(ExtensionEvent):
    """A plugin failed where that is contained."""

    plugin: str
    hook: str
    error: _Error


class LateResultEvent(ExtensionEvent):
    """A tool that had been given up has returned after all. Its call keeps the answer it got."""

    call: ToolCall
    result: ToolResult


class ToolCallEvent(Record):
    """What the events lane of `RuntimeQueues` carries: a tool call for whoever executes it."""

    call: ToolCall
    run_id: str
    session_id: str
