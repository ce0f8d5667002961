"""The wire protocol, version 1: every message that goes up and comes down a WebSocket, as pydantic models.

Messages are JSON objects told apart by `type`. What comes up is checked against these models; what goes down is made
from them, but for events, which are Trilane's own UI events in their JSON form and are written without a second look.
The prose is in the reference page "Wire protocol".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

__all__ = [
    "PROTOCOL",
    "SUBPROTOCOL",
    "AckPolicy",
    "Acknowledge",
    "BadMessage",
    "Closing",
    "Confirmed",
    "DisconnectPolicy",
    "Down",
    "DownMessage",
    "ErrorCode",
    "Events",
    "Failed",
    "FollowUp",
    "Gap",
    "Hello",
    "Id",
    "NotificationSeen",
    "Ping",
    "Pong",
    "ReceiptGiven",
    "ReplyGiven",
    "Resume",
    "RunAttached",
    "ServerPing",
    "ServerPong",
    "SessionId",
    "Start",
    "Steer",
    "Stop",
    "Text",
    "Unwatch",
    "Up",
    "UpMessage",
    "Watch",
    "Welcome",
    "parse_up",
    "protocol_json_schema",
]

PROTOCOL = 1
SUBPROTOCOL = "trilane.v1"

AckPolicy: TypeAlias = Literal["strict", "windowed", "detached"]
DisconnectPolicy: TypeAlias = Literal["pause", "cancel", "continue"]

ErrorCode: TypeAlias = Literal[
    "bad_message",  # it is no JSON, of no known type, or does not fit its type
    "bad_acknowledgement",  # of an event that was not sent
    "wrong_protocol",  # hello names another version
    "not_authenticated",
    "not_found",  # no such session or run, or it is somebody else's
    "busy",  # the session has an active run
    "not_running",  # it has none
    "not_resumable",  # there is nothing to take up
    "too_many",  # a limit was reached
    "shutting_down",
    "failed",  # the server failed; its log says why
]
"""What can be wrong with a message; `message` says it in words."""

Id: TypeAlias = Annotated[str, Field(max_length=128)]
SessionId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=200_000)]


class UpMessage(BaseModel):
    """Base of what a client sends. `id` is given back as `re` in the answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: Id = ""


class Hello(UpMessage):
    """First message of every connection. `client` names the tab, and is the same after a reconnect."""

    type: Literal["hello"] = "hello"
    protocol: int
    client: Id = ""
    token: Annotated[str, Field(max_length=4096)] = ""
    frame_seconds: Annotated[float, Field(ge=0, le=5)] = 0
    lanes: bool = False


class Start(UpMessage):
    """Start a run. A repeated `key` gives the run that the first one started."""

    type: Literal["start"] = "start"
    text: Text
    session: SessionId | None = None
    acknowledgement: AckPolicy | None = None
    on_disconnect: DisconnectPolicy | None = None
    key: Id = ""


class Resume(UpMessage):
    """Take up a session whose run was suspended, cut off, stopped or failed."""

    type: Literal["resume"] = "resume"
    session: SessionId
    acknowledgement: AckPolicy | None = None
    on_disconnect: DisconnectPolicy | None = None
    key: Id = ""


class Watch(UpMessage):
    """Send the events of a run `after` a sequence number. Without `run`, of the session's active one."""

    type: Literal["watch"] = "watch"
    session: SessionId
    run: Id = ""
    after: JsonValue = 0


class Unwatch(UpMessage):
    """Send no more events of a run."""

    type: Literal["unwatch"] = "unwatch"
    run: Id


class Acknowledge(UpMessage):
    """Everything of a run up to `seq` was shown. Not answered, unless it is wrong."""

    type: Literal["ack"] = "ack"
    run: Id
    seq: Annotated[int, Field(ge=0, strict=True)]


class ReplyGiven(UpMessage):
    """Answer a question."""

    type: Literal["reply"] = "reply"
    session: SessionId
    question: Id
    payload: JsonValue = None


class Steer(UpMessage):
    """Say something while the run works; heard at its next boundary."""

    type: Literal["steer"] = "steer"
    session: SessionId
    text: Text


class FollowUp(UpMessage):
    """Say something to be heard after the answer."""

    type: Literal["follow_up"] = "follow_up"
    session: SessionId
    text: Text


class Stop(UpMessage):
    """Stop the session's run: `now`, or at its next boundary."""

    type: Literal["stop"] = "stop"
    session: SessionId
    when: Literal["now", "boundary"] = "now"
    reason: Annotated[str, Field(max_length=500)] = "stopped by the user"


