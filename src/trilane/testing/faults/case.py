"""One case: a scenario, a fault, a point, a backend. It is played in virtual time in an event loop of its own.

The invariants are in `invariants.py`; which cases there are is in `matrix.py`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trilane.testing.clock import virtual_backend
from trilane.testing.leaks import snapshot

from .adapter import Adapter, Backend, Evidence, Subject
from .meter import TrioMeter, count_asyncio_steps
from .outside import LEFT_SECONDS, Outside
from .scenario import Scenario
from .stage import HANG_SECONDS, Stage

__all__ = ["Case", "Played", "play"]

GIVE_UP_SECONDS = 5000.0  # virtual: a call that takes longer has hung
FAULTS_THAT_CANCEL = frozenset({"cancel_once", "cancel_twice", "hang_cancel", "swallow"})


@dataclass(frozen=True, slots=True)
class Case:
    """What is played. Its text is the command that plays it again."""

    scenario: str
    fault: str
    point: int
    backend: Backend
    gap: int = 1
    seed: int = 0

    def command(self, adapter: str = "") -> str:
        """The command line that reproduces it."""
        parts = [f"python -m trilane.testing.faults --scenario {self.scenario}"]
        if self.fault:
            parts.append(f"--point {self.point} --fault {self.fault}")
        if self.fault == "cancel_twice":
            parts.append(f"--gap {self.gap}")
        parts.append(f"--backend {self.backend} --seed {self.seed}")
        if adapter:
            parts.append(f"--adapter {adapter}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Played:
    """A case after it was played."""

    case: Case
    scenario: Scenario
    stage: Stage
    evidence: Evidence


def play(case: Case, scenario: Scenario, adapter: Adapter) -> Played:
    """Play a case and return what is known about it."""
    stage = Stage(fault=case.fault, point=case.point, gap=case.gap)
    evidence = Evidence()
    with _listening(evidence), _with_outside(stage, scenario):
        driver = _AsyncioDriver if case.backend == "asyncio" else _TrioDriver
        try:
            driver(stage, evidence).run(scenario, adapter, case.seed)
        except BaseException as error:
            if stage.injected is None or not _comes_from(error, stage.injected):
                raise  # not the framework's doing: an error of the harness, or somebody pressed Ctrl-C
            evidence.outcome, evidence.error = "escaped", error
    return Played(case, scenario, stage, evidence)


def _comes_from(error: BaseException, injected: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_comes_from(one, injected) for one in error.exceptions)
    return error is injected


@contextmanager
def _listening(evidence: Evidence) -> Iterator[None]:
    """Collect what the interpreter would print: errors nobody can catch, and warnings such as "never awaited"."""
    heard: list[str] = []

    def unraisable(info: Any) -> None:
        heard.append(f"{info.err_msg or 'unraisable'}: {type(info.exc_value).__name__}: {info.exc_value}")

    before = sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        heard += [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    finally:
        sys.unraisablehook = before
    evidence.complaints += tuple(heard)


@contextmanager
def _with_outside(stage: Stage, scenario: Scenario) -> Iterator[None]:
    """Let virtual time stand while a thread or a process of the case is at work."""
    if not scenario.real:
        yield
        return
    stage.outside = Outside()
    try:
        yield
    finally:
        stage.outside.close()


class _Driver:
    """What is the same on both backends."""

    def __init__(self, stage: Stage, evidence: Evidence) -> None:
        self.stage = stage
        self.evidence = evidence
        self.subject: Any = None

    async def call(self, subject: Subject) -> None:
        """Be the caller, and keep whatever comes out."""
        evidence = self.evidence
        try:
            await subject.play(evidence)
        except BaseException as error:
            # Not the arguments and frames of the next run: the exception is kept as the caller saw it.
            evidence.error = error
            evidence.outcome = "cancelled" if isinstance(error, self.stage.cancelled_types) else "raised"
        finally:
            self.stage.armed = False
            self.stage.over = True
            if self.stage.fired:
                evidence.seconds = self.stage.now() - self.stage.fired_at

    async def helper(self, what: str) -> None:
        """What another task does to the run."""
        try:
            if what in ("close_elsewhere", "hang_close"):
                await self.subject.close()
            elif what == "suspend":
                await self.subject.suspend()
        except BaseException as error:
            self.evidence.helper_error = error

    async def look_for_leaks(self, before: Any, settle: Callable[[], Awaitable[None]]) -> None:
        """Compare with `before`. Tasks must have ended already; threads and files get real time to go."""
        tasks = [text for kind, text in _new(before) if kind == "tasks"]
        outside = self.stage.outside
        if outside is not None:
            outside.release()
        deadline = time.monotonic() + (0.3 if outside is None else LEFT_SECONDS)
        rounds = 0
        while left := self._left(before):
            if time.monotonic() > deadline:
                break
            rounds += 1
            await settle()
            if rounds > 30:
                time.sleep(0.001)  # noqa: ASYNC251  (real time, for threads and processes; virtual time must stand)
        self.evidence.left = (*tasks, *left)

    def _left(self, before: Any) -> list[str]:
        left = [text for kind, text in _new(before) if kind != "tasks"]
        return [*left, *self.stage.outside.left()] if self.stage.outside is not None else left

    @property
    def held(self) -> Callable[[], bool] | None:
        """What virtual time must wait for."""
        return None if self.stage.outside is None else self.stage.outside.held


def _new(before: Any) -> list[tuple[str, str]]:
    now = snapshot()
    return [
        (kind, text)
        for kind, things in now.items()
        for key, text in things.items()
        if key not in before[kind] and f"{__name__}." not in text  # tasks of the harness itself
    ]


# ---- asyncio ---------------------------------------------------------------------------------------------------------


class _AsyncioDriver(_Driver):
    def run(self, scenario: Scenario, adapter: Adapter, seed: int) -> None:
        del seed  # asyncio schedules in a fixed order
        _, options = virtual_backend("asyncio", real_seconds=0.0, held=self.held)
        loop = options["loop_factory"]()
        complaints: list[str] = []
        loop.set_exception_handler(lambda _loop, context: complaints.append(_complaint(context)))
        try:
            loop.run_until_complete(self._drive(loop, scenario, adapter))
        finally:
            try:
                if self.evidence.outcome != "hung":
                    loop.run_until_complete(loop.shutdown_asyncgens())
            finally:
                loop.close()
                self.evidence.complaints += tuple(complaints)

    async def _drive(self, loop: asyncio.AbstractEventLoop, scenario: Scenario, adapter: Adapter) -> None:
        stage, evidence = self.stage, self.evidence
        stage.now, stage.sleep = loop.time, asyncio.sleep
        stage.checkpoint = _asyncio_checkpoint
        stage.cancelled_types = (asyncio.CancelledError,)
        self.subject = subject = adapter.open(scenario, stage)
        count_asyncio_steps(loop, stage.step)
        before = snapshot()
        wanted = asyncio.Event()
        stage.armed = True
        caller = loop.create_task(self._call(subject))
        helper = loop.create_task(self._help(wanted))
        cancels: list[bool] = []

        def cancel() -> None:
            cancels.append(caller.cancel())

        self._connect(cancel, wanted.set, loop)
        await asyncio.wait({caller}, timeout=GIVE_UP_SECONDS)
        if not caller.done():
            evidence.outcome = "hung"
            return
        evidence.cancel_lost = any(cancels) and not self.cancel_arrived
        # A helper that still waits is none of the case's business; one that closes the run must come to an end.
        if not wanted.is_set():
            helper.cancel()
        await asyncio.wait({helper}, timeout=60.0)
        if not helper.done():
            evidence.helper_error = TimeoutError("closing from another task did not return")
        await self.look_for_leaks(before, _asyncio_checkpoint)
        await _bounded_asyncio(subject.testify(evidence), evidence)

    cancel_arrived = False

    async def _call(self, subject: Subject) -> None:
        await self.call(subject)
        try:
            await asyncio.sleep(0)  # where a cancel that came too late for the call is delivered
        except asyncio.CancelledError:
            self.cancel_arrived = True
        if self.evidence.outcome == "cancelled":
            self.cancel_arrived = True

    async def _help(self, wanted: asyncio.Event) -> None:
        await wanted.wait()
        await self.helper(self.stage.fault)

    def _connect(self, cancel: Callable[[], None], want: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        later = want if self.stage.fault == "hang_close" else cancel
        self.stage.actions = {
            "cancel_once": cancel,
            "cancel_twice": cancel,
            "cancel_again": cancel,
            "close_elsewhere": want,
            "suspend": want,
            "stop": lambda: self.subject.stop(),
            "later": lambda: _nothing(loop.call_later(HANG_SECONDS, later)),
        }


async def _asyncio_checkpoint() -> None:
    await asyncio.sleep(0)


async def _bounded_asyncio(testimony: Any, evidence: Evidence) -> None:
    try:
        await asyncio.wait_for(testimony, GIVE_UP_SECONDS)
    except TimeoutError:
        evidence.next_outcome = "it hung"


def _nothing(_value: object) -> None:
    return None


def _complaint(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"event loop: {context.get('message')}" + (f" ({type(error).__name__}: {error})" if error else "")


# ---- trio ------------------------------------------------------------------------------------------------------------


class _TrioDriver(_Driver):
    def run(self, scenario: Scenario, adapter: Adapter, seed: int) -> None:
        import trio

        _, options = virtual_backend("trio", real_seconds=0.0, held=self.held)
        self.meter = TrioMeter(self.stage.step)
        options["instruments"] = [*options["instruments"], self.meter]
        _seed_trio(trio, seed)
        trio.run(self._drive, scenario, adapter, trio, **options)

    async def _drive(self, scenario: Scenario, adapter: Adapter, trio: Any) -> None:
        stage, evidence = self.stage, self.evidence
        # `trio.current_time` is refused in other threads, and tools of a scenario may run in one.
        stage.now, stage.sleep = trio.lowlevel.current_clock().current_time, trio.sleep
        stage.checkpoint = trio.lowlevel.checkpoint
        stage.cancelled_types = (trio.Cancelled,)
        self.meter.ignore.add(trio.lowlevel.current_task())
        self.subject = subject = adapter.open(scenario, stage)
        wanted, done, helped = trio.Event(), trio.Event(), trio.Event()
        first, second, overall = trio.CancelScope(), trio.CancelScope(), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            helper_scope = await nursery.start(self._help, wanted, helped, trio)
            self._connect(first, second, wanted, trio, nursery)
            before = snapshot()
            stage.armed = True
            nursery.start_soon(self._call, subject, (first, second, overall), done, trio)
            with trio.move_on_after(GIVE_UP_SECONDS):
                await done.wait()
            if not done.is_set():
                evidence.outcome = "hung"
                stage.armed = False
                _break_glass(trio)
                return
            if not wanted.is_set():
                helper_scope.cancel()
            with trio.move_on_after(60.0):
                await helped.wait()
            if not helped.is_set():
                evidence.helper_error = TimeoutError("closing from another task did not return")
                helper_scope.cancel()
            await self.look_for_leaks(before, trio.lowlevel.checkpoint)
            with trio.move_on_after(GIVE_UP_SECONDS) as scope:
                await subject.testify(evidence)
            if scope.cancelled_caught:
                evidence.next_outcome = "it hung"
            nursery.cancel_scope.cancel()

    async def _call(self, subject: Subject, scopes: tuple[Any, Any, Any], done: Any, trio: Any) -> None:
        first, second, overall = scopes
        with overall, second, first:
            await self.call(subject)
        done.set()

    async def _help(self, wanted: Any, helped: Any, trio: Any, *, task_status: Any) -> None:
        try:
            with trio.CancelScope() as scope:
                task_status.started(scope)
                await wanted.wait()
                await self.helper(self.stage.fault)
        finally:
            helped.set()

    def _connect(self, first: Any, second: Any, wanted: Any, trio: Any, nursery: Any) -> None:
        async def later() -> None:
            await trio.sleep(HANG_SECONDS)
            if self.stage.fault == "hang_close":
                wanted.set()
            else:
                first.cancel()

        self.stage.actions = {
            "cancel_once": first.cancel,
            "cancel_twice": first.cancel,
            "cancel_again": second.cancel,
            "close_elsewhere": wanted.set,
            "suspend": wanted.set,
            "stop": lambda: self.subject.stop(),
            "later": lambda: nursery.start_soon(later),
        }


def _seed_trio(trio: Any, seed: int) -> None:
    """Make trio's choice between two orders of a batch of tasks repeatable; it is for tests that it has a seed."""
    source = getattr(getattr(trio, "_core", None), "_run", None)
    random = getattr(source, "_r", None)
    if random is not None:
        random.seed(seed)


def _break_glass(trio: Any) -> None:
    """Nothing ends any more: take the shields off every scope there is and cancel it, so that the program goes on."""
    for scope in [thing for thing in gc.get_objects() if isinstance(thing, trio.CancelScope)]:
        scope.shield = False
        scope.cancel()
