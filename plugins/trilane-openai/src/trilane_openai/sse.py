"""Server-sent events out of bytes, however these are cut.

Only CR, LF and CRLF end a line: U+2028 and its like, at which `str.splitlines` breaks, are text.
"""

from __future__ import annotations

__all__ = ["EventDecoder"]


class EventDecoder:
    """Give it bytes as they arrive; it gives the `data` of each event that is complete."""

    __slots__ = ("_data", "_line")

    def __init__(self) -> None:
        self._line = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that are complete now."""
        buffer = self._line + piece if self._line else piece
        events: list[bytes] = []
        lines = buffer.splitlines(keepends=True)
        # What has no end yet waits, and so does a CR, which an LF may follow.
        self._line = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            self._take(line.rstrip(b"\r\n"), events)
        return events

    def finish(self) -> list[bytes]:
        """The end of the stream: what is left, which may be an event without its empty line, or half of one."""
        events: list[bytes] = []
        if self._line:
            self._take(self._line.rstrip(b"\r\n"), events)
            self._line = b""
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        elif line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value[1:] if value.startswith(b" ") else value)
