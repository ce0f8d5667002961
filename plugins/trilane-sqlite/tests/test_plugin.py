"""The plugin: the store by name, its settings, and where the file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trilane.errors import ConfigError
from trilane.plugins import PluginManager
from trilane.plugins.registries import resolve_store
from trilane_sqlite import SqliteStore, default_path


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("TRILANE_SESSIONS", "TRILANE_SQLITE_PATH", "TRILANE_SQLITE_BUSY_SECONDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def resolved(spec: str) -> Any:
    manager = PluginManager(["sqlite"])
    return resolve_store(spec, manager)


def test_where_the_file_is(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert resolved("sqlite").path == str(tmp_path / "share" / "trilane" / "sessions.sqlite3") == default_path()
    clean.setenv("TRILANE_SESSIONS", str(tmp_path / "mine.sqlite3"))
    assert resolved("sqlite").path == str(tmp_path / "mine.sqlite3")
    clean.setenv("TRILANE_SQLITE_PATH", str(tmp_path / "set.sqlite3"))
    assert resolved("sqlite").path == str(tmp_path / "set.sqlite3")
    store = resolved("sqlite:given.sqlite3")
    assert isinstance(store, SqliteStore)
    assert store.path == str(tmp_path / "given.sqlite3")
    assert not Path(store.path).exists()  # nothing is opened before it is used


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "", ".local/share/trilane/sessions.sqlite3"),
        ("darwin", "", "Library/Application Support/trilane/sessions.sqlite3"),
        ("win32", "", "AppData/Local/trilane/sessions.sqlite3"),
    ],
)
def test_the_data_folder_of_each_platform(
    clean: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str, expected: str
) -> None:
    clean.delenv("XDG_DATA_HOME")
    clean.delenv("LOCALAPPDATA", raising=False)
    clean.setenv("HOME", str(tmp_path))
    clean.setattr("sys.platform", platform)
    assert default_path() == str(tmp_path / expected)


def test_settings_that_cannot_be_are_refused(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("TRILANE_SQLITE_BUSY_SECONDS", "-1")
    with pytest.raises(ConfigError, match="TRILANE_SQLITE_BUSY_SECONDS"):
        resolved("sqlite:x.sqlite3")
