"""From the bytes of a file to text, piece by piece, with an error the model can act on where there is no text.

Knows nothing of paths and folders (`confine.py`); what is made of the text is in `reading.py`, `counting.py` and
`searching.py`.
"""

from __future__ import annotations

import codecs
import io
from typing import TYPE_CHECKING, Literal, NoReturn

from trilane.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Encoding", "NotTextError", "TextPieces"]

Encoding = Literal["utf-8", "utf-16", "latin-1", "cp1252", "shift_jis", "gb18030"]

_PIECE_BYTES = 1 << 16
_FORMATS = {
    b"%PDF-": "a PDF document",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"PK\x03\x04": "a ZIP archive (or an office document)",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "a program",
}


class NotTextError(ToolError):
    """The file holds no text, or not in the encoding that was asked for.

    Attributes:
        reason: `binary` or `encoding`.
    """

    def __init__(self, message: str, reason: Literal["binary", "encoding"]) -> None:
        super().__init__(message)
        self.reason = reason


class TextPieces:
    r"""Iterates over the text of an open file in pieces of about 64 KB; a byte order mark is left out.

    Args:
        file: Read from where it stands; not closed.
        name: Its name for messages.
        encoding: How the bytes are to be understood.
        translate: Turn every `\r\n` and `\r` into `\n`.
    """

    def __init__(self, file: io.FileIO, name: str, encoding: Encoding = "utf-8", *, translate: bool = True) -> None:
        self._file = file
        self._name = name
        self._encoding = encoding
        codec = "utf-8-sig" if encoding == "utf-8" else encoding
        self._bytes = codecs.getincrementaldecoder(codec)("strict")
        self._lines = io.IncrementalNewlineDecoder(None, translate=translate)
        self.read_bytes = 0

    @property
    def line_ends(self) -> tuple[str, ...]:
        """The line ends met so far, sorted."""
        seen = self._lines.newlines
        return () if seen is None else (seen,) if isinstance(seen, str) else tuple(sorted(seen))

    def __iter__(self) -> Iterator[str]:
        """Yield the pieces.

        Raises:
            NotTextError: Binary data, or bytes that are not text in this encoding.
            ToolError: The system could not read on.
        """
        while True:
            raw = self._read()
            if self.read_bytes == 0:
                self._recognise(raw)
            self.read_bytes += len(raw)
            text = self._lines.decode(self._decode(raw), final=not raw)
            if "\0" in text:
                self._refuse_binary(self.read_bytes - len(raw) + max(0, raw.find(b"\0")))
            if text:
                yield text
            if not raw:
                return

    def _read(self) -> bytes:
        try:
            raw = self._file.read(_PIECE_BYTES)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ToolError(f"'{self._name}' cannot be read on: {reason}. Go on without it.") from error
        if raw is None:  # a regular file of the kernel that would make the reader wait
            raise ToolError(f"'{self._name}' has nothing to read now and would block. Go on without it.")
        return raw

    def _recognise(self, start: bytes) -> None:
        for magic, what in _FORMATS.items():
            if start.startswith(magic):
                raise NotTextError(
                    f"'{self._name}' is {what}, not text. file_info shows its size; choose another file.", "binary"
                )
        if self._encoding == "utf-8" and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise NotTextError(f"'{self._name}' is UTF-16 text. Call again with encoding='utf-16'.", "encoding")

    def _decode(self, raw: bytes) -> str:
        try:
            return self._bytes.decode(raw, final=not raw)
        except UnicodeError as error:
            start = error.start if isinstance(error, UnicodeDecodeError) else 0
            before = self.read_bytes - (len(error.object) if isinstance(error, UnicodeDecodeError) else len(raw))
            if b"\0" in raw and self._encoding != "utf-16":
                self._refuse_binary(self.read_bytes - len(raw) + raw.find(b"\0"))
            byte = f": byte 0x{error.object[start]:02x}" if isinstance(error, UnicodeDecodeError) else ","
            raise NotTextError(
                f"'{self._name}' is not {self._encoding} text{byte} at offset {before + start:,}. If it is text, call "
                "again with the encoding it was written in, such as encoding='latin-1' or encoding='cp1252'.",
                "encoding",
            ) from error

    def _refuse_binary(self, offset: int) -> NoReturn:
        raise NotTextError(
            f"'{self._name}' is binary, not text: NUL byte at offset {offset:,}. "
            "file_info shows its size; choose another file.",
            "binary",
        )
