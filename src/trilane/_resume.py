"""Taking a session up again where a process or a run left it. What the store knows about it is read in `_stored.py`.

Calls with a stored result keep it. Calls that had started run again only if their effect allows it, with the same key
and a higher attempt; others are answered "interrupted, effect unknown", or their tool's `reconcile` decides. Calls that
had not started are decided again. Open questions are asked again under their old ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._batch import Batch
from ._decide import take_approval
from ._stored import StoredPoint
from .errors import SessionError
from .events import TurnStarted
from .messages import Approval, AssistantMessage, ToolResult
from .stores import MessageHidden
from .tools import render_result

if TYPE_CHECKING:
    from ._core import Core
    from ._decide import CallRun

__all__ = ["first_step", "prepare", "take_up_tools"]

_EMPTY = "session {!r} is empty, there is nothing to resume; start with agent.run(..., session=...)"


async def prepare(core: Core) -> None:
    """Before a run that takes up a session begins: find out where it stands, and what was asked.

    Raises:
        SessionError: there is nothing to resume; no run begins, so no hook is called and nothing is stored.
    """
    from .sessions import pages

    point = core.point = StoredPoint()
    async for page in pages(core.store, core.session_id):
        for record in page.records:
            point.apply(record)
    if point.is_empty:
        raise SessionError(_EMPTY.format(core.session_id))
    if point.is_answered:
        raise SessionError(
            f"session {core.session_id!r} has nothing to resume: its last run has completed, and its answer is stored; "
            "read it with store.load(...), or go on with agent.run(..., session=...)"
        )
    core.turn = point.turns
    core.request = point.request or core.request


def first_step(core: Core) -> str:
    """Where a resumed run goes on: `take_up_tools`, `turn`, or `answer` for a message that is an answer already.

    Raises:
        SessionError: there is nothing to resume.
    """
    if core.view.unanswered is not None:
        return "take_up_tools"
    if not core.view.log:
        raise SessionError(_EMPTY.format(core.session_id))
    last = core.view.log[-1]
    if not isinstance(last, AssistantMessage):
        return "turn"
    if last.interrupted:
        # It is generated again from where it began: no provider takes a request that ends with half an answer.
        core.record(MessageHidden(run_id=core.run_id, message_id=last.id, reason="generated again"))
        return "turn"
    core.last_message = last
    return "answer"


async def take_up_tools(core: Core) -> Batch:
    """The batch of the last message, with everything that is known about its calls."""
    message = core.view.unanswered
    assert message is not None
    core.last_message = message
    core.produce(TurnStarted, turn=core.turn)
    batch = core.batch = Batch(core, message)
    point = core.point
    assert point is not None
    for run in batch.runs:
        stored = core.view.results.get(run.call.id)
        if stored is not None:
            run.finish(stored)
            run.recorded = run.announced = True
        elif run.state == "new":
            await _take_up(core, run, point)
    await batch.decide()
    return batch


async def _take_up(core: Core, run: CallRun, point: StoredPoint) -> None:
    """A call without a stored result: a stored reply is taken, an open question keeps its id."""
    call_id = run.call.id
    kind, payload = point.replies.get((call_id, 0), ("", None))
    if kind == "external_tool":
        limit = run.tool.max_result_chars if run.tool is not None else None
        run.finish(render_result(payload, call_id=call_id, max_chars=limit))
        return
    attempts = point.started.get(call_id, 0)
    if attempts and not _may_run_again(run, attempts, call_id in point.unsafe):
        return
    if kind == "approval":
        await take_approval(core, run, _approval(payload))
        return
    question = point.questions.get((call_id, 0))
    if question is not None and question.kind == "approval":
        run.question_id = question.id


def _may_run_again(run: CallRun, attempts: int, was_unsafe: bool) -> bool:
    """A call that had started: its effect says whether it may run again; if not, it is answered."""
    tool = run.tool
    run.attempt = attempts + 1
    if tool is not None and tool.is_external:
        return True  # whoever runs it knows the call by its id, and is asked again
    if tool is not None and tool.effect in ("read", "idempotent") and not was_unsafe:
        return True
    if tool is not None and tool.reconcile is not None:
        # It gets the arguments of the call and says what became of it; running it twice does no harm.
        run.tool = tool.reconciling()
        return True
    text = f"Tool {run.call.name} was interrupted, effect unknown. It was not run again; check before you repeat it."
    run.finish(ToolResult(call_id=run.call.id, content=text, outcome="interrupted"))
    return False


def _approval(payload: Any) -> Approval:
    """A stored reply to an approval question; whoever asks may have asked for another form of it."""
    if not isinstance(payload, dict) or "approve" not in payload:
        return Approval(approve=bool(payload))
    arguments, reason = payload.get("arguments"), payload.get("reason")
    return Approval(
        approve=bool(payload["approve"]),
        arguments=arguments if isinstance(arguments, dict) else None,
        reason=reason if isinstance(reason, str) else "",
    )
