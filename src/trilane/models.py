"""The boundary to model providers: what a model is asked, what it answers, and the one protocol between.

A provider is a plugin whose `register_models` names factories; see `plugins.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from ._records import Record
from .config import ModelSettings
from .messages import AssistantPart, Delta, Message, StopReason, Usage

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    JsonValue = "JsonValue"

__all__ = ["Emit", "Model", "ModelRequest", "ModelResponse", "RecordedRequest", "ToolSpec"]

Emit = Callable[[Delta], Awaitable[None]]
"""Hands one delta over; returns when the caller has seen it."""


class ToolSpec(Record):
    """A tool as a model sees it: `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, JsonValue] = {}


class ModelRequest:
    """What one model call is asked. Immutable; `replace` makes a changed copy, which never touches the history.

    Attributes:
        instructions: The agent's instructions for this turn; the cacheable prefix.
        messages: The conversation, oldest first.
        tools: Tools the model may call, in a stable order.
        output_schema: JSON Schema the answer must follow, or None.
        settings: Knobs of the call.
        turn: Number of the turn, from 1.
        context: Texts added with `with_context`, for this request only. Adapters put them after everything that can
            be cached.
    """

    __slots__ = ("_count", "_log", "_messages", "context", "instructions", "output_schema", "settings", "tools", "turn")
    FIELDS: ClassVar[tuple[str, ...]] = (
        "instructions",
        "messages",
        "tools",
        "output_schema",
        "settings",
        "turn",
        "context",
    )

    def __init__(
        self,
        *,
        instructions: str = "",
        messages: Sequence[Message] = (),
        tools: tuple[ToolSpec, ...] = (),
        output_schema: Mapping[str, JsonValue] | None = None,
        settings: ModelSettings | None = None,
        turn: int = 1,
        context: tuple[str, ...] = (),
        count: int | None = None,
    ) -> None:
        # `count`: `messages` is the run's append-only log, of which this request is the first `count` items. Copying
        # it in each turn would make a run cost the square of its length; a model that needs a tuple gets it then.
        put = object.__setattr__
        put(self, "instructions", instructions)
        put(self, "_log", messages)
        put(self, "_count", count)
        put(self, "_messages", tuple(messages) if count is None else None)
        put(self, "tools", tools)
        put(self, "output_schema", output_schema)
        put(self, "settings", settings or _DEFAULT_SETTINGS)
        put(self, "turn", turn)
        put(self, "context", context)

    instructions: str
    tools: tuple[ToolSpec, ...]
    output_schema: Mapping[str, JsonValue] | None
    settings: ModelSettings
    turn: int
    context: tuple[str, ...]
    _messages: tuple[Message, ...] | None
    _log: Sequence[Message]
    _count: int | None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, oldest first."""
        if self._messages is None:
            object.__setattr__(self, "_messages", tuple(self._log[: self._count]))
        assert self._messages is not None
        return self._messages

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ModelRequest is frozen; make a changed copy with .replace({name}=...)")

    def replace(self, **changes: Any) -> Self:
        """A copy with some attributes changed.

        Raises:
            TypeError: a name that is not an attribute.
        """
        values: dict[str, Any] = {
            name: getattr(self, name) for name in self.FIELDS if name not in changes and name != "messages"
        }
        if "messages" not in changes:
            values["messages"], values["count"] = self._log, self._count
        return type(self)(**values, **changes)

    def with_context(self, text: str) -> Self:
        """A copy that also carries `text`, in this request only, after everything that can be cached.

        Raises:
            TypeError: `text` is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"with_context() takes a text, not {type(text).__name__}")
        return self.replace(context=(*self.context, text))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModelRequest):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ModelRequest(turn={self.turn}, messages={len(self.messages)}, tools={[t.name for t in self.tools]})"

    def to_json(self) -> str:
        """This request as one line of JSON, for recordings."""
        return RecordedRequest(**{name: getattr(self, name) for name in self.FIELDS}).to_json()

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """The request that `to_json` wrote."""
        recorded = RecordedRequest.from_json(data)
        return cls(**{name: getattr(recorded, name) for name in cls.FIELDS})


_DEFAULT_SETTINGS = ModelSettings()


class RecordedRequest(Record):
    """A `ModelRequest` as it is written to JSON."""

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    output_schema: Mapping[str, JsonValue] | None
    settings: ModelSettings
    turn: int
    context: tuple[str, ...]


class ModelResponse(Record):
    """What a model answered.

    Attributes:
        parts: The message's parts; None for exactly what was emitted.
        stop_reason: Why the model stopped.
        usage: What the call used.
        model: Name of the model that answered, as the provider gives it.
        extra: Whatever the provider wants kept with the message.
    """

    parts: tuple[AssistantPart, ...] | None = None
    stop_reason: StopReason = "end"
    usage: Usage = Usage()
    model: str = ""
    extra: JsonValue = None


@runtime_checkable
class Model(Protocol):
    """Turns a request into a response. The only thing a provider has to write.

    Optional: `async def aclose(self)`, called by `agent.aclose()`; `context_tokens`, an int that says how many tokens
    it sees, by which plugins know when a conversation is too long.
    """

    @property
    def name(self) -> str:
        """The model's name, with its provider: `openai:NAME`."""
        ...

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer `request`, handing each delta to `emit` as it arrives.

        When this returns, raises or is cancelled, nothing of it may go on: close the connection in `finally`.

        Raises:
            ModelError: the call failed; `retryable` and `retry_after_seconds` say whether and when to try again.
        """
        ...
