"""What axe-core finds on the chat page: nothing, light and dark, wide and narrow, in every state a person gets to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from trilane import Agent, Delta, ReasoningPart, TextPart, ToolContext, tool
from trilane.testing import ScriptedModel, Step, call

SCREENS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 700}, "has_touch": True},
}
TEXT = """## What I found

Two files, see [the notes](https://example.org/notes):

- **two** of them
- `notes.md` among them

> as was said

```python
print("a line that is much longer than a narrow screen is wide, so that it has to be scrolled", 1, 2, 3)
```

| file | words |
| --- | --- |
| notes.md | 12 |
"""


class Trip(BaseModel):
    city: str
    nights: int = Field(ge=1, le=14, description="From 1 to 14")
    window_seat: bool = False
    extras: list[str] = []


@tool(approval=True)
def send_mail(to: str, urgent: bool, copies: int, files: list[str]) -> str:
    """Send."""
    return "sent"


@tool
async def plan(ctx: ToolContext[Any]) -> str:
    """Plan."""
    await ctx.progress("looking", fraction=0.4)
    return (await ctx.ask("Where to?", Trip)).city


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing(served: Any, new_page: Any, expect: Any, ask: Any, check: Any, screen: str) -> None:
    thought = "The user wants to know which files there are."
    script = (
        Step(
            parts=[ReasoningPart(text=thought), TextPart(text=TEXT)],
            deltas=[Delta(kind="reasoning", text=thought), Delta(text=TEXT, index=1)],
        ),
        call("send_mail", to="bob@example.org", urgent=False, copies=1, files=["a.txt"]),
        call("plan"),
        "Done.",
    )
    url = served.start(Agent(ScriptedModel(*script), tools=[send_mail, plan]))
    page = new_page(url, **SCREENS[screen])
    expect(page.locator("#connection")).to_have_text("connected")
    check(page, "an empty session")
    ask(page, "Which files are there?")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.locator("details.reasoning summary").click()
    check(page, "an answer")
    ask(page, "Write to Bob and plan a trip")
    expect(page.locator(".question")).to_have_count(1)
    page.locator("details.tool summary").first.click()
    check(page, "an approval")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".question")).to_have_count(2)
    page.locator("details.tool summary").last.click()
    check(page, "a question, and a tool that works")
    page.get_by_role("button", name="Lanes").click()
    check(page, "the lanes")
    page.get_by_role("button", name="Lanes").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".note.stopped")).to_be_visible()
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    check(page, "a run that was stopped")
    if screen == "phone":
        page.get_by_role("button", name="Sessions").click()
        expect(page.get_by_role("button", name="New session")).to_be_visible()
        check(page, "the list of sessions over the page")


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_where_a_token_is_asked_for(served: Any, new_page: Any, check: Any, screen: str) -> None:
    page = new_page(served.start(Agent(ScriptedModel("hello")), token="secret"), **SCREENS[screen])
    page.get_by_label("Token of this server").wait_for()
    check(page, "the token")
    new_page.troubles.clear()
