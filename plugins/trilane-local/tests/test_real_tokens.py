"""A real model: it streams, stops, and fits schemas. What it says is its own affair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from trilane import Agent
from trilane.config import ModelSettings
from trilane.errors import ModelError, RunCancelledError
from trilane.messages import Delta
from trilane.testing.calls import Consumer, close_model
from trilane_local import LocalModel
from trilane_local.engine import Engine

if TYPE_CHECKING:
    from conftest import Kit

# ---- in the process --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_tokens_are_streamed(local: LocalModel, kit: Kit) -> None:
    consumer = Consumer()
    response = await local.call(kit.ask(), consumer)
    assert local.name == "local:smollm2"
    assert len(consumer.deltas) > 5
    assert all(delta.kind == "text" for delta in consumer.deltas)
    assert response.stop_reason == "length"
    assert response.usage.output_tokens == 12
    assert response.usage.input_tokens > 5
    await close_model(local)


@pytest.mark.anyio
async def test_a_cancel_stops_it_between_two_tokens_and_the_next_request_works(
    local: LocalModel, engine: Engine, kit: Kit
) -> None:
    with anyio.CancelScope() as scope:
        consumer = Consumer(3, scope.cancel)
        await local.call(kit.ask(settings=kit.long), consumer)
        raise AssertionError("it was not stopped")
    assert len(consumer.deltas) == 3
    await kit.idle(engine.running)
    again = Consumer()
    await local.call(kit.ask(), again)
    assert again.deltas
    await close_model(local)


@pytest.mark.anyio
async def test_an_error_of_the_consumer_stops_it(local: LocalModel, engine: Engine, kit: Kit) -> None:
    async def refuse(_: Delta) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await local.call(kit.ask(settings=kit.long), refuse)
    await kit.idle(engine.running)
    await close_model(local)


@pytest.mark.anyio
async def test_a_run_is_stopped_and_the_session_goes_on(local: LocalModel, engine: Engine, kit: Kit) -> None:
    agent = Agent(local, model_settings=ModelSettings(max_output_tokens=500, temperature=0.0))
    shown = 0
    with pytest.raises(RunCancelledError):
        async with agent.stream("Tell me a long story.", session="s") as run:
            async for event in run:
                shown += event.type == "text_delta"
                if shown == 3:
                    run.stop("enough")
    await kit.idle(engine.running)
    result = await agent.run("Go on.", session="s", model_settings=kit.short)
    assert result.text
    assert [message.kind for message in result.messages] == ["user", "assistant", "user", "assistant"]
    await agent.aclose()


@pytest.mark.anyio
async def test_an_answer_fits_its_schema(local: LocalModel, kit: Kit) -> None:
    agent = Agent(local, output_type=kit.person, model_settings=ModelSettings(max_output_tokens=60, temperature=0.0))
    result = await agent.run("Tom is a boy. He is 12 years old.")
    assert isinstance(result.output, kit.person)
    await agent.aclose()


@pytest.mark.anyio
async def test_a_forced_call_has_arguments_that_fit(local: LocalModel, kit: Kit) -> None:
    seen: list[tuple[int, int]] = []

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        seen.append((a, b))
        return a + b

    settings = ModelSettings(max_output_tokens=60, temperature=0.0, tool_choice="add")
    agent = Agent(local, tools=[add], model_settings=settings)
    async with agent.stream("Add 2 and 3.") as run:
        async for event in run:
            if event.type == "tool_completed":
                run.stop("seen")
                break
    assert len(seen) == 1
    await agent.aclose()


@pytest.mark.anyio
async def test_too_long_a_conversation_is_readable(local: LocalModel, kit: Kit) -> None:
    with pytest.raises(ModelError, match=r"the conversation has \d+ tokens, the model sees 4096; compact") as caught:
        await local.call(kit.ask("word " * 6000), Consumer())
    assert not caught.value.retryable
    await close_model(local)


@pytest.mark.anyio
async def test_a_request_that_the_engine_refuses_is_readable(local: LocalModel, kit: Kit) -> None:
    with pytest.raises(ModelError, match=r"model local:smollm2: the engine (does not take|failed)"):
        await local.call(kit.ask(output_schema={"type": "nonsense"}), Consumer())
    await close_model(local)


@pytest.mark.anyio
async def test_two_at_once_both_get_their_answer(engine: Engine, kit: Kit) -> None:
    one, other = LocalModel(context_tokens=4096), LocalModel(context_tokens=4096)
    consumers = [Consumer(), Consumer()]
    async with anyio.create_task_group() as group:
        for model, consumer in zip((one, other), consumers, strict=True):
            group.start_soon(model.call, kit.ask(), consumer)
    assert all(consumer.deltas for consumer in consumers)
    assert one._engine is other._engine is engine


@pytest.mark.anyio
async def test_a_cancel_does_not_wait_for_a_long_prompt(local: LocalModel, engine: Engine, kit: Kit) -> None:
    consumer = Consumer()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(local.call, kit.ask("word " * 300), consumer)
            while not engine.running():
                await checkpoint()
            group.cancel_scope.cancel()
    assert consumer.deltas == []
    await local.call(kit.ask(), consumer)
    assert consumer.deltas
    await close_model(local)
