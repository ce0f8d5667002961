"""What request bodies of the HTTP routes may be."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from . import protocol as p

__all__ = [
    "AcknowledgeBody",
    "ForkBody",
    "RenameBody",
    "ReplyBody",
    "ResumeBody",
    "SayBody",
    "StartBody",
    "StopBody",
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StartBody(_Body):
    """Start a run."""

    text: p.Text
    session: p.SessionId | None = None
    acknowledgement: p.AckPolicy | None = None
    on_disconnect: p.DisconnectPolicy | None = None
    key: p.Id = ""


class ResumeBody(_Body):
    """Take up a session."""

    acknowledgement: p.AckPolicy | None = None
    on_disconnect: p.DisconnectPolicy | None = None
    key: p.Id = ""


class ReplyBody(_Body):
    """Answer a question."""

    payload: JsonValue = None


class SayBody(_Body):
    """Say something to a run."""

    text: p.Text
    later: bool = False


class StopBody(_Body):
    """Stop a run."""

    when: Literal["now", "boundary"] = "now"
    reason: Annotated[str, Field(max_length=500)] = "stopped by the user"


class AcknowledgeBody(_Body):
    """Everything up to `seq` was shown."""

    seq: Annotated[int, Field(ge=0, strict=True)]


class RenameBody(_Body):
    """Name a session."""

    title: Annotated[str, Field(max_length=200)]


class ForkBody(_Body):
    """Make a session of the beginning of another."""

    at_message: p.Id = ""
