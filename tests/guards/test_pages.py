"""What pages show must be so: commands exist and take these options, tables are what was measured and tested."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer

from trilane import Agent
from trilane.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *ROOT.glob("plugins/*/README.md")))
TUTORIALS = set(DOCS.glob("tutorials/*.md"))  # typed for real by test_tutorials.py
_SHELL = re.compile(r"^ *```(?:console|sh|bash)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
#: What may be typed besides what Trilane brings. A page that needs something else should say how to get it.
PROGRAMS = {"cd", "npm", "mkdir", "ls", "cat", "grep", "export", "curl", "printf", "echo", "sudo", "docker", "pg_dump"}
PROJECT_FILES = {"benchmarks/run.py", "docs/_generate.py", ".ci/pins.py"}


def _lines(page: Path) -> Iterator[str]:
    """What a reader of the page would type, line by line."""
    for block in _SHELL.findall(page.read_text(encoding="utf-8")):
        lines = [line.strip() for line in block.splitlines()]
        if any(line.startswith("$ ") for line in lines):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        yield from (line for line in lines if line)


def _words(line: str) -> Iterator[list[str]]:
    """The commands of a line, each as its words, without what stands before (`NAME=value`) and after (`# why`)."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|;&"):
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []
        else:
            words.append(word)


TYPED = [
    pytest.param(page, words, id=f"{page.relative_to(ROOT)}: {' '.join(words)[:60]}")
    for page in PAGES
    if page not in TUTORIALS
    for line in _lines(page)
    for words in _words(line)
]


def test_there_are_commands_to_check() -> None:
    assert len(TYPED) > 40


@pytest.mark.parametrize(("page", "words"), TYPED)
def test_a_command_on_a_page_can_be_typed(page: Path, words: list[str]) -> None:
    """Whether there is such a program, such a command, and such options."""
    if words[:2] == ["uv", "run"]:
        words = words[2:]
        while words and words[0].startswith("--"):
            words = words[2:] if words[0] == "--group" else words[1:]
        words = ["python", *words] if words[0].endswith(".py") else words
    program, *rest = words
    match program:
        case "trilane":
            _check_trilane(rest)
        case "pip":
            _check_pip(rest)
        case "python":
            _check_python(rest)
        case "." | "source":
            assert rest == [".venv/bin/activate"]
        case _:
            assert program in PROGRAMS | {"pytest", "ruff", "mypy", "lint-imports", "mkdocs", "uv"}, "what is this?"


def _check_trilane(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "get_command") and not words[0].startswith("-"):
        name = words.pop(0)
        known = command
        command = command.get_command(None, name)
        assert command is not None, f"{known.name} has no command {name}"
    options = {option for item in command.params for option in (*item.opts, *item.secondary_opts)} | {"--help"}
    typed = [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    if command.name != "test":  # hands what it does not know on to pytest
        assert [option for option in typed if option not in options] == []


def _check_pip(words: list[str]) -> None:
    assert words[0] in ("install", "wheel")
    ours = {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")} | {"trilane"}
    for word in words[1:]:
        found = re.fullmatch(r"(trilane[\w-]*)(?:\[([\w,]+)\])?", word)
        if not found:
            continue
        assert found[1] in ours, "there is no such distribution"
        extras = set(metadata.metadata(found[1]).get_all("Provides-Extra") or [])
        assert set(filter(None, (found[2] or "").split(","))) <= extras


def _check_python(words: list[str]) -> None:
    if words[0] == "-m":
        assert words[1] in ("venv", "pytest", "mkdocs", "build") or _is_module(words[1])
    elif "/" in words[0]:
        assert (ROOT / words[0]).is_file(), "there is no such file in the repository"


def _is_module(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def test_the_settings_of_an_agent_are_its_arguments() -> None:
    page = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    section = page.partition("## Settings of an agent")[2].partition("\n## ")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE))
    takes = inspect.signature(Agent).parameters
    assert {name: default for name, default in shown.items() if name not in takes} == {}
    made = {name: "none" if takes[name].default == () else str(takes[name].default) for name in shown}
    assert shown == made
    plain = (bool, int, float)
    assert {name for name, one in takes.items() if isinstance(one.default, plain)} <= set(shown), "add a row for it"


def test_the_table_of_providers_is_of_the_suite_that_the_tests_run() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        import _providers
    finally:
        sys.path.remove(str(DOCS))
    written: dict[str, dict[str, bool]] = json.loads(_providers.RESULTS.read_text(encoding="utf-8"))
    assert sorted(written) == sorted(_providers.adapters())
    for provider, found in written.items():
        assert list(found) == _providers.checks(), "run: uv run python docs/_providers.py"
        assert [check for check, passed in found.items() if not passed] == [], provider


def test_the_moving_picture_is_what_the_command_shows() -> None:
    command = [sys.executable, str(DOCS / "_terminal.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_with_a_program_is_run() -> None:
    programs = {page for page in PAGES if "\n```python" in page.read_text(encoding="utf-8")} - TUTORIALS
    named = {str(page.relative_to(ROOT)) for page in programs} - {"CONTRIBUTING.md"}
    assert "docs/cheat-sheet.md" in named
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *sorted(named)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert {line.partition("::")[0] for line in done.stdout.splitlines() if "::line" in line} == named, done.stdout


def test_the_programs_with_a_database_print_what_the_page_shows() -> None:
    """They need a server, so they are no blocks that run everywhere."""
    from trilane_postgres.testing import TemporaryServer, find_programs

    if not find_programs():
        pytest.skip(f"not installed: {'PostgreSQL'}")
    page = (DOCS / "how-to" / "keep-sessions-in-postgresql.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```py\n(.*?)^```\n+```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    with TemporaryServer() as server:
        for program, shown in programs:
            text = program.replace("postgresql://localhost/app?", f"{server.dsn}&")
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
            assert (done.stdout, done.returncode) == (shown, 0), done.stderr


def test_a_queue_is_as_far_ahead_as_the_page_says() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import ahead
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    written = json.loads(ahead.RESULTS.read_text(encoding="utf-8"))["channels"]
    assert {name: row["pieces_ahead"] for name, row in written.items()} == {
        channel: asyncio.run(ahead.measure(channel))["pieces_ahead"] for channel in ahead.CHANNELS
    }


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for wrong in (["trilane", "rnu"], ["trilane", "run", "--fast"], ["pip", "install", "trilane-nothing"], ["brew"]):
        with pytest.raises(AssertionError):
            test_a_command_on_a_page_can_be_typed(DOCS, wrong)
    assert list(_words("A=1 trilane run 'x | y' && cd z # why")) == [["trilane", "run", "x | y"], ["cd", "z"]]


def test_the_help_of_the_programs_that_pages_name_can_be_shown() -> None:
    for module in ("trilane", "trilane.testing.faults", "trilane.testing.kills"):
        done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
