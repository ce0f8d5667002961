"""Fake distributions: folders with metadata and modules, as an installer would leave them."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pluggy  # noqa: F401  imported before the path is cut down to the fake distributions
import pydantic
import pytest
import trio  # noqa: F401

from trilane.plugins import warning

pydantic.create_model("Warm", size=(int, 1))  # a first model imports the rest of pydantic

Ship = Callable[..., Path]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRILANE_DISABLED_PLUGINS", raising=False)
    monkeypatch.setattr(warning, "_warned", set())
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ship]:
    """Installs fake distributions; nothing else is installed meanwhile.

    `ship("dist-name", {"plugin": "module"}, {"module": "source"})` returns the folder, which is put first on the path.
    """
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("-packages")])
    before = set(sys.modules)
    count = 0

    def install(
        distribution: str,
        plugins: Mapping[str, str] | str,
        modules: Mapping[str, str] | None = None,
        *,
        version: str = "1.0",
        last: bool = False,
    ) -> Path:
        nonlocal count
        count += 1
        folder = tmp_path / f"site{count}"
        info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = (
            plugins if isinstance(plugins, str) else "\n".join(f"{name} = {value}" for name, value in plugins.items())
        )
        (info / "entry_points.txt").write_text(f"[trilane]\n{lines}\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        for name, source in (modules or {}).items():
            (folder / f"{name}.py").write_text(source)
        sys.path.insert(len(sys.path) if last else 0, str(folder))
        return folder

    yield install
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin and origin.startswith(str(tmp_path)):
            del sys.modules[name]


class Gate:
    """Shared by a test and the module it imports."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    module = types.ModuleType("trilane_test_gate")
    found = module.__dict__["gate"] = Gate()
    monkeypatch.setitem(sys.modules, "trilane_test_gate", module)
    yield found
    found.go.set()
    for thread in threading.enumerate():
        if thread.name.startswith("trilane import"):
            thread.join()
