"""The chat page in a real browser: asking, streaming, approving, denying, stopping, steering, reloading, two tabs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trilane import (
    Agent,
    Delta,
    ExtensionEvent,
    InMemoryStore,
    ModelResponse,
    ReasoningPart,
    RunContext,
    TextPart,
    ToolContext,
    hookimpl,
    tool,
)
from trilane.testing import FunctionModel, ScriptedModel, Step, call

TEXT = """Here is what I found:

- **two** files
- `notes.md` among them

```python
print("hello")
```

| file | words |
| --- | --- |
| notes.md | 12 |
"""


def _deltas(text: str) -> list[Delta]:
    return [Delta(text=text[start : start + 5], index=1) for start in range(0, len(text), 5)]


def test_ask_watch_and_read(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    thought = "The user wants to know which files there are."
    step = Step(
        parts=[ReasoningPart(text=thought), TextPart(text=TEXT)],
        deltas=[Delta(kind="reasoning", text=thought), *_deltas(TEXT)],
    )

    @tool(effect="read")
    async def list_files(ctx: ToolContext[Any], folder: str) -> str:
        """List files."""
        await ctx.progress("looking", fraction=0.5)
        return "notes.md\nplan.md"

    url = served.start(Agent(ScriptedModel(call("list_files", folder="docs"), step), tools=[list_files], name="Files"))
    page = new_page(url)
    expect(page.locator("#connection")).to_have_text("connected")
    expect(page).to_have_title("Files")
    ask(page, "Which files are there?")
    expect(page.locator(".message.user")).to_have_text("Which files are there?")
    expect(page.locator(".message.assistant strong")).to_have_text("two")
    expect(page.locator(".message.assistant td").first).to_have_text("notes.md")
    expect(page.locator("#announce")).to_contain_text("Answer: Here is what I found:")
    expect(page.locator("#announce")).not_to_contain_text("**")
    card = page.locator("details.tool")
    expect(card).to_have_attribute("data-state", "ok")
    card.locator("summary").click()
    expect(card.locator(".tool-result pre")).to_have_text("notes.md\nplan.md")
    expect(card.locator(".tool-body > pre").first).to_contain_text('"folder": "docs"')
    reasoning = page.locator("details.reasoning")
    expect(reasoning).not_to_have_attribute("open", "")
    expect(reasoning.locator("summary")).to_have_text("Reasoning (9 words)")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator("#session-list button")).to_have_text("Which files are there?")
    page.get_by_role("button", name="Lanes").click()
    expect(page.locator(".phases .current")).to_have_text("completed")
    expect(page.get_by_label("Notifications")).to_contain_text("PhaseTransitionEvent")
    expect(page.locator(".ledger")).to_contain_text("trilane-web-lanes")


def test_streaming_is_seen_as_it_comes_and_survives_a_reload(
    served: Any, new_page: Any, expect: Any, ask: Any, steps: Any
) -> None:
    words = [f"word{number} " for number in range(40)]
    model = steps(words)
    url = served.start(Agent(FunctionModel(model.speak)))
    page = new_page(url)
    ask(page, "go")
    model.allow(10)
    answer = page.locator(".message.assistant .markdown")
    expect(answer).to_have_text("".join(words[:10]).strip())
    expect(page.get_by_role("button", name="Steer")).to_be_visible()
    page.reload()
    expect(answer).to_have_text("".join(words[:10]).strip())
    model.allow(15)
    expect(answer).to_have_text("".join(words[:25]).strip())
    page.reload()
    model.allow(15)
    expect(answer).to_have_text("".join(words).strip())
    expect(page.locator(".message.user")).to_have_count(1)
    expect(page.locator(".message.assistant")).to_have_count(1)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert model.said == 40
    page.reload()
    expect(answer).to_have_text("".join(words).strip())
    expect(page.locator(".message.assistant")).to_have_count(1)


def test_approve_with_edited_arguments_and_deny(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    sent: list[Any] = []

    @tool(approval=True)
    def send_mail(to: str, urgent: bool, copies: int, files: list[str], more: dict[str, int]) -> str:
        """Send."""
        sent.append((to, urgent, copies, files, more))
        return "sent"

    script = (
        call("send_mail", to="bob@example.org", urgent=False, copies=1, files=["a.txt", "b.txt"], more={"size": 1}),
        call("send_mail", to="eve@example.org", urgent=True, copies=9, files=["a.txt"], more={}),
        "All done.",
    )
    page = new_page(served.start(Agent(ScriptedModel(*script), tools=[send_mail])))
    ask(page, "mail them")
    first = page.locator(".question").nth(0)
    expect(first.get_by_role("heading")).to_contain_text("Approval needed")
    assert sent == []
    first.get_by_label("to", exact=True).fill("ann@example.org")
    first.get_by_label("urgent").check()
    first.get_by_label("copies").fill("3")
    expect(first.get_by_label("files, one in a line")).to_have_value("a.txt\nb.txt")
    first.get_by_label("files, one in a line").fill("a.txt\nnew.txt\n")
    first.get_by_label("more (JSON)").fill("no JSON")
    first.get_by_role("button", name="Approve").click()
    expect(first.get_by_role("status")).to_have_text("more: this is no JSON")
    assert sent == []
    first.get_by_label("more (JSON)").fill('{"size": 2}')
    first.get_by_role("button", name="Approve").click()
    expect(first.get_by_role("status")).to_have_text("Accepted.")
    second = page.locator(".question").nth(1)
    second.get_by_label("Reason, if you deny (optional)").fill("not to eve")
    second.get_by_role("button", name="Deny").click()
    expect(page.locator("details.tool").nth(1)).to_have_attribute("data-state", "denied")
    expect(page.locator(".message.assistant").last).to_contain_text("All done.")
    expect(second.get_by_role("status")).to_have_text("Denied.")
    assert sent == [("ann@example.org", True, 3, ["a.txt", "new.txt"], {"size": 2})]
    expect(first.get_by_role("button", name="Approve")).to_be_disabled()


def test_a_form_from_a_schema(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    from pydantic import BaseModel, Field

    class Trip(BaseModel):
        city: str
        nights: int = Field(ge=1, le=14, description="From 1 to 14")
        window_seat: bool = False
        note: str | None = None

    @tool
    async def plan(ctx: ToolContext[Any]) -> str:
        """Plan."""
        trip = await ctx.ask("Where to?", Trip)
        return f"{trip.city} {trip.nights} {trip.window_seat} {trip.note}"

    page = new_page(served.start(Agent(ScriptedModel(call("plan"), "Planned."), tools=[plan])))
    ask(page, "plan a trip")
    card = page.locator(".question")
    card.get_by_label("City").fill("Rome")
    card.get_by_label("Nights").fill("3")
    card.get_by_label("Window Seat").check()
    card.get_by_role("button", name="Answer").click()
    expect(page.locator(".message.assistant").last).to_contain_text("Planned.")
    expect(page.locator(".tool-result pre")).to_have_text("Rome 3 True None")


def test_stop_in_the_middle_and_nothing_happens_after_it(
    served: Any, new_page: Any, tmp_path: Path, expect: Any, ask: Any, steps: Any
) -> None:
    @tool
    def write(name: str) -> str:
        """Write."""
        (tmp_path / name).write_text("x", encoding="utf-8")
        return "written"

    words = [f"w{number} " for number in range(30)]
    model = steps(words)

    async def speak(request: Any, emit: Any) -> ModelResponse:
        await model.speak(request, emit)
        part = Step(calls=[call("write", name="after.txt")]).parts
        return ModelResponse(parts=(TextPart(text="".join(words)), *(part or ())), stop_reason="tool_calls")

    page = new_page(served.start(Agent(FunctionModel(speak), tools=[write])))
    ask(page, "go")
    model.allow(5)
    expect(page.locator(".message.assistant .markdown")).to_have_text("w0 w1 w2 w3 w4")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".note.stopped")).to_contain_text("Stopped")
    model.allow(25)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator("#notice")).to_contain_text("did not complete")
    assert list(tmp_path.iterdir()) == []
    assert model.said <= 6


def test_steer_while_it_works(served: Any, new_page: Any, expect: Any, ask: Any, steps: Any) -> None:
    model = steps(["one ", "two "])
    page = new_page(served.start(Agent(FunctionModel(model.speak))))
    ask(page, "go")
    model.allow(1)
    expect(page.locator(".message.assistant .markdown")).to_have_text("one")
    ask(page, "in Latin please")
    model.allow(3)
    expect(page.locator(".message.user.steering")).to_contain_text("in Latin please")
    expect(page.locator(".message.assistant")).to_have_count(2)


def test_two_tabs_see_the_same_and_one_answer_counts(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    ran: list[int] = []

    @tool(approval=True)
    def act(number: int) -> str:
        """Act."""
        ran.append(number)
        return "done"

    page = new_page(served.start(Agent(ScriptedModel(call("act", number=1), "Fine."), tools=[act])))
    ask(page, "go")
    expect(page.locator(".question")).to_be_visible()
    other = new_page(page.url, context=page.context)
    expect(other.locator(".question")).to_be_visible()
    other.get_by_role("button", name="Approve").click()
    for tab in (page, other):
        expect(tab.locator(".message.assistant").last).to_contain_text("Fine.")
        expect(tab.locator(".message.user")).to_have_count(1)
    expect(page.locator(".question .receipt")).to_have_text("Answered.")
    assert ran == [1]


def test_a_question_survives_a_restart_of_the_server(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    store = InMemoryStore()
    ran: list[int] = []

    @tool(approval=True, effect="idempotent")
    def act(number: int) -> str:
        """Act."""
        ran.append(number)
        return "done"

    page = new_page(served.start(Agent(ScriptedModel(call("act", number=7)), tools=[act], store=store)))
    ask(page, "go")
    expect(page.locator(".question")).to_be_visible()
    served.stop()
    expect(page.locator("#connection")).to_have_attribute("data-state", "offline")
    served.start(Agent(ScriptedModel("Finished."), tools=[act], store=store))
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".question")).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".message.assistant").last).to_contain_text("Finished.")
    assert ran == [7]
    expect(page.locator(".message.user")).to_have_count(1)


def test_nothing_a_model_or_tool_says_becomes_part_of_the_page(
    served: Any, new_page: Any, expect: Any, ask: Any
) -> None:
    evil = (
        '<img src=x onerror="window.bad=1"><script>window.bad=1</script> [x](javascript:window.bad=1) '
        "![p](http://evil.example/p.png) <iframe src=http://evil.example></iframe>"
    )

    @tool
    def page_text() -> str:
        """Text."""
        return evil

    page = new_page(served.start(Agent(ScriptedModel(call("page_text"), evil), tools=[page_text])))
    ask(page, evil)
    expect(page.locator(".message.assistant").last).to_contain_text("<script>window.bad=1</script>")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert page.evaluate("window.bad") is None
    assert page.locator("#transcript :is(img, script, iframe)").count() == 0
    links = page.locator("#transcript a").evaluate_all("nodes => nodes.map(node => node.href)")
    assert links == ["http://evil.example/p.png", "http://evil.example/"]


def test_the_keyboard_is_enough(served: Any, new_page: Any, expect: Any) -> None:
    @tool(approval=True)
    def act(word: str) -> str:
        """Act."""
        return word

    page = new_page(served.start(Agent(ScriptedModel(call("act", word="a"), "Fine."), tools=[act])))
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.get_by_text("Skip to the message box").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.type("go")
    page.keyboard.press("Enter")
    expect(page.locator("#announce")).to_contain_text("Approval needed")
    page.get_by_label("word").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#announce")).to_contain_text("Answer: Fine.")


def test_every_control_has_a_name(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    @tool(approval=True)
    def act(word: str, many: list[str]) -> str:
        """Act."""
        return word

    page = new_page(served.start(Agent(ScriptedModel(call("act", word="a", many=["x"]), "Fine."), tools=[act])))
    ask(page, "go")
    expect(page.locator(".question")).to_be_visible()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select, summary, [role=log], nav, aside")]
            .filter((node) => !(node.labels?.length || node.getAttribute("aria-label") || node.textContent.trim()))
            .map((node) => node.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(served: Any, new_page: Any, scheme: str, expect: Any, ask: Any) -> None:
    page = new_page(
        served.start(Agent(ScriptedModel(TEXT + "\n\n" + "averylongword" * 20))),
        viewport={"width": 375, "height": 700},
        color_scheme=scheme,
        has_touch=True,
    )
    ask(page, "Which files are there?")
    expect(page.locator(".message.assistant strong")).to_have_text("two")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.get_by_role("button", name="Sessions").click()
    expect(page.get_by_role("button", name="New session")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sessions")).to_be_focused()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background


def test_a_server_with_a_token_asks_for_it(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    url = served.start(Agent(ScriptedModel("hello")), token="secret-token")
    page = new_page(url)
    page.get_by_label("Token of this server").fill("secret-token")
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_text("connected")
    assert "secret" not in page.url
    ask(page, "hi")
    expect(page.locator(".message.assistant")).to_contain_text("hello")
    again = new_page(f"{url}#token=secret-token")
    expect(again.locator("#connection")).to_have_text("connected")
    assert "secret" not in again.url
    # The two refusals of the request for sessions before the token was there are the only troubles.
    assert all("401" in text for text in new_page.troubles)
    new_page.troubles.clear()


def test_fork_from_a_message(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    page = new_page(served.start(Agent(ScriptedModel("first", "second", "other"))))
    ask(page, "one")
    expect(page.locator(".message.assistant")).to_contain_text("first")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    ask(page, "two")
    expect(page.locator(".message.assistant")).to_have_count(2)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    before = page.url
    page.locator(".message.assistant").first.hover()
    page.get_by_role("button", name="Fork").first.click()
    expect(page.locator(".message.assistant")).to_have_count(1)
    assert page.url != before
    expect(page.locator("#session-list button")).to_have_count(2)
    assert json.loads(page.evaluate("JSON.stringify(document.title)"))


def test_retry_asks_again_in_a_new_session(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    """With what was said before it, and without what came after; the old session stays as it is."""
    model = ScriptedModel("first", "second", "another second", "another first")
    page = new_page(served.start(Agent(model)))
    for number, text in enumerate(("one", "two")):
        ask(page, text)
        expect(page.locator(".message.assistant")).to_have_count(number + 1)
        expect(page.get_by_role("button", name="Send")).to_be_visible()
    before = page.url
    page.locator(".message.user").last.hover()
    page.get_by_role("button", name="Retry").last.click()
    expect(page.locator(".message.assistant").last).to_contain_text("another second")
    expect(page.locator(".message.user")).to_have_text(["one", "two"])
    assert [message.text for message in model.requests[2].messages] == ["one", "first", "two"]  # type: ignore[union-attr]
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.get_by_role("button", name="Retry").first.click()
    expect(page.locator(".message.assistant .markdown")).to_have_text(["another first"])
    assert [message.text for message in model.requests[3].messages] == ["one"]  # type: ignore[union-attr]
    page.goto(before)
    expect(page.locator(".message.assistant .markdown")).to_have_text(["first", "second"])
    expect(page.locator("#session-list button")).to_have_count(3)


def test_how_a_run_ended_is_in_sight(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    """Above the offer to continue; a plugin that fails again and again is named once."""

    class Broken:
        name = "broken"

        @hookimpl
        def on_event(self, run: RunContext[Any], notification: ExtensionEvent) -> None:
            raise RuntimeError("it always fails")

    script = ("A line.\n\n" * 40, RuntimeError("the model is gone"))
    page = new_page(served.start(Agent(ScriptedModel(*script), plugins=[Broken()])))
    ask(page, "one")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator(".note.warning").first).to_have_text(
        re.compile(r"The plugin broken failed in on_event: \w+ \(\d+ times\)")
    )
    ask(page, "two")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    note = page.locator(".note.error")
    expect(note).to_contain_text("The run failed: RuntimeError")
    expect(note).to_be_in_viewport()
    box, notice = note.bounding_box(), page.locator("#notice").bounding_box()
    assert box["y"] + box["height"] <= notice["y"], "it is not behind the notice"


def test_the_lanes_are_shown_live(served: Any, new_page: Any, expect: Any, ask: Any) -> None:
    """Phases, notifications, questions and replies while a run waits; what plugins cost when it has ended."""

    @tool(approval=True)
    def act(word: str) -> str:
        """Act."""
        return word

    page = new_page(served.start(Agent(ScriptedModel(call("act", word="a"), "Fine."), tools=[act])))
    page.get_by_role("button", name="Lanes").press("Enter")
    ask(page, "go")
    replies, phases = page.get_by_label("Questions and replies"), page.locator(".phases")
    expect(replies.get_by_role("listitem")).to_have_text(["?approval: May the tool 'act' run?"])
    expect(phases.locator(".current")).to_have_text("running tool")
    expect(phases.locator(".visited")).to_have_text(
        ["created", "loading context", "ready", "generating", "running tool"]
    )
    expect(page.get_by_label("Notifications")).to_contain_text("QuestionOpenedEvent")
    expect(page.get_by_label("UI stream").get_by_role("listitem").last).to_contain_text("reply_requested")
    expect(page.locator(".ledger")).to_have_text("Shown when a run has ended.")
    page.get_by_role("button", name="Approve").click()
    expect(replies.get_by_role("listitem").nth(1)).to_have_text("!accepted")
    expect(page.get_by_label("Notifications")).to_contain_text("QuestionClosedEvent")
    expect(phases.locator(".current")).to_have_text("completed")
    expect(page.locator(".ledger tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("#lanes")).to_be_hidden()
    expect(page.get_by_role("button", name="Lanes")).to_be_focused()
