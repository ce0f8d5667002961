"""`trilane-openai` as it is, against the model's own server: real tokens over a real connection."""

from __future__ import annotations

import anyio
import pytest

from trilane import Agent
from trilane.config import ModelSettings
from trilane.errors import ModelError
from trilane.testing.calls import Consumer, close_model
from trilane_local import LocalServer
from trilane_local.engine import Engine

from .conftest import Person, idle, needs_engine, text_request

pytest.importorskip("trilane_openai")
from trilane_openai import OpenAIModel

pytestmark = needs_engine


@pytest.mark.anyio
async def test_trilane_openai_streams_stops_and_goes_on(engine_stays: Engine) -> None:
    with LocalServer(context_tokens=4096) as server:
        model = OpenAIModel("smollm2", base_url=server.base_url, api_key=server.api_key)
        consumer = Consumer()
        response = await model.call(text_request(), consumer)
        assert len(consumer.deltas) > 5
        assert response.usage.output_tokens == 12

        with anyio.CancelScope() as scope:
            stopped = Consumer(3, scope.cancel)
            await model.call(text_request(settings=ModelSettings(max_output_tokens=2000)), stopped)
            raise AssertionError("it was not stopped")
        assert len(stopped.deltas) == 3
        await idle(server.running)

        again = Consumer()
        await model.call(text_request(), again)
        assert "".join(delta.text for delta in again.deltas) == "".join(delta.text for delta in consumer.deltas)
        await close_model(model)


@pytest.mark.anyio
async def test_trilane_openai_gets_structured_output(engine_stays: Engine) -> None:
    with LocalServer(context_tokens=4096) as server:
        agent = Agent(
            OpenAIModel("smollm2", base_url=server.base_url, api_key=server.api_key, preset="llamacpp"),
            output_type=Person,
            model_settings=ModelSettings(max_output_tokens=60, temperature=0.0),
        )
        result = await agent.run("Tom is a boy. He is 12 years old.")
        assert isinstance(result.output, Person)
        await agent.aclose()


@pytest.mark.anyio
async def test_the_server_wants_its_key(engine_stays: Engine) -> None:
    with LocalServer(context_tokens=4096) as server:
        model = OpenAIModel("smollm2", base_url=server.base_url, api_key="wrong")
        with pytest.raises(ModelError, match="401"):
            await model.call(text_request(), Consumer())
        await close_model(model)
