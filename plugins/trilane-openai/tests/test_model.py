"""The model inside an agent: events, tools, structured output, loops, and what is said when something is wrong."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import warnings
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from trilane import Agent, ConfigError, ModelError, RunCancelledError, tool
from trilane.testing import assert_history, no_leaks
from trilane.testing.calls import ask
from trilane.testing.wire import STALL, Reply, Think, WireServer, call, interleaved
from trilane_openai import OpenAIModel

KEY = "sk-test-0123456789abcdef"


class City(BaseModel):
    name: str
    people: int


@tool
def search(q: str) -> str:
    """Search."""
    return f"found {q}"


def model_of(server: WireServer, **settings: Any) -> OpenAIModel:
    return OpenAIModel("m", base_url=server.openai_url, api_key=KEY, **settings)


async def ignore(delta: object) -> None:
    pass


@pytest.mark.anyio
async def test_a_run_with_parallel_tools() -> None:
    calls = interleaved(call("search", {"q": "a"}), call("search", {"q": "b"}, number=1))
    with WireServer(Reply.of(Think("Hm"), "Looking. ", calls), "Both found.") as server:
        async with no_leaks():
            agent = Agent(model_of(server), tools=[search])
            result = await agent.run("Find both")
            await agent.aclose()
        server.assert_finished()
        assert result.output == "Both found."
        assert result.usage.input_tokens == 22
        assert_history(result.messages, "openai-chat")
        sent = server.exchanges[1].json["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
        assert [message["content"] for message in sent[2:]] == ["found a", "found b"]
        first = result.new_messages[1]
        assert first.extra == {
            "openai": {"finish_reason": "tool_calls", "response_id": "chatcmpl-1", "request_id": "req_1"}
        }


@pytest.mark.anyio
async def test_structured_output_validates() -> None:
    with WireServer('{"name": "Oslo", "people": "many"}', '{"name": "Oslo", "people": 700000}') as server:
        agent = Agent(model_of(server), output_type=City)
        result = await agent.run("Which city?")
        await agent.aclose()
        assert result.output == City(name="Oslo", people=700000)
        assert server.exchanges[0].json["response_format"]["json_schema"]["name"] == "answer"


@pytest.mark.anyio
async def test_malformed_arguments_go_back_to_the_model_as_an_error() -> None:
    with WireServer(Reply.of(call("search", '{"q": "shi')), "Sorry.") as server:
        agent = Agent(model_of(server), tools=[search])
        result = await agent.run("Find")
        await agent.aclose()
        server.assert_finished()
        assert result.output == "Sorry."
        assert "not valid JSON" in server.exchanges[1].json["messages"][2]["content"]


@pytest.mark.anyio
async def test_closing_a_stream_closes_the_connection_and_the_session_goes_on() -> None:
    with WireServer(Reply.of("Half an answer", STALL), "Whole.") as server:
        agent = Agent(model_of(server))
        async with agent.stream("Hi", session="s") as run:
            async for event in run:
                if event.type == "text_delta":
                    server.note("stopped")
                    break
        await server.closed(1)
        kinds = server.kinds()
        assert kinds.index("stopped") < kinds.index("closed")
        result = await agent.run("And now?", session="s")
        await agent.aclose()
        server.assert_finished()
        assert result.output == "Whole."
        assert server.exchanges[1].json["messages"][1]["content"] == "Half an answer"


@pytest.mark.anyio
async def test_stop_while_the_answer_streams() -> None:
    with WireServer(Reply.of("a", "b", "c", STALL)) as server:
        agent = Agent(model_of(server))
        with pytest.raises(RunCancelledError, match="enough"):
            async with agent.stream("Hi") as run:
                async for event in run:
                    if event.type == "text_delta" and event.text == "b":
                        run.stop("enough")
        await server.closed(1)
        assert "sent" not in server.kinds()
        await agent.aclose()


@pytest.mark.anyio
async def test_models_of_one_server_share_connections_until_the_last_is_closed() -> None:
    with WireServer("a", "b", "c") as server:
        one, other = model_of(server), model_of(server)
        await one.call(ask(), ignore)
        await other.call(ask(), ignore)
        assert {exchange.connection for exchange in server.exchanges} == {1}
        await one.aclose()
        await one.aclose()
        assert not server.is_closed(1)
        await other.aclose()
        await server.closed(1)
        await one.call(ask(), ignore)
        assert server.exchanges[2].connection == 2
        await one.aclose()


def test_a_loop_that_ends_closes_its_connections() -> None:
    with WireServer("a", "b") as server:
        model = model_of(server)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in (1, 2):
                agent = Agent(model)
                assert agent.run_sync("Hi").output in ("a", "b")
                server.closed_sync(number)
            gc.collect()


def test_two_loops_at_the_same_time() -> None:
    async def once(model: OpenAIModel) -> str:
        return (await Agent(model).run("Hi")).output

    with WireServer("a", "a") as server:
        model = model_of(server)

        async def both() -> list[str]:
            other = asyncio.to_thread(lambda: asyncio.run(once(model)))
            return list(await asyncio.gather(other, once(model)))

        assert asyncio.run(both()) == ["a", "a"]
        assert {exchange.connection for exchange in server.exchanges} == {1, 2}


@pytest.mark.anyio
async def test_a_connection_that_nobody_accepts() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:  # fill the queue of those that wait to be accepted
            one.setblocking(False)
            one.connect_ex(address)
        model = OpenAIModel("m", base_url=f"http://127.0.0.1:{address[1]}/v1", connect_seconds=0.1, max_retries=0)
        with pytest.raises(ModelError, match=r"did not take the connection within 0\.1 s.*connect_seconds"):
            await model.call(ask(), ignore)
        await model.aclose()
        for one in waiting:
            one.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("reply", "needs"),
    [
        (Reply.error(401, f"Incorrect API key provided: {KEY}"), ["401", "api_key", "req_1"]),
        (Reply.error(403, "Country not supported"), ["403", "Country not supported", "rights"]),
        (Reply.error(404, "The model `m` does not exist"), ["404", "'m'", "check the name"]),
        (Reply.error(400, body='{"object": "error", "message": "too long"}'), ["400", "too long", "refused"]),
        (Reply.error(400, body="<html>nginx</html>"), ["400", "nginx"]),
        (Reply.error(422, body='{"detail": [{"loc": ["x"]}]}'), ["422", "loc"]),
        (Reply.error(413, body=""), ["413"]),
        (Reply.error(200, body="<html>Hello</html>", headers={"content-type": "text/html"}), ["text/html", "/v1"]),
        (Reply.error(200, body='{"choices": []}'), ["application/json", "/v1"]),
        (Reply.error(200, body='{"error": {"message": "no such engine"}}'), ["no such engine"]),
    ],
)
async def test_what_a_server_refuses_is_one_paragraph(reply: Reply, needs: list[str]) -> None:
    with WireServer(reply) as server:
        model = model_of(server, max_retries=0)
        with pytest.raises(ModelError) as caught:
            await model.call(ask(), ignore)
        await model.aclose()
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    assert KEY not in f"{text} {caught.value!r} {caught.value.__cause__} {caught.value.__context__}"
    for word in needs:
        assert word in text


@pytest.mark.anyio
async def test_the_key_and_the_organization_are_sent_as_they_should() -> None:
    with WireServer("a", "b") as server:
        openai = OpenAIModel("m", base_url=server.openai_url, preset="openai", api_key=KEY, organization="org-1")
        local = OpenAIModel("m", base_url=server.openai_url, organization="org-1")
        for model in (openai, local):
            await model.call(ask(), ignore)
            await model.aclose()
        first, second = (exchange.headers for exchange in server.exchanges)
        assert (first["authorization"], first["openai-organization"]) == (f"Bearer {KEY}", "org-1")
        assert second["authorization"] == "Bearer none"
        assert "openai-organization" not in second


@pytest.mark.anyio
async def test_what_is_left_out_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    from trilane import AssistantMessage, ReasoningPart, TextPart

    thought = AssistantMessage(id="a", parts=(ReasoningPart(text="Deep", signature="s"), TextPart(text="Yes")))
    request = ask(messages=(*ask().messages, thought, ask().messages[0].replace(id="m9")))
    with WireServer("a", "b") as server:
        model = model_of(server)
        response = await model.call(request, ignore)
        await model.call(request, ignore)
        await model.aclose()
    assert isinstance(response.extra, dict)
    assert response.extra["openai"]["left_out"] == ["reasoning of another provider"]  # type: ignore[index,call-overload]
    assert [record.getMessage() for record in caplog.records if record.name == "trilane.openai"] == [
        "openai:m: left out of the request: reasoning of another provider"
    ]


# ---- the plugin ------------------------------------------------------------------------------------------------------


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with WireServer("Hello.", "Hello.") as server:
        monkeypatch.setenv("TRILANE_OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("TRILANE_OPENAI_API_KEY", KEY)
        assert Agent("openai:some/model").run_sync("Hi").output == "Hello."
        assert server.exchanges[0].json["model"] == "some/model"
        assert server.exchanges[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_missing_key_is_said_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        Agent("openai:gpt-x").run_sync("Hi")


def test_a_wrong_setting_is_said_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILANE_OPENAI_API_KEYS", KEY)
    with pytest.raises(ConfigError, match="TRILANE_OPENAI_API_KEYS") as caught:
        Agent("openai:gpt-x").run_sync("Hi")
    assert KEY not in str(caught.value)


_PROGRAM = """
import sys
from trilane import Agent
from trilane_openai import OpenAIModel
import trilane_openai.plugin
model = OpenAIModel("m", api_key="k")
Agent(model)
print(*sorted({"openai", "httpx2", "trilane_openai.conversion"} & set(sys.modules)))
"""


def test_the_sdk_is_not_imported_before_the_first_request() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert "openai" not in done.stdout.split()
    assert "httpx2" not in done.stdout.split()


@pytest.mark.anyio
async def test_a_cancel_while_the_retry_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    scope, waited = anyio.CancelScope(), list[float]()

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        scope.cancel()
        await anyio.Event().wait()

    monkeypatch.setattr(anyio, "sleep", wait)
    with WireServer(Reply.error(500, retry_after="50")) as server:
        model = model_of(server)
        with scope:
            await model.call(ask(), ignore)
        assert scope.cancelled_caught
        assert waited == [50]
        assert len(server.exchanges) == 1
        await model.aclose()
