"""Random runs against a small model of what must hold: one end, the right one, every call answered, the session free.

A program says what the model and its tools do, which hook fails, and what the caller does at which event. A program
that fails is printed, shrunk; `derandomize` makes every session play the same ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilane import Agent, AgentPhase, hookimpl, tool
from trilane.events import PhaseTransitionEvent
from trilane.messages import AssistantMessage, ToolMessage
from trilane.testing import FunctionModel, ScriptedModel, Step, assert_history, call, no_leaks, run_virtual
from trilane.testing.clock import Backend

PROGRAMS = settings(
    max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, print_blob=True
)

FATAL_HOOKS = ("on_state", "before_run", "before_turn", "on_model_request", "on_answer")
OTHER_HOOKS = ("decide_tool", "before_tool", "after_tool", "after_model", "after_turn", "on_success", "on_error")
LAST_HOOKS = ("after_run", "on_cancel", "close_run")
TOOLS = ("quick", "slow", "broken", "fatal", "approved", "deaf_once")
ACTIONS = ("stop", "close", "leave", "cancel", "cancel_twice", "steer", "follow_up", "linger")


class Expected:
    """What must come of a run, from what really happened to it and in which order."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []  # that nobody contains
        self.finished: dict[str, str] = {}  # the real results of tools
        self.stopped = self.interrupted = False

    def fail(self, text: str) -> BaseException:
        error = ValueError(text)
        self.raised.append(error)
        return error

    def statuses(self) -> set[str]:
        """A cancel wins over every error, an error over a stop that waits for its boundary."""
        if self.interrupted:
            return {"cancelled"}
        if self.stopped:
            return {"cancelled", "failed"} if self.raised else {"cancelled"}
        return {"failed"} if self.raised else {"completed"}


class Counter:
    """Counts what may come only once."""

    name = "counter"

    def __init__(self) -> None:
        self.terminals: list[AgentPhase] = []
        self.closed = 0

    @hookimpl
    def on_event(self, notification: Any) -> None:
        if isinstance(notification, PhaseTransitionEvent) and notification.phase.is_terminal:
            self.terminals.append(notification.phase)

    @hookimpl
    def close_run(self) -> None:
        self.closed += 1


class Watcher:
    """Fails in one hook."""

    name = "watcher"

    def __init__(self, failing: str, expected: Expected) -> None:
        self.failing = failing
        self.expected = expected

    def called(self, hook: str) -> None:
        if hook == self.failing:
            raise self.expected.fail(hook) if hook in FATAL_HOOKS else ValueError(hook)


def _failing_in(hook: str) -> Callable[..., Any]:
    @hookimpl
    async def fail(self: Watcher) -> None:
        self.called(hook)

    fail.__name__ = hook
    return fail


for _hook in (*FATAL_HOOKS, *OTHER_HOOKS, *LAST_HOOKS):
    setattr(Watcher, _hook, _failing_in(_hook))


class World:
    """The agent of one program."""

    def __init__(self, steps: list[list[str]], fails: bool, failing: str) -> None:
        self.expected = expected = Expected()
        self.watcher = Watcher(failing, expected)
        self.counter = Counter()
        self.steps = [list(step) for step in steps]
        self.fails = fails
        self.agent: Agent[None, str] = Agent(
            FunctionModel(self.answer), tools=self.tools(), plugins=[self.watcher, self.counter], grace_seconds=1.5
        )

    async def answer(self, request: Any, emit: Any) -> Any:
        if self.steps:
            names = self.steps.pop(0)
            calls = [call(name, key=f"{request.turn}.{number}") for number, name in enumerate(names)]
            return await ScriptedModel(Step("I look.", calls=calls)).call(request, emit)
        if self.fails:
            raise self.expected.fail("model")
        return await ScriptedModel("That is all.").call(request, emit)

    def tools(self) -> list[Any]:
        expected = self.expected

        def done(key: str) -> str:
            expected.finished[key] = f"result of {key}"
            return expected.finished[key]

        async def quick(key: str) -> str:
            return done(key)

        async def slow(key: str) -> str:
            await anyio.sleep(1)
            return done(key)

        async def deaf_once(key: str) -> str:
            try:
                await anyio.sleep(2)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.1)
                raise
            return done(key)

        async def broken(key: str) -> str:
            raise ValueError("a tool's own error")

        async def fatal(key: str) -> str:
            raise expected.fail("fatal tool")

        async def approved(key: str) -> str:
            return done(key)

        described = [(quick, {}), (slow, {}), (deaf_once, {}), (broken, {})]
        described += [(fatal, {"on_error": "raise"}), (approved, {"approval": True})]
        for function, _ in described:
            function.__doc__ = "Do it.\n\nArgs:\n    key: Of the call."
        return [tool(**options)(function) for function, options in described]


