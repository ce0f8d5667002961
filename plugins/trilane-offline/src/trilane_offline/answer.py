"""Words the answer, only from what the tools returned. What it adds are counts and sums of that, and plain sentences.

Reading results is in `results.py`; what the planner says of itself is in `introduction.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from .clauses import Clause
from .fill import Parameter, parameters_of
from .introduction import shorten
from .plan import Each, Plan, Step
from .results import Done, described, items_of, notes_of, number_of, text_of_result, value_of
from .words import related, stem, tokens, word_set

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.messages import Outcome
    from trilane.models import ToolSpec

__all__ = ["MOST_EACH", "compose", "each_calls", "pieces"]

MOST_EACH = 32
"""Items of a first result that are worked through one by one; the rest is left out and named in the answer."""

_MOST_ITEMS = 100
_MOST_FIELDS = 50
_PIECES = 200
_FAILURES: dict[Outcome, str] = {
    "error": "failed",
    "denied": "was denied",
    "not_started": "was not started",
    "interrupted": "was interrupted",
    "timed_out": "ran out of time",
    "still_running": "is still running",
    "superseded": "was superseded",
}
_LISTS = word_set("list find glob ls enumerat")


def each_calls(each: Each, done: Sequence[Done]) -> tuple[list[dict[str, JsonValue]], int]:
    """Arguments for the second step of an `Each`, and how many items are left out; none without a good first result."""
    source = _find(done, each.source.tool, each.source.arguments)
    if source is None or not source.ok:
        return [], 0
    items = [item for item in dict.fromkeys(items_of(source.result)) if not item.endswith("/")]
    chosen = [{**each.arguments, each.parameter: item} for item in items[:MOST_EACH]]
    return chosen, max(0, len(items) - MOST_EACH)


def compose(plan: Plan, done: Sequence[Done], tools: Sequence[ToolSpec]) -> str:
    """The answer to a plan whose calls have their results."""
    writer = _Writer(done, tools)
    sections = [section for step in plan.steps if (section := writer.step(step))]
    sections += [writer.one(left, None) for left in writer.unused()]
    for miss in plan.misses:
        reason = miss.reason or "no tool at hand fits"
        sections.append(f"Not done: “{shorten(miss.text)}”. Reason: {reason}.")
    sections += plan.notes
    return "\n\n".join(sections)


def pieces(text: str) -> Iterator[str]:
    """`text` in at most some 200 pieces that end behind a space or line end where there is one."""
    size = max(16, len(text) // _PIECES)
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        for stop in range(end, min(len(text), end + size)):
            if text[stop - 1].isspace():
                end = stop
                break
        yield text[start:end]
        start = end


def _find(done: Sequence[Done], tool: str, arguments: Mapping[str, JsonValue]) -> Done | None:
    return next((one for one in done if one.call.name == tool and dict(one.call.arguments) == dict(arguments)), None)


class _Writer:
    def __init__(self, done: Sequence[Done], tools: Sequence[ToolSpec]) -> None:
        self._done = done
        self._told: set[int] = set()
        self._parameters = {tool.name: parameters_of(tool) for tool in tools}

    def unused(self) -> list[Done]:
        """Results that belong to no step: a plugin changed the call, or the tools changed in between."""
        return [one for one in self._done if id(one) not in self._told]

    def step(self, step: Step) -> str:
        """What the results say about one clause."""
        found = [one for call in step.calls if (one := _find(self._done, call.tool, call.arguments))]
        sections = [self._group(found, step.clause)] if found else []
        sections += [self._each(each, step.clause) for each in step.each]
        return "\n\n".join(filter(None, sections))

    def _group(self, found: Sequence[Done], clause: Clause) -> str:
        fresh = [one for one in found if id(one) not in self._told]
        numbers = [one for one in fresh if one.ok and number_of(one.result)]
        if len(numbers) > 1 and self._is_counting(numbers[0]):
            return self._table(fresh, clause)
        return "\n\n".join([self.one(one, clause) for one in fresh])

    def _each(self, each: Each, clause: Clause) -> str:
        source = _find(self._done, each.source.tool, each.source.arguments)
        if source is None:
            return ""
        wanted, left_out = each_calls(each, self._done)
        if not wanted:
            return "" if id(source) in self._told else self.one(source, clause)
        self._told.add(id(source))
        found = [one for arguments in wanted if (one := _find(self._done, each.tool, arguments))]
        sections = [self._table(found, clause)] if found else [self.one(source, clause)]
        sections += notes_of(source.result)
        if left_out:
            sections.append(f"The list has {left_out} more; I worked through the first {MOST_EACH}.")
        return "\n".join(sections)

    def _table(self, found: Sequence[Done], clause: Clause) -> str:
        """One line for each call, then the sum, and the extreme if it was asked for."""
        lines: list[str] = []
        counted: list[tuple[Decimal, str]] = []
        for one in found:
            number = number_of(one.result) if one.ok else ""
            if number and self._is_counting(one):
                counted.append((Decimal(number), self._subject(one)))
            text = self.one(one, None)
            lines.append(f"- {text}" if "\n" not in text else text)
        if clause.extreme and len(counted) > 1:
            pick = max if clause.extreme == "most" else min
            value, name = pick(counted, key=lambda pair: pair[0])
            tied = [other for size, other in counted if size == value]
            names = name if len(tied) == 1 else f"{', '.join(tied[:-1])} and {tied[-1]}"
            lines.insert(0, f"The {clause.extreme}: {names}, with {_counted(value, self._noun(found[0]))}.")
        elif len(counted) > 1:
            total = sum((value for value, _ in counted), Decimal(0))
            lines.append(f"Together: {_counted(total, self._noun(found[0]))}.")
        return "\n".join(lines)

    def one(self, done: Done, clause: Clause | None) -> str:
        """What one result says."""
        self._told.add(id(done))
        name, text = done.call.name, text_of_result(done.result)
        if not done.ok:
            said = f": {text}" if text.strip() else "."
            return f"{name}({described(done.call.arguments)}) {_FAILURES.get(done.result.outcome, 'failed')}{said}"
        number = number_of(done.result)
        if number and self._is_counting(done):
            return f"{self._subject(done)} has {_counted(Decimal(number), self._noun(done))}."
        if not text.strip():
            return f"{name}({described(done.call.arguments)}) ran and returned nothing."
        if items := self._listed(done):
            return self._list(done, items)
        value = value_of(done.result)
        if isinstance(value, dict):
            return f"{self._heading(done)}\n{_fields(value, clause)}"
        return self._plain(done, text, clause)

    def _plain(self, done: Done, text: str, clause: Clause | None) -> str:
        subject = self._subject(done)
        if "\n" not in text.strip() and (number_of(done.result) or not subject or subject not in text):
            says_all = text.startswith("No ") and text.endswith(".")
            return text if says_all else f"{done.call.name}({described(done.call.arguments)}): {text.strip()}"
        if "\n" not in text.strip():
            return text.strip()
        last = _last_lines(clause)
        if last and not notes_of(done.result):
            lines = text.rstrip("\n").split("\n")
            heading = f"The last {min(last, len(lines))} of the {len(lines)} lines that {done.call.name} returned"
            return f"{heading} for {subject or described(done.call.arguments)}:\n\n" + "\n".join(lines[-last:])
        return f"{self._heading(done)}\n\n{text.rstrip()}"

    # Names

    def _heading(self, done: Done) -> str:
        parameter = self._subject_parameter(done)
        if parameter is None or self._has_text(done):
            return f"{done.call.name}({described(done.call.arguments)}) returned:"
        others = described(done.call.arguments, without=frozenset({parameter}))
        return f"{self._subject(done)}{f' ({others})' if others else ''}:"

    def _has_text(self, done: Done) -> bool:
        return any(p.role == "text" and p.name in done.call.arguments for p in self._of(done))

    def _of(self, done: Done) -> tuple[Parameter, ...]:
        return self._parameters.get(done.call.name, ())

    def _subject_parameter(self, done: Done) -> str | None:
        """The argument a result is about: the file, or the only text there is."""
        arguments = done.call.arguments
        texts = [name for name, value in arguments.items() if isinstance(value, str)]
        files = [p.name for p in self._of(done) if p.role == "file" and p.name in texts]
        if files:
            return files[0]
        return texts[0] if len(texts) == 1 else None

    def _subject(self, done: Done) -> str:
        parameter = self._subject_parameter(done)
        return str(done.call.arguments[parameter]) if parameter else ""

    def _is_counting(self, done: Done) -> bool:
        words = [stem(word) for word in tokens(done.call.name)]
        counts = len(words) > 1 and (words[0] == "count" or "count" in related(words[0]) or words[-1] == "count")
        return counts and bool(self._subject(done))

    def _noun(self, done: Done) -> str:
        words = tokens(done.call.name)
        return " ".join(words[:-1] if words[-1] == "count" else words[1:])

    # Lists

    def _listed(self, done: Done) -> list[str]:
        """The items, if the tool lists things rather than showing their text."""
        value = value_of(done.result)
        if isinstance(value, list):
            return items_of(done.result) if all(isinstance(item, str) for item in value) else []
        words = {stem(word) for word in tokens(done.call.name)}
        return items_of(done.result) if isinstance(value, str) and words & _LISTS and not self._has_text(done) else []

    def _list(self, done: Done, items: Sequence[str]) -> str:
        notes = notes_of(done.result)
        noun = " ".join(tokens(done.call.name)[1:]) or "items"
        arguments = dict(done.call.arguments)
        conditions = [
            f" matching {value}" if self._role(done, name) == "glob" else f" in {value}"
            for name, value in arguments.items()
            if self._role(done, name) in ("glob", "file", "folder")
        ]
        where = "".join(conditions) or (f" from {done.call.name}({described(arguments)})" if arguments else "")
        amount = f"{noun.capitalize()}" if notes else f"{_counted(Decimal(len(items)), noun)}"
        lines = [f"{amount}{where}:", *[f"- {item}" for item in items[:_MOST_ITEMS]]]
        if len(items) > _MOST_ITEMS:
            lines.append(f"and {len(items) - _MOST_ITEMS} more that {done.call.name} returned.")
        return "\n".join(lines + notes)

    def _role(self, done: Done, name: str) -> str:
        return next((p.role for p in self._of(done) if p.name == name), "other")


def _counted(value: Decimal, noun: str) -> str:
    text = f"{value:f}"
    if value == 1 and noun.endswith("s") and not noun.endswith("ss"):
        noun = noun[:-1]
    return f"{text} {noun}"


def _last_lines(clause: Clause | None) -> int:
    """N, if a clause asks for the last N lines."""
    if clause is None:
        return 0
    for entity in clause.of_kind("number"):
        if entity.lead == "last" and entity.unit == "lin" and isinstance(entity.numbers[0], int):
            return max(0, entity.numbers[0])
    return 0


def _fields(value: Mapping[str, JsonValue], clause: Clause | None) -> str:
    """The fields a clause names, or all of them."""
    said = set(clause.stems) if clause else set()
    near = said | {other for word in said for other in related(word)}
    exact = [name for name in value if {stem(word) for word in tokens(name)} & said]
    close = [name for name in value if {stem(word) for word in tokens(name)} & near]
    chosen = exact or close or list(value)
    lines = [f"- {name}: {_scalar(value[name])}" for name in chosen[:_MOST_FIELDS]]
    if len(chosen) > _MOST_FIELDS:
        lines.append(f"and {len(chosen) - _MOST_FIELDS} more fields")
    return "\n".join(lines)


def _scalar(value: JsonValue) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
