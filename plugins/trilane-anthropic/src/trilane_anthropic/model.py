"""The model: one call is a request, perhaps tried again, and a stream of raw events.

What is sent is in `parameters.py` and `conversion.py`, what comes back in `answer.py`, clients are in `clients.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio

from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.providers import Attempt, LoopClients, RetryPolicy, TimeLimits, close_stream, load_sdk, run_attempts

from .answer import Answer
from .blocks import MARK
from .clients import SDK, make_client
from .events import EventReader
from .failures import Failures
from .names import KNOWN_MODELS
from .parameters import WireRequest, wire_request

if TYPE_CHECKING:
    import anthropic

    from .settings import AnthropicSettings

__all__ = ["AnthropicModel"]

_log = logging.getLogger("trilane.anthropic")
#: How long to wait for the end of the body after the last event: with it, the connection can be used again.
_END_SECONDS = 0.2


class AnthropicModel:
    """A model behind the Messages API.

    ```python
    Agent(AnthropicModel("claude-sonnet-5"))                                # the key from ANTHROPIC_API_KEY
    Agent(AnthropicModel("claude-opus-5", api_key=key, cache_ttl="1h"))
    ```

    The reasoning of the model is kept with its signatures and goes back to it in later turns. Nothing is parsed that
    the model writes before it is complete: arguments that are no JSON stay in `ToolCall.raw`.

    Args:
        name: Name of the model.
        settings: Anything of `AnthropicSettings`, such as `api_key`, `base_url` or `idle_seconds`. What is not given
            has its default; files and `TRILANE_ANTHROPIC_...` are read only for models that are named by text.

    Raises:
        pydantic.ValidationError: a setting that does not exist, or of the wrong type.
    """

    def __init__(self, name: str = "", **settings: Any) -> None:
        from .settings import AnthropicSettings

        self._set_up(name, AnthropicSettings(**settings))

    @classmethod
    def from_settings(cls, name: str, settings: AnthropicSettings) -> AnthropicModel:
        """The model of that name, with settings that were read elsewhere."""
        model = cls.__new__(cls)
        model._set_up(name, settings)
        return model

    def _set_up(self, name: str, settings: AnthropicSettings) -> None:
        self._model = name or KNOWN_MODELS[0]
        self._settings = settings
        self._limits = TimeLimits(
            connect_seconds=settings.connect_seconds,
            first_byte_seconds=settings.first_byte_seconds,
            idle_seconds=settings.idle_seconds,
            total_seconds=settings.total_seconds,
        )
        self._retry = RetryPolicy(
            retries=settings.max_retries, max_retry_after_seconds=settings.max_retry_after_seconds
        )
        self._clients: LoopClients[anthropic.AsyncAnthropic] = LoopClients(lambda: make_client(settings), _close_client)
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        """`anthropic:NAME`."""
        return f"anthropic:{self._model}"

    def __repr__(self) -> str:
        return f"AnthropicModel({self._model!r})"

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The model can be used again afterwards."""
        await self._clients.aclose()

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask the API, trying again as long as nothing was shown.

        What could not be expressed in the request is logged once, and listed in the response's
        `extra["anthropic"]["left_out"]`.

        Raises:
            ModelError: the call failed; the text says why and what to do.
            ConfigError: there is no key, or `ModelSettings.extra` sets what it may not.
        """
        await load_sdk(*SDK)
        wire = wire_request(request, self._model, self._settings)
        for what in wire.left_out:
            if what not in self._warned:
                self._warned.add(what)
                _log.warning("%s: left out of the request: %s", self.name, what)
        client = await self._clients.get()
        failures = Failures(self.name, str(client.base_url), (client.api_key or "", client.auth_token or ""))

        async def attempt(attempt: Attempt) -> ModelResponse:
            return await self._attempt(client, wire, attempt, failures)

        return await run_attempts(attempt, emit, model=self.name, limits=self._limits, retry=self._retry)

    # ---- one attempt -------------------------------------------------------------------------------------------------

    async def _attempt(
        self, client: anthropic.AsyncAnthropic, wire: WireRequest, attempt: Attempt, failures: Failures
    ) -> ModelResponse:
        stream = await self._open(client, wire, attempt, failures)
        request_id = stream.response.headers.get("request-id", "")
        answer = Answer(wire.names, wire.form)
        pieces = stream.response.aiter_bytes()
        reader = EventReader(pieces)
        try:
            while not answer.is_complete:
                event = await _next(reader, attempt, failures, request_id)
                if event is None:
                    if not answer.stop:
                        raise failures.cut("the stream ended without its last event", request_id)
                    break
                for delta in answer.take(event):
                    await attempt.emit(delta)
            else:
                await _read_end(pieces)
        finally:
            await close_stream(stream, pieces)
        return self._response(answer, wire, request_id)

    async def _open(
        self, client: anthropic.AsyncAnthropic, wire: WireRequest, attempt: Attempt, failures: Failures
    ) -> Any:
        settings, body = self._settings, wire.body
        headers = {"anthropic-beta": ",".join(settings.betas)} if settings.betas else None
        try:
            # As `extra_body`, because it is complete: the SDK's own parameters walk through the whole history again,
            # and know no fields that are newer than they are.
            return await client.messages.create(
                model=body["model"],
                max_tokens=body["max_tokens"],
                messages=(),
                stream=True,
                extra_body=body,
                extra_headers=headers,
            )
        except Exception as error:
            failure = failures.of(error, attempt)
            failure.__cause__ = failures.shown_cause(error)
        # Outside of the `except`, so that nobody prints the SDK's error along with ours: it may repeat the key.
        raise failure

    def _response(self, answer: Answer, wire: WireRequest, request_id: str) -> ModelResponse:
        extra = answer.extra()
        if request_id:
            extra["request_id"] = request_id
        if wire.left_out:
            extra["left_out"] = list(wire.left_out)
        return ModelResponse(
            parts=answer.parts(),
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            model=answer.model or self._model,
            extra={MARK: extra},
        )


async def _close_client(client: anthropic.AsyncAnthropic) -> None:
    await client.close()


async def _next(reader: EventReader, attempt: Attempt, failures: Failures, request_id: str) -> dict[str, Any] | None:
    """The next event, None at the end of the stream."""
    try:
        event = await reader.next()
    except Exception as error:
        raise failures.of(error, attempt, request_id) from error
    if event is not None and event.get("type") == "error":
        raise failures.in_stream(event, request_id)
    return event


async def _read_end(pieces: AsyncIterator[bytes]) -> None:
    """The answer is complete. Read the rest of the body, if it comes at once."""
    with anyio.move_on_after(_END_SECONDS):
        try:
            async for _ in pieces:
                pass
        except Exception:
            _log.debug("the connection failed after the last event", exc_info=True)
