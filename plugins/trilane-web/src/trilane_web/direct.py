"""What a server may offer a WebSocket beyond ASGI: to send, and to be given what comes, without waiting.

In ASGI every message goes through a task and a queue on its way up, and through a coroutine on its way down. Where each
message waits for the one before, as with acknowledgements, that is half of what it costs. `sockets.py` offers this, and
`connection.py` uses it where it is offered: any other server will do as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

__all__ = ["DIRECT", "DirectSocket", "direct_socket"]

DIRECT = "trilane.direct"  # the extension of the scope, with the `socket`


class DirectSocket(Protocol):
    """A WebSocket of such a server.

    Attributes:
        take_at_once: Asked about each text while none waits to be received: True if nothing else is to be done with it.
    """

    take_at_once: Callable[[str], bool] | None

    def send_at_once(self, text: str) -> bool:
        """Send a text if that needs no waiting; False if it does, or if it cannot be sent."""
        ...


def direct_socket(scope: Scope) -> DirectSocket | None:
    """The socket, if the server offers it."""
    socket: DirectSocket | None = scope.get("extensions", {}).get(DIRECT, {}).get("socket")
    return socket
