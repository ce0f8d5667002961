"""Raw events out of the bytes of an answer, however these are cut.

The SDK has a decoder, too. It lets go of the generators it reads through when something in the bytes is wrong, which on
trio is a warning from the garbage collector for each of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

__all__ = ["EventReader"]


class EventReader:
    """Gives one event after the other.

    Args:
        pieces: The body.
    """

    __slots__ = ("_data", "_lines", "_pieces", "_rest")

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""  # a line that has no end yet
        self._lines: list[bytes] = []  # the next one last
        self._data: list[bytes] = []

    async def next(self) -> dict[str, Any] | None:
        """The next event; None at the end of the body. Comments and events without data are skipped.

        Raises:
            ValueError: an event is no JSON object.
        """
        while True:
            while self._lines:
                event = self._take(self._lines.pop())
                if event is not None:
                    return event
            piece = await anext(self._pieces, None)
            if piece is None:
                return self._take(b"") if self._data and not self._rest else None
            self._feed(piece)

    def _feed(self, piece: bytes) -> None:
        # As bytes, because `str.splitlines` would break lines at U+2028, which JSON has in its texts.
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        self._lines = [line.rstrip(b"\r\n") for line in reversed(lines)]

    def _take(self, line: bytes) -> dict[str, Any] | None:
        """The event that a line completes."""
        if line.startswith(b"data:"):
            self._data.append(line[5:])
        if line or not self._data:
            return None
        data, self._data = b"\n".join(self._data), []
        event = json.loads(data.decode("utf-8", "replace"))
        if not isinstance(event, dict):
            raise ValueError(f"an event is a {type(event).__name__} and not an object")
        return event
