"""The SDK and its clients: imported at the first request, one client for each event loop, closed with the loop.

A connection belongs to the loop in which it was made, so an agent that is used in several loops, one after the other or
at the same time in threads, has a client in each.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import anyio
import anyio.lowlevel
import anyio.to_thread

from trilane.providers import load_sdk

from .target import Target

if TYPE_CHECKING:
    import openai

__all__ = ["Clients", "sdk"]

#: What a request needs of the SDK: the second module takes most of the time and would be imported by the first call.
_MODULES = ("openai", "openai.resources.chat.completions")


async def sdk() -> Any:
    """The SDK, imported in a thread the first time: it takes a second or two."""
    return await load_sdk(*_MODULES)


class _Shared:
    """A client, who uses it, and the generator that closes it."""

    __slots__ = ("client", "keeper", "users")

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self.client = client
        self.keeper = _kept(client)
        self.users: WeakSet[Clients] = WeakSet()


#: The clients of the running event loop. Models of the same server share one, so there are no more than servers.
_open: anyio.lowlevel.RunVar[dict[tuple[object, ...], _Shared]] = anyio.lowlevel.RunVar("trilane_openai_clients")


class Clients:
    """The clients of one model."""

    def __init__(self, target: Target, connect_seconds: float) -> None:
        self._target = target
        self._connect_seconds = connect_seconds
        self._place = (target.base_url, target.key, target.organization, target.preset.name, connect_seconds)

    async def get(self) -> openai.AsyncOpenAI:
        """The client of the running event loop."""
        module = await sdk()
        clients = _open.get(None)
        if clients is None:
            clients = {}
            _open.set(clients)
        if self._place not in clients:
            # In a thread as well: it reads certificates and imports the rest of the SDK, which takes half a second.
            client = await anyio.to_thread.run_sync(self._make, module, abandon_on_cancel=True)
            if self._place not in clients:  # else another call was quicker; this client has no connection yet
                shared = clients[self._place] = _Shared(client)
                await anext(shared.keeper)
        shared = clients[self._place]
        shared.users.add(self)
        return shared.client

    async def aclose(self) -> None:
        """Close the client of the running event loop, unless other models use it."""
        clients = _open.get(None)
        shared = clients.get(self._place) if clients is not None else None
        if clients is None or shared is None:
            return
        shared.users.discard(self)
        if not shared.users:
            del clients[self._place]
            await shared.keeper.aclose()

    def _make(self, module: Any) -> openai.AsyncOpenAI:
        import httpx2

        target = self._target
        client: openai.AsyncOpenAI = module.AsyncOpenAI(
            # The SDK insists on a key; servers that want none do not look at it.
            api_key=target.key.reveal() or "none",
            base_url=target.base_url,
            organization=target.organization or None,
            max_retries=0,
            # The other limits are kept by `run_attempts`: the SDK has one for the first byte and all that follow.
            timeout=httpx2.Timeout(None, connect=self._connect_seconds),
        )
        if target.preset.name != "openai":
            # What the environment says of an account at OpenAI is nobody else's business.
            client.organization = client.project = None
        _ = client.chat.completions.with_streaming_response  # imported when it is first looked at
        return client


async def _kept(client: openai.AsyncOpenAI) -> AsyncGenerator[None]:
    """Closes the client when the event loop ends: both backends close the generators that are still alive then."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await client.close()
