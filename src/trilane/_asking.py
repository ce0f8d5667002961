"""What a run does when it asks: open a question, show it, wait for the reply, close it.

Where replies arrive, from any thread, is `_questions.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from logging import getLogger
from typing import TYPE_CHECKING, Any, Literal

from ._backend import new_waiter
from ._dispatch import HookError, place_of
from ._plain import plain_json
from ._questions import OpenQuestion, ReplyRejected, schema_of
from ._records import error_line, error_words
from ._tasks import Clock, Ended, current_clock, is_foreign
from .decisions import Reject
from .errors import NoAnswererError, ReplyError, ReplyTimeoutError, RunCancelledError
from .events import Question, QuestionClosedEvent, QuestionOpenedEvent, Receipt, ReplyReceived, ReplyRequested
from .messages import ToolCall, ToolResult, clean_text, new_id
from .stores import QuestionClosed, QuestionStored

if TYPE_CHECKING:
    from ._core import Core
    from ._tasks import TaskHandle
    from .context import ToolContext

__all__ = [
    "AnswerFailed",
    "ask_from_tool",
    "call_from_thread",
    "can_be_answered",
    "close_question",
    "open_question",
    "root_of",
    "start_answering",
    "why_unanswered",
    "withdraw_all",
]


class AnswerFailed(NoAnswererError):
    """The `answer=` function gave no usable answer. The text is for the model; the cause is in the log."""


def root_of(core: Core) -> Core:
    """The run at the top: its session is the one that replies name."""
    while core.parent is not None:
        core = core.parent
    return core


def answerer_of(core: Core) -> Any:
    """The `answer=` function that applies, None if there is none."""
    found: Core | None = core
    while found is not None:
        if found.setup.answer is not None:
            return found.setup.answer
        found = found.parent
    return None


def can_be_answered(core: Core) -> bool:
    """False if nobody reads the stream and there is no `answer=`."""
    return not root_of(core).silent or answerer_of(core) is not None


def open_question(
    core: Core,
    kind: Literal["approval", "question", "external_tool"],
    prompt: str,
    schema: Any,
    *,
    call: ToolCall,
    asked_by: str,
    timeout: float | None,
    question_id: str = "",
    ordinal: int = 0,
    shown: bool = True,
) -> OpenQuestion:
    """Register a question and note it for all lanes; the caller flushes and shows. One that is not shown is the event
    agent's: the UI stream says nothing of it, and only the input lane answers it."""
    json_schema, validate = schema_of(schema)
    limit = timeout if timeout is not None else core.limits.reply_seconds
    question = Question(
        id=question_id or new_id(),
        kind=kind,
        prompt=clean_text(prompt),
        schema=json_schema,
        call=call,
        asked_by=asked_by,
        session_id=root_of(core).session_id,
        path=core.path,
        expires=None if limit is None else datetime.now(UTC) + timedelta(seconds=limit),
    )
    entry = OpenQuestion(question, validate, _receive, core, shown=shown)
    core.setup.desk.open(entry)
    core.questions[question.id] = entry
    core.record(QuestionStored(run_id=core.run_id, question=question, ordinal=ordinal))
    if core.hooks.on_event:
        core.notes.append(QuestionOpenedEvent(question=question))
    if shown:
        core.produce(ReplyRequested, question=question)
    return entry


def _receive(core: Core, question: Question, payload: Any) -> tuple[Any, str]:
    """Let plugins look at a reply, in the thread that brings it; with the name of the one that changed it."""
    for implementation in core.hooks.on_reply:
        try:
            value = core.dispatcher.call_sync(implementation, core.context, question, payload)
        except Exception as error:
            core.dispatcher.count_error(implementation)
            raise ReplyRejected(f"plugin {implementation.plugin!r} failed in on_reply: {error_line(error)}") from error
        if isinstance(value, Reject):
            core.dispatcher.changed(implementation, None, value, question.call)
            raise ReplyRejected(str(value.reason))
        if value is not None:
            try:
                value = core.dispatcher.usable(implementation, value)
                plain_json(value)
            except (HookError, TypeError) as error:
                if isinstance(error, TypeError):
                    error = core.dispatcher.unusable(implementation, value, error)
                raise ReplyRejected(str(error)) from None
            if value == payload:
                return value, ""
            core.dispatcher.changed(implementation, payload, value, question.call)
            return value, implementation.plugin
    return payload, ""


