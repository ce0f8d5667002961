"""The SDK's client, made so that only `trilane.providers` retries and watches the time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from trilane.errors import ConfigError
from trilane.providers import note_bytes

from .failures import KEY_ADVICE

if TYPE_CHECKING:
    import anthropic
    import httpx2

__all__ = ["SDK", "make_client"]

#: What is imported at the first request.
SDK = ("anthropic", "anthropic.resources.messages", "httpx2")


def make_client(key: str, base_url: str, connect_seconds: float) -> anthropic.AsyncAnthropic:
    """A client.

    Args:
        key: The key; empty for what the SDK finds: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, a profile.
        base_url: The server.
        connect_seconds: How long the server may take to take a connection.

    Raises:
        ConfigError: there is no key.
    """
    import anthropic
    import httpx2

    timeout = httpx2.Timeout(None, connect=connect_seconds)
    client = anthropic.AsyncAnthropic(
        api_key=key or None,
        base_url=base_url,
        max_retries=0,
        timeout=timeout,
        http_client=anthropic.DefaultAsyncHttpxClient(
            base_url=base_url, timeout=timeout, event_hooks={"response": [_watch]}
        ),
    )
    if not (client.api_key or client.auth_token or client.credentials):
        raise ConfigError(f"anthropic: there is no API key. {KEY_ADVICE}")
    return client


async def _watch(response: httpx2.Response) -> None:
    """Let every piece of the body count as a sign of life, keep-alive comments included, which the SDK skips."""
    import httpx2

    assert isinstance(response.stream, httpx2.AsyncByteStream)
    inner: httpx2.AsyncByteStream = response.stream

    class Watched(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in inner:
                note_bytes()
                yield piece

        async def aclose(self) -> None:
            await inner.aclose()

    response.stream = Watched()
