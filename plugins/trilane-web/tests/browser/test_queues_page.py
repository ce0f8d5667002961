"""The page of `examples/chat_and_event_agent`: the conversation, and the three queues as they fill and empty."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[4] / "examples"
SCREENS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 700}, "has_touch": True},
}


@pytest.fixture
def example() -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        import chat_and_event_agent.application
        import chat_and_event_agent.desk

        yield chat_and_event_agent
    finally:
        sys.path.remove(str(EXAMPLES))


def _counts(page: Any, queue: str) -> Any:
    return page.locator(f".queue[data-queue={queue}] .counts")


def test_the_queues_are_drawn_live(served: Any, new_page: Any, expect: Any, ask: Any, example: Any) -> None:
    allowed = threading.Semaphore(0)

    async def pause() -> None:
        while not allowed.acquire(blocking=False):  # noqa: ASYNC110  (it is released by another thread)
            await asyncio.sleep(0)

    url = served.serve(example.application.make_site(example.desk.DeskModel(), pause=pause))
    page = new_page(f"{url}queues/")
    expect(page.locator("#connection")).to_have_text("connected")
    ask(page, "Which trains go to Bregenz?")
    calls = page.locator(".queue[data-queue=events] .item")
    expect(calls).to_have_count(2)
    expect(calls.nth(1)).to_have_class("item waits")  # the event agent takes one after the other
    expect(_counts(page, "events")).to_have_text("2 put, 1 taken, 1 waiting")
    expect(page.locator("details.tool").first).to_have_attribute("data-state", "running")
    for _ in range(100):
        allowed.release()
    expect(page.locator(".message.assistant").last).to_contain_text("R14 leaves Ulm for Bregenz at 11:14")
    expect(calls.nth(1)).to_have_class("item")
    expect(_counts(page, "events")).to_have_text("2 put, 2 taken, empty")
    expect(_counts(page, "input")).to_have_text("3 put, 3 taken, empty")
    expect(_counts(page, "output")).to_contain_text("empty")
    expect(page.locator(".question")).to_have_count(0)  # nobody is asked to run a tool
    ask(page, "Please book two seats in R14")
    card = page.locator(".question")
    card.get_by_label("seats").fill("3")
    card.get_by_role("button", name="Approve").click()
    expect(calls.nth(2)).to_contain_text("book_seat(train=R14, seats=3)")
    expect(page.locator(".message.assistant").last).to_contain_text("3 seats booked in R14")
    steps = page.locator("#steps li")  # drawn from a connection of their own
    expect(steps.filter(has_text="put on input: result 3 seats booked in R14")).to_have_count(1)
    order = steps.all_inner_texts()
    out = order.index("put on events: call book_seat(train=R14, seats=3)")
    back = order.index("put on input: result 3 seats booked in R14")
    assert out < back, "the call goes out before its result comes in"
    for run in {event["run_id"] for event in page.wire.events()}:
        numbers = page.wire.numbers(run)
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_on_the_page_of_the_queues(
    served: Any, new_page: Any, expect: Any, ask: Any, example: Any, check: Any, screen: str
) -> None:
    url = served.serve(example.application.make_site(example.desk.DeskModel()))
    page = new_page(f"{url}queues/", reduced_motion="reduce", **SCREENS[screen])
    expect(page.locator("#connection")).to_have_text("connected")
    check(page, "before a run")
    ask(page, "Please book two seats in R14")
    page.locator(".question").wait_for()
    check(page, "an approval")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".message.assistant").last).to_contain_text("Anything else?")
    check(page, "the end")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