def close_question(core: Core, entry: OpenQuestion) -> None:
    """Note for all lanes that a question is closed."""
    question_id = entry.question.id
    if core.questions.pop(question_id, None) is None:
        return
    if entry.answering is not None:
        entry.answering.cancel()  # the reply came from elsewhere, or too late
    accepted = entry.status == "accepted"
    receipt = Receipt(status="accepted" if accepted else "expired")
    core.record(
        QuestionClosed(
            run_id=core.run_id,
            question_id=question_id,
            status=receipt.status,
            payload=entry.payload if accepted else None,
            is_result=accepted and entry.question.kind == "external_tool" and isinstance(entry.value, ToolResult),
        )
    )
    if core.hooks.on_event:
        core.notes.append(QuestionClosedEvent(question_id=question_id, receipt=receipt))
    if entry.shown:
        core.produce(ReplyReceived, question_id=question_id, receipt=receipt)


def withdraw_all(core: Core) -> None:
    """Close whatever is still open; a suspended run leaves its questions in the store for the next process."""
    for entry in list(core.questions.values()):
        core.setup.desk.withdraw(entry)
        if core.suspended:
            core.questions.pop(entry.question.id, None)
        else:
            close_question(core, entry)


def start_answering(core: Core, entry: OpenQuestion) -> None:
    """Let the `answer=` function, if there is one, answer in a task of its own."""
    answer = answerer_of(core)
    if answer is None:
        return

    async def work() -> None:
        clock = Clock(core.watchdog)
        clock.start()
        try:
            coming = answer(entry.question)
            if not isawaitable(coming):
                raise TypeError(
                    f"answer= must be an async function; it returned a {type(coming).__name__} and nothing to await, "
                    "so write it as `async def`"
                )
            receipt = core.setup.desk.reply(entry.question.session_id, entry.question.id, await coming)
            if receipt.status == "invalid":
                _log_unanswered(core, entry, f"returned what the question does not take: {'; '.join(receipt.reasons)}")
                raise AnswerFailed("the answer= function returned what the question does not take")
        except BaseException as error:  # the end of the task: whatever it is becomes the answer "nobody can"
            if core.setup.desk.withdraw(entry):
                entry.value = error
                if not isinstance(error, ReplyError) and clock.classify(error) in (Ended.ERROR, Ended.FAKED):
                    _log_unanswered(core, entry, f"raised {error_line(error)}{place_of(error)}", error)
                    entry.value = AnswerFailed(f"the answer= function failed ({type(error).__name__})")
                    entry.value.__cause__ = error
            if isinstance(error, (KeyboardInterrupt, SystemExit)) and core.batch is not None:
                core.batch.fatal = core.batch.fatal or error
            core.notice()
        finally:
            clock.end()

    entry.answering = _keep(core, work)


def _log_unanswered(core: Core, entry: OpenQuestion, what: str, error: BaseException | None = None) -> None:
    """Tell the developer what his function did: to the model it is only said that it failed."""
    question = entry.question
    getLogger("trilane").warning(
        "the answer= function %s; asked was %r by %r in run %s, session %s",
        what,
        question.prompt[:80],
        question.asked_by,
        core.run_id,
        question.session_id,
        exc_info=error,
    )


def why_unanswered(entry: OpenQuestion, nobody: str, late: str) -> str:
    """Why there is no reply to a question that was closed without one, for the model."""
    if isinstance(entry.value, AnswerFailed):
        return str(entry.value)
    return nobody if isinstance(entry.value, BaseException) else late


def _keep(core: Core, work: Callable[[], Awaitable[None]]) -> TaskHandle:
    """Start a task that works for a question or a thread of the run; the end of the run stops it."""
    task = core.owner.spawn(work)
    if not task.done:
        core.answer_tasks.append(task)
        task.on_done.append(lambda: core.answer_tasks.remove(task))
    return task


