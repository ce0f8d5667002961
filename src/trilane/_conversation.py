"""How what users say enters the conversation: the request, steering, and follow-ups.

When it is taken in is decided in `_phases.py` and `_generate.py`. Whatever is accepted is heard by the run, or stored
for the next one on the session; what could be neither is refused.
"""

from __future__ import annotations

from _thread import RLock
from typing import TYPE_CHECKING

from .errors import AgentProtocolError
from .events import UserMessageAdded
from .messages import UserMessage
from .stores import MessageStored, MessageWaiting

if TYPE_CHECKING:
    from ._core import Core

__all__ = [
    "accept",
    "accept_queued",
    "add_user_message",
    "has_steering",
    "hear_waiting",
    "hears_more",
    "keep_unheard",
    "refuse_if_deaf",
    "take_steering",
    "through_on_message",
]

# Guards what is said from other threads against the end of the run. One for all runs: it is held for a few steps only.
# Re-entrant, because a signal handler or a finaliser may say something in the midst of them.
_SAYING = RLock()


def has_steering(core: Core) -> bool:
    """True if something was said since the last time."""
    if core.queues is not None:
        core.take_input()
    return bool(core.steering)


async def take_steering(core: Core) -> bool:
    """Take in what was said since the last time; True if there was anything. The caller shows it."""
    if not has_steering(core):
        return False
    while core.steering:
        message = core.steering[0]  # it leaves the list when it is kept: whatever comes in between, it is not lost
        if core.hooks.on_message:
            await core.before_hook()
            try:
                message = await through_on_message(core, message)
            except Exception:
                if not core.settled:  # as with the request: whatever happens in a hook, what the user said is kept
                    add_user_message(core, core.steering.pop(0))
                raise
        core.steering.pop(0)
        add_user_message(core, message)
    await core.flush()
    return True


async def through_on_message(core: Core, message: UserMessage) -> UserMessage:
    """Let plugins change a user message."""
    changed: UserMessage = await core.dispatcher.chain(
        core.hooks.on_message, core.clock, (core.context,), message, UserMessage
    )
    if changed is not message and core.view.waiting:
        changed = changed.replace(id=message.id)  # by which it is known that it waits no longer
    return changed


def add_user_message(core: Core, message: UserMessage) -> None:
    """A user message enters the conversation."""
    if core.queues is not None and message.origin == "request":
        core.queues.input.put_nowait(message)
        core.queues.input.remove(message)
    core.record(MessageStored(run_id=core.run_id, message=message))
    core.produce(UserMessageAdded, message=message, origin=message.origin)


# ---- from outside, any thread, and the end of that -------------------------------------------------------------------


def accept(core: Core, message: UserMessage) -> None:
    """Take what somebody says, from any thread: this run hears it, or it is stored for the next one.

    Raises:
        AgentProtocolError: the run hears nothing any more.
    """
    with _SAYING:
        if core.queues is None:
            refuse_if_deaf(core)
            core.receive(message)
            return
    core.queues.input.put_nowait(message)


def accept_queued(core: Core, message: UserMessage) -> None:
    """Something was put on the input lane: leave it there to be heard.

    Raises:
        AgentProtocolError: the run hears nothing any more; the message is taken out again.
    """
    with _SAYING:
        if core.deaf and core.queues is not None and core.queues.input.remove(message):
            refuse_if_deaf(core)


def refuse_if_deaf(core: Core) -> None:
    """Nothing can be said to a run that has ended, or is a compaction."""
    if not core.deaf:
        return
    if core.setup.mode == "compact":
        raise AgentProtocolError("a compaction hears nothing; say it to the next run on the session")
    raise AgentProtocolError("the run has ended; start another one on the session with agent.run(...)")


def hears_more(core: Core) -> bool:
    """After an answer: True if more was said, of which the first is taken next. Else nothing is heard any more."""
    with _SAYING:
        core.deaf = True  # before looking: what a signal handler says in the midst of this must not get lost
        core.take_input()
        said = core.follow_ups
        said.extend(core.steering)  # steering that came too late becomes a follow-up
        core.steering.clear()
        if said:
            core.deaf = False
            core.steering.append(said.pop(0))
            return True
        return False


def keep_unheard(core: Core) -> None:
    """The run ends otherwise: what was accepted and not heard is stored for the next run on the session."""
    with _SAYING:
        core.deaf = True
        core.take_input()
        said = (*core.steering, *core.follow_ups)
    view = core.view if core.shared_view is None else core.shared_view
    known = {message.id for message in view.waiting}
    for message in said:
        if message.id not in known:
            core.record(MessageWaiting(run_id=core.run_id, message=message))


def hear_waiting(core: Core) -> None:
    """What was said to an earlier run, and not heard, is said to this one, before all else."""
    waiting = core.view.waiting
    if waiting:
        with _SAYING:
            core.steering[:0] = [message for message in waiting if message.origin != "follow_up"]
            core.follow_ups[:0] = [message for message in waiting if message.origin == "follow_up"]
