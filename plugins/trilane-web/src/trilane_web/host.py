"""All runs of one server: starting and finding them, limits, and the orderly end.

It knows principals and sessions, but no connection: WebSocket and HTTP both go through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import JsonValue

from trilane import Agent, AgentProtocolError, Receipt, RuntimeQueues, SessionBusyError, SessionError

from .history import is_resumable
from .live import EventAgent, LiveRun
from .principals import Principal
from .protocol import AckPolicy, DisconnectPolicy, ErrorCode
from .settings import WebSettings

__all__ = ["Host", "Refused"]

_logger = logging.getLogger("trilane.web")

TICK_SECONDS = 1.0


class Refused(Exception):
    """Something a client asked for is not done; `code` and message are for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code


class Host:
    """Serves one agent.

    Args:
        agent: The agent.
        settings: Policies and limits.
        deps: Makes the `deps` of a run for its principal.
        event_agent: Executes tools without a handler.
        queues: Makes the queues of each run, to record or feed them.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        settings: WebSettings,
        *,
        deps: Callable[[Principal], object] | None = None,
        event_agent: EventAgent | None = None,
        queues: Callable[[], RuntimeQueues] = RuntimeQueues,
    ) -> None:
        self.agent = agent
        self.settings = settings
        self.draining = False
        self._deps = deps
        self._event_agent = event_agent
        self._queues = queues
        self._runs: dict[str, LiveRun] = {}  # by run id; those that have ended are kept for a while
        self._by_session: dict[str, LiveRun] = {}
        self._starting: dict[str, int] = {}  # runs that are about to start, by principal
        self._by_key: dict[tuple[str, str], asyncio.Future[LiveRun]] = {}
        self._ended: dict[str, float] = {}  # when, by run id, oldest first
        self._seen: dict[str, list[str]] = {}  # sessions by principal, for stores that cannot list
        self._ticker: asyncio.Task[None] | None = None

    # ---- starting ----------------------------------------------------------------------------------------------------

    async def start(
        self,
        principal: Principal,
        text: str,
        *,
        session: str | None = None,
        acknowledgement: AckPolicy | None = None,
        on_disconnect: DisconnectPolicy | None = None,
        key: str = "",
    ) -> LiveRun:
        """Start a run on a session of the principal, or on a new one.

        Raises:
            Refused: it may not, or cannot, be started.
        """
        session = self.own(principal, session) if session else principal.new_session()

        def make(queues: RuntimeQueues) -> Any:
            return self.agent.stream(text, session=session, queues=queues, **self._options(principal))

        return await self._once(principal, key, lambda: self._begin(principal, make, acknowledgement, on_disconnect))

    async def resume(
        self,
        principal: Principal,
        session: str,
        *,
        acknowledgement: AckPolicy | None = None,
        on_disconnect: DisconnectPolicy | None = None,
        key: str = "",
    ) -> LiveRun:
        """Take up a session where it was left.

        Raises:
            Refused: it may not, or cannot, be taken up.
        """
        self.own(principal, session)
        if self.active(session) is None and not await is_resumable(self.agent.store, session):
            raise Refused("not_resumable", "there is nothing to take up in this session")

        def make(queues: RuntimeQueues) -> Any:
            return self.agent.resume(session, queues=queues, **self._options(principal))

        return await self._once(principal, key, lambda: self._begin(principal, make, acknowledgement, on_disconnect))

    def _options(self, principal: Principal) -> dict[str, Any]:
        return {} if self._deps is None else {"deps": self._deps(principal)}

    async def _once(self, principal: Principal, key: str, begin: Callable[[], Any]) -> LiveRun:
        """A request that is repeated with the same key, after a lost answer, gets the run that it had started."""
        if not key:
            run: LiveRun = await begin()
            return run
        place = (principal.id, key)
        found = self._by_key.get(place)
        if found is not None:
            return await asyncio.shield(found)
        future = self._by_key[place] = asyncio.get_running_loop().create_future()
        try:
            run = await begin()
        except BaseException as error:
            del self._by_key[place]
            if isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # retrieved: nobody may be waiting for it
            else:
                future.cancel()
            raise
        future.set_result(run)
        return run

    async def _begin(
        self,
        principal: Principal,
        make: Callable[[RuntimeQueues], Any],
        acknowledgement: AckPolicy | None,
        on_disconnect: DisconnectPolicy | None,
    ) -> LiveRun:
        self._check_room(principal)
        policy = acknowledgement or self.settings.acknowledgement
        leaving = on_disconnect or self.settings.on_disconnect or ("continue" if policy == "detached" else "pause")
        self._starting[principal.id] = self._starting.get(principal.id, 0) + 1
        try:
            queues = self._queues()
            queues.has_event_agent = queues.has_event_agent or self._event_agent is not None
            live = LiveRun(
                make(queues),
                principal,
                self.settings,
                queues=queues,
                event_agent=self._event_agent,
                acknowledgement=policy,
                on_disconnect=leaving,
            )
            try:
                await live.start()
            except SessionBusyError:
                raise Refused("busy", "the session has an active run; wait for it, steer it or stop it") from None
            except Exception as error:
                if type(error) is SessionError:  # somebody has taken it up meanwhile, or a compaction was the last
                    raise Refused("not_resumable", "there is nothing to take up in this session") from None
                _logger.error("a run could not be started", exc_info=error)
                raise Refused("failed", "the run could not be started; the server's log says why") from None
        finally:
            self._starting[principal.id] -= 1
        self._keep(live)
        return live

    def _check_room(self, principal: Principal) -> None:
        if self.draining:
            raise Refused("shutting_down", "the server is about to end; try again in a moment")
        limits = self.settings.limits
        active = [run for run in self._by_session.values() if not run.ended]
        if len(active) + sum(self._starting.values()) >= limits.runs:
            raise Refused("too_many", f"the server has {limits.runs} active runs already")
        own = sum(run.principal.id == principal.id for run in active) + self._starting.get(principal.id, 0)
        if own >= limits.runs_per_principal:
            raise Refused("too_many", f"you have {limits.runs_per_principal} active runs already")

    def _keep(self, live: LiveRun) -> None:
        self._runs[live.run_id] = live
        self._by_session[live.session] = live
        seen = self._seen.setdefault(live.principal.id, [])
        if live.session in seen:
            seen.remove(live.session)
        seen.append(live.session)
        del seen[:-1000]
        if live.task is not None:
            live.task.add_done_callback(lambda _: self._over(live))
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick())

    def _over(self, live: LiveRun) -> None:
        if self._by_session.get(live.session) is live:
            del self._by_session[live.session]
        self._ended[live.run_id] = asyncio.get_running_loop().time()
        self._forget_old()

    # ---- finding -----------------------------------------------------------------------------------------------------

    def own(self, principal: Principal, session: str) -> str:
        """The session id, if it may be the principal's.

        Raises:
            Refused: it is somebody else's; said as if there were none.
        """
        if not principal.owns(session):
            raise Refused("not_found", "there is no such session")
        return session

    def active(self, session: str) -> LiveRun | None:
        """The active run of a session."""
        found = self._by_session.get(session)
        return None if found is None or found.ended else found

    def run(self, principal: Principal, run_id: str) -> LiveRun:
        """A run of the principal whose events are kept.

        Raises:
            Refused: there is none, or it is somebody else's.
        """
        live = self._runs.get(run_id)
        if live is None or live.principal.id != principal.id:
            text = (
                "there is no such run here: it ended a while ago, or the server was started anew; "
                "read its session, and resume it if it is resumable"
            )
            raise Refused("not_found", text)
        return live

    def find(self, session: str, run_id: str) -> LiveRun | None:
        """A kept run by id, whoever's it is: for notifications."""
        live = self._runs.get(run_id)
        return live if live is not None and live.session == session else None

    def seen(self, principal: Principal) -> list[str]:
        """Sessions of the principal that had runs here, newest last."""
        return list(self._seen.get(principal.id, ()))

    def running(self) -> Iterable[LiveRun]:
        """All active runs."""
        return [run for run in self._by_session.values() if not run.ended]

    # ---- while they run ----------------------------------------------------------------------------------------------

    def _active_of(self, principal: Principal, session: str) -> LiveRun:
        live = self.active(self.own(principal, session))
        if live is None:
            raise Refused("not_running", "the session has no active run")
        return live

    def reply(self, principal: Principal, session: str, question: str, payload: JsonValue) -> Receipt:
        """Answer a question.

        Raises:
            Refused: the session is somebody else's.
        """
        self.own(principal, session)
        return self.agent.reply(session, question, payload)

    def say(self, principal: Principal, session: str, text: str, *, later: bool) -> None:
        """Steer the session's run, or say something to be heard after its answer.

        Raises:
            Refused: there is no active run.
        """
        live = self._active_of(principal, session)
        try:
            (live.stream.follow_up if later else live.stream.steer)(text)
        except AgentProtocolError:
            raise Refused("not_running", "the run has just ended; start another one") from None

    async def stop(self, principal: Principal, session: str, reason: str, *, now: bool) -> None:
        """Stop the session's run, at once or at its next boundary.

        Raises:
            Refused: there is no active run.
        """
        live = self._active_of(principal, session)
        if now:
            await live.stop_now(reason)
        else:
            live.stop_soon(reason)

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Take no more runs and suspend those that are active, so that they can be taken up after a restart."""
        self.draining = True
        runs = list(self.running())
        if runs:
            _logger.info("suspending %d active run(s)", len(runs))
        await asyncio.gather(*(self._put_aside(run) for run in runs))
        await asyncio.gather(*(run.wait() for run in runs))
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
            self._ticker = None

    async def _put_aside(self, run: LiveRun) -> None:
        """Suspend a run; if that fails stop it, if that fails too cancel it. No other run waits for it in vain."""
        for attempt in (run.suspend, lambda: run.stop_now("the server is about to end")):
            try:
                await attempt()
                return
            except Exception as error:
                _logger.error("run %s could not be put aside in order", run.run_id, exc_info=error)
        if run.task is not None:
            run.task.cancel()

    async def _tick(self) -> None:
        while self._runs:
            await asyncio.sleep(TICK_SECONDS)
            now = asyncio.get_running_loop().time()
            for run in list(self.running()):
                run.drop_stalled(now)
            self._forget_old()

    def _forget_old(self) -> None:
        limits = self.settings.limits
        now = asyncio.get_running_loop().time()
        for run_id, when in list(self._ended.items()):
            if len(self._ended) <= limits.kept_runs and now - when < limits.kept_seconds:
                break
            del self._ended[run_id]
            self._runs.pop(run_id, None)
        kept = {id(run) for run in self._runs.values()}
        for place, future in list(self._by_key.items()):
            if future.done() and not future.cancelled() and id(future.result()) not in kept:
                del self._by_key[place]
