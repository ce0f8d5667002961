"""What `trilane sessions compact` does: a compaction of a stored session, or one taken back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .console import UsageError, logging_to, say
from .rendering import PlainRenderer

if TYPE_CHECKING:
    from trilane.events import Event
    from trilane.stores import SessionStore

__all__ = ["compact", "undo"]


class _Watching(PlainRenderer):
    """Shows a compaction, and notes whether it changed anything."""

    changed = False

    def show(self, event: Event) -> None:
        if event.type == "compaction_completed":
            self.changed = event.changed
            if event.changed:
                return  # the output of the run says the same
        super().show(event)


async def undo(store: SessionStore, session: str) -> bool:
    """Take the last compaction back; False if there is none."""
    from trilane.stores import undo_compaction

    from .sessions_store import find_session

    if await undo_compaction(store, (await find_session(store, session)).id):
        print("models see again what they saw before the last compaction")
        return True
    say("no compaction is left to take back")
    return False


async def compact(store: SessionStore, session: str, model: str, blocked: tuple[str, ...], verbose: bool) -> int:
    """Compact a session; returns the exit status, 1 if nothing has changed.

    Raises:
        Exception: what made it fail, if that is not contained.
    """
    from .answers import Answers
    from .driver import drive
    from .launch import make_agent
    from .sessions_store import find_session

    if "compact" in blocked:
        raise UsageError("-p no:compact leaves out the plugin that compacts")
    info = await find_session(store, session)
    with logging_to(say):
        agent, choice = make_agent(model, blocked)
        agent.store = store
        if verbose or not choice.is_default:
            say(f"model {choice.model}: {choice.reason}")
        renderer = _Watching(sys.stdout, verbose=verbose)
        answers = Answers(approve=None, lines=None)
        try:
            stream = agent.stream_compaction(info.id, answer=answers.unattended)
            outcome = await drive(lambda: stream, renderer, answers)
        finally:
            await agent.aclose()
    if outcome.error is not None and outcome.exit_status == 1:
        raise outcome.error
    return outcome.exit_status or (0 if renderer.changed else 1)
