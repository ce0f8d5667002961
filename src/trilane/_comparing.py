"""Reading a run from its records, as a list of things that happened, and comparing two of them.

What makes the records of a run complete enough for that is in `_tape.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .ledger import difference, plain
from .messages import ToolResult
from .models import ModelResponse
from .replay import ASPECTS, Aspect, Difference, ReplayedRun
from .sessions import known_of

if TYPE_CHECKING:
    from pydantic import JsonValue

    from .messages import AssistantMessage, ToolCall
    from .stores import KnownRecord, SessionRecord, ViewReplaced

__all__ = ["StoredReply", "StoredRun", "compare_runs", "same_id", "stored_runs"]

#: What can be compared of a run that was not recorded for replay.
_WITHOUT_TAPE: tuple[Aspect, ...] = ("arguments", "results", "messages", "endings")
#: Whose changes explain a difference of that aspect.
_SUBJECTS: dict[str, frozenset[str]] = {
    "requests": frozenset({"request", "history", "tools"}),
    "arguments": frozenset({"arguments", "decision"}),
    "results": frozenset({"result", "decision", "arguments"}),
    "messages": frozenset({"message", "response", "history", "decision"}),
    "events": frozenset({"delta", "decision", "response"}),
    "endings": frozenset({"output", "decision"}),
}
NEAR = 50  # things that are looked through for what another came before
#: Ids that the runtime gave to calls of models that give none; they are others in each run.
_MADE_ID = re.compile(r"\bcall_[0-9a-f]{12}_(\d+)\b")


# ---- a run, read from its records ------------------------------------------------------------------------------------


class _Item:
    """One thing that happened. Those of one track happen in order; parallel calls have tracks of their own."""

    __slots__ = ("aspect", "place", "track", "turn", "value", "where")

    def __init__(self, aspect: Aspect, value: Any, *, track: str, where: str, turn: int, place: int) -> None:
        self.aspect = aspect
        self.value = value
        self.track = track
        self.where = where
        self.turn = turn
        self.place = place


class StoredReply(NamedTuple):
    """What a model answered.

    Attributes:
        response: The response; of one that failed, what had arrived.
        was_streamed: True if it came in deltas.
        error: What it failed with.
    """

    response: ModelResponse
    was_streamed: bool
    error: dict[str, Any] | None


class StoredRun:
    """One run, put together from the records it wrote.

    Attributes:
        run_id: Its id.
        first: Position of its first record among those of the session, from 0.
        start: How it began: mode, model, and so on; what is not known is missing.
        has_tape: True if it was recorded for replay.
        status: How it ended; empty if it was cut off.
        stopped: True if it was ended from outside; what came after that is not compared.
        records: Its records.
        waiting: Ids of messages that were said to earlier runs, and not heard by any before this one.
        entries: Its tape, or as much of one as follows from its records.
        calls: Of the model's last message before it: a resumed run goes on with them.
    """

    def __init__(self, run_id: str, first: int, waiting: frozenset[str] = frozenset()) -> None:
        self.run_id = run_id
        self.first = first
        self.waiting = waiting
        self.start: dict[str, Any] = {}
        self.has_tape = False
        self.status = ""
        self.stopped = False
        self.records: list[KnownRecord] = []
        self.entries: list[Any] = []
        self.calls: tuple[ToolCall, ...] = ()

    def finish(self) -> None:
        """All of its records are there."""
        tape = [entry for record in self.records if record.kind == "run_tape" for entry in record.entries]
        self.has_tape = bool(tape)
        self.entries = [list(entry) for entry in tape if isinstance(entry, (list, tuple)) and entry]
        if not tape:
            self.entries = list(_entries_without_tape(self))
        for entry in self.entries:
            if entry[0] == "start":
                self.start = entry[1]
        self.status = next((one.status for one in self.records if one.kind == "run_ended"), "")
        self.stopped = any(entry[0] == "stop" for entry in self.entries) or self.status in (
            "",
            "cancelled",
            "suspended",
            "timed_out",
        )

    @property
    def replies(self) -> Iterator[StoredReply]:
        """What the model answered, in order."""
        messages = {one.message.id: one.message for one in self.records if one.kind == "message"}
        for entry in self.entries:
            if entry[0] != "reply" or entry[1] is None:
                continue
            reply, streamed = entry[1], "streamed" in entry[2:]
            if "message" in reply:
                message = messages.get(reply["message"])
                if message is None or message.kind != "assistant":
                    return
                yield StoredReply(_response(message), streamed, None)
            else:
                error = reply if "error" in reply else None
                yield StoredReply(ModelResponse.from_json(json.dumps(reply)), streamed, error)

    @property
    def results(self) -> dict[tuple[int, str], ToolResult]:
        """What tools returned, before plugins saw it, by the number of the model's message and the call's id."""
        from .messages import ToolResult

        found: dict[tuple[int, str], ToolResult] = {}
        finished = iter([one for one in self.records if one.kind == "call_finished"])
        answers = 0
        roles = iter([one.message.kind for one in self.records if one.kind == "message"])
        for entry in self.entries:
            if entry[:2] == ["record", "message"]:
                answers += next(roles, "") == "assistant"
            elif entry[:2] == ["record", "call_finished"]:
                record = next(finished, None)
                if record is None:
                    break
                raw = ToolResult.from_json(json.dumps(entry[3])) if len(entry) > 3 else record.result
                found[answers, same_id(record.result.call_id)] = raw
        return found

    @property
    def asides(self) -> dict[str, list[StoredReply]]:
        """What models answered that plugins called beside the turns, in order, by plugin."""
        found: dict[str, list[StoredReply]] = {}
        for entry in self.entries:
            if entry[0] == "aside":
                error = entry[2] if "error" in entry[2] else None
                reply = StoredReply(ModelResponse.from_json(json.dumps(entry[2])), True, error)
                found.setdefault(entry[1], []).append(reply)
        return found

    @property
    def compactions(self) -> list[tuple[int, ViewReplaced]]:
        """The compactions: how many records that are compared came before, and what replaced the view."""
        replaced = iter([one for one in self.records if one.kind == "view_replaced"])
        count, found = 0, []
        for entry in self.entries:
            if entry[:2] == ["record", "view_replaced"]:
                record = next(replaced, None)
                if record is not None:
                    found.append((count, record))
            count += entry[0] == "record"
        return found

    @property
    def heard(self) -> list[tuple[int, Any]]:
        """Steering and follow-ups: how much had happened when they came, and the message as JSON."""
        position, found = 0, []
        for entry in self.entries:
            if entry[0] == "heard":
                found.append((position, entry[1]))
            position += entry[0] in ("hook", "request", "record", "event")
        return found


def same_id(call_id: str) -> str:
    """A call's id, the same in each run."""
    return _MADE_ID.sub(r"call_*_\1", call_id)


