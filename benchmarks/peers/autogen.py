import asyncio
import json

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    ModelInfo,
    RequestUsage,
)

from core import CALL, DELTA, OTHER, TOOL, next_reply

NAME, DIST = "autogen", "autogen-agentchat"
HOOKS = "none (AssistantAgent has no lifecycle hooks)"
HAS_HOOKS = False
CLOSE = "aclose() on agent.run_stream(...)"
USE = RequestUsage(prompt_tokens=1, completion_tokens=1)


class Fake(ChatCompletionClient):
    component_type = "model"

    async def create(self, *a, **k):
        raise NotImplementedError

    async def create_stream(self, messages, **k):
        reply = next_reply()
        if reply.calls:
            yield CreateResult(
                finish_reason="function_calls",
                content=[FunctionCall(id=cid, name="step", arguments=json.dumps(args)) for cid, args in reply.calls],
                usage=USE,
                cached=False,
            )
            return
        text = []
        for t in reply.deltas:
            if reply.pace:
                await asyncio.sleep(0)
            text.append(t)
            yield t
        yield CreateResult(finish_reason="stop", content="".join(text), usage=USE, cached=False)

    async def close(self): ...

    def actual_usage(self):
        return USE

    def total_usage(self):
        return USE

    def count_tokens(self, messages, **k):
        return 0

    def remaining_tokens(self, messages, **k):
        return 10**9

    @property
    def capabilities(self):
        return self.model_info

    @property
    def model_info(self):
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )


class App:
    def __init__(self, step, max_turns):
        self.step, self.model, self.keep, self.turns = step, Fake(), {}, max_turns + 5

    def agent(self):  # the history lives on the agent: one agent per session
        return AssistantAgent(
            "a",
            self.model,
            tools=[self.step],
            model_client_stream=True,
            max_tool_iterations=self.turns,
            reflect_on_tool_use=False,
        )


def build(step, *, hooks=0, max_turns=1000):
    return App(step, max_turns)


def open(app, sid):
    a = app.agent()
    if len(app.keep) < 4:
        app.keep[sid] = a
    return a.run_stream(task="go")


def kind(ev):
    c = ev.__class__
    if c is ModelClientStreamingChunkEvent:
        return DELTA
    return TOOL if c is ToolCallExecutionEvent else CALL if c is ToolCallRequestEvent else OTHER


async def close(it):
    await it.aclose()


async def history(app, sid):
    m = await app.keep[sid].model_context.get_messages()
    calls = [c.id for x in m if isinstance(x, AssistantMessage) and not isinstance(x.content, str) for c in x.content]
    return calls, [r.call_id for x in m if isinstance(x, FunctionExecutionResultMessage) for r in x.content]
