"""When a call is tried again. What a `Retry-After` means, and the waits, are tested with `trilane.providers`."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from trilane.errors import ModelError
from trilane.testing.calls import Consumer, ask
from trilane.testing.wire import Reply, WireServer
from trilane_openai import OpenAIModel
from trilane_openai.failures import is_retryable


@pytest.mark.parametrize(
    ("status", "code", "headers", "expected"),
    [
        (429, "rate_limit_exceeded", {}, True),
        (429, "insufficient_quota", {}, False),
        (500, "", {}, True),
        (500, "", {"x-should-retry": "false"}, False),
        (400, "", {"x-should-retry": "true"}, True),
        *((status, "", {}, False) for status in (400, 401, 403, 404, 413, 422)),
        *((status, "", {}, True) for status in (408, 502, 503, 504, 529)),
    ],
)
def test_what_may_be_better_the_next_time(status: int, code: str, headers: dict[str, str], expected: bool) -> None:
    assert is_retryable(status, code, headers) is expected


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a model waits between its attempts, on a clock that costs nothing."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    return waited


async def failure_of(*replies: Reply | str, **settings: Any) -> ModelError | None:
    """How a call fails that uses up all replies; None if it does not."""
    with WireServer(*replies) as server:
        model = OpenAIModel("m", base_url=server.openai_url, **settings)
        try:
            await model.call(ask(), Consumer())
        except ModelError as error:
            return error
        finally:
            await model.aclose()
            server.assert_finished()
    return None


@pytest.mark.anyio
async def test_f110_what_was_asked_for_is_waited(waits: list[float]) -> None:
    replies = (Reply.error(429, retry_after="37"), Reply.error(503, retry_after="nan"), "Here.")
    assert await failure_of(*replies) is None
    assert waits[0] == 37.0
    assert 0.75 <= waits[1] <= 1.0


@pytest.mark.anyio
async def test_f111_the_count_is_the_documented_one(waits: list[float]) -> None:
    failure = await failure_of(*(Reply.error(429) for _ in range(3)))
    assert len(waits) == 2
    assert failure is not None
    assert "3 attempts were made" in str(failure)
    assert failure.request_id == "req_3"
    assert await failure_of(Reply.error(429), max_retries=0) is not None
    assert len(waits) == 2


@pytest.mark.anyio
async def test_no_credit_is_not_tried_again(waits: list[float]) -> None:
    failure = await failure_of(Reply.error(429, "You exceeded your quota", code="insufficient_quota"))
    assert waits == []
    assert failure is not None
    assert "billing" in str(failure)
