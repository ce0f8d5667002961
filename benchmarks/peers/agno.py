import asyncio
import json
import os
from dataclasses import dataclass

os.environ["AGNO_TELEMETRY"] = "false"

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.run.agent import RunContentEvent, ToolCallCompletedEvent, ToolCallStartedEvent

from core import CALL, DELTA, OTHER, TOOL, next_reply

NAME, DIST = "agno", "agno"
HOOKS = "tool_hooks (wraps each tool call; agno has no per-model-call hook)"
CLOSE = "aclose() on agent.arun(stream=True, stream_events=True)"


@dataclass
class Fake(Model):
    id: str = "fake"
    name: str = "fake"
    provider: str = "fake"

    def invoke(self, *a, **k): ...
    async def ainvoke(self, *a, **k): ...
    def invoke_stream(self, *a, **k): ...

    async def ainvoke_stream(self, *a, **k):
        reply = next_reply()
        if reply.calls:
            yield ModelResponse(
                role="assistant",
                tool_calls=[
                    {"id": cid, "type": "function", "function": {"name": "step", "arguments": json.dumps(args)}}
                    for cid, args in reply.calls
                ],
            )
            return
        for t in reply.deltas:
            if reply.pace:
                await asyncio.sleep(0)
            yield ModelResponse(role="assistant", content=t)

    def _parse_provider_response(self, response, **k):
        return response

    def _parse_provider_response_delta(self, response):
        return response


def hook(k):
    async def _hook(function_name, function_call, arguments):
        return await function_call(**arguments)

    return _hook


class App:
    def __init__(self, step, hooks):
        self.agent = Agent(
            model=Fake(),
            tools=[step],
            telemetry=False,
            tool_hooks=[hook(k) for k in range(hooks)] or None,
        )


def build(step, *, hooks=0, max_turns=1000):
    return App(step, hooks)


def open(app, sid):
    return app.agent.arun("go", session_id=sid, stream=True, stream_events=True)


def kind(ev):
    c = ev.__class__
    if c is RunContentEvent:
        return DELTA if ev.content else OTHER
    return TOOL if c is ToolCallCompletedEvent else CALL if c is ToolCallStartedEvent else OTHER


async def close(it):
    await it.aclose()


def history(app, sid):
    return None
