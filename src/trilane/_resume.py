"""Taking a session up again where a process or a run left it. What the store knows about it is read in `_stored.py`.

Calls with a stored result keep it. Calls that had started run again only if their effect allows it, with the same key
and a higher attempt; others are answered "interrupted, effect unknown", or their tool's `reconcile` decides. Calls that
had not started are decided again. Open questions are asked again under their old ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._batch import Batch
from ._decide import take_approval
from ._stored import find_point
from .errors import SessionError
from .messages import Approval, AssistantMessage, ToolResult
from .tools import Tool

if TYPE_CHECKING:
    from ._core import Core
    from ._decide import CallRun
    from ._stored import StoredPoint

__all__ = ["first_step", "prepare", "take_up_tools"]


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
