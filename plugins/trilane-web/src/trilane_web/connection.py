"""One WebSocket: what comes up is carried out, what goes down is sent, each by a task of its own.

The reading side never waits for the sending side, so a disconnect or a `stop` is heard whatever else is going on. What
bounds it: journals hold the events, of which a connection remembers only how far it has sent them; answers are counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import assert_never

from pydantic import JsonValue
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from . import protocol as p
from .direct import direct_socket
from .host import Host, Refused
from .live import LiveRun
from .principals import Gatekeeper, Principal
from .subscription import Subscription

__all__ = ["Connection"]

_logger = logging.getLogger("trilane.web")

GOING_AWAY, UNSUPPORTED, POLICY, TOO_BIG, FAILED = 1001, 1003, 1008, 1009, 1011
FLUSH_SECONDS = 1.0
BURST_SECONDS = 0.002  # events that follow each other faster than this travel together
ACKNOWLEDGEMENT = 512  # characters that one has at most, if it is an ordinary one
TURN_MESSAGES = 16  # so many are read before others get a turn


class Connection:
    """A client on a WebSocket.

    Args:
        websocket: Not yet accepted.
        host: The runs.
        gatekeeper: Knows who may connect.
        principal: Who it is, if that is known from its request.
    """

    def __init__(self, websocket: WebSocket, host: Host, gatekeeper: Gatekeeper, principal: Principal | None) -> None:
        self._websocket = websocket
        self._host = host
        self._gatekeeper = gatekeeper
        self._limits = host.settings.limits
        self.principal = principal
        self._client = ""
        self._watched: dict[str, Subscription] = {}
        self._left: dict[str, int] = {}  # runs not watched any more, with the last event that was sent
        self._answers: deque[str] = deque()
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()  # an answer waits, or the end
        self._frame_seconds = 0.0
        self._frame_sent = 0.0
        self._sending: float | None = None  # since when one message is on its way
        self.lanes = False
        self._tokens = float(self._limits.message_burst)
        self._bad = 0
        self._closing: tuple[int, str, bool] | None = None  # code, reason, come back?
        now = asyncio.get_running_loop().time()
        self._opened = self._heard = self._active = self._counted = now
        self._pinged = False
        self._jobs: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._sender_waits = False
        self._direct = direct_socket(websocket.scope)
        self._flushing: asyncio.TimerHandle | None = None

    @property
    def client(self) -> str:
        """Names the tab or program, also after a reconnect."""
        return self._client

    # ---- its life ----------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Work the connection to its end."""
        offered = self._websocket.scope.get("subprotocols", [])
        await self._websocket.accept(subprotocol=p.SUBPROTOCOL if p.SUBPROTOCOL in offered else None)
        self._sender = asyncio.create_task(self._send())
        reader = asyncio.create_task(self._read())
        if self._direct is not None:
            self._direct.take_at_once = self._take_at_once
        try:
            await asyncio.wait((self._sender, reader), return_when=asyncio.FIRST_COMPLETED)
            if self._closing is not None:  # what was answered before still goes out; see `end`
                await asyncio.wait((self._sender,))
        finally:
            if self._direct is not None:
                self._direct.take_at_once = None
            if self._flushing is not None:
                self._flushing.cancel()
            for subscription in self._watched.values():
                self._leave(subscription)
            self._watched.clear()
            tasks = (self._sender, reader, *self._jobs)
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception) and not _is_disconnect(outcome):
                    _logger.error("a connection failed", exc_info=outcome)
            await self._hang_up()

    async def _hang_up(self) -> None:
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            return
        code, reason, again = self._closing or (FAILED, "the server failed", True)
        try:
            async with asyncio.timeout(1.0):
                await self._websocket.send_text(p.Closing(reason=reason, again=again).model_dump_json())
                await self._websocket.close(code, reason[:120])
        except Exception as error:
            if not _is_disconnect(error):
                _logger.debug("a connection could not be closed in order: %r", error)

    def end(self, code: int, reason: str, *, again: bool = False) -> None:
        """Close the connection soon. Does not wait."""
        if self._closing is None:
            self._closing = (code, reason, again)
            if self._sender is not None:
                self._flushing = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._sender.cancel)
        self._wake.set()
        self._urgent.set()

    def drop(self, reason: str) -> None:
        """Close the connection of a client that does not do its part."""
        self.end(POLICY, reason, again=True)

    def look_at_clock(self, now: float) -> None:
        """Heartbeat, idle time, total time, and the time to say hello. Called now and then, for all connections."""
        limits = self._limits
        silent = now - self._heard
        if self._closing is not None:
            return
        if any(not one.live.ended for one in self._watched.values()):
            self._active = now
        if self._sending is not None and now - self._sending >= limits.send_seconds:
            self.end(POLICY, "the client reads nothing", again=True)
            if self._sender is not None:
                self._sender.cancel()
        elif self._client == "" and now - self._opened >= limits.hello_seconds:
            self.end(POLICY, "no hello came in time")
        elif now - self._opened >= limits.total_seconds:
            self.end(GOING_AWAY, "the connection has lasted long enough", again=True)
        elif now - self._active >= limits.idle_seconds:
            self.end(GOING_AWAY, "nothing was done for a long time")
        elif silent >= limits.heartbeat_seconds * 2:
            self.end(GOING_AWAY, "nothing was heard of the client", again=True)
        elif silent >= limits.heartbeat_seconds and not self._pinged:
            self._pinged = True
            self._answer(p.ServerPing())

    # ---- up ----------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        taken = 0
        while self._closing is None:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect" or self._closing is not None:
                return
            now = self._hear()
            text = message.get("text")
            if text is None:
                self.end(UNSUPPORTED, "binary messages are not part of the protocol")
            elif len(text) > self._limits.message_bytes:
                self.end(TOO_BIG, f"a message may have {self._limits.message_bytes} bytes")
            else:
                await self._take(text, now)
                taken += 1
                if taken % TURN_MESSAGES == 0:
                    await asyncio.sleep(0)  # many messages at once must not keep the others waiting

    def _hear(self) -> float:
        self._heard = now = asyncio.get_running_loop().time()
        self._pinged = False
        return now

    def _take_at_once(self, text: str) -> bool:
        """Carry out an acknowledgement where it is read; False for all else, which `_read` gets."""
        if '"ack"' not in text or len(text) > ACKNOWLEDGEMENT or self._client == "" or self._closing is not None:
            return False
        try:
            message = p.parse_up(text)
        except p.BadMessage:
            return False
        if not isinstance(message, p.Acknowledge):
            return False
        now = self._hear()
        if not self._acknowledge(message):
            self._pay(now)
        return True

    async def _take(self, text: str, now: float) -> None:
        try:
            message = p.parse_up(text)
        except p.BadMessage as error:
            if self._pay(now):
                self._complain(error.re, "bad_message", str(error))
            return
        if isinstance(message, p.Acknowledge) and self._client:
            if not self._acknowledge(message):
                self._pay(now)
            return
        if not self._pay(now):
            return
        if not isinstance(message, p.Pong):
            self._active = now
        if isinstance(message, p.Hello) != (self._client == ""):
            self._complain(message.id, "bad_message", "hello comes first, and once")
            if self._client == "":
                self.end(POLICY, "hello comes first")
            return
        await self._attempt(message.id, self._carry_out(message))

    async def _attempt(self, re: str, work: Awaitable[None]) -> None:
        """Do what message `re` asks for, and say so if it is refused or fails."""
        try:
            await work
        except Refused as refused:
            self._answer(p.Failed(re=re, code=refused.code, message=str(refused)))
        except Exception as error:
            _logger.error("what a client asked for could not be done", exc_info=error)
            self._answer(p.Failed(re=re, code="failed", message="the server failed; its log says why"))

    def _pay(self, now: float) -> bool:
        """Count a message; False if there were too many, and the connection ends."""
        limits = self._limits
        self._tokens = min(
            float(limits.message_burst), self._tokens + (now - self._counted) * limits.messages_per_second
        )
        self._counted = now
        self._tokens -= 1
        if self._tokens < 0:
            self.end(POLICY, f"more than {limits.messages_per_second:g} messages a second")
        return self._tokens >= 0

    def _complain(self, re: str, code: p.ErrorCode, reason: str) -> None:
        self._bad += 1
        self._answer(p.Failed(re=re, code=code, message=reason))
        if self._bad >= self._limits.bad_messages:
            self.end(POLICY, "too many messages that do not fit the protocol")

    def _acknowledge(self, message: p.Acknowledge) -> bool:
        """True if it released something; those cost nothing."""
        subscription = self._watched.get(message.run)
        if subscription is None:
            return False  # of a run that is not watched any more: late, not wrong
        if message.seq > subscription.acknowledgeable:
            self._complain(
                message.id, "bad_acknowledgement", f"event {message.seq} of run {message.run} was not sent yet"
            )
            return False
        return subscription.live.acknowledge(message.seq, self)

    async def _carry_out(self, message: p.Up) -> None:
        if isinstance(message, p.Hello):
            self._greet(message)
            return
        principal, host = self.principal, self._host
        assert principal is not None
        match message:
            case p.Start() | p.Resume():
                self._start_soon(message, principal)
            case p.Watch():
                self._watch(message, principal)
            case p.Unwatch():
                subscription = self._watched.pop(message.run, None)
                if subscription is not None:
                    self._leave(subscription)
                self._answer(p.Confirmed(re=message.id))
            case p.ReplyGiven():
                receipt = host.reply(principal, message.session, message.question, message.payload)
                self._answer(
                    p.ReceiptGiven(
                        re=message.id,
                        session=message.session,
                        question=message.question,
                        status=receipt.status,
                        reasons=list(receipt.reasons),
                    )
                )
            case p.Steer() | p.FollowUp():
                host.say(principal, message.session, message.text, later=isinstance(message, p.FollowUp))
                self._answer(p.Confirmed(re=message.id))
            case p.Stop():
                self._stop_soon(message, principal)
            case p.Ping():
                self._answer(p.ServerPong(re=message.id))
            case p.Pong() | p.Acknowledge():
                pass
            case _:
                assert_never(message)

    def _greet(self, hello: p.Hello) -> None:
        host = self._host
        if hello.protocol != p.PROTOCOL:
            text = f"this server speaks protocol {p.PROTOCOL}, not {hello.protocol}"
            self._answer(p.Failed(re=hello.id, code="wrong_protocol", message=text))
            self.end(POLICY, text)
            return
        if self.principal is None and self._gatekeeper.wants_token:
            self.principal = self._gatekeeper.by_token(hello.token)
        if self.principal is None:
            text = "who you are is not known; the token is missing or wrong"
            self._answer(p.Failed(re=hello.id, code="not_authenticated", message=text))
            self.end(POLICY, text)
            return
        from trilane import new_id

        self._client = hello.client or new_id()
        self._frame_seconds = hello.frame_seconds
        self.lanes = hello.lanes and host.settings.lanes
        self._answer(
            p.Welcome(
                re=hello.id,
                server="trilane-web",
                principal=self.principal.id,
                agent=host.agent.name,
                acknowledgement=host.settings.acknowledgement,
                heartbeat_seconds=self._limits.heartbeat_seconds,
                lanes=self.lanes,
            )
        )

    # ---- runs --------------------------------------------------------------------------------------------------------

    def _start_soon(self, message: p.Start | p.Resume, principal: Principal) -> None:
        """Start a run while reading on: to claim a session may take a store some time."""

        async def work() -> None:
            if isinstance(message, p.Start):
                live = await self._host.start(
                    principal,
                    message.text,
                    session=message.session,
                    acknowledgement=message.acknowledgement,
                    on_disconnect=message.on_disconnect,
                    key=message.key,
                )
            else:
                live = await self._host.resume(
                    principal,
                    message.session,
                    acknowledgement=message.acknowledgement,
                    on_disconnect=message.on_disconnect,
                    key=message.key,
                )
            self._subscribe(message.id, live, 0)

        self._in_background(message.id, work())

    def _stop_soon(self, message: p.Stop, principal: Principal) -> None:
        async def work() -> None:
            await self._host.stop(principal, message.session, message.reason, now=message.when == "now")
            self._answer(p.Confirmed(re=message.id))

        self._in_background(message.id, work())

    def _in_background(self, re: str, work: Awaitable[None]) -> None:
        task = asyncio.create_task(self._attempt(re, work))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    def _watch(self, message: p.Watch, principal: Principal) -> None:
        session = self._host.own(principal, message.session)
        live = self._host.run(principal, message.run) if message.run else self._host.active(session)
        if live is None:
            self._answer(p.RunAttached(re=message.id, session=session, run="", active=False))
            return
        if live.session != session:
            raise Refused("not_found", "there is no such run in this session")
        self._subscribe(message.id, live, message.after)

    def _subscribe(self, re: str, live: LiveRun, after: JsonValue) -> None:
        if live.run_id not in self._watched and len(self._watched) >= self._limits.watched_runs:
            self._forget_ended()
            if len(self._watched) >= self._limits.watched_runs:
                raise Refused("too_many", f"a connection may watch {self._limits.watched_runs} runs")
        if self._closing is not None:
            return  # the run is nobody's now, and treated as one whose client has left
        subscription, gap = Subscription.after(live, after)
        before = self._watched.get(live.run_id)
        shown = self._left.pop(live.run_id, 0)
        if before is not None:
            shown = before.acknowledgeable
            self._unwatch(before)
        subscription.acknowledgeable = max(shown, subscription.sent)
        self._watched[live.run_id] = subscription
        subscription.wake = partial(self._news, subscription)
        live.journal.watch(subscription.wake)
        driver = live.attach(self)
        if driver and subscription.sent:
            live.acknowledge(subscription.sent, self)
        self._tell_attached(re, subscription, driver=driver)
        if gap is not None:
            self._answer(gap)

    def _tell_attached(self, re: str, subscription: Subscription, *, driver: bool) -> None:
        live = subscription.live
        self._answer(
            p.RunAttached(
                re=re,
                session=live.session,
                run=live.run_id,
                next=subscription.sent + 1,
                active=not live.ended,
                driver=driver,
                acknowledgement=live.gate.policy,
            )
        )

    def drives(self, live: LiveRun) -> None:
        """Say that from now on its acknowledgements release the run."""
        subscription = self._watched.get(live.run_id)
        if subscription is not None:
            self._tell_attached("", subscription, driver=True)

    def _forget_ended(self) -> None:
        for run_id, subscription in list(self._watched.items()):
            if subscription.live.ended and subscription.sent >= subscription.live.journal.last:
                del self._watched[run_id]
                self._leave(subscription)

    def _leave(self, subscription: Subscription) -> None:
        self._unwatch(subscription)
        subscription.live.detach(self)
        self._left[subscription.live.run_id] = subscription.acknowledgeable
        if len(self._left) > 2 * self._limits.watched_runs:  # all that were watched may be left at once
            del self._left[next(iter(self._left))]

    def _unwatch(self, subscription: Subscription) -> None:
        if subscription.wake is not None:
            subscription.live.journal.unwatch(subscription.wake)
            subscription.wake = None  # it leads back here

    def see(self, live: LiveRun, name: str, data: JsonValue) -> None:
        """Pass on a notification of a run that is watched, unless the client is slow."""
        if self.lanes and live.run_id in self._watched and len(self._answers) < self._limits.answers // 2:
            self._answer(p.NotificationSeen(session=live.session, run=live.run_id, name=name, data=data))

    # ---- down --------------------------------------------------------------------------------------------------------

    def _answer(self, message: p.DownMessage) -> None:
        if len(self._answers) >= self._limits.answers:
            self.end(POLICY, "answers are not read")
            return
        self._answers.append(message.model_dump_json())
        self._urgent.set()
        self._wake.set()

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._sender_waits = True
            await self._wake.wait()
            self._sender_waits = False
            self._wake.clear()
            self._urgent.clear()
            sent = True
            while sent:
                while self._answers:
                    await self._send_text(self._answers.popleft())
                if self._closing is not None and self._closing[0] != GOING_AWAY:
                    return
                sent = await self._send_events()  # also at the end of the server: how the runs ended
            if self._closing is not None:
                return
            now = loop.time()
            pause = self._frame_seconds
            if not pause and now - self._frame_sent < BURST_SECONDS and not self._awaited():
                pause = BURST_SECONDS
            self._frame_sent = now
            if pause:
                try:
                    async with asyncio.timeout(pause):
                        await self._urgent.wait()
                except TimeoutError:
                    pass  # nothing urgent came in the pause

    def _news(self, subscription: Subscription) -> None:
        """A watched run has a new event, or has ended."""
        if not (self._sender_waits and self._sent_at_once(subscription)):
            self._wake.set()

    def _sent_at_once(self, subscription: Subscription) -> bool:
        """Send the new event without the sender; False if it had better do that."""
        direct = self._direct
        if direct is None or self._frame_seconds or self._wake.is_set() or self._closing is not None:
            return False
        text = subscription.only_news()
        if text is None:
            return False
        now = asyncio.get_running_loop().time()
        live = subscription.live
        if now - self._frame_sent < BURST_SECONDS and live.gate.may_pass(live.journal.last):
            return False  # it is not waited for, and others may follow that can travel with it
        try:
            if not direct.send_at_once(_frame(live, text)):
                return False
        except Exception:
            return False  # whatever is wrong with this client, the run and those who watch it have no part in it
        subscription.took()
        self._frame_sent = now
        return True

    def _awaited(self) -> bool:
        """A run waits for the client: its next event comes after an acknowledgement, and no other comes with it."""
        return any(one.live.gate.waiting_since is not None for one in self._watched.values())

    async def _send_events(self) -> bool:
        """One message of each watched run that has something new; False if none had."""
        any_sent = False
        for subscription in list(self._watched.values()):
            gap = subscription.fell_behind()
            if gap is not None:
                await self._send_text(gap.model_dump_json())
            batch = subscription.take(self._limits.frame_bytes)
            if batch:
                await self._send_text(_frame(subscription.live, ",".join(text for _, text in batch)))
                any_sent = True
        return any_sent

    async def _send_text(self, text: str) -> None:
        self._sending = asyncio.get_running_loop().time()
        await self._websocket.send_text(text)
        self._sending = None


def _frame(live: LiveRun, events: str) -> str:
    return f'{{"re":"","type":"events","run":"{live.run_id}","events":[{events}]}}'


def _is_disconnect(error: Exception) -> bool:
    # Servers say in different ways that the client is gone.
    return (
        isinstance(error, WebSocketDisconnect | OSError)
        or "after sending" in str(error)
        or (type(error).__name__ == "ClientDisconnected")
    )
