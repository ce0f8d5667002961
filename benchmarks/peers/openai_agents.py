import asyncio
import json

from agents import Agent, RunConfig, RunHooks, Runner, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from core import CALL, DELTA, OTHER, TOOL, next_reply

NAME, DIST = "openai_agents", "openai-agents"
HOOKS = "one RunHooks (the API takes one); for N>1 our RunHooks loops over N no-op RunHooks"
CLOSE = "result.cancel() then drain stream_events()"
set_tracing_disabled(True)
HOLD = True  # W7 reads the history from the run's result object


class Fake(Model):
    async def get_response(self, *a, **k):
        raise NotImplementedError

    async def stream_response(self, *a, **k):
        reply = next_reply()
        if reply.calls:
            out = [
                ResponseFunctionToolCall(
                    id=f"fc_{cid}", call_id=cid, type="function_call", name="step", arguments=json.dumps(args)
                )
                for cid, args in reply.calls
            ]
            for i, item in enumerate(out):
                yield ResponseOutputItemDoneEvent(
                    item=item, output_index=i, sequence_number=i, type="response.output_item.done"
                )
        else:
            text = []
            for n, t in enumerate(reply.deltas, 1):
                if reply.pace:
                    await asyncio.sleep(0)
                text.append(t)
                yield ResponseTextDeltaEvent(
                    content_index=0,
                    delta=t,
                    item_id="m",
                    output_index=0,
                    type="response.output_text.delta",
                    sequence_number=n,
                    logprobs=[],
                )
            out = [
                ResponseOutputMessage(
                    id="m",
                    type="message",
                    role="assistant",
                    status="completed",
                    content=[ResponseOutputText(text="".join(text), type="output_text", annotations=[], logprobs=[])],
                )
            ]
        yield ResponseCompletedEvent(
            type="response.completed",
            sequence_number=0,
            response=Response(
                id="r",
                created_at=0,
                model="fake",
                object="response",
                output=out,
                tool_choice="auto",
                tools=[],
                parallel_tool_calls=True,
            ),
        )


class Fan(RunHooks):
    def __init__(self, n):
        self.hooks = [RunHooks() for _ in range(n)]

    async def on_llm_start(self, *a):
        for h in self.hooks:
            await h.on_llm_start(*a)

    async def on_llm_end(self, *a):
        for h in self.hooks:
            await h.on_llm_end(*a)

    async def on_tool_start(self, *a):
        for h in self.hooks:
            await h.on_tool_start(*a)

    async def on_tool_end(self, *a):
        for h in self.hooks:
            await h.on_tool_end(*a)


class App:
    def __init__(self, step, hooks, max_turns):
        self.agent = Agent(name="a", instructions="x", model=Fake(), tools=[function_tool(step)])
        self.hooks = None if hooks == 0 else RunHooks() if hooks == 1 else Fan(hooks)
        self.max_turns = max_turns + 5
        self.cfg = RunConfig(tracing_disabled=True)
        self.last = None


def build(step, *, hooks=0, max_turns=1000):
    return App(step, hooks, max_turns)


class Stream:
    def __init__(self, app):
        self.app, self.it = app, None

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.it is None:
            a = self.app
            self.result = Runner.run_streamed(a.agent, "go", max_turns=a.max_turns, hooks=a.hooks, run_config=a.cfg)
            a.last = self.result if HOLD else None
            self.it = self.result.stream_events()
        return await self.it.__anext__()


def open(app, sid):
    return Stream(app)


def kind(ev):
    if ev.type == "raw_response_event":
        return DELTA if ev.data.type == "response.output_text.delta" else OTHER
    if ev.type == "run_item_stream_event" and ev.name == "tool_output":
        return TOOL
    if ev.type == "run_item_stream_event" and ev.name == "tool_called":
        return CALL
    return OTHER


async def close(it):
    it.result.cancel()
    async for _ in it.it:
        pass


def history(app, sid):
    if app.last is None:
        return None
    items = app.last.to_input_list()
    calls = [i["call_id"] for i in items if i.get("type") == "function_call"]
    return calls, [i["call_id"] for i in items if i.get("type") == "function_call_output"]
