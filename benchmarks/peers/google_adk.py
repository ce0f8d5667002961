import asyncio
import os
import warnings

os.environ.setdefault("OTEL_SDK_DISABLED", "true")
os.environ.setdefault("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", "false")
warnings.filterwarnings("ignore")

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from core import CALL, DELTA, OTHER, TOOL, next_reply

NAME, DIST = "google_adk", "google-adk"
HOOKS = "BasePlugin with before/after_model_callback, before/after_tool_callback"
CLOSE = "aclose() on runner.run_async(...)"


class Fake(BaseLlm):
    model: str = "fake"

    async def generate_content_async(self, llm_request, stream=False):
        reply = next_reply()
        if reply.calls:
            yield LlmResponse(
                content=types.Content(
                    role="model",
                    parts=[
                        types.Part(function_call=types.FunctionCall(id=cid, name="step", args=dict(args)))
                        for cid, args in reply.calls
                    ],
                )
            )
            return
        text = []
        for t in reply.deltas:
            if reply.pace:
                await asyncio.sleep(0)
            text.append(t)
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=t)]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="".join(text))]), partial=False)


class Hook(BasePlugin):
    async def before_model_callback(self, **k): ...
    async def after_model_callback(self, **k): ...
    async def before_tool_callback(self, **k): ...
    async def after_tool_callback(self, **k): ...


class App:
    def __init__(self, step, hooks):
        self.svc = InMemorySessionService()
        self.runner = Runner(
            agent=LlmAgent(name="a", model=Fake(), tools=[step]),
            app_name="bench",
            plugins=[Hook(f"h{k}") for k in range(hooks)],
            session_service=self.svc,
        )
        self.cfg = RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=0)


def build(step, *, hooks=0, max_turns=1000):
    return App(step, hooks)


class Stream:
    def __init__(self, app, sid):
        self.app, self.sid, self.it = app, sid, None

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.it is None:
            a = self.app
            await a.svc.create_session(app_name="bench", user_id="u", session_id=self.sid)
            self.it = a.runner.run_async(
                user_id="u",
                session_id=self.sid,
                run_config=a.cfg,
                new_message=types.Content(role="user", parts=[types.Part(text="go")]),
            )
        return await self.it.__anext__()


def open(app, sid):
    return Stream(app, sid)


def kind(ev):
    c = ev.content
    if c is None or not c.parts:
        return OTHER
    if ev.partial:
        return DELTA if c.parts[0].text else OTHER
    p = c.parts[0]
    return TOOL if p.function_response else CALL if p.function_call else OTHER


async def close(it):
    await it.it.aclose()


async def history(app, sid):
    s = await app.svc.get_session(app_name="bench", user_id="u", session_id=sid)
    calls, res = [], []
    for ev in s.events:
        calls += [c.id for c in ev.get_function_calls()]
        res += [c.id for c in ev.get_function_responses()]
    return calls, res
