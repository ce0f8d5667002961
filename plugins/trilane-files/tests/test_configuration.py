"""Which folder is the root, and what is said if there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trilane.errors import ConfigError
from trilane_files.configuration import ROOT_VARIABLE, open_root


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)


def test_the_given_folder_wins_over_the_variable_over_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("given", "variable", "current"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "current")
    assert open_root(None).path == str(tmp_path / "current")
    monkeypatch.setenv(ROOT_VARIABLE, "")
    assert open_root(None).path == str(tmp_path / "current")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "variable"))
    assert open_root(None).path == str(tmp_path / "variable")
    assert open_root(str(tmp_path / "given")).path == str(tmp_path / "given")


def test_a_root_that_is_a_link_is_resolved_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert open_root(str(tmp_path / "link")).path == str(tmp_path / "real")


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_root("~").path == str(tmp_path)


def test_a_missing_folder_says_what_to_correct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"plugin files: '.*file' is not a folder\. Correct files\(root=\.\.\.\)"):
        open_root(str(tmp_path / "file"))
    monkeypatch.setenv(ROOT_VARIABLE, "nowhere")
    with pytest.raises(ConfigError, match=r"'nowhere' is not a folder\. Correct the environment variable"):
        open_root(None)


def test_a_current_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    os.rmdir(gone)
    with pytest.raises(ConfigError, match="the current directory no longer exists"):
        open_root(None)
