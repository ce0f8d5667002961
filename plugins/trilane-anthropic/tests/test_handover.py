"""A session that was begun with one provider goes on with another."""

from __future__ import annotations

from typing import Any

import pytest

from trilane import Agent
from trilane.messages import ImagePart
from trilane.models import Model
from trilane.testing.wire import Reply, Think, WireServer, call, check_request
from trilane_anthropic import AnthropicModel

pytest.importorskip("trilane_openai")  # each plugin is also tested alone
from trilane_openai import OpenAIModel


def look(place: str) -> str:
    """Look at a place."""
    return f"{place}: two ships"


def anthropic(server: WireServer) -> Model:
    return AnthropicModel("claude-sonnet-5", base_url=server.url, api_key="k")


def openai(server: WireServer) -> Model:
    return OpenAIModel("gpt", base_url=server.openai_url, preset="openai", api_key="k")


async def begin(agent: Agent[None, str], server: WireServer) -> None:
    calls = [*call("look", {"place": "bay"}, id="call_a"), *call("look", {"place": "sea"}, number=1, id="call_b")]
    server.add(Reply.of(Think("Both places.", "sig-1"), "I will look. ", calls), "There are four.")
    result = await agent.run(["How many ships?", ImagePart(data="aGk=")], session="s")
    assert result.output == "There are four."


@pytest.mark.anyio
async def test_from_openai_to_anthropic_and_back() -> None:
    with WireServer() as server:
        first, second = openai(server), anthropic(server)
        agent = Agent(first, tools=[look])
        await begin(agent, server)
        server.add("As I said, four.", "Still four.")
        middle = await agent.run("Sure?", session="s", model=second)
        last = await agent.run("Really?", session="s")
        there, back = server.exchanges[2], server.exchanges[3]
        await second.aclose()  # type: ignore[attr-defined]
        await agent.aclose()
        server.assert_finished()
    assert check_request(there.json, "anthropic") == []
    assert check_request(back.json, "openai-chat") == []
    assert [
        (message["role"], [block["type"] for block in message["content"]]) for message in there.json["messages"]
    ] == [
        ("user", ["text", "image"]),
        ("assistant", ["text", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]
    assert there.json["messages"][1]["content"][1]["input"] == {"place": "bay"}
    assert left_out(middle, "anthropic") == ["reasoning of another provider"]
    assert [message["role"] for message in back.json["messages"]][-4:] == ["assistant", "user", "assistant", "user"]
    assert last.output == "Still four."


@pytest.mark.anyio
async def test_from_anthropic_to_openai_and_back() -> None:
    with WireServer() as server:
        first, second = anthropic(server), openai(server)
        agent = Agent(first, tools=[look])
        await begin(agent, server)
        server.add("As I said, four.", "Still four.")
        middle = await agent.run("Sure?", session="s", model=second)
        await agent.run("Really?", session="s")
        there, back = server.exchanges[2], server.exchanges[3]
        await second.aclose()  # type: ignore[attr-defined]
        await agent.aclose()
        server.assert_finished()
    assert check_request(there.json, "openai-chat") == []
    assert check_request(back.json, "anthropic") == []
    sent = there.json["messages"]
    calls = next(message["tool_calls"] for message in sent if message.get("tool_calls"))
    assert [one["function"]["name"] for one in calls] == ["look", "look"]
    assert [message["content"] for message in sent if message["role"] == "tool"] == ["bay: two ships", "sea: two ships"]
    assert any("reasoning" in what for what in left_out(middle, "openai"))
    # What the first provider had signed is still there for it.
    kinds = [block["type"] for block in back.json["messages"][1]["content"]]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert back.json["messages"][1]["content"][0]["signature"] == "sig-1"


def left_out(result: Any, provider: str) -> list[str]:
    found: list[str] = result.message.extra[provider].get("left_out", [])
    return found
