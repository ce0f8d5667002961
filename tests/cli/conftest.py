"""Events made by hand, for renderers."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import pytest

from trilane.cli.app import run_app
from trilane.events import AgentEvent, Event, RunCompleted, ToolCompleted, ToolStarted
from trilane.messages import AssistantMessage, TextPart, ToolCall, ToolCallPart, ToolResult
from trilane.result import RunResult
from trilane.state import AgentPhase

E = TypeVar("E", bound=AgentEvent)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sessions of `trilane` are, which is run in an empty folder."""
    path = tmp_path / "sessions.sqlite3"
    monkeypatch.setenv("TRILANE_SESSIONS", str(path))
    monkeypatch.setenv("TRILANE_SQLITE_SYNCHRONOUS", "normal")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_")) or name in ("TRILANE_MODEL", "TRILANE_STORE"):
            monkeypatch.delenv(name)
    return path


@pytest.fixture
def trilane(place: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command line, in this process: exit status, stdout, stderr."""

    def run(*args: str) -> tuple[int, str, str]:
        status = run_app(args)
        out, err = capfd.readouterr()
        return status, out, err

    return run


class EventMaker:
    """Makes events with everything filled in that a test does not care about."""

    def __init__(self) -> None:
        self._seq = 0

    def __call__(self, kind: type[E], **values: Any) -> E:
        self._seq += 1
        values = {"phase": AgentPhase.READY, "run_id": "r1", "session_id": "s1", "seq": self._seq, **values}
        return kind(**values)

    def call(self, name: str = "count_words", id: str = "c1", /, **arguments: Any) -> ToolCall:
        return ToolCall(id=id, name=name, arguments=arguments)

    def message(self, text: str = "", *calls: ToolCall, **values: Any) -> AssistantMessage:
        parts = [TextPart(text=text)] if text else []
        return AssistantMessage(id="m1", parts=(*parts, *[ToolCallPart(call=call) for call in calls]), **values)

    def tool(self, call: ToolCall, content: str, outcome: str = "ok") -> list[Event]:
        result = ToolResult(call_id=call.id, content=content, outcome=outcome)  # type: ignore[arg-type]
        return [self(ToolStarted, call=call), self(ToolCompleted, call=call, result=result)]

    def completed(self, text: str, output: Any = None) -> RunCompleted:
        return self(RunCompleted, result=self.result(text, output=text if output is None else output))

    def result(self, text: str, **values: Any) -> RunResult[Any]:
        message = self.message(text) if text else None
        values = {"status": "completed", "run_id": "r1", "session_id": "s1", "message": message, **values}
        return RunResult(**values)


@pytest.fixture
def make() -> EventMaker:
    return EventMaker()


@pytest.fixture(scope="session")
def acting_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the plugin `acting` is installed; `-m acting:NAME` plays one of its scenes."""
    place = tmp_path_factory.mktemp("acting")
    code = (Path(__file__).parent / "acting_plugin.py.txt").read_text()
    (place / "acme_acting.py").write_text(code)
    info = place / "acme_acting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-acting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trilane]\nacting = acme_acting\n")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("TRILANE_", "OPENAI_", "ANTHR"))}
    sessions = str(place / "sessions.sqlite3")
    return {
        **keep,
        "TRILANE_SESSIONS": sessions,
        "PYTHONPATH": str(place),
        "COLUMNS": "80",
        "LINES": "24",
        "TERM": "xterm",
    }


_PIECE = re.compile(r"\r|\n|\x1b(?:\[(?P<amount>[0-9;?]*)(?P<code>[A-Za-z])|\][^\x07]*\x07)|[^\r\n\x1b]+")
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")


class Terminal:
    """A program on a pseudo-terminal of 24 lines and 80 columns."""

    def __init__(self, argv: list[str], environment: dict[str, str], cwd: Path) -> None:
        self._seen = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # Whoever runs the tests in the background ignores Ctrl-C; that would be handed on.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(cwd)
            os.execve(argv[0], argv, environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.status: int | None = None

    @property
    def text(self) -> str:
        """Everything that was written, without colours and cursor movements."""
        return _CONTROL.sub("", self._seen).replace("\r\n", "\n")

    @property
    def raw(self) -> str:
        return self._seen

    @property
    def rows(self) -> list[str]:
        """What stands on the terminal: every row from the first, also those that have scrolled away."""
        return rows_of(self._seen)

    def wait_for_row(self, row: str, seconds: float = 30) -> None:
        """Read until `row` stands somewhere."""
        deadline = monotonic() + seconds
        while row not in self.rows:
            shown = "\n".join(self.rows)
            assert self._read(deadline), f"no row {row!r} in:\n{shown}"

    def wait_for(self, text: str, seconds: float = 30) -> None:
        """Read until `text` has been written."""
        deadline = monotonic() + seconds
        while text not in self.text:
            assert self._read(deadline), f"no {text!r} in:\n{self.text}"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def finish(self, seconds: float = 30) -> int:
        """Read to the end and return the exit status."""
        deadline = monotonic() + seconds
        while self._read(deadline):
            pass
        assert monotonic() < deadline, f"still running:\n{self.text}"
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def hang_up(self) -> int:
        """Close the terminal while the program is on, and return its exit status."""
        os.close(self._fd)
        self._fd = -1
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(deadline - monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self._seen += data.decode("utf-8", "replace")
        return bool(data)

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self._fd >= 0:
            os.close(self._fd)


def rows_of(seen: str) -> list[str]:
    """The rows that codes and text leave on an endless terminal; understands what a chat and rich send."""
    rows = [""]
    row = column = 0
    for found in _PIECE.finditer(seen):
        piece = found[0]
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif piece.startswith("\x1b"):
            amount = int(found["amount"] or 1) if (found["amount"] or "1").isdigit() else 0
            if found["code"] == "A":
                row = max(row - amount, 0)
            elif found["code"] == "C":
                column += amount
            elif found["code"] == "J":
                rows[row] = rows[row][:column]
                del rows[row + 1 :]
            elif found["code"] == "K":
                rows[row] = ""
        else:
            rows[row] = rows[row][:column].ljust(column) + piece + rows[row][column + len(piece) :]
            column += len(piece)
    return [text.rstrip() for text in rows]


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Terminal]]:
    """Starts programs on terminals, and ends them after the test."""
    opened: list[Terminal] = []

    def start(argv: list[str], environment: dict[str, str], cwd: Path) -> Terminal:
        opened.append(Terminal(argv, environment, cwd))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
