"""Models whose `call` cannot be called as a run calls it."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent, ModelRequest, ModelResponse, ToolContext, tool
from trilane.errors import ModelError
from trilane.messages import TextPart
from trilane.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


class _Sync:
    name = "odd"

    def call(self, request: Any, emit: Any) -> Any:
        return ModelResponse(parts=(TextPart(text="Hello."),))


class _Generator:
    name = "odd"

    async def call(self, request: Any, emit: Any) -> Any:
        yield "Hello."


class _Short:
    name = "odd"

    async def call(self, request: Any) -> Any:
        return ModelResponse(parts=(TextPart(text="Hello."),))


@pytest.mark.parametrize("model", [_Sync(), _Generator(), _Short()])
async def test_a_model_whose_call_is_not_async_or_takes_other_arguments_is_told_what_it_must_be(model: Any) -> None:
    text = "model odd: its call() must be `async def call(self, request, emit)` and return a ModelResponse: "
    with pytest.raises(ModelError) as raised:
        await Agent(model).run("Go")
    assert str(raised.value).startswith(text)
    assert isinstance(raised.value.__cause__, TypeError)

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask another model."""
        with pytest.raises(ModelError) as caught:
            await context.call_model(ModelRequest(), model=model)
        return str(caught.value)

    result = await Agent(ScriptedModel(call("ask"), "Done."), tools=[ask]).run("Go")
    assert text in result.messages[2].to_json()


async def test_a_type_error_from_inside_a_model_is_raised_as_it_is() -> None:
    class Odd:
        name = "odd"

        def call(self, request: Any, emit: Any) -> Any:
            raise TypeError("from inside")

    with pytest.raises(TypeError, match="from inside"):
        await Agent(Odd()).run("Go")
