"""Shared pieces of the comparison: what the scripted model says, what the tool does. Nothing of any peer.

A peer's fake model asks the *current* script (a context variable) what to reply. Every peer we know carries the
caller's context into the tasks it makes, so one agent object can serve many sessions, each with its own script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = [
    "CALL",
    "CURRENT",
    "DELTA",
    "OTHER",
    "TOOL",
    "Reply",
    "Script",
    "Tools",
    "fanout_script",
    "loop_script",
    "make_step",
    "next_reply",
    "text_script",
]

# What a peer's `kind(event)` may return. CALL announces a tool call before its result; only W7 reads it.
OTHER, DELTA, TOOL, CALL = 0, 1, 2, 3


@dataclass
class Reply:
    """One model response: text deltas, or tool calls (id, arguments), never both.

    With `pace` the model gives the loop one turn before each delta.
    """

    deltas: Iterable[str] = ()
    calls: tuple[tuple[str, Mapping[str, int]], ...] = ()
    pace: bool = False


class Script:
    """What the fake model says, turn by turn; `turn` is how often it was asked."""

    __slots__ = ("fn", "produced", "turn")

    def __init__(self, fn: Callable[[int], Reply]) -> None:
        self.fn = fn
        self.turn = 0
        self.produced = 0

    def next(self) -> Reply:
        """The reply to the next model call."""
        reply = self.fn(self.turn)
        self.turn += 1
        return reply


CURRENT: ContextVar[Script] = ContextVar("bench_script")


def next_reply() -> Reply:
    """What the model of the current session replies now."""
    return CURRENT.get().next()


@dataclass
class Tools:
    """The work a tool does, and how much of it was done; `sleep` in seconds."""

    sleep: float | None = None
    started: int = 0
    done: int = 0
    inflight: int = 0
    max_inflight: int = 0

    async def call(self, n: int) -> str:
        """One invocation."""
        self.started += 1
        self.inflight += 1
        if self.inflight > self.max_inflight:
            self.max_inflight = self.inflight
        if self.sleep is not None:
            await asyncio.sleep(self.sleep)
        self.inflight -= 1
        self.done += 1
        return "ok"


def make_step(tools: Tools) -> Callable[[int], Awaitable[str]]:
    """The function that each peer wraps as its tool `step`."""

    async def step(n: int) -> str:
        """Do one step.

        Args:
            n: Which step.
        """
        return await tools.call(n)

    return step


def text_script(n: int) -> Script:
    """One response of `n` deltas."""
    return Script(lambda turn: Reply(deltas=["abcd "] * n))


def loop_script(turns: int, final_deltas: int = 1, pace: bool = False) -> Script:
    """`turns` turns of one call each, then an answer."""

    def reply(turn: int) -> Reply:
        if turn < turns:
            return Reply(calls=((f"call_{turn}", {"n": turn}),))
        return Reply(deltas=["abcd "] * final_deltas, pace=pace)

    return Script(reply)


def fanout_script(n: int) -> Script:
    """One turn of `n` calls, then an answer."""

    def reply(turn: int) -> Reply:
        if turn == 0:
            return Reply(calls=tuple((f"call_{i}", {"n": i}) for i in range(n)))
        return Reply(deltas=["abcd "])

    return Script(reply)
