"""What must hold after every case, one function for each. A function gives one sentence per violation.

An invariant looks at nothing but the evidence, the stage and the scenario, so it holds for every framework; where a
framework gives no evidence, there is nothing to check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from trilane.errors import RunCancelledError, StoreError
from trilane.messages import AssistantMessage, Message, ToolMessage, ToolResult
from trilane.testing.events import check_events
from trilane.testing.history import check_history

from .case import FAULTS_THAT_CANCEL, Played
from .stage import HOLD_SECONDS, Injected

__all__ = [
    "INVARIANTS",
    "abandoned_listed",
    "announced_first",
    "closed_once",
    "error_accounted",
    "helper_returns",
    "nothing_ahead",
    "nothing_left",
    "one_terminal",
    "partial_text_kept",
    "questions_withdrawn",
    "results_kept",
    "returns_in_time",
    "right_exception",
    "session_free",
    "stored_first",
    "true_causes",
    "valid_events",
    "valid_history",
    "violations",
]

_TERMINAL = {"run_completed": "completed", "run_failed": "failed", "run_cancelled": "cancelled"}
_PHASES = {"completed": "completed", "failed": "failed", "timed_out": "failed", "cancelled": "cancelled"}
#: How long a stopped call may take; the time limits of the scenarios come on top where a call hangs.
GRACE_SECONDS = 1.5 + 0.1 + 0.05
LONGEST_SECONDS = 120.0
WRITE_SECONDS = 3.0  # what adapters give a write of a sink
SLOW_WRITES = frozenset({"sink_slow", "sink_vanishing"})
STORE_SECONDS = 4.0  # what adapters give a store


def violations(played: Played) -> list[tuple[str, str]]:
    """Every violated invariant with a sentence that says what is wrong."""
    if played.evidence.outcome == "hung":
        return [("returns_in_time", "the call did not return; it hangs for ever")]
    if played.evidence.outcome == "escaped":
        return [("right_exception", f"{played.evidence.error!r} left the event loop past the caller")]
    return [(name, text) for name, check in INVARIANTS.items() for text in check(played)]


# ---- how the call ended ----------------------------------------------------------------------------------------------


def returns_in_time(played: Played) -> Iterator[str]:
    """The call returns within the grace time, or within the time limits of what hangs."""
    stage, evidence = played.stage, played.evidence
    if not stage.fired:
        return
    fault, extra = played.case.fault, 0.0
    if fault in ("hang_cancel", "hang_close", "swallow"):
        extra = 0.5
        if fault == "hang_close" and stage.fired_label == "store.lease":
            # Nobody has a run that could be closed before the session is claimed; the store's own limit ends the wait.
            extra = STORE_SECONDS
    elif fault in ("hang", "raise", "fake_cancel", "interrupt", "generator_exit", "stop"):
        extra = LONGEST_SECONDS
    elif fault == "hold":
        extra = LONGEST_SECONDS + HOLD_SECONDS
    elif fault in ("drop", "close") and played.scenario.mode == "runtime":
        extra = 0.1
    if played.scenario.mode == "sink" and (stage.fired_label == "sink.write" or played.scenario.name in SLOW_WRITES):
        # Only the sink bounds a write in progress (R68), and `forward` returns when the last event is written.
        extra += WRITE_SECONDS
    if evidence.seconds > GRACE_SECONDS + extra:
        yield f"the call returned {evidence.seconds:.2f} s after the fault, {GRACE_SECONDS + extra:.2f} s are allowed"


def right_exception(played: Played) -> Iterator[str]:
    """The caller gets the original exception, never a group; a cancel of its own task reaches it."""
    stage, evidence, fault = played.stage, played.evidence, played.case.fault
    error = evidence.error
    if isinstance(error, BaseExceptionGroup):
        yield f"an exception group reached the caller: {error!r}"
    if error is not None and not isinstance(error, stage.cancelled_types) and error.__traceback__ is None:
        yield "the exception has no traceback"
    if evidence.cancel_lost:
        yield f"the caller was cancelled, but its call ended with {error!r} and the cancel never reached it"
    if stage.fired and fault == "consumer_raise" and error is not stage.injected:
        yield f"the consumer raised {stage.injected!r}, but the caller got {error!r}"
    if stage.fired and fault in FAULTS_THAT_CANCEL and isinstance(error, RunCancelledError):
        yield f"the caller's own task was cancelled, but it got {error!r}"
    if not stage.fired and fault == "" and evidence.outcome == "raised" and played.scenario.status == "completed":
        yield f"nothing was done to it, but it raised {error!r}"
    if fault in ("close", "drop") and stage.fired and error is not None:
        yield f"the consumer left in order, but the call raised {error!r}"


def error_accounted(played: Played) -> Iterator[str]:
    """What was raised is what made the run fail, or it is reported, or the model was told."""
    stage, evidence = played.stage, played.evidence
    injected = stage.injected
    if injected is None or played.case.fault == "consumer_raise" or evidence.status is None:
        return
    raised = [trace.error for trace in stage.tools.values()]  # such as that an answer failed, with what it failed on
    ends = (evidence.error, evidence.run_error, *evidence.reported, *stage.heard, *raised)
    if any(_leads_to(error, injected) for error in ends if error is not None):
        return
    told = [str(result.content) for result in _results(played, *evidence.requests).values()]
    # A result names the exception and keeps its text from the model.
    if isinstance(injected, Injected) and not any(type(injected).__name__ in text for text in told):
        yield f"{injected!r} at {stage.fired_label} is reported nowhere (status {evidence.status})"


def _leads_to(error: BaseException | None, origin: BaseException) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if error is origin:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def one_terminal(played: Played) -> Iterator[str]:
    """There is exactly one terminal phase, it fits the status, and the true cause is recorded."""
    stage, evidence, fault = played.stage, played.evidence, played.case.fault
    if evidence.phase is not None:
        if evidence.phase not in _TERMINAL.values():
            yield f"the phase is {evidence.phase}, which is no end"
        elif evidence.status is not None and _PHASES[evidence.status] != evidence.phase:
            yield f"the phase is {evidence.phase}, but the status is {evidence.status}"
    nobody_holds_it = played.scenario.mode == "runtime" and fault in ("drop", "close")
    if evidence.phase is not None and evidence.status is None and not nobody_holds_it:
        yield "the run started, but has no result"
    if not stage.fired and evidence.status is not None and evidence.status != played.scenario.status:
        yield f"uninterrupted it should end {played.scenario.status}, but ended {evidence.status} ({evidence.error!r})"
    if stage.fired and fault in (*FAULTS_THAT_CANCEL, "close", "close_elsewhere", "hang_close", "stop", "suspend"):
        natural = {"completed", played.scenario.status}
        if evidence.status == "failed" and "failed" not in natural and not evidence.reported:
            yield f"it was stopped from outside, but ended failed with {evidence.run_error!r}"


def valid_events(played: Played) -> Iterator[str]:
    """The stream of events is in order, and everything opened is closed if it was read to the end."""
    events: Any = played.evidence.events
    if not events or not hasattr(events[0], "seq"):
        return
    ended = getattr(events[-1], "type", "") in _TERMINAL
    if played.evidence.read_to_end and not ended:
        yield f"the stream ended after {events[-1].type}, without a terminal event"
    yield from check_events(events, complete=ended)


# ---- the history -----------------------------------------------------------------------------------------------------


def valid_history(played: Played) -> Iterator[str]:
    """The history obeys the rules of every provider, after the case and in every request."""
    evidence = played.evidence
    if evidence.messages is not None and evidence.phase != "created":
        yield from check_history(evidence.messages)
    for number, request in enumerate(evidence.requests, 1):
        for text in check_history(request, as_request=True):
            yield f"in model request {number}: {text}"


def _results(played: Played, *more: Iterable[Message]) -> dict[str, ToolResult]:
    """The results of calls by their ids, as they are kept; and as `more` messages have them."""
    messages = [message for one in more for message in one]
    messages += (*(played.evidence.kept or ()), *(played.evidence.messages or ()))
    return _results_in(messages)


def _results_in(messages: Iterable[Message]) -> dict[str, ToolResult]:
    return {
        result.call_id: result for message in messages if isinstance(message, ToolMessage) for result in message.results
    }


def results_kept(played: Played) -> Iterator[str]:
    """The result of a tool that finished is never lost and never replaced."""
    stage, evidence = played.stage, played.evidence
    if evidence.messages is None or not stage.tools or evidence.status is None:
        return
    if evidence.told is not None:
        yield from _lost(played, evidence.told, "with the result of the run")
    # A write that hangs may still be going on and cannot be made again; the next run is told that, and nothing else.
    unknown = stage.fired_label.startswith("store.") and stage.fault != "raise"
    yield from _lost(played, evidence.messages, "in the history", unknown=unknown)


def _lost(played: Played, messages: Iterable[Message], where: str, *, unknown: bool = False) -> Iterator[str]:
    results, kept = _results_in(messages), _results(played)
    asked = {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.calls}
    for call_id, trace in played.stage.tools.items():
        # A call that was compacted away is looked for in everything that is kept.
        result = results.get(call_id) if call_id in asked else kept.get(call_id)
        if trace.value is None or trace.after_end:
            continue
        if result is None:
            if not _child_call(played, call_id):
                yield f"tool {trace.name} returned {trace.value!r}, but {where} its call {call_id} has no result"
        elif unknown and "did not reach the store" in str(result.content):
            continue
        elif trace.value not in str(result.content) and not _may_outlive(played, result):
            yield f"tool {trace.name} returned {trace.value!r}, but {where} its call was answered {result.content!r}"


def _may_outlive(played: Played, result: ToolResult) -> bool:
    """A function that was given up may return in the moment between."""
    return result.outcome in ("still_running", "timed_out") and result.call_id in played.evidence.abandoned


def _child_call(played: Played, call_id: str) -> bool:
    return "children" in played.scenario.needs and call_id in ("dig_1", "painter_1")


_RAN = frozenset({"ok", "error", "interrupted", "timed_out", "still_running"})


def true_causes(played: Played) -> Iterator[str]:
    """Each call is answered with what really happened to it."""
    stage = played.stage
    if played.evidence.messages is None:
        return
    for call_id, result in _results(played).items():
        trace = stage.tools.get(call_id)
        if trace is None:
            if result.outcome in ("ok", "interrupted", "still_running") and "helper" not in call_id:
                if "did not reach the store" in str(result.content):
                    continue
                yield from _never_began(played, call_id, result)
            continue
        if result.outcome in ("not_started", "denied", "superseded"):
            yield f"call {call_id} was answered {result.outcome}, but its tool had begun"
        if trace.value is None and trace.error is None and result.outcome == "ok":
            yield f"call {call_id} was answered ok, but its tool has not returned"


def _never_began(played: Played, call_id: str, result: ToolResult) -> Iterator[str]:
    # A task that was cancelled before its first step, or inside a hook around the tool, may have begun.
    if result.outcome == "interrupted" and "effect unknown" in str(result.content):
        return
    yield f"call {call_id} was answered {result.outcome}, but its tool never began"


def partial_text_kept(played: Played) -> Iterator[str]:
    """Text the consumer was shown is in the history, marked as interrupted if it is not whole."""
    stage, evidence = played.stage, played.evidence
    # An attempt of the model that a hook was told of, and had tried again, is void; its reader may have left before
    # the event that says so.
    if evidence.kept is None or evidence.status is None:
        return
    shown: dict[str, str] = {}
    void: set[str] = set()
    for event in evidence.events:
        kind = getattr(event, "type", "")
        if kind == "text_delta":
            shown[event.message_id] = shown.get(event.message_id, "") + event.text  # type: ignore[attr-defined]
        elif kind == "message_completed" and event.superseded:  # type: ignore[attr-defined]
            void.add(event.message.id)  # type: ignore[attr-defined]
    messages = {message.id: message for message in evidence.kept if isinstance(message, AssistantMessage)}
    for message_id, text in shown.items():
        message = messages.get(message_id)
        if message is None:
            if message_id not in void and not stage.heard:
                yield f"the consumer was shown {text!r}, but no message has it"
        elif not message.text.startswith(text):
            yield f"the consumer was shown {text!r}, but the history has {message.text!r}"
        elif message.interrupted and message.calls:
            yield "an interrupted message has calls"


# ---- what ran --------------------------------------------------------------------------------------------------------


def nothing_ahead(played: Played) -> Iterator[str]:
    """No model call and no tool begins while the consumer holds an event, or after it has left."""
    ended_elsewhere = played.stage.fired and played.case.fault in ("close_elsewhere", "suspend", "hang_close")
    for work in played.stage.work:
        if work.left and work.label.startswith(("model", "tool.")):
            yield f"{work.label} began after the consumer had left"
        held: Any = work.holding
        if held is None:
            continue
        in_batch = getattr(held, "phase", None) == "running_tool" or getattr(held, "type", "") == "child_event"
        if work.label == "model" and not in_batch:
            yield f"a model call began while the consumer held {held.type}"
        if work.label.startswith("tool.") and not in_batch:
            yield f"{work.label} began while the consumer held {held.type}"
        if ended_elsewhere and work.time >= played.stage.fired_at:
            continue  # the end of the run is stored, whatever its reader is doing
        if work.label.startswith("store.") and not in_batch and getattr(held, "type", "") not in _TERMINAL:
            yield f"a write began while the consumer held {held.type}"


def announced_first(played: Played) -> Iterator[str]:
    """A tool begins only after the consumer has seen that it will."""
    events = played.evidence.events
    if not events or played.scenario.mode not in ("stream", "runtime"):
        return
    announced = {event.call.id for event in events if getattr(event, "type", "") == "tool_started"}  # type: ignore[attr-defined]
    for call_id, trace in played.stage.tools.items():
        if call_id not in announced and not _child_call(played, call_id):
            yield f"tool {trace.name} ran for call {call_id}, which was never announced"


def stored_first(played: Played) -> Iterator[str]:
    """Whoever is told of a message, a call or a question finds it in the store; a store that fails is reported."""
    evidence = played.evidence
    if any(isinstance(error, StoreError) for error in (evidence.error, evidence.run_error, *evidence.reported)):
        return
    yield from played.stage.early


def closed_once(played: Played) -> Iterator[str]:
    """Every plugin is told to close the run exactly once, with the status."""
    stage, evidence = played.stage, played.evidence
    if evidence.phase in (None, "created") and evidence.status is None:
        return
    for name in evidence.plugins:
        times = [count for (plugin, _), count in stage.closed.items() if plugin == name]
        if not times or set(times) != {1}:
            yield f"close_run of plugin {name!r} was called {times or 0} times"
    wrong = {status for run_id, status in stage.ended if run_id == evidence.run_id} - {evidence.status}
    if wrong and evidence.run_id:
        yield f"close_run was told {sorted(wrong)}, but the run ended {evidence.status}"


# ---- afterwards ------------------------------------------------------------------------------------------------------


def session_free(played: Played) -> Iterator[str]:
    """The session is free, and the next run on it works."""
    outcome = played.evidence.next_outcome
    if outcome is not None and outcome != "completed":
        yield f"the next run on the session ended: {outcome}"


def nothing_left(played: Played) -> Iterator[str]:
    """No task, thread, file or process is left, but for functions that are listed as abandoned."""
    left = list(played.evidence.left)
    # A task of asyncio that swallows every cancel can only be left behind; the call it works on is listed.
    given_up = [text for text in left if text.startswith("<Task ") and "execute()" in text]
    if len(given_up) < len(left) or len(given_up) > len(played.evidence.abandoned):
        yield from (f"left behind: {text}" for text in left)
    yield from played.evidence.alive
    yield from played.evidence.complaints
    twice = [call_id for call_id, count in Counter(played.evidence.abandoned).items() if count > 1]
    if twice:
        yield f"listed as abandoned more than once: {twice}"


def abandoned_listed(played: Played) -> Iterator[str]:
    """A function that was still at work when the call returned is listed as abandoned, and no other is."""
    stage, evidence = played.stage, played.evidence
    if evidence.status is None:
        return
    outlived = {call_id for call_id, trace in stage.tools.items() if trace.after_end}
    for call_id in outlived - set(evidence.abandoned):
        if not _child_call(played, call_id):
            yield f"tool {stage.tools[call_id].name} outlived the call, but {call_id} is not listed as abandoned"
    ended = {call_id for call_id, trace in stage.tools.items() if trace.value is not None} - outlived
    for call_id in ended & set(evidence.abandoned):
        yield f"{call_id} is listed as abandoned, but its tool had returned"


def questions_withdrawn(played: Played) -> Iterator[str]:
    """Nobody can answer a question of a run that has ended; of a suspended one, its approvals are kept in the store."""
    if played.evidence.open_questions:
        yield f"{played.evidence.open_questions} questions are still open"
    if played.evidence.stored_questions is None:
        return
    asked: dict[str, Any] = {}
    for event in played.evidence.events:
        kind = getattr(event, "type", "")
        if kind == "reply_requested":
            asked[event.question.id] = event.question  # type: ignore[attr-defined]
        elif kind == "reply_received":
            asked.pop(event.question_id, None)  # type: ignore[attr-defined]
    for question in asked.values():
        if question.kind == "approval" and question.id not in (
            *played.evidence.stored_questions,
            *played.stage.replied,
        ):
            yield f"the run was suspended, but its question {question.prompt!r} is not stored as open"


def helper_returns(played: Played) -> Iterator[str]:
    """Closing a run from another task returns, without an error."""
    if played.evidence.helper_error is not None:
        yield f"ending the run from another task raised {played.evidence.helper_error!r}"


#: Every invariant by name.
INVARIANTS: Mapping[str, Callable[[Played], Iterator[str]]] = MappingProxyType(
    {
        check.__name__: check
        for check in (
            returns_in_time,
            right_exception,
            error_accounted,
            one_terminal,
            valid_events,
            valid_history,
            results_kept,
            true_causes,
            partial_text_kept,
            nothing_ahead,
            announced_first,
            stored_first,
            closed_once,
            session_free,
            nothing_left,
            abandoned_listed,
            questions_withdrawn,
            helper_returns,
        )
    }
)
