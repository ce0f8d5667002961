"""What may not be in the tree: package hosts, paths of somebody's machine, lock files, monster files, sleeps."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _tracked() -> list[Path]:
    # New files that are not ignored count too: the guard should speak before the commit, not after it.
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


TRACKED = _tracked()
CODE = [path for path in TRACKED if path.suffix == ".py"]
TESTS = [path for path in CODE if "tests" in path.relative_to(ROOT).parts]

# Written in pieces, so that this file does not contain what it looks for.
_HOSTS = re.compile(
    "|".join((r"pypi\." + "org", r"python" + "hosted", "index" + "-url", r"registry" + r"\s*=\s*\"http"))
)
_PLACES = re.compile(r"(?<![\w.~}$/-])/(?:root|work|home|tmp|Users)/[\w.-]")
_UNFINISHED = re.compile(
    "|".join(("TO" + "DO", "FIX" + "ME", r"pytest\.sk" + "ip", r"mark\.sk" + r"ip\b", r"mark\.xf" + "ail"))
)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


def _hits(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(_text(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_tree_was_found() -> None:
    assert ROOT / "pyproject.toml" in TRACKED
    assert len(CODE) > 60
    assert len(TESTS) > 20


def test_no_address_of_a_package_host() -> None:
    assert _hits(_HOSTS, TRACKED) == []


def test_no_path_of_a_machine() -> None:
    assert _hits(_PLACES, TRACKED) == []
    assert _hits(re.compile(re.escape(str(ROOT)) + r"(?![\w-])"), TRACKED) == []


def test_no_lock_file_is_tracked() -> None:
    names = {path.name for path in TRACKED}
    assert names & {"uv.lock", "poetry.lock", "pylock.toml", "package-lock.json"} == set()


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_answers_too_many_questions(path: Path) -> None:
    assert len(_text(path).splitlines()) <= 600, "cut it: one question, one file"


def test_nothing_is_left_unfinished() -> None:
    # An engine of 200 MB is no reason to fail for somebody who works on something else; .ci/run has it.
    assert [hit for hit in _hits(_UNFINISHED, CODE) if 'f"not installed: ' not in hit] == []


def _sleeps(path: Path) -> Iterator[str]:
    text = _text(path)
    lines = text.splitlines()
    virtual = "run_virtual" in text or "virtual_backend" in text  # time that costs none
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        name = ast.unparse(node.func)
        real = name == "time.sleep" if virtual else re.fullmatch(r"((anyio|asyncio|time|trio)\.)?sleep", name)
        meant = "# real time: " in lines[node.lineno - 1]
        if real and not meant and ast.unparse(node.args[0]) not in ("0", "0.0"):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_no_test_sleeps() -> None:
    assert [hit for path in TESTS for hit in _sleeps(path)] == [], (
        "wait for the thing itself; to hang, sleep_forever(); where real time is what it is about, say so: # real time:"
    )


def test_no_removal_is_due() -> None:
    """A deprecation says `removed in X.Y`; when that version comes, so must the removal."""
    version = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]["version"]
    now = tuple(map(int, version.split(".")[:2]))
    promised = [
        (f"{path.relative_to(ROOT)}: removed in {major}.{minor}", (int(major), int(minor)))
        for path in CODE
        if "tests" not in path.relative_to(ROOT).parts
        for major, minor in re.findall(r"removed in (\d+)\.(\d+)", _text(path))
    ]
    assert [text for text, due in promised if due <= now] == []


def test_every_fragment_of_the_changelog_is_named_as_said() -> None:
    named = re.compile(r"[\w-]+\.(added|changed|deprecated|removed|fixed)\.md|README\.md")
    fragments = [path.name for path in TRACKED if path.parent == ROOT / "changelog.d"]
    assert len(fragments) > 1
    assert [name for name in fragments if not named.fullmatch(name)] == []
