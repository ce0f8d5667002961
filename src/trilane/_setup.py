"""What a run starts from: the configuration of its agent with the options of one call.

An agent fills a `RunSetup` for each call; what becomes of it is in `_core.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ._checking import unstorable
from .errors import ConfigError
from .messages import AudioPart, FilePart, ImagePart, TextPart, UserMessage, clean_text, new_id

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ._core import Core
    from ._dispatch import Breaker
    from ._questions import QuestionDesk
    from ._tasks import Clock, TaskOwner
    from .channels import AgentEventQueue, RuntimeQueues
    from .config import Limits, ModelSettings
    from .context import RunContext
    from .events import Event, Question
    from .messages import Request
    from .models import Model
    from .output import Output
    from .plugins import CompiledHooks, PluginManager
    from .stores import SessionStore
    from .tools import Tool

__all__ = ["RunSetup", "user_message"]

_MEDIA = (ImagePart, AudioPart, FilePart)


class RunSetup:
    """What a run starts from: the agent's configuration with the options of this call."""

    __slots__ = (
        "agent_name",
        "answer",
        "breaker",
        "caller",
        "core_type",
        "deps",
        "desk",
        "grace_seconds",
        "history",
        "hook_timeout",
        "hooks",
        "instructions",
        "limits",
        "metadata",
        "mode",
        "model",
        "output",
        "parent",
        "path",
        "plugins",
        "queues",
        "request",
        "resolve",
        "session_id",
        "settings",
        "store",
        "tool_concurrency",
        "tools",
        "trace_plugins",
    )

    agent_name: str
    answer: Callable[[Question], Awaitable[object]] | None
    breaker: Breaker
    caller: tuple[Clock, str] | None  # of a child run: the clock and the id of the call that it is
    core_type: Callable[[RunSetup, TaskOwner, AgentEventQueue[Event]], Core]
    deps: Any
    desk: QuestionDesk
    grace_seconds: float
    history: Sequence[Any] | None
    hook_timeout: float
    hooks: CompiledHooks
    instructions: str | Callable[[RunContext[Any]], Any]
    limits: Limits
    metadata: Mapping[str, JsonValue]
    mode: Literal["run", "resume", "compact"]
    model: Model
    output: Output
    parent: Core | None
    path: tuple[str, ...]
    plugins: PluginManager
    queues: RuntimeQueues | None
    request: UserMessage
    resolve: Callable[[str | Model], Model]  # what `PROVIDER:NAME` means to the agent
    session_id: str
    settings: ModelSettings
    store: SessionStore
    tool_concurrency: int
    tools: dict[str, Tool]
    trace_plugins: bool


def user_message(request: Request) -> UserMessage:
    """The user message a request stands for.

    Raises:
        ConfigError: it is empty, or has something in it that cannot be sent.
    """
    if isinstance(request, UserMessage):
        if not request.parts:
            raise ConfigError("the request is empty; a UserMessage needs at least one part")
        _check_extra(request.parts)
        return request
    items: Sequence[Any] = [request] if isinstance(request, (str, *_MEDIA)) else request
    if isinstance(items, (bytes, bytearray)) or not isinstance(items, Sequence):
        raise ConfigError(f"a request is text, media, or a sequence of both; not {type(request).__name__}")
    parts: list[Any] = []
    for item in items:
        if isinstance(item, str):
            if item.strip():
                parts.append(TextPart(text=clean_text(item)))
        elif isinstance(item, _MEDIA):
            parts.append(item)
        else:
            allowed = ", ".join(kind.__name__ for kind in _MEDIA)
            raise ConfigError(f"a request is text, or a sequence of text and {allowed}; not {type(item).__name__}")
    if not parts:
        raise ConfigError("the request is empty; say what the agent should do")
    _check_extra(parts)
    return UserMessage(id=new_id(), parts=tuple(parts))


def _check_extra(parts: Sequence[Any]) -> None:
    """Raise `ConfigError` if a part has something for the provider with it that no store could read back."""
    for number, part in enumerate(parts):
        problem = "" if part.extra is None else unstorable(part)
        if problem:
            raise ConfigError(f"part {number} of the request cannot be stored: {problem}")
