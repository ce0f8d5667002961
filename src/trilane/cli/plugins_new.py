"""`trilane plugins new` and `trilane plugins test`: for authors of plugins. What is written is in `scaffold.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from .console import UsageError, say

__all__ = ["command_new", "command_test"]


def command_new(
    name: Annotated[str, typer.Argument(help="Name of the plugin: hello, web-search.", metavar="NAME")],
    kind: Annotated[str, typer.Option(help="tools, provider, guard, observer or store.", metavar="KIND")] = "tools",
    path: Annotated[
        Path | None, typer.Option(help="Folder to write; trilane-NAME without it.", metavar="PATH", show_default=False)
    ] = None,
) -> None:
    """Write a complete plugin project: code, tests that pass, README, packaging and CI."""
    from .scaffold import write_project

    folder, written = write_project(name, kind, path)
    for place in written:
        print(folder / place)
    say(f"Next: cd {folder} && pip install -e '.[dev]' && trilane plugins list && trilane plugins test")


def command_test(
    path: Annotated[Path, typer.Argument(help="Folder of the project.", metavar="PATH")] = Path(),
    options: Annotated[
        list[str] | None, typer.Argument(help="Passed to pytest.", metavar="[PYTEST OPTIONS]", show_default=False)
    ] = None,
) -> None:
    """Run the tests of a plugin project. Exit status: that of pytest."""
    from importlib.util import find_spec

    if str(path).startswith("-"):  # an option of pytest, and no folder: the current one
        path, options = Path(), [str(path), *(options or [])]
    if not (path / "pyproject.toml").is_file():
        raise UsageError(f"{path / 'pyproject.toml'} does not exist; give the folder of a plugin's project")
    if find_spec("pytest") is None:
        raise UsageError("pytest is not installed; install it with: pip install 'trilane[testing]'")
    source = str((path / "src").resolve())
    search = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "pytest", *(options or [])]
    done = subprocess.run(command, cwd=path, env={**os.environ, "PYTHONPATH": search}, check=False)
    raise typer.Exit(done.returncode)
