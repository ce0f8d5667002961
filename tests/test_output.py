"""Answers: text, validated output, what goes back to the model, refusals, length, pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator

from trilane import Agent, Limits, hookimpl
from trilane.decisions import Replace, SendBack
from trilane.errors import ConfigError, RefusalError, RunLimitError, RunNotCompletedError
from trilane.events import MessageCompleted
from trilane.testing import EventRecorder, ScriptedModel, Step, assert_history, record

pytestmark = pytest.mark.anyio


class Ship(BaseModel):
    name: str
    masts: int


@dataclass
class Harbour:
    ships: list[Ship]


async def answered(model: ScriptedModel, *, catch: Any = (), **options: Any) -> tuple[EventRecorder, Any]:
    plugins = options.pop("plugins", ())
    async with Agent(model, plugins=plugins).stream("Go", **options) as run:
        events = await record(run, catch=catch)
    events.check()
    assert_history(run.result.messages)
    model.assert_finished()
    return events, run.result


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (Ship, '{"name": "Moby", "masts": 3}', Ship(name="Moby", masts=3)),
        (Harbour, '{"ships": [{"name": "a", "masts": 1}]}', Harbour(ships=[Ship(name="a", masts=1)])),
        (list[int], "[1, 2]", [1, 2]),
        (Literal["yes", "no"], '"yes"', "yes"),
        (int | None, "null", None),
        (bool, "true", True),
        (Ship, '```json\n{"name": "Moby", "masts": 3}\n```', Ship(name="Moby", masts=3)),
        (str, "{}", "{}"),
    ],
)
async def test_any_type_pydantic_knows(output_type: Any, text: str, value: Any) -> None:
    model = ScriptedModel(text)
    _, result = await answered(model, output_type=output_type)
    assert result.output == value
    schema = model.requests[0].output_schema
    assert (schema is None) == (output_type is str)


async def test_the_agents_type_and_a_runs_own() -> None:
    agent = Agent(ScriptedModel("5", "five"), output_type=int)
    assert (await agent.run("Go")).output == 5
    assert (await agent.run("Go", output_type=str)).output == "five"


async def test_validation_errors_go_back_to_the_model_with_its_own_words() -> None:
    model = ScriptedModel('{"name": "Moby"}', "not JSON", '{"name": "Moby", "masts": 3}')
    events, result = await answered(model, output_type=Ship)
    assert result.output == Ship(name="Moby", masts=3)
    second = model.requests[1].messages
    assert [message.kind for message in second] == ["user", "assistant", "user"]
    assert second[1].text == '{"name": "Moby"}'  # type: ignore[union-attr]
    assert "- masts: Field required" in second[2].text  # type: ignore[union-attr]
    assert second[2].origin == "feedback"  # type: ignore[union-attr]
    assert "the whole answer" in model.requests[2].messages[-1].text  # type: ignore[union-attr]
    assert "pydantic.dev" not in second[2].text  # type: ignore[union-attr]
    superseded = [event.superseded for event in events.of(MessageCompleted)]
    assert superseded == [False, True, False, True, False]


async def test_validation_has_an_end_after_answer_retries() -> None:
    for retries in (0, 1, 2):
        model = ScriptedModel(*["nonsense"] * (retries + 1))
        events, result = await answered(
            model, catch=RunLimitError, output_type=Ship, limits=Limits(answer_retries=retries)
        )
        assert f"after {retries + 1} attempts" in str(events.error)
        assert (result.status, result.stop_reason) == ("failed", "limit")
        assert result.text == "nonsense"
        with pytest.raises(RunNotCompletedError, match="ended failed"):
            _ = result.output
        assert not hasattr(result, "output")


async def test_on_answer_sees_the_value_and_may_replace_it() -> None:
    seen: list[Any] = []

    class Plugin:
        name = "plugin"

        @hookimpl
        def on_answer(self, message: Any, output: Any) -> Any:
            seen.append((message.text, output))
            return Replace(output=Ship(name="Dick", masts=4)) if output.name == "Moby" else None

    _, result = await answered(ScriptedModel('{"name": "Moby", "masts": 3}'), output_type=Ship, plugins=[Plugin()])
    assert result.output == Ship(name="Dick", masts=4)
    assert [output.name for _, output in seen] == ["Moby", "Dick"]


async def test_on_answer_may_save_an_answer_that_does_not_validate() -> None:
    class Plugin:
        name = "plugin"

        @hookimpl
        def on_answer(self, message: Any, output: Any) -> Any:
            return Replace(output=Ship(name=message.text, masts=0))

    _, result = await answered(ScriptedModel("Moby"), output_type=Ship, plugins=[Plugin()])
    assert result.output == Ship(name="Moby", masts=0)


async def test_send_back_and_validation_share_their_limit() -> None:
    class Critic:
        name = "critic"

        @hookimpl
        def on_answer(self, output: Any) -> Any:
            return SendBack(feedback="More masts.") if output is not None and output.masts < 3 else None

    model = ScriptedModel("nonsense", '{"name": "a", "masts": 1}', '{"name": "a", "masts": 2}')
    events, _ = await answered(model, catch=RunLimitError, output_type=Ship, plugins=[Critic()])
    assert "the last reason: More masts." in str(events.error)


@pytest.mark.parametrize("reason", ["refusal", "content_filter"])
async def test_refusals_fail_the_run_with_the_models_words(reason: Any) -> None:
    model = ScriptedModel(Step("I cannot help with that.", stop_reason=reason))
    events, result = await answered(model, catch=RefusalError)
    assert reason in str(events.error)
    assert "I cannot help with that." in str(events.error)
    assert result.text == "I cannot help with that."
    assert result.messages[-1].stop_reason == reason
    model = ScriptedModel(Step("", stop_reason=reason))
    events, result = await answered(model, catch=RefusalError)
    assert "it gave no reason" in str(events.error)
    assert [message.kind for message in result.messages] == ["user"]


async def test_a_plugin_may_turn_a_refusal_into_an_answer_or_send_it_back() -> None:
    class Plugin:
        name = "plugin"

        @hookimpl
        def on_answer(self, message: Any) -> Any:
            return SendBack(feedback="It is allowed.") if message.stop_reason == "refusal" else None

    model = ScriptedModel(Step("No.", stop_reason="refusal"), "Fine.")
    _, result = await answered(model, plugins=[Plugin()])
    assert result.output == "Fine."


async def test_an_answer_cut_by_the_output_limit_is_an_answer_and_says_so() -> None:
    _, result = await answered(ScriptedModel(Step("Half of", stop_reason="length")))
    assert (result.output, result.stop_reason) == ("Half of", "length")


async def test_nothing_but_reasoning_cut_by_the_output_limit_says_what_to_do() -> None:
    model = ScriptedModel(Step(reasoning="Hm, hm.", stop_reason="length"))
    events, _ = await answered(model, catch=RunLimitError)
    assert "raise ModelSettings.max_output_tokens" in str(events.error)


async def test_a_pause_is_continued() -> None:
    model = ScriptedModel(Step("Searching.", stop_reason="pause"), "Found.")
    _, result = await answered(model)
    assert result.output == "Found."
    assert [message.text for message in model.requests[1].messages] == ["Go", "Searching."]  # type: ignore[union-attr]


async def test_a_reply_of_reasoning_only_is_an_empty_reply() -> None:
    model = ScriptedModel(Step(reasoning="Hm."), "Hello.")
    _, result = await answered(model)
    assert result.output == "Hello."


async def test_w12_what_follows_an_answer_cannot_take_it_away() -> None:
    class Plugin:
        name = "plugin"

        @hookimpl
        def after_turn(self) -> None:
            raise KeyError("late")

        @hookimpl
        def after_run(self) -> None:
            raise KeyError("later")

    _, result = await answered(ScriptedModel("Hello."), plugins=[Plugin()])
    assert (result.output, len(result.hook_failures)) == ("Hello.", 2)


async def test_a_type_without_schema_is_refused_when_the_agent_is_made() -> None:
    class Odd:
        pass

    with pytest.raises(ConfigError, match="Odd"):
        Agent(ScriptedModel(), output_type=Odd)
    with pytest.raises(ConfigError, match="Odd"):
        await Agent(ScriptedModel()).run("Go", output_type=Odd)


async def test_a_validator_that_fails_sends_the_answer_back() -> None:
    share = Annotated[float, BeforeValidator(lambda value: 100 / value)]
    model = ScriptedModel("0", "5")
    _, result = await answered(model, output_type=share)
    assert result.output == 20.0
    told = model.requests[1].messages[-1]
    assert told.kind == "user"
    assert "The answer could not be checked: a validator failed with ZeroDivisionError." in told.text
    with pytest.raises(RunLimitError, match="the answer was not accepted"):
        await Agent(ScriptedModel("0", "0"), output_type=share, limits=Limits(answer_retries=1)).run("Go")


class Incomparable:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return self.text


@pytest.mark.parametrize("make", [lambda: float("nan"), lambda: [float("nan")], lambda: Incomparable("odd")])
async def test_a_replacement_may_be_one_that_equals_nothing_or_cannot_be_compared(make: Any) -> None:
    class Replacing:
        @hookimpl
        def on_answer(self, output: Any) -> Replace:
            return Replace(output=make())

    class Looking:
        name = "looking"

        @hookimpl(trylast=True)
        def on_answer(self, output: Any) -> None:
            seen.append(repr(output))

    seen: list[str] = []
    _, result = await answered(ScriptedModel("1.5"), output_type=float, plugins=[Replacing(), Looking()])
    assert result.status == "completed"
    assert repr(result.output) == repr(make())
    assert seen == [repr(make())]
