"""Ids and tool names in a form that servers take, and back again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal

__all__ = ["CallIds", "ToolNames"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BAD = re.compile(r"[^A-Za-z0-9_-]")
_SHORT = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_NINE = re.compile(r"[A-Za-z0-9]{9}")


class ToolNames:
    """Names of tools as the server sees them. Most are the same; the others are the same in every request.

    Args:
        offered: The tools of the request. None of them shares its name on the wire with another one.
    """

    __slots__ = ("_back", "_there")

    def __init__(self, offered: Iterable[str] = ()) -> None:
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}
        # Names that fit come first, so that they are never the ones that have to give way.
        for name in sorted(offered, key=lambda name: (not _NAME.fullmatch(name), name)):
            self.sent(name)

    def sent(self, name: str) -> str:
        """The name on the wire."""
        found = self._there.get(name)
        if found is None:
            found = name if _NAME.fullmatch(name) else (_BAD.sub("_", name)[:64] or "unnamed")
            if found in self._back:
                found = f"{found[:55]}_{_digest(name)[:8]}"
            self._there[name] = found
            self._back.setdefault(found, name)
        return found

    def received(self, name: str) -> str:
        """The name of the tool that the server means."""
        return self._back.get(name, name)


class CallIds:
    """Ids of calls as the server sees them, each only once in a request, the same in every request of a session."""

    __slots__ = ("_form", "_length", "_used")

    def __init__(self, form: Literal["short", "nine"]) -> None:
        self._form = _NINE if form == "nine" else _SHORT
        self._length = 9 if form == "nine" else 40
        self._used: set[str] = set()

    def sent(self, call_id: str, message_id: str) -> str:
        """A fresh id for the call of that message. Ask once for each call, in order."""
        found = call_id if self._form.fullmatch(call_id) else ""
        attempt = 0
        while not found or found in self._used:
            digest = _digest(f"{message_id}\0{call_id}\0{attempt}")
            found = digest[:9] if self._length == 9 else f"call_{digest[:24]}"
            attempt += 1
        self._used.add(found)
        return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
