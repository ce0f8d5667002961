"""Which sessions have an active run in this process: each run claims its session in a table, by store.

Stores that keep sessions in this process look here before somebody else writes to one, or deletes it. Between
processes that is what leases are for, see `SessionStore.lease`.
"""

from __future__ import annotations

import weakref
from typing import Any

from .errors import SessionBusyError

__all__ = ["claim", "claimed"]

_claims: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def claimed(store: object, session: str) -> bool:
    """True if a run of this process is active on the session."""
    return session in _claims.get(store, ())


def claim(store: object, session: str) -> set[str]:
    """Take the session for one run, or raise. Discarding it from the returned set gives it back."""
    sessions = _claims.setdefault(store, set())
    if session in sessions:
        raise SessionBusyError(
            f"session {session!r} has an active run; wait for it, stop it through agent.active({session!r}), "
            "or use another session"
        )
    sessions.add(session)
    return sessions
