"""Runs that a request to a server starts, over a real connection of this machine: for `_parity.py`.

The server is the one that `trilane serve` uses. Clients do what a browser does: they start the run, read its events,
and answer its questions.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trilane import Agent
from trilane_web import app
from trilane_web.client import connect
from trilane_web.serving import listen, make_server

__all__ = ["by_http", "by_websocket"]

SECONDS = 60  # for what takes milliseconds, so that a fault ends as one


async def by_websocket(agent: Agent[None, str], request: str) -> None:
    """Start a run over a WebSocket; taking the next event acknowledges the one before."""
    async with _served(agent) as port, connect(f"ws://127.0.0.1:{port}/ws") as client, asyncio.timeout(SECONDS):
        run = await client.start(request, acknowledgement="strict")
        async for event in run:
            if event.type == "reply_requested":
                await client.reply(run.session, event.question.id, {"approve": True})


async def by_http(agent: Agent[None, str], request: str) -> None:
    """Start a run with a POST, read its server-sent events, acknowledge and answer with further ones."""
    async with _served(agent) as port:
        await asyncio.to_thread(_read_by_http, f"http://127.0.0.1:{port}/api", request)


@asynccontextmanager
async def _served(agent: Agent[None, str]) -> AsyncIterator[int]:
    """Serve the agent on a free port, and suspend, close and wait at the end."""
    with listen("127.0.0.1", 0, protected=True) as listener:
        server = make_server(app(agent))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving
            await agent.aclose()


def _read_by_http(api: str, request: str) -> None:
    started = _post(f"{api}/runs", {"text": request, "acknowledgement": "strict"})
    run, session = started["run"], started["session"]
    with urllib.request.urlopen(f"{api}/runs/{run}/events", timeout=SECONDS) as events:
        for line in events:
            name, _, data = line.decode().rstrip().partition(": ")
            if name != "data":
                continue
            event = json.loads(data)
            if event["type"] == "reply_requested":
                _post(f"{api}/sessions/{session}/replies/{event['question']['id']}", {"payload": {"approve": True}})
            _post(f"{api}/runs/{run}/ack", {"seq": event["seq"]})


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
