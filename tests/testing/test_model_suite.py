"""The suite for models finds nothing in a good model, and each check what it is for in a bad one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trilane import Delta, ModelRequest, ModelResponse, TextPart, Usage
from trilane.models import Emit, Model
from trilane.testing import FunctionModel
from trilane.testing.model_suite import ModelConformance


class Echo:
    """Says what was said, word by word."""

    name = "echo"

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        for word in ("Hello ", "again"):
            await emit(Delta(text=word))
        return ModelResponse(usage=Usage(input_tokens=1, output_tokens=2), model=self.name)


@pytest.mark.anyio
class TestEcho(ModelConformance):
    def make(self) -> Model:
        return Echo()


@pytest.mark.anyio
class TestWhole(ModelConformance):
    """A model that hands over its answer whole."""

    def make(self) -> Model:
        return FunctionModel(lambda request, emit: "Hello again")


class Nameless(Echo):
    name = " "


class Text(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> Any:
        await emit(Delta(text="Hello"))
        return "Hello"


class Empty(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(Delta(text=""))
        return ModelResponse()


class Other(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(Delta(text="Hello"))
        return ModelResponse(parts=(TextPart(text="Good bye"),))


class Mixed(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        for index in (0, 1, 0):
            await emit(Delta(text="Hello", index=index))
        return ModelResponse()


class Stopped(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(Delta(text="Hello"))
        return ModelResponse(stop_reason="finished")  # type: ignore[arg-type]


class Negative(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(Delta(text="Hello"))
        return ModelResponse(usage=Usage(output_tokens=-1))


class NotJson(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(Delta(text="Hello"))
        return ModelResponse(extra={"score": float("nan")})


class Meddling(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        request.settings.extra["seen"] = True  # type: ignore[index]
        return await super().call(request, emit)


class Shy(Echo):
    """Knows only messages of users."""

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        if any(message.kind != "user" for message in request.messages):
            raise KeyError("role")
        return await super().call(request, emit)


class Hasty(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(emit, Delta(text="Hello"))
        return ModelResponse()


class Deaf(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        for _ in range(2):
            try:
                await emit(Delta(text="Hello"))
            except Exception:
                pass
        return ModelResponse()


class Swallowing(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        try:
            await emit(Delta(text="Hello"))
        except anyio.get_cancelled_exc_class():
            pass
        return ModelResponse()


class Shared(Echo):
    """Keeps what belongs to a call with the model."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.words = ["Hello ", "again"]
        while self.words:
            await anyio.lowlevel.checkpoint()
            if self.words:
                await emit(Delta(text=self.words.pop(0)))
        return ModelResponse()


class ClosedOnce(Echo):
    closed = False

    async def aclose(self) -> None:
        assert not self.closed, "closed already"
        self.closed = True


class Failing(Echo):
    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        raise ConnectionError("no network")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "check", "says"),
    [
        (Nameless, "it_is_a_model_with_a_name", ""),
        (Text, "what_is_answered_is_what_was_emitted", "not a ModelResponse"),
        (Empty, "what_is_answered_is_what_was_emitted", "an empty delta was emitted"),
        (Other, "what_is_answered_is_what_was_emitted", "parts must hold the text that was emitted"),
        (Mixed, "parts_are_emitted_one_after_the_other", "a part was taken up again"),
        (Stopped, "it_says_why_it_stopped_and_what_it_cost", "'finished' is no stop reason"),
        (Negative, "it_says_why_it_stopped_and_what_it_cost", "output_tokens"),
        (NotJson, "the_response_comes_back_from_json", ""),
        (Meddling, "the_request_is_left_as_it_was", ""),
        (Shy, "a_conversation_with_tools_goes_on", "role"),
        (Hasty, "nothing_runs_ahead_of_the_reader", "while the one before was still being taken"),
        (Deaf, "a_reader_that_raises_ends_the_call", "its error did not come out"),
        (Swallowing, "a_cancel_goes_through", "swallowed the cancel"),
        (Shared, "two_calls_at_once_do_not_mix", ""),
        (ClosedOnce, "it_is_closed_twice", "closed already"),
        (Failing, "it_works_in_a_run", "no network"),
    ],
)
async def test_each_check_finds_a_bad_model(model: Callable[[], Any], check: str, says: str) -> None:
    class Suite(ModelConformance):
        def make(self) -> Model:
            made: Model = model()
            return made

    with pytest.RaisesGroup(
        pytest.RaisesExc((AssertionError, KeyError, ConnectionError)), allow_unwrapped=True, flatten_subgroups=True
    ) as caught:
        await getattr(Suite(), f"test_{check}")()
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert says in str(error)


def test_each_check_has_a_bad_model() -> None:
    checks = {name for name in vars(ModelConformance) if name.startswith("test_")}
    marks = test_each_check_finds_a_bad_model.pytestmark  # type: ignore[attr-defined]
    (cases,) = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    assert {f"test_{check}" for _, check, _ in cases} == checks
