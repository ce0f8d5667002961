"""Trilane under the harness: scenarios as agents, runs as subjects."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

from trilane import Agent, EventSink, InMemoryStore, Limits, Tool, ToolContext
from trilane.messages import Message
from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.stores import Lease, SessionPage, SessionRecord, SessionView
from trilane.testing.models import ScriptedModel

from .adapter import Backend, Evidence
from .plugins import Closer
from .promises import StageMemory, keep, told_of
from .scenario import At, Play, Scenario, ScriptedTool
from .stage import HOLD_SECONDS, Injected, Stage

__all__ = ["GRACE_SECONDS", "LIMITS", "StageModel", "StageStore", "TrilaneAdapter", "TrilaneSubject"]

GRACE_SECONDS = 1.5
LIMITS = Limits(run_seconds=60, model_seconds=20, store_seconds=4, reply_seconds=10)
SESSION = "faults"


class TrilaneAdapter:
    """Trilane itself."""

    name = "trilane"
    backends: Sequence[Backend] = ("asyncio", "trio")
    features: Mapping[str, bool] = {
        "limits": True,
        "close": True,
        "stop": True,
        "suspend": True,
        "hooks": True,
        "store": True,
        "questions": True,
        "steering": True,
        "sink": True,
        "runtime": True,
        "children": True,
        "processes": True,
        "threads": True,
        "structured": True,
    }

    def open(self, scenario: Scenario, stage: Stage) -> TrilaneSubject:
        """Make agent, model and tools for one case."""
        return TrilaneSubject(scenario, stage)


class StageModel(ScriptedModel):
    """A scripted model with points before and after its answer, and before each delta."""

    def __init__(self, stage: Stage, script: Sequence[Any], name: str = "scripted") -> None:
        super().__init__(*script, name=name)
        self._stage = stage
        self.histories: list[tuple[Message, ...]] = []

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        stage = self._stage
        stage.begin("model")
        self.histories.append(tuple(request.messages))
        await stage.call("model.start")

        async def watched(delta: Any) -> None:
            await emit(delta)
            await stage.call("model.delta")

        response = await super().call(request, watched)
        await stage.call("model.end")
        return response


class StageStore:
    """A store that has to be waited for, with a point at each call. It keeps its sessions in memory."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._memory = InMemoryStore()
        self.held: set[str] = set()

    @asynccontextmanager
    async def lease(self, session: str, *, ttl_seconds: float) -> AsyncIterator[Lease]:
        """The right to append."""
        await self._stage.call("store.lease")
        async with self._memory.lease(session, ttl_seconds=ttl_seconds) as lease:
            self.held.add(session)
            try:
                yield _Checked(lease)
            finally:
                self.held.discard(session)
                await self._stage.call("store.release")

    async def load(self, session: str, *, after: int = 0, limit: int | None = None) -> SessionPage:
        """Records after a version."""
        await self._stage.call("store.load")
        return await self._memory.load(session, after=after, limit=limit)

    async def append(
        self, session: str, records: Sequence[SessionRecord], *, expected_version: int, lease: Lease
    ) -> int:
        """Add all records or none."""
        self._stage.begin("store.append")
        await self._stage.call("store.append")
        version = await self._memory.append(session, records, expected_version=expected_version, lease=lease)
        keep(self._stage, records)
        await self._stage.call("store.appended")
        return version


class _Checked:
    """A lease that can be taken back."""

    def __init__(self, lease: Lease) -> None:
        self.session = lease.session
        self.is_valid = True

    def invalidate(self) -> None:
        """No append is accepted any more."""
        self.is_valid = False


