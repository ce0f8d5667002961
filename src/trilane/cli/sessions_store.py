"""Opening the session store that a command is about, and finding a session in it by what was typed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from .console import UsageError

if TYPE_CHECKING:
    from trilane.sessions import SessionInfo
    from trilane.stores import SessionStore

__all__ = ["close_store", "find_session", "last_session", "open_store", "with_store"]

T = TypeVar("T")

MOST = 1000  # sessions that are looked through for the beginning of an id


def open_store(spec: str) -> SessionStore:
    """The store that `NAME` or `NAME:PLACE` means, with the plugin of that name.

    Raises:
        UsageError: the plugin is not installed.
        ConfigError: it supplies no store of that name, or its settings cannot be used.
    """
    from trilane.plugins import PluginManager, discover
    from trilane.plugins.registries import resolve_store

    name = spec.partition(":")[0]
    if name not in {info.name for info in discover()}:
        raise UsageError(f"--store {spec}: the plugin {name!r} is not installed; pip install trilane-{name}")
    return resolve_store(spec, PluginManager([name]))


def close_store(store: object) -> None:
    """Let go of whatever the store keeps open."""
    close = getattr(store, "close", None)
    if close is not None:
        close()


def with_store(spec: str, work: Callable[[SessionStore], Awaitable[T]]) -> T:
    """Await `work(store)` in an event loop of its own."""
    import asyncio

    async def main() -> T:
        store = open_store(spec)
        try:
            return await work(store)
        finally:
            close_store(store)

    return asyncio.run(main())


async def find_session(store: SessionStore, text: str) -> SessionInfo:
    """The session of the id `text`, or the only one whose id begins with it.

    Raises:
        UsageError: there is none, or more than one.
    """
    from trilane.sessions import CanList, SessionInfo

    if not isinstance(store, CanList):
        version = (await store.load(text, limit=0)).version
        if not version:
            raise UsageError(f"there is no session {text!r}")
        return SessionInfo(id=text, version=version)
    exact = await store.session_info(text)
    if exact is not None:
        return exact
    sessions = await store.list_sessions(limit=MOST)
    found = [info for info in sessions if text and info.id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found)} sessions begin with {text!r}; type more of the id")
    from trilane.plugins.checks import nearest

    names = {info.id for info in sessions} | {info.title for info in sessions if info.title}
    titled = [info for info in sessions if info.title == text]
    if len(titled) == 1:
        return titled[0]
    raise UsageError(f"there is no session {text!r}{nearest(text, sorted(names))}; see `trilane sessions list`")


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
