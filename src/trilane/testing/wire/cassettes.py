"""Real traffic of a provider, kept as JSON without secrets, and played back without the provider.

```python
with record("https://api.openai.com") as server:                 # a key is needed here, once
    ...                                                          # the client's base URL is server.openai_url
server.cassette.save("tests/cassettes/two_calls.json")

with replay("tests/cassettes/two_calls.json") as server:         # no key, no network
    ...
    server.assert_finished()
```

Written down are: method, path, the JSON body of each request; status, a few headers and the chunks of each response.
Not written down are all other headers, which is where keys and accounts are; the values of keys, wherever they appear
again; and what looks like a key. A key that a model spells out in several deltas is not recognised: look at a cassette
before it is published.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .http import Head, body_chunks, parse_head
from .server import Exchange, WireError, WireServer

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["Cassette", "RecordedExchange", "Recorder", "record", "replay"]

REMOVED = "REMOVED"
_KEPT_HEADERS = ("content-type", "request-id", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry")
_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization")
_KEY_SHAPE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza|nvapi|csk)[-_A-Za-z0-9]{19,}")
_KEY_PARAMETER = re.compile(r"(?<=[?&])([^=&]*(?:key|token|secret|signature|password)[^=&]*)=[^&]*", re.IGNORECASE)
_HOP = ("host", "connection", "accept-encoding", "content-length", "transfer-encoding", "keep-alive")


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """One request and its response, without secrets. `chunks` as they arrived, with bytes that are no UTF-8 escaped."""

    method: str
    path: str
    request: JsonValue
    status: int
    headers: Mapping[str, str]
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cassette:
    """Recorded exchanges, in order."""

    exchanges: tuple[RecordedExchange, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cassette:
        """Read what `save` wrote."""
        with open(path, encoding="utf-8") as file:
            return cls.from_json(file.read())

    def to_json(self) -> str:
        """This cassette as JSON, a line for each chunk, so that differences can be read."""
        values = [{name: getattr(one, name) for name in RecordedExchange.__slots__} for one in self.exchanges]
        return json.dumps({"cassette": 1, "exchanges": values}, indent=1)

    @classmethod
    def from_json(cls, data: str) -> Cassette:
        """The cassette that `to_json` wrote.

        Raises:
            ValueError: it is none.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("cassette") != 1:
            raise ValueError('not a cassette: a JSON object with "cassette": 1 is expected')
        return cls(tuple(RecordedExchange(**{**one, "chunks": tuple(one["chunks"])}) for one in value["exchanges"]))


