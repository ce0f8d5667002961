"""Random runs, with plugins that change things at random but the same way each time, replay without a difference.

A sample runs here; `REPLAY_SEEDS=FIRST-LAST` names others.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, Limits, RunStream, Tool, ToolContext, hookimpl
from trilane.decisions import Ask, CompactedHistory, Deny, Replace, RetryModel, Rewrite, SendBack, UseResult
from trilane.errors import AgentProtocolError, ModelError, ToolError
from trilane.messages import ToolResult
from trilane.testing import ScriptedModel, Step, call

pytestmark = pytest.mark.anyio

FIRST, LAST = map(int, os.environ.get("REPLAY_SEEDS", "0-24").split("-"))
TOOLS = ("read", "serial", "fails", "asks", "erase", "yields", "outside", "missing")
NEVER = 1_000_000


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def tools() -> list[Tool]:
    async def read(x: str) -> str:
        return f"read {x}"

    def serial(x: str) -> dict[str, str]:
        return {"x": x}

    async def fails(x: str) -> str:
        raise ToolError("bad") if x in "ab" else ValueError(x)

    async def asks(ctx: ToolContext, x: str) -> str:
        return await ctx.ask("Which?", str)

    def erase(x: str) -> str:
        return f"erased {x}"

    async def yields(x: str) -> AsyncIterator[str]:
        yield "some"
        yield x

    return [
        Tool.from_function(read, effect="read"),
        Tool.from_function(serial, parallel=False),
        Tool.from_function(fails, attempts=2, effect="read"),
        Tool.from_function(asks, effect="idempotent"),
        Tool.from_function(erase, approval=True),
        Tool.from_function(yields, max_result_chars=40),
        Tool.external(name="outside", parameters={"type": "object"}),
    ]


class Whims:
    """The hooks of a plugin. What each does depends on the seed and the turn only."""

    def __init__(self, seed: int, name: str) -> None:
        self.name = name
        self._seed = seed

    def chance(self, *about: object) -> float:
        return Random(f"{self._seed} {self.name} {about}").random()

    def before_run(self, run: Any) -> None:
        pass

    async def before_turn(self, run: Any, turn: int) -> None:
        if self.chance("emits") < 0.5:
            await run.emit("turn", {"number": turn})

    def on_model_request(self, run: Any, request: Any) -> Any:
        return request.with_context(self.name) if self.chance("request", run.turn) < 0.5 else None

    async def around_model(self, run: Any, request: Any, call_next: Any) -> Any:
        chance = self.chance("model", run.turn)
        if chance < 0.2:
            await call_next(request)
        response = await call_next(request if chance < 0.6 else request.with_context("again"))
        return response.replace(extra={"by": self.name}) if chance > 0.8 else response

    def on_delta(self, run: Any, delta: Any, final: bool) -> Any:
        return delta.replace(text=delta.text.replace("e", "3"))

    def on_model_error(self, run: Any, request: Any, error: Exception) -> Any:
        return RetryModel(after_seconds=0.0) if str(error) == "busy" else None

    def after_model(self, run: Any, response: Any) -> Any:
        return response.replace(model="another") if self.chance("response", run.turn) < 0.4 else None

    def decide_tool(self, run: Any, call: Any) -> Any:
        chance = self.chance("decision", run.turn, call.name)
        decisions: list[tuple[float, Any]] = [
            (0.15, Deny(reason="no")),
            (0.3, Rewrite(arguments={**call.arguments, "x": "rewritten"})),
            (0.4, Ask(prompt="Sure?")),
            (0.5, UseResult(result=ToolResult(call_id=call.id, content="used"))),
        ]
        return next((decision for limit, decision in decisions if chance < limit), None)

    def before_tool(self, run: Any, call: Any) -> None:
        pass

    async def around_tool(self, run: Any, call: Any, call_next: Any) -> Any:
        chance = self.chance("around", run.turn, call.name)
        if chance < 0.2:
            return ToolResult(call_id=call.id, content="cached")
        result = await call_next()
        return result.replace(content="wrapped") if chance < 0.5 else result

    def after_tool(self, run: Any, call: Any, result: Any) -> Any:
        return result.replace(content="after") if self.chance("result", run.turn, call.name) < 0.4 else None

    def after_turn(self, run: Any, turn: int, message: Any) -> None:
        if self.chance("observer") < 0.2:
            raise RuntimeError("an observer fails")

    def on_answer(self, run: Any, message: Any, output: Any) -> Any:
        chance = self.chance("answer", run.turn)
        if chance < 0.3:
            return SendBack(feedback="more")
        return Replace(output="replaced") if chance < 0.5 and output != "replaced" else None

    def on_event(self, run: Any, notification: Any) -> None:
        pass

    def on_compact(self, run: Any) -> Any:
        if self.chance("compact", run.turn) < 0.3 and len(run.history) > 3:
            return CompactedHistory(messages=tuple(one for one in run.history if one.kind == "user"), reason="shorter")
        return None

    def close_run(self, run: Any, status: str) -> None:
        pass


def plugins(seed: int) -> list[Any]:
    """Up to three plugins, each with some of the hooks."""
    made = []
    for name in ("first", "second", "third")[: Random(f"{seed} plugins").randint(0, 3)]:
        hooks = {hook for hook in vars(Whims) if not hook.startswith("_") and hook != "chance"}
        chosen = {hook for hook in sorted(hooks) if Random(f"{seed} {name} {hook}").random() < 0.45}
        body = {hook: hookimpl(getattr(Whims, hook)) if hook in chosen else None for hook in hooks}
        made.append(type(name, (Whims,), body)(seed, name))
    return made


def script(random: Random) -> list[Any]:
    steps: list[Any] = []
    for number in range(random.randint(1, 5)):
        chance = random.random()
        if chance < 0.55:
            calls = [
                call(
                    random.choice(TOOLS),
                    call_id=random.choice([f"c{number}{place}", "", f"same{place}"]),
                    x="abcd"[place],
                )
                for place in range(random.randint(1, 3))
            ]
            steps.append(Step(random.choice(["", "Let me see."]), calls=calls, returns=random.random() < 0.7))
        elif chance < 0.65:
            steps.append(Step("half", error=ModelError(random.choice(["busy", "dead"]), model="scripted")))
        else:
            steps.append("" if chance < 0.72 else Step("The answer is here.", returns=random.random() < 0.6))
    return [*steps, *["The end."] * 6]


async def reply_to(question: Any) -> Any:
    approve = Random(f"{question.call.name} {question.prompt}").random() < 0.7
    return {"approval": {"approve": approve}, "external_tool": "out", "question": "this"}[question.kind]


async def watch(run: RunStream[Any], random: Random, *, answered: bool, steered: bool) -> None:
    """Read a run to its end; perhaps steer it, stop it, or put it aside."""
    stop = random.randint(1, 60) if random.random() < 0.3 else NEVER
    steer = random.randint(1, 40) if random.random() < 0.4 and steered else NEVER
    count = 0
    async for event in run:
        count += 1
        if event.type == "reply_requested" and not answered:
            if random.random() < 0.8:
                run.reply(event.question.id, await reply_to(event.question))
            else:
                run.stop("nobody wants to say")
        if count == steer:
            with suppress(AgentProtocolError):
                (run.steer if random.random() < 0.6 else run.follow_up)("more")
        if count == stop and random.random() < 0.5:
            run.stop("enough")
        elif count == stop:
            await run.suspend()


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
async def test_a_random_session_replays_as_it_was(seed: int) -> None:
    random = Random(seed)
    store, limits = InMemoryStore(), Limits(turns=random.randint(2, 12))
    is_recorded, is_answered, is_watched = random.random() < 0.8, random.random() < 0.7, random.random() < 0.7
    agent = Agent(
        ScriptedModel(*script(random)),
        tools=tools(),
        plugins=plugins(seed),
        store=store,
        limits=limits,
        replayable=is_recorded,
        answer=reply_to if is_answered else None,
        grace_seconds=0.5,
    )
    with anyio.fail_after(60):
        for _ in range(random.randint(1, 2)):
            with suppress(Exception):  # how it ends is stored
                if not is_watched:
                    await agent.run("Go", session="s")
                    continue
                async with agent.stream("Go", session="s") as run:
                    # Without a recording nobody knows when a run that had calls open was steered.
                    await watch(run, random, answered=is_answered, steered=is_recorded)
        today = Agent(ScriptedModel(), tools=tools(), plugins=plugins(seed), store=store, limits=limits)
        found = await today.replay("s")
    assert found.difference is None, f"REPLAY_SEEDS={seed}-{seed}"
