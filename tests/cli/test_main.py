"""The script itself: cheap help, a clear line without typer, usage errors, closed pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = "import sys; sys.argv[0] = 'trilane'; from trilane.__main__ import main; main()"


def _run(*args: str, code: str = MAIN, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **options,  # type: ignore[call-overload]
    )


def _modules_after(*args: str) -> set[str]:
    code = """
import sys
from trilane.__main__ import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print("MODULES", *sys.modules)
"""
    done = _run(*args, code=code)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("MODULES")[2].split())


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["plugins", "--help"], ["plugins", "order", "--help"]])
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    loaded = _modules_after(*args)
    heavy = {"pydantic", "pydantic_core", "pluggy", "rich", "anyio", "trio", "markdown_it", "pygments"}
    assert not heavy & loaded
    assert not {name for name in loaded if name.startswith(("trilane_", "trilane.plugins", "trilane.agent"))}
    assert "trilane.cli.app" in loaded


def _children_cpu(code: str, *args: str) -> float:
    """CPU seconds of a run, as the children's user and system time."""
    before = os.times()
    done = _run(*args, code=code)
    after = os.times()
    assert done.returncode == 0, done.stderr
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_help_costs_at_most_twice_the_interpreter_with_typer() -> None:
    """The cheapest of some runs of each, in turns; of more if the machine does much else."""
    bare = ours = float("inf")
    for rounds in range(20):
        bare = min(bare, _children_cpu("import typer"))
        ours = min(ours, _children_cpu(MAIN, "--help"))
        if rounds >= 4 and ours <= 2 * bare + 0.05:
            return
    pytest.fail(f"{ours:.2f} s, and {bare:.2f} for the interpreter with typer")


def test_without_typer_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None\n" + MAIN
    done = _run("--help", code=code)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pip install 'trilane[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_it_starts_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "trilane", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "trilane: interrupted\n")


def test_help_names_the_commands() -> None:
    done = _run("--help")
    assert done.returncode == 0
    for name in ("run", "plugins", "schema"):
        assert f"\n  {name} " in done.stdout


def test_version() -> None:
    from importlib.metadata import version

    assert _run("--version").stdout == f"trilane {version('trilane')}\n"


def test_schema_is_the_schema_of_the_events() -> None:
    from trilane.events import event_json_schema

    done = _run("schema")
    assert done.returncode == 0
    assert json.loads(done.stdout) == event_json_schema()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run"], "Missing argument"),
        (["run", "x", "--nope"], "No such option"),
        (["rnu"], "No such command"),
        (["run", "  \n"], "the request is empty"),
        (["run", "x", "-p", "files"], "write -p no:NAME"),
        (["run", "x", "--root", "no/such/folder"], "there is no such folder"),
        (["run", "x", "--max-turns", "0"], "--max-turns"),
        (["run", "x", "--model", "oflin"], "did you mean 'offline'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_status_2_and_one_explanation(args: list[str], says: str) -> None:
    done = _run(*args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_a_quiet_end() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "schema"], stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.fixture
def with_commands(tmp_path: Path) -> dict[str, str]:
    """An environment in which a distribution ships commands."""
    info = tmp_path / "acme_commands-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-commands\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[trilane.commands]\nhello = acme_commands:hello\nsuite = acme_commands:suite\nrun = acme_commands:hello\n"
        "broken = acme_broken:nothing\nodd = acme_commands:odd\n"
    )
    (tmp_path / "acme_commands.py").write_text(
        "import typer\nodd = 3\nsuite = typer.Typer()\n"
        "@suite.command()\ndef one() -> None: print('suite one')\n"
        "@suite.command()\ndef two() -> None: raise ValueError('two is broken')\n"
        "def hello(name: str) -> None: print('hello', name)\n"
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_commands_of_plugins_are_listed_without_importing_them(with_commands: dict[str, str]) -> None:
    code = MAIN.replace("main()", "\ntry: main()\nfinally: assert 'acme_commands' not in sys.modules")
    done = _run("--help", code=code, env=with_commands)
    assert done.returncode == 0, done.stderr
    listed = done.stdout.partition("Commands of plugins:")[2].split("\n")
    # Other plugins of this environment may have commands as well.
    assert [line.split() for line in listed if "acme-commands" in line] == [
        [name, "from", "acme-commands", "1.0"] for name in ("broken", "hello", "odd", "suite")
    ]


def test_commands_of_plugins_run(with_commands: dict[str, str]) -> None:
    assert _run("hello", "you", env=with_commands).stdout == "hello you\n"
    assert _run("suite", "one", env=with_commands).stdout == "suite one\n"
    assert "REQUEST" in _run("run", "--help", env=with_commands).stdout


@pytest.mark.parametrize(
    ("name", "says"), [("broken", "No module named 'acme_broken'"), ("odd", "neither a typer.Typer nor a function")]
)
def test_a_broken_command_of_a_plugin_is_explained(with_commands: dict[str, str], name: str, says: str) -> None:
    done = _run(name, env=with_commands)
    assert done.returncode == 1
    assert says in done.stderr
    assert f"the command '{name}' from acme-commands 1.0" in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_standard_streams_do_no_harm() -> None:
    shell = '"$0" -m trilane run "Which files are there?" --root "$1" >&- 2>&-'
    assert subprocess.run(["sh", "-c", shell, sys.executable, os.path.dirname(__file__)], check=False).returncode == 0


def test_help_on_a_full_disk_is_one_line() -> None:
    line = f"'{sys.executable}' -m trilane --help >/dev/full"
    done = subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("trilane: the output cannot be written:")
    assert len(done.stderr.splitlines()) == 1
