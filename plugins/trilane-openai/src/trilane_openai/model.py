"""The model: one call is a request, perhaps tried again, and a stream of deltas.

What is sent is in `parameters.py` and `conversion.py`, what comes back in `chunks.py`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trilane.errors import ModelError
from trilane.messages import Delta
from trilane.models import Emit, ModelRequest, ModelResponse
from trilane.providers import Attempt, RetryPolicy, TimeLimits, run_attempts

from .chunks import Answer, StreamFailed
from .clients import Clients, sdk
from .failures import Failures, request_id_in
from .parameters import WireRequest, wire_request
from .sse import EventDecoder
from .streaming import Body, ConnectionCut, open_body
from .target import Target, target_of

if TYPE_CHECKING:
    from pydantic import JsonValue

    from .settings import OpenAISettings

__all__ = ["OpenAIModel"]

_log = logging.getLogger("trilane.openai")


class OpenAIModel:
    """A model behind a server that speaks Chat Completions.

    ```python
    Agent(OpenAIModel("gpt-5.4-mini"))                                   # the key from OPENAI_API_KEY
    Agent(OpenAIModel("qwen3", base_url="http://10.0.0.7:8000/v1"))      # any compatible server
    ```

    Args:
        name: Name of the model, or `PRESET/NAME`; see `presets.py`.
        settings: Anything of `OpenAISettings`, such as `api_key`, `base_url`, `preset` or `idle_seconds`. What is not
            given has its default; files and `TRILANE_OPENAI_...` are read only for models that are named by text.

    Raises:
        ConfigError: no key, an unknown preset, or no name.
        pydantic.ValidationError: a setting of the wrong type.
    """

    def __init__(self, name: str = "", **settings: Any) -> None:
        from .settings import OpenAISettings

        self._set_up(name, OpenAISettings(**settings))

    @classmethod
    def from_settings(cls, name: str, settings: OpenAISettings) -> OpenAIModel:
        """The model of that name, with settings that were read elsewhere.

        Raises:
            ConfigError: as the class.
        """
        model = cls.__new__(cls)
        model._set_up(name, settings)
        return model

    def _set_up(self, name: str, settings: OpenAISettings) -> None:
        target = target_of(name, settings)
        self._target = target
        prefix = "" if target.preset.name in ("openai", "compatible") else f"{target.preset.name}/"
        self._name = f"openai:{prefix}{target.name}"
        self._limits = TimeLimits(
            connect_seconds=settings.connect_seconds,
            first_byte_seconds=settings.first_byte_seconds,
            idle_seconds=settings.idle_seconds,
            total_seconds=settings.total_seconds,
        )
        self._retry = RetryPolicy(
            retries=settings.max_retries, max_retry_after_seconds=settings.max_retry_after_seconds
        )
        self._failures = Failures(target, self._name)
        self._clients = Clients(target, settings.connect_seconds)
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        """`openai:NAME` or `openai:PRESET/NAME`."""
        return self._name

    @property
    def target(self) -> Target:
        """The server, and the name of the model there."""
        return self._target

    def __repr__(self) -> str:
        return f"OpenAIModel({self._name!r}, base_url={self._target.base_url!r})"

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The model can be used again afterwards."""
        await self._clients.aclose()

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask the server, trying again as long as nothing was shown.

        Raises:
            ModelError: the call failed; the text says why and what to do.
            ConfigError: `ModelSettings.extra` sets what it may not.
        """
        wire = wire_request(request, self._target.name, self._target.preset)
        self._warn(wire.left_out)
        client = await self._clients.get()

        async def attempt(one: Attempt) -> ModelResponse:
            return await self._attempt(client, wire, one)

        return await run_attempts(attempt, emit, model=self._name, limits=self._limits, retry=self._retry)

    # ---- one attempt -------------------------------------------------------------------------------------------------

    async def _attempt(self, client: Any, wire: WireRequest, one: Attempt) -> ModelResponse:
        body = await self._open(client, wire, one)
        request_id = request_id_in(body.headers)
        answer = Answer(wire.names)
        is_complete = False
        try:
            await self._read(body, answer, one, request_id)
            is_complete = True
        finally:
            await body.aclose(is_complete=is_complete)
        return self._response(answer, wire, request_id)

    async def _open(self, client: Any, wire: WireRequest, one: Attempt) -> Body:
        library = await sdk()
        try:
            return await open_body(client, wire.body)
        except library.APIStatusError as error:
            failure = self._failures.status(error)
        except library.APITimeoutError as error:
            failure = one.timed_out("connect")  # the only limit that the HTTP client watches
            failure.__cause__ = error.__cause__
        except library.APIConnectionError as error:
            cause = error.__cause__ or error
            failure = self._failures.lost(cause)
            failure.__cause__ = cause
        except library.OpenAIError as error:
            failure = self._failures.other(error)
        # Outside of the `except`, so that nobody prints the SDK's error along with ours: it may repeat the key.
        raise failure

    async def _read(self, body: Body, answer: Answer, one: Attempt, request_id: str) -> None:
        """Read the stream to its end, handing over every delta."""
        if body.content_type in ("application/json", "text/html", "text/plain"):
            raise await self._no_stream(body, request_id)
        decoder = EventDecoder()
        is_done = False
        cut: BaseException | None = None
        while not is_done:
            try:
                piece = await body.next()
            except ConnectionCut as error:
                cut = error.__cause__
                break
            one.note_bytes()
            for data in decoder.feed(piece) if piece else decoder.finish():
                if not piece and not _is_whole(data):
                    break  # half an event: the end came too early
                is_done = await self._take(data, answer, one, request_id)
                if is_done:
                    break
            if not piece:
                break
        if not is_done and (cut is not None or not answer.finish):
            raise self._failures.cut(cut, request_id) from cut
        await _hand_over(answer.end(), one)

    async def _take(self, data: bytes, answer: Answer, one: Attempt, request_id: str) -> bool:
        """Take one event; True if it was the last."""
        if data.strip() == b"[DONE]":
            return True
        try:
            chunk = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            failure = self._failures.not_json(data, request_id)
            raise failure from None
        try:
            deltas = list(answer.take(chunk))
        except StreamFailed as error:
            failure = self._failures.in_stream(error.error, request_id)
            raise failure from None
        await _hand_over(deltas, one)
        return False

    async def _no_stream(self, body: Body, request_id: str) -> ModelError:
        """What to say of an answer that is no event stream: its own error, if it is one."""
        whole = b""
        try:
            while len(whole) < 65536 and (piece := await body.next()):
                whole += piece
            found = json.loads(whole)
        except (ConnectionCut, ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and found.get("error"):
            return self._failures.in_stream(found["error"], request_id)
        return self._failures.no_stream(body.content_type, request_id)

    def _response(self, answer: Answer, wire: WireRequest, request_id: str) -> ModelResponse:
        extra: dict[str, JsonValue] = {"finish_reason": answer.finish}
        if answer.response_id:
            extra["response_id"] = answer.response_id
        if request_id:
            extra["request_id"] = request_id
        if wire.left_out:
            extra["left_out"] = list(wire.left_out)
        return ModelResponse(
            parts=None,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            model=answer.model or self._target.name,
            extra={"openai": extra},
        )

    def _warn(self, left_out: list[str]) -> None:
        """Say once for each kind of thing that this server is not told."""
        for what in left_out:
            if what not in self._warned:
                self._warned.add(what)
                _log.warning("%s: left out of the request: %s", self._name, what)


def _is_whole(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data.strip() == b"[DONE]"
    return True


async def _hand_over(deltas: Iterable[Delta], one: Attempt) -> None:
    for delta in deltas:
        await one.emit(delta)
