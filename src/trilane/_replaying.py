"""Running a stored run again: its model and its tools give what they gave then, everything else is today's.

No model is asked and no tool runs. What came in from outside then (replies, steering, follow-ups) comes in again at the
same places. The replay runs on a store of its own, so the stored session is only read. What is compared is in
`_comparing.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from . import errors
from ._asking import AnswerFailed
from ._backend import new_waiter
from ._comparing import StoredReply, StoredRun, compare_runs, same_id, stored_runs
from ._questions import QuestionDesk
from ._run import RunStream
from ._tape import HISTORY, RecordingCore, RecordingDispatcher, is_of_turn
from .config import Limits
from .decisions import CompactedHistory, RetryModel
from .errors import ModelError, NoAnswererError, SessionError, ToolError
from .messages import Delta, TextPart, ToolResult, UserMessage, new_id
from .replay import Replay
from .sessions import pages
from .stores import InMemoryStore
from .tools import Tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._setup import RunSetup
    from ._tasks import TaskOwner
    from .channels import AgentEventQueue
    from .context import ToolContext
    from .events import Event, Question
    from .models import Emit, ModelRequest, ModelResponse
    from .replay import Aspect, ReplayedRun
    from .stores import SessionRecord, SessionStore

__all__ = ["replay_session"]

#: Limits that decide the same way each time; those of time do not.
_COUNTED = ("turns", "tool_calls", "input_tokens", "output_tokens", "cost", "answer_retries", "empty_replies")
_FAILED = "the answer= function "
_UNANSWERED = ("nobody can answer", "nobody can run it", "nobody is there to run it", _FAILED)
_NEVER_CAME = ("interrupted", "still_running", "not_started")


async def replay_session(
    make_setup: Callable[[UserMessage, dict[str, Any]], RunSetup],
    store: SessionStore,
    session: str,
    *,
    run_id: str,
    ignore: Collection[Aspect],
    options: Mapping[str, Any],
) -> Replay:
    """Replay the runs of a session, up to the first that differs.

    Args:
        make_setup: Makes what a run of today's agent starts from.
        store: Where the session is.
        session: Its id.
        run_id: The beginning of the id of the only run that is wanted; empty for all.
        ignore: What is not compared.
        options: Options of the replayed runs.

    Raises:
        SessionError: there is nothing to replay.
    """
    records: list[SessionRecord] = []
    async for page in pages(store, session):
        records += page.records
    runs = stored_runs(records)
    wanted = [run for run in runs if run.run_id.startswith(run_id)]
    if not wanted:
        known = ", ".join(run.run_id for run in runs[-5:])
        why = f"has no run {run_id!r}; its last runs are {known}" if known else "has no run; nothing was said in it yet"
        raise SessionError(f"session {session!r} {why}")
    found: list[ReplayedRun] = []
    for run in wanted:
        found.append(await _replay(make_setup, session, run, records[: run.first], ignore, options))
        if found[-1].difference is not None:
            break
    return Replay(session=session, runs=tuple(found))


async def _replay(
    make_setup: Callable[[UserMessage, dict[str, Any]], RunSetup],
    session: str,
    run: StoredRun,
    before: Sequence[SessionRecord],
    ignore: Collection[Aspect],
    options: Mapping[str, Any],
) -> ReplayedRun:
    script = _Script(run)
    store = InMemoryStore()
    if before:
        store.append_now(session, before, expected_version=0)
        store.reload_now(session)
    setup = make_setup(script.request, {**script.options, **options, "session": session})
    setup.mode = "resume" if run.start.get("mode") == "resume" else "run"
    setup.store = store
    setup.desk = QuestionDesk()
    setup.breaker = _breaker(run, setup)
    setup.history = script.history or None
    model = setup.model = _ReplayedModel(script)
    setup.resolve = lambda name: model
    setup.answer = script.answer if script.is_answered else None
    setup.queues = None
    setup.core_type = partial(_ReplayCore, script)
    stream: RunStream[Any] = RunStream(setup, lambda session, stream: None)
    async with stream:
        try:
            if run.start.get("watched") and script.is_answered:
                async for _ in stream:
                    pass
            else:
                await stream.wait()
        except Exception:  # how it ended is in what it recorded
            pass
    after = stored_runs((await store.load(session)).records[len(before) :])
    today = next((one for one in after if one.run_id == stream.run_id), StoredRun(stream.run_id, len(before)))
    return compare_runs(run, today, ignore=ignore)


def _breaker(run: StoredRun, setup: RunSetup) -> dict[Any, int]:
    """The failures of observers before the run. It is another one than the agent's: nothing is switched off there."""
    found = {}
    for plugin, hook, count in run.start.get("failures", ()):
        for implementation in getattr(setup.hooks, hook, ()):
            if implementation.plugin == plugin:
                found[implementation] = count
    return found


