"""What `trilane sessions fork`, `rename`, `delete` and `backup` do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .console import UsageError, say
from .sessions_store import find_session, is_id, new_session_id
from .text import id_text, one_line

if TYPE_CHECKING:
    from trilane.stores import SessionStore

__all__ = ["back_up", "delete", "fork", "rename"]


async def fork(store: SessionStore, session: str, at_message: str, new: str) -> list[str]:
    """Fork a session; returns the line with the new id."""
    from trilane.sessions import fork_session

    info = await find_session(store, session)
    return [await fork_session(store, info.id, new_session_id(new, "--as"), at_message=at_message)]


async def rename(store: SessionStore, session: str, title: str) -> None:
    """Give a session a title."""
    from trilane.messages import clean_text
    from trilane.sessions import CanRename

    if not isinstance(store, CanRename):
        raise UsageError("this store cannot name its sessions")
    await store.rename_session((await find_session(store, session)).id, clean_text(title))


async def delete(store: SessionStore, sessions: Sequence[str]) -> None:
    """Delete sessions.

    Raises:
        UsageError: one of them does not exist; the others before it are deleted.
    """
    from trilane.sessions import CanDelete

    if not isinstance(store, CanDelete):
        raise UsageError("this store cannot delete its sessions")
    for session in sessions:
        if not is_id(session) or not await store.delete_session(session):
            raise UsageError(f"there is no session {one_line(session, 80)!r}; nothing more was deleted")
        say(f"deleted {id_text(session)}")


async def back_up(store: SessionStore, file: str) -> None:
    """Copy the whole store."""
    from trilane.sessions import CanBackUp

    if not isinstance(store, CanBackUp):
        raise UsageError("this store cannot be backed up by this command")
    await store.back_up(file)
    say(f"written to {file}")
