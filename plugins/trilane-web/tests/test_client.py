"""The Python client: which addresses it takes. What it does over a connection is in the tests of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trilane import Agent
from trilane.testing import ScriptedModel
from trilane_web.client import RequestRefused, connect

pytestmark = pytest.mark.anyio

Serve = Callable[..., Any]


@pytest.mark.parametrize("address", ["http://127.0.0.1:{}/", "http://127.0.0.1:{}", "ws://127.0.0.1:{}/ws"])
async def test_the_address_that_the_server_prints_will_do(serve: Serve, address: str) -> None:
    async with serve(Agent(ScriptedModel("Hello."))) as server:
        async with connect(address.format(server.port)) as client:
            run = await client.start("hi")
            assert (await run.wait()).type == "run_completed"


async def test_an_address_where_no_server_of_ours_is_ends_at_once(serve: Serve) -> None:
    async with serve(Agent(ScriptedModel("Hello."))) as server:
        with pytest.raises(RequestRefused, match=r"HTTP 403; its token, or the address ws://.*/other/ws, is another"):
            async with connect(f"http://127.0.0.1:{server.port}/other/"):
                pass


async def test_another_server_ends_at_once() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RequestRefused, match=r"there is no Trilane server at ws://.*: HTTP 404") as caught:
            async with connect(f"http://127.0.0.1:{port}/"):
                pass
    assert caught.value.code == "not_found"


@pytest.mark.parametrize("address", ["127.0.0.1:8765", "ftp://127.0.0.1/", "http://", ""])
async def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of a server; give one such as http://"):
        async with connect(address):
            pass
