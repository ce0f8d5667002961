"""Notify on failure: posts a message to a web hook when a run fails or a plugin does."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.request import Request, urlopen

from trilane import ExtensionEvent, RunContext, hookimpl
from trilane.events import PluginFailedEvent

__all__ = ["NotifyOnFailure", "post_to"]


def post_to(url: str) -> Callable[[str], None]:
    """A function that posts a text as `{"text": ...}`, which most chat services take."""

    def post(text: str) -> None:
        body = json.dumps({"text": text}).encode()
        request = Request(url, data=body, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=10):
            pass

    return post


class NotifyOnFailure:
    """Tells people about failures; it is only an observer, so a failure of its own undoes nothing.

    Args:
        send: Sends one text; called in a thread. `post_to(url)` makes one.
    """

    name = "notify-on-failure"

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send

    @hookimpl(thread=True, timeout=15)
    def on_error(self, run: RunContext[object], error: BaseException) -> None:
        self._send(f"{run.agent_name}: run {run.run_id} failed in turn {run.turn}: {type(error).__name__}: {error}")

    @hookimpl(thread=True, timeout=15)
    def on_event(self, run: RunContext[object], notification: ExtensionEvent) -> None:
        if isinstance(notification, PluginFailedEvent) and notification.plugin != self.name:
            self._send(f"{run.agent_name}: plugin {notification.plugin} failed in {notification.hook}")
