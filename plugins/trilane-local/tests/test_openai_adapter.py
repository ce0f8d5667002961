"""`trilane-openai` as it is, against the model's own server: real tokens over a real connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from trilane import Agent
from trilane.config import ModelSettings
from trilane.errors import ModelError
from trilane.testing.calls import Consumer, close_model
from trilane_local import LocalServer
from trilane_local.engine import Engine

pytest.importorskip("trilane_openai")
from trilane_openai import OpenAIModel

if TYPE_CHECKING:
    from conftest import Kit


@pytest.mark.anyio
async def test_trilane_openai_streams_stops_and_goes_on(engine: Engine, kit: Kit) -> None:
    with LocalServer(context_tokens=4096) as server:
        model = OpenAIModel("smollm2", base_url=server.base_url, api_key=server.api_key)
        consumer = Consumer()
        response = await model.call(kit.ask(), consumer)
        assert len(consumer.deltas) > 5
        assert response.usage.output_tokens == 12

        with anyio.CancelScope() as scope:
            stopped = Consumer(3, scope.cancel)
            await model.call(kit.ask(settings=kit.long), stopped)
            raise AssertionError("it was not stopped")
        assert len(stopped.deltas) == 3
        await kit.idle(server.running)

        again = Consumer()
        await model.call(kit.ask(), again)
        assert "".join(delta.text for delta in again.deltas) == "".join(delta.text for delta in consumer.deltas)
        await close_model(model)


@pytest.mark.anyio
async def test_trilane_openai_gets_structured_output(engine: Engine, kit: Kit) -> None:
    with LocalServer(context_tokens=4096) as server:
        agent = Agent(
            OpenAIModel("smollm2", base_url=server.base_url, api_key=server.api_key, preset="llamacpp"),
            output_type=kit.person,
            model_settings=ModelSettings(max_output_tokens=60, temperature=0.0),
        )
        result = await agent.run("Tom is a boy. He is 12 years old.")
        assert isinstance(result.output, kit.person)
        await agent.aclose()


@pytest.mark.anyio
async def test_the_server_wants_its_key(engine: Engine, kit: Kit) -> None:
    with LocalServer(context_tokens=4096) as server:
        model = OpenAIModel("smollm2", base_url=server.base_url, api_key="wrong")
        with pytest.raises(ModelError, match="401"):
            await model.call(kit.ask(), Consumer())
        await close_model(model)
