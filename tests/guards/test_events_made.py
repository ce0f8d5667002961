"""Events are made from dictionaries, without a check of the names in them: here every place that makes one is read."""

from __future__ import annotations

import ast
from pathlib import Path

import trilane
from trilane import events
from trilane._records import _CONSTANT, _STAMP
from trilane.events import AgentEvent

SOURCE = Path(trilane.__file__).parent
#: Names of variables that hold one of several classes.
ONE_OF = {
    "started": ("TextStarted", "ReasoningStarted"),
    "event": ("TextDelta", "ReasoningDelta"),
    "completed": ("TextCompleted", "ReasoningCompleted"),
}


def test_every_event_is_made_with_fields_it_has_and_all_it_needs() -> None:
    found: set[str] = set()
    for file in sorted(SOURCE.glob("_*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "produce":
                continue
            given = {one.arg for one in call.keywords}
            assert isinstance(call.args[0], ast.Name)
            if None in given:  # handed on as it was given
                continue
            for name in ONE_OF.get(call.args[0].id, (call.args[0].id,)):
                event = getattr(events, name)
                fields = set(event._record_fields) - {*_STAMP, *_CONSTANT}
                where = f"{file.name}:{call.lineno}"
                assert given <= fields, f"{where}: {name} has no field {given - fields}"
                assert fields - set(event._record_defaults) <= given, f"{where}: {name} lacks fields"
                found.add(name)
    assert found == {event.__name__ for event in _all(AgentEvent)}


def _all(base: type[AgentEvent]) -> list[type[AgentEvent]]:
    return [one for child in base.__subclasses__() for one in (child, *_all(child))]


def test_events_share_their_defaults() -> None:
    for event in _all(AgentEvent):
        shared = [value for value in event._record_defaults.values() if type(value).__hash__ is None]
        assert not shared, f"{event.__name__} has a default that can change, which `_maker` does not copy"
        assert not hasattr(event, "__post_init__"), f"`_maker` does not call {event.__name__}.__post_init__"