class _Script:
    """What comes into the run from outside: replies of the model, results of tools, answers, what the user said."""

    def __init__(self, run: StoredRun) -> None:
        self.core: _ReplayCore | None = None
        self.has_tape = run.has_tape
        self.model = str(run.start.get("model", "")) or "replayed"
        self._replies = iter(run.replies)
        self._answers_given = [] if run.has_tape else list(run.replies)
        self._results = run.results
        self.heard = list(run.heard)
        messages = [one.message for one in run.records if one.kind == "message" and one.message.id not in run.waiting]
        count = int(run.start.get("history", 0))
        self.history = messages[:count]
        self.request = _request(run, messages[count:])
        self._answers = _answers(run)
        self._asides = run.asides
        self._stuck: set[str] = set()  # ids of calls that got no further
        self._compactions = run.compactions
        denied = any(_is_unanswered(result) for result in self._results.values())
        self.is_answered = bool(run.start.get("answers") or run.start.get("watched")) and not (
            denied and not self._answers
        )
        self.options: dict[str, Any] = {}
        limits = {name: run.start["limits"][name] for name in _COUNTED if name in run.start.get("limits", {})}
        if limits:
            self.options["limits"] = Limits(**limits)
        if run.start.get("metadata"):
            self.options["metadata"] = run.start["metadata"]

    def stop(self) -> None:
        """The stored run got no further."""
        assert self.core is not None
        self.core.request_stop("what was stored ends here")

    def reply(self) -> StoredReply:
        """What the model answers next.

        Raises:
            ModelError: it answered no more.
        """
        assert self.core is not None
        if self.has_tape:
            reply = next(self._replies, None)
        else:  # of several replies in one turn only the last is known
            reply = self._answers_given[self.core.answers] if self.core.answers < len(self._answers_given) else None
        if reply is None:
            self.stop()
            raise ModelError("the model answered no more in the stored run", model=self.model)
        return reply

    def aside(self, asker: str) -> StoredReply:
        """What a model answers to a plugin.

        Raises:
            ModelError: it was not asked in the stored run, or that is not known.
        """
        replies = self._asides.get(asker)
        if not replies:
            raise ModelError("a replay asks no model, and the stored run has no answer to this", model=self.model)
        return replies.pop(0)

    async def result(self, tool: Tool, context: ToolContext[Any]) -> ToolResult:
        """What a tool returns.

        Raises:
            ToolError: it failed then, and lets its run fail.
        """
        assert self.core is not None
        result = self._results.get((self.core.answers, same_id(context.call.id)))
        if result is None or result.outcome in _NEVER_CAME:
            await self._stop_after_others(context.call.id)
            return ToolResult(call_id=context.call.id, content="no result is stored", outcome="interrupted")
        if tool.on_error == "raise" and result.outcome in ("error", "timed_out"):
            raise ToolError(str(result.content))
        return result

    async def answer(self, question: Question) -> Any:
        """What somebody replied.

        Raises:
            NoAnswererError: nobody could.
        """
        assert self.core is not None
        call_id = "" if question.call is None else same_id(question.call.id)
        waiting = self._answers.get((self.core.answers, call_id), [])
        status, payload = waiting.pop(0) if waiting else ("", None)
        if status == "accepted":
            return payload
        result = self._results.get((self.core.answers, call_id))
        if status and result is not None and _is_unanswered(result):
            raise _as_unanswered(result)
        entry = self.core.questions.get(question.id)
        if status and entry is not None:
            entry.deadline = self.core.timers.now()
            self.core.notice()
        else:
            await self._stop_after_others(question.call.id if question.call is not None else "")
        await new_waiter().wait()  # until the question is closed
        return None

    async def _stop_after_others(self, call_id: str) -> None:
        """A call got no further; those beside it get as far as they got."""
        assert self.core is not None
        self._stuck.add(call_id)
        waiter = new_waiter()
        self.core.timers.call_at(self.core.timers.now(), waiter.wake)
        await waiter.wait()  # this one may have been started before the others
        batch = self.core.batch
        while batch is not None:
            others = [run for run in batch.runs if run.state == "running" and run.call.id not in self._stuck]
            tasks = [run.task for run in others if run.task is not None and not run.task.done]
            if not tasks:
                break
            waiter = new_waiter()
            tasks[0].on_done.append(waiter.wake)
            await waiter.wait()
        self.stop()

    def compaction(self) -> CompactedHistory | None:
        """What a compaction came to that is asked for now."""
        assert self.core is not None
        if not self._compactions or self._compactions[0][0] != self.core.stored:
            return None
        _, stored = self._compactions.pop(0)
        return CompactedHistory(messages=stored.messages, reason=stored.reason)


