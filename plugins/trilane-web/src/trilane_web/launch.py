"""From the options of `trilane serve` to a running server."""

from __future__ import annotations

import asyncio
import secrets
import sys
from typing import get_args

from trilane import ConfigError

from .application import app
from .command import load_agent
from .protocol import AckPolicy, DisconnectPolicy
from .serving import listen, make_server
from .settings import WebSettings

__all__ = ["launch"]


def launch(
    target: str,
    *,
    host: str,
    port: int,
    token: str,
    model: str,
    store: str,
    acknowledgement: str,
    on_disconnect: str,
    origins: tuple[str, ...],
    names: tuple[str, ...],
    show_errors: bool,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ConfigError: an option cannot be used.
    """
    policies, leavings = get_args(AckPolicy), get_args(DisconnectPolicy)
    if acknowledgement not in policies:
        raise ConfigError(f"--acknowledgement {acknowledgement}: choose one of {', '.join(policies)}")
    if on_disconnect and on_disconnect not in leavings:
        raise ConfigError(f"--on-disconnect {on_disconnect}: choose one of {', '.join(leavings)}")
    if token == "new":
        token = secrets.token_urlsafe(24)
    settings = WebSettings(
        acknowledgement=acknowledgement,  # type: ignore[arg-type]
        on_disconnect=on_disconnect or None,  # type: ignore[arg-type]
        allowed_origins=origins,
        allowed_hosts=names or None,
        show_errors=show_errors,
        lanes=True,
    )
    listener = listen(host, port, protected=bool(token), send_seconds=settings.limits.send_seconds)
    with listener:
        agent = load_agent(target, model, store)
        web = app(agent, token=token, settings=settings)
        bound = listener.getsockname()
        where = f"http://[{bound[0]}]:{bound[1]}/" if ":" in bound[0] else f"http://{bound[0]}:{bound[1]}/"
        # After the `#`, so that it is in no log and sent to nobody; the page takes it from there.
        print(f"serving {agent.name!r} at {where}{'#token=' + token if token else ''}", file=sys.stderr, flush=True)

        async def work() -> None:
            try:
                await make_server(web).serve(sockets=[listener])
            finally:
                await agent.aclose()

        asyncio.run(work())
