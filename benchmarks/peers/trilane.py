"""Trilane itself: acknowledged stream, session per run, plugins as objects with four no-op hooks."""

import asyncio
import json

from core import CALL, DELTA, OTHER, TOOL, next_reply
from trilane import (
    Agent,
    Delta,
    Limits,
    ModelResponse,
    SessionView,
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
CLOSE = "await stream.close() on a stream of agent.runtime()"
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
    def __init__(self, number):
        self.name = f"hook{number}"

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
        plugins = [Hook(number) for number in range(hooks)]
        limits = Limits(turns=max_turns + 5)
        self.agent = Agent(Fake(), tools=[step], plugins=plugins, limits=limits, tool_concurrency=100)
        self.runtime = None


def build(step, *, hooks=0, max_turns=1000):
    return App(step, hooks, max_turns)


async def ready(app):
    # Its streams are read by a bare `async for`, and one that is let go of is stopped, which is what W7 asks for.
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
    view = SessionView()
    for record in (await app.agent.store.load(sid)).records:
        view.apply(record)
    calls = [call.id for message in view.log if message.kind == "assistant" for call in message.calls]
    answered = [result.call_id for message in view.log if message.kind == "tool" for result in message.results]
    return calls, [*answered, *view.results]
