"""Field cases about sessions, stores and memory: F087 to F094, F112, F114, F115."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import pytest

from trilane import Agent, InMemoryStore, Limits, ToolContext, hookimpl, tool
from trilane.config import ModelSettings
from trilane.errors import RunCancelledError, SessionBusyError, SessionConflictError
from trilane.messages import UserMessage
from trilane.result import RunResult
from trilane.stores import SessionRecord
from trilane.testing import FunctionModel, ScriptedModel, Step, assert_history, call, no_leaks
from trilane.testing.leaks import snapshot
from trilane.testing.stores import append_all, said

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "a ship"


async def test_f087_a_second_run_is_refused_at_once_and_the_third_works() -> None:
    inside, gate = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        inside.set()
        await gate.wait()
        return "waited"

    agent = Agent(ScriptedModel(call("wait"), "One.", "Three."), tools=[wait])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(agent.run, "First", session="s"))
        await inside.wait()
        with pytest.raises(SessionBusyError, match="'s'"):
            await agent.run("Second", session="s")
        gate.set()
    result = await agent.run("Third", session="s")
    said_by_user = [message.text for message in result.messages if isinstance(message, UserMessage)]
    assert said_by_user == ["First", "Third"]
    assert_history(result.messages)


async def test_f088_the_second_of_two_writers_of_one_version_is_told() -> None:
    store = InMemoryStore()
    async with store.lease("s", ttl_seconds=30) as lease:
        await store.append("s", (said("mine"),), expected_version=0, lease=lease)
        with pytest.raises(SessionConflictError):
            await store.append("s", (said("theirs"),), expected_version=0, lease=lease)
        await store.append("s", (said("theirs"),), expected_version=1, lease=lease)
    assert (await store.load("s")).records == (said("mine"), said("theirs"))


async def test_f089_order_and_versions_come_from_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000.0] * 300 + [1000.0 - 3600] * 10_000)
    monkeypatch.setattr("time.time", lambda: next(times))
    store = InMemoryStore()
    written = [said(str(number)) for number in range(400)]
    for one in written:
        await append_all(store, "s", one)
    page = await store.load("s")
    assert (page.records, page.version) == (tuple(written), 400)


async def test_f091_a_turn_writes_what_it_added_and_nothing_again() -> None:
    written: list[int] = []

    class Counting:
        def __init__(self) -> None:
            self.inner = InMemoryStore()
            self.lease, self.load = self.inner.lease, self.inner.load

        async def append(self, session: str, records: Sequence[SessionRecord], **options: Any) -> int:
            written.append(sum(len(record.to_json()) for record in records))
            return await self.inner.append(session, records, **options)

    agent = Agent(FunctionModel(lambda request, emit: "An answer of always the same length."), store=Counting())
    sizes = []
    for _ in range(30):
        written.clear()
        await agent.run("A question of the same length.", session="s")
        sizes.append(sum(written))
    assert max(sizes) - min(sizes) < 20


async def test_f092_runs_side_by_side_send_only_what_is_theirs() -> None:
    def offered(number: int) -> Any:
        @tool(name=f"tool_{number}")
        async def numbered(ctx: ToolContext) -> str:
            """Say the number."""
            return f"{number} {ctx.metadata['number']}"

        return numbered

    class Marking:
        name = "marking"

        @hookimpl
        def on_model_request(self, run: Any, request: Any) -> Any:
            return request.with_context(f"context {run.metadata['number']}")

    agent = Agent(ScriptedModel("Own."), instructions="Nobody's.", plugins=[Marking()])
    before = (agent.name, agent.model)
    models = [ScriptedModel(call(f"tool_{number}"), f"Answer {number}.") for number in range(20)]

    async def one(number: int) -> None:
        result = await agent.run(
            f"Request {number}.",
            session=str(number),
            model=models[number],
            instructions=f"Instructions {number}.",
            tools=[offered(number)],
            model_settings=ModelSettings(seed=number),
            metadata={"number": number},
        )
        assert result.output == f"Answer {number}."

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    for number, model in enumerate(models):
        for request in model.requests:
            assert request.instructions == f"Instructions {number}."
            assert [spec.name for spec in request.tools] == [f"tool_{number}"]
            assert request.settings.seed == number
            assert request.context == (f"context {number}",)
            first = request.messages[0]
            assert isinstance(first, UserMessage)
            assert first.text == f"Request {number}."
    assert (await agent.run("Go", metadata={"number": 0})).output == "Own."
    assert (agent.name, agent.model) == before


async def test_f093_lists_given_and_got_are_nobodys_way_in() -> None:
    history = list((await Agent(ScriptedModel(call("look"), "Done."), tools=[look]).run("Go")).messages)
    given = list(history)
    model = ScriptedModel(lambda request: given.clear() or "One.", "Two.", "Three.")  # type: ignore[func-returns-value]
    agent = Agent(model, tools=[look])
    first = await agent.run("First", session="a", history=given)
    given[:] = history
    second = await agent.run("Second", session="b", history=given)
    assert given == history
    assert first.messages[: len(history)] == second.messages[: len(history)] == tuple(history)
    with pytest.raises((AttributeError, TypeError)):
        first.messages[0].id = "changed"  # type: ignore[misc]
    third = await agent.run("Third", session="a")
    assert third.messages[: len(first.messages)] == first.messages


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_f094_threads_with_their_own_loops_lose_nothing_in_a_store_in_memory(anyio_backend: str) -> None:
    store = InMemoryStore()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        async def main() -> None:
            for turn in range(10):
                agent = Agent(ScriptedModel(f"Answer {turn}."), store=store)
                await agent.run(f"Request {turn}.", session=f"s{number}")

        try:
            anyio.run(main, backend="trio" if number % 2 else "asyncio")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)
    assert failures == []
    for number in range(8):
        records = (await store.load(f"s{number}")).records
        assert sum(record.kind == "message" for record in records) == 20


_PREFIX = """
from trilane import Agent, hookimpl, tool
from trilane.testing import ScriptedModel

