"""`OfflineModel`: the planner behind the `Model` protocol.

It keeps nothing between calls. What was asked and what came back is read from the request each time; the plan is made
anew and is the same. Planning is in `plan.py`, wording in `answer.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trilane.messages import Delta, ToolCall, ToolCallPart
from trilane.models import ModelResponse

from .answer import compose, each_calls, pieces
from .introduction import introduce, other_models, shorten
from .plan import Plan, PlannedCall, make_plan
from .results import Done
from .structured import NotFound, build

if TYPE_CHECKING:
    from trilane.messages import Message, StopReason
    from trilane.models import Emit, ModelRequest, ToolSpec

__all__ = ["NAME", "OfflineModel", "installed_providers"]

NAME = "planner"
"""The one model of the provider `offline`."""

_EARLIER_MESSAGES = 8
_MOST_ROUNDS = 2
_AND = re.compile(r"\W*(?:and|also|plus)\b", re.I)


def installed_providers() -> tuple[str, ...]:
    """Names of the installed plugins, among them the model providers. Imports none of them."""
    from importlib.metadata import entry_points

    return tuple(sorted({entry.name for entry in entry_points(group="trilane")}))


@dataclass(slots=True)
class _Conversation:
    """What a request says of the run so far.

    Attributes:
        texts: The user's messages, oldest first; the last is what is to be done.
        done: Calls with their results since then.
        rounds: How many messages with calls there were since then.
        feedback: What the host found wrong with an answer, if it did.
    """

    texts: list[str] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    rounds: int = 0
    feedback: str = ""


class OfflineModel:
    """A deterministic planner: not an AI. Needs no key and no network.

    Args:
        installed: Tells which providers are installed, for the advice it gives when it cannot help.
    """

    __slots__ = ("_installed",)

    def __init__(self, installed: Callable[[], Sequence[str]] = installed_providers) -> None:
        self._installed = installed

    @property
    def name(self) -> str:
        """`offline:planner`."""
        return f"offline:{NAME}"

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Plan tool calls for the user's latest message, or answer it from their results."""
        conversation = _read(request.messages)
        if conversation.feedback:
            return await self._say(_stubborn(conversation.feedback, self._installed()), emit, "refusal")
        plan = make_plan(conversation.texts, request.tools)
        calls = _next_calls(plan, conversation)
        if calls:
            return self._ask(calls, conversation.rounds)
        if request.output_schema is not None:
            return await self._structure(request, conversation, emit)
        if not conversation.done and not plan.steps:
            return await self._say(self._cannot(plan, request.tools), emit)
        text = compose(plan, conversation.done, request.tools)
        if plan.misses:
            text = f"{text}\n\nI am not an AI and match requests with tools. {other_models(self._installed())}"
        return await self._say(text, emit)

    def _cannot(self, plan: Plan, tools: Sequence[ToolSpec]) -> str:
        return "\n\n".join([introduce(plan.misses, tools, self._installed()), *plan.notes])

    def _ask(self, calls: Sequence[PlannedCall], rounds: int) -> ModelResponse:
        parts = []
        for number, call in enumerate(calls, 1):
            arguments = dict(call.arguments)
            raw = json.dumps(arguments, ensure_ascii=False)
            one = ToolCall(id=f"offline-{rounds + 1}-{number}", name=call.tool, arguments=arguments, raw=raw)
            parts.append(ToolCallPart(call=one))
        return ModelResponse(parts=tuple(parts), stop_reason="tool_calls", model=self.name)

    async def _structure(self, request: ModelRequest, conversation: _Conversation, emit: Emit) -> ModelResponse:
        schema = request.output_schema or {}
        try:
            value = build(schema, conversation.done, request.tools)
        except NotFound as error:
            text = f"I am not an AI and cannot fill in the output that is asked for: {error}.\n\n"
            return await self._say(text + other_models(self._installed()), emit, "refusal")
        return await self._say(json.dumps(value, ensure_ascii=False), emit)

    async def _say(self, text: str, emit: Emit, stop_reason: StopReason = "end") -> ModelResponse:
        for piece in pieces(text):
            await emit(Delta(kind="text", text=piece))
        return ModelResponse(stop_reason=stop_reason, model=self.name)


def _next_calls(plan: Plan, conversation: _Conversation) -> list[PlannedCall]:
    """The first calls; after them those that their results lead to; then none."""
    if conversation.rounds == 0:
        return list(plan.first_calls)
    if conversation.rounds >= _MOST_ROUNDS:
        return []
    known = [(one.call.name, dict(one.call.arguments)) for one in conversation.done]
    found: list[PlannedCall] = []
    for step in plan.steps:
        for each in step.each:
            for arguments in each_calls(each, conversation.done)[0]:
                call = PlannedCall(each.tool, arguments)
                if (each.tool, arguments) not in known and call not in found:
                    found.append(call)
    return found


def _read(messages: Sequence[Message]) -> _Conversation:
    """Read a conversation backwards, as far as it matters for the latest message of the user."""
    found = _Conversation()
    unread: list[Message] = []
    position = len(messages)
    carry = True
    while position and len(found.texts) < _EARLIER_MESSAGES:
        position -= 1
        message = messages[position]
        if message.kind == "user" and message.origin == "feedback":
            found.feedback = found.feedback or message.text or "(no text)"
        elif message.kind == "user":
            text = message.text
            found.texts.insert(0, text)
            if carry:
                found.done = _pairs(unread[::-1]) + found.done
                found.rounds = found.rounds or (_rounds(unread) if len(found.texts) == 1 else 0)
            # "and in LICENSE?" while the run works adds to the request; other steering replaces it.
            carry = carry and message.origin == "steering" and _AND.match(text) is not None
            unread = []
        elif carry or not found.texts:
            unread.append(message)
            carry = carry and not (found.texts and message.kind == "assistant" and not message.calls)
    return found


def _rounds(messages: Sequence[Message]) -> int:
    return sum(message.kind == "assistant" and bool(message.calls) for message in messages)


def _pairs(messages: Sequence[Message]) -> list[Done]:
    """Calls with the results that answer them; superseded calls are left out."""
    found: list[Done] = []
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if message.kind == "assistant":
            calls = {call.id: call for call in message.calls}
        elif message.kind == "tool":
            for result in message.results:
                call = calls.get(result.call_id)
                if call is not None and result.outcome != "superseded":
                    found.append(Done(call, result))
    return found


def _stubborn(feedback: str, installed: Sequence[str]) -> str:
    return (
        f"I was told that my answer will not do: “{shorten(feedback)}”. I am not an AI: the same request gives "
        f"the same answer, so asking again cannot help.\n\n{other_models(installed)}"
    )
