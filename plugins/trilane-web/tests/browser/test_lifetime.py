"""Runs outlive what happens to their page: reloads, cuts, a second tab, a killed server. Checked by sequence."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from trilane import Agent, ToolContext, tool
from trilane.testing import FunctionModel, ScriptedModel, call
from trilane_web import WebSettings

WORDS = [f"word{number} " for number in range(60)]


def _whole(numbers: list[int]) -> bool:
    """Nothing lost, nothing doubled."""
    return numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("policy", ["strict", "windowed", "detached"])
def test_reloads_in_the_middle_lose_and_double_nothing(
    served: Any, new_page: Any, expect: Any, ask: Any, steps: Any, policy: Any
) -> None:
    model = steps(WORDS)
    url = served.start(Agent(FunctionModel(model.speak)), settings=WebSettings(acknowledgement=policy))
    page = new_page(url)
    answer = page.locator(".message.assistant .markdown")
    ask(page, "go")
    model.allow(20)
    expect(answer).to_have_text("".join(WORDS[:20]).strip())
    assert _whole(page.wire.numbers())
    run = page.wire.events("run_started")[0]["run_id"]
    for shown in (40, 60):
        page.wire.down.clear()
        page.reload()  # the page has forgotten everything: it is told everything, once and in order
        expect(answer).to_have_text("".join(WORDS[: shown - 20]).strip())
        model.allow(20)
        expect(answer).to_have_text("".join(WORDS[:shown]).strip())
        assert _whole(page.wire.numbers(run))
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    numbers = page.wire.numbers(run)
    assert _whole(numbers)
    assert page.wire.events(run=run)[-1]["type"] == "run_completed"
    assert page.evaluate("Number(document.body.dataset.seq)") == numbers[-1]
    texts = [event["text"] for event in page.wire.events("text_delta", run=run)]
    assert "".join(texts) == "".join(WORDS)
    expect(page.locator(".message")).to_have_count(2)
    assert model.said == len(WORDS)


def test_a_cut_connection_goes_on_after_the_last_event(
    served: Any, new_page: Any, expect: Any, ask: Any, steps: Any
) -> None:
    """The page stays, so it is told only what it does not have: all its connections together say each event once."""
    model = steps(WORDS)
    page = new_page(served.start(Agent(FunctionModel(model.speak)), settings=WebSettings(acknowledgement="strict")))
    answer = page.locator(".message.assistant .markdown")
    ask(page, "go")
    for shown in (20, 40, 60):
        model.allow(20)
        expect(answer).to_have_text("".join(WORDS[:shown]).strip())
        if shown < 60:
            with page.expect_websocket():
                served.cut()
            expect(page.locator("#connection")).to_have_text("connected")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert _whole(page.wire.numbers())
    assert page.wire.events()[-1]["type"] == "run_completed"
    assert "".join(event["text"] for event in page.wire.events("text_delta")) == "".join(WORDS)


def test_two_tabs_are_told_the_same(served: Any, new_page: Any, expect: Any, ask: Any, steps: Any) -> None:
    """One drives, the other watches from the middle on, and takes over when the first one is closed."""
    model = steps(WORDS)
    url = served.start(
        Agent(FunctionModel(model.speak)), settings=WebSettings(acknowledgement="strict", reconnect_seconds=0.2)
    )
    first = new_page(url)
    ask(first, "go")
    model.allow(20)
    expect(first.locator(".message.assistant .markdown")).to_have_text("".join(WORDS[:20]).strip())
    second = new_page(first.url, context=first.context)
    model.allow(20)
    for tab in (first, second):
        expect(tab.locator(".message.assistant .markdown")).to_have_text("".join(WORDS[:40]).strip())
    seen = first.wire.events()
    assert _whole([event["seq"] for event in seen])
    assert second.wire.events()[: len(seen)] == seen
    first.close()
    model.allow(20)
    expect(second.get_by_role("button", name="Send")).to_be_visible()
    expect(second.locator(".message.assistant .markdown")).to_have_text("".join(WORDS).strip())
    assert _whole(second.wire.numbers())
    assert second.wire.events()[-1]["type"] == "run_completed"


def test_a_reload_in_the_middle_of_a_question(
    served: Any, new_page: Any, expect: Any, ask: Any, tmp_path: Path
) -> None:
    @tool(approval=True)
    def act(number: int) -> str:
        """Act."""
        with (tmp_path / "acted").open("a") as file:
            file.write(f"{number}\n")
        return "done"

    page = new_page(served.start(Agent(ScriptedModel(call("act", number=1), "Fine."), tools=[act])))
    ask(page, "go")
    expect(page.locator(".question")).to_be_visible()
    page.wire.down.clear()
    page.reload()
    card = page.locator(".question")
    card.get_by_label("number").fill("5")
    card.get_by_role("button", name="Approve").click()
    expect(page.locator(".message.assistant").last).to_contain_text("Fine.")
    expect(page.locator(".question")).to_have_count(1)
    assert (tmp_path / "acted").read_text() == "5\n"
    assert _whole(page.wire.numbers())


def test_stop_in_the_midst_of_a_tool_and_the_disk_stays_as_it_is(
    served: Any, new_page: Any, expect: Any, ask: Any, tmp_path: Path
) -> None:
    """After the event that says so, nothing of the run has any effect, whatever it is still let do."""
    book, allowed = tmp_path / "book", threading.Semaphore(0)

    @tool
    async def write(ctx: ToolContext[Any]) -> str:
        """Write line after line."""
        import asyncio

        number = 0
        while True:
            while not allowed.acquire(blocking=False):  # noqa: ASYNC110  (it is released by another thread)
                await asyncio.sleep(0)
            number += 1
            with book.open("a") as file:
                file.write(f"{number}\n")
            await ctx.progress(f"line {number}")

    script = ([call("write"), call("write")], "never said", "Still here.")
    page = new_page(served.start(Agent(ScriptedModel(*script), tools=[write])))
    ask(page, "go")
    for _ in range(6):
        allowed.release()
    expect(page.locator("details.tool .tool-state").first).to_contain_text("line")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".note.stopped")).to_contain_text("Stopped")
    (stopped,) = page.wire.events("run_cancelled")
    written = book.read_text()
    for _ in range(50):
        allowed.release()
    for card in page.locator("details.tool").all():
        expect(card).to_have_attribute("data-state", "interrupted")
    assert page.wire.events()[-1] == stopped, "it is the last event"
    assert served.web.runs.agent.active(stopped["session_id"]) is None
    # Another run on the same server comes to its end: whatever was left of the first has had its turn.
    page.get_by_role("button", name="New session").click()
    ask(page, "and you?")
    expect(page.locator(".message.assistant").last).to_contain_text("never said")
    assert book.read_text() == written
    assert written.count("\n") <= 6


PROGRAM = """
from pathlib import Path
from trilane import Agent, tool
from trilane.testing import ScriptedModel, call
from trilane_sqlite import SqliteStore

