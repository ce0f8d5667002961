"""Serving the application as a program: the socket, uvicorn, and what happens on SIGTERM."""

from __future__ import annotations

import socket
import sys

import uvicorn

from trilane import ConfigError

from .application import WebApp
from .sockets import BoundedHttp, BoundedWebSocket

__all__ = ["WebServer", "listen", "make_server"]

_LOOPBACK = ("127.", "::1", "localhost")


class WebServer(uvicorn.Server):
    """uvicorn, with the shutdown in the order that runs need: runs first, then connections."""

    def __init__(self, config: uvicorn.Config, web: WebApp) -> None:
        super().__init__(config)
        self._web = web

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Suspend the runs, close the connections, then do what uvicorn does."""
        for server in self.servers:
            server.close()
        await self._web.drain()
        await super().shutdown(sockets)
        if self.force_exit:
            # By a second Ctrl-C. uvicorn then leaves the task of the lifespan to be cancelled, and logs a traceback of
            # that; there is nothing to wait for in it, the runs are put aside.
            await self.lifespan.shutdown()


def listen(host: str, port: int, *, protected: bool, send_seconds: float = 30.0) -> socket.socket:
    """A listening socket.

    Args:
        host: Address to bind to.
        port: Port; 0 for any.
        protected: Clients have to authenticate.
        send_seconds: A peer that takes nothing for so long is cut off by the system.

    Raises:
        ConfigError: the address can be reached from elsewhere and nobody has to authenticate, or it cannot be bound.
    """
    if not protected and not host.startswith(_LOOPBACK):
        raise ConfigError(
            f"{host} can be reached from other machines, and everybody there could use the agent; "
            "give --token, or bind to 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections inherit it. A client that reads nothing would otherwise keep its socket and what is buffered
            # for it for as long as its system answers.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(send_seconds * 1000))
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port") from None
    return listener


def make_server(web: WebApp, *, log_level: str = "warning") -> WebServer:
    """A server for `serve(sockets=[...])`."""
    limits = web.runs.settings.limits
    config = uvicorn.Config(
        web,
        http=BoundedHttp,
        ws=BoundedWebSocket,
        ws_max_size=limits.message_bytes,
        ws_per_message_deflate=False,  # a window of 32 KiB for each connection buys little on a local line
        ws_ping_interval=None,  # the protocol has its own heartbeat, which a page sees too
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 * 1024,
        log_level=log_level,
        server_header=False,
        lifespan="on",
    )
    return WebServer(config, web)