def _response(message: AssistantMessage) -> ModelResponse:
    return ModelResponse(
        parts=message.parts,
        stop_reason=message.stop_reason,
        usage=message.usage,
        model=message.model,
        extra=message.extra,
    )


def stored_runs(records: Sequence[SessionRecord]) -> list[StoredRun]:
    """The runs of a session, in order; compactions, which are runs of their own, are left out."""
    runs: dict[str, StoredRun] = {}
    calls: tuple[ToolCall, ...] = ()
    waiting: frozenset[str] = frozenset()
    for position, record in enumerate(records):
        known = known_of(record)
        if known is not None:
            run = runs.get(known.run_id)
            if run is None:
                run = runs[known.run_id] = StoredRun(known.run_id, position, waiting)
                run.calls = calls
            if known.kind == "message" and known.message.kind == "assistant":
                calls = known.message.calls
            run.records.append(known)
            if known.kind == "message_waiting":
                waiting |= {known.message.id}
            elif known.kind == "message" and known.message.id in waiting:
                waiting -= {known.message.id}
    for run in runs.values():
        run.finish()
    return [run for run in runs.values() if _is_replayable(run)]


def _is_replayable(run: StoredRun) -> bool:
    if run.start.get("mode") == "compact":
        return False
    return run.has_tape or any(one.kind in ("message", "call_started", "call_finished") for one in run.records)


def _entries_without_tape(run: StoredRun) -> Iterator[list[Any]]:
    """What a tape would say, as far as the records tell."""
    first = next((one for one in run.records if _begins(one, run.waiting)), None)
    history = 0
    messages = [one.message for one in run.records if one.kind == "message" and one.message.id not in run.waiting]
    for number, message in enumerate(messages):
        if message.kind == "user" and message.origin == "request":
            history = number  # a history from elsewhere stands before the request: the last one is this run's
    is_resumed = first is None or first.kind != "message" or first.message.kind == "assistant"
    model = next((message.model for message in messages if message.kind == "assistant"), "")
    start = {"mode": "resume" if is_resumed else "run", "model": model, "history": history}
    yield ["start", {**start, "watched": True, "answers": True}]
    pending: list[list[Any]] = []
    end = _end_without_tape(run)
    for place, record in enumerate(run.records):
        if place == end:
            yield ["stop"]
        if record.kind == "message" and record.message.kind == "assistant" and not record.message.interrupted:
            yield ["reply", {"message": record.message.id}]
        if record.kind == "message":
            if record.message.kind == "user" and record.message.origin in ("steering", "follow_up"):
                if not pending and record.message.id not in run.waiting:  # those the session says
                    yield ["heard", _plain_json(record.message)]
                pending = []
            yield ["record", "message"]
        elif record.kind == "call_finished":
            if record.result.outcome == "superseded" and not pending:  # by what was said next
                pending = [["heard", message] for message in _said_next(run, place)]
                yield from pending
            yield ["record", record.kind, record.result.call_id]
        elif record.kind in ("message_hidden", "view_replaced", "run_ended"):
            yield ["record", record.kind]
        elif record.kind == "call_started" and record.arguments_hash:
            yield ["hash", record.call_id, record.arguments_hash]


