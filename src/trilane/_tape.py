"""Recording a run so that it can be replayed: `RecordingCore`, the `Core` of runs that are `replayable`.

It writes down what the stored messages do not tell: which hooks were called in which order, what the model was asked,
what it said before plugins changed that, what callers were shown. Other runs pay nothing for it. What stands in the
history already is referred to, not repeated. Replaying and comparing is in `_replaying.py` and `replay.py`.

The entries, by their first item: `start` (how the run began), `hook`, `change` (a plugin changed a value), `request`
(fields that differ from the request before), `reply` (of the model itself), `aside` (of a model that a plugin called),
`record` (something entered the history), `event` (shown to the caller), `heard` (steering and follow-ups), `stop` (from
here on the run was being ended).
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._assembly import settled_parts
from ._checking import unstorable
from ._core import Core
from ._dispatch import SUBJECTS, Dispatcher, HookError
from ._plain import clean_json
from ._records import error_words
from ._tasks import current_clock
from .errors import RunTimeoutError
from .ledger import plain
from .messages import AssistantMessage, ToolCall, ToolResult
from .models import ModelResponse
from .state import AgentPhase
from .stores import RunTape

if TYPE_CHECKING:
    from ._setup import RunSetup
    from ._tasks import Clock, Frame, TaskOwner
    from .channels import AgentEventQueue
    from .events import AgentEvent, Event
    from .messages import UserMessage
    from .models import Emit, Model, ModelRequest
    from .plugins import HookImplementation
    from .stores import SessionRecord

__all__ = ["HISTORY", "RecordingCore", "RecordingDispatcher", "is_of_turn", "without_id"]

#: Records that are part of what is compared; the others follow from them.
HISTORY = frozenset({"message", "call_finished", "message_hidden", "view_replaced", "run_ended"})
#: Hooks that are called again for the same thing when one of them changed it.
_ASKED_AGAIN = frozenset({"decide_tool", "on_answer"})
#: Notifications that come from the run itself, wherever its tools are at.
_NOTIFICATIONS = frozenset({"MessageAppendedEvent", "PhaseTransitionEvent", "PluginFailedEvent", "RunCancelledEvent"})


class RecordingCore(Core):
    """A run that keeps a tape. It behaves as every other run does."""

    __slots__ = ("_asked", "_decided", "_entries", "_raw", "_reply", "_shown", "_start", "_stopped", "position")

    dispatcher_class: type[RecordingDispatcher]

    def __init__(self, setup: RunSetup, owner: TaskOwner, queue: AgentEventQueue[Event]) -> None:
        super().__init__(setup, owner, queue)
        self.dispatcher = self.dispatcher_class(self)
        core: RecordingCore = weakref.proxy(self)  # it holds its setup
        resolve = setup.resolve
        setup.model = _RecordingModel(setup.model, core)
        setup.resolve = lambda model: _RecordingModel(resolve(model), core)
        self.position = 0  # how many entries that are compared were made
        self._entries: list[Any] = []
        self._start: dict[str, Any] | None = None  # until it is written
        self._asked: dict[str, Any] = {}  # the last request
        self._decided: set[tuple[str, str, str]] = set()  # hooks asked about the last message and its calls
        self._reply: tuple[list[Any], ModelResponse] | None = None  # of the model, before its message is stored
        self._raw: dict[str, ToolResult] = {}  # of tools, before hooks changed them
        self._shown: list[str] | None = None  # of the message that is streamed, where hooks filter it
        self._stopped = False

    def note(self, kind: str, *entry: Any) -> None:
        """Write one entry down."""
        self._entries.append([kind, *entry])
        self.position += kind in ("hook", "request", "record", "event")

    def track(self) -> str:
        """The id of the call whose task this is; empty for the run's own."""
        clock = current_clock.get(None)
        if clock is None or clock is self.clock or self.batch is None:
            return ""
        return next((run.call.id for run in self.batch.runs if run.clock is clock), "")

    def asker(self) -> str | None:
        """The plugin that calls a model beside the turns; None for one whose calls do not come again in a replay."""
        clock = current_clock.get(None)
        plugin = "" if clock is None else clock.plugin
        return None if self.compacting or (not plugin and self.track()) else plugin

    # ---- what is looked at -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        setup = self.setup
        self._start = {
            "mode": setup.mode,
            "model": setup.model.name,
            "history": len(setup.history or ()),
            "limits": plain(self.limits),
            "metadata": plain(dict(self.metadata)),
            "answers": setup.answer is not None,
        }
        if setup.breaker:  # observers that fail are switched off after a while
            self._start["failures"] = [[one.plugin, one.hook, count] for one, count in setup.breaker.items()]
        self.note("start", self._start)
        super().begin()

    def record(self, record: SessionRecord, *, tell: bool = True) -> None:
        if self.finished:
            return
        kind = record.kind
        if kind == "call_finished":
            result: ToolResult = record.result  # type: ignore[union-attr]
            raw = self._raw.pop(result.call_id, result)
            self.note("record", kind, result.call_id, *([] if raw == result else [_json(raw)]))
        elif kind in HISTORY:
            self.note("record", kind)
            if kind == "message":
                self._decided.clear()
        super().record(record, tell=tell)

    def produce(self, event: type[AgentEvent], /, **fields: Any) -> None:
        super().produce(event, **fields)
        describe = _EVENTS.get(event.__name__)
        if describe is not None:
            description = describe(self, fields)
            if description is not None:
                call = fields.get("call")
                track = call.id if isinstance(call, ToolCall) else self.track()
                self.note("event", event.__name__, description, *([track] if track else []))

    def receive(self, message: UserMessage) -> None:
        self.note("heard", _json(message))
        super().receive(message)

    def note_hook(self, implementation: HookImplementation, args: Sequence[Any]) -> None:
        """A hook is about to be called."""
        hook = implementation.hook
        if hook == "on_compact":  # a replay takes what came of it
            return
        if hook == "on_event":
            name = type(args[-1]).__name__
            if name in _NOTIFICATIONS:  # those of tools do not come again in a replay
                self.note("hook", hook, implementation.plugin, "", name)
            return
        if hook in _ASKED_AGAIN:  # once somebody changed something: that shows elsewhere
            call = next((part.id for part in args if isinstance(part, ToolCall)), "")
            if (hook, implementation.plugin, call) in self._decided:
                return
            self._decided.add((hook, implementation.plugin, call))
        track = self.track()
        self.note("hook", hook, implementation.plugin, *([track] if track else []))

    def note_raw(self, result: ToolResult) -> None:
        """What a tool returned, before hooks see it."""
        self._raw[result.call_id] = result

    def note_request(self, request: ModelRequest) -> None:
        """The model is asked this."""
        asked = {name: plain(getattr(request, name)) for name in request.FIELDS if name != "messages"}
        asked["messages"] = self._messages_of(request)
        changed = {name: value for name, value in asked.items() if self._asked.get(name, _NOTHING) != value}
        self._asked = asked
        self.note("request", changed)

    def _messages_of(self, request: ModelRequest) -> Any:
        """How the messages of a request differ from the stored ones: None where they are the same."""
        base = (self.shared_view or self.view).log
        if request._log is base and request._count == len(base):
            return None
        messages = request.messages
        start, end, shortest = 0, 0, min(len(base), len(messages))
        while start < shortest and (messages[start] is base[start] or messages[start] == base[start]):
            start += 1
        while end < shortest - start and messages[-1 - end] == base[-1 - end]:
            end += 1
        instead = [without_id(plain(message)) for message in messages[start : len(messages) - end]]
        if not instead and start + end == len(base):
            return None
        return {"first": start, "last": end, "of": len(base), "instead": instead}

    def note_reply(self, response: ModelResponse) -> None:
        """The model answered; what its message becomes is seen when that is stored."""
        self._settle_reply()
        entry: list[Any] = ["reply", None]
        if self.assembly is not None and self.assembly.shown:
            entry.append("streamed")
        self._entries.append(entry)
        if response.parts is None and self.assembly is not None:
            response = response.replace(parts=tuple(self.assembly.parts_so_far()))
        self._reply = entry, response

    def note_failure(self, error: Exception) -> None:
        """The model failed."""
        self._settle_reply()
        known = {name: getattr(error, name, None) for name in ("retryable", "retry_after_seconds", "status")}
        reply = {"error": type(error).__name__, "text": error_words(error), **plain_fields(known)}
        if self.assembly is None or not self.assembly.shown:
            self._entries.append(["reply", reply])
            return
        response = ModelResponse(parts=tuple(self.assembly.parts_so_far()))
        self._entries.append(["reply", {**_json(response), **reply}, "streamed"])

    def _settle_reply(self) -> None:
        """Refer to the stored message, if that is what the model said; else keep what it said."""
        if self._reply is None:
            return
        (entry, response), self._reply = self._reply, None
        for record in reversed(self.outbox):
            if record.kind == "message" and record.message.kind == "assistant":
                if _is_said_by(record.message, response, self.setup.model.name):
                    entry[1] = {"message": record.message.id}
                    return
                break
        entry[1] = _kept(response)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def request_stop(self, reason: str) -> None:
        self._note_stop()
        super().request_stop(reason)

    def end_now(self, reason: str) -> None:
        if not self.finished and self.state.phase is not AgentPhase.COMPLETED:
            self._note_stop()
        super().end_now(reason)

    def go(self, target: AgentPhase) -> None:
        if target is AgentPhase.CANCELLED or (target is AgentPhase.FAILED and self._is_ended_from_outside()):
            self._note_stop()
        super().go(target)

    def _is_ended_from_outside(self) -> bool:
        """True if it failed for a reason that no replay has."""
        outside = self.lane_error is not None or self.store_error is not None
        return outside or isinstance(self.cause, RunTimeoutError)

    def _note_stop(self) -> None:
        if not self._stopped and not self.settled:
            self._stopped = True
            self.note("stop")

    # ---- the store ---------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        self.add_tape()
        await super().flush()

    def add_tape(self) -> None:
        """Put what was noted before a message that is about to be stored: one more record for each is enough."""
        if not self.loaded or not self._entries:
            return
        if not any(record.kind in ("message", "run_ended") for record in self.outbox):
            return
        self._settle_reply()
        if self._start is not None:
            self._finish_start(self._start)
        entries, self._entries = tuple(self._entries), []
        tape = RunTape(run_id=self.run_id, entries=tuple(clean_json(list(entries))))
        self.outbox.insert(0, tape)
        self.view.apply(tape)
        if self.shared_view is not None:
            self.shared_view.apply(tape)

    def _finish_start(self, start: dict[str, Any]) -> None:
        self._start = None
        start["watched"] = not self.silent
        stored = [one.message for one in self.outbox if one.kind == "message"]
        asked = stored[start["history"] : start["history"] + 1]
        if self.setup.mode == "run" and asked != [self.setup.request]:
            start["request"] = _json(self.setup.request)


