"""A folder to read, with a secret beside it that no tool may ever show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trilane_files.bounded import Deadline
from trilane_files.confine import Root

SECRET = "SECRET beside the root"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every async test runs on both backends."""
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty root folder; `../secret.txt` and `../outside/` are outside."""
    (tmp_path / "secret.txt").write_text(SECRET, encoding="utf-8")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text(SECRET, encoding="utf-8")
    inner = tmp_path / "root"
    inner.mkdir()
    return inner


@pytest.fixture
def root(folder: Path) -> Root:
    return Root(str(folder))


@pytest.fixture
def write(folder: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file below the root, byte for byte, with the folders it needs."""

    def write_file(name: str, content: str | bytes = "") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def passed() -> Deadline:
    """A deadline that is over at the first look."""
    return Deadline(0.0, clock=lambda: 7.0)
