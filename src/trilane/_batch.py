"""RUNNING_TOOL: one batch of tool calls, from decisions to results in call order.

Calls are announced before they start and start when that was seen; a result is committed in the step in which the
handler returns; it is flushed before it is announced. Calling one tool (task, thread, timeout, attempts) is in
`_invoke.py`; deciding is in `_decide.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._asking import (
    can_be_answered,
    close_question,
    open_question,
    root_of,
    start_answering,
    why_unanswered,
    withdraw_all,
)
from ._backend import Waiter, new_waiter
from ._decide import CallRun, arguments_hash, decide, take_approval
from ._invoke import cut_off, execute, withhold_unseen
from ._records import maker
from ._tasks import TaskHandle
from .errors import RunLimitError
from .events import ToolCallEvent, ToolCompleted, ToolStarted
from .messages import Approval, AssistantMessage, Outcome, ToolCall, ToolResult, new_id
from .state import AgentPhase
from .stores import CallFinished, CallStarted
from .tools import render_result

if TYPE_CHECKING:
    from ._core import Core
    from ._questions import OpenQuestion
    from ._tasks import Clock

__all__ = ["Batch"]

AGAIN_SECONDS = 0.05  # between cancels of a tool that swallows them

NOT_EXECUTED = {
    "length": "the answer was cut off by the output limit",
    "refusal": "the model refused",
    "content_filter": "the provider withheld the answer",
}


class Batch:
    """The tool calls of one assistant message."""

    __slots__ = ("_core", "_dirty", "_waiter", "cut_off_as", "deadline", "fatal", "message_id", "runs", "stopping")

    def __init__(self, core: Core, message: AssistantMessage) -> None:
        self._core = core
        self.message_id = message.id
        self.runs = [
            CallRun(call, core.tools.get(call.name), f"{core.session_id}:{message.id}:{call.id}")
            for call in message.calls
        ]
        self.fatal: BaseException | None = None
        self.stopping = False
        self.cut_off_as: Outcome = "interrupted"  # what a tool that is cancelled is said to have been
        self.deadline = float("inf")  # until when a cancelled tool is waited for
        self._waiter: Waiter | None = None
        self._dirty = False
        reason = NOT_EXECUTED.get(message.stop_reason)
        if reason:
            for run in self.runs:
                text = f"Tool {run.call.name} was not run: {reason}, so the call may be incomplete. Make it again."
                run.finish(ToolResult(call_id=run.call.id, content=text, outcome="not_started"))

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return tuple(run.call for run in self.runs if run.result is None)

    @property
    def needs_running(self) -> bool:
        """True if any call runs or waits for a reply."""
        for run in self.runs:  # noqa: SIM110
            if run.state != "finished":
                return True
        return False

    def wake(self) -> None:
        """Something about a call has changed."""
        self._dirty = True
        if self._waiter is not None:
            self._waiter.wake()

    # ---- READY ---------------------------------------------------------------------------------------------------

    async def decide(self) -> None:
        """Decide about every call, in order."""
        core = self._core
        if core.hooks.decide_tool:
            await core.before_hook()
        for run in self.runs:
            if run.state == "new":
                await decide(core, run)
                core.check()
        wanted = 0
        for run in self.runs:
            wanted += run.state != "finished"
        for one in core.lineage():
            limit = one.limits.tool_calls
            if limit is not None and one.own_tool_calls + wanted > limit:
                raise RunLimitError(
                    f"the run may make {limit} tool calls and {one.own_tool_calls} were made; "
                    f"{wanted} more were asked for. Raise Limits.tool_calls."
                )
        for one in core.lineage():
            one.own_tool_calls += wanted

    # ---- RUNNING_TOOL --------------------------------------------------------------------------------------------

    async def run(self) -> AgentPhase:
        """Start what may start, ask what must be asked, and announce results until every call has one."""
        core = self._core
        self._heed_outside()
        await self._announce_starts([run for run in self.runs if run.state == "ready"])
        self._heed_outside()  # the caller may have said something when it saw them
        self._start_possible()
        to_ask = [run for run in self.runs if run.state == "waiting" and run.entry is None]
        if to_ask:
            await self._ask(to_ask)
        while True:
            self._dirty = False
            if self.fatal is not None:
                await self.stop(core.timers.now() + core.setup.grace_seconds)
                raise self.fatal
            self._collect_lost()
            self._heed_outside()
            self._start_possible()
            for run in self.runs:
                if run.entry is not None:
                    await self._take_replies()
                    break
            announced = self._announce_finished()
            if not self.needs_running:
                if announced:
                    await core.flush()
                break
            # Results; questions, and what became of them. One that is not shown is told to plugins only.
            if announced or core.must_show or core.notes:
                await core.flush()
                if core.notes:
                    await core.deliver()
                await core.put()
                continue
            if self._dirty:
                continue
            # Waited for here, and not in a coroutine more: of each, every batch that waits has a frame.
            waiter = self._waiter = new_waiter()
            deadline = self._nearest_reply_deadline()
            timer = None if deadline is None else core.timers.call_at(deadline, waiter.wake)
            outside = self._only_waiting()
            if outside:
                _stand_still(core, True)
            core.queue.loop_turns()
            try:
                await waiter.wait()
            finally:
                if outside:
                    _stand_still(core, False)
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        if self.fatal is not None:
            raise self.fatal
        return AgentPhase.READY

    def _collect_lost(self) -> None:
        """A task that was cancelled by somebody before its first step has done nothing, and said nothing."""
        for run in self.runs:
            if run.state == "running" and run.task is not None and run.task.done:
                if run.result is None:
                    text = f"Tool {run.call.name} was not run: its task was cancelled before it began"
                    run.result = ToolResult(call_id=run.call.id, content=text, outcome="not_started")
                run.state = "finished"

    def give_up(self, clock: Clock) -> None:
        """The function of a call is over its time and swallows every cancel: answer the call and go on without it."""
        core = self._core
        for run in self.runs:
            if run.clock is clock and run.state == "running":
                clock.give_up()
                core.stragglers.append(run)
                text = f"Tool {run.call.name} did not end in its time; it is still running, effect unknown"
                run.finish(ToolResult(call_id=run.call.id, content=text, outcome="timed_out"))
                self.wake()

    def _only_waiting(self) -> bool:
        """True if nothing runs: the time is the outside's, not the run's."""
        return all(run.replies_awaited or run.state in ("waiting", "finished") for run in self.runs)

    def count_waiting(self, call_id: str, change: int) -> None:
        """The tool of a call begins (1) or ceases (-1) to wait for a reply."""
        for run in self.runs:
            if run.call.id == call_id:
                run.replies_awaited += change
                self.wake()
                return

    def _nearest_reply_deadline(self) -> float | None:
        deadlines = [run.entry.deadline for run in self.runs if run.entry is not None]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    async def _announce_starts(self, runs: list[CallRun]) -> None:
        """Record, flush and show that calls start; return when the last was seen."""
        core = self._core
        if not runs:
            return
        hashed = core.append_now is None
        for run in runs:
            tool = run.tool
            assert tool is not None
            core.record(
                maker(CallStarted)(
                    core.run_id,
                    self.message_id,
                    run.call.id,
                    run.key,
                    arguments_hash(run.call.arguments) if hashed else "",
                    tool.effect,
                    run.attempt,
                )
            )
        await core.flush()
        for run in runs:
            assert run.tool is not None
            run.started = True
            core.produce(ToolStarted, call=run.call, external=run.tool.is_external and not self._has_event_agent)
        if core.notes:
            await core.deliver()
        await core.put()
        core.check()

    def _start_possible(self) -> None:
        """Start calls in order, within the cap; a serial tool waits for all before it and holds all behind it."""
        core = self._core
        for run in self.runs:
            if run.state == "ready" and run.started:
                break
        else:
            return  # nothing to start, which is how most calls of this end
        running = sum(1 for run in self.runs if run.state == "running" and run.task is not None)
        earlier_open = False
        for run in self.runs:
            if run.state == "running":
                earlier_open = True
                if run.tool is not None and not run.tool.parallel:
                    return
                continue
            if run.state == "finished" and not run.announced:
                earlier_open = True  # its result is not stored, and nobody has seen it
            if run.state != "ready" or not run.started:
                continue
            assert run.tool is not None
            if run.tool.is_external:
                self._send_out(run)
                continue
            if running >= core.setup.tool_concurrency or (not run.tool.parallel and earlier_open):
                return
            run.state = "running"
            self._pass_by(run)
            run.task = task = TaskHandle()
            task.on_done.append(self.wake)
            core.owner.start(task, execute, core, self, run, now=not core.must_show and core.queue.may_go_on())
            if run.state == "running":
                running += 1
            earlier_open = True
            if not run.tool.parallel:
                return

    def _pass_by(self, run: CallRun) -> None:
        """A call with a handler is put on the events lane and taken off in one step, for queues that record."""
        core = self._core
        if core.queues is not None:
            event = ToolCallEvent(call=run.call, run_id=core.run_id, session_id=core.session_id)
            core.queues.events.put_nowait(event)
            core.queues.events.remove(event)

    def _send_out(self, run: CallRun) -> None:
        """A call without a handler: whoever takes it from the events lane, or replies, answers it."""
        core = self._core
        if core.queues is None and not can_be_answered(core):
            text = f"Tool {run.call.name} is run by the client, and nobody is there to run it"
            run.finish(ToolResult(call_id=run.call.id, content=text, outcome="error"))
            self.wake()
            return
        run.state = "waiting"
        run.began = True
        prompt = f"Run the tool {run.call.name!r} and reply with its result."
        # Of a child, whose model counts its calls as that of its sister does, the same id may have come meanwhile.
        is_open = core.setup.desk.knows(root_of(core).session_id, run.call.id, closed=False)
        run.entry = open_question(
            core,
            "external_tool",
            prompt,
            Any,
            call=run.call,
            asked_by=run.call.name,
            timeout=run.tool.timeout if run.tool is not None else None,
            question_id=new_id() if is_open else run.call.id,
            shown=not self._has_event_agent,
        )
        self._set_deadline(run.entry, run.tool.timeout if run.tool is not None else None)
        if core.queues is not None:
            core.queues.events.put_nowait(ToolCallEvent(call=run.call, run_id=core.run_id, session_id=core.session_id))
        if run.entry.shown:
            start_answering(core, run.entry)
        self.wake()

    @property
    def _has_event_agent(self) -> bool:
        return self._core.queues is not None and self._core.queues.has_event_agent

    def _set_deadline(self, entry: OpenQuestion, timeout: float | None) -> None:
        limit = timeout if timeout is not None else self._core.limits.reply_seconds
        entry.deadline = None if limit is None else self._core.timers.now() + limit

    async def _ask(self, runs: list[CallRun]) -> None:
        """Open the questions of calls that need an approval."""
        core = self._core
        if not runs:
            return
        asked = []
        for run in runs:
            if not can_be_answered(core):
                text = f"Tool {run.call.name} was denied: it needs an approval, and nobody can answer"
                run.finish(ToolResult(call_id=run.call.id, content=text, outcome="denied"))
                continue
            prompt = "\n".join(dict.fromkeys(ask.prompt for ask in run.asks))
            schema = next((ask.schema for ask in run.asks if ask.schema is not Approval), Approval)
            asked_by = ", ".join(dict.fromkeys(run.asked_by))
            run.entry = open_question(
                core,
                "approval",
                prompt,
                schema,
                call=run.call,
                asked_by=asked_by,
                timeout=None,
                question_id=run.question_id,
            )
            run.question_id = ""  # should it be asked again, it is another question
            self._set_deadline(run.entry, None)
            asked.append(run)
        await core.flush()
        if core.notes:
            await core.deliver()
        await core.put()
        for run in asked:
            if run.entry is not None:
                start_answering(core, run.entry)

    async def _take_replies(self) -> None:
        """Look at every open question: answered, withdrawn, or out of time."""
        core = self._core
        approved: list[CallRun] = []
        again: list[CallRun] = []
        for run in self.runs:
            entry = run.entry
            if run.state != "waiting" or entry is None:
                continue
            if entry.status == "open":
                deadline = entry.deadline
                if deadline is None or core.timers.now() < deadline or not core.setup.desk.withdraw(entry):
                    continue
            close_question(core, entry)
            run.entry = None
            if entry.question.kind == "external_tool":
                run.finish(_external_result(run, entry))
                continue
            if entry.status != "accepted":
                why = why_unanswered(entry, "nobody can answer", "nobody answered in time")
                text = f"Tool {run.call.name} was denied: it needs an approval, and {why}"
                run.finish(ToolResult(call_id=run.call.id, content=text, outcome="denied"))
                continue
            if core.hooks.decide_tool:
                await core.before_hook()
            await take_approval(core, run, entry.value)
            if run.state == "ready":
                approved.append(run)
            elif run.state == "waiting":
                again.append(run)
        for run in approved:
            await self._announce_starts([run])
            self._start_possible()
        if again:
            await self._ask(again)

    def _heed_outside(self) -> None:
        """A stop or steering came in: calls that have not started do not start."""
        core = self._core
        if core.queues is not None:
            core.take_input()
        if core.stop_error is not None:
            outcome: Outcome = "not_started"
            text = f"was not run: the run was stopped ({core.stop_error})"
        elif core.steering:
            outcome, text = "superseded", "was not run: the user said something new"
        else:
            return
        self.stopping = True
        for run in self.runs:
            if run.entry is not None and run.entry.question.kind == "external_tool":
                if core.stop_error is None:
                    continue  # it has started, and somebody is at work on it
                core.setup.desk.withdraw(run.entry)
                close_question(core, run.entry)
                run.finish(_external_end(run, run.entry, "interrupted"))
                run.entry = None
            if run.state in ("ready", "waiting"):
                if run.entry is not None:
                    core.setup.desk.withdraw(run.entry)
                    close_question(core, run.entry)
                    run.entry = None
                run.finish(ToolResult(call_id=run.call.id, content=f"Tool {run.call.name} {text}", outcome=outcome))

    # ---- results -------------------------------------------------------------------------------------------------

    def commit(self, run: CallRun) -> None:
        """Put a result into the history."""
        if run.recorded or run.result is None or self._core.finished:
            return
        run.recorded = True
        self._core.record(maker(CallFinished)(self._core.run_id, self.message_id, run.result))

    def _announce_finished(self) -> bool:
        """Commit and produce results in call order, skipping calls that wait; False if there is nothing new."""
        produced = False
        for run in self.runs:
            if run.state == "waiting" and (run.entry is None or run.entry.shown):
                continue
            if run.state != "finished":
                break
            if not run.announced:
                self._announce(run)
                produced = True
        return produced

    def _announce(self, run: CallRun) -> None:
        assert run.result is not None
        self.commit(run)
        run.announced = True
        self._core.produce(ToolCompleted, call=run.call, result=run.result)

    async def finish_refused(self) -> None:
        """No call runs: commit and announce the refusals."""
        self._announce_finished()
        await self._core.flush()

    # ---- the end -------------------------------------------------------------------------------------------------

    async def stop(self, deadline: float) -> None:
        """Cancel what runs, and wait for it until `deadline`; whoever swallows a cancel gets another."""
        core = self._core
        self.deadline = deadline
        running = [run for run in self.runs if run.task is not None and not run.task.done]
        for run in running:
            assert run.task is not None
            run.task.cancel()
        while running and core.timers.now() < deadline:
            task = running[0].task
            assert task is not None
            await core.join(task, min(deadline, core.timers.now() + AGAIN_SECONDS))
            running = [run for run in running if run.task is not None and not run.task.done]
            for run in running:
                if run.task is not None and run.thread is None:
                    run.task.cancel()

    def settle(self, text: str, outcome: Outcome) -> None:
        """Answer every open call with the true cause. Synchronous; nothing is waited for."""
        core = self._core
        withdraw_all(core)
        for run in self.runs:
            entry = run.entry
            if run.result is None and entry is not None and entry.question.kind == "external_tool":
                run.finish(_external_end(run, entry, outcome))
            if run.result is None:
                run.finish(self._truth(run, text, outcome))
            elif run.state == "running":  # with a hook that swallows every cancel
                withhold_unseen(core, run)
        for run in self.runs:
            run.state = "finished"
            if not run.announced:
                self._announce(run)

    def _truth(self, run: CallRun, text: str, outcome: Outcome) -> ToolResult:
        name = run.call.name
        if not run.began:
            return ToolResult(call_id=run.call.id, content=f"Tool {name} was not run: {text}", outcome="not_started")
        return cut_off(run, outcome, still_running=run.is_running)


def _stand_still(core: Core, still: bool) -> None:
    """All of the run waits for replies, or does no more: so does its clock, and that of the call it is run by."""
    caller = core.setup.caller
    for clock in (core.clock,) if caller is None else (core.clock, caller[0]):
        if still:
            clock.pause()
        else:
            clock.resume()
    if caller is not None and core.parent is not None and core.parent.batch is not None:
        core.parent.batch.count_waiting(caller[1], 1 if still else -1)


def _external_end(run: CallRun, entry: OpenQuestion, outcome: Outcome) -> ToolResult:
    """The run ends: a result that was accepted stands, else nobody knows what became of the call."""
    if entry.status == "accepted":
        return _external_result(run, entry)
    return cut_off(run, outcome, still_running=False)


def _external_result(run: CallRun, entry: OpenQuestion) -> ToolResult:
    if entry.status == "accepted":
        limit = run.tool.max_result_chars if run.tool is not None else None
        return render_result(entry.value, call_id=run.call.id, max_chars=limit)
    why = why_unanswered(entry, "nobody can run it", "no result came in time")
    return ToolResult(call_id=run.call.id, content=f"Tool {run.call.name} is run by the client: {why}", outcome="error")
