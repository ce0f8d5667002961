"""As much of HTTP/1.1 as a wire server needs: read a request, write a response in chunks of chosen size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from .script import Cut, Hold, Split

__all__ = ["LAST_CHUNK", "Head", "body_chunks", "chunk", "in_pieces", "parse_head", "read_body", "status_line"]

LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a request or a response in its three words, and the headers with lower-case names."""

    words: tuple[str, str, str]
    headers: Mapping[str, str]


def parse_head(data: bytes) -> Head:
    """A head, up to and including its empty line.

    Raises:
        ValueError: it is none.
    """
    first, *lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = [*first.split(" ", 2), "", ""][:3]
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"not a header line: {line!r}")
        name = name.strip().lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return Head((words[0], words[1], words[2]), headers)


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """The body of a request."""
    if "content-length" in head.headers:
        return await reader.readexactly(int(head.headers["content-length"]))
    return b"".join([piece async for piece in body_chunks(reader, head)]) if _is_chunked(head) else b""


async def body_chunks(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """The body of a response, chunk by chunk if it is sent so, else in whatever pieces arrive."""
    if not _is_chunked(head):
        left = int(head.headers.get("content-length", -1))
        while left and (piece := await reader.read(65536 if left < 0 else left)):
            yield piece
            left = max(0, left - len(piece)) if left > 0 else left
        return
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        if size:
            yield await reader.readexactly(size)
        await reader.readline()
        if not size:
            return


def _is_chunked(head: Head) -> bool:
    return "chunked" in head.headers.get("transfer-encoding", "").lower()


def status_line(status: int, headers: Mapping[str, str]) -> bytes:
    """The head of a response."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def chunk(data: bytes) -> bytes:
    """`data` as one chunk: it reaches the client's parser as one piece, however TCP cuts it."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def in_pieces(frames: Iterable[bytes | Hold | Cut], split: Split) -> Iterator[bytes | Hold | Cut]:
    """The frames of a body, cut anew. A hold or a cut stays at its byte position."""
    if split == "frames":
        yield from frames
        return
    position = 0
    run = b""
    for frame in (*frames, None):
        if isinstance(frame, bytes):
            run += frame
            continue
        if run:
            yield from _cut(run, split, position)
            position += len(run)
            run = b""
        if frame is not None:
            yield frame


def _cut(run: bytes, split: int | tuple[int, ...] | str, position: int) -> Iterator[bytes]:
    if isinstance(split, int):
        yield from (run[at : at + split] for at in range(0, len(run), split))
        return
    inside = sorted({int(at) - position for at in split if 0 < int(at) - position < len(run)})
    for begin, end in zip([0, *inside], [*inside, len(run)], strict=True):
        yield run[begin:end]
