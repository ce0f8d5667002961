"""The SDK's client, made so that only `trilane.providers` retries and watches the time."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from trilane.errors import ConfigError
from trilane.providers import note_bytes

from .failures import KEY_ADVICE

if TYPE_CHECKING:
    import anthropic
    import httpx2

    from .settings import AnthropicSettings

__all__ = ["SDK", "make_client"]

_HERE = "https://api.anthropic.com"
#: What is imported at the first request.
SDK = ("anthropic", "anthropic.resources.messages", "httpx2")


def make_client(settings: AnthropicSettings) -> anthropic.AsyncAnthropic:
    """A client.

    Without `api_key` in the settings, the key is what the SDK finds: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, a
    profile. That is never sent to a `base_url` of the settings: a file in a folder that somebody made could ask for it.

    Raises:
        ConfigError: there is no key, or it cannot be read.
    """
    import anthropic
    import httpx2

    key = settings.api_key.get_secret_value() if settings.api_key is not None else ""
    if settings.base_url and not key:
        raise ConfigError(
            f"anthropic: base_url is set to {settings.base_url}, but api_key is not, and a key of the environment is "
            "for Anthropic's own server only. Set api_key under [anthropic], too; any text if the server wants none."
        )
    base_url = settings.base_url or os.environ.get("ANTHROPIC_BASE_URL") or _HERE
    timeout = httpx2.Timeout(None, connect=settings.connect_seconds)
    try:
        client = anthropic.AsyncAnthropic(
            api_key=key or None,
            base_url=base_url,
            max_retries=0,
            timeout=timeout,
            http_client=anthropic.DefaultAsyncHttpxClient(
                base_url=base_url, timeout=timeout, event_hooks={"response": [_watch]}
            ),
        )
    except anthropic.AnthropicError as error:
        raise ConfigError(f"anthropic: the SDK found no usable key: {error} {KEY_ADVICE}") from error
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
