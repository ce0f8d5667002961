"""One response of the server while it is read: its bytes, and how it is closed whatever happens.

What the bytes mean is in `sse.py` and `chunks.py`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import anyio

__all__ = ["Body", "ConnectionCut", "open_body"]

#: How long the rest of an answer that is complete may take; reading it lets the connection be used again.
_REST_SECONDS = 0.2


class ConnectionCut(Exception):
    """The connection was lost; the cause is the library's error."""


class Body:
    """The body of a response. Whoever opened it must await `aclose`, whatever happened."""

    __slots__ = ("_pieces", "_response", "content_type", "headers")

    def __init__(self, response: Any) -> None:
        self._response = response
        self._pieces: AsyncIterator[bytes] = response.http_response.aiter_bytes()
        self.headers = response.http_response.headers
        self.content_type: str = self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def next(self) -> bytes:
        """The next piece, empty at the end.

        Raises:
            ConnectionCut: the connection was lost.
        """
        import httpx2

        try:
            return await anext(self._pieces, b"")
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError, anyio.EndOfStream) as error:
            raise ConnectionCut from error

    async def aclose(self, *, is_complete: bool) -> None:
        """Close the connection at once; after a complete answer, read its end and keep the connection."""
        with anyio.CancelScope(shield=True):
            if is_complete:
                with anyio.move_on_after(_REST_SECONDS):
                    await self._read_on()
            await self._response.close()
            # The libraries' generators inside each other wait at a `yield`. Reading on from the closed connection fails
            # at once and ends them all; left to the garbage collector, they would end in a task nobody owns.
            await self._read_on()

    async def _read_on(self) -> None:
        try:
            async for _ in self._pieces:
                pass
        except Exception:  # nobody wants these bytes any more, nor what is wrong with them
            pass


async def open_body(client: Any, body: dict[str, Any]) -> Body:
    """Send a request and return as soon as the headers of its response are here.

    Raises:
        openai.OpenAIError: no connection, or the server answered with an error.
    """
    rest = {key: value for key, value in body.items() if key not in ("model", "messages", "stream")}
    create = client.chat.completions.with_streaming_response.create
    manager = create(model=body["model"], messages=body["messages"], stream=True, extra_body=rest)
    return Body(await manager.__aenter__())