async def ask_from_tool(core: Core, context: ToolContext[Any], prompt: str, schema: Any, timeout: float | None) -> Any:
    """`ToolContext.ask`. One coroutine for all of it: of each that waits, every open question has a frame."""
    _check_can_ask(core, context, prompt)
    context.question_count += 1
    ordinal = context.question_count
    from ._stored import stored_question_id, stored_reply

    is_stored, payload = stored_reply(core, context.call.id, ordinal)
    if is_stored:
        try:
            return schema_of(schema)[1](payload)
        except ReplyRejected:
            pass  # the tool asks for something else today: it has to be asked again
    entry = open_question(
        core,
        "question",
        prompt,
        schema,
        call=context.call,
        asked_by=context.call.name,
        timeout=timeout,
        question_id=stored_question_id(core, context.call.id, ordinal),
        ordinal=ordinal,
    )
    await core.flush()
    if core.notes:
        await core.deliver()
    await core.put()
    start_answering(core, entry)
    if timeout is None:
        timeout = core.limits.reply_seconds
    deadline = None if timeout is None else core.timers.now() + timeout
    clock, batch = _clock_of(core, context.call), core.batch
    clock.pause()  # the time of the asking task stands still
    if batch is not None:
        batch.count_waiting(context.call.id, 1)
    try:
        while entry.status == "open":
            if core.stop_error is not None or (deadline is not None and core.timers.now() >= deadline):
                core.setup.desk.withdraw(entry)
                break
            waiter = new_waiter()
            core.waiters.append(waiter)
            timer = None if deadline is None else core.timers.call_at(deadline, waiter.wake)
            try:
                await waiter.wait()
            finally:
                if timer is not None:
                    timer.cancel()
                if waiter in core.waiters:
                    core.waiters.remove(waiter)
    finally:
        clock.resume()
        if batch is not None:
            batch.count_waiting(context.call.id, -1)
    if core.suspended and entry.status != "accepted":
        # The question stays open in the store, for the process that resumes; this call ends with the cancel that comes.
        core.questions.pop(entry.question.id, None)
        await new_waiter().wait()
    close_question(core, entry)
    await core.flush()  # whoever replied was told that it counts: it must not be asked again after a crash
    if core.notes:
        await core.deliver()
    await core.put()
    return _reply_to(core, entry)


def _check_can_ask(core: Core, context: ToolContext[Any], prompt: str) -> None:
    if not isinstance(prompt, str):
        raise TypeError(f"ask() takes a prompt as a str, not {type(prompt).__name__}")
    if not can_be_answered(core):
        raise NoAnswererError(
            f"tool {context.call.name!r} asks {prompt[:80]!r}, but nobody can answer: stream the run and reply, "
            "or pass answer=an async function of the question"
        )
    if not any(call is context.call for call in core.open_calls):
        raise NoAnswererError(
            f"tool {context.call.name!r} asks {prompt[:80]!r}, but its call was answered without it, because it did "
            "not end in its time; look whether the answer still matters, and raise the tool's timeout if it does"
        )


def _reply_to(core: Core, entry: OpenQuestion) -> Any:
    """What was replied to a question that is closed; raises why there is no reply."""
    if entry.status == "accepted":
        return entry.value
    if core.stop_error is not None:
        raise RunCancelledError(str(core.stop_error)) from core.stop_error
    prompt = entry.question.prompt[:80]
    if isinstance(entry.value, AnswerFailed):
        raise NoAnswererError(f"nobody answered {prompt!r}: {entry.value}") from entry.value.__cause__
    if isinstance(entry.value, NoAnswererError):
        raise entry.value
    if isinstance(entry.value, BaseException):
        raise NoAnswererError(f"nobody answered {prompt!r}: {error_words(entry.value)}") from entry.value
    raise ReplyTimeoutError(f"nobody answered {prompt!r} of tool {entry.question.asked_by!r} in time")


def _clock_of(core: Core, call: ToolCall) -> Clock:
    """The clock of the task that runs; that of the call in a task, or a thread, that the tool has of its own."""
    if not is_foreign(core.watchdog):
        return current_clock.get()
    runs = () if core.batch is None else core.batch.runs
    return next((run.clock for run in runs if run.call is call and run.clock is not None), core.clock)


def call_from_thread(core: Core, call: ToolCall, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Await `function(*args)` for a call in the run's event loop, from a thread, and wait for it there."""
    over = threading.Event()
    outcome: list[tuple[bool, Any]] = []
    clock = _clock_of(core, call)

    async def work() -> None:
        current_clock.set(clock)  # time spent here is the tool's, and stands still where the tool's does
        try:
            outcome.append((True, await function(*args)))
        except BaseException as error:
            outcome.append((False, error))
        finally:
            over.set()

    def start() -> None:
        if core.settled or core.finished:
            over.set()
        else:
            _keep(core, work)

    core.loop.call(start)
    while not over.wait(1.0):
        if core.finished:
            break
    if not outcome:
        raise RunCancelledError("the run has ended while this tool was still running")
    succeeded, value = outcome[0]
    if succeeded:
        return value
    if isinstance(value, Exception):
        raise value
    raise RunCancelledError("the run was cancelled while this tool waited for it") from value
