"""Plain HTTP: sessions, runs, replies, and events as a stream of server-sent events.

For programs, and for networks that let no WebSocket through. Bodies and answers are JSON; what can be wrong has the
codes of the WebSocket protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from trilane import SessionBusyError, SessionError
from trilane.sessions import CanDelete, CanRename, fork_session

from . import bodies
from . import protocol as p
from .history import list_sessions, read_session
from .host import Host, Refused
from .live import LiveRun
from .openapi import openapi_document
from .principals import Gatekeeper, Principal
from .subscription import Subscription

__all__ = ["HttpApi"]

_STATUS: dict[str, int] = {
    "bad_message": 422,
    "bad_acknowledgement": 409,
    "wrong_protocol": 400,
    "not_authenticated": 401,
    "not_found": 404,
    "busy": 409,
    "not_running": 409,
    "not_resumable": 409,
    "too_many": 429,
    "shutting_down": 503,
    "failed": 500,
}
_RECEIPTS = {"accepted": 200, "invalid": 422, "unknown": 404, "wrong_session": 404, "duplicate": 409, "expired": 410}

M = TypeVar("M", bound=BaseModel)


class _Stream:
    """A reader of an event stream, seen from the run."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.news = asyncio.Event()
        self.ended = False

    def drop(self, reason: str) -> None:
        """End the stream."""
        self.ended = True
        self.news.set()

    def drives(self, live: LiveRun) -> None:
        """Nothing to do: whoever reads by HTTP acknowledges by HTTP, or not at all."""


_Endpoint = Callable[[Request, Principal], Awaitable[Response]]


