"""Where `trilane run` keeps its session: in the store of the command line, or in memory where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .console import UsageError, say
from .sessions_store import DEFAULT_STORE, close_store, existing_store, find_session, last_session, open_store

if TYPE_CHECKING:
    from trilane.agent import Agent

    from .launch import Launch

__all__ = ["is_kept", "keep_session", "leave_session"]


async def keep_session(agent: Agent[Any, Any], options: Launch) -> str:
    """Give the agent a store that lasts, and return the session to work on; empty for a new one.

    Nobody who asks for no session and no store must be stopped by the store: then a warning says that nothing is kept.

    Raises:
        UsageError: the session that is asked for does not exist, or no store is there to look.
        StoreError: the store cannot be used, and a session is asked for.
    """
    wanted = bool(options.session or options.go_on or options.resume or options.store)
    looks = options.go_on or options.resume
    spec = options.store or DEFAULT_STORE
    try:
        if f"no:{spec.partition(':')[0]}" in options.plugin_options:
            raise UsageError(f"the plugin that keeps sessions is left out: {' '.join(options.plugin_options)}")
        store = existing_store(spec) if looks else open_store(spec)
    except UsageError:
        if wanted:
            raise
        return ""
    from trilane.errors import StoreError
    from trilane.stores import InMemoryStore

    try:
        await store.load("", limit=0)
    except StoreError as error:
        if wanted:
            close_store(store)
            raise
        say(f"warning: the session is not kept: {error}")
        close_store(store)
        return ""
    if isinstance(agent.store, InMemoryStore):
        agent.store = store
    if options.go_on:
        return await last_session(store)
    if options.resume:
        return (await find_session(store, options.session)).id
    return options.session


def is_kept(agent: Agent[Any, Any]) -> bool:
    """True if its sessions outlive the program."""
    from trilane.stores import InMemoryStore

    return not isinstance(agent.store, InMemoryStore)


def leave_session(agent: Agent[Any, Any]) -> None:
    """Let go of the store."""
    close_store(agent.store)
