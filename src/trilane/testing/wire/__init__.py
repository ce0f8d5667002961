"""A loopback server that speaks the wire formats of model providers, for tests of provider adapters.

It listens on a free port of 127.0.0.1, in a thread of its own, and answers each request with the next reply of a
script, in the format its path belongs to: OpenAI Chat Completions (`/v1/chat/completions`) or Anthropic Messages
(`/v1/messages`), streamed. A reply is written once, in pieces that belong to no format; so one test fits two adapters.

```python
with WireServer(Reply.of("Let me look. ", call("search", {"text": "ships"})), "Two ships.") as server:
    client = AsyncOpenAI(base_url=server.openai_url, api_key="k")      # or AsyncAnthropic(base_url=server.url, ...)
    ...
    assert server.exchanges[1].json["messages"][-1]["role"] == "tool"  # what the client sent
    server.assert_finished()                                           # every reply was asked for, and none was missing
```

What a reply is made of, `Reply.of(*pieces, stop=..., usage=..., ends=..., split=...)`:

- `"text"` or `Say(text)`, `Think(text, signature)`, `Refuse(text)`
- `call(name, arguments, number=0, id=...)`: a whole tool call in pieces; `interleaved(call(...), call(...))` mixes
  several; `Call(number, id, name, arguments, indexed)` is one piece; `indexed=False` leaves the index out where the
  format can. Arguments may be any text: a `str` is sent as it is, so it can be cut off or malformed.
- `Ping()` (keep-alive comment), `Empty()` (chunk without choices), `Unknown()` (event of a later version),
  `Fail(message, type)` (error event in the stream), `Raw(bytes)`
- `Hold(name)`: send nothing until `server.release(name)`; `STALL`: for ever. `Cut(reset=False)`: drop the connection.
- `stop`: one of Trilane's stop reasons, translated to the format's; `ends`: `"done"`, `"finished"` (stop reason, but no
  `[DONE]` or `message_stop`), `"open"` (neither); `split`: `"frames"`, bytes a piece (`1`), or byte positions `(17,)`;
  `usage_at`, `reasoning_field`: variants of Chat Completions; `hold_headers="name"`: a hold before the status line.

`Reply.error(status, message, type=..., code=..., retry_after="2")` answers with an HTTP error. A script step may also
be a function of the `Exchange` (number, path, headers, body, `json`) that returns a reply.

What happened, waited for on asyncio and trio alike, each with a `timeout` of real seconds that fails with a text:
`await server.received(n)` (request n has arrived, from 1), `await server.reached(name)` (the server holds there), and
`await server.closed(n)` (the client has closed the connection of request n), which returns the moment as
`time.perf_counter`. `server.note("stopped")` writes into the same `server.log`, so that order can be asserted
(`server.kinds()`) and time measured. `server.busy` and `server.open_connections` count what is in use.

Every request is checked by `check_request(body, format)`, the rules of its provider: one that breaks them is answered
with a 400, as the provider would, and `assert_finished` tells. `WireServer(..., check=False)` takes everything.

`record` (a server that passes on to a real one) and `replay` keep real traffic as JSON, without secrets; see
`cassettes.py`. None of this imports a provider's SDK or a web framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cassettes import Cassette, RecordedExchange, Recorder, record, replay
    from .requests import check_request
    from .script import (
        STALL,
        Call,
        Cut,
        Empty,
        Fail,
        Hold,
        Ping,
        Raw,
        Refuse,
        Reply,
        Say,
        Think,
        Unknown,
        call,
        interleaved,
    )
    from .server import Exchange, LogEntry, WireError, WireServer

__all__ = [
    "STALL",
    "Call",
    "Cassette",
    "Cut",
    "Empty",
    "Exchange",
    "Fail",
    "Hold",
    "LogEntry",
    "Ping",
    "Raw",
    "RecordedExchange",
    "Recorder",
    "Refuse",
    "Reply",
    "Say",
    "Think",
    "Unknown",
    "WireError",
    "WireServer",
    "call",
    "check_request",
    "interleaved",
    "record",
    "replay",
]

_MODULES = {
    **dict.fromkeys(("Cassette", "RecordedExchange", "Recorder", "record", "replay"), "cassettes"),
    **dict.fromkeys(("Exchange", "LogEntry", "WireError", "WireServer"), "server"),
    "check_request": "requests",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = _MODULES.get(name, "script")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
