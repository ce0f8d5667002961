"""zett-agent under the harness of `trilane.testing.faults`; how to run it is in the README of the benchmarks."""

import json
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType

from zett_agent.agent import AgentRunConfig
from zett_agent.client import create_agent
from zett_agent.extensions.base import AgentExtension
from zett_agent.extensions.memory import InMemoryMessageAccumulator
from zett_agent.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from zett_agent.model import ModelEvent, ModelResponse, RetryOptions, ToolCallDelta
from zett_agent.tools.base import AgentTool, ToolExecutionMode, current_tool_call_id

from trilane import messages as trilane
from trilane.testing.faults import At, Injected
from trilane.testing.faults.stage import HOLD_SECONDS
from trilane.testing.models import Step

SESSION = "faults"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Adapter:
    """Stopping from another task and time limits are not among what it has."""

    name = "zett-agent"
    backends = ("asyncio",)
    features = MappingProxyType({"runtime": True})

    def open(self, scenario, stage):
        return Subject(scenario, stage)


class Model:
    retry = RetryOptions(max_retries=0)

    def __init__(self, stage, script):
        self.stage = stage
        self.script = list(script)
        self.histories = []

    async def stream(self, request):
        stage = self.stage
        stage.begin("model")
        self.histories.append(tuple(translated(request.messages)))
        await stage.call("model.start")
        step = self.script.pop(0)
        step = Step(step) if isinstance(step, str) else step if isinstance(step, Step) else Step(calls=step)
        calls, text, reasoning = [], "", ""
        for part in step.parts or ():
            if part.kind == "tool_call":
                calls.append(part.call)
            elif part.kind == "reasoning":
                reasoning += part.text
            else:
                text += part.text
        for word in reasoning.split(" ") if reasoning else ():
            yield ModelEvent.reasoning(word)
            await stage.call("model.delta")
        for number, word in enumerate(text.split(" ") if text else ()):
            yield ModelEvent.text(f" {word}" if number else word)
            await stage.call("model.delta")
        if step.error is not None:
            raise step.error
        theirs = []
        for index, call in enumerate(calls):
            arguments = call.raw or json.dumps(dict(call.arguments))
            yield ModelEvent.tool_call(ToolCallDelta(index, call.id, call.name, arguments))
            await stage.call("model.delta")
            error = "the arguments are not valid JSON" if call.raw else None
            theirs.append(ToolCall(call.id, call.name, dict(call.arguments), error=error))
        await stage.call("model.end")
        message = AssistantMessage(content=text, reasoning=reasoning or None, tool_calls=tuple(theirs))
        reason = "length" if step.stop_reason == "length" else "tool_calls" if theirs else "stop"
        yield ModelEvent.completed(ModelResponse(message, finish_reason=reason))


class Watcher(AgentExtension):
    """Keeps the state of the run, for its phase."""

    name = "watcher"

    def __init__(self):
        self.state = None

    async def on_state(self, context):
        self.state = context.state


@dataclass
class Seen:
    """An event in the words of the harness."""

    type: str
    phase: str | None
    message_id: str = ""
    text: str = ""
    superseded: bool = False
    call: object = None


