"""A Trilane agent behind a WebSocket, plain HTTP and a chat page.

`app(agent)` makes an ASGI application to serve or to mount; `trilane serve module:agent` serves it. What goes over the
wire is in `protocol.py`; the typed client for Python programs is `trilane_web.client`, imported on its own.
"""

from __future__ import annotations

from .application import WebApp, app
from .principals import Authenticate, Principal
from .protocol import PROTOCOL, protocol_json_schema
from .settings import WebLimits, WebSettings

__all__ = [
    "PROTOCOL",
    "Authenticate",
    "Principal",
    "WebApp",
    "WebLimits",
    "WebSettings",
    "app",
    "protocol_json_schema",
]