class TrilaneSubject:
    """One scenario as an agent of Trilane."""

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self.scenario = scenario
        self.stage = stage
        self.parts = scenario.play(stage)
        self.store: Any = StageMemory(stage) if self.parts.store == "memory" else StageStore(stage)
        self.models: list[StageModel] = []
        self.model = StageModel(stage, self.parts.script)
        self.run: Any = None  # while the caller has it
        self.state: Any = None
        self.result: Any = None
        self.result_run_id = ""
        self.agent: Any = self._agent(self.parts, self.model)

    def _agent(self, play: Play, model: StageModel, name: str = "agent") -> Agent[Any, Any]:
        self.models.append(model)
        tools = [_tool(self.stage, tool) for tool in play.tools]
        for tool_name, child in play.child.items():
            inner = self._agent(child, StageModel(self.stage, child.script, name=tool_name), name=tool_name)
            tools.append(inner.as_tool(name=tool_name, description="Asks another agent."))
        options = {"limits": LIMITS, "hook_timeout": 5.0, "grace_seconds": GRACE_SECONDS, **play.options}
        plugins = list(play.plugins) if name != "agent" or play.plugins else [Closer(self.stage, "closer")]
        return Agent(model, name=name, tools=tools, plugins=plugins, store=self.store, **options)

    # ---- the caller ------------------------------------------------------------------------------------------------

    async def play(self, evidence: Evidence) -> None:
        """Be the caller."""
        try:
            await getattr(self, f"_play_{self.scenario.mode}")(evidence)
        finally:
            if self.state is not None:  # looked at in the very step in which the caller is back
                evidence.phase = self.state.phase.value

    @property
    def _options(self) -> dict[str, Any]:
        return {"session": SESSION, **self.parts.run_options}

    async def _play_run(self, evidence: Evidence) -> None:
        self.result = await self.agent.run("Go on.", **self._options)

    async def _play_stream(self, evidence: Evidence) -> None:
        async with self.agent.stream("Go on.", **self._options) as run:
            self._hold(run)
            try:
                async for event in run:
                    if await self._look(event, run, evidence):
                        break
                else:
                    evidence.read_to_end = True
            except Exception as error:
                evidence.read_to_end = error is not self.stage.injected or self.stage.fault != "consumer_raise"
                raise
            finally:
                self.stage.leave()

    async def _play_runtime(self, evidence: Evidence) -> None:
        async with self.agent.runtime(abandoned_seconds=30.0) as runtime:
            await self._read_bare(runtime, evidence)
            if self.stage.fired and self.stage.fault in ("drop", "close"):
                for _ in range(200):
                    if self.state.is_terminal:
                        break
                    assert self.stage.sleep is not None
                    await self.stage.sleep(0.05)

    async def _read_bare(self, runtime: Any, evidence: Evidence) -> None:
        stream = runtime.stream("Go on.", **self._options)
        try:
            async for event in stream:
                self._hold(stream)
                if await self._look(event, stream, evidence):
                    self.run = None  # nobody holds the stream any more
                    break
            else:
                evidence.read_to_end = True
        except Exception as error:
            evidence.read_to_end = error is not self.stage.injected or self.stage.fault != "consumer_raise"
            raise
        finally:
            self.stage.leave()

    async def _play_sink(self, evidence: Evidence) -> None:
        import anyio

        problem: list[BaseException] = []
        sink: EventSink[Any] = EventSink(self._writer(evidence), capacity=2, write_seconds=3.0)

        async def write_out() -> None:
            try:
                await sink.run()
            except KeyboardInterrupt as error:  # leaves the program, but in order
                problem.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(write_out)
            try:
                async with self.agent.stream("Go on.", **self._options) as run:
                    self._hold(run)
                    self.result = await run.forward(sink)
            except (Exception, KeyboardInterrupt) as error:  # raised below as it is, not in a group
                problem.append(error)
            finally:
                sink.close()
        if problem:
            raise problem[0]

    def _writer(self, evidence: Evidence) -> Any:
        kind = self.parts.sink

        async def write(event: Any) -> None:
            evidence.events.append(event)
            self.stage.tell("the consumer", told_of(event))
            count = len(evidence.events)
            assert self.stage.sleep is not None
            await self.stage.call("sink.write")
            if kind == "slow":
                await self.stage.sleep(0.2)
            if kind == "failing" and count == 7:
                raise ConnectionResetError("the peer has closed the connection")
            if kind == "vanishing" and count == 7:
                await self.stage.sleep(1e6)

        return write

    def _hold(self, run: Any) -> None:
        if self.run is None:
            self.run = run
            self.state = run.state
            self.result_run_id = run.run_id

    async def _look(self, event: Any, run: Any, evidence: Evidence) -> bool:
        """One event: let the fault strike, let the scenario react, and say whether the consumer leaves."""
        stage = self.stage
        evidence.events.append(event)
        stage.tell("the consumer", told_of(event))
        strikes = stage.see(event)
        if event.type in ("run_completed", "run_failed", "run_cancelled"):
            self.result = event.result
        if strikes:
            if stage.fault == "consumer_raise":
                stage.injected = Injected("the consumer's own error")
                raise stage.injected
            if stage.fault in ("close", "drop"):
                return True
            assert stage.sleep is not None
            await stage.sleep(HOLD_SECONDS)
        if self.parts.react is not None:
            done = self.parts.react(run, event)
            if isawaitable(done):
                await done
        assert stage.checkpoint is not None
        await stage.checkpoint()
        stage.move_on()
        return False

    # ---- from another task -----------------------------------------------------------------------------------------

    def _handle(self) -> Any:
        """The stream of the run, as another task finds it; a caller of `agent.run` has none itself."""
        if self.run is None:
            run = self.agent.active(SESSION)
            if run is not None and self.scenario.mode == "run":
                self._hold(run)
            return run
        return self.run

    async def close(self) -> None:
        """End the run from another task."""
        run = self._handle()
        if run is not None:
            await run.close()

    def stop(self) -> None:
        """Ask the run to end at the next boundary."""
        run = self._handle()
        if run is not None:
            run.stop("stopped by the harness")

    async def suspend(self) -> None:
        """End the run so that another process can go on with it."""
        run = self._handle()
        if run is not None:
            await run.suspend()

    # ---- afterwards ------------------------------------------------------------------------------------------------

    async def testify(self, evidence: Evidence) -> None:
        """Fill in what the run says, and try the session with another run."""
        self._take_result(evidence)
        memory = self.store if self.parts.store == "memory" else self.store._memory
        page = await memory.load(SESSION)
        view = SessionView()
        for record in page.records:
            view.apply(record)
        view.close()
        raw = SessionView()  # with what was hidden or compacted
        for record in page.records:
            if record.kind not in ("message_hidden", "view_replaced"):
                raw.apply(record)
        raw.close()
        evidence.messages = tuple(view.log)
        evidence.told = self.result.messages if self.result is not None else None
        evidence.kept = (*(evidence.told or ()), *raw.log)
        evidence.requests = tuple(history for model in self.models for history in model.histories)
        evidence.open_questions = len(self.agent.questions(SESSION))
        if self.result is not None and self.result.stop_reason == "suspended":
            asked = [record.question.id for record in page.records if record.kind == "question"]
            closed = {record.question_id for record in page.records if record.kind == "question_closed"}
            evidence.stored_questions = [one for one in asked if one not in closed]
        counting = [plugin.name for plugin in self.parts.plugins if isinstance(plugin, Closer)]
        evidence.plugins = tuple(counting if self.parts.plugins else ["closer"])
        await self._run_again(evidence)
        if self.parts.store == "slow" and self.store.held:
            evidence.alive += ("the lease of the session is still held",)
        self._free(evidence)

    def _take_result(self, evidence: Evidence) -> None:
        run = self.run
        if self.result is None and run is not None and run.state.is_terminal:
            self.result = run.result
        if self.result is None:
            self.result = getattr(evidence.error, "result", None)
        result = self.result
        if result is not None:
            evidence.status = result.status
            evidence.run_id = result.run_id
            evidence.run_error = result.error
            evidence.abandoned = tuple(call.id for call in result.abandoned)
            store_error = (result.store_error,) if result.store_error is not None else ()
            evidence.reported = (*(failure.error for failure in result.hook_failures), *store_error)

    async def _run_again(self, evidence: Evidence) -> None:
        # Steering that came too late is heard now, so there may be more than one answer.
        model = StageModel(self.stage, ["Still here."] * 4)
        closed, ended = self.stage.closed.copy(), list(self.stage.ended)
        try:
            again = await self.agent.run("And now?", session=SESSION, model=model, output_type=str)
        except Exception as error:
            evidence.next_outcome = f"{type(error).__name__}: {error}"
        else:
            evidence.next_outcome = again.status
        evidence.requests = (*evidence.requests, *model.histories)
        self.stage.closed, self.stage.ended = closed, ended

    def _free(self, evidence: Evidence) -> None:
        """The agent and its run must go away when nobody holds them."""
        evidence.watched = {"agent": weakref.ref(self.agent), "model": weakref.ref(self.model)}
        if self.run is not None:
            evidence.watched["run"] = weakref.ref(self.run)
        self.agent = self.run = self.result = None
        self.models.clear()


