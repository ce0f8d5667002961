"""The ASGI application: routes, checks that every request passes, and what surrounds the runs' life.

What the routes do is in `http.py` and `connection.py`; how it is served as a program, in `serving.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from trilane import Agent, RuntimeQueues

from .connection import GOING_AWAY, Connection
from .host import Host
from .http import HttpApi
from .lanes import LaneTap
from .live import EventAgent
from .principals import Authenticate, Gatekeeper, Principal
from .settings import WebLimits, WebSettings

__all__ = ["BodyTooBig", "WebApp", "app"]

_logger = logging.getLogger("trilane.web")

STATIC = Path(__file__).parent / "static"

#: Nothing of another origin is loaded, sent to or framed, and no text of a model or tool can become code.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class WebApp(Starlette):
    """Serves one agent; made by `app`.

    Serve it on its own, or mount it: `Mount("/agent", web)`. A mounted application gets no lifespan events, so call
    `web.drain()` when the surrounding one ends, or hand it `lifespan=web.lifespan`.

    Attributes:
        runs: The runs.
        gatekeeper: Who may connect.
    """

    def __init__(self, host: Host, gatekeeper: Gatekeeper) -> None:
        self.runs = host
        self.gatekeeper = gatekeeper
        self._connections: set[Connection] = set()
        limits = host.settings.limits
        bounds = (limits.heartbeat_seconds, limits.hello_seconds, limits.idle_seconds, limits.send_seconds)
        self._tick_seconds = min(1.0, *(bound / 4 for bound in bounds))
        self._ticking: asyncio.AbstractEventLoop | None = None
        self.api = HttpApi(host, gatekeeper)
        if host.settings.lanes:
            host.agent.plugins.register(LaneTap(self._show_notification))
        super().__init__(
            routes=self._routes(),
            middleware=[Middleware(_Checks, gatekeeper=gatekeeper, limits=host.settings.limits)],
            exception_handlers={Exception: _failed, HTTPException: _no_route},
            lifespan=self.lifespan,
        )

    @property
    def is_alone(self) -> bool:
        """True if nothing stands between the server and the connections: whatever does must see every message."""
        return type(self) is WebApp and len(self.user_middleware) == 1

    def _routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [WebSocketRoute("/ws", self._websocket), *self.api.routes()]
        if self.runs.settings.page:
            routes.append(Route("/", _page))
            routes.append(Mount("/static", StaticFiles(directory=STATIC)))
        return routes

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """For the surrounding application: suspends the runs at the end."""
        try:
            yield
        finally:
            await self.drain()

    async def drain(self) -> None:
        """End in order: suspend the runs, which closes their sinks, then close the connections, then wait for all.

        Runs that are suspended can be taken up after a restart. Idempotent.
        """
        await self.runs.drain()
        self.api.end()
        for connection in tuple(self._connections):
            connection.end(GOING_AWAY, "the server is about to end", again=True)
        for _ in range(200):
            if not self._connections and not self.api.streams:
                return
            await asyncio.sleep(0.01)

    async def _websocket(self, websocket: WebSocket) -> None:
        refusal = self.gatekeeper.refusal(websocket)
        if refusal:
            await _deny(websocket, 403, refusal)
            return
        principal = await self.gatekeeper.identify(websocket)
        if principal is None and not self.gatekeeper.wants_token:
            await _deny(websocket, 401, "who you are is not known")
            return
        if self.runs.draining or not self._has_room(principal):
            await _deny(websocket, 503, "there are too many connections, or the server is about to end")
            return
        connection = Connection(websocket, self.runs, self.gatekeeper, principal)
        self._connections.add(connection)
        loop = asyncio.get_running_loop()
        if self._ticking is not loop:
            self._ticking = loop
            loop.call_later(self._tick_seconds, self._tick)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    def _tick(self) -> None:
        """One clock for all connections: with a thousand idle ones, a task for each would be most of the work."""
        loop = asyncio.get_running_loop()
        for connection in tuple(self._connections):
            connection.look_at_clock(loop.time())
        if self._connections:
            loop.call_later(self._tick_seconds, self._tick)
        else:
            self._ticking = None

    def _has_room(self, principal: Principal | None) -> bool:
        limits = self.runs.settings.limits
        if len(self._connections) + len(self.api.streams) >= limits.connections:
            return False
        if principal is None:
            return True
        own = sum(1 for one in self._connections if one.principal == principal)
        return own < limits.connections_per_principal

    def _show_notification(self, session: str, run_id: str, name: str, data: JsonValue) -> None:
        live = self.runs.find(session, run_id)
        if live is not None:
            for connection in self._connections:
                connection.see(live, name, data)


def app(
    agent: Agent[Any, Any],
    *,
    token: str = "",
    authenticate: Authenticate | None = None,
    settings: WebSettings | None = None,
    deps: Callable[[Principal], object] | None = None,
    event_agent: EventAgent | None = None,
    queues: Callable[[], RuntimeQueues] = RuntimeQueues,
) -> WebApp:
    """An ASGI application that serves `agent`: WebSocket, HTTP, and a chat page.

    Args:
        agent: The agent. Its store keeps the sessions.
        token: What clients must present. Without it, and without `authenticate`, whoever reaches the port on this
            machine is the one user.
        authenticate: The host's own authentication, for many users: each owns the sessions they started.
        settings: Policies and limits.
        deps: Makes the `deps` of a run for its principal.
        event_agent: Executes tools without a handler; without one they become questions to the client.
        queues: Makes the queues of each run, to record or feed them.

    Raises:
        ConfigError: both a token and `authenticate` were given.
    """
    chosen = settings or WebSettings()
    host = Host(agent, chosen, deps=deps, event_agent=event_agent, queues=queues)
    return WebApp(host, Gatekeeper(token, authenticate, chosen))


async def _page(_: object) -> Response:
    return Response((STATIC / "index.html").read_bytes(), media_type="text/html; charset=utf-8")


async def _deny(websocket: WebSocket, status: int, reason: str) -> None:
    await websocket.send_denial_response(JSONResponse({"code": "refused", "message": reason}, status_code=status))


async def _failed(_: object, error: Exception) -> Response:
    # Starlette logs it and raises it again after the answer; the client is told nothing.
    return JSONResponse({"code": "failed", "message": "the server failed; its log says why"}, status_code=500)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, text = "not_found", "there is no such path; api/openapi.json has those there are"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        code, text = "bad_message", f"{request.method} is not for this path; it takes {allowed}"
    elif error.status_code != 404:
        code, text = "refused", error.detail
    return JSONResponse({"code": code, "message": text}, error.status_code, error.headers)


class _Checks:
    """What every HTTP request passes: origin, host name, the size of its body; and the headers of every answer."""

    def __init__(self, inner: ASGIApp, *, gatekeeper: Gatekeeper, limits: WebLimits) -> None:
        self._inner = inner
        self._gatekeeper = gatekeeper
        self._body_bytes = limits.body_bytes
        self._body_seconds = limits.body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        refusal = self._gatekeeper.refusal(connection)
        if refusal:
            response = JSONResponse({"code": "refused", "message": refusal}, status_code=403, headers=_HEADERS)
            await response(scope, receive, send)
            return
        declared = connection.headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > self._body_bytes:
            await self._refuse(413, f"a body may have {self._body_bytes} bytes", scope, receive, send)
            return
        received, whole = 0, False
        due = asyncio.get_running_loop().time() + self._body_seconds

        async def bounded() -> Message:
            nonlocal received, whole
            async with asyncio.timeout_at(None if whole else due):
                message = await receive()
            received += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if received > self._body_bytes:
                raise BodyTooBig
            return message

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in given)]
            await send(message)

        try:
            await self._inner(scope, bounded, with_headers)
        except BodyTooBig:
            await self._refuse(413, f"a body may have {self._body_bytes} bytes", scope, receive, send)
        except TimeoutError:
            if whole:
                raise
            text = f"a body may take {self._body_seconds:g} seconds to arrive"
            await self._refuse(408, text, scope, receive, send)

    async def _refuse(self, status: int, text: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {**_HEADERS, "connection": "close"}
        response = JSONResponse({"code": "too_many", "message": text}, status_code=status, headers=headers)
        await response(scope, receive, send)


class BodyTooBig(Exception):
    """More arrived than a body may have."""
