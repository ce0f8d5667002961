"""Everything one run holds, and its synchronous commits: phase, history, results, events.

Nothing here waits for a model, a tool or a plugin's decision; that is in `_phases.py`, `_batch.py` and `_ending.py`,
which work on a `Core`. What leaves a run goes through `show` (the UI stream) and `deliver` (notifications), and what is
stored through `flush`, in the order: commit, flush, then tell.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ._backend import EventLoop, Waiter
from ._dispatch import Dispatcher, place_of
from ._flush import write
from ._publishing import publish
from ._records import ListsOnDemand, error_line, made_before, stamped_from
from ._tasks import INFINITE, Clock, TaskHandle, TaskOwner, Watchdog, clock_here, current_clock, wait_shielded
from .channels import AgentEventQueue
from .context import History, RunContext, Stash, ToolContext
from .errors import PluginError, RunCancelledError
from .events import (
    AgentEvent,
    CustomEvent,
    ExtensionEvent,
    MessageAppendedEvent,
    PhaseChanged,
    PhaseTransitionEvent,
    PluginFailed,
    PluginFailedEvent,
    QuestionClosedEvent,
    QuestionOpenedEvent,
    RunStarted,
    ToolProgress,
)
from .ledger import HookFailure
from .messages import ToolCall, Usage, UserMessage, clean_text, new_id
from .state import AgentPhase, AgentState
from .stores import SessionRecord, SessionView

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ._assembly import Assembly
    from ._batch import Batch
    from ._decide import CallRun
    from ._main import LeaseKeeper
    from ._questions import OpenQuestion
    from ._setup import RunSetup
    from ._stored import StoredPoint
    from .events import Event
    from .messages import AssistantMessage
    from .models import ModelRequest, ModelResponse
    from .result import RunResult, Status
    from .stores import Lease

__all__ = ["Core"]

logger = logging.getLogger("trilane")

_NOTHING_USED = Usage()
END_HOOKS_SHARE = 0.7  # of the grace time, for the hooks of a completed run that is left before they are done
END_FLUSH_SHARE = 0.25  # of the grace time, for the write that is going on when a run is ended
_OF_RECORDS = (MessageAppendedEvent, QuestionOpenedEvent, QuestionClosedEvent)


class Core(ListsOnDemand):
    """One run. Its parts are used by the modules of the run loop only."""

    # Slots, and lists where deques would do: a server holds thousands of runs, and an empty deque takes 600 bytes.
    __slots__ = (
        "__weakref__",
        "_context",
        "_history",
        "_stash",
        "agent_name",
        "answer_attempts",
        "answer_tasks",
        "append_now",
        "assembly",
        "batch",
        "cause",
        "children",
        "claims",
        "clock",
        "close_reason",
        "compacted",
        "compacted_turn",
        "compacting",
        "deadline",
        "deaf",
        "deps",
        "dispatcher",
        "empty_replies",
        "end_waiters",
        "ending",
        "failures",
        "fatal",
        "finished",
        "first_new",
        "flush_line",
        "flushing",
        "follow_ups",
        "hooks",
        "hurried",
        "idle_looks",
        "keeper",
        "lane_error",
        "last_message",
        "late_causes",
        "lease",
        "limits",
        "loaded",
        "loop",
        "main",
        "metadata",
        "model_request",
        "must_show",
        "notes",
        "notes_for_model",
        "offers",
        "on_finish",
        "outbox",
        "output",
        "own_tool_calls",
        "own_usage",
        "owner",
        "parent",
        "path",
        "pending",
        "point",
        "publisher",
        "publishing_line",
        "questions",
        "queue",
        "queues",
        "request",
        "response",
        "result",
        "run_id",
        "seq",
        "session_id",
        "settled",
        "setup",
        "shared_view",
        "silent",
        "state",
        "status",
        "steering",
        "step",
        "stop_error",
        "store",
        "store_error",
        "stragglers",
        "strict_error",
        "suspended",
        "taken_before",
        "timers",
        "tools",
        "turn",
        "unsure",
        "version",
        "view",
        "waiters",
        "watchdog",
        "watched_by",
        "withheld",
    )

    # Lists that most runs never need: each is made when somebody first asks for it.
    late_causes: list[BaseException]
    stragglers: list[CallRun]  # calls answered while their function went on
    end_waiters: list[Waiter]
    flush_line: list[Waiter]
    publishing_line: list[Waiter]
    answer_tasks: list[TaskHandle]
    hurried: list[Waiter]  # woken when `deadline` comes nearer
    failures: list[HookFailure]
    children: list[Core]
    follow_ups: list[UserMessage]
    on_finish: list[Callable[[], None]]

    def __init__(self, setup: RunSetup, owner: TaskOwner, queue: AgentEventQueue[Event]) -> None:
        self.setup = setup
        self.run_id = new_id()
        self.session_id = setup.session_id
        self.agent_name = setup.agent_name
        self.path = setup.path
        self.parent = setup.parent
        self.deps = setup.deps
        self.limits = setup.limits
        self.metadata = setup.metadata
        self.request = setup.request
        self.state = AgentState()
        self.turn = 0
        self.tools = setup.tools
        self.own_tool_calls = 0  # like `own_usage` with those of child runs
        self.own_usage = _NOTHING_USED
        # history and store
        self.view = SessionView()
        self.shared_view: SessionView | None = None  # the store's own view, where a plugin edited the run's
        self.first_new = 0
        self.outbox: list[SessionRecord] = []
        self.version = 0
        self.unsure = 0  # how many of the first records in the outbox may be stored, although the store failed
        self.loaded = False  # the session's records are known; before that nothing may be written
        self.store = setup.store
        self.flushing: Waiter | bool = False  # somebody writes; a waiter: it is the turn of whoever waits with it
        self.append_now: Any = getattr(setup.store, "append_now", None)
        self.lease: Lease | None = None
        self.keeper: LeaseKeeper | None = None
        self.store_error: BaseException | None = None
        # lanes
        self.queue = queue
        self.queues = setup.queues
        self.offers = type(queue).put is AgentEventQueue.put  # else whoever made it wants to see what is put
        self.pending: list[Event] = []
        self.must_show = False
        self.seq = 0
        self.silent = False  # nobody reads the stream: events are counted, not made
        self.notes: list[ExtensionEvent] = []
        self.publisher: Clock | Waiter | None = None  # whose notification is delivered, or whose turn it is
        self.questions: dict[str, OpenQuestion] = {}
        self.steering: list[UserMessage] = []
        self.deaf = setup.mode == "compact"  # nothing that is said is heard any more
        # control
        self.owner = owner
        self.timers = owner.timers
        self.loop: EventLoop = owner.event_loop
        self.watchdog = Watchdog(owner.timers)
        self.clock = Clock(self.watchdog)
        self.main: TaskHandle | None = None
        self.stop_error: RunCancelledError | None = None
        self.close_reason = ""  # why the owner cancelled the run
        self.suspended = False
        self.ending = False  # the task that ends the run has begun to
        self.claims: set[str] | None = None  # sessions with a run, from which this run's is taken when it has ended
        self.watched_by: set[Core] | None = None  # the runs of a runtime, which stops those that nobody reads
        self.taken_before, self.idle_looks = -1, 0  # the first look begins to count: it may come at once
        self.finished = False
        self.settled = False
        self.result: RunResult[Any] | None = None
        self.deadline = INFINITE  # of the ending
        self.batch: Batch | None = None
        self.assembly: Assembly | None = None  # the message that is being streamed
        self.withheld = ""  # why a value must not be kept, see `Withheld`
        self.last_message: AssistantMessage | None = None
        self.output: Any = None
        # what one phase leaves for the next
        self.step = "begin"
        self.point: StoredPoint | None = None
        self.compacted_turn = -1
        self.compacted: tuple[Any, ...] | None = None  # messages of this run that a compaction has replaced
        self.compacting = False  # the caller was told that it began, and not that it ended
        self.model_request: ModelRequest | None = None
        self.response: ModelResponse | None = None
        self.answer_attempts = 0
        self.empty_replies = 0
        self.notes_for_model: tuple[str, ...] = ()
        self.status: Status | None = None
        self.cause: BaseException | None = None
        self.lane_error: Exception | None = None  # what the consumer failed the stream with: the first counts
        self.strict_error: PluginError | None = None
        self.fatal: BaseException | None = None  # what a hook raised in the ending, and must reach the caller after it
        self.waiters: list[Waiter] = []  # woken on stop, steering and the end
        self._stash: Stash | None = None
        self._history: History | None = None
        self.dispatcher = Dispatcher(
            setup.hooks,
            weakref.proxy(self),  # no cycle: a server should not need the collector to be rid of its runs
            timeout=setup.hook_timeout,
            breaker=setup.breaker,
            trace=setup.trace_plugins,
        )
        self.hooks = setup.hooks
        self._context: RunContext[Any] | None = None

    # ---- what contexts see -------------------------------------------------------------------------------------------

    @property
    def context(self) -> RunContext[Any]:
        """What hooks see of the run. Made when one is called: it and the run refer to each other."""
        if self._context is None:
            self._context = RunContext(self)
        return self._context

    @property
    def stash(self) -> Stash:
        if self._stash is None:
            self._stash = Stash()
        return self._stash

    @property
    def history(self) -> History:
        if self._history is None:
            self._history = History(self, self.view.log)
        elif not self._history.edited:
            self._history.log = self.view.log
        return self._history

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return self.batch.open_calls if self.batch is not None else ()

    def add_usage(self, usage: Usage) -> None:
        """Count what a model call used, here and in every run around this one."""
        for core in self.lineage():
            core.own_usage = core.own_usage + usage

    def lineage(self) -> Sequence[Core]:
        """This run, the run it is a call of, and so on to the root."""
        if self.parent is None:
            return (self,)
        found = [self]
        while (parent := found[-1].parent) is not None:
            found.append(parent)
        return found

    def begin(self) -> None:
        """The session is claimed: leave CREATED."""
        self.produce(RunStarted, request=self.request)
        self.go(AgentPhase.LOADING_CONTEXT)

    # ---- commits: synchronous, first ---------------------------------------------------------------------------------

    def go(self, target: AgentPhase) -> None:
        """Change the phase, and note it for both lanes.

        Raises:
            PhaseError: the table does not allow it; nothing changed.
        """
        previous = self.state.go(target)
        must_show = self.must_show
        self.produce(PhaseChanged, previous=previous)
        self.must_show = must_show  # a phase change alone is not worth a hand-over: it joins the next group
        if self.hooks.on_event:
            self.notes.append(PhaseTransitionEvent(previous=previous, phase=target))

    def record(self, record: SessionRecord, *, tell: bool = True) -> None:
        """Add to the history, and note it for the store and for plugins: those may be told later by the caller."""
        if self.finished:
            return  # from a task that was given up
        self.outbox.append(record)
        log = self.view.log
        count = len(log)
        self.view.apply(record)
        if self.shared_view is not None:
            self.shared_view.apply(record)
        if tell and self.hooks.on_event and self.view.log is log:
            self.notes.extend(MessageAppendedEvent(message=message) for message in log[count:])

    def produce(self, event: type[AgentEvent], /, **fields: Any) -> None:
        """Make an event, stamped now, for the next `show`."""
        self.seq += 1
        self.must_show = True
        if self.silent:
            return
        make = made_before.get(event) or stamped_from(event)
        self.pending.append(make(self, fields))

    # ---- telling: after the commit -----------------------------------------------------------------------------------

    async def show(self) -> None:
        """Hand over all produced events; return when the caller has moved past the last of them.

        Raises:
            RunCancelledError: a stop was asked for; this is a boundary.
            BaseException: the stream was failed by its consumer.
        """
        if self.notes:
            await self.deliver()
        await self.put()
        self.check()

    async def put(self, *, stored: bool = True) -> None:
        """`show` without being a boundary: for tools and plugins in the midst of something.

        What events tell is stored by then, unless the caller knows of none that tells of a record (not `stored`).
        """
        main = self.clock
        clock = current_clock.get(main)
        if clock is not main and clock.watchdog is not self.watchdog:
            clock = main  # see `clock_here`, without the call
        # A tool's task writes nothing for the others: what it shows tells of no record that nobody else is writing.
        while self.flushing or (stored and self.outbox and clock is main):
            await self.flush()
        self.must_show = False
        pending, queue = self.pending, self.queue
        if not pending and queue.putting is False:
            return  # else another task shows what was to be shown here, and it must have been seen
        self.pending = []
        still = False
        try:
            if self.offers and queue.putting is False:
                since = clock.now()
                done = queue.offer(*pending)
                clock.skip(since)
                if clock is not main:
                    main.skip(since)  # the run as a whole waits for its caller, too
                if done:
                    return
                rest = queue.acknowledged()
            else:
                rest = queue.put(*pending)
            still = True
            clock.pause()
            if clock is not main:
                main.pause()
            await rest
        except Exception as error:
            if self.lane_error is None:
                self.lane_error = error
            raise
        except BaseException:
            refused, self.queue.refused = self.queue.refused, None
            if refused and refused[0] is pending[0]:  # it was not even its turn: they are told at the end
                self.pending = sorted((*pending, *self.pending), key=attrgetter("seq"))
            raise
        finally:
            if still:
                clock.resume()
                if clock is not main:
                    main.resume()

    async def before_hook(self) -> None:
        """A hook is about to be called: whatever was produced before it must be stored, and have been seen."""
        if self.outbox or self.flushing:
            await self.flush()
        if self.must_show:
            await self.show()
        elif self.notes:
            await self.deliver()

    def check(self) -> None:
        """A boundary without an event.

        Raises:
            RunCancelledError: a stop was asked for.
        """
        if self.stop_error is not None and not self.settled:
            raise self.stop_error

    async def deliver(self) -> None:
        """Call `on_event` for every notification that is waiting; what it tells of is stored by then."""
        while self.notes:
            if (self.outbox or self.flushing) and not self.settled and isinstance(self.notes[0], _OF_RECORDS):
                await self.flush()
                continue  # meanwhile another task may have told of it, and what comes next be recorded only now
            await publish(self, self.notes.pop(0))

    async def publish(self, notification: ExtensionEvent, to: str | None = None) -> None:
        await publish(self, notification, to)

    async def emit_custom(self, name: str, data: JsonValue) -> None:
        self.produce(CustomEvent, plugin=clock_here(self.clock).plugin or self.agent_name, name=name, data=data)
        await self._put_or_drop()

    async def progress(self, call: ToolCall, text: str, data: JsonValue, fraction: float | None) -> None:
        self.produce(ToolProgress, call_id=call.id, text=clean_text(text), data=data, fraction=fraction)
        await self._put_or_drop()

    async def _put_or_drop(self) -> None:
        if self.state.is_terminal:
            self.put_nowait()
        else:
            await self.put()

    def put_nowait(self) -> None:
        """Hand over all produced events without waiting: for the end of a run."""
        pending, self.pending = self.pending, []
        self.must_show = False
        if pending:
            self.queue.put_nowait(*pending)

    # ---- failures of plugins that are contained ----------------------------------------------------------------------

    def report(self, plugin: str, hook: str, error: BaseException, *, strict: bool, disabled: bool) -> None:
        logger.warning(
            "plugin %r failed in %s: %s%s%s",
            plugin,
            hook,
            error_line(error),
            place_of(error),
            " (switched off after 3 failures in a row)" if disabled else "",
        )
        if self.fatal is None and isinstance(error.__cause__, (KeyboardInterrupt, SystemExit)):
            self.fatal = error.__cause__
        self.failures.append(HookFailure(plugin=plugin, hook=hook, error=error, disabled=disabled))
        if strict and self.strict_error is None:
            self.strict_error = PluginError(
                f"strict plugin {plugin!r} failed in {hook}: {error_line(error)}", plugin=plugin, hook=hook
            )
            self.strict_error.__cause__ = error
        if self.finished:
            return
        must_show = self.must_show
        self.produce(PluginFailed, plugin=plugin, hook=hook, error=error)
        self.must_show = must_show
        if self.hooks.on_event and hook != "on_event":
            self.notes.append(PluginFailedEvent(plugin=plugin, hook=hook, error=error))

    # ---- what comes in -----------------------------------------------------------------------------------------------

    def take_input(self) -> None:
        """Sort what is on the input lane: steering for the next boundary, follow-ups for after the answer."""
        if self.queues is None:
            return
        for item in self.queues.input.drain():
            if isinstance(item, UserMessage):
                self.receive(item)

    def receive(self, message: UserMessage) -> None:
        """A message came in while the run is active."""
        (self.follow_ups if message.origin == "follow_up" else self.steering).append(message)

    # ---- stopping ----------------------------------------------------------------------------------------------------

    def request_stop(self, reason: str) -> None:
        """End at the next boundary. From any thread, never waits."""
        if self.stop_error is None:
            self.stop_error = RunCancelledError(reason)
        for child in tuple(self.children):
            child.request_stop(reason)
        self.loop.call(self._wake)

    def end_now(self, reason: str) -> None:
        """End at once: nothing more begins, what waits for the store waits no longer than the grace time allows."""
        if self.finished:
            return
        self.close_reason = self.close_reason or reason
        if self.stop_error is None:
            self.stop_error = RunCancelledError(self.close_reason)
        for child in self.children:  # it is ended by the call it is; until then nothing of it begins
            child.stop_error = child.stop_error or self.stop_error
        if self.state.phase is AgentPhase.COMPLETED:
            share = END_HOOKS_SHARE if self.parent is None else END_FLUSH_SHARE  # its parent waits a share of its own
            self.deadline = min(self.deadline, self.timers.now() + self.setup.grace_seconds * share)
            self.watchdog.hurry()
        elif not self.ending and not self.settled:
            self.deadline = min(self.deadline, self.timers.now() + self.setup.grace_seconds * END_FLUSH_SHARE)
        for waiter in self.hurried:  # a write that goes on looks at the deadline again
            waiter.wake()
        if self.main is not None:
            self.main.cancel()

    def _wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.wake()
        if self.batch is not None:
            self.batch.wake()

    def notice(self) -> None:
        """Something came in from outside: whoever waits should look again. From any thread."""
        self.loop.call(self._wake)

    def from_thread(self, call: ToolCall, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Await `function(*args)` in the event loop, from a thread of a tool."""
        from ._asking import call_from_thread

        return call_from_thread(self, call, function, *args)

    def ask_from_tool(
        self, context: ToolContext[Any], prompt: str, schema: Any, timeout: float | None
    ) -> Coroutine[Any, Any, Any]:
        from ._asking import ask_from_tool

        return ask_from_tool(self, context, prompt, schema, timeout)

    # ---- the store ---------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write what was recorded, whole, before anybody is told.

        Raises:
            StoreError: the store failed or was too slow; the records are lost to it, not to this run's history.
        """
        if not self.loaded:
            self.outbox.clear()
        if self.append_now is None:
            if self.outbox or self.flushing:  # what is told next may be what another task is writing
                await write(self)
            return
        if not self.outbox:
            return
        records, self.outbox = tuple(self.outbox), []
        try:
            self.version = self.append_now(self.session_id, records, expected_version=self.version)
        except Exception:
            self.store.reload_now(self.session_id)  # type: ignore[attr-defined]
            raise

    async def join(self, task: TaskHandle, deadline: float) -> int:
        """Wait for a task, through cancels; return how many of them arrived."""
        return await wait_shielded(
            self.timers, lambda: task.done, lambda waiter: task.on_done.append(waiter.wake), deadline
        )
