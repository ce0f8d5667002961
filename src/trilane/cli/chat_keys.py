"""From the bytes of a terminal to keys. What a key does to a line is in `chat_editor.py`."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

__all__ = ["Key", "KeyDecoder"]


class Key(NamedTuple):
    """One thing that was typed.

    Attributes:
        name: `text`, `paste`, or the name of a key such as `enter`, `left`, `ctrl-c` or `alt-f`.
        text: What was typed or pasted; empty for other keys.
    """

    name: str
    text: str = ""


_PASTE_BEGINS = b"\x1b[200~"
_PASTE_ENDS = b"\x1b[201~"
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?<=>]*[ -/]*[@-~]|O[ -~])")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;?<=>]*[ -/]*|O)?\Z")
_KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[7~": "home",
    b"\x1b[4~": "end",
    b"\x1b[8~": "end",
    b"\x1b[3~": "delete",
    b"\x1b[1;5C": "alt-f",
    b"\x1b[1;5D": "alt-b",
    b"\x1b[1;3C": "alt-f",
    b"\x1b[1;3D": "alt-b",
    b"\x1b[13;2u": "newline",  # Shift-Enter, where terminals tell it apart
}
_KEYS |= {b"\x1bO" + code[2:]: name for code, name in list(_KEYS.items()) if len(code) == 3}
_CONTROL = {0x0D: "enter", 0x0A: "enter", 0x09: "tab", 0x7F: "backspace", 0x08: "backspace"}


class KeyDecoder:
    """Takes bytes as they come, and gives keys; what is cut in the middle waits for the rest."""

    def __init__(self) -> None:
        self._rest = b""
        self._pasting: bytes | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[Key]:
        """The keys that are complete now."""
        data, self._rest = self._rest + data, b""
        keys: list[Key] = []
        while data:
            if self._pasting is not None:
                data = self._paste(data, keys)
            elif data[0] == 0x1B:
                data = self._escape(data, keys)
            elif data[0] < 0x20 or data[0] == 0x7F:
                name = _CONTROL.get(data[0]) or f"ctrl-{chr(data[0] + 0x60)}"
                keys.append(Key(name))
                data = data[1:]
            else:
                end = next((at for at, byte in enumerate(data) if byte < 0x20 or byte == 0x7F), len(data))
                text = self._utf8.decode(data[:end])
                if text:
                    keys.append(Key("text", text))
                data = data[end:]
        return keys

    def _paste(self, data: bytes, keys: list[Key]) -> bytes:
        assert self._pasting is not None
        pasted = self._pasting + data
        end = pasted.find(_PASTE_ENDS)
        if end < 0:
            self._pasting = pasted
            return b""
        self._pasting = None
        text = pasted[:end].decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        keys.append(Key("paste", text))
        return pasted[end + len(_PASTE_ENDS) :]

    def _escape(self, data: bytes, keys: list[Key]) -> bytes:
        if data.startswith(_PASTE_BEGINS):
            self._pasting = b""
            return data[len(_PASTE_BEGINS) :]
        found = _SEQUENCE.match(data)
        if found is not None:
            name = _KEYS.get(found[0])
            if name is not None:  # other keys do nothing, rather than leaving their codes in the line
                keys.append(Key(name))
            return data[found.end() :]
        if _UNFINISHED.fullmatch(data):
            self._rest = data
            return b""
        if data[1] == 0x1B:  # the escape key, and then another key
            return data[1:]
        if data[1] in (0x0D, 0x0A):
            keys.append(Key("newline"))
        elif data[1] == 0x7F:
            keys.append(Key("ctrl-w"))
        elif 0x20 <= data[1] < 0x7F:
            keys.append(Key(f"alt-{chr(data[1]).lower()}"))
        return data[2:]
