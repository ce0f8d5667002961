"""The wire server itself: what it sends is what it says, whoever asks. The client here is a bare socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from trilane.messages import Usage
from trilane.testing import no_leaks
from trilane.testing.wire import (
    STALL,
    Call,
    Cut,
    Empty,
    Exchange,
    Fail,
    Hold,
    Ping,
    Refuse,
    Reply,
    Think,
    Unknown,
    WireError,
    WireServer,
    call,
    interleaved,
)

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
CHAT_BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
}
MESSAGES_BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "stream": True}


class Client:
    """One connection, in bytes."""

    def __init__(self, server: WireServer) -> None:
        host, _, port = server.url.removeprefix("http://").partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=5)
        self.file = self.socket.makefile("rb")

    def send(self, path: str = CHAT, body: Any = CHAT_BODY, **headers: str) -> None:
        data = json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + data)

    def head(self) -> tuple[int, dict[str, str]]:
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.file.readline() or b"0", 16):
            yield self.file.read(size)
            self.file.readline()
        self.file.readline()

    def ask(self, path: str = CHAT, body: Any = CHAT_BODY) -> tuple[int, dict[str, str], list[bytes]]:
        self.send(path, body)
        status, headers = self.head()
        return status, headers, list(self.chunks())

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@contextmanager
def connected(*script: Any, **options: Any) -> Iterator[tuple[WireServer, Client]]:
    with WireServer(*script, **options) as server:
        client = Client(server)
        try:
            yield server, client
        finally:
            client.close()


def chat(reply: Reply | str) -> list[Any]:
    """The events of a reply in Chat Completions."""
    with connected(reply) as (_, client):
        body = b"".join(client.ask()[2]).decode()
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def messages(reply: Reply | str) -> list[Any]:
    """The events of a reply in the Messages format."""
    with connected(reply) as (_, client):
        body = b"".join(client.ask(MESSAGES, MESSAGES_BODY)[2]).decode()
    events = []
    for frame in body.split("\n\n"):
        if frame.startswith("event: "):
            name, data = frame.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            assert events[-1]["type"] == name.removeprefix("event: ")
    return events


def deltas(events: list[Any]) -> list[Any]:
    return [event["choices"][0]["delta"] for event in events if event != "[DONE]" and event["choices"]]


# ---- formats ---------------------------------------------------------------------------------------------------------


def test_text_in_both_formats() -> None:
    events = chat(Reply.of("Hé", "llo"))
    assert deltas(events) == [{"role": "assistant", "content": ""}, {"content": "Hé"}, {"content": "llo"}, {}]
    assert events[3]["choices"][0]["finish_reason"] == "stop"
    assert events[4]["usage"]["total_tokens"] == 18
    assert events[5] == "[DONE]"
    kinds = [event["type"] for event in messages(Reply.of("Hé", "llo"))]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_interleaved_calls_in_both_formats() -> None:
    pieces = interleaved(call("a", {"x": 1}, size=4), call("b", {}, number=1, indexed=False))
    sent = [delta["tool_calls"][0] for delta in deltas(chat(Reply.of(pieces)))[1:-1]]
    opened = {"index": 0, "id": "call_0", "type": "function", "function": {"name": "a", "arguments": ""}}
    assert sent[0] == opened
    assert "index" not in sent[1]
    assert [one["function"]["arguments"] for one in sent] == ["", "", '{"x"', "{}", ": 1}"]
    events = messages(Reply.of(pieces))
    starts = [event for event in events if event["type"] == "content_block_start"]
    assert [(one["index"], one["content_block"]["name"]) for one in starts] == [(0, "a"), (1, "b")]
    stops = [(at, event["index"]) for at, event in enumerate(events) if event["type"] == "content_block_stop"]
    assert [index for _, index in stops] == [1, 0]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_reasoning_and_refusal_in_both_formats() -> None:
    reply = Reply.of(Think("Hm", "c2ln"), Refuse("No."), reasoning_field="reasoning")
    assert deltas(chat(reply))[1:3] == [{"reasoning": "Hm"}, {"refusal": "No."}]
    events = messages(reply)
    sent = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [one["type"] for one in sent] == ["thinking_delta", "signature_delta", "text_delta"]
    assert events[-2]["delta"]["stop_reason"] == "refusal"


def test_usage_in_both_formats() -> None:
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=1)
    both = [event["usage"] for event in chat(Reply.of("a", usage=usage, usage_at="both"))[:-1] if "usage" in event]
    assert len(both) == 2
    assert both[0]["prompt_tokens_details"] == {"cached_tokens": 4}
    start, *_, end, _ = messages(Reply.of("a", usage=usage))
    assert start["message"]["usage"]["input_tokens"] == 4
    assert end["usage"]["output_tokens"] == 5
    assert all(event == "[DONE]" or "usage" not in event for event in chat(Reply.of("a", usage=None)))


@pytest.mark.parametrize(
    ("ends", "finish", "last"), [("done", True, True), ("finished", True, False), ("open", False, False)]
)
def test_ends(ends: Any, finish: bool, last: bool) -> None:
    events = chat(Reply.of("a", ends=ends))
    assert any(event != "[DONE]" and event["choices"] and event["choices"][0]["finish_reason"] for event in events) == (
        finish
    )
    assert ("[DONE]" in events) == last
    kinds = [event["type"] for event in messages(Reply.of("a", ends=ends))]
    assert ("message_delta" in kinds, "message_stop" in kinds) == (finish, last)


def test_what_means_nothing_and_what_fails() -> None:
    events = chat(Reply.of(Ping(), Empty(), Unknown(), Fail("Fire")))
    assert events[1]["choices"] == []
    assert events[-1] == {"error": {"message": "Fire", "type": "server_error", "param": None, "code": None}}
    kinds = [event["type"] for event in messages(Reply.of(Ping(), Empty(), Unknown(), Fail("Fire")))]
    assert kinds == ["message_start", "ping", "ping", "brand_new_event", "error"]


def test_errors_in_both_formats() -> None:
    reply = Reply.error(429, "Slow down", retry_after="2")
    with connected(reply, reply) as (_, client):
        status, headers, chunks = client.ask()
        assert (status, headers["retry-after"], headers["x-request-id"]) == (429, "2", "req_1")
        assert json.loads(b"".join(chunks))["error"]["code"] == "rate_limit_exceeded"
        status, headers, chunks = client.ask(MESSAGES, MESSAGES_BODY)
        assert (status, headers["request-id"]) == (429, "req_2")
        assert json.loads(b"".join(chunks))["error"] == {"type": "rate_limit_error", "message": "Slow down"}


def test_the_body_is_cut_where_it_was_asked_to() -> None:
    with connected(Reply.of("é"), Reply.of("é", split=1), Reply.of("é", split=(3, 10))) as (_, client):
        whole = b"".join(client.ask()[2])
        single = client.ask()[2]
        assert [len(piece) for piece in single] == [1] * len(single)
        assert b"".join(single).replace(b"chatcmpl-2", b"chatcmpl-1") == whole
        assert [len(piece) for piece in client.ask()[2]][:2] == [3, 7]


# ---- what it writes down ---------------------------------------------------------------------------------------------


def test_requests_are_kept() -> None:
    def echo(exchange: Exchange) -> str:
        return f"{exchange.number} {exchange.json['model']}"

    with connected(echo) as (server, client):
        client.send(Authorization="Bearer k")
        assert client.head()[0] == 200
        assert b"1 m" in b"".join(client.chunks())
        exchange = server.exchanges[0]
        assert (exchange.method, exchange.path, exchange.format) == ("POST", CHAT, "openai-chat")
        assert exchange.headers["authorization"] == "Bearer k"
        assert server.kinds() == ["request", "headers", "sent"]
        server.assert_finished()


def test_a_script_that_does_not_fit() -> None:
    with connected("a", "b") as (server, client):
        client.ask()
        with pytest.raises(WireError, match="1 scripted replies were not asked for"):
            server.assert_finished()
    with connected() as (server, client):
        assert client.ask()[0] == 400
        with pytest.raises(WireError, match="no reply is scripted for request 1"):
            server.assert_finished()
    with connected("a") as (server, client):
        assert client.ask("/v2/other")[0] == 404
        with pytest.raises(WireError, match="no known format"):
            server.assert_finished()
    with connected(lambda exchange: 1 // 0) as (server, client):
        assert client.ask()[0] == 400
        with pytest.raises(WireError, match="ZeroDivisionError"):
            server.assert_finished()


def test_requests_that_a_provider_would_refuse() -> None:
    wrong = {**CHAT_BODY, "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}
    with connected("a") as (server, client):
        status, _, chunks = client.ask(body=wrong)
        assert status == 400
        assert b"did not call" in b"".join(chunks)
        with pytest.raises(WireError, match="request 1 is not valid"):
            server.assert_finished()
    with connected("a", check=False) as (_, client):
        assert client.ask(body=wrong)[0] == 200


@pytest.mark.anyio
async def test_the_moment_of_the_close() -> None:
    async with no_leaks():
        with connected(Reply.of("a", STALL)) as (server, client):
            client.send()
            await server.received(1)
            await server.reached("stall")
            assert not server.is_closed(1)
            assert (server.busy, server.open_connections) == ((1,), 1)
            before = server.note("closing")
            client.close()
            assert before <= await server.closed(1)
            assert (server.busy, server.open_connections) == ((), 0)
            assert server.kinds() == ["request", "headers", "held", "closing", "closed"]


@pytest.mark.anyio
async def test_a_wait_in_vain_says_for_what() -> None:
    with connected() as (server, _):
        with pytest.raises(TimeoutError, match="reached 'never'"):
            await server.reached("never", timeout=0.01)
        with pytest.raises(WireError, match="there is no request 1"):
            await server.closed(1)


@pytest.mark.anyio
async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    with connected(Reply.of(STALL)) as (server, client):
        with anyio.move_on_after(0.01):
            await server.reached("stall")
        client.send()
        await server.reached("stall")


def test_holds_and_releases() -> None:
    with connected(Reply.of("a", Hold("x"), "b", hold_headers="h")) as (server, client):
        client.send()
        server.release("x")  # before it is reached
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(5)
        client.file = client.socket.makefile("rb")
        server.release("h")
        assert client.head()[0] == 200
        assert b'"b"' in b"".join(client.chunks())


def test_waiting_in_a_thread() -> None:
    with connected(Reply.of("a", STALL)) as (server, client):
        client.send()
        client.head()
        threading.Timer(0.01, client.close).start()
        assert server.closed_sync(1) > 0


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_connection(reset: bool) -> None:
    with connected(Reply.of(Call(0, "c", "f"), Hold("seen"), Cut(reset))) as (server, client):
        client.send()
        client.head()
        size = int(client.file.readline(), 16)
        client.file.read(size)
        server.release("seen")
        rest = b""
        try:
            rest = client.file.read()
        except ConnectionResetError:
            assert reset
        assert not rest.endswith(b"0\r\n\r\n")
        assert server.closed_sync(1)
        assert server.kinds()[-1] == "cut"
