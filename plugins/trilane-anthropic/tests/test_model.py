"""The model as a whole: keys, names, settings, runs, and that nothing is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
import traceback
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, ValidationError

from trilane import Agent, ModelError, ModelTimeoutError
from trilane.config import ModelSettings
from trilane.errors import ConfigError, RunCancelledError
from trilane.messages import CitationPart, ServerToolPart
from trilane.plugins import PluginManager, resolve_model
from trilane.testing.calls import Consumer, ask, close_model
from trilane.testing.wire import STALL, Exchange, Raw, Reply, Think, WireServer, call
from trilane_anthropic import AnthropicModel

KEY = "sk-ant-0123456789"


def model_for(server: WireServer, name: str = "claude-sonnet-5", **settings: Any) -> AnthropicModel:
    return AnthropicModel(name, base_url=server.url, api_key=KEY, **settings)


# ---- names, keys, settings -------------------------------------------------------------------------------------------


def test_the_provider_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILANE_ANTHROPIC_API_KEY", KEY)
    manager = PluginManager()
    assert resolve_model("anthropic:claude-opus-5", manager).name == "anthropic:claude-opus-5"
    assert resolve_model("anthropic", manager).name == "anthropic:claude-sonnet-5"


def test_loading_the_plugin_imports_no_sdk() -> None:
    code = (
        "import sys\n"
        "from trilane.plugins import PluginManager, resolve_model\n"
        "resolve_model('anthropic:claude-sonnet-5', PluginManager())\n"
        "print([name for name in ('anthropic', 'httpx2', 'anyio._backends') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.anyio
async def test_without_a_key_one_paragraph_says_what_to_do() -> None:
    model = AnthropicModel("claude-sonnet-5")
    with pytest.raises(ConfigError, match=r"there is no API key\. Set ANTHROPIC_API_KEY, or api_key under") as caught:
        await model.call(ask(), Consumer())
    assert "\n" not in str(caught.value)


@pytest.mark.anyio
async def test_the_key_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with WireServer("Hi") as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        model = AnthropicModel()
        await model.call(ask(), Consumer())
        await close_model(model)
        assert KEY in " ".join(server.exchanges[0].headers.values())
        assert server.exchanges[0].json["model"] == "claude-sonnet-5"


@pytest.mark.anyio
async def test_the_key_of_the_environment_goes_to_no_other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with WireServer() as server:
        with pytest.raises(ConfigError, match=r"base_url is set to .* but api_key is not"):
            await AnthropicModel("m", base_url=server.url).call(ask(), Consumer())
        assert server.exchanges == []


@pytest.mark.anyio
async def test_a_profile_that_cannot_be_read_is_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_PROFILE", "nobody")
    with pytest.raises(ConfigError, match=r"the SDK found no usable key: .*nobody.* Set ANTHROPIC_API_KEY"):
        await AnthropicModel("m").call(ask(), Consumer())


def test_settings_are_checked() -> None:
    with pytest.raises(ValidationError):
        AnthropicModel("m", idle_second=3)
    assert repr(AnthropicModel("m", api_key=KEY)) == "AnthropicModel('m')"


@pytest.mark.anyio
async def test_an_unknown_model_and_a_wrong_key_are_readable() -> None:
    with WireServer(Reply.error(404, "model: claude-nope"), Reply.error(401, f"invalid {KEY}")) as server:
        model = model_for(server, "claude-nope")
        with pytest.raises(ModelError, match=r"has no model 'claude-nope'.*Check the name"):
            await model.call(ask(), Consumer())
        with pytest.raises(ModelError, match=r"refused the key.*Set ANTHROPIC_API_KEY") as caught:
            await model.call(ask(), Consumer())
        await close_model(model)
    assert KEY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.anyio
async def test_betas_are_headers() -> None:
    with WireServer("Hi") as server:
        model = model_for(server, betas=("one-2026", "two-2026"))
        await model.call(ask(), Consumer())
        await close_model(model)
        assert server.exchanges[0].headers["anthropic-beta"] == "one-2026,two-2026"


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_each_limit_has_its_error() -> None:
    cases: list[tuple[Reply, dict[str, float], str]] = [
        (Reply.of("a", hold_headers="never"), {"first_byte_seconds": 0.05}, "first_byte"),
        (Reply.of("a", STALL), {"idle_seconds": 0.05}, "idle"),
        (Reply.of("a", STALL), {"total_seconds": 0.1}, "total"),
    ]
    for reply, limits, expected in cases:
        with WireServer(reply) as server:
            model = model_for(server, max_retries=0, **limits)
            with pytest.raises(ModelTimeoutError) as caught:
                await model.call(ask(), Consumer())
            await server.closed(1)
            await close_model(model)
        assert caught.value.limit == expected


@pytest.mark.anyio
async def test_comments_and_pings_are_signs_of_life() -> None:
    consumer = Consumer()
    beats = [Raw(b": still there\n\n"), Raw(b'event: ping\ndata: {"type": "ping"}\n\n')]

    with WireServer(Reply.of("a", STALL, *beats, "b")) as server:
        model = model_for(server, idle_seconds=5)
        async with anyio.create_task_group() as group:
            group.start_soon(model.call, ask(), consumer)
            await server.reached("stall")
            server.release("stall")
        await close_model(model)
    assert [delta.text for delta in consumer.deltas] == ["a", "b"]


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_thinking_goes_back_with_its_signature_within_a_run() -> None:
    def look() -> str:
        """Look."""
        return "two ships"

    first = Reply.of(Think("I should look.", "sig-1"), call("look", {}, id="toolu_1"))
    with WireServer(first, "Two ships.") as server:
        agent = Agent(model_for(server), tools=[look])
        result = await agent.run("What is there?")
        await agent.aclose()
        sent = server.exchanges[1].json["messages"]
    assert result.output == "Two ships."
    assert sent[1]["content"][0] == {"type": "thinking", "thinking": "I should look.", "signature": "sig-1"}
    assert [block["type"] for block in sent[1]["content"]] == ["thinking", "tool_use"]
    assert sent[2]["content"][0]["tool_use_id"] == "toolu_1"


@pytest.mark.anyio
async def test_interrupted_thinking_is_left_out_of_the_next_request_and_named() -> None:
    with WireServer(Reply.of(Think("I sho"), STALL), "Hello.") as server:
        agent = Agent(model_for(server))
        with pytest.raises(RunCancelledError):
            async with agent.stream("Hi", session="s") as run:
                async for event in run:
                    if event.type == "reasoning_delta":
                        run.stop("enough")
                        server.note("stopped")
        await server.closed(1)
        result = await agent.run("Again", session="s")
        await agent.aclose()
        sent = server.exchanges[1].json["messages"]
    assert [block["text"] for block in sent[0]["content"]] == ["Hi", "Again"]
    message: Any = result.message
    assert message.extra["anthropic"]["left_out"] == ["reasoning that was interrupted before it was signed"]


@pytest.mark.anyio
async def test_a_paused_answer_is_continued() -> None:
    use = (
        b'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block": '
        b'{"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}}\n\n'
        b'event: content_block_stop\ndata: {"type": "content_block_stop", "index": 0}\n\n'
    )
    with WireServer(Reply.of(Raw(use), stop="pause"), "Found it.") as server:
        agent = Agent(model_for(server))
        result = await agent.run("Search")
        await agent.aclose()
        sent = server.exchanges[1].json["messages"]
    assert result.output == "Found it."
    assert sent[-1]["role"] == "assistant"
    assert sent[-1]["content"][0]["type"] == "server_tool_use"
    assert isinstance(result.new_messages[1].parts[0], ServerToolPart)  # type: ignore[union-attr]


class Person(BaseModel):
    name: str
    age: int


@pytest.mark.anyio
@pytest.mark.parametrize("structured", ["native", "tool"])
async def test_structured_output(structured: str) -> None:
    answer = {"name": "Tom", "age": 12}

    def reply(exchange: Exchange) -> Reply:
        if structured == "native":
            assert exchange.json["output_config"]["format"]["type"] == "json_schema"
            return Reply.of('{"name": "Tom", ', '"age": 12}')
        return Reply.of(call("answer", answer))

    with WireServer(reply) as server:
        agent = Agent(model_for(server, structured=structured), output_type=Person)
        result = await agent.run("Who?")
        await agent.aclose()
    assert result.output == Person(name="Tom", age=12)
    assert result.stop_reason == "end"


@pytest.mark.anyio
async def test_citations_are_parts() -> None:
    cited = (
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": {"type": '
        b'"citations_delta", "citation": {"type": "char_location", "cited_text": "x", "document_title": "T"}}}\n\n'
    )
    with WireServer(Reply.of("So it is.", Raw(cited))) as server:
        model = model_for(server)
        response = await model.call(ask(), Consumer())
        await close_model(model)
    assert response.parts is not None
    citation = response.parts[1]
    assert isinstance(citation, CitationPart)
    assert (citation.text, citation.title) == ("x", "T")


@pytest.mark.anyio
async def test_what_was_left_out_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    request = ask(settings=ModelSettings(seed=3))
    with WireServer("a", "b") as server:
        model = model_for(server)
        for _ in range(2):
            response = await model.call(request, Consumer())
        await close_model(model)
    extra: Any = response.extra
    assert extra["anthropic"]["left_out"] == ["the seed: the Messages API has none"]
    assert [record.getMessage() for record in caplog.records if record.name == "trilane.anthropic"] == [
        "anthropic:claude-sonnet-5: left out of the request: the seed: the Messages API has none"
    ]


def test_f007_one_model_in_several_event_loops() -> None:
    with WireServer("a", "b", "c", "d") as server:
        agent = Agent(model_for(server))
        assert [agent.run_sync("Hi").output for _ in range(2)] == ["a", "b"]

        async def run() -> str:
            return (await agent.run("Hi")).output

        assert [anyio.run(run, backend=backend) for backend in ("asyncio", "trio")] == ["c", "d"]
        for number in range(1, 5):
            server.closed_sync(number)
        assert server.open_connections == 0
