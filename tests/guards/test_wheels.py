"""What is published works when installed: the wheels, into empty environments, core first, then each plugin alone."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Environment

    Fresh = Callable[[], Environment]

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = [path.parent.name for path in sorted((ROOT / "plugins").glob("*/pyproject.toml"))]

#: pluggy, pydantic and anyio, and what these need.
CORE = {
    "trilane",
    "pluggy",
    "pydantic",
    "pydantic-core",
    "annotated-types",
    "typing-inspection",
    "typing-extensions",
    "anyio",
    "idna",
}

#: What a plugin needs besides to be used, where the system may lack it.
EXTRAS = {"trilane-postgres": "[binary]"}

_PROGRAM = """
import trilane

class Greeter:
    name = "greeter"
    async def call(self, request, emit):
        return trilane.ModelResponse(parts=(trilane.TextPart(text="hello"),), stop_reason="end")

print(trilane.Agent(Greeter()).run_sync("hi").output, trilane.__file__)
"""


def test_every_package_has_a_wheel(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {"trilane", *PLUGINS}


def test_the_core_alone(wheels: dict[str, Path], environment: Fresh) -> None:
    alone = environment()
    alone.install(wheels["trilane"])
    assert alone.installed() <= CORE
    said, where = alone.output("python", "-W", "error", "-c", _PROGRAM).split()
    assert said == "hello"
    assert Path(where).is_relative_to(alone.where)
    without_typer = alone.run("trilane", "--help")
    assert without_typer.returncode != 0
    assert "trilane[cli]" in without_typer.stdout + without_typer.stderr


def _project(name: str) -> str:
    return (ROOT / "plugins" / name / "pyproject.toml").read_text(encoding="utf-8")


def test_the_command_line_finds_the_installed_plugins(wheels: dict[str, Path], environment: Fresh) -> None:
    full = environment()
    full.install(f"trilane[cli] @ {wheels['trilane'].as_uri()}", *(wheels[name] for name in PLUGINS))
    usage = full.output("trilane", "--help")
    assert "run" in usage
    listing = full.output("trilane", "plugins", "list")
    # One that only brings a command is not loaded for runs, and so not in the list of plugins.
    only_commands = [name for name in PLUGINS if "entry-points.trilane]" not in _project(name)]
    hooked = [name for name in PLUGINS if name not in only_commands]
    assert [name for name in hooked if name.removeprefix("trilane-") not in listing] == []
    assert [name for name in only_commands if f"from {name} " not in usage] == []
    assert "failed" not in listing


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_has_a_test_that_runs_the_kit_on_it(name: str) -> None:
    points = tomllib.loads(_project(name))["project"]["entry-points"].get("trilane", {})
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "plugins" / name / "tests").rglob("test_*.py"))
    # One that only brings a command has no entry in the list of plugins; it may register one itself all the same.
    wanted = [f'assert_plugin("{point}"' for point in points] or ["assert_plugin("]
    assert [text for text in wanted if text not in tests] == []


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_alone_passes_its_own_tests(wheels: dict[str, Path], environment: Fresh, name: str) -> None:
    alone = environment()
    plugin = f"{name}{EXTRAS.get(name, '')} @ {wheels[name].as_uri()}"
    alone.install(f"trilane[testing] @ {wheels['trilane'].as_uri()}", plugin)
    assert alone.installed() & set(PLUGINS) == {name}
    settings = alone.where / "pytest.ini"
    settings.write_text("[pytest]\naddopts = --import-mode=importlib --strict-markers\n", encoding="utf-8")
    tests = ROOT / "plugins" / name / "tests"
    cut = ("-p", "no:cacheprovider", "-c", settings, "--rootdir", tests, "--confcutdir", tests)
    # What could be missing here is a package or a file, not a backend or patience: those on trio, and the slow ones,
    # ran with all the other tests. Their modules are imported all the same.
    left_out = ("trio", "kill", "race", "test_long_sessions", "test_lossy_network", "test_fuzz")
    chosen = " and ".join(f"not {word}" for word in left_out)
    alone.output("python", "-m", "pytest", "-q", "-k", chosen, *cut, tests)
