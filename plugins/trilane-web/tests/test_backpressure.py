"""How far back a client that reads slowly is felt, and what it costs: the model's own connection, and memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent, Delta, ModelResponse, TextPart, tool
from trilane.testing import FunctionModel, ScriptedModel, call
from trilane.testing.wire import Hold, Reply, Say, WireServer
from trilane_web import WebLimits, WebSettings

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]

PIECE = "x" * 20_000
PIECES = 1000  # 20 MB, more than two kernels and a client's buffers hold


@pytest.mark.parametrize("policy", ["strict", "windowed"])
async def test_r22_r58_a_client_that_stalls_holds_the_http_stream_of_the_model(serve: Serve, policy: str) -> None:
    """The provider cannot send its 20 MB before the client has read on, although it may send as fast as it likes."""
    models = pytest.importorskip("trilane_openai", reason="not installed: trilane-openai")
    script = Reply.of(*(Say(PIECE) for _ in range(PIECES)), Hold("all sent"))
    with WireServer(script) as provider:
        model = models.OpenAIModel("wire-model", base_url=provider.openai_url, preset="openai", api_key="k")
        async with serve(Agent(model)) as server, server.wire() as wire:
            run = (await wire.ask("start", text="go", acknowledgement=policy))["run"]
            (live,) = server.web.runs.running()
            while not wire.events.get(run) or wire.events[run][-1]["type"] != "text_delta":
                if policy == "strict" and wire.events.get(run):
                    await wire.send("ack", run=run, seq=wire.events[run][-1]["seq"])
                await wire.next()
            await server.until(lambda: live.gate.waiting_since is not None)
            with pytest.raises(TimeoutError):  # real time: it would have taken a fraction of it
                await provider.reached("all sent", timeout=0.5)
            assert provider.busy == (1,)
            shown = sum(event["type"] == "text_delta" for event in wire.events[run])
            assert shown == 1 if policy == "strict" else shown <= 60  # `window_bytes` is 1 MiB
            before = live.journal.last
            await wire.send("ack", run=run, seq=wire.events[run][-1]["seq"])
            await server.until(lambda: live.journal.last > before and live.gate.waiting_since is not None)
            assert provider.busy == (1,)
            await wire.ask("stop", session=live.session)
            await provider.closed()


TOTAL, SIZE = 4000, 10_000


async def _speak_40_mb(request: Any, emit: Any) -> ModelResponse:
    for _ in range(TOTAL):
        await emit(Delta(text="x" * SIZE))
    return ModelResponse(parts=(TextPart(text="x"),), stop_reason="end")


async def _of_the_run_itself() -> int:
    """Bytes that it costs to be read where it runs: its answer has to be kept until it is whole."""
    tracemalloc.start()
    try:
        async with Agent(FunctionModel(_speak_40_mb)).stream("go") as run:
            async for _ in run:
                pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("policy", ["windowed", "detached"])
async def test_f100_a_client_that_reads_nothing_of_40_mb_costs_a_window_or_what_is_kept(
    serve: Serve, policy: str
) -> None:
    itself = 0 if policy == "windowed" else await _of_the_run_itself()
    limits = WebLimits(window_bytes=500_000, kept_bytes=1_000_000)
    agent = Agent(FunctionModel(_speak_40_mb))
    async with serve(agent, settings=WebSettings(limits=limits)) as server, server.wire() as wire:
        await wire.ask("ping")
        gc.collect()
        tracemalloc.start()
        try:
            wire.socket.transport.pause_reading()
            await wire.send("start", text="go", acknowledgement=policy)
            await server.until(lambda: server.web.runs.running() or server.web.runs._ended)
            if policy == "detached":
                await server.until(lambda: server.web.runs._ended)
            else:
                (live,) = server.web.runs.running()
                await server.until(lambda: live.gate.waiting_since is not None)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most - itself < 6_000_000


async def test_f100_a_client_that_reads_one_event_a_second_costs_bounded_memory(serve: Serve) -> None:
    """A minute of it: each second it takes one event and acknowledges it. The seconds are not waited for."""
    produced = 0

    async def speak(request: Any, emit: Any) -> ModelResponse:
        nonlocal produced
        for _ in range(100_000):
            produced += 1
            await emit(Delta(text="x" * 1000))
        return ModelResponse(parts=(TextPart(text="x"),), stop_reason="end")

    settings = WebSettings(window_events=64)
    async with serve(Agent(FunctionModel(speak)), settings=settings) as server, server.wire() as wire:
        run = (await wire.ask("start", text="go"))["run"]
        (live,) = server.web.runs.running()
        held = []
        for second in range(60):
            await server.until(lambda: live.gate.waiting_since is not None)
            while len(wire.events.get(run, ())) <= second:
                await wire.next()
            held.append((len(live.journal), live.journal.size))
            await wire.send("ack", run=run, seq=wire.events[run][second]["seq"])
            await server.until(lambda second=second: live.gate.acknowledged > second)
        assert max(count for count, _ in held) <= 64 + 60, "a window, and what was acknowledged may be kept"
        assert max(size for _, size in held) < 64 * 1500 + 60 * 1500
        assert produced <= 64 + 60
        await wire.ask("stop", session=live.session)


async def test_a_tool_result_of_5_mb_reaches_the_client_whole_and_is_not_kept_twice(serve: Serve) -> None:
    big = 5_000_000

    @tool(max_result_chars=big + 1000)
    def read_all() -> str:
        """Read everything."""
        return "y" * big

    agent = Agent(ScriptedModel(call("read_all"), "done"), tools=[read_all])
    async with serve(agent) as server, server.wire() as wire:
        await wire.ask("ping")
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            run = (await wire.ask("start", text="go"))["run"]
            events = await wire.read_run(run)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        (done,) = [event for event in events if event["type"] == "tool_completed"]
        assert "y" * big in str(done["result"])
        # This process is the server and the client: the text, its JSON, frames, and the client's parsed copies.
        assert most - before < 20 * big
