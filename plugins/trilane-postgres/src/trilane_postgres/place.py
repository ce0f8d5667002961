"""Which database and schema: what libpq understands, and `?schema=NAME` in a URL. Passwords stay out of messages."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from trilane.errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Place", "find_place", "load_driver"]

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")

#: What a connection has unless the DSN or libpq's own variable says otherwise. A host that is gone is noticed in half a
#: minute instead of two hours.
_DEFAULTS: tuple[tuple[str, str, str], ...] = (
    ("application_name", "trilane", "PGAPPNAME"),
    ("connect_timeout", "10", "PGCONNECT_TIMEOUT"),
    ("keepalives_idle", "10", ""),
    ("keepalives_interval", "5", ""),
    ("keepalives_count", "3", ""),
    ("tcp_user_timeout", "25000", ""),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where sessions are.

    Attributes:
        conninfo: For libpq; may have a password in it.
        schema: The schema of the tables.
        text: Both, for messages.
    """

    conninfo: str = field(repr=False)
    schema: str
    text: str


def find_place(dsn: str, schema: str) -> Place:
    """What a DSN means.

    Args:
        dsn: A URL, `key=value` pairs, or empty for libpq's own environment variables and defaults.
        schema: The schema, if the URL has none.

    Raises:
        ConfigError: it cannot be used, or psycopg is not installed as it should be.
    """
    driver = load_driver()
    dsn, schema = _take_schema(dsn, schema)
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"{schema!r} cannot be the schema of trilane-postgres: use small letters, digits and _, at most 63 of them"
        )
    try:
        given = driver.conninfo.conninfo_to_dict(dsn)
        added = {name: value for name, value, variable in _DEFAULTS if name not in given and variable not in os.environ}
        conninfo = driver.conninfo.make_conninfo(dsn, **added)
    except driver.Error as error:
        # Nothing of the DSN is repeated: a password may be in it.
        reason = str(error).split(":", 1)[0].split('"', 1)[0].strip()
        raise ConfigError(
            f"the DSN for trilane-postgres cannot be used ({reason}); it is a URL, "
            "postgresql://user@host:port/database, or pairs such as host=... dbname=..."
        ) from None
    return Place(conninfo=conninfo, schema=schema, text=_shown(given, schema))


def load_driver() -> ModuleType:
    """psycopg, imported where it is needed: plugins are loaded where none of their stores is.

    Raises:
        ConfigError: it finds no libpq.
    """
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise ConfigError(
            f"trilane-postgres needs psycopg with libpq: {error}. Install trilane-postgres[binary], or the "
            "system's libpq"
        ) from error
    return psycopg


def _take_schema(dsn: str, schema: str) -> tuple[str, str]:
    """libpq refuses what it does not know in a URL, so `schema` is taken out."""
    if not dsn.startswith(("postgres://", "postgresql://")):
        return dsn, schema
    address, _, query = dsn.partition("?")
    kept = []
    for one in query.split("&") if query else ():
        name, _, value = one.partition("=")
        if name == "schema":
            schema = unquote(value)
        else:
            kept.append(one)
    return (f"{address}?{'&'.join(kept)}" if kept else address), schema


def _shown(given: dict[str, str], schema: str) -> str:
    host = str(given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", ""))
    port, user = given.get("port"), given.get("user")
    where = quote(host, safe=",") if host.startswith("/") else host
    where = f"{user}@{where}" if user else where
    where = f"{where}:{port}" if port else where
    database = given.get("dbname") or os.environ.get("PGDATABASE", "")
    return f"postgresql://{where}/{database}?schema={schema}"
