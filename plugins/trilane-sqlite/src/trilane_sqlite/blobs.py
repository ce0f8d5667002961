"""Large texts beside the records: long strings, images, and the data of large results.

A string that is too long is replaced by a mark, and put back when the record is read. The `data` of a large result,
which no model sees, stays out: the record has a reference that `read_blob` follows. Equal texts are kept once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trilane.stores import SessionRecord

__all__ = ["PLAIN", "REFERENCE", "Packed", "pack", "unpack"]

LARGE = 16_384  # characters: four pages of the file

#: How a record is stored: as it is, with strings taken out, or altogether as one blob.
PLAIN, WITHOUT_STRINGS, WHOLE = 0, 1, 2

#: What stands for a large `data`, in records as programs see them.
REFERENCE = "$blob"
_MARK = "$trilane-text"


@dataclass(slots=True)
class Packed:
    """A record as it is stored.

    Attributes:
        body: Its JSON, or the id of the blob that it is.
        packed: `PLAIN`, `WITHOUT_STRINGS` or `WHOLE`.
        blobs: Texts by id that have to be stored.
        uses: Ids of all blobs that the record needs.
    """

    body: str
    packed: int = PLAIN
    blobs: dict[str, str] = field(default_factory=dict)
    uses: set[str] = field(default_factory=set)

    def take_out(self, text: str) -> str:
        """Keep a text beside the record; returns its id."""
        blob = sha256(text.encode()).hexdigest()
        self.blobs[blob] = text
        self.uses.add(blob)
        return blob


def pack(record: SessionRecord) -> Packed:
    """A record as it is to be stored."""
    text = record.to_json()
    packed = Packed(text)
    if record.kind in ("newer", "damaged"):  # these come back letter by letter
        if len(text) > LARGE:
            packed.body, packed.packed = packed.take_out(text), WHOLE
        return packed
    if len(text) <= LARGE and REFERENCE not in text and _MARK not in text:
        return packed
    value = json.loads(text)
    if record.kind == "call_finished":
        value["result"]["data"] = _data(packed, value["result"].get("data"))
    value = _without_strings(packed, value)
    packed.body, packed.packed = _dumps(value), WITHOUT_STRINGS
    return packed


def unpack(body: str, packed: int, fetch: Callable[[str], str]) -> str:
    """The JSON of a record as it was stored; `fetch` finds the text of a blob."""
    if packed == WHOLE:
        return fetch(body)
    return _dumps(_with_strings(json.loads(body), fetch))


def _data(packed: Packed, data: Any) -> Any:
    if isinstance(data, dict) and set(data) == {REFERENCE, "characters"} and isinstance(data[REFERENCE], str):
        packed.uses.add(data[REFERENCE])  # a record that was read, and is written again
        return data
    text = _dumps(data)
    if len(text) <= LARGE:
        return data
    return {REFERENCE: packed.take_out(text), "characters": len(text)}


def _without_strings(packed: Packed, value: Any) -> Any:
    if isinstance(value, str):
        return {_MARK: packed.take_out(value)} if len(value) > LARGE else value
    if isinstance(value, list):
        return [_without_strings(packed, item) for item in value]
    if isinstance(value, dict):
        inner = {key: _without_strings(packed, item) for key, item in value.items()}
        return {_MARK: None, "value": inner} if _MARK in value else inner
    return value


def _with_strings(value: Any, fetch: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_with_strings(item, fetch) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: _with_strings(item, fetch) for key, item in value.items()}
    if value[_MARK] is None:
        return {key: _with_strings(item, fetch) for key, item in value["value"].items()}
    return fetch(value[_MARK])


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
