"""What several guards look at and what is dear to make, once per session: the built documentation, the built wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: looks at pages in a real Chromium")


def _run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run to the end; the caller looks at the return code."""
    clean = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def _checked(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{' '.join(done.args)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built strictly: a dead link or an unknown reference fails it."""
    target = tmp_path_factory.mktemp("site")
    # The theme prints a notice about mkdocs 2 on every build.
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", target)
    _checked(_run(*command, env={"NO_MKDOCS_2_WARNING": "1"}))
    return target


@pytest.fixture(scope="session")
def uv() -> str:
    """The uv that runs us, or the one on the path."""
    found = os.environ.get("UV") or shutil.which("uv")
    assert found, "uv is needed to build and install the wheels: pip install uv"
    return found


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory, uv: str) -> dict[str, Path]:
    """Distribution name -> its wheel, of the core and of every plugin."""
    target = tmp_path_factory.mktemp("wheels")
    # hatchling is in the development environment, so building needs no package index.
    isolation = ("--no-build-isolation", "--offline", "--python", sys.executable)
    _checked(_run(uv, "build", "-q", "--wheel", "--all-packages", "--out-dir", target, *isolation))
    return {path.name.split("-")[0].replace("_", "-"): path for path in sorted(target.glob("*.whl"))}


class Environment:
    """A fresh virtual environment with what was installed into it."""

    def __init__(self, where: Path, uv: str) -> None:
        self.where = where
        self._uv = uv
        _checked(_run(uv, "venv", "-q", "--python", sys.executable, where))

    def install(self, *requirements: str | Path) -> None:
        """Install, from uv's cache if everything is there, else through the package index."""
        command = (self._uv, "pip", "install", "-q", "--python", self.where / "bin" / "python")
        if _run(*command, "--offline", *requirements, cwd=self.where).returncode:
            _checked(_run(*command, *requirements, cwd=self.where))

    def installed(self) -> set[str]:
        """Names of the installed distributions."""
        listing = _checked(_run(self._uv, "pip", "freeze", "--python", self.where / "bin" / "python", cwd=self.where))
        return {line.split("==")[0].split(" @ ")[0].lower() for line in listing.splitlines()}

    def run(
        self, program: str, *arguments: str | Path, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, from a folder where the checkout is not importable."""
        return _run(self.where / "bin" / program, *arguments, cwd=self.where, env=env)

    def output(self, program: str, *arguments: str | Path, env: dict[str, str] | None = None) -> str:
        """Run it; what it prints. Fails if it fails."""
        return _checked(self.run(program, *arguments, env=env))

    def install_project(self, folder: Path) -> None:
        """Build a project's wheel with what the development environment has, and install that."""
        isolation = ("--no-build-isolation", "--offline", "--python", sys.executable)
        _checked(_run(self._uv, "build", "-q", "--wheel", folder, "--out-dir", folder / "dist", *isolation))
        python = self.where / "bin" / "python"
        command = (self._uv, "pip", "install", "-q", "--no-deps", "--offline", "--python", python)
        _checked(_run(*command, *(folder / "dist").glob("*.whl"), cwd=self.where))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, uv: str) -> Callable[[], Environment]:
    """Makes fresh virtual environments."""
    return lambda: Environment(tmp_path_factory.mktemp("environment") / "venv", uv)