class HttpApi:
    """The routes.

    Attributes:
        streams: Event streams that are being read.
    """

    def __init__(self, host: Host, gatekeeper: Gatekeeper) -> None:
        self._host = host
        self._gatekeeper = gatekeeper
        self.streams: set[_Stream] = set()

    def routes(self) -> list[BaseRoute]:
        """All of them."""

        def route(method: str, path: str, endpoint: _Endpoint) -> Route:
            return Route(path, self._checked(endpoint), methods=[method], name=endpoint.__name__)

        return [
            Route("/api/openapi.json", _openapi),
            Route("/api/protocol.json", _protocol),
            route("GET", "/api/me", self._me),
            route("GET", "/api/sessions", self._list),
            route("GET", "/api/sessions/{session}", self._read),
            route("PATCH", "/api/sessions/{session}", self._rename),
            route("DELETE", "/api/sessions/{session}", self._delete),
            route("POST", "/api/sessions/{session}/fork", self._fork),
            route("POST", "/api/sessions/{session}/resume", self._resume),
            route("POST", "/api/sessions/{session}/say", self._say),
            route("POST", "/api/sessions/{session}/stop", self._stop),
            route("POST", "/api/sessions/{session}/replies/{question}", self._reply),
            route("POST", "/api/runs", self._start),
            route("GET", "/api/runs/{run}/events", self._events),
            route("POST", "/api/runs/{run}/ack", self._acknowledge),
        ]

    def end(self) -> None:
        """End all event streams."""
        for stream in tuple(self.streams):
            stream.drop("the server is about to end")

    def _checked(self, endpoint: _Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def call(request: Request) -> Response:
            try:
                principal = await self._gatekeeper.identify(request)
                if principal is None:
                    raise Refused("not_authenticated", "who you are is not known; the token is missing or wrong")
                return await endpoint(request, principal)
            except Refused as refused:
                headers = {"www-authenticate": "Bearer"} if refused.code == "not_authenticated" else None
                status = _STATUS[refused.code]
                return JSONResponse({"code": refused.code, "message": str(refused)}, status, headers)

        return call

    # ---- sessions ----------------------------------------------------------------------------------------------------

    async def _me(self, request: Request, principal: Principal) -> Response:
        return JSONResponse({"principal": principal.id, "agent": self._host.agent.name, "protocol": p.PROTOCOL})

    async def _list(self, request: Request, principal: Principal) -> Response:
        seen = self._host.seen(principal)
        sessions = await list_sessions(self._host.agent.store, principal, seen, limit=_count(request, "limit", 100))
        for session in sessions:
            session["active"] = self._host.active(str(session["id"])) is not None
        return JSONResponse({"sessions": sessions})

    async def _read(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        live = self._host.active(session)
        found = await read_session(self._host.agent.store, session, without_run=live.run_id if live else "")
        if found is None and live is None:
            raise Refused("not_found", "there is no such session")
        found = found or {"id": session, "version": 0, "messages": [], "results": {}, "status": "", "truncated": False}
        found["run"] = live.run_id if live else ""
        found["resumable"] = live is None and bool(found.get("resumable"))
        found["questions"] = [_json(question) for question in self._host.agent.questions(session)]
        return JSONResponse(found)

    async def _rename(self, request: Request, principal: Principal) -> Response:
        session, store = self._session(request, principal), self._host.agent.store
        body = await _parsed(request, bodies.RenameBody)
        if not isinstance(store, CanRename):
            raise Refused("not_found", "this store gives sessions no names")
        try:
            await store.rename_session(session, body.title)
        except SessionError:
            raise Refused("not_found", "there is no such session") from None
        return JSONResponse({"id": session, "title": body.title})

    async def _delete(self, request: Request, principal: Principal) -> Response:
        session, store = self._session(request, principal), self._host.agent.store
        if self._host.active(session) is not None:
            raise Refused("busy", "the session has an active run; stop it first")
        if not isinstance(store, CanDelete):
            raise Refused("not_found", "this store deletes no sessions")
        try:
            deleted = await store.delete_session(session)
        except SessionBusyError:
            raise Refused("busy", "the session has an active run; stop it first") from None
        if not deleted:
            raise Refused("not_found", "there is no such session")
        return JSONResponse({"id": session, "deleted": True})

    async def _fork(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        body = await _parsed(request, bodies.ForkBody)
        new = principal.new_session()
        try:
            await fork_session(self._host.agent.store, session, new, at_message=body.at_message)
        except SessionError:
            raise Refused("not_found", "there is no such session or message") from None
        return JSONResponse({"session": new}, 201)

    def _session(self, request: Request, principal: Principal) -> str:
        return self._host.own(principal, str(request.path_params["session"]))

    # ---- runs --------------------------------------------------------------------------------------------------------

    async def _start(self, request: Request, principal: Principal) -> Response:
        body = await _parsed(request, bodies.StartBody)
        live = await self._host.start(
            principal,
            body.text,
            session=body.session,
            acknowledgement=body.acknowledgement or "detached",
            on_disconnect=body.on_disconnect,
            key=body.key,
        )
        return JSONResponse({"session": live.session, "run": live.run_id}, 201)

    async def _resume(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        body = await _parsed(request, bodies.ResumeBody)
        live = await self._host.resume(
            principal,
            session,
            acknowledgement=body.acknowledgement or "detached",
            on_disconnect=body.on_disconnect,
            key=body.key,
        )
        return JSONResponse({"session": live.session, "run": live.run_id}, 201)

    async def _say(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        body = await _parsed(request, bodies.SayBody)
        self._host.say(principal, session, body.text, later=body.later)
        return JSONResponse({"done": True})

    async def _stop(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        body = await _parsed(request, bodies.StopBody)
        await self._host.stop(principal, session, body.reason, now=body.when == "now")
        return JSONResponse({"done": True})

    async def _reply(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        body = await _parsed(request, bodies.ReplyBody)
        receipt = self._host.reply(principal, session, str(request.path_params["question"]), body.payload)
        return JSONResponse({"status": receipt.status, "reasons": list(receipt.reasons)}, _RECEIPTS[receipt.status])

    async def _acknowledge(self, request: Request, principal: Principal) -> Response:
        live = self._host.run(principal, str(request.path_params["run"]))
        body = await _parsed(request, bodies.AcknowledgeBody)
        if body.seq > live.journal.last:
            raise Refused("bad_acknowledgement", f"event {body.seq} was not sent yet")
        return JSONResponse({"released": live.acknowledge(body.seq, None)})

    # ---- events ------------------------------------------------------------------------------------------------------

    async def _events(self, request: Request, principal: Principal) -> Response:
        live = self._host.run(principal, str(request.path_params["run"]))
        limits = self._host.settings.limits
        if len(self.streams) >= limits.connections:
            raise Refused("too_many", f"the server has {limits.connections} connections already")
        given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        after: JsonValue = int(given) if given.isascii() and given.isdigit() and len(given) < 16 else given
        stream = _Stream(request.query_params.get("client", "")[:128] or f"sse-{id(request)}")
        return EventSourceResponse(
            _Records(live, after, stream, self.streams, limits.frame_bytes),
            ping=max(1, int(limits.heartbeat_seconds)),
            send_timeout=limits.send_seconds,
        )


class _Records:
    """The events of a run for one reader. Not a generator: one that is left half-way would have to be closed."""

    def __init__(
        self, live: LiveRun, after: JsonValue, stream: _Stream, streams: set[_Stream], frame_bytes: int
    ) -> None:
        self._live = live
        self._after = after
        self._stream = stream
        self._streams = streams
        self._frame_bytes = frame_bytes

    def __aiter__(self) -> AsyncIterator[ServerSentEvent]:
        return self._read()

    async def _read(self) -> AsyncIterator[ServerSentEvent]:
        live, stream = self._live, self._stream
        wake = stream.news
        subscription, gap = Subscription.after(live, self._after)
        self._streams.add(stream)
        live.journal.watch(wake.set)
        live.attach(stream)
        try:
            if gap is not None:
                yield _gap_record(gap)
            while not stream.ended:
                wake.clear()
                gap = subscription.fell_behind()
                if gap is not None:
                    yield _gap_record(gap)
                batch = subscription.take(self._frame_bytes)
                for seq, text in batch:
                    yield ServerSentEvent(data=text, id=str(seq), sep="\n")
                if not batch:
                    if live.journal.complete:
                        return
                    await wake.wait()
        finally:
            self._streams.discard(stream)
            live.journal.unwatch(wake.set)
            live.detach(stream)


def _gap_record(gap: p.Gap) -> ServerSentEvent:
    return ServerSentEvent(data=gap.model_dump_json(), event="gap", sep="\n")


async def _parsed(request: Request, model: type[M]) -> M:
    """The body, checked.

    Raises:
        Refused: it is no JSON object of that form, or not said to be JSON (which only pages of this origin can say).
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    raw = await request.body()
    if kind != "application/json" and raw:
        raise Refused("bad_message", "the body must be of type application/json")
    try:
        return model.model_validate_json(raw or b"{}")
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(step) for step in found["loc"])
        raise Refused("bad_message", f"{where}: {found['msg']}" if where else str(found["msg"])) from None
    except RecursionError:
        raise Refused("bad_message", "the body is nested too deeply") from None


def _count(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return min(int(given), 1000) if given.isascii() and given.isdigit() and len(given) < 6 else default


def _json(record: Any) -> JsonValue:
    import json

    value: JsonValue = json.loads(record.to_json())
    return value


async def _openapi(_: Request) -> Response:
    return JSONResponse(openapi_document())


async def _protocol(_: Request) -> Response:
    return JSONResponse(p.protocol_json_schema())
