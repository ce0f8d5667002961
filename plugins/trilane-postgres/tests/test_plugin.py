"""The plugin: the store by name and by URL, its settings, and that no password gets out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from trilane.errors import ConfigError, StoreError
from trilane.plugins import PluginManager, resolve_store, store_plugin
from trilane_postgres import PostgresStore, place
from trilane_postgres.place import find_place
from trilane_postgres.testing import TemporaryServer

ROOT = Path(__file__).resolve().parents[3]
VARIABLES = ("DSN", "SCHEMA_NAME", "CONNECTIONS", "BUSY_SECONDS", "RECONNECT_SECONDS")


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(f"TRILANE_POSTGRES_{name}", raising=False)
    for name in ("PGHOST", "PGDATABASE", "PGAPPNAME", "PGCONNECT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def resolved(spec: str) -> Any:
    assert store_plugin(spec) == "postgres"
    return resolve_store(spec, PluginManager(["postgres"]))


def test_where_the_sessions_are(clean: pytest.MonkeyPatch) -> None:
    assert resolved("postgres").place == "postgresql:///?schema=trilane"
    for scheme in ("postgres", "postgresql"):
        store = resolved(f"{scheme}://me@db.example:5433/app")
        assert isinstance(store, PostgresStore)
        assert store.place == "postgresql://me@db.example:5433/app?schema=trilane"
    assert resolved("postgresql://db/app?schema=mine&connect_timeout=3").place == "postgresql://db/app?schema=mine"
    assert resolved("postgres:host=db dbname=app").place == "postgresql://db/app?schema=trilane"
    clean.setenv("TRILANE_POSTGRES_DSN", "postgresql://set/app")
    clean.setenv("TRILANE_POSTGRES_SCHEMA_NAME", "other")
    assert resolved("postgres").place == "postgresql://set/app?schema=other"


def test_a_host_that_is_gone_is_noticed_unless_the_dsn_says_otherwise(clean: pytest.MonkeyPatch) -> None:
    conninfo = find_place("postgresql://db/app?keepalives_idle=99", "trilane").conninfo
    for text in ("keepalives_idle=99", "keepalives_count=3", "connect_timeout=10", "application_name=trilane"):
        assert text in conninfo
    clean.setenv("PGCONNECT_TIMEOUT", "2")
    assert "connect_timeout" not in find_place("", "trilane").conninfo


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:s3cret@h/d?nonsense=1", "password=s3cret nonsense", "postgresql://u:s3cret@[::1/d"]
)
def test_a_dsn_that_cannot_be_used_is_refused_and_its_password_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigError, match="the DSN for trilane-postgres cannot be used") as caught:
        PostgresStore(dsn)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_password_is_shown() -> None:
    store = PostgresStore("postgresql://u:s3cret@h/d")
    assert "s3cret" not in store.place
    assert "s3cret" not in repr(find_place("postgresql://u:s3cret@h/d", "x"))


@pytest.mark.parametrize("schema", ["", "Upper", "a-b", 'x"; DROP', "1st", "x" * 64, "select 1"])
def test_a_schema_that_cannot_be_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the schema of trilane-postgres"):
        PostgresStore("", schema=schema)


def test_settings_that_cannot_be_are_refused(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("TRILANE_POSTGRES_CONNECTIONS", "0")
    with pytest.raises(ConfigError, match="TRILANE_POSTGRES_CONNECTIONS"):
        resolved("postgres")


def test_a_missing_libpq_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"needs psycopg with libpq.*trilane-postgres\[binary\]"):
        place.find_place("", "trilane")


def test_loading_the_plugin_loads_no_driver() -> None:
    program = "import trilane_postgres.plugin, sys; print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.anyio
async def test_a_server_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    store = PostgresStore(f"postgresql:///x?host={tmp_path}")
    with pytest.raises(StoreError, match="check the address, the server and the user; nothing was written"):
        await store.load("s")
    store.close()


def test_the_command_line_takes_a_url(dsn: str, tmp_path: Path) -> None:
    extra = "trilane[cli]"
    if find_spec("typer") is None:
        pytest.skip(f"not installed: {extra}")

    def trilane(*words: str, **environment: str) -> str:
        command = [sys.executable, "-m", "trilane", *words]
        env = {**os.environ, **environment}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert trilane("sessions", "list", "--store", dsn) == "no session is stored yet\n"
    assert "What I can do here" in trilane("run", "What can you do?", "--session", "help", TRILANE_STORE=dsn)
    assert "What can you do?" in trilane("sessions", "show", "help", TRILANE_STORE=dsn)


@pytest.mark.parametrize("page", ["plugins/trilane-postgres/README.md", "docs/how-to/keep-sessions-in-postgresql.md"])
def test_the_examples_of_a_page(server: TemporaryServer, capsys: pytest.CaptureFixture[str], page: str) -> None:
    """Those that need a server: their address is replaced, and what they print is what the page shows next."""
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = re.findall(r"```py\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(examples) == text.count("```py\n") == 2
    address = re.compile(r"postgresql://localhost/app\?schema=(\w+)")
    for code, output in examples:
        own = address.sub(rf"{server.dsn}&schema=page_\1", code)
        exec(compile(own, page, "exec"), {})
        assert capsys.readouterr().out == output
