"""How what users say enters the conversation: the request, steering, and follow-ups.

Who receives it, from any thread, is `Core.receive`; when it is taken in is decided in `_phases.py` and `_generate.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .events import UserMessageAdded
from .messages import UserMessage
from .stores import MessageStored

if TYPE_CHECKING:
    from ._core import Core

__all__ = ["add_user_message", "has_steering", "take_steering", "through_on_message"]


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
        message = core.steering.pop(0)
        if core.hooks.on_message:
            await core.before_hook()
            message = await through_on_message(core, message)
        add_user_message(core, message)
    await core.flush()
    return True


async def through_on_message(core: Core, message: UserMessage) -> UserMessage:
    """Let plugins change a user message."""
    changed: UserMessage = await core.dispatcher.chain(
        core.hooks.on_message, core.clock, (core.context,), message, UserMessage
    )
    return changed


def add_user_message(core: Core, message: UserMessage) -> None:
    """A user message enters the conversation."""
    if core.queues is not None and message.origin == "request":
        core.queues.input.put_nowait(message)
        core.queues.input.remove(message)
    core.record(MessageStored(run_id=core.run_id, message=message))
    core.produce(UserMessageAdded, message=message, origin=message.origin)
