import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, StreamedResponse

from core import CALL, DELTA, OTHER, TOOL, next_reply

NAME, DIST = "pydantic_ai", "pydantic-ai-slim"
HOOKS = "AbstractCapability with before/after_model_request, before/after_tool_execute"
CLOSE = "leaving `async with agent.run_stream_events(...)`"
NOW = datetime.now(tz=UTC)


@dataclass
class FakeStream(StreamedResponse):
    reply: object = None
    model_name: str = "fake"
    provider_name: str = "fake"
    provider_url: str = ""
    timestamp: datetime = field(default=NOW)

    async def _get_event_iterator(self):
        pm = self._parts_manager
        if self.reply.calls:
            for i, (cid, args) in enumerate(self.reply.calls):
                yield pm.handle_tool_call_part(
                    vendor_part_id=i, tool_name="step", args=json.dumps(args), tool_call_id=cid
                )
            return
        for t in self.reply.deltas:
            if self.reply.pace:
                await asyncio.sleep(0)
            for ev in pm.handle_text_delta(vendor_part_id="t", content=t):
                yield ev


class Fake(Model):
    model_name = "fake"
    system = "fake"

    @property
    def provider(self):
        return None

    async def request(self, messages, model_settings, model_request_parameters):
        raise NotImplementedError

    @asynccontextmanager
    async def request_stream(self, messages, model_settings, model_request_parameters, run_context=None):
        yield FakeStream(model_request_parameters=model_request_parameters, reply=next_reply())


@dataclass
class Hook(AbstractCapability):
    k: int = 0

    async def before_model_request(self, ctx, request_context):
        return request_context

    async def after_model_request(self, ctx, *, request_context, response):
        return response

    async def before_tool_execute(self, ctx, *, call, tool_def, args):
        return args

    async def after_tool_execute(self, ctx, *, call, tool_def, args, result):
        return result


def build(step, *, hooks=0, max_turns=1000):
    return Agent(Fake(), tools=[step], capabilities=[Hook(k) for k in range(hooks)])


class Stream:
    """Enter the context manager on the first step; leave it in close()."""

    def __init__(self, app, sid):
        self.cm = app.run_stream_events("go", usage_limits=UsageLimits(request_limit=None))
        self.it = None

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.it is None:
            self.handle = await self.cm.__aenter__()
            self.it = self.handle.__aiter__()
        try:
            return await self.it.__anext__()
        except StopAsyncIteration:
            await self.cm.__aexit__(None, None, None)
            raise


KEEP = {}  # only W7 reads a session's history; it lives on the run's handle
HOLD = True


def open(app, sid):
    s = Stream(app, sid)
    if HOLD and len(KEEP) < 9:
        KEEP[sid] = s
    return s


def kind(ev):
    c = ev.__class__
    if c is PartDeltaEvent:
        return DELTA if ev.delta.__class__ is TextPartDelta else OTHER
    if c is PartStartEvent:
        return DELTA if ev.part.__class__ is TextPart and ev.part.content else OTHER
    if c is FunctionToolResultEvent:
        return TOOL
    return CALL if c is FunctionToolCallEvent else OTHER


async def close(it):
    await it.cm.__aexit__(None, None, None)


def history(app, sid):
    if sid not in KEEP:
        return None
    h = KEEP[sid].handle
    m = h.all_messages() if callable(getattr(h, "all_messages", None)) else None
    if m is None:
        return None
    calls = [p.tool_call_id for x in m for p in x.parts if isinstance(p, ToolCallPart)]
    return calls, [p.tool_call_id for x in m for p in x.parts if isinstance(p, ToolReturnPart)]
