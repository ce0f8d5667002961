"""What is bounded below requests and messages: frames, headers and sockets. uvicorn's protocols, with limits.

What a client may send as messages is in `connection.py`, and how the server is put together in `serving.py`.
"""

from __future__ import annotations

import asyncio
from asyncio.transports import BaseTransport
from collections.abc import Callable

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame
from websockets.http11 import Request

from .application import WebApp
from .direct import DIRECT
from .settings import WebLimits

__all__ = ["BoundedHttp", "BoundedWebSocket"]

READ_AHEAD = 16  # messages that may wait before no more is read from a client
AT_ONCE = 16  # messages that are taken where they are read, before others get a turn
READ_BYTES = 16 * 1024  # read at once, so that thousands of tiny frames do not keep the others waiting
EMPTY_FRAMES = 1000  # pings, pongs and fragments between two messages
SPARE_SOCKETS = 100  # beyond the connections that are allowed, so that these can still be refused with a reason


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Counts the frames that never make a message, and answers no pings of a client that reads nothing.

    It does not stop and start reading around every single message, as uvicorn's does: that costs as much as a message.
    It offers itself as a `DirectSocket`, unless somebody put middleware before the application.
    """

    _empty_frames = 0
    _at_once = AT_ONCE
    take_at_once: Callable[[str], bool] | None = None

    def handle_connect(self, event: Request) -> None:
        """The handshake is read, and the application starts at the next turn of the loop."""
        super().handle_connect(event)
        web = self.config.app
        if not self.close_sent and isinstance(web, WebApp) and web.is_alone:
            self.scope["extensions"][DIRECT] = {"socket": self}

    def connection_made(self, transport: BaseTransport) -> None:
        """The handshake begins."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # asyncio's own
            transport.max_size = READ_BYTES

    def data_received(self, data: bytes) -> None:
        """Frames, or parts of them, have come."""
        self._at_once = AT_ONCE
        self.read_paused = True  # so that the first message does not pause it; undone when the last one was taken
        super().data_received(data)
        if self.queue.qsize() > READ_AHEAD and not self.close_sent:
            self.transport.pause_reading()

    def handle_text(self, event: Frame) -> None:
        """A text, or the first part of one."""
        take = self.take_at_once
        if take is not None and event.fin and self._at_once > 0 and self.queue.empty() and not self.close_sent:
            try:
                text = bytes(event.data).decode()
            except UnicodeDecodeError:
                pass  # below that is refused
            else:
                if take(text):
                    self._at_once -= 1
                    self._empty_frames = 0
                    return
        super().handle_text(event)

    def send_at_once(self, text: str) -> bool:
        """Send a text if that needs no waiting; False if it does, or cannot be."""
        if not (self.writable.is_set() and self.handshake_complete) or self.disconnected or self.close_sent:
            return False
        try:
            self.conn.send_text(text.encode())
        except InvalidState:
            return False
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    def send_receive_event_to_app(self) -> None:
        """A message is whole."""
        self._empty_frames = 0
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        """A ping; who does not read what was sent is not owed another pong."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()
        self._count()

    def handle_pong(self, event: Frame) -> None:
        """A pong."""
        super().handle_pong(event)
        self._count()

    def handle_cont(self, event: Frame) -> None:
        """One more fragment of a message."""
        super().handle_cont(event)
        self._count()

    def _count(self) -> None:
        self._empty_frames += 1
        if self._empty_frames > EMPTY_FRAMES and not self.close_sent:
            self.conn.fail(1008, "too many frames that are no message")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1008})
            self.close_sent = True
            self.transport.close()


class BoundedHttp(H11Protocol):
    """Closes sockets that take too long to say what they want, and those that are too many."""

    _timer: asyncio.TimerHandle | None = None

    @property
    def _limits(self) -> WebLimits:
        web = self.config.app
        return web.runs.settings.limits if isinstance(web, WebApp) else WebLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A socket was accepted."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections + SPARE_SOCKETS:
            self.transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """More of a request has come, or all of it."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        """While a request is not whole up to the end of its headers, there is a time by which it must be."""
        if self.transport.get_protocol() is not self or not (self.cycle is None or self.cycle.response_complete):
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._limits.hello_seconds, self._too_slow)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.get_protocol() is self and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()
