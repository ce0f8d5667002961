"""What the core needs, what the environment is pinned to, and who may depend on whom."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted((ROOT / "plugins").glob("*/pyproject.toml"))


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


ROOT_PROJECT = _read(ROOT / "pyproject.toml")


def test_the_core_needs_three_libraries() -> None:
    assert _names(ROOT_PROJECT["project"]["dependencies"]) == {"pluggy", "pydantic", "anyio"}


def test_the_environment_is_pinned() -> None:
    applies = {**default_environment(), "extra": ""}
    pins = {
        canonicalize_name(pin.name): str(pin.specifier)
        for pin in map(Requirement, ROOT_PROJECT["tool"]["uv"]["constraint-dependencies"])
        if pin.marker is None or pin.marker.evaluate(applies)
    }
    ours = {"trilane", *(canonicalize_name(_read(path)["project"]["name"]) for path in PLUGINS)}
    installed = {canonicalize_name(found.name): found.version for found in metadata.distributions()}
    assert len(pins) > 40
    assert {
        name: (version, pins.get(name))
        for name, version in installed.items()
        if name not in ours and pins.get(name) != f"=={version}"
    } == {}, "run `uv run .ci/pins.py`"


def test_every_plugin_is_in_the_environment_and_in_the_checks() -> None:
    tool = ROOT_PROJECT["tool"]
    assert len(PLUGINS) >= 2
    for path in PLUGINS:
        name = _read(path)["project"]["name"]
        module = name.replace("-", "_")
        assert path.parent.name == name
        assert name in _names([item for item in ROOT_PROJECT["dependency-groups"]["dev"] if isinstance(item, str)])
        assert tool["uv"]["sources"][name] == {"workspace": True}
        assert module in tool["importlinter"]["root_packages"]
        assert f"plugins/{name}/src" in tool["mypy"]["mypy_path"]
        assert (path.parent / "src" / module / "py.typed").is_file()


def test_the_import_contract_knows_every_private_module() -> None:
    contracts = {contract["id"]: contract for contract in ROOT_PROJECT["tool"]["importlinter"]["contracts"]}
    private = {path.stem for path in (ROOT / "src" / "trilane").glob("_[a-z]*")}
    assert set(contracts["private"]["protected_modules"]) == {f"trilane.{name}" for name in private}
    assert contracts["layers"]["exhaustive"] is True
    assert [layer for layer in contracts["layers"]["layers"] if "(" in layer] == [], "no optional layers"


def test_every_plugin_can_be_published_alone() -> None:
    for path in PLUGINS:
        project = _read(path)["project"]
        needs = {Requirement(text).name: Requirement(text).specifier for text in project["dependencies"]}
        assert needs["trilane"].contains(ROOT_PROJECT["project"]["version"])
        assert project["entry-points"].get("trilane") or project["entry-points"]["trilane.commands"]
        readme = (path.parent / project["readme"]).read_text(encoding="utf-8")
        assert len(readme.splitlines()) > 15, "install, hooks used, configuration, one example"
