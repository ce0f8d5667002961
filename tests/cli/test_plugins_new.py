"""`trilane plugins new` and `test`: what is written, and what cannot be.

That a project of each kind is installed, used and tested is in `tests/guards/test_new_plugin.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trilane.cli.app import run_app
from trilane.cli.scaffold import KINDS


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)


def test_what_is_written_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        assert run_app(["plugins", "new", f"my-{kind}", "--kind", kind, "--path", str(tmp_path / kind)]) == 0
    check = _run(sys.executable, "-m", "ruff", "check", "--no-cache", tmp_path, cwd=tmp_path)
    assert (check.returncode, check.stdout.strip()) == (0, "All checks passed!")
    form = _run(sys.executable, "-m", "ruff", "format", "--no-cache", "--diff", tmp_path, cwd=tmp_path)
    assert form.returncode == 0, form.stdout
    found = [tmp_path / kind / folder for kind in KINDS for folder in ("src", "tests")]
    options = ("--strict", "--explicit-package-bases", "--cache-dir", tmp_path / "cache")
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(str(tmp_path / kind / "src") for kind in KINDS))
    types = _run(sys.executable, "-m", "mypy", *options, *found, cwd=tmp_path)
    assert types.returncode == 0, types.stdout
    left = [path for path in tmp_path.rglob("*") if path.is_file() and "@" in path.name]
    assert left == []


def test_the_project_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "there"
    assert run_app(["plugins", "new", "trilane-web-search", "--path", str(target)]) == 0
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()) == [
        ".github/workflows/test.yml",
        ".gitignore",
        "README.md",
        "pyproject.toml",
        "src/trilane_web_search/__init__.py",
        "src/trilane_web_search/plugin.py",
        "src/trilane_web_search/py.typed",
        "src/trilane_web_search/tools.py",
        "tests/test_plugin.py",
    ]
    project = tomllib.loads((target / "pyproject.toml").read_text())["project"]
    assert project["name"] == "trilane-web-search"
    assert project["dependencies"] == ["trilane>=0.1,<0.2"]
    assert project["entry-points"] == {"trilane": {"web-search": "trilane_web_search.plugin:WebSearchPlugin"}}
    assert "trilane plugins test" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_takes_to_work_on_it_is_installed_by_any_pip(kind: str, tmp_path: Path) -> None:
    """Dependency groups need pip 25.1; an environment of Python 3.11 has an older one."""
    target = tmp_path / "there"
    assert run_app(["plugins", "new", "hello", "--kind", kind, "--path", str(target)]) == 0
    for name in ("README.md", ".github/workflows/test.yml"):
        assert 'pip install -e ".[dev]"\n' in (target / name).read_text(encoding="utf-8")
    project = tomllib.loads((target / "pyproject.toml").read_text(encoding="utf-8"))
    needed = project["project"]["optional-dependencies"]["dev"]
    assert [name.partition(">")[0] for name in needed] == ["trilane[cli,testing]", "mypy", "ruff"]
    assert project["tool"]["mypy"]["files"] == ["src", "tests"]
    assert "dependency-groups" not in project


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["Hello"], "'Hello' is no name for a plugin"),
        (["a--b"], "as in hello-world"),
        (["hello", "--kind", "tool"], "the kinds are: tools, provider, guard, observer, store"),
        (["hello", "--path", "full"], "full exists and is not an empty folder"),
    ],
)
def test_what_cannot_be_written_is_explained(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    assert run_app(["plugins", "new", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "mine.txt"]


def test_tests_that_fail_give_pytests_exit_status(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_app(["plugins", "new", "hello", "--path", str(tmp_path / "p")]) == 0
    (tmp_path / "p" / "tests" / "test_plugin.py").write_text("def test_it(): assert 1 == 2\n")
    assert run_app(["plugins", "test", str(tmp_path / "p"), "-q"]) == 1
    assert "1 failed" in capfd.readouterr().out
    assert run_app(["plugins", "test", str(tmp_path)]) == 2
    assert "give the folder of a plugin's project" in capfd.readouterr().err


def test_options_of_pytest_need_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_app(["plugins", "new", "hello", "--path", str(tmp_path / "p")]) == 0
    (tmp_path / "p" / "tests" / "test_plugin.py").write_text("def test_it(): pass\ndef test_other(): pass\n")
    monkeypatch.chdir(tmp_path / "p")
    assert run_app(["plugins", "test", "-q", "-k", "other"]) == 0
    assert "1 passed, 1 deselected" in capfd.readouterr().out