class Subject:
    def __init__(self, scenario, stage):
        self.scenario = scenario
        self.stage = stage
        self.parts = scenario.play(stage)
        self.memory = InMemoryMessageAccumulator()
        self.watcher = Watcher()
        self.model = Model(stage, self.parts.script)
        self.client = None
        self.models = 0

    def tool(self, scripted):
        async def handler(n=0, **more):
            at = At(self.stage, current_tool_call_id() or "", scripted.name, {"n": n})
            return await scripted.work(at)

        mode = ToolExecutionMode.PARALLEL if scripted.parallel else ToolExecutionMode.SERIAL
        return AgentTool(scripted.name, "A tool.", SCHEMA, handler, ("Use it.",), execution_mode=mode)

    async def play(self, evidence):
        try:
            self.client = await create_agent(
                self.model,
                tools=[self.tool(one) for one in self.parts.tools],
                extensions=[self.memory, self.watcher],
            )
            if self.scenario.mode == "run":
                await self.client.run("Go on.", config=AgentRunConfig(session_id=SESSION))
            elif self.scenario.mode == "runtime":
                await self.read(evidence, self.stream())
                await self.wait_after_drop()
            else:
                async with aclosing(self.stream()) as events:
                    await self.read(evidence, events)
            evidence.status = "completed"
        except self.stage.cancelled_types:
            evidence.status = "cancelled"
            raise
        except BaseException as error:
            mine = self.stage.fault == "consumer_raise" and error is self.stage.injected
            evidence.status, evidence.run_error = "cancelled" if mine else "failed", error
            raise
        finally:
            state = self.watcher.state
            if state is None:
                evidence.status = None
            else:
                evidence.phase = state.phase.value
                if evidence.phase in ("completed", "failed", "cancelled"):
                    evidence.status = evidence.phase  # a cancel may have come when the run had ended

    def stream(self):
        return self.client.stream("Go on.", config=AgentRunConfig(session_id=SESSION))

    async def wait_after_drop(self):
        """Whoever leaves a bare stream does not wait for its end, so give it the time it may need."""
        for _ in range(20):
            if self.watcher.state is not None and self.watcher.state.phase.value in (
                "completed",
                "failed",
                "cancelled",
            ):
                return
            await self.stage.sleep(0.05)

    async def read(self, evidence, events):
        stage = self.stage
        try:
            async for event in events:
                seen, *more = self.seen(event)
                evidence.events += (seen, *more)
                if stage.see(seen):
                    if stage.fault == "consumer_raise":
                        stage.injected = Injected("the consumer's own error")
                        raise stage.injected
                    if stage.fault in ("close", "drop"):
                        break
                    await stage.sleep(HOLD_SECONDS)
                await stage.checkpoint()
                stage.move_on()
            else:
                evidence.read_to_end = True
        finally:
            stage.leave()

    def seen(self, event):
        """The event; one for each call if it announces several."""
        kind, phase = event.type.value, event.phase.value if event.phase is not None else None
        if kind == "model_started":
            self.models += 1
        text = event.delta if kind == "text_delta" else ""
        calls = event.tool_calls if kind == "tool_started" else [None]
        return [Seen(kind, phase, message_id=f"model {self.models}", text=text, call=call) for call in calls]

    async def close(self):
        raise NotImplementedError

    def stop(self):
        raise NotImplementedError

    async def suspend(self):
        raise NotImplementedError

    async def testify(self, evidence):
        evidence.messages = tuple(translated(self.memory.messages(SESSION)))
        evidence.kept = evidence.told = evidence.messages
        model = Model(self.stage, ["Still here."])
        try:
            await self.client.run("And now?", config=AgentRunConfig(session_id=SESSION), model=model)
            evidence.next_outcome = "completed"
        except Exception as error:
            evidence.next_outcome = f"{type(error).__name__}: {error}"
        evidence.requests = (*self.model.histories, *model.histories)


def translated(messages):
    """Their messages as Trilane's: the harness checks the rules of providers on those."""
    models, results, order = 0, [], []
    for number, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            outcome = "ok" if message.success else "error"
            results.append(trilane.ToolResult(call_id=message.tool_call_id, content=message.text, outcome=outcome))
            continue
        if results:
            yield answers(f"results {number}", results, order)
            results = []
        if isinstance(message, AssistantMessage):
            models += 1
            order = [call.id for call in message.tool_calls]
            parts = [trilane.TextPart(text=message.content)] if message.content else []
            parts += [
                trilane.ToolCallPart(call=trilane.ToolCall(id=call.id, name=call.name, arguments=call.arguments))
                for call in message.tool_calls
            ]
            yield trilane.AssistantMessage(id=f"model {models}", parts=tuple(parts))
        elif isinstance(message, UserMessage):
            yield trilane.UserMessage(id=f"user {number}", parts=(trilane.TextPart(text=message.text),))
    if results:
        yield answers("results", results, order)


def answers(name, results, order):
    """Results in the order of their calls: that they are kept in another is not held against it."""
    known = [result for result in results if result.call_id in order]
    known.sort(key=lambda result: order.index(result.call_id))
    return trilane.ToolMessage(id=name, results=(*known, *(one for one in results if one.call_id not in order)))
