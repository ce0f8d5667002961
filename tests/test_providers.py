"""`providers`: retries, time limits, clients of an event loop, errors from HTTP answers."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from email.utils import format_datetime

import anyio
import pytest

from trilane.errors import ConfigError, ModelError, ModelTimeoutError
from trilane.messages import Delta
from trilane.models import ModelResponse
from trilane.providers import (
    Attempt,
    LoopClients,
    RetryPolicy,
    TimeLimits,
    close_stream,
    http_error,
    load_sdk,
    note_bytes,
    retry_after_seconds,
    run_attempts,
    without_secrets,
)
from trilane.testing import virtual_backend


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return virtual_backend(request.param)


RETRY = RetryPolicy(jitter=0.0)


class _Provider:
    """Fails as told, then answers; keeps when it was asked."""

    def __init__(self, *errors: ModelError, show_first: bool = False) -> None:
        self.errors = list(errors)
        self.times: list[float] = []
        self.show_first = show_first

    async def attempt(self, attempt: Attempt) -> ModelResponse:
        self.times.append(anyio.current_time())
        if self.show_first:
            await attempt.emit(Delta(text="part"))
        if self.errors:
            raise self.errors.pop(0)
        await attempt.emit(Delta(text="done"))
        return ModelResponse()

    def waits(self) -> list[float]:
        return [round(b - a, 6) for a, b in zip(self.times, self.times[1:], strict=False)]


async def _drop(_: Delta) -> None:
    return None


async def _run(
    attempt: Callable[[Attempt], Awaitable[ModelResponse]],
    *,
    emit: Callable[[Delta], Awaitable[None]] = _drop,
    limits: TimeLimits | None = None,
    retry: RetryPolicy = RETRY,
) -> ModelResponse:
    return await run_attempts(attempt, emit, model="p:m", limits=limits or TimeLimits(), retry=retry)


def _failure(status: int = 500, retry_after: str | None = None) -> ModelError:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return http_error("p:m", status, "no", headers=headers)


# ---- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_failures_are_retried_with_doubling_waits_and_the_answer_says_how_often() -> None:
    provider = _Provider(_failure(), _failure(503))
    response = await _run(provider.attempt)
    assert provider.waits() == [0.5, 1.0]
    assert response.extra == {"attempts": 3}


@pytest.mark.anyio
async def test_f111_attempts_are_the_documented_number_and_400_and_401_are_tried_once() -> None:
    for status, count in ((429, 3), (500, 3), (400, 1), (401, 1)):
        provider = _Provider(*[_failure(status) for _ in range(9)])
        with pytest.raises(ModelError) as caught:
            await _run(provider.attempt)
        assert len(provider.times) == count
        assert ("3 attempts were made" in str(caught.value)) == (count == 3)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "wait"), [("0", 0.0), ("3", 3.0), ("1.5", 1.5), ("-5", 0.5), ("nan", 0.5), ("soon", 0.5), ("inf", 0.5)]
)
async def test_f110_retry_after_is_honoured_and_nonsense_is_ignored(text: str, wait: float) -> None:
    provider = _Provider(_failure(429, text))
    await _run(provider.attempt)
    assert provider.waits() == [wait]


@pytest.mark.anyio
async def test_f110_a_longer_wait_than_allowed_fails_at_once_and_says_so() -> None:
    provider = _Provider(_failure(429, "90"))
    with pytest.raises(ModelError, match=r"asks to wait 90 s, which is longer than max_retry_after_seconds") as caught:
        await _run(provider.attempt)
    assert len(provider.times) == 1
    assert caught.value.retry_after_seconds == 90.0
    assert caught.value.retryable


def test_f110_dates_and_milliseconds() -> None:
    now = 1_800_000_000.0
    later = format_datetime(datetime.fromtimestamp(now + 30, UTC), usegmt=True)
    earlier = format_datetime(datetime.fromtimestamp(now - 30, UTC), usegmt=True)
    assert retry_after_seconds({"retry-after": later}, now=lambda: now) == 30.0
    assert retry_after_seconds({"retry-after": earlier}, now=lambda: now) == 0.0
    assert retry_after_seconds({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after_seconds({"retry-after-ms": "x", "retry-after": "9"}) == 9.0
    assert retry_after_seconds({}) is None


@pytest.mark.anyio
async def test_nothing_is_retried_once_a_delta_was_shown() -> None:
    provider = _Provider(_failure(), show_first=True)
    with pytest.raises(ModelError, match="not tried again, because part of the answer had been shown"):
        await _run(provider.attempt)
    assert len(provider.times) == 1


@pytest.mark.anyio
async def test_an_error_of_the_caller_is_not_the_providers_and_goes_through() -> None:
    provider = _Provider()

    async def refuse(_: Delta) -> None:
        raise RuntimeError("the caller is gone")

    with pytest.raises(RuntimeError, match="the caller is gone"):
        await _run(provider.attempt, emit=refuse)
    assert len(provider.times) == 1


def test_jitter_only_shortens() -> None:
    waits = [RetryPolicy().wait_seconds(2, _failure()) for _ in range(50)]
    assert all(wait is not None and 0.75 <= wait <= 1.0 for wait in waits)
    assert RETRY.wait_seconds(2, _failure()) == 1.0
    assert RETRY.replace(retries=99).wait_seconds(50, _failure()) == 8.0


# ---- time limits -----------------------------------------------------------------------------------------------------

LIMITS = TimeLimits(first_byte_seconds=5, idle_seconds=3, total_seconds=20)
ONCE = RetryPolicy(retries=0)


@pytest.mark.anyio
async def test_a_provider_that_does_not_begin_is_too_slow() -> None:
    async def silent(_: Attempt) -> ModelResponse:
        await anyio.sleep(math.inf)
        raise AssertionError

    began = anyio.current_time()
    with pytest.raises(ModelTimeoutError, match="did not begin its answer within 5 s") as caught:
        await _run(silent, limits=LIMITS, retry=ONCE)
    assert caught.value.limit == "first_byte"
    assert caught.value.retryable
    assert anyio.current_time() - began == pytest.approx(5, abs=0.01)


@pytest.mark.anyio
async def test_silence_in_the_middle_is_too_slow_but_signs_of_life_are_not() -> None:
    async def stalls(_: Attempt) -> ModelResponse:
        for _ in range(4):
            await anyio.sleep(2.5)
            note_bytes()
        await anyio.sleep(math.inf)
        raise AssertionError

    began = anyio.current_time()
    with pytest.raises(ModelTimeoutError, match="nothing came within 3 s") as caught:
        await _run(stalls, limits=LIMITS, retry=ONCE)
    assert caught.value.limit == "idle"
    assert anyio.current_time() - began == pytest.approx(13, abs=0.01)


@pytest.mark.anyio
async def test_signs_of_life_do_not_prolong_the_total() -> None:
    async def babbles(_: Attempt) -> ModelResponse:
        while True:
            await anyio.sleep(1)
            note_bytes()

    began = anyio.current_time()
    with pytest.raises(ModelTimeoutError, match="did not complete its answer within 20 s") as caught:
        await _run(babbles, limits=LIMITS, retry=ONCE)
    assert caught.value.limit == "total"
    assert anyio.current_time() - began == pytest.approx(20, abs=0.01)


@pytest.mark.anyio
async def test_time_the_caller_takes_does_not_count() -> None:
    async def slow_caller(_: Delta) -> None:
        await anyio.sleep(100)

    async def quick(attempt: Attempt) -> ModelResponse:
        for _ in range(3):
            note_bytes()
            await anyio.sleep(1)
            await attempt.emit(Delta(text="x"))
        return ModelResponse()

    began = anyio.current_time()
    assert (await _run(quick, emit=slow_caller, limits=LIMITS, retry=ONCE)).stop_reason == "end"
    assert anyio.current_time() - began == pytest.approx(303, abs=0.01)


@pytest.mark.anyio
async def test_after_a_slow_caller_the_rest_of_the_limit_is_left() -> None:
    async def slow_caller(_: Delta) -> None:
        await anyio.sleep(100)

    async def stalls(attempt: Attempt) -> ModelResponse:
        note_bytes()
        await anyio.sleep(1)
        await attempt.emit(Delta(text="x"))
        await anyio.sleep(math.inf)
        raise AssertionError

    began = anyio.current_time()
    with pytest.raises(ModelTimeoutError, match="fell silent"):
        await _run(stalls, emit=slow_caller, limits=LIMITS, retry=ONCE)
    assert anyio.current_time() - began == pytest.approx(103, abs=0.01)


@pytest.mark.anyio
async def test_nothing_is_handed_over_after_a_limit_was_reached() -> None:
    shown: list[str] = []

    async def keep(delta: Delta) -> None:
        shown.append(delta.text)

    async def busy(attempt: Attempt) -> ModelResponse:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(6)
        await attempt.emit(Delta(text="late"))
        return ModelResponse()

    with pytest.raises(ModelTimeoutError):
        await _run(busy, emit=keep, limits=LIMITS, retry=ONCE)
    assert shown == []


@pytest.mark.anyio
async def test_limits_can_be_absent() -> None:
    async def slow(_: Attempt) -> ModelResponse:
        await anyio.sleep(5000)
        note_bytes()
        await anyio.sleep(5000)
        return ModelResponse()

    none = TimeLimits(connect_seconds=None, first_byte_seconds=None, idle_seconds=None, total_seconds=None)
    assert await _run(slow, limits=none) == ModelResponse()


def test_numbers_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"TimeLimits\.idle_seconds is -1"):
        TimeLimits(idle_seconds=-1)
    with pytest.raises(ConfigError, match=r"RetryPolicy\.retries is None"):
        RetryPolicy(retries=None)  # type: ignore[arg-type]


# ---- connections -----------------------------------------------------------------------------------------------------


class _Client:
    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.closed = True


def test_f007_each_event_loop_has_its_client_which_is_closed_when_the_loop_ends() -> None:
    made: list[_Client] = []

    def make() -> _Client:
        made.append(_Client())
        return made[-1]

    clients = LoopClients(make, _Client.close)

    async def use() -> None:
        assert await clients.get() is await clients.get()
        assert not made[-1].closed

    for backend in ("asyncio", "asyncio", "trio", "trio"):
        anyio.run(use, backend=backend)
    assert [client.closed for client in made] == [True] * 4


@pytest.mark.anyio
async def test_a_closed_client_is_replaced() -> None:
    clients = LoopClients(_Client, _Client.close)
    first = await clients.get()
    await clients.aclose()
    await clients.aclose()
    assert first.closed
    assert await clients.get() is not first
    await clients.aclose()


def test_clients_keep_no_event_loop_alive() -> None:
    clients = LoopClients(_Client, _Client.close)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def use() -> None:
        await clients.get()
        loops.append(weakref.ref(asyncio.get_running_loop()))

    asyncio.run(use())
    gc.collect()
    assert loops[0]() is None


@pytest.mark.anyio
async def test_an_sdk_is_imported_when_it_is_asked_for() -> None:
    assert (await load_sdk("wsgiref", "wsgiref.headers")).__name__ == "wsgiref"
    with pytest.raises(ImportError):
        await load_sdk("no_such_sdk")


@pytest.mark.anyio
async def test_a_stream_is_closed_and_its_generators_end_under_a_cancel() -> None:
    ended: list[str] = []

    class Stream:
        closed = False

        async def close(self) -> None:
            await anyio.sleep(0.1)
            self.closed = True

    stream = Stream()

    async def outer() -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
            raise OSError("closed")
        finally:
            ended.append("generator")

    events = outer()
    with anyio.CancelScope() as scope:
        async for _ in events:
            scope.cancel()
            break
        await close_stream(stream, events)
    assert stream.closed
    assert ended == ["generator"]


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "retryable", "words"),
    [
        (400, False, "did not accept the request"),
        (401, False, "refused the key (HTTP 401: bad key ***; request r1). Set THE_KEY."),
        (402, False, "no credit left"),
        (403, False, "no permission"),
        (404, False, "has no model 'm'"),
        (408, True, "overloaded"),
        (413, False, "too large"),
        (418, False, "did not accept"),
        (429, True, "slow down"),
        (500, True, "Try again later"),
        (511, True, "the provider failed"),
        (529, True, "overloaded"),
    ],
)
def test_http_errors_say_what_to_do(status: int, retryable: bool, words: str) -> None:
    error = http_error(
        "p:m", status, "bad key\n sk-1", request_id="r1", key_advice="Set THE_KEY.", secrets=("sk-1", "")
    )
    assert words in str(error)
    assert str(error).startswith("model p:m: ")
    assert "\n" not in str(error)
    assert "sk-1" not in str(error)
    assert (error.retryable, error.request_id, error.model) == (retryable, "r1", "p:m")


def test_long_words_of_a_provider_are_cut() -> None:
    assert len(str(http_error("p:m", 400, "x" * 5000))) < 800


def test_f122_secrets_are_replaced() -> None:
    assert without_secrets("a KEY b KEY", ("KEY",)) == "a *** b ***"
    assert without_secrets("abc", ("",)) == "abc"
