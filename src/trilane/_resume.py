"""Taking a session up again where a process or a run left it: what is known from the store, and what follows.

Calls with a stored result keep it. Calls that had started run again only if their effect allows it, with the same key
and a higher attempt; others are answered "interrupted, effect unknown", or their tool's `reconcile` decides. Calls that
had not started are decided again. Open questions are asked again under their old ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._batch import Batch
from ._decide import take_approval
from .errors import SessionError
from .messages import Approval, AssistantMessage, ToolResult, UserMessage
from .tools import Tool

if TYPE_CHECKING:
    from ._core import Core
    from ._decide import CallRun
    from .stores import SessionRecord

__all__ = [
    "StoredPoint",
    "find_point",
    "first_step",
    "prepare",
    "stored_question_id",
    "stored_reply",
    "take_up_tools",
]


class StoredPoint:
    """What the records since the last run that ended say about the run to continue.

    Attributes:
        request: The request of the run, for its `RunStarted` event.
        started: How often each call had started, by call id.
        questions: Open questions of calls, by call id, in the order in which they were asked.
        replies: Replies that were stored, by call id, in order.
        turns: Turns the suspended run had begun.
    """

    __slots__ = ("questions", "replies", "request", "started", "turns")

    def __init__(self) -> None:
        self.request: UserMessage | None = None
        self.started: dict[str, int] = {}
        self.questions: dict[str, list[dict[str, Any]]] = {}
        self.replies: dict[str, list[tuple[str, Any]]] = {}
        self.turns = 0


def find_point(records: Sequence[SessionRecord]) -> StoredPoint:
    """Read what a resumed run must know besides its history."""
    point = StoredPoint()
    asked: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.kind == "message":
            if record.message.kind == "user" and record.message.origin == "request":
                point.request = record.message
            # A new message closes everything that was about the calls of an earlier one.
            point.started, point.questions, point.replies, asked = {}, {}, {}, {}
        elif record.kind == "call_started":
            point.started[record.call_id] = max(point.started.get(record.call_id, 0), record.attempt)
        elif record.kind == "question":
            call = record.question.get("call")
            call_id = str(call["id"]) if isinstance(call, dict) else ""
            asked[str(record.question["id"])] = record.question
            others = [one for one in point.questions.get(call_id, ()) if one["id"] != record.question["id"]]
            point.questions[call_id] = [*others, record.question]  # asked again after a restart: the same question
        elif record.kind == "question_closed":
            question = asked.get(record.question_id)
            call = question.get("call") if question else None
            if question is None or not isinstance(call, dict):
                continue
            call_id = str(call["id"])
            if record.status == "accepted":
                point.replies.setdefault(call_id, []).append((str(question["kind"]), record.payload))
            point.questions[call_id] = [one for one in point.questions[call_id] if one["id"] != record.question_id]
        elif record.kind == "run_ended":
            point.turns = record.turns if record.status == "suspended" else 0
    return point


async def prepare(core: Core) -> None:
    """Before a run that takes up a session begins: find out where it stands, and what was asked."""
    page = await core.store.load(core.session_id)
    core.point = find_point(page.records)
    core.turn = core.point.turns
    core.request = core.point.request or core.request


def first_step(core: Core) -> str:
    """Where a resumed run goes on: `tools`, `turn`, or `answer` for a message that is an answer already.

    Raises:
        SessionError: there is nothing to resume.
    """
    if core.view.unanswered is not None:
        return "take_up_tools"
    if not core.view.log:
        raise SessionError(
            f"session {core.session_id!r} is empty, there is nothing to resume; start with agent.run(..., session=...)"
        )
    last = core.view.log[-1]
    if isinstance(last, AssistantMessage) and not last.interrupted:
        core.last_message = last
        return "answer"
    return "turn"


async def take_up_tools(core: Core) -> Batch:
    """The batch of the last message, with everything that is known about its calls."""
    message = core.view.unanswered
    assert message is not None
    core.last_message = message
    batch = core.batch = Batch(core, message)
    point = core.point
    assert point is not None
    for run in batch.runs:
        stored = core.view.results.get(run.call.id)
        if stored is not None:
            run.finish(stored)
            run.recorded = run.announced = True
            continue
        attempts = point.started.get(run.call.id, 0)
        if attempts:
            _take_up_started(run, attempts)
        elif run.state == "new":
            await _take_up_waiting(core, run, point)
    await batch.decide()
    return batch


def _take_up_started(run: CallRun, attempts: int) -> None:
    """A call that had started: its effect says whether it may run again."""
    tool = run.tool
    if tool is None:
        return
    if tool.effect in ("read", "idempotent"):
        run.attempt = attempts + 1
        return
    if tool.reconcile is not None:
        # It gets the arguments of the call and says what became of it; running it twice does no harm.
        run.tool = Tool.from_function(
            tool.reconcile,
            name=tool.name,
            effect="idempotent",
            timeout=tool.timeout,
            max_result_chars=tool.max_result_chars,
        )
        run.attempt = attempts + 1
        return
    text = f"Tool {run.call.name} was interrupted, effect unknown. It was not run again; check before you repeat it."
    run.finish(ToolResult(call_id=run.call.id, content=text, outcome="interrupted"))


async def _take_up_waiting(core: Core, run: CallRun, point: StoredPoint) -> None:
    """A call that had not started: a stored approval is taken, an open question keeps its id."""
    for kind, payload in point.replies.get(run.call.id, ()):
        if kind == "approval" and isinstance(payload, dict):
            await take_approval(core, run, Approval(**payload))
            return
    for question in point.questions.get(run.call.id, ()):
        if question.get("kind") == "approval":
            run.question_id = str(question["id"])


def stored_reply(core: Core, call_id: str, ordinal: int) -> tuple[bool, Any]:
    """The reply to the `ordinal`-th question that a tool asked before it was cut off: (is there one, its payload)."""
    point = core.point
    if point is None:
        return False, None
    replies = [payload for kind, payload in point.replies.get(call_id, ()) if kind == "question"]
    if ordinal <= len(replies):
        return True, replies[ordinal - 1]
    return False, None


def stored_question_id(core: Core, call_id: str) -> str:
    """The id of the question a tool was waiting for when it was cut off, so that a reply to it still arrives."""
    point = core.point
    if point is None:
        return ""
    waiting = [one for one in point.questions.get(call_id, ()) if one.get("kind") == "question"]
    if not waiting:
        return ""
    point.questions[call_id].remove(waiting[0])
    return str(waiting[0]["id"])
