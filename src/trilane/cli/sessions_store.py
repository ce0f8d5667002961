"""Opening the session store that a command is about, and finding a session in it by what was typed."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from .console import UsageError
from .text import one_line, visible

if TYPE_CHECKING:
    from trilane.sessions import SessionInfo
    from trilane.stores import SessionStore

__all__ = [
    "DEFAULT_STORE",
    "close_store",
    "existing_store",
    "find_session",
    "is_id",
    "last_session",
    "new_session_id",
    "open_store",
    "with_store",
]

T = TypeVar("T")

#: Where sessions are when nobody says.
DEFAULT_STORE = "sqlite"

MOST = 1000  # sessions that are looked through for the beginning of an id


def open_store(spec: str) -> SessionStore:
    """The store that `NAME`, `NAME:PLACE` or a URL means, with the installed plugin that supplies it.

    Empty stands for the store of the command line, `memory` for one that keeps nothing.

    Raises:
        UsageError: no such plugin is installed.
        ConfigError: it supplies no store of that name, or its settings cannot be used.
    """
    from trilane.plugins import PluginManager, resolve_store, store_plugin

    spec = spec or DEFAULT_STORE
    if spec == "memory":
        from trilane.stores import InMemoryStore

        return InMemoryStore()
    plugin = store_plugin(spec)
    if not plugin:
        name = spec.partition(":")[0]
        package = "trilane-postgres[binary]" if name.startswith("postgres") else f"trilane-{name}"
        raise UsageError(f"--store {name}: the plugin {name!r} is not installed; pip install {package}")
    return resolve_store(spec, PluginManager([plugin]))


def close_store(store: object) -> None:
    """Let go of whatever the store keeps open."""
    close = getattr(store, "close", None)
    if close is not None:
        close()


def existing_store(spec: str) -> SessionStore:
    """`open_store` for whoever only looks: what is not there is not made, an empty store stands for it.

    Raises:
        UsageError: somebody named a file for this command, and there is none; and whatever `open_store` raises.
    """
    from trilane.stores import InMemoryStore

    store = open_store(spec)
    path = getattr(store, "path", None)  # of a store that is a file
    if not isinstance(path, str) or os.path.exists(path):
        return store
    close_store(store)
    # In TRILANE_STORE it is where sessions will be, and nothing may be stored yet.
    if ":" in spec and spec != os.environ.get("TRILANE_STORE"):
        raise UsageError(f"--store {visible(spec)}: there is no file {visible(path)!r}; look for it elsewhere")
    return InMemoryStore()


def with_store(spec: str, work: Callable[[SessionStore], Awaitable[T]], *, makes: bool = False) -> T:
    """Await `work(store)` in an event loop of its own; `makes` says that the store is made if it is not there."""
    from trilane._loop import run_loop

    async def main() -> T:
        store = open_store(spec) if makes else existing_store(spec)
        try:
            return await work(store)
        finally:
            close_store(store)

    return run_loop(main())


def is_id(text: str) -> bool:
    """False for what no store can keep as an id: half of a surrogate pair, as an argument that is no UTF-8 has."""
    from trilane.messages import clean_text

    return clean_text(text) == text


def new_session_id(text: str, option: str) -> str:
    """`text`, an id for a new session; empty if one is to be made up.

    Raises:
        UsageError: no store can keep it.
    """
    if not is_id(text):
        raise UsageError(f"{option} {one_line(text, 80)}: no id can have such characters; write it in UTF-8")
    return text


async def find_session(store: SessionStore, text: str) -> SessionInfo:
    """The session of the id `text`, or the only one whose id begins with it.

    Raises:
        UsageError: there is none, or more than one.
    """
    from trilane.sessions import CanList, SessionInfo

    if not is_id(text):
        raise UsageError(f"there is no session {one_line(text, 80)!r}: no id has such characters")
    if not isinstance(store, CanList):
        version = (await store.load(text, limit=0)).version
        if not version:
            raise UsageError(f"there is no session {one_line(text, 80)!r}")
        return SessionInfo(id=text, version=version)
    exact = await store.session_info(text)
    if exact is not None:
        return exact
    sessions = await store.list_sessions(limit=MOST)
    found = [info for info in sessions if text and info.id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found)} sessions begin with {one_line(text, 80)!r}; type more of the id")
    from trilane.plugins.checks import and_more, nearest

    names = {info.id for info in sessions} | {info.title for info in sessions if info.title}
    titled = [info for info in sessions if info.title == text]
    if len(titled) == 1:
        return titled[0]
    hint = and_more(nearest(text, sorted(names)), "see `trilane sessions list`")
    raise UsageError(f"there is no session {one_line(text, 80)!r}{hint}")


async def last_session(store: SessionStore) -> str:
    """Id of the session that was written to last.

    Raises:
        UsageError: there is none, or the store cannot tell.
    """
    from trilane.sessions import CanList

    sessions = await store.list_sessions(limit=1) if isinstance(store, CanList) else ()
    if not sessions:
        raise UsageError("--continue: no session is stored yet")
    return sessions[0].id
