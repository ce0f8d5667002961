"""Recorders: a plugin that writes down every hook, and a list of a stream's events that can be compared.

Both only look; they change nothing in a run. What a recording must look like is checked by `events.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from difflib import ndiff
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeVar

from trilane.hookspecs import HOOKS, hookimpl

from .events import assert_events

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.context import RunContext
    from trilane.events import Event, ExtensionEvent, Question
    from trilane.messages import AssistantMessage, Delta, ToolCall, ToolResult, UserMessage
    from trilane.models import ModelRequest, ModelResponse
    from trilane.result import RunResult, Status
    from trilane.state import AgentPhase

__all__ = ["Catch", "EventRecorder", "HookCall", "Recorder", "record"]

E = TypeVar("E")
Catch: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
"""What `except` takes."""


class HookCall(NamedTuple):
    """One call of a hook.

    Attributes:
        hook: Name of the hook.
        phase: The run's phase at that moment; None for `register_` hooks, which are called outside of runs.
        detail: What tells this call from others of the hook: the turn, a tool's name, a text, a status.
    """

    hook: str
    phase: AgentPhase | None
    detail: object


class Recorder:
    """A plugin that implements hooks only to write down that they were called.

    Without `only` it implements every hook, so none is skipped for want of an implementation. That shows in a run: with
    somebody to ask for a compaction, each turn goes through COMPACTING, and events that nothing came between before are
    handed over one by one. Give `only` or `without` where a run should be as it is without the recorder.

    ```python
    recorder = Recorder()
    await Agent(model, plugins=[recorder]).run("Hello")
    assert recorder.names("before_turn", "after_turn") == ["before_turn", "after_turn"]
    ```

    Attributes:
        name: Name of the plugin.
        calls: The calls, in order, over all runs.
    """

    def __init__(self, name: str = "recorder", *, only: Iterable[str] = (), without: Iterable[str] = ()) -> None:
        """Name the plugin and choose its hooks: `only` these (default: all), `without` those.

        Raises:
            ValueError: there is no hook of that name.
        """
        only, without = tuple(only), tuple(without)
        for hook in (*only, *without):
            if hook not in HOOKS:
                raise ValueError(f"there is no hook {hook!r}; see trilane.hookspecs.HOOKS for their names")
        self.name = name
        self.calls: list[HookCall] = []
        for hook in only or HOOKS:
            if hook not in without:
                # As attributes of the instance: registration looks at the object, so the others are not there at all.
                setattr(self, hook, getattr(_Hooks, hook).__get__(self))

    def names(self, *hooks: str) -> list[str]:
        """The names of the hooks called, in order; of these hooks only, if some are given."""
        return [call.hook for call in self.calls if not hooks or call.hook in hooks]

    def details(self, hook: str) -> list[object]:
        """The details of all calls of one hook, in order."""
        return [call.detail for call in self.calls if call.hook == hook]

    def clear(self) -> None:
        """Forget the calls so far."""
        self.calls.clear()

    def _add(self, hook: str, run: RunContext[Any] | None, detail: object = None) -> None:
        self.calls.append(HookCall(hook, None if run is None else run.state.phase, detail))

    def __repr__(self) -> str:
        return f"<Recorder of {len(self.calls)} calls>"


class _Hooks(Recorder):
    """The functions of every hook, for `Recorder` to take those it wants."""

    @hookimpl
    def on_tool(self, run: RunContext[Any]) -> None:
        self._add("on_tool", run)

    @hookimpl
    def on_state(self, run: RunContext[Any]) -> None:
        self._add("on_state", run)

    @hookimpl
    def on_message(self, run: RunContext[Any], message: UserMessage) -> None:
        self._add("on_message", run, message.text)

    @hookimpl
    def before_run(self, run: RunContext[Any]) -> None:
        self._add("before_run", run)

    @hookimpl
    def before_turn(self, run: RunContext[Any], turn: int) -> None:
        self._add("before_turn", run, turn)

    @hookimpl
    def on_model_request(self, run: RunContext[Any], request: ModelRequest) -> None:
        self._add("on_model_request", run, request.turn)

    @hookimpl
    async def around_model(
        self, run: RunContext[Any], request: ModelRequest, call_next: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        self._add("around_model", run, request.turn)
        return await call_next(request)

    @hookimpl
    def on_delta(self, run: RunContext[Any], delta: Delta, final: bool) -> None:
        self._add("on_delta", run, (delta.text, final))

    @hookimpl
    def on_model_error(self, run: RunContext[Any], request: ModelRequest, error: Exception) -> None:
        self._add("on_model_error", run, type(error).__name__)

    @hookimpl
    def after_model(self, run: RunContext[Any], response: ModelResponse) -> None:
        self._add("after_model", run, response.stop_reason)

    @hookimpl
    def decide_tool(self, run: RunContext[Any], call: ToolCall) -> None:
        self._add("decide_tool", run, call.name)

    @hookimpl
    def before_tool(self, run: RunContext[Any], call: ToolCall) -> None:
        self._add("before_tool", run, call.name)

    @hookimpl
    async def around_tool(
        self, run: RunContext[Any], call: ToolCall, call_next: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        self._add("around_tool", run, call.name)
        return await call_next()

    @hookimpl
    def after_tool(self, run: RunContext[Any], call: ToolCall, result: ToolResult) -> None:
        self._add("after_tool", run, (call.name, result.outcome))

    @hookimpl
    def after_turn(self, run: RunContext[Any], turn: int, message: AssistantMessage) -> None:
        self._add("after_turn", run, turn)

    @hookimpl
    def on_answer(self, run: RunContext[Any], message: AssistantMessage, output: object) -> None:
        self._add("on_answer", run, output)

    @hookimpl
    def after_run(self, run: RunContext[Any], result: RunResult[Any]) -> None:
        self._add("after_run", run, result.status)

    @hookimpl
    def on_success(self, run: RunContext[Any], result: RunResult[Any]) -> None:
        self._add("on_success", run, result.status)

    @hookimpl
    def on_error(self, run: RunContext[Any], error: BaseException) -> None:
        self._add("on_error", run, type(error).__name__)

    @hookimpl
    def on_cancel(self, run: RunContext[Any], reason: str) -> None:
        self._add("on_cancel", run, reason)

    @hookimpl
    def close_run(self, run: RunContext[Any], status: Status) -> None:
        self._add("close_run", run, status)

    @hookimpl
    def on_event(self, run: RunContext[Any], notification: ExtensionEvent) -> None:
        self._add("on_event", run, type(notification).__name__)

    @hookimpl
    def on_reply(self, run: RunContext[Any], question: Question, payload: JsonValue) -> None:
        self._add("on_reply", run, question.kind)

    @hookimpl
    def on_compact(self, run: RunContext[Any]) -> None:
        self._add("on_compact", run)

    @hookimpl
    def register_models(self, registry: object) -> None:
        self._add("register_models", None)

    @hookimpl
    def register_stores(self, registry: object) -> None:
        self._add("register_stores", None)

    @hookimpl
    def register_settings(self, registry: object) -> None:
        self._add("register_settings", None)


class EventRecorder:
    """The events of a stream, to look at and to compare.

    ```python
    async with agent.stream("Hello") as run:
        events = await record(run)
    events.check()
    assert events.texts() == ["Hello, too."]
    ```

    Attributes:
        events: The events, in order.
        error: What the stream raised, if `record` was told to catch it.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        self.error: BaseException | None = None

    async def record(self, stream: AsyncIterable[Event], *, catch: Catch = ()) -> Self:
        """Read a stream to its end and keep its events.

        Args:
            stream: What `async for` goes through.
            catch: An exception of this type, or one of these, that the stream raises is kept in `error` instead.
        """
        try:
            async for event in stream:
                self.events.append(event)
        except catch as error:
            self.error = error
        return self

    def types(self, *, without: Sequence[str] = ("phase_changed",)) -> list[str]:
        """The types of the events, in order; phase changes only if asked for with `without=()`."""
        return [event.type for event in self.events if event.type not in without]

    def phases(self) -> list[AgentPhase]:
        """The phases the run went to, in order."""
        return [event.phase for event in self.events if event.type == "phase_changed"]

    def texts(self) -> list[str]:
        """The text of each text part, put together from its deltas."""
        found: list[str] = []
        for event in self.events:
            if event.type == "text_started":
                found.append("")
            elif event.type == "text_delta" and found:
                found[-1] += event.text
        return found

    def of(self, kind: type[E]) -> list[E]:
        """The events of one class."""
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of one class.

        Raises:
            AssertionError: there is none, or more than one.
        """
        found = self.of(kind)
        if len(found) != 1:
            raise AssertionError(f"expected one {kind.__name__}, found {len(found)} in: {', '.join(self.types())}")
        return found[0]

    def expect(self, *types: str, without: Sequence[str] = ("phase_changed",)) -> None:
        """Check the types of the events; see `types` for `without`.

        Raises:
            AssertionError: they are others; the message shows a line for each, with `-` missing and `+` unexpected.
        """
        actual = self.types(without=without)
        if actual != list(types):
            lines = [line for line in ndiff(types, actual) if not line.startswith("?")]
            raise AssertionError("\n".join(["the events are not as expected:", *lines]))

    def check(self, *, complete: bool = True) -> None:
        """Check the invariants of UI streams with `check_events`.

        Raises:
            AssertionError: one is broken.
        """
        assert_events(self.events, complete=complete)

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __repr__(self) -> str:
        return f"<EventRecorder: {', '.join(self.types())}>"


async def record(stream: AsyncIterable[Event], *, catch: Catch = ()) -> EventRecorder:
    """Read a stream to its end and return its events; see `EventRecorder.record`."""
    return await EventRecorder().record(stream, catch=catch)
