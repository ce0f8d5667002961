"""The plugin under test, and the agent it is put into: a model with a fixed conversation, and three tools.

The conversation does not depend on what plugins do to the requests, only on the number of the turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.lowlevel

from trilane import Agent, tool
from trilane.messages import ToolCall
from trilane.models import Emit, Model, ModelRequest, ModelResponse
from trilane.plugins import CompiledHooks, PluginManager
from trilane.testing.clock import REAL_SECONDS, Backend, run_virtual
from trilane.testing.models import Step, call

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.events import Question
    from trilane.stores import SessionStore
    from trilane.tools import Tool

__all__ = ["Conversation", "ParentConversation", "Subject", "approve", "subject_of"]

ANSWER = "All is done."
#: Real seconds that a thread gets before virtual time goes on; it takes them only if it is that late.
THREAD_SECONDS = 2.0

T = TypeVar("T")


@tool(name="echo", effect="read")
async def _echo(text: str) -> str:
    """Say a text again.

    Args:
        text: What to say.
    """
    await anyio.lowlevel.checkpoint()
    return f"echo: {text}"


@tool(name="broken", effect="read")
async def _broken() -> str:
    """Fail."""
    raise ValueError("this tool always fails")


@tool(name="confirm", effect="read", approval=True)
async def _confirm() -> str:
    """Do what had to be approved."""
    await anyio.lowlevel.checkpoint()
    return "done"


class Conversation:
    """A model: reasoning, text and calls in the first turn, two calls in the second, then the answer.

    Attributes:
        requests: What it was asked.
    """

    name = "conformance"

    def __init__(self, calls: Sequence[ToolCall] = (), pause: Callable[[], Awaitable[None]] | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self._calls = tuple(calls)
        self._pause = pause or anyio.lowlevel.checkpoint

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer according to the turn, delta by delta."""
        self.requests.append(request)
        step = self._step(request)
        for delta in step.deltas:
            await self._pause()
            await emit(delta)
        await self._pause()
        return step.response()

    def _step(self, request: ModelRequest) -> Step:
        offered = {spec.name for spec in request.tools}
        if request.turn == 1:
            wanted = [call("echo", text="one"), call("broken"), *self._calls, call("echo", text="two")]
            calls = [
                ToolCall(id=f"c{place}", name=one.name, arguments=one.arguments) for place, one in enumerate(wanted)
            ]
        elif request.turn == 2:
            calls = [
                ToolCall(id="again", name="echo", arguments={"text": "three"}),
                ToolCall(id="sure", name="confirm", arguments={}),
            ]
        else:
            calls = []
        calls = [one for one in calls if one.name in offered]
        if not calls:
            return Step(ANSWER)
        return Step("I look into it.", reasoning="This needs tools.", calls=calls)


class ParentConversation(Conversation):
    """A model that hands the request to a child agent, and then answers."""

    def _step(self, request: ModelRequest) -> Step:
        if request.turn > 1:
            return Step(ANSWER)
        return Step(calls=[ToolCall(id="child", name="child", arguments={"request": "Look into it."})])


async def approve(question: Question) -> JsonValue:
    """Says yes to approvals and to everything else."""
    return {"approve": True} if question.kind == "approval" else "yes"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is tested, and with what.

    Attributes:
        make: Makes the plugin.
        fresh: True if it makes another one each time; False for a module, which keeps its state.
        name: Name of the plugin.
        module: Module that defines it.
        calls: Calls of the plugin's own tools to have in the conversation.
        tools: Further tools of the agent.
        options: Options of every run.
        stored: Tells what the plugin has stored, given the plugin.
    """

    make: Callable[[], object]
    fresh: bool
    name: str
    module: str
    calls: tuple[ToolCall, ...] = ()
    tools: tuple[Tool | Callable[..., object], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    stored: Callable[[Any], JsonValue] | None = None

    def agent(
        self,
        *,
        plugin: object = None,
        pause: Callable[[], Awaitable[None]] | None = None,
        model: Model | None = None,
        echo: Tool | Callable[..., object] = _echo,
        store: SessionStore | None = None,
    ) -> Agent[Any, str]:
        """An agent with the plugin, the fixed conversation and its tools, of which some may be replaced."""
        return Agent(
            Conversation(self.calls, pause) if model is None else model,
            name="conformance",
            tools=[echo, _broken, _confirm, *self.tools],
            plugins=[plugin if plugin is not None else self.make()],
            answer=approve,
            store=store,
        )

    @cached_property
    def _compiled(self) -> CompiledHooks:
        return PluginManager([self.make()]).compile()

    @property
    def hooks(self) -> list[str]:
        """The hooks it implements."""
        return [hook for hook in CompiledHooks.__slots__ if getattr(self._compiled, hook)]

    @property
    def has_threads(self) -> bool:
        """True if one of its hooks is called in a thread."""
        return any(one.thread for hook in self.hooks for one in getattr(self._compiled, hook))

    def run_virtual(self, function: Callable[..., Awaitable[T]], *args: Any, backend: Backend = "asyncio") -> T:
        """Run in virtual time, which waits for the threads of hooks: on a busy machine they may be late."""
        seconds = THREAD_SECONDS if self.has_threads else REAL_SECONDS
        return run_virtual(function, *args, backend=backend, real_seconds=seconds)


def subject_of(plugin: object, **options: Any) -> Subject:
    """The subject for what a test gives: a class or function that makes the plugin, a module, an installed name.

    Raises:
        PluginLoadError: the plugin cannot be registered.
    """
    make, fresh = _maker(plugin)
    manager = PluginManager([make()], strict=True)
    (name,) = manager.names()
    made = manager.get(name)
    module = made.__name__ if isinstance(made, ModuleType) else type(made).__module__
    return Subject(make=make, fresh=fresh, name=name, module=module, **options)


def _maker(plugin: object) -> tuple[Callable[[], object], bool]:
    if isinstance(plugin, str):
        return lambda: plugin, False
    if isinstance(plugin, ModuleType):
        return lambda: plugin, False
    if callable(plugin):
        return plugin, True
    raise TypeError(
        f"check_plugin takes something that makes the plugin, a class or a function, so that every check can have a "
        f"new one; or a module, or the name of an installed plugin; not {type(plugin).__name__}"
    )
