"""Notifications: every plugin's `on_event`, one notification after the other, in the order of publishing.

Which notifications the run itself makes is in `_core.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._backend import new_waiter
from ._tasks import current_clock, in_own_clock, is_foreign
from .errors import AgentProtocolError
from .events import ExtensionEvent

if TYPE_CHECKING:
    from ._core import Core

__all__ = ["publish"]


async def publish(core: Core, notification: ExtensionEvent, to: str | None = None) -> None:
    """Call `on_event` of every plugin, or of the one named `to`; wait for one's turn first.

    Raises:
        TypeError: not an `ExtensionEvent`.
        AgentProtocolError: called from inside `on_event`, or `to` is no active plugin.
    """
    if not isinstance(notification, ExtensionEvent):
        raise TypeError(f"publish() takes an ExtensionEvent, not {type(notification).__name__}")
    implementations: Sequence[Any] = core.hooks.on_event
    if to is not None:
        implementations = [one for one in implementations if one.plugin == to]
        if not implementations:
            raise AgentProtocolError(f"publish(to={to!r}): no active plugin of that name has an on_event hook")
    if not implementations:
        return
    if is_foreign(core.watchdog):
        await in_own_clock(core.watchdog, publish, core, notification, to)
        return
    clock = current_clock.get()
    if core.publisher is clock:
        raise AgentProtocolError("publish() inside on_event would never end; publish from another hook")
    if core.publisher is not None:
        waiter = new_waiter()
        core.publishing_line.append(waiter)
        try:
            await waiter.wait()
        except BaseException:
            if waiter in core.publishing_line:
                core.publishing_line.remove(waiter)
            else:
                _pass_on(core)
            raise
    core.publisher = clock
    try:
        await core.dispatcher.notify(implementations, clock, core.context, notification)
    finally:
        _pass_on(core)


def _pass_on(core: Core) -> None:
    """It is the next one's turn, and nobody's who comes between."""
    core.publisher = waiter = core.publishing_line.pop(0) if core.publishing_line else None
    if waiter is not None:
        waiter.wake()
