"""The life of one run: its claim on the session, its one task, and the stream a caller holds.

What is done in each phase is in `_phases.py`; how a run ends is in `_ending.py`; configuration is in `agent.py`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from typing_extensions import TypeVar

from ._asking import answerer_of, root_of
from ._backend import checkpoint_if_cancelled, new_waiter
from ._claims import claim
from ._conversation import accept, accept_queued, refuse_if_deaf
from ._core import Core
from ._main import LeaseKeeper, RunGuard, end_run, run_main
from ._resume import prepare
from ._setup import RunSetup
from ._tasks import TaskOwner, Timers, current_clock
from .channels import AgentEventQueue, RuntimeQueues
from .errors import AgentProtocolError, EventSinkClosed, NoAnswererError
from .events import Event, Question, Receipt
from .messages import TextPart, ToolResult, UserMessage, clean_text, new_id
from .result import RunResult
from .state import AgentState

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ._questions import OpenQuestion
    from .channels import EventSink

__all__ = ["RunStream", "Runtime"]

Oc = TypeVar("Oc", default=object, covariant=True)

_DEEP = 4  # runs inside runs; each of the first ones may go on within the call that tells it of an event


# ---- the stream ------------------------------------------------------------------------------------------------------


class RunStream(Generic[Oc]):
    """One run, as its caller holds it: `async with agent.stream(...) as run: async for event in run: ...`.

    Nothing of the run begins after the event you hold, until you ask for the next one. Leaving the `async with` stops
    whatever is still going on and waits for it.
    """

    __slots__ = ("__weakref__", "_core", "_owner", "_owns_tasks", "_register", "_runtime", "_setup", "session_id")

    def __init__(self, setup: RunSetup, register: Callable[[str, RunStream[Any]], None]) -> None:
        self._setup = setup
        self._register = register
        self._core: Core | None = None
        self._owner: TaskOwner | None = None
        self._owns_tasks = False
        self._runtime: Runtime | None = None
        self.session_id = setup.session_id

    def __del__(self) -> None:
        # Whoever had the stream has let go of it: where a runtime owns the tasks, that stops the run.
        core = getattr(self, "_core", None)
        if core is not None and self._runtime is not None and not core.finished:
            core.loop.call(partial(_stop_dropped, core))

    def __reduce__(self) -> Any:
        raise TypeError(
            "a RunStream is one run in progress and cannot be copied or pickled; keep its events or its result"
        )

    # ---- entering and leaving ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._core is not None:
            raise AgentProtocolError("this stream was entered already; call agent.stream(...) again for another run")
        if self._runtime is None:
            _refuse_async_generators()
            self._owner = TaskOwner()
            self._owns_tasks = True
        else:
            self._owner = self._runtime._owner
        assert self._owner is not None
        claims = claim(self._setup.store, self.session_id)
        try:
            if self._owns_tasks:
                await self._owner.open()
            await self._start(self._owner, claims)
        except BaseException:
            claims.discard(self.session_id)
            if self._owns_tasks:
                await self._owner.close()
            raise
        if self._runtime is not None:
            self._runtime._watch(self._running())
        return self

    async def _start(self, owner: TaskOwner, claims: set[str]) -> None:
        queues = self._setup.queues
        queue: AgentEventQueue[Event] = AgentEventQueue() if queues is None else queues.output
        queue.enable_acknowledgements()
        if len(self._setup.path) >= _DEEP:
            queue.always_turn()
        if self._setup.parent is None:  # plugins may have changed since the stream was made; a child's are its parent's
            self._setup.hooks = self._setup.plugins.compile()
        core = self._setup.core_type(self._setup, owner, queue)
        core.claims = claims
        if queues is not None:
            queues.input.on_put = _Inlet(core)
        if core.append_now is not None:
            if core.setup.mode == "resume":
                await prepare(core)
            self._begin(core, owner)
            return
        keeper = core.keeper = LeaseKeeper(core)
        await keeper.open()
        try:
            if core.setup.mode == "resume":
                await prepare(core)
        except BaseException:
            await keeper.release()
            raise
        self._begin(core, owner)

    def _begin(self, core: Core, owner: TaskOwner) -> None:
        """The session is claimed: from here on there is a run, and it ends in order."""
        self._core = core
        core.begin()
        self._register(self.session_id, self)
        guard = RunGuard(core)
        core.watchdog.on_deaf = guard.left_deaf
        core.main = owner.spawn(run_main, core)
        core.main.on_done.append(guard.main_is_done)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        core = self._running()
        swallowed = await end_run(core, "the stream was closed by its reader")
        core.queue.discard()
        if self._owns_tasks:
            assert self._owner is not None
            await self._owner.close()
        if swallowed and error is None:
            import asyncio

            raise asyncio.CancelledError

    def _running(self) -> Core:
        if self._core is None:
            raise AgentProtocolError("the run has not started; use `async with agent.stream(...) as run:` first")
        return self._core

    # ---- reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        # The queue itself, where nothing is to be done for each event: a call more would be a tenth of what it costs.
        if self._core is None or self._runtime is not None:
            return self
        return self._core.queue

    def __anext__(self) -> Coroutine[Any, Any, Event]:
        core = self._core
        if core is None:
            return self._first()
        return core.queue.__anext__()

    async def _first(self) -> Event:
        if self._runtime is None:
            self._running()
        await self.__aenter__()
        return await self._running().queue.__anext__()

    async def wait(self) -> RunResult[Oc]:
        """Read to the end without looking, and return the result. The run does not wait for anybody any more.

        Raises:
            RunCancelledError: the run was stopped.
            PluginError: a `strict` plugin failed; `.result` has the result.
            Exception: what made the run fail, the original object.
        """
        core = self._running()
        if not core.finished:
            core.silent = True
            core.pending.clear()
            core.queue.discard()
            self._resolve_unanswerable(core)
            while not core.finished:
                waiter = new_waiter()
                core.end_waiters.append(waiter)
                await waiter.wait()
        if core.fatal is not None:
            raise core.fatal
        if core.strict_error is not None and core.status == "completed":
            raise core.strict_error from core.strict_error.__cause__
        if core.status != "completed":
            assert core.cause is not None
            raise core.cause
        return self.result

    def _resolve_unanswerable(self, core: Core) -> None:
        """Nobody sees questions from now on: those nobody else answers are closed."""
        if core.queues is not None:
            return
        for one in _with_children(core):
            if answerer_of(one) is not None:
                continue
            for entry in list(one.questions.values()):
                entry.value = NoAnswererError(
                    f"nobody can answer {entry.question.prompt[:80]!r}: the stream is not read any more"
                )
                one.setup.desk.withdraw(entry)
            one.notice()

    async def text(self) -> AsyncIterator[str]:
        """Only the text of the answer, as it arrives. Read to the end; errors come as from the stream itself."""
        async for event in self:
            if event.type == "text_delta":
                yield event.text

    async def forward(self, sink: EventSink[Event]) -> RunResult[Oc]:
        """Publish every event to `sink`, and return when the last was written or the sink is closed.

        A sink that fails ends the run FAILED with its error; look at `result.status`.

        Raises:
            EventSinkClosed: the run had ended, and its last event could not be written.
        """
        core = self._running()
        core.queue.let_others_run(core.timers.now)
        while True:
            try:
                event = await self.__anext__()
            except StopAsyncIteration:
                break
            except Exception:
                if not core.finished:
                    raise
                break  # how the run ended is in the result, and was published
            try:
                await sink.publish(event)
            except EventSinkClosed as error:
                await checkpoint_if_cancelled()  # one cancel may have ended the writer and be on its way here, too
                core.queue.fail_now(error)
                while not core.finished:
                    waiter = new_waiter()
                    core.end_waiters.append(waiter)
                    await waiter.wait()
                if core.cause is not error:
                    raise  # the run had ended before: its status stands, and the caller must know
                return self.result
        await sink.wait()
        if sink.error is not None:
            # The run had ended before its last event could be written: the status stands, the caller must know.
            raise EventSinkClosed("the last event of the run could not be written") from sink.error
        return self.result

    # ---- looking -----------------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._running().run_id

    @property
    def state(self) -> AgentState:
        """The run's phase; read-only."""
        return (AgentState() if self._core is None else self._core.state).read_only()

    @property
    def queues(self) -> RuntimeQueues:
        """The run's three lanes."""
        core = self._running()
        if core.queues is None:
            core.queues = RuntimeQueues(output=core.queue)
            core.queues.input.on_put = _Inlet(core)
        return core.queues

    @property
    def result(self) -> RunResult[Oc]:
        """How the run ended.

        Raises:
            AgentProtocolError: it has not ended yet.
        """
        core = self._running()
        if core.result is None or not core.finished:
            raise AgentProtocolError("the run has not ended; read the stream to its end, or await run.wait()")
        return core.result

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that are open now, with those of child runs."""
        return tuple(entry.question for entry in _asked(self._running()))

    # ---- from outside, any thread ------------------------------------------------------------------------------------

    def reply(self, question_id: str, payload: JsonValue) -> Receipt:
        """Answer a question of this run. From any thread; returns what became of the reply."""
        core = self._running()
        return core.setup.desk.reply(root_of(core).session_id, question_id, payload)

    def steer(self, text: str) -> None:
        """Say something while the run works; it is heard at the next boundary.

        Raises:
            AgentProtocolError: the run has ended.
        """
        self._say(text, "steering")

    def follow_up(self, text: str) -> None:
        """Say something to be heard after the answer.

        Raises:
            AgentProtocolError: the run has ended.
        """
        self._say(text, "follow_up")

    def _say(self, text: str, origin: Any) -> None:
        core = self._running()
        refuse_if_deaf(core)
        message = UserMessage(id=new_id(), parts=(TextPart(text=clean_text(text)),), origin=origin)
        accept(core, message)
        core.notice()

    def stop(self, reason: str = "stopped by the caller") -> None:
        """Stop at the next boundary. From any thread; does not wait. Read on to see how it ends."""
        self._running().request_stop(reason)

    async def suspend(self) -> None:
        """Stop for a restart: nothing of the stored checkpoint is settled, open questions stay stored. Waits."""
        core = self._running()
        if not core.settled:  # what has ended has ended; a suspension stops only what goes on
            for one in _with_children(core):  # what has begun in them is left in their stores as well
                one.suspended = not one.settled
        core.close_reason = core.close_reason or "suspended"
        await self._close("suspended")

    async def close(self) -> None:
        """Stop now, and wait until nothing of the run is left.

        Raises:
            AgentProtocolError: called from inside the run, which would wait for itself; use `run.stop` there.
        """
        await self._close("closed by the caller")

    async def _close(self, reason: str) -> None:
        core = self._running()
        clock = current_clock.get(None)
        if clock is not None and clock.watchdog is core.watchdog and not core.finished:
            raise AgentProtocolError("close() inside a run would wait for itself; use run.stop(reason)")
        if await end_run(core, reason):
            import asyncio

            raise asyncio.CancelledError


def _with_children(core: Core) -> list[Core]:
    """A run and all that go on inside it, the outer ones first."""
    found = [core]
    for one in found:
        found.extend(tuple(one.children))
    return found


def _asked(core: Core) -> list[OpenQuestion]:
    """What is open of a run and of those inside it: whoever reads its stream is asked all of it."""
    return [entry for one in _with_children(core) for entry in tuple(one.questions.values())]


class _Inlet:
    """Looks at every item put on the input lane: results and replies go to whoever waits, messages stay."""

    def __init__(self, core: Core) -> None:
        self._core = weakref.ref(core)

    def __call__(self, item: Any) -> None:
        core = self._core()
        if core is None or core.queues is None:
            return
        if isinstance(item, UserMessage):
            accept_queued(core, item)
            core.notice()
            return
        core.queues.input.remove(item)
        session = root_of(core).session_id
        if isinstance(item, ToolResult):
            receipt = core.setup.desk.reply(session, item.call_id, item, inside=True)  # type: ignore[arg-type]
        else:
            receipt = core.setup.desk.reply(session, item.question_id, item.payload, inside=True)
        if receipt.status != "accepted":
            reasons = f": {'; '.join(receipt.reasons)}" if receipt.reasons else ""
            raise AgentProtocolError(f"the input lane did not take {type(item).__name__}: {receipt.status}{reasons}")


def _refuse_async_generators() -> None:
    """A nursery or a task that outlives a half-read generator cannot be kept in order: refuse to start there."""
    # CO_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR: frames of the awaiting chain.
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_flags & 0x3A0:
        caller = frame.f_back
        if frame.f_code.co_flags & 0x200 and not (
            caller is not None and caller.f_code.co_filename == _contextlib_file()
        ):
            raise AgentProtocolError(
                f"agent.stream() was entered inside the async generator {frame.f_code.co_qualname!r}, which may be "
                "dropped half-way; use `async with agent.runtime() as rt:` outside and `rt.stream(...)` in it"
            )
        if caller is None:
            return
        frame = caller


def _contextlib_file() -> str:
    import contextlib

    return contextlib._AsyncGeneratorContextManager.__aenter__.__code__.co_filename


# ---- the runtime -----------------------------------------------------------------------------------------------------

_LOOKS = 4  # so often in `abandoned_seconds` streams are looked at: one is stopped so much later at most


class Runtime:
    """Owns the tasks of runs whose streams are read by a bare `async for`, as web handlers do.

    A stream that is dropped is stopped; one that is kept but not read for `abandoned_seconds`, or up to a quarter
    longer, is stopped too, unless a question of it is open. Leaving the runtime stops all.
    """

    def __init__(self, make: Callable[..., RunStream[Any]], abandoned_seconds: float) -> None:
        self._make = make
        self._abandoned_seconds = abandoned_seconds
        self._owner: TaskOwner | None = None
        self._cores: set[Core] = set()
        self._timer: Any = None  # of the next look at all of them

    async def __aenter__(self) -> Self:
        self._owner = TaskOwner()
        await self._owner.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._owner is not None
        cores = list(self._cores)
        for core in cores:
            core.end_now("its runtime was left")
        swallowed = 0
        for core in cores:
            swallowed += await end_run(core, "its runtime was left")
        await self._owner.close()
        self._owner = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if swallowed:
            import asyncio

            raise asyncio.CancelledError

    def stream(self, *args: Any, **options: Any) -> RunStream[Any]:
        """Like `Agent.stream`; iterate it at once, or use it as an `async with`.

        Raises:
            AgentProtocolError: the runtime is not entered.
        """
        if self._owner is None:
            raise AgentProtocolError("use `async with agent.runtime() as rt:` and rt.stream(...) inside it")
        stream = self._make(*args, **options)
        stream._runtime = self
        return stream

    def _watch(self, core: Core) -> None:
        """A run of this runtime begins: stop it if nobody reads it."""
        self._cores.add(core)
        core.watched_by = self._cores
        if self._timer is None:
            self._look_later(core.timers)

    def _look_later(self, timers: Timers) -> None:
        # Looking now and then, at all of them, spares every event the note that it was read and every run a timer.
        when = timers.now() + max(self._abandoned_seconds / _LOOKS, 0.001)
        self._timer = timers.call_at(when, partial(self._look, timers))

    def _look(self, timers: Timers) -> None:
        self._timer = None
        for core in tuple(self._cores):
            taken = core.queue.taken
            if core.taken_before != taken or core.queue.empty or _asked(core):
                core.taken_before, core.idle_looks = taken, 0
                continue
            core.idle_looks += 1
            if core.idle_looks >= _LOOKS:
                core.end_now(f"its stream was not read for {self._abandoned_seconds:g} s")
        if self._cores:
            self._look_later(timers)


def _stop_dropped(core: Core) -> None:
    core.end_now("its stream was dropped")