class Play:
    """One caller of one run."""

    def __init__(self, world: World, actions: list[tuple[int, str]], approves: bool) -> None:
        self.world = world
        self.actions = dict(actions)
        self.approves = approves
        self.run: Any = None
        self.ends: list[str] = []
        self.read_on = False
        self.cancel: Callable[[], None] = lambda: None
        self.again = 0

    async def call(self) -> None:
        async with self.world.agent.stream("Go", session="s") as run:
            self.run = run
            position = 0
            async for event in run:
                if event.type in ("run_completed", "run_failed", "run_cancelled"):
                    self.ends.append(event.type)
                if event.type == "reply_requested":
                    run.reply(event.question.id, {"approve": "perhaps"})
                    receipt = run.reply(event.question.id, {"approve": self.approves})
                    assert receipt.status in ("accepted", "expired"), receipt
                if await self.act(self.actions.get(position, "")):
                    return
                position += 1
            self.read_on = True

    async def act(self, action: str) -> bool:
        """Do it; True to leave the stream."""
        run, expected = self.run, self.world.expected
        open_ended = not run.state.is_terminal
        if action == "stop":
            run.stop("enough")
            expected.stopped = expected.stopped or open_ended
        elif action in ("close", "leave", "cancel", "cancel_twice"):
            expected.interrupted = expected.interrupted or open_ended
            if action == "close":
                await run.close()
            elif action == "leave":
                return True
            else:
                self.again = action == "cancel_twice"
                self.cancel()
                await anyio.lowlevel.checkpoint()
        elif action in ("steer", "follow_up") and open_ended:
            getattr(run, action)("One more thing.")
        elif action == "linger":
            await anyio.sleep(1.5)
        return False


async def on_asyncio(play: Play, gap: int) -> BaseException | None:
    task = asyncio.ensure_future(play.call())
    play.cancel = task.cancel
    asked = 0
    while not task.done():
        if play.again and asked <= gap:
            asked += 1
            if asked == gap:
                task.cancel()
        # The last of the steps it may take until something happens to it by itself.
        await (asyncio.sleep(0) if asked < gap and play.again else asyncio.wait([task], timeout=0.01))
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def on_trio(play: Play, _gap: int) -> BaseException | None:
    with anyio.CancelScope() as outer, anyio.CancelScope() as scope:

        def cancel() -> None:
            scope.cancel()
            if play.again:
                outer.cancel()

        play.cancel = cancel
        try:
            await play.call()
        except Exception as error:
            return error
    return None


async def one_run(backend: Backend, program: dict[str, Any]) -> str:
    world = World(program["steps"], program["fails"], program["hook"])
    play = Play(world, program["actions"], program["approves"])
    async with no_leaks():
        error = await (on_asyncio if backend == "asyncio" else on_trio)(play, program["gap"])
    check(world, play, error)
    world.watcher.failing = ""
    following = await world.agent.run("Next", session="s", model=ScriptedModel("Fine."))
    assert following.output == "Fine."
    assert_history(following.messages)
    return str(play.run.result.status)


def check(world: World, play: Play, error: BaseException | None) -> None:
    assert not isinstance(error, BaseExceptionGroup | AssertionError), error
    result, expected = play.run.result, world.expected
    assert result.status in expected.statuses(), (result.status, expected.statuses(), result.error)
    phase = AgentPhase(result.status)
    assert play.run.state.phase is phase
    assert world.counter.terminals == [phase], "a run has one end"
    assert world.counter.closed == 1
    assert play.ends == ([f"run_{result.status}"] if play.read_on or play.ends else [])
    if result.status == "failed":
        assert result.error is expected.raised[0], "the first error is the one that is told"
    assert_history(result.messages)
    asked = [one for message in result.messages if isinstance(message, AssistantMessage) for one in message.calls]
    told = {
        one.call_id: one for message in result.messages if isinstance(message, ToolMessage) for one in message.results
    }
    assert sorted(told) == sorted(one.id for one in asked)
    for one in asked:
        real = expected.finished.get(str(one.arguments["key"]))
        assert real is None or told[one.id].content == real, "a finished tool's result is lost"
        assert real is not None or told[one.id].outcome != "ok"


programs = st.fixed_dictionaries(
    {
        "steps": st.lists(st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3), max_size=2),
        "fails": st.sampled_from([False, False, False, True]),
        "hook": st.sampled_from(["", "", "", *FATAL_HOOKS, *OTHER_HOOKS, *LAST_HOOKS]),
        "actions": st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ACTIONS)), max_size=3),
        "approves": st.booleans(),
        "gap": st.integers(1, 12),
    }
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_r24_r87_r90_random_runs_end_as_the_model_says(backend: Backend) -> None:
    seen: set[str] = set()

    @PROGRAMS
    @given(program=programs)
    def play(program: dict[str, Any]) -> None:
        seen.add(run_virtual(one_run, backend, program, backend=backend))

    play()
    assert seen == {"completed", "failed", "cancelled"}, "the programs do not reach every end"
