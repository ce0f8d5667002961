"""Folding the stored records of a session, and keeping what was folded: the next run on it reads only what is new.

For stores that have to be waited for; one in this process shares its view, see `InMemoryStore.open_now`.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from .sessions import pages
from .stores import SessionView

if TYPE_CHECKING:
    from ._core import Core
    from .stores import SessionPage, SessionStore

__all__ = ["fold"]

MOST_SESSIONS = 32  # of one store whose views are kept
MOST_MESSAGES = 50_000  # in all of them


class _Kept:
    """A view, and the run whose end was the last record in it: by that a session is known to be the same."""

    __slots__ = ("run_id", "view")

    def __init__(self, view: SessionView, run_id: str) -> None:
        self.view = view
        self.run_id = run_id


_kept: weakref.WeakKeyDictionary[Any, OrderedDict[str, _Kept]] = weakref.WeakKeyDictionary()


async def fold(core: Core) -> None:
    """Give a run the view of its session, and its version."""
    known = _take(core.store, core.session_id)
    if known is not None and core.setup.mode != "resume":  # a kept view does not tell which calls had no result
        page = await core.store.load(core.session_id, after=known.view.version - 1)
        if _goes_on(page, known):
            core.view = known.view
            for record in page.records[1:]:
                core.view.apply(record)
            core.version = core.view.version
            _watch(core)
            return
    async for page in pages(core.store, core.session_id, view=True):
        for record in page.records:
            core.view.apply(record)
        core.version = core.view.version = page.version
    _watch(core)


def _goes_on(page: SessionPage, known: _Kept) -> bool:
    """False if the session is another one by now: deleted and made anew, or restored from a backup."""
    if not page.records or page.version != known.view.version - 1 + len(page.records):
        return False
    last = page.records[0]
    return last.kind == "run_ended" and last.run_id == known.run_id


def _take(store: SessionStore, session: str) -> _Kept | None:
    views = _kept.get(store)
    return None if views is None else views.pop(session, None)


def _watch(core: Core) -> None:
    """When the run is over, keep its view."""
    if core.parent is None:
        core.on_finish.append(lambda: _keep(core))


def _keep(core: Core) -> None:
    """Keep the view of a run, if all of it is stored: what could not be stored, or was edited, is in no other run's."""
    view = core.view if core.shared_view is None else core.shared_view
    if core.suspended or core.store_error is not None or core.outbox or view.version != core.version:
        return
    views = _kept.setdefault(core.store, OrderedDict())
    views[core.session_id] = _Kept(view, core.run_id)
    while len(views) > MOST_SESSIONS or (
        len(views) > 1 and sum(len(one.view.log) for one in views.values()) > MOST_MESSAGES
    ):
        views.popitem(last=False)