class RecordingDispatcher(Dispatcher):
    """Calls hooks as every dispatcher does, and notes that."""

    def __init__(self, core: RecordingCore) -> None:
        setup, plain_one = core.setup, core.dispatcher
        super().__init__(
            setup.hooks,
            plain_one._reporter,
            timeout=setup.hook_timeout,
            breaker=setup.breaker,
            trace=setup.trace_plugins,
        )
        self._tape: Any = plain_one._reporter  # the run, without holding it

    async def _bounded(
        self,
        frame: Frame,
        implementation: HookImplementation,
        clock: Clock,
        args: tuple[Any, ...],
        seconds: float | None = None,
    ) -> Any:
        self._tape.note_hook(implementation, args)
        try:
            return await super()._bounded(frame, implementation, clock, args, seconds)
        except HookError:
            self._tape.note("change", implementation.plugin, implementation.hook, "failure")
            raise

    def changed(
        self, implementation: HookImplementation, before: object, after: object, *context: Any, subject: str = ""
    ) -> None:
        super().changed(implementation, before, after, *context, subject=subject)
        if implementation.hook != "on_delta":
            call = next((part for part in _flat(context) if isinstance(part, ToolCall)), None)
            subject = subject or SUBJECTS.get(implementation.hook, "value")
            about = [] if call is None else [call.name]
            self._tape.note("change", implementation.plugin, implementation.hook, subject, *about)

    async def chain(
        self,
        implementations: Sequence[HookImplementation],
        clock: Clock,
        before: tuple[Any, ...],
        value: Any,
        expect: type,
        *,
        contained: bool = False,
    ) -> Any:
        if expect is ToolResult and not self._tape.hooks.around_tool:
            self._tape.note_raw(value)
        return await super().chain(implementations, clock, before, value, expect, contained=contained)

    async def around(
        self,
        implementation: HookImplementation,
        clock: Clock,
        args: tuple[Any, ...],
        call_next: Callable[..., Awaitable[Any]],
    ) -> Any:
        layers = self._tape.hooks.around_tool
        if not layers or implementation is not layers[-1]:
            return await super().around(implementation, clock, args, call_next)

        async def noted() -> Any:
            result = await call_next()
            self._tape.note_raw(result)
            return result

        return await super().around(implementation, clock, args, noted)


