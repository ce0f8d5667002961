"""What `import trilane` and building an agent must not load: it is on the path of every command and every worker."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Providers, command-line, web, test and documentation libraries, and the other backend.
FORBIDDEN = [
    "typer",
    "rich",
    "click",
    "openai",
    "anthropic",
    "google",
    "starlette",
    "uvicorn",
    "websockets",
    "httpx",
    "httpx2",
    "requests",
    "sybil",
    "pytest",
    "_pytest",
    "hypothesis",
    "trio",
    "mkdocs",
    "sqlite3",
    "trilane.cli",
    "trilane.testing",
    "trilane_files",
    "trilane_offline",
]

_IMPORT = "import trilane"
_BUILD = """
import trilane

@trilane.tool
def double(number: int) -> int:
    "Double a number."
    return 2 * number

class NoModel:
    name = "none"
    async def call(self, request, emit):
        raise AssertionError("not called")

trilane.Agent(NoModel(), tools=[double])
"""


@pytest.mark.parametrize("program", [_IMPORT, _BUILD], ids=["import", "build an agent"])
def test_no_library_of_others_is_loaded(program: str) -> None:
    report = f"{program}\nimport sys\nprint(*sorted(set({FORBIDDEN!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", report], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_the_command_line_helps_without_the_core_of_a_run() -> None:
    program = "import trilane.__main__, sys; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"]
