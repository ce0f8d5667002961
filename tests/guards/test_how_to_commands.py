"""Types the commands of the how-to pages, and compares what is seen with what they show.

A page's reader has an agent, a session or a server of their own; here each page gets one. Ids, ports and addresses of
the page are exchanged for those that are there, and what takes minutes is asked for in a smaller number. What cannot be
typed here is listed with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .test_tutorials import ROOT, Block, Terminal, _free_port, blocks_of, matches, typed

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
CURL, SERVER = "curl", "PostgreSQL"

#: Page -> command, by its beginning -> why it is not typed here.
ELSEWHERE = {
    "keep-sessions-in-postgresql": {"pip install": "tutorials install wheels"},
    "publish-a-plugin": {"": "test_new_plugin.py and the tutorial on publishing type it in an environment of its own"},
    "serve-an-agent-to-a-browser": {
        "pip install": "tutorials install wheels",
        "trilane serve my_agents:helper --host 0.0.0.0": "tests serve this machine only",
    },
    "use-real-models": {"": "needs keys and servers; the suites of the providers play them"},
}

#: What the pages show of sessions and runs: ids, and how the machine happened to share out races.
_ID, _COUNTS = re.compile(r"\b[0-9a-f]{24}\b"), re.compile(r"\b\d+\b")


def commands_of(page: Path) -> list[tuple[Block, str, str]]:
    """Each command of a page with its block and what is shown below it, but those that are typed elsewhere."""
    skipped = ELSEWHERE.get(page.stem, {})
    found = []
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.language == "bash":
            found.append((block, block.body.strip(), ""))
        elif block.language == "console":
            found += [(block, command, shown) for command, shown in typed(block.body)]
    return [one for one in found if not any(one[1].startswith(start) for start in skipped)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    home = tmp_path / "home"
    home.mkdir()
    return keep | {"PATH": path, "HOME": str(home), "PYTHONUNBUFFERED": "1", "TERM": "dumb"}


@pytest.fixture
def open_terminal(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[[], Terminal]]:
    opened: list[Terminal] = []

    def open_one() -> Terminal:
        opened.append(Terminal(tmp_path, environment, "trap : INT"))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


def seen_after(terminal: Terminal, command: str) -> str:
    terminal.type(command)
    return terminal.until_prompt().strip("\n")


def _recorded(terminal: Terminal, folder: Path) -> str:
    """A session of the offline model, and its id."""
    (folder / "notes.txt").write_text("Sail at dawn.", encoding="utf-8")
    seen_after(terminal, 'trilane run "Which files are there?"')
    found = re.search(r"[0-9a-f]{8,}", seen_after(terminal, "trilane sessions list"))
    assert found is not None
    return found[0]


def test_every_command_is_typed_here_or_elsewhere() -> None:
    typed_here = {page.stem for page in PAGES if commands_of(page)}
    assert typed_here == {
        "chat-in-a-terminal",
        "keep-sessions-in-postgresql",
        "replay-a-session",
        "serve-an-agent-to-a-browser",
        "write-a-store",
    }
    assert ELSEWHERE.keys() <= {page.stem for page in PAGES}


def test_chat_without_a_terminal(open_terminal: Callable[[], Terminal], tmp_path: Path) -> None:
    (tmp_path / "sea.txt").write_text("Ships.", encoding="utf-8")
    ((_, command, _),) = commands_of(ROOT / "docs" / "how-to" / "chat-in-a-terminal.md")
    terminal = open_terminal()
    seen = seen_after(terminal, f"{command}\necho status $?")
    assert "sea.txt" in seen
    assert seen.endswith("status 0")


def test_replay_a_session(open_terminal: Callable[[], Terminal], tmp_path: Path) -> None:
    terminal = open_terminal()
    session = _recorded(terminal, tmp_path)
    for _, command, shown in commands_of(ROOT / "docs" / "how-to" / "replay-a-session.md"):
        wild = re.sub(r"\d+ things", "... things", _ID.sub("...", shown))
        seen = seen_after(terminal, command.replace("25a15c", session[:8]))
        assert matches(wild, seen), f"{command}\nthe page shows:\n{wild}\nwhat is seen:\n{seen}"


def test_serve_an_agent(open_terminal: Callable[[], Terminal], tmp_path: Path) -> None:
    if shutil.which(CURL) is None:
        pytest.skip(f"not installed: {CURL}")
    (tmp_path / "my_agents.py").write_text('from trilane import Agent\n\nhelper = Agent("offline", name="helper")\n')
    port, run = _free_port(), ""
    serve, *requests = commands_of(ROOT / "docs" / "how-to" / "serve-an-agent-to-a-browser.md")
    server, client = open_terminal(), open_terminal()
    server.type(f"{serve[1]} --port {port}")
    server.until(serve[2].replace("8765", port))
    assert len(requests) == 2
    for _, command, shown in requests:
        seen = seen_after(client, command.replace("8765", port).replace("RUN", run))
        assert not shown or matches(shown, seen), f"{command}\nthe page shows:\n{shown}\nwhat is seen:\n{seen}"
        run = run or re.findall(r'"run":"([^"]+)"', seen)[0]
    assert "run_completed" in seen
    server.interrupt()
    server.until_prompt()


def test_keep_sessions_in_postgresql(open_terminal: Callable[[], Terminal], tmp_path: Path) -> None:
    from trilane_postgres.testing import TemporaryServer, find_programs

    if not find_programs() or shutil.which("pg_dump") is None:
        pytest.skip(f"not installed: {SERVER}")
    terminal = open_terminal()
    seen_after(terminal, 'trilane run --session harbour "Which files are there?"')
    with TemporaryServer() as server:
        for _, command, _ in commands_of(ROOT / "docs" / "how-to" / "keep-sessions-in-postgresql.md"):
            here = re.sub(r"postgresql://localhost/\w+", f"'{server.dsn}'", command)
            assert seen_after(terminal, f"set -o pipefail; {here}\necho status $?").endswith("status 0"), here
        assert "harbour" in seen_after(terminal, "trilane sessions list")  # of the database, as it was exported
    assert "Which files are there?" in (tmp_path / "sessions.sql").read_text(encoding="utf-8")


def test_write_a_store(open_terminal: Callable[[], Terminal]) -> None:
    terminal = open_terminal()
    for _, command, shown in commands_of(ROOT / "docs" / "how-to" / "write-a-store.md"):
        few = command.replace("--twice 200", "--sample 6").replace("--rounds 1000", "--rounds 5")
        assert few != command, "what takes minutes has a number that can be made smaller"
        seen = seen_after(terminal, few)
        wild = _COUNTS.sub("...", shown).replace("... failed", "0 failed").replace("... problems", "0 problems")
        assert matches(wild, seen), f"{few}\nthe page shows:\n{wild}\nwhat is seen:\n{seen}"
