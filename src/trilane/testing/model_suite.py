"""What every model must do, whatever it talks to, as tests: for providers that speak no format the wire server knows.

```python
@pytest.mark.anyio
class TestModel(ModelConformance):
    def make(self):
        return EchoModel("echo")
```

It fixes what a run relies on: deltas that are waited for, an end that leaves nothing running, a response that agrees
with what was emitted. An adapter of a format that the wire server speaks runs `ProviderConformance` of `providers.py`
as well, which looks at both ends of the connection. Nothing here imports pytest.
"""

from __future__ import annotations

from typing import Any, get_args

import anyio
import anyio.lowlevel

from trilane.messages import (
    AssistantMessage,
    Delta,
    StopReason,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from trilane.models import Model, ModelRequest, ModelResponse

from .calls import Consumer, Emitted, ask, close_model, meaning
from .leaks import no_leaks

__all__ = ["ModelConformance"]

LATE_SECONDS = 1.0
"""How long a call may take to end once it is cancelled, or once `emit` has raised."""


class _NoMore(Exception):
    """What a reader raises that wants no more."""


class ModelConformance:
    """Subclass it in a test module, mark the subclass for anyio, and say how the model is made."""

    def make(self) -> Model:
        """A new model, which answers `request` with some text and opens nothing that outlives `aclose`."""
        raise NotImplementedError(f"{type(self).__name__}.make has to return the model that is tested")

    def request(self) -> ModelRequest:
        """What the model is asked; override it for one that answers only some requests."""
        return ask()

    async def _call(self, emit: Any = None, request: ModelRequest | None = None) -> tuple[list[Delta], ModelResponse]:
        """One call of a new model, which is closed and must leave nothing behind."""
        consumer = Consumer()
        async with no_leaks(wait_seconds=LATE_SECONDS):
            model = self.make()
            try:
                response = await model.call(request or self.request(), emit or consumer)
            finally:
                await close_model(model)
        return consumer.deltas, response

    # ---- what is answered --------------------------------------------------------------------------------------------

    async def test_it_is_a_model_with_a_name(self) -> None:
        model = self.make()
        assert isinstance(model, Model)
        assert isinstance(model.name, str)
        assert model.name.strip()
        await close_model(model)

    async def test_what_is_answered_is_what_was_emitted(self) -> None:
        deltas, response = await self._call()
        assert isinstance(response, ModelResponse), f"call returned {type(response).__name__}, not a ModelResponse"
        assert deltas or response.parts, "nothing was emitted and nothing is in the response"
        for delta in deltas:
            assert isinstance(delta, Delta)
            assert delta.text or delta.kind == "arguments" or delta.extra is not None, "an empty delta was emitted"
        if deltas and response.parts is not None:
            emitted = "".join(delta.text for delta in deltas if delta.kind == "text")
            answered = "".join(part.text for part in response.parts if isinstance(part, TextPart))
            assert emitted == answered, "parts must hold the text that was emitted, or be None"

    async def test_parts_are_emitted_one_after_the_other(self) -> None:
        deltas, _ = await self._call()
        places = [(delta.kind, delta.index) for delta in deltas if delta.kind != "arguments"]
        changes = [place for at, place in enumerate(places) if at == 0 or place != places[at - 1]]
        assert len(changes) == len(set(changes)), f"a part was taken up again after another one: {changes}"

    async def test_it_says_why_it_stopped_and_what_it_cost(self) -> None:
        _, response = await self._call()
        assert response.stop_reason in get_args(StopReason), f"{response.stop_reason!r} is no stop reason"
        for name in ("input_tokens", "output_tokens"):
            assert getattr(response.usage, name) >= 0, name

    async def test_the_response_comes_back_from_json(self) -> None:
        _, response = await self._call()
        assert ModelResponse.from_json(response.to_json()) == response

    async def test_the_request_is_left_as_it_was(self) -> None:
        request = self.request()
        before = request.to_json()
        await self._call(request=request)
        assert request.to_json() == before

    async def test_a_conversation_with_tools_goes_on(self) -> None:
        request = self.request()
        call = ToolCall(id="call_1", name="search", arguments={"query": "ships"})
        result = ToolResult(call_id="call_1", content="two ships")
        history = (
            UserMessage(id="m1", parts=(TextPart(text="Search."),)),
            AssistantMessage(id="m2", parts=(TextPart(text="I look."), ToolCallPart(call=call))),
            ToolMessage(id="m3", results=(result,)),
        )
        last = request.messages[-1].replace(id="m4") if request.messages[-1].kind == "user" else None
        messages = (*history, *([last] if last is not None else []))
        _, response = await self._call(request=request.replace(messages=messages, turn=2))
        assert isinstance(response, ModelResponse)

    # ---- how it works with its reader --------------------------------------------------------------------------------

    async def test_nothing_runs_ahead_of_the_reader(self) -> None:
        taking = 0

        async def emit(delta: Delta) -> None:
            nonlocal taking
            taking += 1
            assert taking == 1, "a delta was emitted while the one before was still being taken"
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            taking -= 1

        await self._call(emit)
        assert taking == 0, "call returned while a delta was still being taken"

    async def test_a_reader_that_raises_ends_the_call(self) -> None:
        raised = _NoMore("no more")
        seen = 0

        async def emit(delta: Delta) -> None:
            nonlocal seen
            seen += 1
            raise raised

        if not await self._emits():
            return
        came_out: BaseException | None = None
        with anyio.fail_after(LATE_SECONDS):
            try:
                await self._call(emit)
            except _NoMore as error:
                came_out = error
        assert came_out is raised, "emit raised, and its error did not come out of the call"
        assert seen == 1, "emit was called again after it had raised"

    async def test_a_cancel_goes_through(self) -> None:
        reached = anyio.Event()

        async def emit(delta: Delta) -> None:
            reached.set()
            await anyio.sleep_forever()

        if not await self._emits():
            return
        ended = False
        async with no_leaks(wait_seconds=LATE_SECONDS), anyio.create_task_group() as group:
            scope = anyio.CancelScope()

            async def work() -> None:
                nonlocal ended
                with scope:
                    await self._call(emit)
                ended = True

            group.start_soon(work)
            await reached.wait()
            scope.cancel()
            with anyio.fail_after(LATE_SECONDS):
                while not ended:
                    await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught, "the call swallowed the cancel of its caller"

    async def test_two_calls_at_once_do_not_mix(self) -> None:
        alone, _ = await self._call()
        model = self.make()
        consumers = [Consumer(), Consumer()]
        async with anyio.create_task_group() as group:
            for consumer in consumers:
                group.start_soon(model.call, self.request(), consumer)
        await close_model(model)
        expected = [self._shape(alone)] * 2
        assert [self._shape(consumer.deltas) for consumer in consumers] == expected

    def _shape(self, deltas: list[Delta]) -> Emitted | list[object]:
        """What two calls must have in common; override it for a model that answers at random."""
        return meaning(deltas)

    async def test_it_is_closed_twice(self) -> None:
        model = self.make()
        await model.call(self.request(), Consumer())
        await close_model(model)
        await close_model(model)

    async def test_it_works_in_a_run(self) -> None:
        from trilane import Agent

        from .history import assert_history
        from .recorder import record

        model = self.make()
        agent: Agent[None, str] = Agent(model)
        async with no_leaks(wait_seconds=LATE_SECONDS):
            async with agent.stream(next(part.text for part in self._said())) as run:
                events = await record(run)
            await agent.aclose()
            await close_model(model)
        events.check()
        assert_history(run.result.messages)
        assert run.result.status == "completed"
        assert run.result.text

    def _said(self) -> list[TextPart]:
        last = self.request().messages[-1]
        assert last.kind == "user", "the last message of request() must be the user's"
        return [part for part in last.parts if isinstance(part, TextPart)]

    async def _emits(self) -> bool:
        """False for a model that hands over its answer whole, to whom a reader can do nothing."""
        return bool((await self._call())[0])
