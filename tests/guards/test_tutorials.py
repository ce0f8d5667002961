"""Types every tutorial as a reader would: a fresh folder, a fresh environment, the files and commands of the page.

What a page has to keep to, so that it can be typed:

- a block with a file's name as its title is that file, as it then is; Python blocks without a title go below what the
  file had before. What such a file prints when it is run at the end is what the blocks titled `Output` show;
- a line of a `console` block that begins with `$` is typed, those below it are what is then seen; `...` stands for
  what differs from time to time: a part of a line, or, alone, some lines;
- a `console` block with a title is another terminal, whose last command goes on; `^C` ends it there.

pip gets the built wheels and is played by uv, the port 8765 is a free one. Nothing else is exchanged.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PATIENCE = 120.0

_BLOCK = re.compile(r"^```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]*)"')
_SHELL = """
python() {{ if [ "$1 $2" = "-m venv" ]; then uv venv -q --python {python} "$3"; else command python "$@"; fi; }}
uv() {{ HOME={home} {uv} "$@"; }}
pip() {{
    case $1 in
        install) uv pip install -q --offline --find-links {wheels} "${{@:2}}" 2>/dev/null \
            || uv pip install -q --find-links {wheels} "${{@:2}}";;
        wheel) uv build -q --wheel --offline --no-build-isolation --python {python} --out-dir dist . ;;
        *) echo "no such command of pip here: $1"; false;;
    esac
}}
trap : INT
"""


class Block(NamedTuple):
    language: str
    title: str
    body: str
    line: int


def blocks_of(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        title = _TITLE.search(found["options"])
        yield Block(found["language"], title[1] if title else "", found["body"], page.count("\n", 0, found.start()) + 1)


def typed(body: str) -> Iterator[tuple[str, str]]:
    """Each command with what is shown below it; `^C` is a command too."""
    command, shown = "", ""
    for line in body.splitlines():
        if line.startswith("$ ") or line == "^C":
            if command or shown:
                yield command, shown
            command, shown = line.removeprefix("$ "), ""
        elif line.startswith("> ") and not shown:
            command += "\n" + line.removeprefix("> ")
        else:
            shown += line + "\n"
    yield command, shown


def matches(shown: str, seen: str) -> bool:
    """Whether `seen` is what the page shows, `...` aside."""
    pattern = ""
    for line in (line.rstrip() for line in shown.rstrip().splitlines()):
        wild = ".*".join(re.escape(part) for part in line.split("..."))
        pattern += r"(?:[^\n]*\n)*?" if line == "..." else wild + r"[ ]*\n"
    return re.fullmatch(pattern, seen.strip("\n").rstrip() + "\n" if seen.strip() else "") is not None


class Terminal:
    """A shell into which commands are typed; what one leaves behind (folder, environment) is there for the next."""

    def __init__(self, folder: Path, environment: dict[str, str], functions: str) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._keys, self._screen = self._shell.stdin, self._shell.stdout
        self._command = self._seen = ""
        self._count = 0
        self._send(functions)

    def _send(self, text: str) -> None:
        self._keys.write(text.encode() + b"\n")
        self._keys.flush()

    def type(self, command: str) -> None:
        """Start a command."""
        self._count += 1
        self._command, self._seen = command, ""
        self._send(f"{{ {command}\n}} </dev/null\necho; echo 'prompt {self._count}'")

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._seen = ""
        os.killpg(self._shell.pid, signal.SIGINT)

    def _read(self, deadline: float) -> None:
        ready, _, _ = select.select([self._screen], [], [], max(0.0, deadline - monotonic()))
        data = os.read(self._screen.fileno(), 65536) if ready else b""
        if not data:
            raise AssertionError(f"{self._command}: nothing more is seen after:\n{self._seen}")
        self._seen += data.decode()

    def until_prompt(self) -> str:
        """What the command printed, when it has ended."""
        deadline, prompt = monotonic() + PATIENCE, f"\nprompt {self._count}\n"
        while prompt not in self._seen:
            self._read(deadline)
        return self._seen.partition(prompt)[0]

    def until(self, shown: str) -> None:
        """Wait until a command that goes on has printed what the page shows."""
        deadline = monotonic() + PATIENCE
        while not matches(shown, self._seen):
            self._read(deadline)

    def close(self) -> None:
        """End the shell and whatever runs in it."""
        try:
            os.killpg(self._shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._shell.wait()
        self._keys.close()
        self._screen.close()


class Reader:
    """Follows one page in a folder of its own."""

    def __init__(self, page: Path, folder: Path, open_terminal: Callable[[Path], Terminal]) -> None:
        self._page, self._folder, self._open = page, folder, open_terminal
        self._terminals: dict[str, Terminal] = {}
        self._place = folder
        self._file = ""
        self._files: dict[str, str] = {}
        self._outputs: dict[str, str] = {}

    def follow(self, text: str) -> None:
        """Do what the page says; fails where something else is seen than what it shows."""
        try:
            for block in blocks_of(text):
                if block.language == "console":
                    self._type(block)
                elif block.title == "Output":
                    self._outputs[self._file] = self._outputs.get(self._file, "") + block.body
                elif block.title or block.language == "python":
                    self._write(block)
            for name, shown in self._outputs.items():
                self._command("", f"python {name}", shown, 0)
        finally:
            for terminal in self._terminals.values():
                terminal.close()

    def _write(self, block: Block) -> None:
        if block.title:
            self._file = block.title
            self._files[self._file] = block.body
        else:
            assert self._file, f"line {block.line}: into which file does this go?"
            self._files[self._file] += "\n\n" + block.body
        place = self._place / self._file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self._files[self._file], encoding="utf-8")

    def _type(self, block: Block) -> None:
        commands = list(typed(block.body))
        for number, (command, shown) in enumerate(commands):
            stays = bool(block.title) and number == len(commands) - 1 and command != "^C"
            self._command(block.title, command, shown, block.line, stays=stays)

    def _command(self, title: str, command: str, shown: str, line: int, *, stays: bool = False) -> None:
        if title not in self._terminals:
            self._terminals[title] = self._open(self._place)
        terminal = self._terminals[title]
        if command == "^C":
            terminal.interrupt()
        else:
            terminal.type(command)
        where = f"{self._page.name}:{line}: {command}"
        if stays:
            terminal.until(shown)
            return
        seen = terminal.until_prompt()
        assert matches(shown, seen), f"{where}\nthe page shows:\n{shown}\nwhat is seen:\n{seen}"
        if not title and (moved := re.match(r"(?:mkdir (?:-p )?\S+ && )?cd (\S+)", command)):
            self._place = (self._place / moved[1]).resolve()


@pytest.fixture(scope="session")
def open_terminal(
    wheels: dict[str, Path], uv: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Terminal]:
    home = tmp_path_factory.mktemp("home")
    keep = ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "XDG_CACHE"))}
    environment |= {"HOME": str(home), "PYTHONUNBUFFERED": "1", "TERM": "dumb"}
    where = next(iter(wheels.values())).parent
    functions = _SHELL.format(python=sys.executable, uv=uv, home=os.environ.get("HOME", home), wheels=where)
    return lambda folder: Terminal(folder, environment, functions)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_the_tutorials_were_found() -> None:
    assert len(PAGES) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_tutorial_shows_is_what_its_reader_sees(
    page: Path, tmp_path: Path, open_terminal: Callable[[Path], Terminal]
) -> None:
    text = page.read_text(encoding="utf-8").replace("8765", _free_port())
    assert "$ pip install" in text, "it begins with what has to be installed"
    Reader(page, tmp_path, open_terminal).follow(text)


def test_something_else_than_the_page_shows_is_noticed() -> None:
    assert matches("a\n...\nb ... c\n", "a\nx\ny\nb 12 c\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a\nb\n", "a\n")
    assert matches("", "\n")
    assert list(typed("$ one\n1\n$ two\n> more\n2\n^C\nbye\n")) == [
        ("one", "1\n"),
        ("two\nmore", "2\n"),
        ("^C", "bye\n"),
    ]