def offered(name):
    @tool(name=name)
    async def made(first: int, second: str = "x", **more: str) -> str:
        "Made."
    return made

class Plugin:
    def __init__(self, name): self.name = name
    @hookimpl
    def on_tool(self): return [offered(f"{self.name}_{n}") for n in "ab"]

model = ScriptedModel("Done.")
agent = Agent(model, tools=[offered("own")], plugins=[Plugin("one"), Plugin("two")], instructions="Be brief.")
agent.run_sync("Go")
request = model.requests[0]
print(request.instructions, [spec.to_json() for spec in request.tools])
"""


def test_f112_what_is_sent_first_does_not_depend_on_the_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PREFIX],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in range(4)
    }
    assert len(outputs) == 1
    assert b"two_b" in outputs.pop()


async def test_f114_the_first_cause_is_raised_and_later_ones_are_told() -> None:
    gone = ConnectionError("gone")

    class Failing:
        def __init__(self) -> None:
            self.inner = InMemoryStore()
            self.lease, self.load = self.inner.lease, self.inner.load

        async def append(self, session: str, records: Sequence[SessionRecord], **options: Any) -> int:
            if any(record.kind == "run_ended" for record in records):
                raise OSError("disk full")
            return await self.inner.append(session, records, **options)

    class Cleaning:
        name = "cleaning"

        @hookimpl
        def on_error(self) -> None:
            raise KeyError("cleaning")

    async with Agent(ScriptedModel(gone), store=Failing(), plugins=[Cleaning()]).stream("Go") as run:
        with pytest.raises(ConnectionError) as caught:
            await run.wait()
    assert caught.value is gone
    assert run.result.error is gone
    assert "disk full" in str(run.result.store_error)
    assert [failure.hook for failure in run.result.hook_failures] == ["on_error"]


class Big:
    """Something large that can be watched."""

    def __init__(self) -> None:
        self.data = bytearray(1_000_000)


async def _use(ending: str, watched: list[weakref.ref[Any]]) -> None:
    big = Big()

    @tool
    async def hold() -> str:
        """Hold on to something large."""
        return "x" * (len(big.data) // len(big.data))

    second: Any = {"completed": "Done.", "failed": ConnectionError("gone"), "cancelled": Step("Two words.")}[ending]
    agent = Agent(ScriptedModel(call("hold"), second), tools=[hold])
    try:
        async with agent.stream("Go", session="s", limits=Limits(turns=5)) as run:
            watched += [weakref.ref(one) for one in (big, agent, run, hold, agent.store)]
            async for event in run:
                if ending == "cancelled" and event.type == "text_delta":
                    run.stop("enough")
    except (ConnectionError, RunCancelledError):
        pass


def _results() -> int:
    gc.collect()
    return sum(type(one) is RunResult for one in gc.get_objects())


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
async def test_f115_nothing_of_a_run_lives_once_its_caller_let_go(ending: str) -> None:
    watched: list[weakref.ref[Any]] = []
    results = _results()
    async with no_leaks():
        await _use(ending, watched)
        before = {kind: len(things) for kind, things in snapshot().items()}
        for _ in range(10):
            await _use(ending, watched)
        assert {kind: len(things) for kind, things in snapshot().items()} == before
    assert _results() == results
    assert [one() for one in watched if one() is not None] == []