def _begins(record: KnownRecord, waiting: frozenset[str]) -> bool:
    """True for the first record that tells how a run began: what waited to be heard comes before it."""
    if record.kind == "message":
        return record.message.id not in waiting
    return record.kind in ("call_started", "call_finished")


def _end_without_tape(run: StoredRun) -> int:
    """Where the records begin that only say how a run was ended, which did not complete."""
    end = len(run.records)
    if not run.records or run.records[-1].kind != "run_ended" or run.records[-1].status == "completed":
        return end
    while end and run.records[end - 1].kind != "message":
        end -= 1  # to the calls of the last message
    for place, record in enumerate(run.records[end:], end):
        if _is_of_the_end(record):
            end = place
            break
    while end and _is_of_the_end(run.records[end - 1]):
        end -= 1
    return end


def _is_of_the_end(record: KnownRecord) -> bool:
    if record.kind == "message":
        return record.message.kind == "assistant" and record.message.interrupted
    if record.kind == "call_finished":
        return record.result.outcome in ("interrupted", "still_running", "not_started", "timed_out")
    return record.kind in ("run_ended", "question_closed", "call_withdrawn")


def _said_next(run: StoredRun, place: int) -> Iterator[Any]:
    for record in run.records[place:]:
        if record.kind == "message":
            if record.message.kind == "user" and record.message.origin == "steering":
                yield _plain_json(record.message)
            return


def _plain_json(record: Any) -> Any:
    return json.loads(record.to_json())


# ---- comparing -------------------------------------------------------------------------------------------------------


def compare_runs(then: StoredRun, now: StoredRun, *, ignore: Collection[Aspect] = ()) -> ReplayedRun:
    """Compare a stored run with its replay."""
    wanted = tuple(aspect for aspect in _comparable(then) if aspect not in ignore)
    now.calls = then.calls
    old, new = _items(then, wanted, then.has_tape), _items(now, wanted, then.has_tape)
    found = _first_difference(old, new, is_whole=not then.stopped)
    shown = None
    if found is not None:
        before, after = found
        item = before or after
        assert item is not None
        was, is_now = _sides(before, after)
        shown = Difference(
            aspect=item.aspect, where=item.where, was=was, now=is_now, plugins=_involved(then, now, before, after)
        )
    return ReplayedRun(run_id=then.run_id, status=then.status, compared=wanted, count=len(old), difference=shown)


def _comparable(run: StoredRun) -> tuple[Aspect, ...]:
    if run.has_tape:
        return ASPECTS
    is_hashed = any(entry[0] == "hash" for entry in run.entries)
    return tuple(aspect for aspect in _WITHOUT_TAPE if is_hashed or aspect != "arguments")


def _sides(before: _Item | None, after: _Item | None) -> tuple[JsonValue, JsonValue]:
    if before is None or after is None or before.aspect != after.aspect:
        return (None if before is None else before.value), (None if after is None else after.value)
    return difference(before.value, after.value)


def _first_difference(
    old: list[_Item], new: list[_Item], *, is_whole: bool
) -> tuple[_Item | None, _Item | None] | None:
    """The first pair that differs, by the order in which things happened then."""
    candidates: list[tuple[float, _Item | None, _Item | None]] = []
    tracks = dict.fromkeys([item.track for item in (*old, *new)])
    for track in tracks:
        mine = [item for item in old if item.track == track]
        theirs = [item for item in new if item.track == track]
        for number, (before, after) in enumerate(zip(mine, theirs, strict=False)):
            if not _is_same(before, after):
                candidates.append(_parted(mine[number:], theirs[number:], old, new))
                break
        else:
            if len(mine) > len(theirs):
                candidates.append((mine[len(theirs)].place, mine[len(theirs)], None))
            elif len(theirs) > len(mine) and is_whole:
                extra = theirs[len(mine)]
                # It happened after what it followed today; that was in the other run, too.
                candidates.append((_place_before(extra, old, new) + 0.5, None, extra))
    if not candidates:
        return None
    _, before_first, after_first = min(candidates, key=lambda one: one[0])
    return before_first, after_first


