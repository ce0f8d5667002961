"""One run that is served: its exit, its journal, the clients that watch it, and what happens when they go away.

A run lives in a task of its own, and no connection owns it: clients come and go. At any time at most one of them is the
driver, whose acknowledgements release the run; the others only watch. Which runs there are is known to `host.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from trilane import Event, EventSinkClosed, RunStream, RuntimeQueues

from .encoding import encode_event
from .gate import TERMINAL, Gate, GatedSink
from .journal import Journal
from .principals import Principal
from .protocol import AckPolicy, DisconnectPolicy
from .settings import WebSettings

__all__ = ["EventAgent", "LiveRun", "Viewer"]

_logger = logging.getLogger("trilane.web")

EventAgent = Callable[[RuntimeQueues], Awaitable[None]]
"""Executes the tools without a handler: takes calls from `queues.events`, puts results on `queues.input`.

Clients see these calls as they see calls of tools with a handler: they are not asked and cannot answer."""


class Viewer(Protocol):
    """A client that watches a run."""

    @property
    def client(self) -> str:
        """Names the tab or program, also after a reconnect."""
        ...

    def drop(self, reason: str) -> None:
        """Close its connection, without waiting."""
        ...

    def drives(self, live: LiveRun) -> None:
        """From now on its acknowledgements release the run."""
        ...


class LiveRun:
    """A run between its agent and its clients. Use it in the event loop it was made in.

    Attributes:
        principal: Whose it is.
        session: Its session.
        run_id: The run; empty before it has started.
        journal: Its events.
        gate: What its acknowledgements go to.
        ended: True once nothing of it is left.
    """

    def __init__(
        self,
        stream: RunStream[Any],
        principal: Principal,
        settings: WebSettings,
        *,
        queues: RuntimeQueues,
        event_agent: EventAgent | None,
        acknowledgement: AckPolicy,
        on_disconnect: DisconnectPolicy,
    ) -> None:
        limits = settings.limits
        self.principal = principal
        self.session = stream.session_id
        self.run_id = ""
        self.stream = stream
        self.on_disconnect: DisconnectPolicy = on_disconnect
        self.journal = Journal(limits.kept_events, limits.kept_bytes)
        self.gate = Gate(
            acknowledgement,
            window_events=settings.window_events,
            window_seconds=settings.window_seconds,
            window_bytes=limits.window_bytes,
        )
        self.ended = False
        self._settings = settings
        self._queues = queues
        self._event_agent = event_agent
        self._sink = GatedSink(self._write, self.gate, self._encode, at_once=self._keep)
        self._viewers: dict[Viewer, int] = {}  # what each has acknowledged, the first that came first
        self._driver: Viewer | None = None
        self._driver_client = ""
        self._had_driver = False
        self._timers: list[asyncio.TimerHandle] = []
        self._suspending: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    # ---- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the run; return when its session is claimed.

        Raises:
            SessionBusyError: the session has an active run.
            Exception: whatever else keeps it from starting.
        """
        self.task = asyncio.create_task(self._work())
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self.stop_soon("its client went away before it had started")
            raise

    async def _work(self) -> None:
        """The task of the run: started, forwarded, and taken down in order. Never raises."""
        try:
            async with self.stream as run:
                self.run_id = run.run_id
                self._started.set_result(None)
                await self._forward(run)
        except Exception as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                _logger.error("run %s could not be served to its end", self.run_id, exc_info=error)
        finally:
            self._cancel_timers()
            self.ended = True
            self.journal.finish()
            if not self._started.done():
                self._started.cancel()

    async def _forward(self, run: RunStream[Any]) -> None:
        writer = asyncio.create_task(self._sink.run())
        helper = None if self._event_agent is None else asyncio.create_task(self._help(self._event_agent))
        try:
            result = await run.forward(self._sink)
            if result.error is not None and result.status in ("failed", "timed_out"):
                _logger.warning(
                    "run %s of session %s %s", self.run_id, self.session, result.status, exc_info=result.error
                )
        except EventSinkClosed as error:
            _logger.warning("run %s: %s", self.run_id, error)
        finally:
            self._sink.close()
            if helper is not None:
                helper.cancel()
                await asyncio.gather(helper, return_exceptions=True)
            await asyncio.gather(writer, return_exceptions=True)

    async def _help(self, event_agent: EventAgent) -> None:
        try:
            await event_agent(self._queues)
        except Exception as error:
            _logger.error("the event agent of run %s failed", self.run_id, exc_info=error)
            self.stream.stop("its event agent failed")
            self.gate.release()

    def _encode(self, event: Event) -> str:
        return encode_event(event, show_errors=self._settings.show_errors)

    def _keep(self, event: Event, text: str) -> None:
        self.journal.append(event.seq, text, needed_from=self.gate.needed_from)

    async def _write(self, event: Event, text: str) -> None:
        self._keep(event, text)
        if event.type in TERMINAL:
            self.journal.finish()

    # ---- stopping ----------------------------------------------------------------------------------------------------

    def stop_soon(self, reason: str) -> None:
        """Stop at the next boundary. Does not wait."""
        if self.run_id and not self.ended:
            self.stream.stop(reason)
        self.gate.release()

    async def stop_now(self, reason: str) -> None:
        """Stop, and wait until nothing of the run goes on."""
        if not self.run_id or self.ended:
            return
        self.stream.stop(reason)
        self.gate.release()
        await self.stream.close()

    async def suspend(self) -> None:
        """Stop for a restart: what was stored stays as it is, `resume` continues. Waits."""
        if not self.run_id or self.ended:
            return
        self.gate.release()
        await self.stream.suspend()

    async def wait(self) -> None:
        """Return when nothing of it is left."""
        if self.task is not None:
            await asyncio.gather(self.task, return_exceptions=True)

    # ---- clients -----------------------------------------------------------------------------------------------------

    @property
    def driver(self) -> Viewer | None:
        """The client whose acknowledgements release the run."""
        return self._driver

    def attach(self, viewer: Viewer) -> bool:
        """A client watches from now on; True if it is the driver.

        It is if there is none, or if it is the same client as the driver, come back.
        """
        self._viewers.setdefault(viewer, 0)
        same = bool(viewer.client) and viewer.client == self._driver_client
        nobody = self._driver is None and (not self._had_driver or not self._driver_client)
        if self._driver is not viewer and (same or nobody):
            self._drive(viewer)
        return self._driver is viewer

    def detach(self, viewer: Viewer) -> None:
        """A client does not watch any more."""
        self._viewers.pop(viewer, None)
        if self._driver is viewer:
            self._driver = None
            if not self.ended:
                self._left()

    def acknowledge(self, seq: int, viewer: Viewer | None) -> bool:
        """A client has shown everything up to `seq`; True if that releases something.

        Those of watchers count when they become the driver. `viewer` is None for acknowledgements by plain HTTP.
        """
        if viewer is not None:
            if viewer in self._viewers:
                self._viewers[viewer] = max(seq, self._viewers[viewer])
            if viewer is not self._driver:
                return False
        return self.gate.acknowledge(seq)

    def _drive(self, viewer: Viewer) -> None:
        self._cancel_timers()
        self._driver = viewer
        self._driver_client = viewer.client
        self._had_driver = True
        self.gate.acknowledge(self._viewers.get(viewer, 0))
        self.gate.reopen()

    def _left(self) -> None:
        """The driver is gone: what the run does meanwhile, and what happens if it stays away."""
        loop = asyncio.get_running_loop()
        self._cancel_timers()
        if self.on_disconnect == "continue":
            self.gate.open()
        else:
            self.gate.shut()
        self._timers.append(loop.call_later(self._settings.reconnect_seconds, self._stayed_away))
        if self.on_disconnect == "pause":
            self._timers.append(loop.call_later(self._settings.limits.pause_seconds, self._paused_too_long))

    def _stayed_away(self) -> None:
        if self._driver is not None or self.ended:
            return
        self._driver_client = ""
        if self._viewers:
            viewer = next(iter(self._viewers))
            self._drive(viewer)
            viewer.drives(self)
        elif self.on_disconnect == "cancel":
            self.stop_soon("its client went away")

    def _paused_too_long(self) -> None:
        if self._driver is None and not self.ended:
            _logger.info("run %s was paused for its client's sake too long; it is suspended", self.run_id)
            self._suspending = asyncio.create_task(self.suspend())

    def drop_stalled(self, now: float) -> None:
        """Drop the driver if the run has waited too long for its acknowledgement."""
        since = self.gate.waiting_since
        if self._driver is not None and since is not None and now - since >= self._settings.limits.stall_seconds:
            self._driver.drop("it did not acknowledge what it was sent")

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
