import asyncio
import json

from zett_agent.agent import AgentRunConfig
from zett_agent.client import create_agent
from zett_agent.events import AgentEventType
from zett_agent.extensions.base import AgentExtension
from zett_agent.extensions.memory import InMemoryMessageAccumulator
from zett_agent.extensions.tool_guidelines import ToolGuidelinesExtension
from zett_agent.messages import AssistantMessage, ToolCall, ToolMessage
from zett_agent.model import ModelEvent, ModelResponse, RetryOptions, ToolCallDelta
from zett_agent.tools.base import tool

from core import CALL, DELTA, OTHER, TOOL, next_reply

NAME, DIST = "zett", "zett-agent"
HOOKS = "AgentExtension with before_model/after_model/before_tool/after_tool"
CLOSE = "aclose() on client.stream(...)"


class Fake:
    retry = RetryOptions(max_retries=0)

    async def stream(self, request):
        reply = next_reply()
        if reply.calls:
            calls = []
            for i, (cid, args) in enumerate(reply.calls):
                yield ModelEvent.tool_call(ToolCallDelta(i, cid, "step", json.dumps(args)))
                calls.append(ToolCall(cid, "step", dict(args)))
            yield ModelEvent.completed(
                ModelResponse(AssistantMessage(tool_calls=tuple(calls)), finish_reason="tool_calls")
            )
            return
        text = []
        for t in reply.deltas:
            if reply.pace:
                await asyncio.sleep(0)
            text.append(t)
            yield ModelEvent.text(t)
        yield ModelEvent.completed(ModelResponse(AssistantMessage(content="".join(text)), finish_reason="stop"))


class Hook(AgentExtension):
    def __init__(self, k):
        self.name = f"hook{k}"

    async def before_model(self, context, request): ...
    async def after_model(self, context, response): ...
    async def before_tool(self, context, call): ...
    async def after_tool(self, context, *a, **k): ...


class App:
    pass


def build(step, *, hooks=0, max_turns=1000):
    app = App()
    app.memory = InMemoryMessageAccumulator()
    app.make = lambda: create_agent(
        Fake(),
        tools=[tool(guidelines="Use it.")(step)],
        extensions=[app.memory, ToolGuidelinesExtension(), *[Hook(k) for k in range(hooks)]],
        max_iterations=max_turns + 5,
    )
    app.client = None
    return app


async def ready(app):
    app.client = await app.make()


def open(app, sid):
    return app.client.stream("go", config=AgentRunConfig(session_id=sid))


def kind(ev, types=AgentEventType):
    t = ev.type
    if t is types.TEXT_DELTA:
        return DELTA
    if t is types.TOOL_COMPLETED:
        return TOOL
    return CALL if t is types.TOOL_STARTED else OTHER


async def close(it):
    await it.aclose()


def history(app, sid):
    m = app.memory.messages(sid)
    calls = [c.id for x in m if isinstance(x, AssistantMessage) for c in x.tool_calls]
    return calls, [x.tool_call_id for x in m if isinstance(x, ToolMessage)]
