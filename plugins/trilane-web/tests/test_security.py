"""Who may do what, from where; and what never leaves the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from websockets.exceptions import InvalidStatus

from trilane import Agent, ConfigError
from trilane.testing import ScriptedModel
from trilane_web import WebSettings, app
from trilane_web.client import RequestRefused
from trilane_web.principals import Principal
from trilane_web.serving import listen

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


def _agent() -> Agent[None, str]:
    return Agent(ScriptedModel(*["hello"] * 20))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_an_address_that_others_can_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="--token"):
        listen(host, 0, protected=False)
    with listen("127.0.0.1", 0, protected=False) as listener, pytest.raises(ConfigError, match="choose another --port"):
        listen("127.0.0.1", listener.getsockname()[1], protected=False)


async def test_a_token(serve: Serve) -> None:
    async with serve(_agent(), token="secret") as server:
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic secret"},
            {"authorization": "secret"},
        ):
            for method, path in (("GET", "/api/sessions"), ("POST", "/api/runs"), ("GET", "/api/runs/x/events")):
                status, answer, value = await server.http(method, path, headers=headers)
                assert (status, value["code"]) == (401, "not_authenticated")
                assert answer["www-authenticate"] == "Bearer"
        assert (await server.http("GET", "/api/me", headers={"authorization": "Bearer secret"}))[0] == 200
        async with server.wire(hello=False) as wire:
            assert (await wire.ask("hello", protocol=1, token="wrong"))["code"] == "not_authenticated"
            assert await wire.closed() == 1008
        async with server.wire(hello=False) as wire:
            assert (await wire.ask("hello", protocol=1))["code"] == "not_authenticated"
        async with server.wire(token="secret") as wire:
            assert (await wire.ask("start", text="hi"))["type"] == "run"
        async with server.wire(headers={"authorization": "Bearer secret"}) as wire:
            assert (await wire.ask("ping"))["type"] == "pong"
        with pytest.raises(RequestRefused) as caught:
            async with server.client(token="wrong"):
                pass
        assert caught.value.code == "not_authenticated"
        async with server.client(token="secret") as client:
            assert (await (await client.start("hi")).wait()).type == "run_completed"


async def test_the_hosts_own_authentication(serve: Serve) -> None:
    async def who(connection: HTTPConnection) -> str | None:
        return {"a": "ann"}.get(connection.headers.get("x-key", ""))

    async with serve(_agent(), authenticate=who) as server:
        assert (await server.http("GET", "/api/me"))[0] == 401
        _, _, me = await server.http("GET", "/api/me", headers={"x-key": "a"})
        assert me["principal"] == "ann"
        with pytest.raises(InvalidStatus, match="401"):
            async with server.wire():
                pass
        async with server.wire(headers={"x-key": "a"}) as wire:
            answer = await wire.ask("start", text="hi")
            assert answer["session"].startswith(Principal("ann").mark)
    with pytest.raises(ConfigError, match="not both"):
        app(_agent(), token="x", authenticate=who)


async def test_pages_of_other_origins_may_not_connect(serve: Serve) -> None:
    settings = WebSettings(allowed_origins=("https://shop.example",))
    async with serve(_agent(), settings=settings) as server:
        own = f"http://127.0.0.1:{server.port}"
        for origin in (
            "http://evil.example",
            "null",
            "",
            f"{own}.evil.example",
            "http://127.0.0.1:1",
            "https://[",
            "file://",
        ):
            with pytest.raises(InvalidStatus, match="403"):
                async with server.wire(headers={"origin": origin}):
                    pass
            status, _, _ = await server.http("POST", "/api/runs", {"text": "x"}, headers={"origin": origin})
            assert status == 403, origin
        for origin in (own, "https://shop.example", "https://SHOP.example/"):
            async with server.wire(headers={"origin": origin}) as wire:
                assert (await wire.ask("ping"))["type"] == "pong"


async def test_a_name_that_is_made_to_lead_here_is_refused(serve: Serve) -> None:
    """Else a page of that name would be of the server's own origin."""
    async with serve(_agent()) as server:
        evil = {"host": f"evil.example:{server.port}", "origin": f"http://evil.example:{server.port}"}
        for path in ("/", "/api/sessions", "/static/app.js"):
            assert (await server.http("GET", path, headers=evil))[0] == 403
        assert (await server.http("GET", "/", headers={"host": f"localhost:{server.port}"}))[0] == 200
    async with serve(_agent(), settings=WebSettings(allowed_hosts=("agent.example",))) as server:
        assert (await server.http("GET", "/", headers={"host": "agent.example"}))[0] == 200
        assert (await server.http("GET", "/"))[0] == 403


async def test_every_answer_has_its_guards(serve: Serve) -> None:
    async with serve(_agent()) as server:
        for path in ("/", "/static/app.js", "/static/style.css", "/api/sessions", "/api/none", "/none"):
            _, headers, _ = await server.http("GET", path)
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
        for path in ("/static/../application.py", "/static/%2e%2e/application.py", "/static/..%2fcommand.py"):
            assert (await server.http("GET", path))[0] == 404


async def test_no_traceback_for_clients(serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    async with serve(_agent()) as server:

        def broken(*args: Any, **options: Any) -> Any:
            raise RuntimeError("secret of the server")

        monkeypatch.setattr(server.web.runs.agent, "stream", broken)
        monkeypatch.setattr(server.web.runs.agent, "reply", broken)
        monkeypatch.setattr(server.web.runs, "seen", broken)
        async with server.wire() as wire:
            for kind, fields in (("start", {"text": "x"}), ("reply", {"session": "s", "question": "q"})):
                answer = await wire.ask(kind, **fields)
                assert answer["code"] == "failed"
                assert "secret" not in str(answer)
        for method, path, body in (("GET", "/api/sessions", None), ("POST", "/api/runs", {"text": "x"})):
            status, _, value = await server.http(method, path, body)
            assert (status, value["code"]) == (500, "failed")
            assert "secret" not in str(value)
    assert "secret of the server" in caplog.text


def test_ownership_is_in_the_id_and_cannot_be_guessed_across() -> None:
    ann, bob = Principal("ann"), Principal("bob")
    assert ann.owns(ann.new_session())
    assert not bob.owns(ann.new_session())
    assert not ann.owns("plain")
    assert ann.mark != Principal("ann ").mark
    assert Principal("local", owns_all=True).owns("anything")