def _is_same(before: _Item, after: _Item) -> bool:
    return before.aspect == after.aspect and before.value == after.value


def _parted(
    mine: list[_Item], theirs: list[_Item], old: list[_Item], new: list[_Item]
) -> tuple[float, _Item | None, _Item | None]:
    """Where two tracks part: is the first of theirs new, the first of mine gone, or one in place of the other?"""
    before, after = mine[0], theirs[0]
    added = next((count for count, one in enumerate(theirs[1:NEAR]) if _is_same(before, one)), NEAR)
    gone = next((count for count, one in enumerate(mine[1:NEAR]) if _is_same(one, after)), NEAR)
    if added < gone:
        return _place_before(after, old, new) + 0.5, None, after
    return (before.place, before, None) if gone < NEAR else (before.place, before, after)


def _place_before(extra: _Item, old: list[_Item], new: list[_Item]) -> float:
    """Where in the stored run the thing stands that came right before `extra` today."""
    counts: dict[str, int] = {}
    last = -1.0
    for item in new:
        if item is extra:
            break
        number = counts.get(item.track, 0)
        counts[item.track] = number + 1
        twins = [one for one in old if one.track == item.track]
        if number < len(twins):
            last = max(last, twins[number].place)
    return last


def _involved(then: StoredRun, now: StoredRun, before: _Item | None, after: _Item | None) -> tuple[str, ...]:
    """The plugins that changed the thing in one of the runs only; if there are none, those that did in either."""
    item = before or after
    assert item is not None
    if item.aspect == "hooks":
        return tuple(dict.fromkeys(one.value["plugin"] for one in (after, before) if one and one.aspect == "hooks"))
    if item.aspect == "events":
        named = [one.value.get("plugin") for one in (after, before) if one is not None and isinstance(one.value, dict)]
        if any(named):
            return tuple(dict.fromkeys(name for name in named if name))
    old, new = _changers(then, item), _changers(now, item)
    only = [name for name in (*new, *old) if (name in new) != (name in old)]
    return tuple(dict.fromkeys(only or (*new, *old)))


def _changers(run: StoredRun, item: _Item) -> list[str]:
    subjects = _SUBJECTS.get(item.aspect, frozenset())
    tool = item.value.get("tool", "") if isinstance(item.value, dict) else ""
    found, turn = [], 0
    roles = iter([one.message.kind for one in run.records if one.kind == "message"])
    for entry in run.entries:
        if entry[:2] == ["record", "message"]:
            turn += next(roles, "") == "assistant"
        elif entry[0] == "change" and (entry[3] in subjects or entry[3] == "failure") and turn == item.turn:
            found += [entry[1]] if not tool or len(entry) < 5 or entry[4] == tool else []
    return list(dict.fromkeys(found))


# ---- what happened ---------------------------------------------------------------------------------------------------


def _items(run: StoredRun, wanted: Collection[Aspect], with_tape: bool) -> list[_Item]:
    reader = _Reader(run, with_tape)
    items: list[_Item] = []
    for entry in run.entries:
        if entry[0] == "stop":
            if with_tape:
                items = _without_unfinished(items)
            break
        item = reader.read(entry)
        if reader.is_over:
            break
        if item is not None and item.aspect in wanted:
            item.value = _without_made_ids(item.value)
            items.append(item)
    if not with_tape:  # when exactly a call was superseded is not known: before it was announced, or after
        items = [item for item in items if item.aspect != "arguments" or item.track not in reader.superseded]
    return items


def _without_unfinished(items: list[_Item]) -> list[_Item]:
    """What happened before a stop. A message that plugins had not yet changed to the end is no part of it."""
    for place in range(len(items) - 1, -1, -1):
        value = items[place].value
        if isinstance(value, dict) and value.get("event") == "MessageCompleted":
            break
        if isinstance(value, dict) and value.get("from") == "assistant":
            return [*items[:place], *items[place + 1 :]]
    return items


