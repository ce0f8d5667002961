"""A test that says it runs on trio runs on trio: in some configurations it would run on asyncio, and could pass."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import trio


def _running() -> str:
    if trio.lowlevel.in_trio_run():
        return "trio"
    asyncio.get_running_loop()
    return "asyncio"


@pytest.mark.anyio
async def test_an_anyio_test_runs_on_its_backend(anyio_backend_name: str) -> None:
    assert _running() == anyio_backend_name


@pytest.mark.asyncio
async def test_an_asyncio_test_runs_on_asyncio() -> None:
    assert _running() == "asyncio"


def test_the_test_above_ran_on_both(request: pytest.FixtureRequest) -> None:
    ids = {item.name for item in request.session.items if item.path == request.path}
    wanted = {f"test_an_anyio_test_runs_on_its_backend[{name}]" for name in ("asyncio", "trio")}
    assert wanted <= ids or "test_an_anyio_test_runs_on_its_backend[" not in " ".join(ids)


def test_every_async_test_of_this_session_has_a_backend(request: pytest.FixtureRequest) -> None:
    functions = [item for item in request.session.items if isinstance(item, pytest.Function)]
    awaited = [item for item in functions if inspect.iscoroutinefunction(inspect.unwrap(item.obj))]
    marked = [item for item in awaited if item.get_closest_marker("asyncio") is None]
    assert [item.nodeid for item in marked if "anyio_backend" not in item.fixturenames] == []
