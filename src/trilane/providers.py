"""What adapters of model providers share: retries, time limits, clients of an event loop, errors from HTTP answers.

One policy for all providers, so that the same fault means the same whoever answers. An adapter gives its work for one
attempt to `run_attempts`, with the SDK's own retries and time-outs switched off:

```python
async def attempt(attempt: Attempt) -> ModelResponse:
    stream = await client.create(..., stream=True)      # its HTTP hook calls `note_bytes()` for all that arrives
    events = aiter(stream)
    try:
        async for event in events:
            await attempt.emit(Delta(...))
    finally:
        await close_stream(stream, events)

return await run_attempts(attempt, emit, model=self.name, limits=limits, retry=retry)
```

No SDK is imported here. The protocol that a model fulfils is in `models.py`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from ._records import Record
from .errors import ConfigError, ModelError, ModelTimeoutError
from .messages import Delta
from .models import Emit, ModelResponse

__all__ = [
    "Attempt",
    "LimitName",
    "LoopClients",
    "RetryPolicy",
    "TimeLimits",
    "close_stream",
    "http_error",
    "load_sdk",
    "note_bytes",
    "retry_after_seconds",
    "run_attempts",
    "without_secrets",
]

ClientT = TypeVar("ClientT")
LimitName: TypeAlias = Literal["connect", "first_byte", "idle", "total"]
"""Which of the time limits of a call it was."""


class TimeLimits(Record):
    """How long a provider may take for one attempt. None means no limit. Time that the caller takes does not count.

    Attributes:
        connect_seconds: To take the connection; for the adapter's HTTP client.
        first_byte_seconds: From the start of the attempt to the first byte of the answer's body.
        idle_seconds: Between two signs of life after that; keep-alive comments are signs of life.
        total_seconds: For everything.
    """

    connect_seconds: float | None = 10.0
    first_byte_seconds: float | None = 180.0
    idle_seconds: float | None = 60.0
    total_seconds: float | None = 600.0

    def __post_init__(self) -> None:
        _check_numbers(self)


class RetryPolicy(Record):
    """When a call that failed before it showed anything is made again.

    Attributes:
        retries: How often, after the first attempt.
        base_seconds: Wait before the first retry; it doubles for each further one.
        max_seconds: Where doubling stops.
        jitter: Up to this share of a wait is taken off at random, so that many callers do not come back together.
        max_retry_after_seconds: What a provider may ask to wait. If it asks for more, the call fails at once.
    """

    retries: int = 2
    base_seconds: float = 0.5
    max_seconds: float = 8.0
    jitter: float = 0.25
    max_retry_after_seconds: float = 60.0

    def __post_init__(self) -> None:
        _check_numbers(self)

    def wait_seconds(self, retry: int, error: ModelError) -> float | None:
        """How long to wait before retry number `retry`, from 1; None if there is to be none."""
        if retry > self.retries or not error.retryable:
            return None
        asked = error.retry_after_seconds
        if asked is not None:
            return asked if asked <= self.max_retry_after_seconds else None
        from random import random

        wait: float = min(self.max_seconds, self.base_seconds * 2.0 ** (retry - 1))
        return wait * (1.0 - self.jitter * random())


# ---- attempts --------------------------------------------------------------------------------------------------------


async def run_attempts(
    attempt: Callable[[Attempt], Awaitable[ModelResponse]],
    emit: Emit,
    *,
    model: str,
    limits: TimeLimits,
    retry: RetryPolicy,
) -> ModelResponse:
    """Call `attempt` until it answers, fails for good, or has shown something before it failed.

    Args:
        attempt: Makes one request and returns the answer. Raises `ModelError` for what the provider does.
        emit: What `Model.call` got.
        model: Name of the model, for messages.
        limits: Time limits of each attempt.
        retry: When to try again.

    Raises:
        ModelError: the last attempt's, `ModelTimeoutError` if a limit was reached; it says how often was tried.
    """
    import anyio

    number = 0
    while True:
        number += 1
        one = Attempt(number, emit, limits, model)
        try:
            response = await _within_limits(one, attempt)
        except ModelError as error:
            wait = None if one.shown else retry.wait_seconds(number, error)
            if wait is None:
                _say_attempts(error, number, one.shown, retry)
                raise
            from logging import getLogger

            getLogger(__name__).info("%s; attempt %d follows in %.2f s", error, number + 1, wait)
        else:
            return response if number == 1 else _with_attempts(response, number)
        await anyio.sleep(wait)


async def _within_limits(one: Attempt, attempt: Callable[[Attempt], Awaitable[ModelResponse]]) -> ModelResponse:
    import anyio

    token = _current.set(one)
    try:
        with anyio.CancelScope() as scope:
            one._start(scope)
            return await attempt(one)
    finally:
        _current.reset(token)
    raise one.timed_out()


def _say_attempts(error: ModelError, number: int, shown: bool, retry: RetryPolicy) -> None:
    """Add to the error what was done about it, where that is not plain."""
    asked = error.retry_after_seconds
    if error.retryable and asked is not None and asked > retry.max_retry_after_seconds:
        said = f"it asks to wait {asked:g} s, which is longer than max_retry_after_seconds allows"
    elif number > 1:
        said = f"{number} attempts were made"
    elif shown and error.retryable:
        said = "it was not tried again, because part of the answer had been shown"
    else:
        return
    error.args = (f"{error} ({said})",)


def _with_attempts(response: ModelResponse, number: int) -> ModelResponse:
    extra = response.extra if isinstance(response.extra, dict) else {}
    return response.replace(extra={**extra, "attempts": number})


class Attempt:
    """One attempt of a call, with its clocks.

    Attributes:
        number: From 1.
        shown: Whether a delta was handed over; after that nothing is retried.
    """

    __slots__ = ("_emit", "_end", "_idle", "_limit", "_limits", "_model", "_now", "_scope", "number", "shown")

    def __init__(self, number: int, emit: Emit, limits: TimeLimits, model: str) -> None:
        import anyio

        self.number = number
        self.shown = False
        self._emit = emit
        self._limits = limits
        self._model = model
        self._now = anyio.current_time
        self._idle = math.inf if limits.idle_seconds is None else limits.idle_seconds
        self._end = math.inf  # when `total_seconds` are over
        self._limit: LimitName = "first_byte"  # the one that comes next
        self._scope: Any = None

    async def emit(self, delta: Delta) -> None:
        """Hand a delta over. The clocks stand still until the caller has seen it."""
        scope = self._scope
        if scope.cancel_called:  # a limit was reached: the cancel is to land here, and not in the caller's code
            await _checkpoint()
        self.shown = True
        paused = self._now()
        left = scope.deadline - paused
        scope.deadline = math.inf
        try:
            await self._emit(delta)
        finally:
            now = self._now()
            self._end += now - paused
            scope.deadline = now + left

    def note_bytes(self) -> None:
        """Bytes of the answer have arrived."""
        self._next("idle", self._now() + self._idle)

    def timed_out(self, limit: LimitName | None = None) -> ModelTimeoutError:
        """The error for reaching a limit; for the one that comes next if None."""
        limit = limit or self._limit
        seconds: float | None = getattr(self._limits, f"{limit}_seconds")
        within = "in time" if seconds is None else f"within {seconds:g} s"
        return ModelTimeoutError(
            f"model {self._model}: {_TOO_SLOW[limit].format(within=within)}; try again later, or raise "
            f"{limit}_seconds in the settings of its plugin",
            limit=limit,
            model=self._model,
            retryable=True,
        )

    def _start(self, scope: Any) -> None:
        self._scope = scope
        now = self._now()
        self._end = math.inf if self._limits.total_seconds is None else now + self._limits.total_seconds
        first = self._limits.first_byte_seconds
        self._next("first_byte", math.inf if first is None else now + first)

    def _next(self, limit: LimitName, at: float) -> None:
        self._limit = limit if at <= self._end else "total"
        self._scope.deadline = min(at, self._end)


_TOO_SLOW: Mapping[LimitName, str] = {
    "connect": "the provider did not take the connection {within}",
    "first_byte": "the provider did not begin its answer {within}",
    "idle": "the provider fell silent in the middle of its answer, nothing came {within}",
    "total": "the provider did not complete its answer {within}",
}
_current: ContextVar[Attempt | None] = ContextVar("trilane_provider_attempt", default=None)


def note_bytes() -> None:
    """Bytes of the running attempt's answer have arrived: for an SDK's HTTP hook, which knows no attempt."""
    attempt = _current.get()
    if attempt is not None:
        attempt.note_bytes()


async def _checkpoint() -> None:
    from anyio.lowlevel import checkpoint

    await checkpoint()


# ---- connections -----------------------------------------------------------------------------------------------------


async def load_sdk(*modules: str) -> Any:
    """The first of `modules`, with all of them imported: in a thread, because an SDK takes seconds.

    Raises:
        ImportError: one of them is not installed.
    """
    if not all(module in sys.modules for module in modules):
        import anyio.to_thread

        await anyio.to_thread.run_sync(_import_all, modules, abandon_on_cancel=True)
    return sys.modules[modules[0]]


def _import_all(modules: tuple[str, ...]) -> None:
    from importlib import import_module

    for module in modules:
        import_module(module)


class _Closable(Protocol):
    async def close(self) -> None: ...


async def close_stream(stream: _Closable, events: AsyncIterator[object], *, grace_seconds: float = 1.0) -> None:
    """Close an SDK's stream now, whatever is being cancelled, and let the generators behind it run to their end.

    An SDK reads through several nested generators. Left suspended, they would be finalised by the garbage collector:
    late, and with a warning on trio. With the connection closed they end by themselves as soon as they go on.

    Args:
        stream: What has the connection.
        events: The iterator that was read from.
        grace_seconds: How long that may take.
    """
    import anyio

    with anyio.move_on_after(grace_seconds, shield=True):
        await stream.close()
        try:
            async for _ in events:
                pass  # what had arrived already
        except Exception:
            pass  # that the connection is closed


class LoopClients(Generic[ClientT]):
    """One client for each event loop, closed when its loop ends or by `aclose`.

    Connections belong to an event loop. A model object does not: it may be used by `run_sync` twice, or in threads.

    Args:
        make: Makes a client.
        close: Closes one.
    """

    __slots__ = ("_clients", "_close", "_make")

    def __init__(self, make: Callable[[], ClientT], close: Callable[[ClientT], Awaitable[None]]) -> None:
        from weakref import WeakKeyDictionary

        self._make = make
        self._close = close
        self._clients: WeakKeyDictionary[Any, tuple[ClientT, AsyncGenerator[None, None]]] = WeakKeyDictionary()

    async def get(self) -> ClientT:
        """The client of the running event loop."""
        loop = _running_loop()
        found = self._clients.get(loop)
        if found is None:
            client = self._make()
            # Both backends run a generator that is still open to its end when the loop ends: the one hook they share.
            closing = self._closing(client)
            self._clients[loop] = found = (client, closing)
            await closing.__anext__()
        return found[0]

    async def aclose(self) -> None:
        """Close the client of the running event loop. Those of other loops are closed when these end."""
        found = self._clients.pop(_running_loop(), None)
        if found is not None:
            await found[1].aclose()

    async def _closing(self, client: ClientT) -> AsyncGenerator[None, None]:
        import anyio

        try:
            yield
        finally:
            self._clients.pop(_running_loop(), None)  # the generator refers to the loop, which would live on
            with anyio.CancelScope(shield=True):
                await self._close(client)


def _running_loop() -> Any:
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return trio.lowlevel.current_trio_token()
    from asyncio import get_running_loop

    return get_running_loop()


# ---- errors ----------------------------------------------------------------------------------------------------------


def http_error(
    model: str,
    status: int,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    request_id: str = "",
    key_advice: str = "",
    secrets: tuple[str, ...] = (),
    retryable: bool | None = None,
) -> ModelError:
    """What an HTTP error of a provider means: one readable paragraph with the next step.

    Args:
        model: Name of the model, `provider:NAME`.
        status: HTTP status.
        message: The provider's own words.
        headers: The response's headers, with lower-case names.
        request_id: The provider's id of the request.
        key_advice: Where the key is set, for refused keys.
        secrets: Texts that must not be in the message.
        retryable: Whether the same request may work later; decided by the status if None.
    """
    words = " ".join(without_secrets(message, secrets).split())
    words = words if len(words) <= 500 else f"{words[:500]}…"
    meaning, advice = _meaning(model, status, key_advice)
    said = f"HTTP {status}" + (f": {words}" if words else "") + (f"; request {request_id}" if request_id else "")
    return ModelError(
        f"model {model}: {meaning} ({said}). {advice}",
        model=model,
        retryable=status in (408, 409, 429) or status >= 500 if retryable is None else retryable,
        retry_after_seconds=retry_after_seconds(headers or {}),
        request_id=request_id,
    )


def _meaning(model: str, status: int, key_advice: str) -> tuple[str, str]:
    name = model.partition(":")[2]
    match status:
        case 401:
            return "the provider refused the key", key_advice or "Check the key."
        case 403:
            return "the key has no permission for this", f"Use another model, or another key. {key_advice}".strip()
        case 404:
            return (
                f"the provider has no model {name!r}, or nothing at this address",
                "Check the name in the provider's list of models, and the setting base_url.",
            )
        case 413:
            return "the request is too large", "Shorten or compact the history, or send smaller files."
        case 402:
            return "the account has no credit left", "Top it up, or use another key."
        case 429:
            return "the provider asks to slow down", "Try again later, or raise the account's limits."
        case 408 | 409 | 500 | 502 | 503 | 504 | 529:
            return "the provider failed or is overloaded", "Try again later."
    if status >= 500:
        return "the provider failed", "Try again later."
    return "the provider did not accept the request", "Change what the message names; trying again will not help."


def retry_after_seconds(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """What `retry-after-ms` or `Retry-After` asks to wait, in seconds; None if neither says anything of use.

    A date in the past means 0. Negative numbers, NaN and other texts are nothing of use.

    Args:
        headers: With lower-case names.
        now: The time, in seconds since the epoch.
    """
    in_ms, text = headers.get("retry-after-ms"), headers.get("retry-after")
    for value, unit in ((in_ms, 0.001), (text, 1.0)):
        try:
            seconds = float(value or "") * unit
        except ValueError:
            continue
        if 0 <= seconds < math.inf:
            return seconds
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text or "").timestamp() - now())
    except (TypeError, ValueError, OverflowError):
        return None


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """`text` with each of `secrets` replaced by `***`."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def _check_numbers(record: TimeLimits | RetryPolicy) -> None:
    for name, value in record._items():
        if value is None and isinstance(record, TimeLimits):
            continue
        if not (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
            raise ConfigError(f"{type(record).__name__}.{name} is {value!r}; give a number of at least 0")