def _tool(stage: Stage, tool: ScriptedTool) -> Tool:
    if tool.in_thread:

        def in_thread(context: ToolContext[Any], n: int = 0) -> Any:
            return tool.work(_at(stage, tool, context, n))

        function: Any = in_thread
    else:

        async def on_loop(context: ToolContext[Any], n: int = 0) -> Any:
            return await tool.work(_at(stage, tool, context, n))

        function = on_loop
    # As objects, not as texts: those would be compiled for each tool of each case.
    function.__annotations__ = {"context": ToolContext[Any], "n": int, "return": Any}
    options: dict[str, Any] = {"parallel": tool.parallel, "approval": tool.approval}
    if tool.timeout is not None:
        options["timeout"] = tool.timeout
    return Tool.from_function(function, name=tool.name, description=f"The tool {tool.name}.", **options)


def _at(stage: Stage, tool: ScriptedTool, context: ToolContext[Any], n: int) -> At:
    async def ask(prompt: str, timeout: float | None) -> str:
        return await context.ask(prompt, str, timeout=timeout)

    async def process(argv: Sequence[str]) -> str:
        return (await context.run_process(argv)).stdout

    return At(
        stage=stage,
        call_id=context.call.id,
        name=tool.name,
        arguments={"n": n},
        progress=context.progress,
        ask=ask,
        process=process,
    )