class Ping(UpMessage):
    """Is anybody there?"""

    type: Literal["ping"] = "ping"


class Pong(UpMessage):
    """Answer to the server's `ping`."""

    type: Literal["pong"] = "pong"


Up: TypeAlias = (
    Hello | Start | Resume | Watch | Unwatch | Acknowledge | ReplyGiven | Steer | FollowUp | Stop | Ping | Pong
)


class DownMessage(BaseModel):
    """Base of what the server sends. `re` is the `id` of the message it answers, empty if it answers none."""

    model_config = ConfigDict(frozen=True)
    re: str = ""


class Welcome(DownMessage):
    """Answer to `hello`."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL
    server: str
    principal: str
    agent: str
    acknowledgement: AckPolicy
    heartbeat_seconds: float
    lanes: bool


class RunAttached(DownMessage):
    """A run was started, or is watched: its events come from `next` on. Answer to `start`, `resume` and `watch`.

    `driver` says whether this connection's acknowledgements release the run. Without an active run `run` is empty.
    """

    type: Literal["run"] = "run"
    session: str
    run: str
    next: int = 1
    active: bool = True
    driver: bool = False
    acknowledgement: AckPolicy | None = None


class Events(DownMessage):
    """Events of one run, in order, each once."""

    type: Literal["events"] = "events"
    run: str
    events: list[dict[str, Any]]


class Gap(DownMessage):
    """Events that were asked for cannot be had; what comes next begins with `first`. Read the session for the rest."""

    type: Literal["gap"] = "gap"
    session: str
    run: str
    after: JsonValue = None
    first: int
    reason: Literal["discarded", "future", "unreadable"]


class ReceiptGiven(DownMessage):
    """What became of a reply."""

    type: Literal["receipt"] = "receipt"
    session: str
    question: str
    status: Literal["accepted", "invalid", "unknown", "wrong_session", "duplicate", "expired"]
    reasons: list[str] = []


class Confirmed(DownMessage):
    """It was done."""

    type: Literal["done"] = "done"


class Failed(DownMessage):
    """It was not done. Never carries a traceback."""

    type: Literal["error"] = "error"
    code: ErrorCode
    message: str


class NotificationSeen(DownMessage):
    """A notification was published inside a run that is watched. Without a sequence number, and lost when late."""

    type: Literal["notification"] = "notification"
    session: str
    run: str
    name: str
    data: JsonValue = None


class ServerPing(DownMessage):
    """Answer with `pong`, or be dropped."""

    type: Literal["ping"] = "ping"


class ServerPong(DownMessage):
    """Answer to the client's `ping`."""

    type: Literal["pong"] = "pong"


class Closing(DownMessage):
    """The server is about to close the connection. `again` says whether it makes sense to come back."""

    type: Literal["closing"] = "closing"
    reason: str
    again: bool


Down: TypeAlias = (
    Welcome
    | RunAttached
    | Events
    | Gap
    | ReceiptGiven
    | Confirmed
    | Failed
    | NotificationSeen
    | ServerPing
    | ServerPong
    | Closing
)

_UP: TypeAdapter[Up] = TypeAdapter(Annotated[Up, Field(discriminator="type")])
_DOWN: TypeAdapter[Down] = TypeAdapter(Annotated[Down, Field(discriminator="type")])


class BadMessage(ValueError):
    """A message that does not fit the protocol. `re` is its id, as far as one could be read."""

    def __init__(self, reason: str, re: str = "") -> None:
        super().__init__(reason)
        self.re = re


def parse_up(text: str) -> Up:
    """The message a client sent.

    Raises:
        BadMessage: it is no JSON, of no known type, or does not fit its type.
    """
    try:
        return _UP.validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(step) for step in found["loc"])
        raise BadMessage(f"{where}: {found['msg']}" if where else str(found["msg"]), _id_of(text)) from None
    except RecursionError:
        raise BadMessage("it is nested too deeply") from None


def _id_of(text: str) -> str:
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    found = value.get("id") if isinstance(value, dict) else None
    # Half a surrogate pair is no text that could be sent back.
    return found[:128].encode(errors="ignore").decode() if isinstance(found, str) else ""


def protocol_json_schema() -> dict[str, Any]:
    """JSON Schema of the protocol: `up`, `down`, and `event`, the items of an `events` message."""
    from trilane import event_json_schema

    return {
        "protocol": PROTOCOL,
        "subprotocol": SUBPROTOCOL,
        "up": _UP.json_schema(),
        "down": _DOWN.json_schema(mode="serialization"),
        "event": event_json_schema(),
    }
