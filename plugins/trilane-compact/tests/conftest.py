"""Both backends, and a model that works and is asked for summaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trilane import ModelRequest, ModelResponse
from trilane.testing import FunctionModel


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every async test runs on both backends."""
    return str(request.param)


class Worker(FunctionModel):
    """Answers each request with its last text, and summaries with `summary`.

    Attributes:
        turns: The requests of turns.
        asked: The requests for summaries.
    """

    def __init__(self, summary: Any = "It is summed up.", answer: Any = None) -> None:
        super().__init__(self._answer, name="worker")
        self._summary = summary
        self._reply = answer
        self.turns: list[ModelRequest] = []
        self.asked: list[ModelRequest] = []

    def _answer(self, request: ModelRequest, emit: Any) -> Any:
        if request.instructions.startswith("You shorten the record"):
            self.asked.append(request)
            if isinstance(self._summary, BaseException):
                raise self._summary
            return self._summary(request, emit) if callable(self._summary) else self._summary
        self.turns.append(request)
        if self._reply is not None:
            return self._reply(request)
        last = request.messages[-1]
        return ModelResponse(parts=None) if last.kind != "user" else f"Re: {last.text}"


@pytest.fixture
def worker() -> Callable[..., Worker]:
    return Worker
