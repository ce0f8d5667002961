"""Events as JSON text for clients: without what an unknown exception says, unless the host wants that shown."""

from __future__ import annotations

import json
import logging
from typing import Any

from trilane import Event, TrilaneError

__all__ = ["encode_event", "error_words"]

_logger = logging.getLogger("trilane.web")

_WITH_ERRORS = frozenset({"run_completed", "run_failed", "run_cancelled", "plugin_failed", "child_event"})


def encode_event(event: Event, *, show_errors: bool) -> str:
    """The event as one line of JSON. It never raises: an event that cannot be written is sent without what it says.

    Args:
        event: The event.
        show_errors: False to leave of errors that are not Trilane's own only the type.
    """
    try:
        text = event.to_json()
        if event.type not in _WITH_ERRORS or show_errors:
            return text
        value = json.loads(text)
        _hide(event, value)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except Exception as error:  # whatever a plugin put into it
        _logger.error("event %s of run %s cannot be written as JSON", event.type, event.run_id, exc_info=error)
        return _bare(event)


def _bare(event: Event) -> str:
    return json.dumps(
        {
            "type": event.type,
            "seq": event.seq,
            "run_id": event.run_id,
            "session_id": event.session_id,
            "phase": event.phase.value,
            "milestone": event.milestone,
            "unreadable": True,
        }
    )


def _hide(event: Event, value: dict[str, Any]) -> None:
    if event.type == "child_event":
        _hide(event.event, value["event"])
        return
    if event.type in ("run_failed", "plugin_failed"):
        value["error"] = error_words(event.error)
    if event.type in ("run_completed", "run_failed", "run_cancelled"):
        result, shown = event.result, value["result"]
        for name in ("error", "store_error"):
            error = getattr(result, name)
            if error is not None:
                shown[name] = error_words(error)
        for failure, entry in zip(result.hook_failures, shown["hook_failures"], strict=True):
            entry["error"] = error_words(failure.error)


def error_words(error: BaseException) -> dict[str, str]:
    """Type and message of an error, without the message of one that was not written for users."""
    kind = str(getattr(error, "type", None) or type(error).__name__)
    if isinstance(error, TrilaneError):
        return {"type": kind, "message": str(error)}
    return {"type": kind, "message": "the server's log says more"}
