"""One application: the WebSocket and the chat page of `trilane_web`, and beside them the page of the queues."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from trilane import Model
from trilane_web import WebApp, WebSettings, app

from .agents import EventAgent, Pause, chat_agent
from .watching import Watch

__all__ = ["PAGE", "make_site"]

PAGE = Path(__file__).parent / "page"


def make_site(
    model: Model | str, *, split: bool = True, pause: Pause | None = None, settings: WebSettings | None = None
) -> WebApp:
    """The application. Its page is at `/queues/`, the chat page of every server at `/`.

    Args:
        model: Model of the chat agent.
        split: False for one agent that does everything, to compare.
        pause: Of the event agent, so that a person can watch.
        settings: Of the server.
    """
    watch = Watch()
    web = app(
        chat_agent(model, split=split),
        event_agent=EventAgent(pause=pause) if split else None,
        queues=watch.queues,
        settings=settings,
    )

    async def page(_: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def steps(request: Request) -> Response:
        """What went through the queues after step `after`; waits a moment if that is nothing."""
        after = request.query_params.get("after", "0")
        return JSONResponse(await watch.after(int(after) if after.isdecimal() and len(after) < 10 else 0))

    # Mounted in the application itself: its checks of host and origin, and its headers, hold for these routes too.
    web.mount(
        "/queues",
        Starlette(routes=[Route("/", page), Route("/steps", steps), Mount("/page", StaticFiles(directory=PAGE))]),
    )
    return web
