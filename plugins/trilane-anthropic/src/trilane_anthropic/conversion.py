"""A conversation of Trilane as `system` and `messages` of a Messages request, valid whatever the conversation is like.

The rules: user and assistant take turns, the user first and last; results of calls come first in the message right
after them; calls come last in theirs; no blank text; a message does not end with thinking; ids are unique; what a tool
of the server was given and what it returned stand together. What cannot be expressed is left out, or told as text, and
named in `left_out`. Parameters beside the conversation are in `parameters.py`, single blocks in `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from trilane.messages import AssistantMessage, Message, ToolMessage, ToolResult

from . import blocks
from .blocks import Block
from .names import CallIds, ToolNames

__all__ = ["NOTHING_SAID", "SERVER_CALL", "SERVER_RESULT", "Conversation", "Role", "Turn", "convert"]

#: Stands for a message of the user where the API insists on one.
NOTHING_SAID = "(no message)"
_CONTINUE = "(continue)"
#: How the types of blocks end that belong to tools of the server, or of an MCP server the provider calls.
SERVER_CALL = ("server_tool_use", "mcp_tool_use")
SERVER_RESULT = "_tool_result"
_THINKING = ("thinking", "redacted_thinking")

Role: TypeAlias = Literal["user", "assistant"]
Turn: TypeAlias = tuple[Role, list[Block]]


class Conversation:
    """The messages of a request.

    Attributes:
        system: Texts that belong into `system`, after the instructions.
        turns: Role and content of each message.
        is_paused: The last message is the model's and is to be continued, because the provider paused it.
        left_out: One short sentence for each kind of thing that could not be expressed, in order of appearance.
    """

    __slots__ = ("is_paused", "left_out", "system", "turns")

    def __init__(self) -> None:
        self.system: list[str] = []
        self.turns: list[Turn] = []
        self.is_paused = False
        self.left_out: list[str] = []

    def report(self, what: str) -> None:
        """Something could not be expressed."""
        if what not in self.left_out:
            self.left_out.append(what)

    def messages(self) -> list[dict[str, Any]]:
        """As the API wants them."""
        return [{"role": role, "content": content} for role, content in self.turns]


def convert(messages: Sequence[Message], names: ToolNames) -> Conversation:
    """The conversation `messages`. Equal ones give equal bytes, and a longer one begins with those of a shorter one."""
    made = Conversation()
    writer = _Writer(made, names)
    for position, message in enumerate(messages):
        writer.add(message, messages, position)
    last = messages[-1] if messages else None
    made.is_paused = isinstance(last, AssistantMessage) and last.stop_reason == "pause" and not last.calls
    turns = _merged(made.turns)
    tidied: list[Turn] = []
    for number, (role, content) in enumerate(turns, start=1):
        is_open = made.is_paused and number == len(turns)
        tidied.append((role, content if role == "user" else _tidy(content, is_open, made)))
    made.turns = _merged(tidied)
    made.is_paused = made.is_paused and bool(made.turns) and made.turns[-1][0] == "assistant"
    _frame(made)
    return made


class _Writer:
    """Takes message after message."""

    def __init__(self, made: Conversation, names: ToolNames) -> None:
        self._made = made
        self._names = names
        self._ids = CallIds()
        self._answered: set[tuple[int, int]] = set()  # results that stand right after their calls, by their place

    def add(self, message: Message, messages: Sequence[Message], position: int) -> None:
        made = self._made
        if message.kind == "system":
            if made.turns:
                # Moved up into `system` it would make all that is cached useless.
                made.report("system messages in the middle of the history, which are told in the user's place")
                made.turns.append(("user", blocks.text(f"[system message] {message.text}")))
            elif message.text.strip():
                made.system.append(message.text)
        elif message.kind == "user":
            made.turns.append(("user", blocks.user(message, made.report)))
        elif message.kind == "assistant":
            self._assistant(message, messages, position)
        else:
            self._orphans(message, position)

    def _assistant(self, message: AssistantMessage, messages: Sequence[Message], position: int) -> None:
        content: list[Block] = []
        calls: list[tuple[str, str]] = []
        for part in message.parts:
            if part.kind == "tool_call":
                call = part.call
                sent = self._ids.sent(call.id, message.id)
                calls.append((call.id, sent))
                name = self._names.sent(call.name)
                content.append({"type": "tool_use", "id": sent, "name": name, "input": blocks.tool_input(call)})
            else:
                content += blocks.said(part, content, self._made.report)
        self._made.turns.append(("assistant", content))
        if calls:
            results = self._results({call_id for call_id, _ in calls}, messages, position)
            answers: list[Block] = []
            for call_id, sent in calls:
                found = results.get(call_id)
                answers.append(blocks.tool_result(sent, found.pop(0) if found else None, self._made.report))
            self._made.turns.append(("user", answers))

    def _results(self, wanted: set[str], messages: Sequence[Message], position: int) -> dict[str, list[ToolResult]]:
        """The results between a message with calls and the next one of the model."""
        found: dict[str, list[ToolResult]] = {}
        for at in range(position + 1, len(messages)):
            message = messages[at]
            if message.kind == "assistant":
                break
            if message.kind == "tool":
                for number, result in enumerate(message.results):
                    if result.call_id in wanted:
                        found.setdefault(result.call_id, []).append(result)
                        self._answered.add((at, number))
        return found

    def _orphans(self, message: ToolMessage, position: int) -> None:
        """Results whose call is not in the conversation, because it was compacted away, for example."""
        content: list[Block] = []
        for number, result in enumerate(message.results):
            if (position, number) in self._answered:
                continue
            self._made.report("results without their call, which are told as text")
            content.append(blocks.note(f"[result of the call {result.call_id}, which is no longer shown]"))
            content += blocks.tool_result("", result, self._made.report)["content"]
        self._made.turns.append(("user", content))


def _tidy(content: list[Block], is_open: bool, made: Conversation) -> list[Block]:
    """The blocks of a message of the model in an order that the API takes. An open one is to be continued."""
    content = content if is_open else _whole(content, made)
    calls = [block for block in content if block["type"] == "tool_use"]
    others = [block for block in content if block["type"] != "tool_use"]
    if not calls:
        while others and others[-1]["type"] in _THINKING:
            made.report("reasoning that led to nothing")
            others.pop()
    return others + calls


def _whole(content: list[Block], made: Conversation) -> list[Block]:
    """Without tools of the server that were called but have no result here, or the other way round."""
    called = {block.get("id") for block in content if block["type"].endswith(SERVER_CALL)}
    returned = {block.get("tool_use_id") for block in content if block["type"].endswith(SERVER_RESULT)}
    if called == returned:
        return content
    made.report("tools of the server that were interrupted")
    odd = called ^ returned
    return [
        block
        for block in content
        if not (block["type"].endswith(SERVER_CALL) and block.get("id") in odd)
        and not (block["type"].endswith(SERVER_RESULT) and block.get("tool_use_id") in odd)
    ]


def _merged(turns: Sequence[Turn]) -> list[Turn]:
    """Without empty messages and with neighbours of one role joined."""
    merged: list[Turn] = []
    for role, content in turns:
        if not content:
            continue
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(content)
        else:
            merged.append((role, list(content)))
    return merged


def _frame(made: Conversation) -> None:
    """The user first and, unless the model is to go on with what it began, last."""
    turns = made.turns
    if not turns or turns[0][0] == "assistant":
        turns.insert(0, ("user", blocks.text(NOTHING_SAID)))
    if turns[-1][0] == "assistant":
        if made.is_paused:
            last = turns[-1][1][-1]
            if last["type"] == "text":
                last["text"] = last["text"].rstrip()
        else:
            turns.append(("user", blocks.text(_CONTINUE)))
