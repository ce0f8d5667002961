"""Model calls that a hook or tool makes beside the conversation, and what `on_compact` tells the caller meanwhile.

Such a call belongs to no turn: no hook sees it, nothing of it is shown or kept. What it uses counts against the limits
of the run. The model calls of turns are in `_generate.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ._checking import checked_answer, emitted_delta, uncallable_model
from ._tasks import Ended, Watchdog, current_clock, in_own_clock, is_foreign
from .errors import AgentProtocolError, ModelError, RunCancelledError
from .events import AgentEvent, CompactionProgress
from .messages import AssistantPart, Delta, ReasoningPart, TextPart, ToolCall, ToolCallPart, Usage, clean_text
from .models import ModelResponse

if TYPE_CHECKING:
    from .config import Limits
    from .models import Emit, Model, ModelRequest

__all__ = ["call_model", "show_progress"]


class _Run(Protocol):
    """What is needed of the run."""

    setup: Any
    limits: Limits
    must_show: bool
    compacting: bool
    settled: bool
    finished: bool
    stop_error: RunCancelledError | None
    watchdog: Watchdog

    def produce(self, event: type[AgentEvent], /, **fields: Any) -> None: ...
    async def put(self) -> None: ...
    def add_usage(self, usage: Usage) -> None: ...


async def call_model(
    core: _Run, request: ModelRequest, model: str | Model | None, emit: Emit | None, timeout: float | None
) -> ModelResponse:
    """Call a model, in the time of the hook or tool that asks for it.

    Raises:
        AgentProtocolError: the run is over.
        RunCancelledError: a stop was asked for: let it through.
        ModelError: the model did not answer in time, or with something that is no response.
        Exception: what the model raised.
    """
    if is_foreign(core.watchdog):
        return await in_own_clock(core.watchdog, call_model, core, request, model, emit, timeout)
    if core.finished:
        raise AgentProtocolError("call_model() after the run has ended: nobody would count what it uses")
    chosen: Model = core.setup.model if model is None else core.setup.resolve(model)
    if core.must_show:
        await core.put()  # no model call begins before the caller has seen what was before it
    if core.stop_error is not None and not core.settled:
        raise core.stop_error  # nor after it has left
    seconds = min((one for one in (timeout, core.limits.model_seconds) if one is not None), default=None)
    taken = _Taken(emit)
    clock = current_clock.get()
    frame = clock.push(seconds)
    try:
        response = await chosen.call(request, taken.emit)
    except BaseException as error:
        failure = _failure(chosen, clock.pop(frame, error), error, seconds)
        if failure is None:
            raise
        raise failure from error
    if clock.pop(frame, None) is not Ended.OK:
        raise _too_slow(chosen, seconds)
    response = checked_answer(response, chosen.name)
    core.add_usage(response.usage)
    return response if response.parts is not None else response.replace(parts=taken.parts())


async def show_progress(core: _Run, text: str) -> None:
    """Show the caller how far a compaction is; returns when it was seen.

    Raises:
        TypeError: `text` is no text.
        AgentProtocolError: there is no compaction going on.
    """
    if not isinstance(text, str):
        raise TypeError(f"progress() takes text as a str, not {type(text).__name__}")
    if not core.compacting:
        raise AgentProtocolError(
            "run.progress() tells how far a compaction is, and none is going on; a tool has ToolContext.progress, "
            "other hooks have run.emit"
        )
    core.produce(CompactionProgress, text=clean_text(text))
    await core.put()


def _failure(model: Model, ended: Ended, error: BaseException, seconds: float | None) -> Exception | None:
    """What stands for an error of the model that is not to be raised as it is."""
    if ended is Ended.TIMED_OUT:
        return _too_slow(model, seconds)
    if ended is Ended.FAKED or (ended is Ended.ERROR and not isinstance(error, Exception)):
        text = f"model {model.name}: raised {type(error).__name__}, which nobody had asked for"
        return ModelError(text, model=model.name)
    return uncallable_model(error, model.name)


def _too_slow(model: Model, seconds: float | None) -> ModelError:
    return ModelError(f"model {model.name} did not answer within {seconds or 0:g} s of its own time", model=model.name)


class _Taken:
    """The deltas of a call: handed on, and put together for a model that returns nothing else."""

    def __init__(self, emit: Emit | None) -> None:
        self._emit = emit
        self._deltas: list[Delta] = []

    async def emit(self, delta: Delta) -> None:
        delta = emitted_delta(delta)
        self._deltas.append(delta)
        if self._emit is not None:
            await self._emit(delta)

    def parts(self) -> tuple[AssistantPart, ...]:
        """The parts that were emitted, in the order in which they began."""
        pieces: dict[tuple[str, int], list[Delta]] = {}
        for delta in self._deltas:
            pieces.setdefault((delta.kind, delta.index), []).append(delta)
        return tuple([_part(kind, piece) for (kind, _), piece in pieces.items()])


def _part(kind: str, deltas: list[Delta]) -> AssistantPart:
    text = "".join([delta.text for delta in deltas])
    if kind == "arguments":
        from .tools import ToolArgumentsError, parse_arguments

        first = deltas[0]
        try:
            call = ToolCall(id=first.call_id, name=first.name, arguments=parse_arguments(text), raw=text)
        except ToolArgumentsError:
            call = ToolCall(id=first.call_id, name=first.name, raw=text)
        return ToolCallPart(call=call)
    return TextPart(text=clean_text(text)) if kind == "text" else ReasoningPart(text=clean_text(text))