RecordingCore.dispatcher_class = RecordingDispatcher


class _RecordingModel:
    """A model whose requests and replies are noted."""

    def __init__(self, model: Model, core: RecordingCore) -> None:
        self._model = model
        self._core = core
        self.name = model.name

    def __getattr__(self, name: str) -> Any:
        """What else a model says of itself, such as how much it sees."""
        return getattr(self._model, name)

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        if not is_of_turn(self._core, emit):
            return await self._aside(request, emit)
        self._core.note_request(request)
        try:
            response = await self._model.call(request, emit)
        except Exception as error:
            self._core.note_failure(error)
            raise
        if hasattr(response, "parts"):  # else the run says what is wrong with it
            self._core.note_reply(response)
        return response

    async def _aside(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """A plugin asks the model something of its own."""
        asker = self._core.asker()
        if asker is None:
            return await self._model.call(request, emit)
        try:
            response = await self._model.call(request, emit)
        except Exception as error:
            self._core.note("aside", asker, {"error": type(error).__name__, "text": error_words(error)})
            raise
        if hasattr(response, "parts"):
            taken = getattr(emit, "__self__", None)
            whole = response.replace(parts=taken.parts()) if response.parts is None and taken is not None else response
            self._core.note("aside", asker, _kept(whole))
        return response


# ---- entries ---------------------------------------------------------------------------------------------------------

_NOTHING = object()


def is_of_turn(core: Core, emit: Any) -> bool:
    """True for the model call of a turn; a plugin's own has an `emit` of its own."""
    return core.assembly is not None and getattr(emit, "__self__", None) is core.assembly


def without_id(message: Any) -> Any:
    """A message as JSON without its id, which is another in each run."""
    return {name: value for name, value in message.items() if name != "id"} if isinstance(message, dict) else message


def plain_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Those of them that are there, as JSON."""
    return {name: plain(value) for name, value in values.items() if value is not None}


def _json(record: Any) -> Any:
    return json.loads(record.to_json())


def _kept(response: ModelResponse) -> Any:
    """What a model said, as JSON; of what could not be read back only why the run refuses it."""
    problem = unstorable(response)
    if not problem:
        return _json(response)
    return {"error": "ModelError", "text": f"it answered with a ModelResponse that cannot be used: {problem}"}


def _flat(context: tuple[Any, ...]) -> list[Any]:
    return [part for item in context for part in (item if isinstance(item, tuple) else (item,))]


def _is_said_by(message: AssistantMessage, response: ModelResponse, model: str) -> bool:
    """True if a message is what becomes of a response that nobody changes."""
    return (
        message.parts == settled_parts(response.parts or (), message.id)
        and message.stop_reason == response.stop_reason
        and message.usage == response.usage
        and message.model == (response.model or model)
        and message.extra == response.extra
        and not message.interrupted
    )


_Describe = Callable[[RecordingCore, dict[str, Any]], dict[str, Any] | None]


def _shown_delta(core: RecordingCore, fields: dict[str, Any]) -> None:
    if core.hooks.on_delta and not core.silent:
        core._shown = [*(core._shown or ()), fields["text"]]


def _message_completed(core: RecordingCore, fields: dict[str, Any]) -> dict[str, Any]:
    message: AssistantMessage = fields["message"]
    description = {"stop_reason": fields["stop_reason"]}
    description |= {name: True for name in ("interrupted", "superseded") if fields.get(name)}
    if core.hooks.on_delta and not core.silent:
        shown, core._shown = "".join(core._shown or ()), None
        said = "".join(part.text for part in message.parts if part.kind in ("text", "reasoning"))
        if shown != said:
            description["shown"] = shown
    return description


def _tool_started(core: RecordingCore, fields: dict[str, Any]) -> dict[str, Any]:
    call: ToolCall = fields["call"]
    message = core.last_message
    asked = None if message is None else next((one for one in message.calls if one.id == call.id), None)
    same = asked is not None and asked.arguments == call.arguments
    return {"tool": call.name, **({} if same else {"arguments": plain(dict(call.arguments))})}


def _reply_requested(core: RecordingCore, fields: dict[str, Any]) -> dict[str, Any] | None:
    question = fields["question"]
    if question.kind == "question":
        return None  # a tool asks, which does not run in a replay
    tool = "" if question.call is None else question.call.name
    return {"kind": question.kind, "prompt": question.prompt, "asked_by": question.asked_by, "tool": tool}


def _custom_event(core: RecordingCore, fields: dict[str, Any]) -> dict[str, Any] | None:
    clock = current_clock.get(None)
    return plain_fields(fields) if clock is not None and clock.plugin else None  # a tool's do not come again


def _plugin_failed(fields: dict[str, Any]) -> dict[str, Any] | None:
    if fields["hook"] == "on_compact":
        return None
    return {"plugin": fields["plugin"], "hook": fields["hook"], "error": type(fields["error"]).__name__}


_EVENTS: dict[str, _Describe] = {
    "TurnStarted": lambda core, fields: {"turn": fields["turn"]},
    "ModelStarted": lambda core, fields: {"attempt": fields["attempt"]},
    "TextDelta": _shown_delta,
    "ReasoningDelta": _shown_delta,
    "MessageCompleted": _message_completed,
    "ToolStarted": _tool_started,
    "ToolCompleted": lambda core, fields: {"tool": fields["call"].name, "outcome": fields["result"].outcome},
    "ReplyRequested": _reply_requested,
    "CompactionStarted": lambda core, fields: {"plugin": ", ".join(one.plugin for one in core.hooks.on_compact)},
    # Why there was none is not found out again.
    "CompactionCompleted": lambda core, fields: plain_fields(fields) if fields["changed"] else {"changed": False},
    "CustomEvent": _custom_event,
    "PluginFailed": lambda core, fields: _plugin_failed(fields),
}
