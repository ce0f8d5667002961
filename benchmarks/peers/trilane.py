"""Trilane itself: acknowledged stream, session per run, plugins as objects with four no-op hooks."""

import asyncio
import json

from core import CALL, DELTA, OTHER, TOOL, next_reply
from trilane import (
    Agent,
    Delta,
    Limits,
    ModelResponse,
    TextDelta,
    ToolCall,
    ToolCallPart,
    ToolCompleted,
    ToolStarted,
    Usage,
    hookimpl,
)

NAME, DIST = "trilane", "trilane"
HOOKS = "plugin object with async on_model_request/after_model/before_tool/after_tool"
CLOSE = "leaving `async with agent.stream(...)`"
USAGE = Usage(input_tokens=1, output_tokens=1)


class Fake:
    name = "fake"

    async def call(self, request, emit):
        reply = next_reply()
        if reply.calls:
            parts = []
            for index, (call_id, arguments) in enumerate(reply.calls):
                raw = json.dumps(arguments)
                await emit(Delta(kind="arguments", text=raw, index=index, call_id=call_id, name="step"))
                parts.append(ToolCallPart(call=ToolCall(id=call_id, name="step", arguments=arguments, raw=raw)))
            return ModelResponse(parts=tuple(parts), stop_reason="tool_calls", usage=USAGE, model="fake")
        for text in reply.deltas:
            if reply.pace:
                await asyncio.sleep(0)
            await emit(Delta(kind="text", text=text))
        return ModelResponse(parts=None, stop_reason="end", usage=USAGE, model="fake")


class Hook:
    @hookimpl
    async def on_model_request(self, run, request): ...
    @hookimpl
    async def after_model(self, run, response): ...
    @hookimpl
    async def before_tool(self, run, call): ...
    @hookimpl
    async def after_tool(self, run, call, result): ...


class App:
    def __init__(self, step, hooks, max_turns):
        plugins = [Hook() for _ in range(hooks)]
        limits = Limits(turns=max_turns + 5)
        self.agent = Agent(Fake(), tools=[step], plugins=plugins, limits=limits, tool_concurrency=100)
        self.runtime = None


def build(step, *, hooks=0, max_turns=1000):
    return App(step, hooks, max_turns)


async def ready(app):
    # A reader that only breaks, and lets go, is what a runtime is for; elsewhere it costs nothing.
    app.runtime = await app.agent.runtime().__aenter__()


def open(app, sid):
    return app.runtime.stream("go", session=sid)


def kind(event):
    cls = event.__class__
    if cls is TextDelta:
        return DELTA
    if cls is ToolCompleted:
        return TOOL
    return CALL if cls is ToolStarted else OTHER


async def close(stream):
    await stream.close()


async def history(app, sid):
    messages = await app.agent.history(sid)
    calls = [part.call.id for m in messages for part in getattr(m, "parts", ()) if isinstance(part, ToolCallPart)]
    return calls, [result.call_id for m in messages for result in getattr(m, "results", ())]
