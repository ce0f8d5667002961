"""`python -m chat_and_event_agent`: serves both agents and prints where."""

from __future__ import annotations

import argparse
import asyncio

from trilane import Model
from trilane_web.serving import listen, make_server

from .application import make_site
from .desk import DeskModel


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="chat_and_event_agent", description=__doc__)
    parser.add_argument("--model", default="", help="PROVIDER:NAME; without it a model that needs no key")
    parser.add_argument("--together", action="store_true", help="one agent that executes its tools itself, to compare")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds the event agent takes over a call")
    options = parser.parse_args()
    model: Model | str = options.model or DeskModel(pace_seconds=options.pace / 20)
    web = make_site(model, split=not options.together, pause=lambda: asyncio.sleep(options.pace))
    with listen("127.0.0.1", options.port, protected=False) as listener:
        where = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"the queues: {where}/queues/    the chat page of every server: {where}/", flush=True)
        asyncio.run(make_server(web).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
