"""The scripted model and the function model."""

from __future__ import annotations

import json
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from trilane.messages import Delta, ReasoningPart, TextPart, ToolCall, ToolCallPart, Usage, UserMessage
from trilane.models import Model, ModelRequest, ModelResponse
from trilane.testing import FunctionModel, ScriptedModel, ScriptError, Step, call

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


REQUEST = ModelRequest(messages=(UserMessage(id="u1", parts=(TextPart(text="How many ships?"),)),))


class Emitted:
    """What a model emitted."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []

    async def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas if delta.kind == "text")


async def play(model: Model, request: ModelRequest = REQUEST) -> tuple[ModelResponse, Emitted]:
    emit = Emitted()
    return await model.call(request, emit), emit


async def test_text_is_emitted_in_words_and_returned() -> None:
    model = ScriptedModel("  Two  ships,\nI think. ")
    response, emitted = await play(model)
    assert [delta.text for delta in emitted.deltas] == ["  ", "Two  ", "ships,\n", "I ", "think. "]
    assert response.parts == (TextPart(text="  Two  ships,\nI think. "),)
    assert response.stop_reason == "end"
    assert model.requests == [REQUEST]
    assert model.emitted == 5
    model.assert_finished()


async def test_calls_are_opened_then_filled_and_returned_in_parts() -> None:
    long = call("search", text="ships in the harbour", limit=3)
    response, emitted = await play(ScriptedModel([long, call("now")]))
    first = [delta for delta in emitted.deltas if delta.index == 0]
    assert (first[0].call_id, first[0].name, first[0].text) == (long.id, "search", "")
    assert len(first) > 2
    assert json.loads("".join(delta.text for delta in first)) == {"text": "ships in the harbour", "limit": 3}
    assert "".join(delta.text for delta in emitted.deltas if delta.index == 1) == "{}"
    assert response.parts is not None
    assert [part.kind for part in response.parts] == ["tool_call", "tool_call"]
    assert response.stop_reason == "tool_calls"


async def test_raw_arguments_are_emitted_as_they_are() -> None:
    broken = ToolCall(id="c", name="search", raw='{"text": "Par')
    _, emitted = await play(ScriptedModel(broken))
    assert "".join(delta.text for delta in emitted.deltas) == '{"text": "Par'


async def test_a_step_orders_reasoning_text_and_calls() -> None:
    step = Step("Looking.", reasoning="I must search", calls=[call("search")], usage=Usage(input_tokens=7))
    response, emitted = await play(ScriptedModel(step))
    assert response.parts is not None
    assert [part.kind for part in response.parts] == ["reasoning", "text", "tool_call"]
    assert [(delta.kind, delta.index) for delta in emitted.deltas] == [
        ("reasoning", 0),
        ("reasoning", 0),
        ("reasoning", 0),
        ("text", 1),
        ("arguments", 2),
        ("arguments", 2),
    ]
    assert response.usage.input_tokens == 7


async def test_deltas_alone_return_no_parts() -> None:
    deltas = [Delta(text="a"), Delta(text="b"), Delta(kind="arguments", call_id="c", name="t", index=1)]
    response, emitted = await play(ScriptedModel(Step(deltas=deltas)))
    assert emitted.deltas == deltas
    assert response.parts is None
    assert response.stop_reason == "tool_calls"


async def test_parts_may_differ_from_deltas_and_may_be_kept_back() -> None:
    differing = Step(parts=[TextPart(text="kept")], deltas=[Delta(text="shown")])
    kept_back = Step("one two", returns=False, stop_reason="length")
    model = ScriptedModel(differing, kept_back)
    response, emitted = await play(model)
    assert (response.parts, emitted.text) == ((TextPart(text="kept"),), "shown")
    response, emitted = await play(model)
    assert (response.parts, emitted.text, response.stop_reason) == (None, "one two", "length")


async def test_an_empty_step_emits_nothing() -> None:
    response, emitted = await play(ScriptedModel(Step()))
    assert (response.parts, emitted.deltas) == ((), [])


async def test_signatures_stay_in_the_returned_parts() -> None:
    part = ReasoningPart(text="hm", signature="s1")
    response, _ = await play(ScriptedModel(Step(parts=[part])))
    assert response.parts == (part,)


async def test_text_and_parts_together_are_refused() -> None:
    with pytest.raises(ValueError, match="either text, reasoning and calls, or parts"):
        Step("a", parts=[TextPart(text="b")])


async def test_an_error_is_raised_itself_after_the_deltas() -> None:
    boom = RuntimeError("boom")
    emit = Emitted()
    with pytest.raises(RuntimeError) as caught:
        await ScriptedModel(Step("partial text", error=boom)).call(REQUEST, emit)
    assert caught.value is boom
    assert emit.text == "partial text"
    with pytest.raises(RuntimeError) as caught:
        await ScriptedModel(boom).call(REQUEST, emit)
    assert caught.value is boom


async def test_a_function_sees_the_request_and_gives_any_step() -> None:
    async def later(request: ModelRequest) -> Step:
        return Step(f"turn {request.turn}")

    model = ScriptedModel(lambda request: call("search", turn=request.turn), later)
    response, _ = await play(model, REQUEST.replace(turn=4))
    assert response.parts is not None
    part = response.parts[0]
    assert isinstance(part, ToolCallPart)
    assert part.call.arguments == {"turn": 4}
    response, emitted = await play(model, REQUEST.replace(turn=5))
    assert emitted.text == "turn 5"
    model.assert_finished()


async def test_an_unexpected_call_raises_at_once_and_is_remembered() -> None:
    model = ScriptedModel("one")
    await play(model)
    with pytest.raises(ScriptError, match=r"unexpected model call 2, the script has 1 steps .*'How many ships\?'"):
        await play(model)
    assert len(model.requests) == 2
    with pytest.raises(ScriptError, match="unexpected model call 2"):
        model.assert_finished()
    assert issubclass(ScriptError, AssertionError)


async def test_steps_that_were_not_played_are_listed() -> None:
    model = ScriptedModel("one", "two words", ValueError("x"))
    await play(model)
    assert model.remaining == 2
    with pytest.raises(ScriptError, match=r"2 of 3 steps were not played: Step\(2 deltas, end\), Step\(0 deltas, Val"):
        model.assert_finished()


async def test_a_step_that_cannot_be_one_is_refused_when_the_script_is_made() -> None:
    with pytest.raises(TypeError, match=r"a script step cannot be \[1\]"):
        ScriptedModel([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a script step cannot be None"):
        await ScriptedModel(lambda request: None).call(REQUEST, Emitted())  # type: ignore[arg-type, return-value]


async def test_before_holds_the_answer_back_and_between_the_deltas() -> None:
    gate = anyio.Event()
    seen: list[int] = []
    emit = Emitted()

    async def between() -> None:
        seen.append(len(emit.deltas))
        await anyio.lowlevel.checkpoint()

    model = ScriptedModel(Step("a b c", before=gate.wait, between=between))
    async with anyio.create_task_group() as group:
        group.start_soon(model.call, REQUEST, emit)
        await anyio.wait_all_tasks_blocked()
        assert (model.active, emit.deltas) == (1, [])
        gate.set()
    assert (model.active, emit.text, seen) == (0, "a b c", [1, 2])


async def test_a_cancelled_call_is_not_active_any_more() -> None:
    model = ScriptedModel(Step("a", before=anyio.Event().wait))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await model.call(REQUEST, Emitted())
    assert scope.cancelled_caught
    assert (model.active, model.emitted) == (0, 0)
    model.assert_finished()


async def test_function_model_takes_sync_and_async_functions() -> None:
    async def streamed(request: ModelRequest, emit: object) -> ModelResponse:
        assert callable(emit)
        await emit(Delta(text="hel"))
        await emit(Delta(text="lo"))
        return ModelResponse(stop_reason="length")

    plain = FunctionModel(lambda request, emit: f"{len(request.messages)} messages", name="counter")
    response, emitted = await play(plain)
    assert (response.parts, response.model, emitted.deltas) == ((TextPart(text="1 messages"),), "counter", [])
    model = FunctionModel(streamed)
    response, emitted = await play(model)
    assert (response.parts, response.stop_reason, emitted.text, model.name) == (None, "length", "hello", "function")
    assert model.requests == [REQUEST]


async def test_function_model_refuses_other_values() -> None:
    with pytest.raises(TypeError, match="returned int; it must return a ModelResponse or a str"):
        await play(FunctionModel(lambda request, emit: 3))  # type: ignore[arg-type, return-value]


async def test_both_fit_the_protocol() -> None:
    assert isinstance(ScriptedModel(), Model)
    assert isinstance(FunctionModel(lambda request, emit: ""), Model)
    assert ScriptedModel().name == "scripted"
    assert ScriptedModel(name="P:x").name == "P:x"


def test_call_numbers_its_ids_and_takes_any_other() -> None:
    first, second = call("a"), call("a")
    assert first.id != second.id
    assert first.id.startswith("call_")
    assert call("a", call_id="").id == ""
    assert call("a", name="n", id="i").arguments == {"name": "n", "id": "i"}


def test_the_kit_imports_neither_pytest_nor_trio() -> None:
    code = (
        "import sys, trilane.testing as kit\n"
        "for name in kit.__all__: getattr(kit, name)\n"
        "print(sorted({'pytest', 'trio', 'hypothesis'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_names_are_sorted_and_unknown_ones_are_refused() -> None:
    import trilane.testing as kit

    constants = [name for name in kit.__all__ if name.isupper()]
    others = [name for name in kit.__all__ if not name.isupper()]
    assert list(kit.__all__) == [*sorted(constants), *sorted(others)]  # the order the linter keeps
    assert set(kit.__all__) <= set(dir(kit))
    with pytest.raises(AttributeError, match="no attribute 'Scripted'"):
        _ = kit.Scripted
