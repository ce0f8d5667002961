"""The plugin that shows notifications to the clients that asked for them. It sees them and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic import JsonValue

from trilane import ExtensionEvent, RunContext, hookimpl

__all__ = ["LaneTap"]


class LaneTap:
    """Passes every notification of every run to `show`.

    Args:
        show: Called with session, run, name and data of a notification.
    """

    name = "trilane-web-lanes"

    def __init__(self, show: Callable[[str, str, str, JsonValue], None]) -> None:
        self._show = show

    @hookimpl
    def on_event(self, run: RunContext[Any], notification: ExtensionEvent) -> None:
        """Pass it on."""
        try:
            data: JsonValue = json.loads(notification.to_json())
        except Exception:  # a plugin's own notification may hold anything
            data = None
        self._show(run.session_id, run.run_id, type(notification).__name__, data)