def _request(run: StoredRun, messages: Sequence[Any]) -> UserMessage:
    """What the run was asked, before plugins changed it where that is known."""
    given = run.start.get("request")
    if given is not None:
        return UserMessage.from_json(json.dumps(given))
    if messages and messages[0].kind == "user" and run.start.get("mode") != "resume":
        asked: UserMessage = messages[0]
        return asked
    return UserMessage(id=new_id(), parts=(TextPart(text="(resumed)"),))


def _answers(run: StoredRun) -> dict[tuple[int, str], list[tuple[str, Any]]]:
    """The replies to questions about calls, by the number of the model's message and the call's id, in order."""
    closed = {one.question_id: one for one in run.records if one.kind == "question_closed"}
    found: dict[tuple[int, str], list[tuple[str, Any]]] = {}
    answers = 0
    for record in run.records:
        if record.kind == "message":
            answers += record.message.kind == "assistant"
        elif record.kind == "question" and record.ordinal == 0:
            call = record.question.call
            call_id = "" if call is None else call.id
            closing = closed.get(record.question.id)
            reply = ("", None) if closing is None else (closing.status, closing.reply)
            found.setdefault((answers, same_id(call_id)), []).append(reply)
    return found


def _is_unanswered(result: ToolResult) -> bool:
    """True if a call was refused because there was nobody to ask."""
    if result.outcome not in ("denied", "error") or not isinstance(result.content, str):
        return False
    return any(text in result.content for text in _UNANSWERED)


def _as_unanswered(result: ToolResult) -> NoAnswererError:
    """What leads to such a result again."""
    _, failed, how = str(result.content).partition(_FAILED)
    return AnswerFailed(failed + how) if failed else NoAnswererError("nobody could answer in the stored run")


def _error(reply: Mapping[str, Any], model: str) -> Exception:
    """The error a model raised, of its own class where that is one of Trilane's."""
    text = str(reply.get("text", ""))
    known = getattr(errors, str(reply["error"]), None)
    if isinstance(known, type) and issubclass(known, ModelError):
        details = {name: reply[name] for name in ("retryable", "retry_after_seconds", "status") if name in reply}
        try:
            return known(text, model=model, **details)
        except TypeError:
            return known(text, model=model)
    return ModelError(f"{reply['error']}: {text}", model=model)


