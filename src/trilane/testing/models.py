"""Models for tests: one that plays back a script, and one that is a function.

Neither reaches a network or waits by itself. They obey the `Model` protocol to the letter, so what passes with them
says something about real providers. Recorded provider traffic is not here; that belongs to the provider plugins' tests.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, TypeAlias, Union

from trilane.messages import AssistantPart, Delta, ReasoningPart, StopReason, TextPart, ToolCall, ToolCallPart, Usage
from trilane.models import Emit, ModelRequest, ModelResponse

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["FunctionModel", "ScriptError", "ScriptStep", "ScriptedModel", "Step", "call", "deltas_of"]

_WORDS = re.compile(r"\S+\s*|\s+")
_JSON_PIECE = 12
_call_numbers = count(1)


class ScriptError(AssertionError):
    """A run and the script of its model do not agree: a call too many, or steps that were never played."""


def call(name: str, /, *, call_id: str | None = None, **arguments: JsonValue) -> ToolCall:
    """A tool call for a script: `call("search", text="ships")`.

    Args:
        name: The tool.
        call_id: The call's id; any text, so that empty and doubled ids can be scripted. Without it `call_1`,
            `call_2`, and so on, no number twice in a process.
        arguments: The call's arguments. For an argument that is itself named `call_id`, make the `ToolCall` directly.
    """
    if call_id is None:
        call_id = f"call_{next(_call_numbers)}"
    return ToolCall(id=call_id, name=name, arguments=arguments)


class Step:
    """One answer of a `ScriptedModel`: what it emits, delta by delta, and what it returns or raises at the end.

    Attributes:
        parts: The message's parts; None if only `deltas` were given, and then the response says "what was emitted".
        deltas: What is emitted, in order. Made from `parts` unless given: a delta for each word of text and
            reasoning, and for each call one that opens it and then pieces of its arguments as JSON.
        stop_reason: Why the model stopped; `tool_calls` if there are calls, else `end`, unless given.
        usage: What the call used.
        model: Name of the model in the response.
        error: Raised after the deltas, instead of returning.
        before: Awaited before anything is emitted: an event's `wait`, say.
        between: Awaited before each delta but the first.
        returns: False to return `parts=None` although there are parts, so that the run must put the message together.
    """

    __slots__ = ("before", "between", "deltas", "error", "model", "parts", "returns", "stop_reason", "usage")

    def __init__(
        self,
        text: str = "",
        *,
        reasoning: str = "",
        calls: Sequence[ToolCall] = (),
        parts: Sequence[AssistantPart] | None = None,
        deltas: Sequence[Delta] | None = None,
        stop_reason: StopReason | None = None,
        usage: Usage | None = None,
        model: str = "scripted",
        error: BaseException | None = None,
        before: Callable[[], Awaitable[object]] | None = None,
        between: Callable[[], Awaitable[object]] | None = None,
        returns: bool = True,
    ) -> None:
        """Give either `text`, `reasoning` and `calls` (in the message: reasoning, text, calls), or `parts` as they are.

        Raises:
            ValueError: both were given.
        """
        short = bool(text or reasoning or calls)
        if short and parts is not None:
            raise ValueError("Step takes either text, reasoning and calls, or parts; put everything into parts")
        if parts is None and (short or deltas is None):
            parts = tuple(_parts(reasoning, text, calls))
        self.parts: tuple[AssistantPart, ...] | None = None if parts is None else tuple(parts)
        self.deltas: tuple[Delta, ...] = tuple(deltas_of(self.parts or ()) if deltas is None else deltas)
        self.stop_reason: StopReason = stop_reason or ("tool_calls" if self._has_calls() else "end")
        self.usage = usage or Usage()
        self.model = model
        self.error = error
        self.before = before
        self.between = between
        self.returns = returns

    def _has_calls(self) -> bool:
        if self.parts is not None:
            return any(part.kind == "tool_call" for part in self.parts)
        return any(delta.kind == "arguments" for delta in self.deltas)

    def response(self) -> ModelResponse:
        """What the model returns after this step's deltas."""
        return ModelResponse(
            parts=self.parts if self.returns else None,
            stop_reason=self.stop_reason,
            usage=self.usage,
            model=self.model,
        )

    def __repr__(self) -> str:
        end = repr(self.error) if self.error is not None else self.stop_reason
        return f"Step({len(self.deltas)} deltas, {end})"


ScriptStep: TypeAlias = Union[  # noqa: UP007  (an alias that names itself has to be a string in `|`)
    str,
    ToolCall,
    Sequence[ToolCall],
    BaseException,
    Step,
    Callable[[ModelRequest], "ScriptStep | Awaitable[ScriptStep]"],
]
"""What a script is made of: a text, tool calls, an error to raise, a `Step`, or a function that gives one of these."""