class Recorder(WireServer):
    """Passes every request on to a real server, and keeps what it answers. Made by `record`.

    Raises:
        ValueError: `upstream` is no URL of a server.
    """

    def __init__(self, upstream: str, secrets: Iterable[str]) -> None:
        super().__init__()
        self._upstream = urlsplit(upstream)
        if self._upstream.scheme not in ("http", "https") or not self._upstream.hostname:
            raise ValueError(f"record() needs the URL of a server, such as 'https://api.openai.com', not {upstream!r}")
        self._secrets = {secret for secret in secrets if secret}
        self._recorded: dict[int, RecordedExchange] = {}

    @property
    def cassette(self) -> Cassette:
        """What has been recorded so far; exchanges that the client broke off are not in it."""
        return Cassette(tuple(self._recorded[number] for number in sorted(self._recorded)))

    async def _respond(self, exchange: Exchange, writer: asyncio.StreamWriter) -> None:
        self._secrets.update(_keys_in(exchange.headers))
        to = self._upstream
        port = to.port or (443 if to.scheme == "https" else 80)
        reader, upstream = await asyncio.open_connection(to.hostname, port, ssl=to.scheme == "https" or None)
        try:
            upstream.write(self._forwarded(exchange))
            await upstream.drain()
            head = parse_head(await reader.readuntil(b"\r\n\r\n"))
            kept = {name: value for name, value in head.headers.items() if name in _KEPT_HEADERS}
            await self._begin(exchange, writer, int(head.words[1]), kept)
            chunks: list[bytes] = []
            async for piece in body_chunks(reader, head):
                chunks.append(piece)
                await self._send(writer, piece)
            self._keep(exchange, head, kept, chunks)
            await self._end(exchange, writer)
        finally:
            upstream.transport.abort()

    def _forwarded(self, exchange: Exchange) -> bytes:
        to = self._upstream
        host = to.netloc.rpartition("@")[2]
        headers = {name: value for name, value in exchange.headers.items() if name not in _HOP}
        headers |= {
            "host": host,
            "connection": "close",
            "accept-encoding": "identity",
            "content-length": str(len(exchange.body)),
        }
        path = to.path.rstrip("/") + exchange.path
        lines = [f"{exchange.method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + exchange.body

    def _keep(self, exchange: Exchange, head: Head, kept: Mapping[str, str], chunks: Sequence[bytes]) -> None:
        clean = _Cleaner(self._secrets)
        self._recorded[exchange.number] = RecordedExchange(
            method=exchange.method,
            path=clean.path(exchange.path),
            request=clean.request(exchange.body),
            status=int(head.words[1]),
            headers={name: clean.text(value) for name, value in kept.items()},
            chunks=clean.chunks(chunks),
        )


class _Replayer(WireServer):
    """Answers with what was recorded, if the requests are those that were recorded."""

    def __init__(self, cassette: Cassette, secrets: Iterable[str]) -> None:
        super().__init__()
        self._left = list(cassette.exchanges)
        self._count = len(cassette.exchanges)
        self._secrets = set(secrets)

    def assert_finished(self) -> None:
        super().assert_finished()
        if self._left:
            raise WireError(f"{len(self._left)} of {self._count} recorded exchanges were not asked for")

    async def _respond(self, exchange: Exchange, writer: asyncio.StreamWriter) -> None:
        problem = self._problem(exchange)
        if problem:
            self.problems.append(problem)
            await self._begin(exchange, writer, 400, {"content-type": "application/json"})
            await self._send(writer, json.dumps({"error": {"message": problem, "type": "replay"}}).encode())
        else:
            recorded = self._left.pop(0)
            await self._begin(exchange, writer, recorded.status, recorded.headers)
            for text in recorded.chunks:
                await self._send(writer, text.encode("utf-8", "surrogateescape"))
        await self._end(exchange, writer)

    def _problem(self, exchange: Exchange) -> str:
        if not self._left:
            return f"request {exchange.number} was not recorded; the cassette has {self._count} exchanges"
        expected = self._left[0]
        clean = _Cleaner(self._secrets | set(_keys_in(exchange.headers)))
        came = (exchange.method, clean.path(exchange.path))
        if came != (expected.method, expected.path):
            return f"request {exchange.number} is {' '.join(came)}, recorded was {expected.method} {expected.path}"
        body = clean.request(exchange.body)
        if body != expected.request:
            return f"request {exchange.number} differs from the recorded one in {_difference(body, expected.request)}"
        return ""


def record(upstream: str, *, secrets: Iterable[str] = ()) -> Recorder:
    """A server that passes requests on to `upstream` and keeps the answers in `.cassette`.

    Args:
        upstream: The URL of the real server, without the path that the client adds.
        secrets: Texts that must not be written down. The keys that requests carry in their headers need not be given.
    """
    return Recorder(upstream, secrets)


def replay(cassette: Cassette | str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> WireServer:
    """A server that answers as recorded. A request that differs gets a 400, and `assert_finished` tells in what.

    Args:
        cassette: What was recorded, or the file it was saved in.
        secrets: As they were given to `record`.
    """
    return _Replayer(cassette if isinstance(cassette, Cassette) else Cassette.load(cassette), secrets)


class _Cleaner:
    """Removes secrets. Each is looked for as it is and as JSON writes it."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1]) if len(form) >= 4}
        longest_first = sorted(texts, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if texts else None

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        return _KEY_SHAPE.sub(REMOVED, text)

    def path(self, path: str) -> str:
        return self.text(_KEY_PARAMETER.sub(rf"\1={REMOVED}", path))

    def request(self, body: bytes) -> JsonValue:
        text = self.text(body.decode("utf-8", "replace"))
        try:
            value: JsonValue = json.loads(text)
        except ValueError:
            return text
        return value

    def chunks(self, chunks: Sequence[bytes]) -> tuple[str, ...]:
        whole = b"".join(chunks).decode("utf-8", "surrogateescape")
        cleaned = self.text(whole)
        if cleaned == whole:
            return tuple(piece.decode("utf-8", "surrogateescape") for piece in chunks)
        # A secret may lie across the border of two chunks, so these are given up for the borders of events.
        return tuple(piece for piece in re.split(r"(?<=\n\n)", cleaned) if piece)


def _keys_in(headers: Mapping[str, str]) -> list[str]:
    return [headers[name].removeprefix("Bearer ").strip() for name in _KEY_HEADERS if name in headers]


def _difference(one: JsonValue, other: JsonValue, where: str = "the body") -> str:
    """The first place in which two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*other, *(key for key in one if key not in other)]:
            if key not in one or key not in other:
                return f"{where}: {key!r} is {'new' if key in one else 'missing'}"
            if one[key] != other[key]:
                return _difference(one[key], other[key], f"{where}[{key!r}]")
    if isinstance(one, list) and isinstance(other, list):
        for at, (left, right) in enumerate(zip(one, other, strict=False)):
            if left != right:
                return _difference(left, right, f"{where}[{at}]")
        return f"{where}: it has {len(one)} items, {len(other)} were recorded"
    return f"{where}: {json.dumps(one)[:200]} instead of {json.dumps(other)[:200]}"
