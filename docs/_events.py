"""One event of every kind as JSON, from runs that are made to bring them all. For `_generate.py`."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any, get_args

import trilane
from trilane import Agent, CompactedHistory, Deny, RunContext, ToolContext, hookimpl, tool
from trilane.testing import ScriptedModel, Step, call

__all__ = ["event_examples"]

_ID = re.compile(r"\b[0-9a-f]{24,32}\b")
_TIME = re.compile(r'"(time|at|expires|created)": ?"?[0-9T:.Z+-]+"?')


@tool(approval=True)
async def pay(ctx: ToolContext[None], amount: int) -> str:
    """Pay."""
    await ctx.progress("asking the bank", fraction=0.5)
    return f"paid {amount}"


class _Plugin:
    """Shows an event of its own, compacts, and fails where that is contained."""

    name = "bank"

    @hookimpl
    async def before_turn(self, run: RunContext[Any], turn: int) -> None:
        if turn == 2:
            await run.emit("balance", {"eur": 40})

    @hookimpl
    async def on_compact(self, run: RunContext[Any]) -> CompactedHistory | None:
        if len(run.history) < 3:
            return None
        await run.progress("summing up")
        return CompactedHistory(messages=tuple(run.history), reason="nothing could be left out")

    @hookimpl
    def after_turn(self, run: RunContext[Any], turn: int) -> None:
        if turn == 1:
            raise OSError("the log is full")


class _Never:
    name = "never"

    @hookimpl
    def decide_tool(self, call: trilane.ToolCall) -> Deny:
        return Deny(reason="not today")


async def _events(agent: Agent[Any, Any], *, stop: bool = False) -> list[trilane.Event]:
    found: list[trilane.Event] = []
    stream = agent.stream("Pay 5.", session="s")
    try:
        async with stream as run:
            async for event in run:
                found.append(event)
                if event.type == "reply_requested":
                    run.reply(event.question.id, {"approve": True})
                elif stop and event.type == "turn_started":
                    run.stop("enough")
    except Exception:  # those of a failed and of a stopped run; their events were seen before
        pass
    return found


async def _all() -> list[trilane.Event]:
    first = Step("I pay.", reasoning="It is little.", calls=(call("pay", amount=5),))
    child = Agent(ScriptedModel("Five euros."), name="adviser")
    return [
        *await _events(Agent(ScriptedModel(first, "Paid."), tools=[pay], plugins=[_Plugin()])),
        *await _events(Agent(ScriptedModel(ConnectionError("gone")))),
        *await _events(Agent(ScriptedModel("Never said.")), stop=True),
        *await _events(
            Agent(
                ScriptedModel(call("ask", request="How much?"), "Five."),
                tools=[child.as_tool(name="ask", description="Ask.")],
            )
        ),
    ]


def _readable(event: trilane.Event) -> str:
    """The JSON of an event with ids and times that are the same whenever it is made."""
    numbers: dict[str, int] = {}
    text = json.dumps(json.loads(event.to_json()), indent=2, ensure_ascii=False)
    text = _TIME.sub(lambda found: f'"{found[1]}": "2026-12-01T09:00:00Z"', text)
    text = _ID.sub(lambda found: f"id-{numbers.setdefault(found[0], len(numbers) + 1)}", text)
    text = re.sub(r"\bcall_\d+\b", "call-1", text)  # the test kit counts them over the whole process
    return re.sub(r'"(seconds|started|ended|\w+_seconds)": [0-9.e-]+', r'"\1": 0.1', text)


def event_examples() -> str:
    """Every kind of event, in the order of the union: its name and its JSON."""
    logging.getLogger("trilane").setLevel(logging.CRITICAL)
    found: dict[type, trilane.Event] = {}
    for event in asyncio.run(_all()):
        found.setdefault(type(event), event)
    missing = [kind.__name__ for kind in get_args(trilane.Event) if kind not in found]
    if missing:
        raise LookupError(f"no run brings {', '.join(missing)}; add one that does")
    parts = (
        f'??? example "`{kind.__name__}`"\n\n    ```json\n' + _indented(_readable(found[kind])) + "    ```\n"
        for kind in get_args(trilane.Event)
    )
    return "\n".join(parts)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