class _Reader:
    """Turns entries of a tape into things that happened."""

    def __init__(self, run: StoredRun, with_tape: bool) -> None:
        self._with_tape = with_tape
        self.is_over = False
        self._place = 0
        self._turn = 0  # messages of the model so far
        self._request: dict[str, Any] = {}
        self._calls: dict[str, Any] = {call.id: call for call in run.calls}  # of the last message
        self._records: dict[str, Iterator[Any]] = {}
        for kind in ("message", "call_finished", "message_hidden", "view_replaced", "run_ended"):
            self._records[kind] = iter([record for record in run.records if record.kind == kind])
        self._history = run.start.get("history", 0)
        self.superseded: set[str] = set()  # tracks of calls that did not run, for something was said before

    def read(self, entry: list[Any]) -> _Item | None:
        self._place += 1
        kind = entry[0]
        if kind == "hook":
            return self._hook(entry)
        if kind == "request":
            self._request = {**self._request, **entry[1]}
            return self._item("requests", self._request, where=f"the request of turn {self._request.get('turn', '?')}")
        if kind == "event":
            return self._event(entry)
        if kind == "record":
            return self._record(entry)
        if kind == "hash":
            return self._item("arguments", {"sha256": entry[2]}, track=entry[1], where=f"{self._in_turn}, a call")
        return None

    @property
    def _in_turn(self) -> str:
        return f"turn {self._turn}" if self._turn else "before the first answer"

    def _item(self, aspect: Aspect, value: Any, *, where: str, track: str = "") -> _Item:
        name = f"{self._turn} {same_id(track)}" if track else ""
        return _Item(aspect, value, track=name, where=where, turn=self._turn, place=self._place)

    def _hook(self, entry: list[Any]) -> _Item:
        hook, plugin = entry[1], entry[2]
        call = entry[3] if len(entry) > 3 else ""
        value = {"hook": hook, "plugin": plugin, **({"notification": entry[4]} if len(entry) > 4 else {})}
        item = self._item("hooks", value, track=call, where=f"{self._in_turn}{self._tool(call)}")
        if hook == "on_event":
            item.track = "on_event"
        return item

    def _tool(self, call_id: str) -> str:
        call = self._calls.get(call_id)
        return "" if call is None else f", tool {call.name}"

    def _event(self, entry: list[Any]) -> _Item | None:
        name, value = entry[1], dict(entry[2])
        call = entry[3] if len(entry) > 3 else ""
        where = f"{self._in_turn}{self._tool(call)}"
        if name != "ToolStarted":
            return self._item("events", {"event": name, **value}, track=call, where=where)
        known = self._calls.get(call)
        arguments = value.get("arguments", plain(dict(known.arguments)) if known is not None else None)
        if not self._with_tape:
            return self._item("arguments", {"sha256": _hash(arguments)}, track=call, where=f"{self._in_turn}, a call")
        return self._item("arguments", {"tool": value.get("tool"), "arguments": arguments}, track=call, where=where)

    def _record(self, entry: list[Any]) -> _Item | None:
        kind = entry[1]
        record = next(self._records[kind], None)
        if record is None:  # of a session that is only partly there
            self.is_over = True
            return None
        if kind == "message":
            return self._message(record.message)
        if kind == "call_finished":
            call = record.result.call_id
            value = {"tool": getattr(self._calls.get(call), "name", ""), "result": plain(record.result)}
            item = self._item("results", value, track=call, where=f"{self._in_turn}{self._tool(call)}")
            if record.result.outcome == "superseded":
                self.superseded.add(item.track)
            return item
        if kind == "run_ended":
            return self._item("endings", {"status": record.status, "turns": record.turns}, where="the end of the run")
        value = {"hidden": record.reason} if kind == "message_hidden" else {"compacted": len(record.messages)}
        return self._item("messages", value, where=self._in_turn)

    def _message(self, message: Any) -> _Item | None:
        if self._history:  # given with the request: it is no part of the run
            self._history -= 1
            return None
        if message.kind == "assistant":
            self._turn += 1
            self._calls = {call.id: call for call in message.calls}
        value = plain(message)
        assert isinstance(value, dict)
        who = {"assistant": "the model's message", "user": "the user's message"}.get(message.kind, "a message")
        about = {name: part for name, part in value.items() if name not in ("id", "usage")}
        return self._item("messages", {"from": message.kind, **about}, where=f"{who}, {self._in_turn}")


def _without_made_ids(value: Any) -> Any:
    if isinstance(value, str):
        return same_id(value) if "call_" in value else value
    if isinstance(value, dict):
        return {name: _without_made_ids(part) for name, part in value.items()}
    return [_without_made_ids(part) for part in value] if isinstance(value, (list, tuple)) else value


def _hash(arguments: Any) -> str:
    """As in `CallStarted`."""
    import json

    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