class ScriptedModel:
    """Plays back a script: each model call takes the next step. An unexpected call raises `ScriptError` at once.

    ```python
    model = ScriptedModel(call("search", text="ships"), "Two ships.")
    result = await Agent(model, tools=[search]).run("How many ships?")
    assert len(model.requests) == 2
    model.assert_finished()
    ```

    Attributes:
        requests: Every request the model got, the unexpected ones too.
        emitted: Number of deltas handed over and acknowledged.
        active: Number of calls in progress; 0 again when a call returned, raised or was cancelled.
    """

    def __init__(self, *steps: ScriptStep, name: str = "scripted") -> None:
        self._steps = tuple(step if callable(step) and not isinstance(step, Step) else _as_step(step) for step in steps)
        self._next = 0
        self._name = name
        self._unexpected: list[str] = []
        self.requests: list[ModelRequest] = []
        self.emitted = 0
        self.active = 0

    @property
    def name(self) -> str:
        """`scripted`, or the name given."""
        return self._name

    @property
    def remaining(self) -> int:
        """Number of steps not played yet."""
        return len(self._steps) - self._next

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Play the next step.

        Raises:
            ScriptError: there is none. What the step itself raises comes through as it is.
        """
        self.requests.append(request)
        if self._next >= len(self._steps):
            text = self._too_many(request)
            self._unexpected.append(text)
            raise ScriptError(text)
        planned = self._steps[self._next]
        self._next += 1
        self.active += 1
        try:
            step = planned if isinstance(planned, Step) else await self._ask(planned, request)
            return await self._play(step, emit)
        finally:
            self.active -= 1

    async def _ask(self, function: Callable[[ModelRequest], object], request: ModelRequest) -> Step:
        value = function(request)
        return _as_step(await value if inspect.isawaitable(value) else value)

    async def _play(self, step: Step, emit: Emit) -> ModelResponse:
        if step.before is not None:
            await step.before()
        between = step.between
        for position, delta in enumerate(step.deltas):
            if between is not None and position:
                await between()
            await emit(delta)
            self.emitted += 1
        if step.error is not None:
            raise step.error
        return step.response()

    def assert_finished(self) -> None:
        """Check that the script was played to its end and no call was unexpected.

        Raises:
            ScriptError: it was not; the message lists the steps left, or the calls too many.
        """
        if self._unexpected:
            raise ScriptError(self._unexpected[0])
        if self.remaining:
            left = ", ".join(repr(step) for step in self._steps[self._next :])
            raise ScriptError(
                f"{self._name}: {self.remaining} of {len(self._steps)} steps were not played: {left}. "
                "Either the run ended early (look at result.error), or the script is too long."
            )

    def _too_many(self, request: ModelRequest) -> str:
        return (
            f"{self._name}: unexpected model call {len(self.requests)}, the script has {len(self._steps)} steps "
            f"(turn {request.turn}, the request ends with {_ending(request)}). Add a step, or find out why the run "
            "asked again: a tool result, an answer that was sent back, an empty reply or a retry."
        )

    def __repr__(self) -> str:
        return f"ScriptedModel(step {self._next} of {len(self._steps)})"


class FunctionModel:
    """A model that is a function of the request: `FunctionModel(lambda request, emit: "Hello")`.

    The function may be `async`, may await `emit(delta)`, and returns a `ModelResponse` or the text of the answer.

    Attributes:
        requests: Every request the model got.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest, Emit], ModelResponse | str | Awaitable[ModelResponse | str]],
        *,
        name: str = "function",
    ) -> None:
        self._function = function
        self._name = name
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        """`function`, or the name given."""
        return self._name

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Call the function.

        Raises:
            TypeError: it returned neither a response nor text.
        """
        self.requests.append(request)
        value = self._function(request, emit)
        answer = await value if inspect.isawaitable(value) else value
        if isinstance(answer, str):
            return ModelResponse(parts=(TextPart(text=answer),), model=self._name)
        if not isinstance(answer, ModelResponse):
            raise TypeError(
                f"{self._name}: the function returned {type(answer).__name__}; it must return a ModelResponse or a str"
            )
        return answer


def deltas_of(parts: Sequence[AssistantPart]) -> Iterator[Delta]:
    """The deltas in which a provider would stream `parts`. Parts that no delta can carry keep their index only."""
    for index, part in enumerate(parts):
        if part.kind == "text" or part.kind == "reasoning":
            for word in _WORDS.findall(part.text):
                yield Delta(kind=part.kind, text=word, index=index)
        elif part.kind == "tool_call":
            yield Delta(kind="arguments", index=index, call_id=part.call.id, name=part.call.name)
            text = part.call.raw or _json(part.call.arguments)
            for start in range(0, len(text), _JSON_PIECE):
                yield Delta(kind="arguments", text=text[start : start + _JSON_PIECE], index=index)


def _json(arguments: Mapping[str, JsonValue]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False)


def _parts(reasoning: str, text: str, calls: Sequence[ToolCall]) -> Iterator[AssistantPart]:
    if reasoning:
        yield ReasoningPart(text=reasoning)
    if text:
        yield TextPart(text=text)
    for item in calls:
        yield ToolCallPart(call=item)


def _as_step(value: object) -> Step:
    if isinstance(value, Step):
        return value
    if isinstance(value, str):
        return Step(value)
    if isinstance(value, ToolCall):
        return Step(calls=(value,))
    if isinstance(value, BaseException):
        return Step(error=value)
    if isinstance(value, Sequence) and all(isinstance(item, ToolCall) for item in value):
        return Step(calls=value)
    raise TypeError(
        f"a script step cannot be {value!r}; give a text, a ToolCall or several, an exception to raise, a Step, "
        "or a function of the request that returns one of these"
    )


def _ending(request: ModelRequest) -> str:
    if not request.messages:
        return "no message"
    last = request.messages[-1]
    if last.kind == "tool":
        return "the results of " + ", ".join(result.call_id for result in last.results)
    text = last.text if len(last.text) <= 60 else last.text[:60] + "..."
    return f"the {last.kind} message {text!r}"
