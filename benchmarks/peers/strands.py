import asyncio
import json
import os

os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
)
from strands.models.model import Model

from core import CALL, DELTA, OTHER, TOOL, next_reply

NAME, DIST = "strands", "strands-agents"
HOOKS = "HookProvider with Before/AfterModelCall and Before/AfterToolCall callbacks"
CLOSE = "aclose() on agent.stream_async(...)"


class Fake(Model):
    def update_config(self, **k): ...

    def get_config(self):
        return {"model_id": "fake", "context_window_limit": 10_000_000}

    def structured_output(self, *a, **k):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **k):
        reply = next_reply()
        yield {"messageStart": {"role": "assistant"}}
        if reply.calls:
            for cid, args in reply.calls:
                yield {"contentBlockStart": {"start": {"toolUse": {"name": "step", "toolUseId": cid}}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(args)}}}}
                yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            for t in reply.deltas:
                if reply.pace:
                    await asyncio.sleep(0)
                yield {"contentBlockDelta": {"delta": {"text": t}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}
        yield {
            "metadata": {
                "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
                "metrics": {"latencyMs": 1},
            }
        }


class Hook(HookProvider):
    async def _a(self, event): ...
    async def _b(self, event): ...
    async def _c(self, event): ...
    async def _d(self, event): ...

    def register_hooks(self, registry, **k):
        registry.add_callback(BeforeModelCallEvent, self._a)
        registry.add_callback(AfterModelCallEvent, self._b)
        registry.add_callback(BeforeToolCallEvent, self._c)
        registry.add_callback(AfterToolCallEvent, self._d)


class App:
    def __init__(self, step, hooks):
        self.tool, self.hooks, self.model, self.keep = tool(step), hooks, Fake(), {}

    def agent(self):  # strands keeps the history on the agent: one agent per session
        return Agent(
            model=self.model,
            tools=[self.tool],
            callback_handler=None,
            conversation_manager=NullConversationManager(),
            hooks=[Hook() for _ in range(self.hooks)],
        )


def build(step, *, hooks=0, max_turns=1000):
    return App(step, hooks)


def open(app, sid):
    a = app.agent()
    if len(app.keep) < 4:
        app.keep[sid] = a
    return a.stream_async("go")


def kind(ev):
    if "data" in ev:
        return DELTA
    m = ev.get("message")
    if m is None:
        return OTHER
    c = m["content"]
    if m["role"] == "user":
        return TOOL if any("toolResult" in x for x in c) else OTHER
    return CALL if any("toolUse" in x for x in c) else OTHER


async def close(it):
    await it.aclose()


def history(app, sid):
    m = app.keep[sid].messages
    calls = [c["toolUse"]["toolUseId"] for x in m for c in x["content"] if "toolUse" in c]
    return calls, [c["toolResult"]["toolUseId"] for x in m for c in x["content"] if "toolResult" in c]
