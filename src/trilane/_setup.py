"""What a run starts from: the configuration of its agent with the options of one call.

An agent fills a `RunSetup` for each call; what becomes of it is in `_core.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

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
    from .messages import UserMessage
    from .models import Model
    from .output import Output
    from .plugins import CompiledHooks, PluginManager
    from .stores import SessionStore
    from .tools import Tool

__all__ = ["RunSetup"]


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
    answer: Callable[[Question], Awaitable[JsonValue]] | None
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