@tool(approval=True, effect="idempotent")
def act(number: int) -> str:
    "Act."
    with Path("acted").open("a") as file:
        file.write(f"{number}\\n")
    return f"acted {number}"

agent = Agent(ScriptedModel(SCRIPT), tools=[act], name="helper", store=SqliteStore("sessions.sqlite3"))
"""


def test_the_server_is_killed_in_the_midst_of_a_question(
    process: Any, new_page: Any, expect: Any, ask: Any, tmp_path: Path
) -> None:
    """A real process, kill -9, a store on disk: the question is asked again, and its call is made once."""
    pytest.importorskip("trilane_sqlite", reason="not installed: trilane-sqlite")
    first = PROGRAM.replace("SCRIPT", '"Hello.", call("act", number=7)')
    page = new_page(process.start(first))
    ask(page, "hello")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    ask(page, "go")
    card = page.locator(".question")
    expect(card).to_be_visible()
    asked = page.wire.events("reply_requested")[0]
    process.kill()
    expect(page.locator("#connection")).to_have_attribute("data-state", "offline")
    process.start(PROGRAM.replace("SCRIPT", '"Finished."'))
    page.get_by_role("button", name="Continue").click()
    expect(card).to_be_visible()
    again = page.wire.events("reply_requested")[-1]
    assert again["question"]["id"] == asked["question"]["id"]
    assert again["run_id"] != asked["run_id"]
    assert not (tmp_path / "acted").exists()
    card.get_by_label("number").fill("8")
    card.get_by_role("button", name="Approve").click()
    expect(card.get_by_role("status")).to_have_text("Accepted.")
    expect(page.locator(".message.assistant").last).to_contain_text("Finished.")
    assert (tmp_path / "acted").read_text() == "8\n"
    assert _whole(page.wire.numbers(again["run_id"]))
    expect(page.locator(".message.user")).to_have_text(["hello", "go"])
    page.reload()
    expect(page.locator(".message.user")).to_have_count(2)
    expect(page.locator(".message.assistant").last).to_contain_text("Finished.")
    expect(page.locator("details.tool")).to_have_count(1)
