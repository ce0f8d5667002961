"""When a call is tried again, and after how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from trilane.errors import ModelError
from trilane.testing.calls import ask
from trilane.testing.wire import Reply, WireServer
from trilane_openai import OpenAIModel
from trilane_openai.retry import RetryPolicy, is_retryable, retry_after_seconds

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "90"}, 90.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": at(-60)}, 0.0),
        ({"retry-after": at(30)}, 30.0),
        ({"retry-after": "Sun, 99 Nov 2026 99:00:00 GMT"}, None),
        ({"retry-after-ms": "1500", "retry-after": "90"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
    ],
)
def test_f110_what_a_server_asks_to_wait(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_seconds(headers, NOW.timestamp()) == expected


def test_f110_waits_up_to_a_maximum() -> None:
    policy = RetryPolicy(max_retries=3, max_retry_after_seconds=60.0, spread=lambda: 0.0)
    assert policy.wait_seconds(1, True, 60.0) == 60.0
    assert policy.wait_seconds(1, True, 60.1) is None
    assert [policy.wait_seconds(attempt, True, None) for attempt in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, None]
    assert policy.wait_seconds(1, False, 1.0) is None
    assert RetryPolicy(max_retries=20, spread=lambda: 1.0).wait_seconds(12, True, None) == 6.0


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


async def waits_of(*replies: Reply | str, **settings: Any) -> tuple[list[float], ModelError | None]:
    """How long a model waits between its attempts, on a clock that costs nothing."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def emit(delta: object) -> None:
        pass

    failure = None
    with WireServer(*replies) as server:
        model = OpenAIModel("m", base_url=server.openai_url, **settings)
        model._sleep = sleep
        try:
            await model.call(ask(), emit)
        except ModelError as error:
            failure = error
        await model.aclose()
        server.assert_finished()
    return waits, failure


@pytest.mark.anyio
async def test_f110_what_was_asked_for_is_waited() -> None:
    waits, failure = await waits_of(Reply.error(429, retry_after="37"), Reply.error(503, retry_after="nan"), "Here.")
    assert failure is None
    assert waits[0] == 37.0
    assert 0.75 <= waits[1] <= 1.0


@pytest.mark.anyio
async def test_f111_the_count_is_the_documented_one() -> None:
    waits, failure = await waits_of(*(Reply.error(429) for _ in range(3)))
    assert len(waits) == 2
    assert failure is not None
    assert "Tried 3 times" in str(failure)
    waits, failure = await waits_of(Reply.error(429), max_retries=0)
    assert waits == []


@pytest.mark.anyio
async def test_no_credit_is_not_tried_again() -> None:
    waits, failure = await waits_of(Reply.error(429, "You exceeded your quota", code="insufficient_quota"))
    assert waits == []
    assert failure is not None
    assert "billing" in str(failure)
