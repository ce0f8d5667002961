"""Which messages stay as they are, and which a summary stands for. Pure functions.

What belongs together is never parted: calls and their results, an answer that the provider paused and its continuation.
A message stays whole with all its parts, so that signed reasoning stays what the provider signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .counting import tokens_of_all
from .marks import is_pinned, is_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trilane import Message

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a history.

    Attributes:
        kept: What stays before the summary: the first request, and what is pinned.
        replaced: What the summary stands for, an earlier summary included.
        tail: What stays after it: the current request with what was said about it, and the last turns. So the last
            that a model is asked is never the summary.
    """

    kept: tuple[Message, ...]
    replaced: tuple[Message, ...]
    tail: tuple[Message, ...]

    @property
    def has_work(self) -> bool:
        """False if there is nothing to summarise, or only what is a summary already."""
        return any(not is_summary(message) for message in self.replaced)


def make_plan(
    messages: Sequence[Message], *, keep_tokens: float, keep: Callable[[Message], bool] | None = None
) -> Plan:
    """Divide a history.

    Args:
        messages: The history.
        keep_tokens: So much of its end stays, in estimated tokens; never less than the last turn with
            what was asked right before and what came after.
        keep: Says which further messages are pinned.
    """
    blocks = _blocks(messages)
    start = _tail_start(blocks, keep_tokens)
    head = blocks[:start]
    first, current = _requests(head, [block[0] for block in blocks[start:]])
    kept: list[Message] = []
    replaced: list[Message] = []
    tail: list[Message] = []
    for place, block in enumerate(head):
        if place in current:
            tail += block
        elif place == first or any(is_pinned(one) or (keep is not None and keep(one)) for one in block):
            kept += block
        else:
            replaced += block
    tail += [message for block in blocks[start:] for message in block]
    return Plan(kept=tuple(kept), replaced=tuple(replaced), tail=tuple(tail))


def _requests(head: Sequence[Sequence[Message]], tail: Sequence[Message]) -> tuple[int, set[int]]:
    """Where the first request is; and the current one with what was said about it, if that is not in the tail."""
    said = [place for place, block in enumerate(head) if block[0].kind == "user" and not is_summary(block[0])]
    requests = [place for place in said if _is_request(head[place][0])]
    first = requests[0] if requests else -1
    if not requests or any(_is_request(message) for message in tail):
        return first, set()
    return first, {place for place in said if place >= requests[-1]}


def _is_request(message: Message) -> bool:
    return message.kind == "user" and message.origin in ("request", "follow_up") and not is_summary(message)


def _blocks(messages: Sequence[Message]) -> list[list[Message]]:
    """What is kept or replaced as one."""
    blocks: list[list[Message]] = []
    before: Message | None = None
    for message in messages:
        paused = before is not None and before.kind == "assistant" and before.stop_reason == "pause"
        if blocks and (message.kind == "tool" or (paused and message.kind == "assistant")):
            blocks[-1].append(message)
        else:
            blocks.append([message])
        before = message
    return blocks


def _tail_start(blocks: Sequence[Sequence[Message]], keep_tokens: float) -> int:
    """The first block of the tail."""
    start = len(blocks)
    while start and not any(message.kind == "assistant" for message in blocks[start - 1]):
        start -= 1  # nobody has answered this yet
    start = max(0, start - 1)  # what the model has just said and been told
    while start and blocks[start - 1][0].kind == "user" and not is_summary(blocks[start - 1][0]):
        start -= 1  # and what it was asked right before
    left = keep_tokens - tokens_of_all(message for block in blocks[start:] for message in block)
    while start:
        left -= tokens_of_all(blocks[start - 1])
        if left < 0:
            break
        start -= 1
    return start