class _ReplayedModel:
    """Answers what was answered."""

    def __init__(self, script: _Script) -> None:
        self._script = script
        self.name = script.model

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        core = self._script.core
        assert core is not None
        reply = self._script.reply() if is_of_turn(core, emit) else self._script.aside(core.asker() or "")
        if reply.was_streamed:
            for delta in _deltas(reply.response.parts or ()):
                await emit(delta)
        if reply.error is not None:
            raise _error(reply.error, self.name)
        return reply.response


def _deltas(parts: Sequence[Any]) -> Iterator[Delta]:
    """What a model emits of its parts, each in one piece."""
    for index, part in enumerate(parts):
        if part.kind in ("text", "reasoning"):
            yield Delta(kind=part.kind, text=part.text, index=index)
        elif part.kind == "tool_call":
            text = part.call.raw or json.dumps(dict(part.call.arguments), ensure_ascii=False)
            yield Delta(kind="arguments", text=text, index=index, call_id=part.call.id, name=part.call.name)


class _ReplayedTool(Tool):
    """A tool of today that gives the result of then."""

    __slots__ = ("_script",)
    _script: _Script

    @classmethod
    def of(cls, tool: Tool, script: _Script) -> Tool:
        """The twin of a tool; one that is run by the client stays, for its result comes as a reply."""
        if tool.is_external or isinstance(tool, cls):
            return tool
        made = object.__new__(cls)
        made._set(**{name: getattr(tool, name) for name in Tool.__slots__ if name != "__weakref__"})
        made._set(kind="async", run_on="loop", attempts=1, timeout=None, _script=script)
        return made

    def call(self, kwargs: Mapping[str, object], context: object = None) -> object:
        return self._script.result(self, context)  # type: ignore[arg-type]

    def reconciling(self) -> Tool:
        return self


class _ReplayDispatcher(RecordingDispatcher):
    """Takes compactions as they are stored, and does not wait before the model is asked again."""

    async def first(self, implementations: Sequence[Any], clock: Any, *args: Any) -> Any:
        if implementations and implementations[0].hook == "on_compact":
            return self._tape.script.compaction()
        value = await super().first(implementations, clock, *args)
        return RetryModel(after_seconds=0) if isinstance(value, RetryModel) else value


class _ReplayCore(RecordingCore):
    """A run that is given what was stored."""

    __slots__ = ("_steering", "_tools", "answers", "script", "stored")
    dispatcher_class = _ReplayDispatcher

    def __init__(self, script: _Script, setup: RunSetup, owner: TaskOwner, queue: AgentEventQueue[Event]) -> None:
        import weakref

        self.script = script
        self.answers = 0  # messages of the model so far
        self.stored = 0  # records that are compared, so far
        super().__init__(setup, owner, queue)
        script.core = weakref.proxy(self)

    @property
    def tools(self) -> dict[str, Tool]:
        return self._tools

    @tools.setter
    def tools(self, tools: dict[str, Tool]) -> None:
        self._tools = {name: _ReplayedTool.of(tool, self.script) for name, tool in tools.items()}

    def record(self, record: SessionRecord, *, tell: bool = True) -> None:
        if record.kind == "message" and record.message.kind == "assistant":
            self.answers += 1
        self.stored += record.kind in HISTORY
        super().record(record, tell=tell)

    @property
    def steering(self) -> list[UserMessage]:
        """What was said since the last boundary: at each of them a run looks here."""
        heard, position = self.script.heard, self.position if self.script.has_tape else self.stored
        while heard and heard[0][0] <= position:
            self.receive(UserMessage.from_json(json.dumps(heard.pop(0)[1])))
        return self._steering

    @steering.setter
    def steering(self, messages: list[UserMessage]) -> None:
        self._steering = messages
