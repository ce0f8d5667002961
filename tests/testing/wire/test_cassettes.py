"""Recorded traffic: nothing secret is written down, and playing it back is strict."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from trilane.testing.wire import (
    Cassette,
    RecordedExchange,
    Reply,
    WireError,
    WireServer,
    call,
    record,
    replay,
)

KEY = "secret-key-of-the-account"
LOOKS_LIKE_ONE = "sk-proj-0123456789abcdefghij"


def ask(url: str, text: str = "Hi", path: str = "/v1/chat/completions", key: str = KEY) -> tuple[int, str]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}
    request = urllib.request.Request(
        url + path,
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {key}", "x-account": "mine"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def recorded(*script: Any, text: str = "Hi", secrets: tuple[str, ...] = ()) -> tuple[Cassette, list[tuple[int, str]]]:
    with WireServer(*script) as upstream, record(upstream.url, secrets=secrets) as server:
        answers = [ask(server.url, text) for _ in script]
        return server.cassette, answers


def test_a_recording_plays_back_as_it_came(tmp_path: Path) -> None:
    script = (Reply.of("Hé🌍", call("search", {"q": 1}), split=5), Reply.error(429, retry_after="3"))
    cassette, answers = recorded(*script)
    assert [status for status, _ in answers] == [200, 429]
    cassette.save(tmp_path / "tape.json")
    assert Cassette.load(tmp_path / "tape.json") == cassette
    assert max(len(chunk.encode("utf-8", "surrogateescape")) for chunk in cassette.exchanges[0].chunks) == 5
    assert cassette.exchanges[1].headers["retry-after"] == "3"
    with replay(tmp_path / "tape.json") as server:
        assert [ask(server.url, key="another-key") for _ in script] == answers
        server.assert_finished()


def test_nothing_secret_is_written_down() -> None:
    said = f"Your key is {KEY} or {LOOKS_LIKE_ONE}, and the word is xyzzy."
    cassette, _ = recorded(Reply.of(said, split=7), text=f"I am {KEY}", secrets=("xyzzy",))
    tape = cassette.to_json()
    for secret in (KEY, LOOKS_LIKE_ONE, "xyzzy", "Bearer", "x-account", "mine"):
        assert secret not in tape
    assert "Your key is REMOVED or REMOVED, and the word is REMOVED." in "".join(cassette.exchanges[0].chunks)
    with replay(cassette, secrets=("xyzzy",)) as server:
        assert ask(server.url, f"I am {KEY}")[0] == 200
        server.assert_finished()


def test_keys_in_the_path_are_removed() -> None:
    with WireServer("a", check=False) as upstream, record(upstream.url) as server:
        ask(server.url, path="/v1/messages?api_key=abc&version=2")
        assert server.cassette.exchanges[0].path == "/v1/messages?api_key=REMOVED&version=2"


def test_a_request_that_differs_is_refused() -> None:
    cassette, _ = recorded("a")
    with replay(cassette) as server:
        status, body = ask(server.url, "Something else")
        assert status == 400
        assert "['messages'][0]['content']" in body
        with pytest.raises(WireError, match="differs from the recorded one"):
            server.assert_finished()
    with replay(cassette) as server:
        with pytest.raises(WireError, match="1 of 1 recorded exchanges were not asked for"):
            server.assert_finished()
        ask(server.url)
        assert ask(server.url)[0] == 400
        with pytest.raises(WireError, match="request 2 was not recorded"):
            server.assert_finished()
    with replay(cassette) as server:
        ask(server.url, path="/v1/messages")
        with pytest.raises(WireError, match="request 1 is POST /v1/messages"):
            server.assert_finished()


def test_bytes_that_are_no_text_survive() -> None:
    exchange = RecordedExchange("POST", "/v1/messages", {}, 200, {}, (b"a\xff".decode("utf-8", "surrogateescape"),))
    assert Cassette.from_json(Cassette((exchange,)).to_json()).exchanges == (exchange,)


def test_what_is_no_cassette() -> None:
    with pytest.raises(ValueError, match="not a cassette"):
        Cassette.from_json("[]")
    with pytest.raises(ValueError, match="needs the URL"):
        record("api.example.org")
