"""What errors of the driver mean, and what to do about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilane.errors import StoreError

if TYPE_CHECKING:
    import psycopg

__all__ = ["explained"]

#: By SQLSTATE, or the class that its first two characters name.
_ADVICE = {
    "55P03": "another connection kept it locked; find out which in pg_stat_activity, or raise busy_seconds",
    "25006": "the server takes no writes: it is a standby, or read-only; connect to the primary",
    "42501": "grant this user USAGE and CREATE on the schema, or let its owner make it first",
    "42P07": "the schema has tables of something else; give the sessions a schema of their own",
    "54": "something in it is larger than PostgreSQL keeps: an id of a session may have about 2,600 bytes",
    "53": "the server is short of space, memory or connections; nothing was written",
    "XX": "the database is damaged. `trilane sessions doctor` says what can be read; restore a backup",
}

_UNKNOWN = (
    "the connection was lost while records were written and could not be opened again: whether they are stored is not "
    "known. Load the session again, or resume it, when the server is back"
)


def explained(error: psycopg.Error, place: str, *, connected: bool, sealed: bool) -> StoreError:
    """The error that callers get.

    Args:
        error: What the driver raised.
        place: The database, without a password.
        connected: False if there is no connection any more.
        sealed: True if a commit was begun.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    state = error.sqlstate or ""
    advice = _ADVICE.get(state) or _ADVICE.get(state[:2], "nothing was written")
    if not connected and sealed:
        advice = _UNKNOWN
    elif not connected and not state:
        advice = "check the address, the server and the user; nothing was written"
    made = StoreError(f"{place}: {text}; {advice}")
    made.__cause__ = error
    return made
