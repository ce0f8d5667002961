"""Every async test runs on both backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trilane_sqlite import SqliteStore


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "sessions.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path, synchronous="normal")
    yield made
    made.close()


@pytest.fixture
def other(path: Path) -> Iterator[SqliteStore]:
    """A second user of the same file."""
    made = SqliteStore(path, synchronous="normal")
    yield made
    made.close()
